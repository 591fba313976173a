"""`!command`: a person runs a command in the agent's kernel, and the next prompt carries its output."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freeact_sub.calls import CodeAction, ShellCommand
from freeact_sub.events import ApprovalRequest, CodeExecutionOutput, Decision, Event

if TYPE_CHECKING:
    from freeact_sub.agents import Agent, Run


@dataclass(frozen=True, kw_only=True)
class TypedCommand:
    """A command that a person has ordered. It takes its turn among the prompts, when no run is active."""

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
        """Whether the event asks about this command, which the person has allowed by typing it. Denials by rules stay."""
        if not isinstance(event, ApprovalRequest):
            return False
        call = event.call
        is_it = call.command == self.command if isinstance(call, ShellCommand) else call == CodeAction(code=self.code)
        if is_it:
            event.decide(Decision(allowed=True))
        return is_it

    def told(self, event: Event) -> str:
        """The text about the command for the model, once the event is its output."""
        if not isinstance(event, CodeExecutionOutput):
            return ""
        return f"[The user has run this command in the workspace:]\n{self.command}\n[Its output:]\n{event.text}"
