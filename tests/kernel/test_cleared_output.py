"""What a cell clears or replaces is gone for everybody who looks at it later; nothing of it piles up in a scrollback."""

import io
import json

import pytest
from support.agents import cell, of_kind, read
from support.sample_events import ROOT
from support.stories import apply, block_of

from freeact_sub import Agent, Config
from freeact_sub.cells import ClearOutput, StreamText
from freeact_sub.events import CodeExecutionOutput, CodeExecutionOutputChunk
from freeact_sub.export import export_events, export_session
from freeact_sub.notebook.render import settled_part
from freeact_sub.show.agent_story import Stories
from freeact_sub.show.teller import MAX_HELD
from freeact_sub.terminal.drawing.area import story_area
from freeact_sub.terminal.drawing.parts import make_console
from freeact_sub.terminal.drawing.story import Story
from freeact_sub.terminal.plain_lines import PlainLines
from freeact_sub.testing import ScriptedModel
from freeact_sub.text import clean

pytestmark = pytest.mark.kernel

IMPORTS = "from IPython.display import clear_output, display, update_display, HTML\n"
CELLS = {
    "at once": ("print('old'); clear_output(); print('last')", ["last"]),
    "waiting": ("print('old'); clear_output(wait=True); print('last')", ["last"]),
    "waiting in vain": ("print('last'); clear_output(wait=True)", ["last"]),
    "asked twice": ("print('last'); clear_output(wait=True); clear_output(wait=True)", ["last"]),
    "at the end": ("print('old'); clear_output()", []),
    "many times": ("for n in range(300): clear_output(wait=True); print('old' if n < 299 else 'last')", ["last"]),
    "without a line end": ("print('old', end=''); clear_output(); print('last')", ["last"]),
    "both streams": ("import sys\nprint('old', file=sys.stderr); clear_output(); print('last', file=sys.stderr)", ["last"]),
    "displays": ("for n in range(30): clear_output(wait=True); display('old' if n < 29 else 'last')", ["'last'"]),
    "before a value": ("print('old'); clear_output()\n'last'", ["'last'"]),
    "before an error": ("print('old'); clear_output(); print('last'); raise ValueError('no')", ["last", "ValueError: no"]),
    "an update": ("h = display('old', display_id=True)\nfor n in range(9): h.update('last' if n == 8 else 'old')", ["'last'"]),
    "an update before text": ("h = display('old', display_id=True); h.update('first'); print('last')", ["'first'", "last"]),
    "an update by its name": ("display('old', display_id='x'); update_display('last', display_id='x')", ["'last'"]),
    "an update that is cleared": ("h = display('old', display_id=True); h.update('old'); clear_output(); print('last')", ["last"]),
}  # fmt: skip


def lines_of(text):
    """The lines of output."""
    starts = ("old", "last", "'", "ValueError: ")
    return [line for line in map(str.strip, clean(text).splitlines()) if line.startswith(starts)]


def in_a_log(events):
    """The lines of output in a log, which takes nothing back."""
    views, written = Stories(), ""
    lines = PlainLines(views)
    for event in events:
        views.observe(event)
        written += lines.write(event)
    return [line.partition(": ")[2] for line in written.splitlines() if " output: " in line]


def in_a_block(events):
    """The text of a notebook's block."""
    block = block_of(events[0])
    for event in events[1:]:
        apply(block, event)
    return settled_part(block)["text/plain"]


def in_a_notebook(notebook):
    """The text of the outputs of an exported notebook."""
    outputs = [output for cell in json.loads(notebook)["cells"] for output in cell.get("outputs", ())]
    texts = (o.get("text") or "\n".join(o.get("traceback", ())) or o.get("data", {}).get("text/plain", "") for o in outputs)
    return "\n".join(texts)


@pytest.mark.parametrize("name", CELLS)
async def test_everybody_sees_the_last_state(tmp_path, name):
    code, shown = CELLS[name]
    script = {"root": [[cell(IMPORTS + code)], "done"]}
    async with Agent(Config(workspace=tmp_path), model=ScriptedModel(script), session="new") as agent:
        events, _ = await read(agent.run("root"))
        session_id = agent.session_id
    [ended] = of_kind(events, CodeExecutionOutput)
    chunks = [event.output for event in of_kind(events, CodeExecutionOutputChunk)]
    assert not any(isinstance(output, ClearOutput) and output.wait for output in chunks)
    assert lines_of(ended.text) == shown
    assert lines_of(in_a_block(events)) == shown
    assert lines_of(in_a_notebook(export_events(events, "ipynb"))) == shown
    assert lines_of(in_a_notebook(export_session(session_id, "ipynb"))) == shown
    log = in_a_log(events)
    last = sorted(line for line in shown if "ValueError" not in line)  # a replaced display comes at the end
    assert sorted(line for line in log if not line.startswith(("old", "'old"))) == last
    assert len(log) - len(shown) <= 1  # what a cell has put out before it first took something back


class Scrollback:
    """A terminal, which takes nothing back."""

    def __init__(self):
        self.views = Stories()
        self.story = Story(self.views)
        self.console = make_console(io.StringIO())

    def text(self, drawn):
        with self.console.capture() as capture:
            self.console.print(drawn)
        return capture.get()

    def draw(self, output):
        event = CodeExecutionOutputChunk(**ROOT, tool_call_id="call", output=output)
        self.views.observe(event)
        return self.text(drawn) if (drawn := self.story.draw(event)) is not None else ""

    @property
    def below(self):
        """What stands below the scrollback for the moment."""
        area = story_area(self.views, self.story, None, 20)
        return "" if area is None else self.text(area)


def test_in_a_terminal_the_present_state_stands_below_the_scrollback():
    terminal = Scrollback()
    for number in range(1000):
        drawn = terminal.draw(ClearOutput()) + terminal.draw(StreamText(name="stdout", text=f"step {number}\nof 1000\n"))
        assert drawn == ""
        assert [line.strip() for line in terminal.below.splitlines()] == [f"step {number}", "of 1000"]


def test_what_is_held_back_is_bounded():
    terminal = Scrollback()
    terminal.draw(ClearOutput())
    drawn = "".join(terminal.draw(StreamText(name="stdout", text=f"{number}\n")) for number in range(MAX_HELD + 2))
    assert drawn.split()[:7] == [str(number) for number in range(7)]


def test_each_cell_of_two_that_run_at_once_clears_its_own_output():
    views = Stories()
    lines, written = PlainLines(views), ""
    for call, output in (
        ("a", StreamText(name="stdout", text="kept")),
        ("b", ClearOutput()),
        ("a", StreamText(name="stdout", text="\n")),
    ):
        event = CodeExecutionOutputChunk(**ROOT, tool_call_id=call, output=output)
        views.observe(event)
        written += lines.write(event)
    assert written.endswith("output: kept\n")
