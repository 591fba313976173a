"""What an agent's story keeps of its events."""

import dataclasses
from typing import get_args

import pytest
from support.sample_events import ROOT, one_of_each, picture, request

from freeact_sub import events
from freeact_sub.calls import CodeAction, FileWrite
from freeact_sub.cells import DisplayData, StreamText
from freeact_sub.show.agent_story import Stories
from freeact_sub.show.blocks import Approval, CallStep, GrowingText, Said, StoryLimits

CELL = {**ROOT, "tool_call_id": "call-1"}
MOVING = {kind for kind in get_args(events.Event) if kind.momentary} | {events.UsageUpdated}
"""Events of a moment: they are in what an agent does now, not in what it has done."""


def told(happened, limits=None):
    stories = Stories(limits or StoryLimits())
    for event in happened:
        story = stories.observe(event)
    return story


def start(code="print(1)", **header):
    return events.ToolCallStarted(**{**CELL, **header}, tool_name="execute_ipython_cell", args={"code": code})


def out(text, **header):
    return events.CodeExecutionOutputChunk(**{**CELL, **header}, output=StreamText(name="stdout", text=text))


def end(**header):
    return events.CodeExecutionOutput(**{**CELL, **header}, text="", status="ok")


def test_no_kind_of_event_is_dropped_without_a_word():
    stories = Stories(StoryLimits())
    dropped, kinds = set(), set()
    for event in one_of_each("text"):
        event = dataclasses.replace(event, **ROOT)  # noqa: PLW2901
        version = stories.of(event).kept.version
        moves = isinstance(event, events.CodeExecutionOutputChunk)
        if stories.observe(event).kept.version == version and not moves:
            dropped.add(type(event))
        kinds.add(type(event))
    assert kinds >= MOVING
    assert dropped == MOVING


def test_a_story_without_limits_keeps_no_items_and_knows_what_its_agent_does():
    stories = Stories()
    for event in [
        events.AgentStarted(**ROOT, prompt="go"),
        start("x()"),
        out("1"),
        request("r", CodeAction(code="x()"), **CELL),
    ]:
        story = stories.observe(event)
    assert story.items == []
    assert story.text == "waiting for approval: run code: x()"
    assert story.asked("r").call == CodeAction(code="x()")


def test_a_cell_with_the_id_of_an_earlier_one_gets_its_own_output():
    story = told([start("one"), out("1"), end(), start("two"), out("2"), end()])
    assert [(call.code, [*map(str, call.outputs)], call.running) for call in story.calls_made] == [
        ("one", ["1"], False),
        ("two", ["2"], False),
    ]


def test_an_approval_stands_beside_its_call_or_where_it_was_asked():
    write = FileWrite(operation="write", path="/x")
    story = told(
        [
            start("x()"),
            request("own", CodeAction(code="x()"), **CELL),
            out("before"),
            request("inner", write, **CELL),
            out("after"),
            end(),
            request("late", write, **CELL),
            events.ApprovalDecided(**CELL, request_id="inner", allowed=False, reason="no"),
        ]
    )
    call, late = story.items
    assert isinstance(call, CallStep)
    assert [approval.request.request_id for approval in call.approvals] == ["own"]
    before, inner, after = call.outputs
    assert (str(before), inner.decision.reason, str(after)) == ("before", "no", "after")
    assert isinstance(late, Approval)
    assert late.request.request_id == "late"


@pytest.mark.parametrize("kept", [1, 3])
def test_limits_hold_for_items_outputs_texts_and_displays(kept):
    limits = StoryLimits(first=1, last=kept, outputs=2, text_chars=100, display_chars=500)
    happened = []
    for number in range(10):
        header = {"tool_call_id": f"call-{number}"}
        happened += [start(**header), *[out("x" * 50, **header)] * 20]
        shown = dataclasses.replace(picture(), data={"image/png": "A" * 400})
        happened += [events.CodeExecutionOutputChunk(**{**CELL, **header}, output=shown)] * 3
        happened.append(end(**header))
    story = told(happened, limits)
    assert (len(story.items), story.kept.left_out) == (1 + kept, 9 - kept)
    outputs = [output for call in story.calls_made for output in call.outputs]
    assert len(outputs) == 2 * (1 + kept)
    assert sum("image/png" in output.data for output in outputs if isinstance(output, DisplayData)) == 1
    text = told([start(), *[out("x" * 50)] * 100], limits).items[0].outputs[0]
    assert isinstance(text, GrowingText)
    assert len(str(text)) < 250


def test_a_run_that_is_cut_off_has_no_call_that_runs():
    story = told([events.AgentStarted(**ROOT, prompt="go"), start()])
    story.cut_off()
    assert (story.status, [call.running for call in story.calls_made]) == ("interrupted", [False])


def test_text_that_streams_when_the_run_ends_is_kept():
    half = [events.AgentStarted(**ROOT, prompt="go"), events.ResponseChunk(**ROOT, content="half an")]
    story = told([*half, events.AgentFinished(**ROOT, status="cancelled")])
    assert [item.content for item in story.items if isinstance(item, Said)] == ["half an"]
    assert story.writing == ""
