"""An event of a class that nobody has listed is drawn as its words, and front ends that draw know no class of event."""

import ast
import inspect
import io
import json
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, get_args

from support.sample_events import CHILD, ROOT
from support.tables import each

from freeact_sub.acp import updates
from freeact_sub.acp.updates import NewNames, Updates
from freeact_sub.events import AgentEvent, AgentFinished, AgentStarted, Event, Notice
from freeact_sub.export import FORMATS, document, export_events, page
from freeact_sub.export import notebook as notebook_file
from freeact_sub.notebook import render
from freeact_sub.show import feed
from freeact_sub.show.agent_story import Stories
from freeact_sub.show.teller import blocks
from freeact_sub.terminal import plain_display, plain_lines
from freeact_sub.terminal.drawing import area, parts, story, transcript


@dataclass(frozen=True, kw_only=True)
class DiskFilled(AgentEvent):
    """An event of a program."""

    path: str
    free: int = 0


@dataclass(frozen=True, kw_only=True)
class Warned(Notice):
    """A program's own kind of notice."""


OF_ROOT = [DiskFilled(**ROOT, path="/data", free=7), Warned(**ROOT, content="free = 7, path = /data")]
OF_CHILD = [replace(event, **CHILD) for event in OF_ROOT]


def around(event: AgentEvent) -> list[Any]:
    begun = [AgentStarted(**ROOT, prompt="go"), *([AgentStarted(**CHILD, prompt="child")] if event.depth else [])]
    ends = [
        AgentFinished(agent_id=start.agent_id, parent_id=start.parent_id, depth=start.depth, status="completed")
        for start in begun
    ]
    return [replace(each, seq=number, time=1.0 + number) for number, each in enumerate([*begun, event, *reversed(ends)])]


def in_terminal(events: list[Any]) -> str:
    views, console = Stories(), parts.make_console(io.StringIO())
    told = story.Story(views)
    with console.capture() as capture:
        for event in events:
            views.observe(event)
            console.print(told.draw(event) or "")
    return capture.get()


def in_lines(events: list[Any]) -> str:
    views = Stories()
    log, told = plain_lines.PlainLines(views), plain_lines.PlainLines(views, lambda view: view.name)
    texts = []
    for event in events:
        found = blocks(views.observe(event), event)
        texts += [
            log.write(event, found),
            told.write(event, [block for block in found if plain_display.is_told(block, is_root=False)]),
        ]
    return "".join(texts)


def in_pager(events: list[Any]) -> str:
    views, records, console = Stories(), transcript.Records(), parts.make_console(io.StringIO())
    for event in events:
        records.add(event, blocks(views.observe(event), event))
    assert views.root is not None
    pager = transcript.Transcript(records, views.root)
    with console.capture() as capture:
        console.print(*(drawn for block in pager.blocks(pager.news()) for drawn in block.drawn), sep="\n")
    return capture.get()


def in_notebook(events: list[Any]) -> str:
    views = Stories(render.LIMITS)
    for event in events:
        views.observe(event)
    texts = [(render.settled_part(view)["text/html"], render.settled_part(view)["text/plain"]) for view in views.in_order()]
    return "".join(f"{html}\n{text}" for html, text in texts if "free" in text and "free" in html)


def on_page(events: list[Any]) -> str:
    views = Stories()
    return "".join(feed.event_html(views.observe(event), event) for event in events)


def in_editor(events: list[Any]) -> str:
    sent = []
    for stored in (False, True):
        told = Updates(NewNames(), stored=stored)
        sent.append([update for event in events for update in told.of(event)])
    assert [sum("free = 7" in json.dumps(update) for update in updates) for updates in sent] == [1, 1]
    return json.dumps(sent)


def exported(events: list[Any]) -> str:
    texts = [export_events(events, form) for form in FORMATS if form != "jsonl"]
    assert all("free = 7" in text for text in texts)
    return "".join(texts)


FRONT_ENDS = [in_terminal, in_lines, in_pager, in_notebook, on_page, in_editor, exported]


@each("draw", FRONT_ENDS, ids=lambda draw: draw.__name__)
def test_an_event_of_a_class_that_nobody_has_listed_is_drawn_as_its_words(draw: Any) -> None:
    for event in (*OF_ROOT, *OF_CHILD):
        text = draw(around(event))
        assert "free = 7" in text, event
        assert "/data" in text, event
        assert ("disk filled" in text.lower()) == isinstance(event, DiskFilled), event


def test_a_line_of_an_unknown_class_is_read_as_a_notice() -> None:
    event = AgentEvent.from_json(OF_CHILD[0].to_json())
    assert isinstance(event, Notice)
    assert (event.agent_id, event.depth, event.content) == (CHILD["agent_id"], 1, 'DiskFilled: {"path": "/data", "free": 7}')


@each(
    "module",
    [area, document, feed, notebook_file, page, parts, plain_display, plain_lines, render, story, transcript, updates],
)
def test_what_draws_blocks_knows_no_class_of_event_but_those_that_a_person_answers(module: ModuleType) -> None:
    names = {kind.__name__ for kind in get_args(Event)} - {"ApprovalRequest", "QuestionRequest"}
    tree = ast.parse(inspect.getsource(module))
    cases = [node for node in ast.walk(tree) if isinstance(node, ast.MatchClass)]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance"]
    assert not {name for node in (*cases, *calls) for name in names if f"ev.{name}" in ast.unparse(node)}
