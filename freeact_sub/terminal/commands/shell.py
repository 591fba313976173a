"""`!command`: a person runs a command in the agent's kernel, and its output goes along with the next prompt."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freeact_sub.calls import CodeAction, ShellCommand
from freeact_sub.events import ApprovalRequest, CodeExecutionOutput, Decision, Event

if TYPE_CHECKING:
    from freeact_sub.agents import Agent, Run


@dataclass(frozen=True, kw_only=True)
class TypedCommand:
    """What was asked for. It takes its turn among the prompts, so it is done when nothing runs."""

    command: str

    @property
    def code(self) -> str:
        """The cell that runs it."""
        return f"%%bash\n{self.command}" if "\n" in self.command else f"!{self.command}"

    @property
    def title(self) -> str:
        """What the run is called."""
        return f"!{self.command}"

    def run(self, agent: "Agent") -> "Run":
        """Begin it."""
        return agent.run_cell(self.code)

    def answers(self, event: Event) -> bool:
        """Whether the event asks for this command, which who has typed it has answered. What rules deny stays denied."""
        if not isinstance(event, ApprovalRequest):
            return False
        call = event.call
        is_it = call.command == self.command if isinstance(call, ShellCommand) else call == CodeAction(code=self.code)
        if is_it:
            event.decide(Decision(allowed=True))
        return is_it

    def told(self, event: Event) -> str:
        """What a model reads of it, once the event is its output."""
        if not isinstance(event, CodeExecutionOutput):
            return ""
        return f"[The user has run this command in the workspace:]\n{self.command}\n[Its output:]\n{event.text}"
