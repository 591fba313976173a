"""Orders of a person that are queued among the prompts and carried out between runs: a compaction, a command."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freeact_sub.calls import CodeAction, ShellCommand
from freeact_sub.events import ApprovalRequest, CodeExecutionOutput, Decision, Event
from freeact_sub.terminal.input.mentions import COMMAND_RUN

if TYPE_CHECKING:  # slow to import
    from freeact_sub.agent import Agent
    from freeact_sub.agents import Run


@dataclass(frozen=True, kw_only=True)
class Compaction:
    """`/compact`."""

    keep: str
    """The facts that the summary must keep."""

    @property
    def title(self) -> str:
        """The name of the run."""
        return "a summary"

    def run(self, agent: "Agent") -> "Run":
        """Starts it."""
        return agent.run_compaction(self.keep)


@dataclass(frozen=True, kw_only=True)
class TypedCommand:
    """`!command`: a command in the agent's kernel; the next prompt carries its output."""

    command: str

    @property
    def code(self) -> str:
        """The cell that runs it."""
        return f"%%bash\n{self.command}" if "\n" in self.command else f"!{self.command}"

    @property
    def title(self) -> str:
        """The name of the run."""
        return f"!{self.command}"

    def run(self, agent: "Agent") -> "Run":
        """Starts it."""
        return agent.run_cell(self.code)

    def answers(self, event: Event) -> bool:
        """Whether the event asks about this command, which the person allowed by typing it. Rules may still deny it."""
        if not isinstance(event, ApprovalRequest):
            return False
        call = event.call
        is_it = call.command == self.command if isinstance(call, ShellCommand) else call == CodeAction(code=self.code)
        if is_it:
            event.decide(Decision(allowed=True))
        return is_it

    def told(self, event: Event) -> str:
        """Return the text about the command for the model, if the event is its output."""
        if not isinstance(event, CodeExecutionOutput):
            return ""
        return f"{COMMAND_RUN}\n{self.command}\n[Its output:]\n{event.text}"
