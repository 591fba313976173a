"""`/compact` and `/context`: a person makes room in the model's context window, and sees what fills it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from freeact_sub.agents import Agent, Run
    from freeact_sub.agents.context.sizes import ContextUse


@dataclass(frozen=True, kw_only=True)
class Compaction:
    """A compaction that a person has ordered. It takes its turn among the prompts, when no run is active."""

    keep: str
    """The facts that the summary keeps above all."""

    @property
    def title(self) -> str:
        """The name of the run."""
        return "a summary"

    def run(self, agent: "Agent") -> "Run":
        """Starts it."""
        return agent.run_compaction(self.keep)


def context_text(use: "ContextUse") -> str:
    """A line for each kind of content that fills the window."""
    window = use.window_tokens
    share = f" of {window:,} ({use.tokens / window:.0%})" if window else "; the size of the window is not known"
    parts = {"instructions": use.instructions, "tools": use.tools, "messages": use.messages, "outputs": use.outputs}
    lines = [f"{name:<14}{tokens:>10,}" for name, tokens in parts.items()]
    return "\n".join([f"about {use.tokens:,} tokens{share}", *lines])
