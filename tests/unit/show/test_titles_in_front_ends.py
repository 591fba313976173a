"""A cell's title goes from the model's call to everything that shows the cell, and stays one harmless line there."""

import io
import json

import pytest
from pydantic_ai.messages import ToolCallPart
from support.agents import read
from support.stories import apply, block_of

from freeact_sub.activity import Activities
from freeact_sub.events import ApprovalRequest, ToolCallStarted
from freeact_sub.export import FORMATS, export_events
from freeact_sub.notebook.render import question_html, question_text, settled_part
from freeact_sub.show.agent_story import Stories
from freeact_sub.show.feed import event_html
from freeact_sub.terminal.drawing.parts import make_console
from freeact_sub.terminal.drawing.story import Story

TITLE, CODE = "Count <b>rows</b> of\n a.csv", "import os\nprint(len(os.listdir()))"
SHOWN, SAFE = "Count <b>rows</b> of a.csv", "Count &lt;b&gt;rows&lt;/b&gt; of a.csv"


@pytest.fixture
async def events(make):
    """The events of a run whose model gives its cell a title."""
    script = [[ToolCallPart("execute_ipython_cell", {"description": TITLE, "code": CODE})], "done"]
    async with make(script, config={"mode": "ask"}) as agent:
        return (await read(agent.run("go")))[0]


def of_kind(events, kind):
    return next(event for event in events if isinstance(event, kind))


async def test_events_carry_it_beside_the_code_that_is_judged(events):
    started, asked = of_kind(events, ToolCallStarted), of_kind(events, ApprovalRequest)
    assert (started.label, started.args) == (SHOWN, {"code": CODE})
    assert (asked.call.description, asked.call.text) == (SHOWN, CODE)
    activities = Activities()
    for event in events[: events.index(started) + 1]:
        activities.observe(event)
    assert activities.of(started.agent_id) == f"run code: {SHOWN}"


async def test_the_terminal_the_notebook_and_pages_show_it_above_the_code(events):
    views, asked = Stories(), of_kind(events, ApprovalRequest)
    console, story, block, page = make_console(io.StringIO()), Story(views), block_of(events[0]), ""
    for event in events:
        page += event_html(views.observe(event), event)
        if (drawn := story.draw(event)) is not None:
            console.print(drawn)
        apply(block, event)
    for shown in (console.file.getvalue(), settled_part(block)["text/plain"], question_text(asked)):
        assert SHOWN in shown
        assert "import os" in shown
    for shown in (settled_part(block)["text/html"], question_html(asked), page):
        assert SAFE in shown
        assert SHOWN not in shown


@pytest.mark.parametrize("to", FORMATS)
async def test_every_export_has_it(events, to):
    exported = export_events(events, to)
    if to == "ipynb":
        texts = ["".join(cell["source"]) for cell in json.loads(exported)["cells"]]
        assert texts[texts.index(CODE) - 1] == "*Count \\<b\\>rows\\</b\\> of a.csv*"
    else:
        assert (SAFE if to == "html" else SHOWN) in exported
    if to == "html":
        assert SHOWN not in exported
