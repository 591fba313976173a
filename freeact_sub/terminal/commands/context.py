"""`/compact` and `/context`: a person makes room in the model's context window, and looks what fills it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from freeact_sub.agents import Agent, Run
    from freeact_sub.agents.context.sizes import ContextUse


@dataclass(frozen=True, kw_only=True)
class Compaction:
    """What was asked for. It takes its turn among the prompts, so it is done when nothing runs."""

    keep: str
    """What the summary is to keep above all."""

    @property
    def title(self) -> str:
        """What the run is called."""
        return "a summary"

    def run(self, agent: "Agent") -> "Run":
        """Begin it."""
        return agent.run_compaction(self.keep)


def context_text(use: "ContextUse") -> str:
    """What fills the window, as a person reads it; a line for each."""
    window = use.window_tokens
    share = f" of {window:,} ({use.tokens / window:.0%})" if window else "; the size of the window is not known"
    parts = {"instructions": use.instructions, "tools": use.tools, "messages": use.messages, "outputs": use.outputs}
    lines = [f"{name:<14}{tokens:>10,}" for name, tokens in parts.items()]
    return "\n".join([f"about {use.tokens:,} tokens{share}", *lines])
