"""All that an agent has done, to be looked at."""

import pytest
from rich.console import Group
from support.drawn_story import DrawnStory, call, output
from support.sample_events import CHILD, ROOT, USAGE

from freeact_sub.events import AgentFinished, AgentStarted, Response, UsageUpdated
from freeact_sub.events.ending import CommandReceipt, Receipts
from freeact_sub.show import teller
from freeact_sub.show.agent_story import AgentStory, Stories
from freeact_sub.terminal.drawing.transcript import EVENT_CHARS, MAX_CHARS, Block, Records, Transcript


def blocks_of(records: Records, view: AgentStory) -> list[Block]:
    transcript = Transcript(records, view)
    return [*transcript.blocks(transcript.news())]


def text_of(blocks: list[Block]) -> str:
    return DrawnStory().text(Group(*(drawn for block in blocks for drawn in block.drawn)))


def test_all_that_an_agent_has_done_can_be_looked_at_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freeact_sub.terminal.drawing.transcript.MAX_CHARS", 1000)
    drawn, records = DrawnStory(), Records()
    for number in range(200):
        event = Response(**ROOT, content=f"answer {number}")
        records.add(event, teller.blocks(drawn.views.observe(event), event))
    text = text_of(blocks_of(records, drawn.views.root))
    assert "answer 199" in text
    assert "answer 1\n" not in text
    assert "earlier entries are not kept" in text


@pytest.mark.slow
def test_a_great_many_short_events_are_bounded_too() -> None:
    records, views = Records(), Stories()
    for _ in range(MAX_CHARS // EVENT_CHARS + 100):
        event = output("")
        records.add(event, teller.blocks(views.observe(event), event))
    assert "earlier entries are not kept" in text_of(blocks_of(records, views.root))


def test_what_is_looked_at_is_whole_and_of_children_has_their_ends() -> None:
    records, views = Records(), Stories()
    answer = Response(**CHILD, content="first line\nsecond line")
    made = Receipts(cells_run=2, commands_run=1, commands=(CommandReceipt(command="make"),))
    facts = {"usage": USAGE, "tree_usage": USAGE, "receipts": made, "missing_files": ("a.csv",)}
    end = AgentFinished(**CHILD, **facts, status="completed", output=answer.content, seconds=2)
    started = AgentStarted(**CHILD, prompt="look north", description="the north")
    events = [AgentStarted(**ROOT, prompt="go"), call(), output("x\n" * 40), started, answer, end]
    events += [call("import os\n" * 30, **CHILD), UsageUpdated(**ROOT, usage=USAGE, tree_usage=USAGE)]
    for event in events:
        records.add(event, teller.blocks(views.observe(event), event))
    blocks, of_child = (blocks_of(records, view) for view in views.by_id.values())
    root, child = text_of(blocks), text_of(of_child)
    assert root.count("  x\n") == 12
    assert [block.is_foldable for block in blocks] == [False, True, False]
    for block in (*blocks, *of_child):
        block.is_open = True
    root, child = text_of(blocks), text_of(of_child)
    assert root.count("  x\n") == 40
    assert "✓ bbbb the north  first line" in root
    assert "bbbb the north  no file that the answer names exists: a.csv" in root
    assert "second line" not in root
    assert child.startswith("bbbb the north\n> look north\n")
    assert "second line" in child
    assert "no file that the answer names exists: a.csv\n" in child
    assert "receipts: 2 cells, 1 command\n" in child
    assert "command: make\n" in child
    assert child.count("import os") == 30, "the call that has no output yet"
    assert records.count("agent-aaaa0000") == 5
