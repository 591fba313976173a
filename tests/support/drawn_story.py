"""A run as the terminal draws it, without a terminal."""

import io

from rich.console import Console
from support.sample_events import ROOT

from freeact_sub.cells import StreamText
from freeact_sub.events import CodeExecutionOutputChunk, Event, ToolCallStarted
from freeact_sub.show.agent_story import Stories
from freeact_sub.terminal.drawing.parts import make_console
from freeact_sub.terminal.drawing.story import Story

CELL = {"tool_call_id": "call-1"}
CODE = "# count rows per file\nfor name in names:\n    print(name)"


class DrawnStory:
    """A story as a terminal shows it."""

    def __init__(self, *, columns: int = 80, colours: bool = False, verbose: bool = False) -> None:
        self.views = Stories()
        self.story = Story(self.views, verbose=verbose, columns=lambda: columns)
        self.console = make_console(io.StringIO())
        self.console.size = (columns, 40)
        if colours:
            self.console = Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=columns)

    def text(self, drawn: object) -> str:
        with self.console.capture() as capture:
            self.console.print(drawn)
        return capture.get()

    def draw(self, *events: Event) -> str:
        """What these events add."""
        parts = []
        for event in events:
            self.views.observe(event)
            if (drawn := self.story.draw(event)) is not None:
                parts.append(self.text(drawn))
        return "".join(parts)


def call(code: str = CODE, **header: object) -> ToolCallStarted:
    return ToolCallStarted(**{**ROOT, **CELL, **header}, tool_name="execute_ipython_cell", args={"code": code})


def output(text: str, **header: object) -> CodeExecutionOutputChunk:
    return CodeExecutionOutputChunk(**{**ROOT, **CELL, **header}, output=StreamText(name="stdout", text=text))
