"""Questions that are asked side by side are told apart by their labels, and each has its own answer, wherever they are shown."""

import asyncio
import io
import json
import re

import pytest
from pydantic_ai.messages import ModelResponse, ToolCallPart
from rich.console import Console
from support.agents import of_kind, read
from support.stories import apply, block_of
from support.tables import each

from freeact_sub import export_events
from freeact_sub.activity import Activities
from freeact_sub.events import AgentEvent, AgentStarted, ToolCallStarted, ToolOutput
from freeact_sub.notebook.render import settled_part
from freeact_sub.show.agent_story import Stories
from freeact_sub.show.heads import head_of_tool
from freeact_sub.show.teller import readable
from freeact_sub.terminal.drawing.story import Story

PLACES = ("harbour", "valley", "ridge", "island", "pass")
PROMPT = "Judge this report. It is long, and begins as all of them do."
"""The same for all, so that only labels tell questions apart."""


class Answers:
    """A model that answers the questions one by one, the last one first."""

    def __init__(self, *, from_tool):
        self.from_tool = from_tool
        self.come, self.waiting = [], []

    def __call__(self, messages, info):
        prompt = str(messages[-1].parts[-1].content)
        if not prompt.startswith(PROMPT):
            made = sum(isinstance(message, ModelResponse) for message in messages)
            return "done" if made else [ToolCallPart("ask", arguments(place)) for place in PLACES]
        self.come.append(prompt)
        self.waiting.append(asyncio.Event())
        mine = self.waiting[-1]
        if len(self.come) == len(PLACES):
            self.go_on()
        return [mine, f"answer of {prompt.split()[-1]}"]

    def go_on(self, event=None):
        """Gives the next answer, when the one before it has arrived."""
        if self.waiting and (event is None or isinstance(event, ToolOutput)):
            self.waiting.pop().set()


def arguments(place):
    return {"prompt": f"{PROMPT} {place}", "label": f"judge {place}"}


@pytest.fixture(params=["by the model", "by a program", "by code in a cell"])
async def events(make, request):
    """The events of a run in which five questions are asked."""
    model = Answers(from_tool=request.param == "by the model")
    async with make(model, config={"mode": "full"}) as agent:
        if model.from_tool:
            found, result = await read(agent.run("go"), on_event=model.go_on)
        else:

            async def program():
                return await asyncio.gather(*(agent.ask(**arguments(place)) for place in PLACES))

            found, result = await read(agent.run_program(program), on_event=model.go_on)
            assert result.output == [f"answer of {place}" for place in PLACES]
    if request.param == "by code in a cell":  # there all of them have the id of their cell
        for event in found:
            if isinstance(event, ToolCallStarted | ToolOutput):
                object.__setattr__(event, "tool_call_id", "cell-1")
    assert result.status == "completed"
    return found


def told(events):
    """The answer of each label."""
    by_call = {(call.tool_call_id, call.call_id): call for call in of_kind(events, ToolCallStarted)}
    outputs = of_kind(events, ToolOutput)
    assert len(by_call) == len(outputs) == len(PLACES)
    for output in outputs:
        assert by_call[output.tool_call_id, output.call_id].label == output.label
        assert by_call[output.tool_call_id, output.call_id].args["label"] == output.label
    return {output.label: output.content for output in outputs}


async def test_events_say_which_is_which(events):
    expected = {f"judge {place}": f"answer of {place}" for place in PLACES}
    assert told(events) == expected
    assert told([AgentEvent.from_json(event.to_json()) for event in events]) == expected


async def test_lists_of_agents_say_what_is_asked_and_what_still_is(events):
    activities, open_labels = Activities(), {f"judge {place}" for place in PLACES}
    for event in events:
        activities.observe(event)
        if isinstance(event, ToolOutput):
            open_labels.discard(event.label)
            doing = activities.of(event.agent_id)
            assert not open_labels or any(f"ask: {label}" in doing for label in open_labels)
            assert not any(label in doing for label in {f"judge {place}" for place in PLACES} - open_labels)


async def test_heads_and_rows_show_the_label_first(events):
    views = Stories()
    heads, titles = [], []
    for event in events:
        view = views.observe(event)
        if isinstance(event, ToolCallStarted):
            heads.append(head_of_tool(event).text)
        if isinstance(event, ToolCallStarted | ToolOutput):
            titles += [row.title for row in readable(view, event)]
    assert sorted(head.split(":")[0] for head in heads) == sorted(f"Ask  judge {place}" for place in PLACES)
    assert sorted(titles) == sorted(
        [f"asks a model: judge {place}" for place in PLACES]
        + [f"gets the result of question to a model: judge {place}" for place in PLACES]
    )


async def test_the_terminal_draws_each_answer_below_its_question(events):
    views, console = Stories(), Console(file=io.StringIO(), width=100)
    story = Story(views)
    for event in events:
        views.observe(event)
        drawn = story.draw(event)
        if drawn is not None:
            console.print(drawn)
    shown = console.file.getvalue()
    for place in PLACES:
        assert re.search(rf"Ask  judge {place}:[^●]*answer of {place}", shown), shown


async def test_a_notebook_shows_each_answer_in_its_call(events):
    block = block_of(next(event for event in events if isinstance(event, AgentStarted)))
    for event in events:
        apply(block, event)
    assert {call.label: call.result for call in block.calls_made} == {
        f"judge {place}": f"answer of {place}" for place in PLACES
    }
    for place in PLACES:
        assert f"judge {place}: question to a model(" in settled_part(block)["text/html"]
        assert f"judge {place}: question to a model(" in settled_part(block)["text/plain"]


@each("form", ["md", "html", "ipynb"])
async def test_exports_show_each_answer_with_its_question(events, form):
    text = export_events(events, form)
    if form == "ipynb":
        text = "\n".join("".join(found["source"]) for found in json.loads(text)["cells"])
    for place in PLACES:
        after = text.split(f"Call of question to a model: judge {place}")[1]
        assert re.search(r"answer of (\w+)", after)[1] == place


async def test_a_label_is_no_part_of_the_question(make):
    model = Answers(from_tool=True)
    async with make(model, config={"mode": "full"}) as agent:
        await read(agent.run("go"), on_event=model.go_on)
    assert sorted(model.come) == sorted(f"{PROMPT} {place}" for place in PLACES)
