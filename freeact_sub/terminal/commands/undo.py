"""`/undo`, `/rewind N` and `/redo`: a person takes prompts back, or restores them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from freeact_sub.errors import FreeactError
from freeact_sub.text import one_line, visible

if TYPE_CHECKING:
    from freeact_sub.agents import Agent, UndoReport

SHOWN: Final = 10
FEW: Final = 2
PROMPT_CHARS: Final = 60


@dataclass(frozen=True, kw_only=True)
class Rewind:
    """An undo or redo that a person has ordered. It takes its turn among the prompts, when no run is active."""

    prompts: int
    """The number of prompts: above 0 they are restored; below, undone."""
    to_change: bool = False
    """The first prompt that was undone comes back to the line."""

    async def done(self, agent: "Agent") -> tuple[str, str]:
        """Carries it out; returns a note for the person, and the text for the line, empty if there is none."""
        try:
            report = await (agent.redo(self.prompts) if self.prompts > 0 else agent.undo(-self.prompts))
        except FreeactError as error:
            return str(error), ""
        told = "\n".join(_lines(report, "restored" if self.prompts > 0 else "undone"))
        return told, report.prompts[0] if self.to_change else ""


def goes_along(report: "UndoReport") -> str:
    """A few words about what comes back with a prompt besides the conversation."""
    files = "without files" if report.files_problem else f"files {_some(report.files, FEW)}" if report.files else "no file"
    return f"{files} · {'without variables' if report.variables_problem else 'variables'}"


def _lines(report: "UndoReport", what: str) -> list[str]:
    lines = [f"{what}: {one_line(prompt, PROMPT_CHARS)}" for prompt in report.prompts]
    if report.files:
        lines.append(f"files: {_some(report.files)}")
    if report.files_problem:
        lines.append(f"not all files are as they were: {report.files_problem}")
    if report.variables_problem:
        lines.append(f"variables are not as they were: {report.variables_problem}")
    if report.lost:
        lines.append(f"variables that did not come back: {_some(tuple(lost.name for lost in report.lost))}")
    return lines


def _some(names: tuple[str, ...], shown: int = SHOWN) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return visible(", ".join(names[:shown])) + more
