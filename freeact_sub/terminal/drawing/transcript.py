"""`Transcript`: draws the rows of events (`show/rows.py`), one below the other.

Pure: an event and the view of its agent give a rich renderable, or None. It is drawn once and then belongs to the
terminal's scrollback. Each row stands behind a bar in its agent's colour, indented by the agent's depth; its first
line names the agent, and is left out only if the row continues the one before it.

Functions import the modules that draw Markdown and code: a conversation shows its prompt first.
"""

from collections.abc import Iterable
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from freeact_sub.calls import value_text
from freeact_sub.events import AgentStarted, ApprovalRequest, Event, ToolCallStarted
from freeact_sub.show.agent_story import AgentStory, Stories
from freeact_sub.show.rows import Part, Row, Tone, rows
from freeact_sub.terminal.drawing.parts import Barred, Folded, colour, coloured
from freeact_sub.text import visible

CODE_THEME: Final = "ansi_dark"  # the terminal's own colours

STYLES: Final[dict[Tone, str]] = {
    "": "",
    "good": "green",
    "bad": "red",
    "success": "bold green",
    "failure": "bold red",
    "warning": "yellow",
    "question": "bold yellow",
    "prompt": "bold",
    "thought": "dim italic",
    "quiet": "dim",
}


class Transcript:
    """Draws the events of a run, one after the other."""

    def __init__(self, views: Stories, *, with_prompts: bool = False) -> None:
        """Make it.

        Args:
            views: Observes each event before it is drawn here.
            with_prompts: Draw the prompt of a child, although it stands in the call of its parent.
        """
        self._views = views
        self._with_prompts = with_prompts
        self._begun = False
        self._last_title: tuple[str, str] | None = None
        self._last_call: tuple[str, str | None] | None = None
        self._last_requests: set[str] = set()

    def draw(self, event: Event, found: Iterable[Row] | None = None) -> RenderableType | None:
        """The drawing of the event; None for one that is not shown. Args: found: its rows if they are known."""
        view = self._views.of(event)
        shown = rows(view, event) if found is None else found
        drawn = [self.render(view, row) for row in shown if not row.passing]
        if drawn:
            self._last_call, self._last_requests = None, set()
        match event:
            case AgentStarted(parent_id=None):
                drawn[:0] = [Text()] if self._begun else []  # one prompt stands apart from the next
                self._begun = True
            case ToolCallStarted():
                self._last_call = (view.agent_id, event.tool_call_id)
            case ApprovalRequest() if drawn or self._last_call == (view.agent_id, event.tool_call_id):
                self._last_requests.add(event.request_id)
        return Group(*drawn) if drawn else None

    def is_last(self, request: ApprovalRequest) -> bool:
        """Whether the call of this request was drawn last."""
        return request.request_id in self._last_requests

    def forget_last(self) -> None:
        """Takes in that something was drawn that is no event."""
        self._last_title = self._last_call = None
        self._last_requests.clear()

    def render(self, view: AgentStory, row: Row) -> RenderableType:
        """The drawing of one row."""
        title = (view.agent_id, row.title)
        drawn: list[RenderableType] = []
        if not (row.goes_on and title == self._last_title):
            words = ", ".join(filter(None, [row.title, row.detail]))
            drawn.append(Text.assemble((view.name, f"bold {colour(view)}"), " ", (words, STYLES[row.tone] or "default")))
        with_prompt = self._with_prompts or view.parent_id is None
        drawn += [draw_part(part) for part in row.parts if part.tone != "prompt" or with_prompt]
        self._last_title = title
        return Barred(body=Group(*drawn), view=view)


def draw_part(part: Part) -> RenderableType:
    """The drawing of a part of a row, such as a call in full."""
    match part.form:
        case "markdown":
            from freeact_sub.terminal.drawing.markdown import markdown  # noqa: PLC0415

            return markdown(part.text)
        case "code":
            from rich.syntax import Syntax  # noqa: PLC0415

            return Syntax(part.text, "python", theme=CODE_THEME, background_color="default", word_wrap=True)
        case "arguments":
            return _arguments(part.data)
        case "output" | "bundle":
            return Folded(lines=coloured(part.text))
        case "text":
            return Text(part.text, STYLES[part.tone], overflow="fold")


def _arguments(args: dict[str, Any]) -> RenderableType:
    lines = [Text.assemble((f"{visible(name)} = ", "bold"), visible(value_text(value))) for name, value in args.items()]
    return Text("\n", overflow="fold").join(lines) if lines else Text("(no arguments)", "dim")
