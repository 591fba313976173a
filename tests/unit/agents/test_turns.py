"""The turns of a run: what its reader sees, what its model reads, and what stays in its history."""

import contextlib
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelRequest,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from support.agents import cell, read, task
from support.waiting import turns

from freeact_sub import Agent, Config
from freeact_sub.agents.turn import Booking
from freeact_sub.events import ToolCallStarted, UsageUpdated
from freeact_sub.testing import FakeKernelProvider, ScriptedModel

IDS = re.compile(r"(agent-|pyd_ai_|call_|approval-|question-)[0-9a-f]{8,}|[0-9.]+ s\b|^[0-9a-f]{4}$")
OF_A_MOMENT = {"timestamp", "run_id", "conversation_id", "tool_call_id", "time", "seq", "seconds", "provider_details", "key"}
EMPTY = (None, "", [], {}, False)
OF_A_MOMENT |= {"usage", "tree_usage", "context_tokens", "window_tokens", "parent_id", "agent_id", "receipts"}
RECORDED = Path(__file__).with_name("recorded_turns.json")
"""What runs were before. `RECORD=1` writes what they are."""

BOUND = {"budget": {"turns": 2}}
CASES = {
    "an answer": (["done"], {}),
    "cells": ([[cell("x = 1")], [cell("print(x)")], "1"], {}),
    "a cell that fails": ([[cell("1 / 0")], "no", "no"], {}),
    "calls side by side": ([[cell("x = 1"), cell("print(2)")], "2"], {}),
    "text beside a call": ([["I look.", cell("print(2)")], "2"], {}),
    "an unknown tool": ([[ToolCallPart("nothing", {})], [cell("x = 1")], "done"], {}),
    "wrong arguments": ([[ToolCallPart("execute_ipython_cell", {"cod": 1})], [cell("x = 1")], "done"], {}),
    "no JSON": ([[cell("x = 1")], [ToolCallPart("execute_ipython_cell", '{"code')], "done"], {}),
    "one of two is unknown": ([[cell("x = 1"), ToolCallPart("nothing", {})], "done"], {}),
    "one of two in the last turn": ([[cell("x = 1"), ToolCallPart("nothing", {})], "done"], {"budget": {"turns": 1}}),
    "an error after an unknown tool": ([["I look.", cell("x")], [ToolCallPart("nothing", {})], ValueError("broken")], {}),
    "an empty answer": (["", "done"], {}),
    "nothing but empty answers": (["", "", ""], {}),
    "a child": ([[task("child")], "done"], {}),
    "a bound on turns": (lambda messages, info: [cell(f"{len(messages)}")] if info.function_tools else "so far", BOUND),
    "a bound on calls": ([[cell("x = 1"), cell("x = 2")], "done"], {"budget": {"tool_calls": 1}}),
    "a circle": (lambda _, info: [cell("1 / 0")] if info.function_tools else "in vain", {}),
    "a denial": ([[cell("x = 1")], "done"], {"mode": "ask", "headless": "deny"}),
    "a denial that ends": ([[cell("x = 1")], "done"], {"mode": "ask", "headless": "deny", "on_denial": "end"}),
}
NEEDED = {"a child": ("files",), "a cell that fails": ("early", "files")}


def plain(value):
    """Without what no two runs share."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if key not in OF_A_MOMENT and item not in EMPTY}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return IDS.sub("ID", value) if isinstance(value, str) else value


class Changed(ScriptedModel):
    """Its first response is another."""

    def __init__(self, script, **changes):
        super().__init__(script)
        self.changes = changes

    @contextlib.asynccontextmanager
    async def request_stream(self, messages, *rest):
        async with super().request_stream(messages, *rest) as stream:
            if len(messages) == 1:
                get = stream.get
                stream.get = lambda: replace(get(), **self.changes)
            yield stream

    def prepare_messages(self, messages, parameters=None):
        return [*super().prepare_messages(messages, parameters), ModelRequest(parts=[UserPromptPart("prepared")])]


async def seen(agent, *prompts, cancel=False):
    """What a reader sees, in runs of one conversation, and what stays of it. Args: cancel: at the first result."""
    events, results = [], []
    async with agent:
        for prompt in prompts:
            run = agent.run(prompt)
            read_events, result = await read(
                run, on_event=lambda event, run=run: cancel and event.type == "ToolOutput" and run.cancel()
            )
            # a request that takes long, as on a loaded machine, has progress to show
            events += [plain(json.loads(event.to_json())) for event in read_events if event.type != "ModelProgress"]
            results.append((result.status, result.text, result.error, result.warnings))
        messages = ModelMessagesTypeAdapter.dump_python(agent.history, mode="json")
    # two requests in a row go to the model as one
    history = [f"{message['kind']}: {plain(part)}" for message in messages for part in message["parts"]]
    return {"events": sorted(map(str, events)), "results": plain(results), "history": history}


@pytest.mark.features("background", "limits", "memory", "plan", "questions")  # requests name tools; limits ask
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.features(*NEEDED[case])) if case in NEEDED else case for case in CASES]
)
async def test_a_run_is_as_it_was_recorded(make, monkeypatch, case):
    sent, request_stream = [], ScriptedModel.request_stream

    def note(model, messages, settings, parameters, *rest):
        notes = [part.content for part in parameters.instruction_parts[1:]]  # the first are the instructions of all runs
        tools = [tool.name for tool in parameters.function_tools]
        newest = ModelMessagesTypeAdapter.dump_python(messages[-1:], mode="json")[0]["parts"]
        sent.append(str(plain([len(messages), newest, settings, notes, tools])))
        return request_stream(model, messages, settings, parameters, *rest)

    monkeypatch.setattr(ScriptedModel, "request_stream", note)
    script, config = CASES[case]
    found = await seen(make(script, config={"mode": "full"} | config), "go", "go on")
    found["requests"] = sorted(sent)
    recorded = json.loads(RECORDED.read_text())
    if "RECORD" in os.environ:
        recorded[case] = json.loads(json.dumps(found))
        RECORDED.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")
    for what in found:
        assert json.loads(json.dumps(found[what])) == recorded[case][what], what


async def changed(tmp_path, config=(), **changes):
    """What is seen of a run whose answer is the number of messages and the newest one."""
    config = Config(workspace=tmp_path, **dict(config))
    model = Changed(lambda messages, _: [str(len(messages)), *(part.content for part in messages[-1].parts)], **changes)
    return await seen(Agent(config, model=model, kernel_provider=FakeKernelProvider()), "go")


async def test_a_provider_that_is_not_ready_is_asked_again_in_the_same_turn(tmp_path):
    found = await changed(tmp_path, {"budget": {"turns": 1}}, parts=[], state="suspended")
    assert found["results"] == [["completed", "2", "", []]]
    assert [part.partition(":")[0] for part in found["history"]] == ["request", "response"]


async def test_a_request_is_prepared_by_its_model(tmp_path):
    found = await changed(tmp_path)
    assert found["results"] == [["completed", "1goprepared", "", []]]


async def test_a_text_before_a_search_of_the_provider_is_no_part_of_the_answer(tmp_path):
    search = NativeToolCallPart("web_search", {}, "1"), NativeToolReturnPart("web_search", "found", "1")
    for parts in ([TextPart("I search."), *search, TextPart("done")], [TextPart("done"), *search]):
        found = await changed(tmp_path, parts=parts)
        assert found["results"] == [["completed", "done", "", []]]


async def test_a_cancelled_run_leaves_what_was_said_and_an_answer_to_each_call(make):
    script = [[cell("x = 1"), cell("!sleep 60")], "done"]
    found = await seen(make(script, config={"mode": "full"}), "go", "go on", cancel=True)
    assert found["results"] == [["cancelled", "", "the run was cancelled", []], ["completed", "done", "", []]]
    assert [part.partition(":")[0] for part in found["history"]] == [
        "request",
        *["response"] * 2,
        *["request"] * 3,
        "response",
    ]
    assert "without output" in found["history"][3]
    assert "interrupted" in found["history"][4]
    assert found["history"][5] == "request: {'content': 'go on', 'part_kind': 'user-prompt'}"


@pytest.mark.parametrize("where", ["while it closes", "while it is counted"])
async def test_an_answer_that_was_shown_stays_also_if_the_run_is_cancelled(make, monkeypatch, where):
    original = ScriptedModel.request_stream, Booking.settle

    async def cancel():
        run.cancel()
        await turns()

    @contextlib.asynccontextmanager
    async def request_stream(*args):
        async with original[0](*args) as stream:
            yield stream
            await cancel()

    async def settle(*args):
        await original[1](*args)
        await cancel()

    if where == "while it closes":
        monkeypatch.setattr(ScriptedModel, "request_stream", request_stream)
    else:
        monkeypatch.setattr(Booking, "settle", settle)
    async with make(["an answer"]) as agent:
        run = agent.run("go")
        _, result = await read(run)
        assert (result.status, result.text) == ("cancelled", "an answer")
        assert [message.parts[-1].content for message in agent.history] == ["go", "an answer"]


async def test_a_message_is_read_before_the_next_request(make):
    def model(messages, _info):
        prompts = [part.content for message in messages for part in message.parts if part.part_kind == "user-prompt"]
        match sum(message.kind == "response" for message in messages):
            case 0:
                return [cell("x = 1")]
            case 1:
                return [ToolCallPart("nothing", {})]
        return " ".join(map(str, prompts))

    async with make(model, config={"mode": "full"}) as agent:
        run = agent.run("go")

        def on_event(event):
            if isinstance(event, ToolCallStarted) and event.tool_name != "nothing":
                assert run.send("one")
            elif isinstance(event, UsageUpdated) and agent.scripted.requests == 2:
                assert run.send("two")

        _, result = await read(run, on_event=on_event)
    assert (result.status, result.output) == ("completed", "go one two")


async def test_a_message_after_the_last_response_is_answered_as_well(make):
    async with make(lambda messages, _info: f"{len(messages)}") as agent:
        run = agent.run("go")

        def on_event(event):
            if isinstance(event, UsageUpdated) and agent.scripted.requests == 1:
                assert run.send("and now?")

        _, result = await read(run, on_event=on_event)
        assert not run.send("too late")
    assert (result.status, result.output) == ("completed", "3")
