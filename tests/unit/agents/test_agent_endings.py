"""How runs of agents with fake kernels end, are denied and are cancelled. Real kernels are in `tests/kernel`."""

import asyncio
import threading

import pytest
from pydantic_ai import FunctionToolset
from pydantic_ai.messages import ThinkingPart, ToolCallPart, ToolReturnPart
from support.agents import cell, finished, of_kind, read, task
from support.tables import each
from support.virtual_time import in_virtual_time
from support.waiting import eventually, turns

from freeact_sub.events import (
    AgentFinished,
    AgentStarted,
    ApprovalRequest,
    Cancelled,
    Decision,
    KernelLost,
    ResponseChunk,
    ToolCallStarted,
    ToolOutput,
)


@pytest.mark.features("receipts")
async def test_the_turn_limit_ends_a_child_as_limit_with_a_report_of_what_it_has(make):
    def script(messages, info):
        if "child" not in str(messages[0].parts[-1].content):
            return "done" if len(messages) > 1 else [task("the child's work", max_turns=3, description="c")]
        if not info.function_tools:
            return "so far: 3 cells"
        return [cell("1")]

    async with make(script) as agent:
        events, result = await read(agent.run("go"))
    end = finished(events)["c"]
    assert (end.status, end.text) == ("limit", "so far: 3 cells")
    assert "turns" in end.error
    assert "3 of 3" in end.error
    assert end.usage.turns == 4
    assert end.usage.tool_calls == 3
    report = [event for event in of_kind(events, ToolOutput) if event.tool_name == "task"][0]
    assert report.outcome == "failed"
    assert report.content.startswith("[ERROR] ")
    assert f": limit; {end.tree_usage}; {end.seconds:.1f} s; receipts: 3 cells; " in report.content
    assert "limit" in report.content
    assert "so far: 3 cells" in report.content
    assert result.status == "completed"


async def test_without_salvage_the_last_text_is_kept_and_no_request_is_made_past_the_limit(make):
    script = lambda *_: ["working on it", cell("1")]
    async with make(script, config={"budget": {"turns": 2}, "subagents": {"salvage": False}}) as agent:
        _, result = await read(agent.run("go"))
        assert agent.scripted.requests == 2
    assert (result.status, result.text, result.usage.turns) == ("limit", "working on it", 2)


async def test_a_failing_provider_fails_its_child_alone_with_a_sentence(make):
    children = [task("bad child", description="bad"), task("good child", description="good")]
    script = {"root": [children, "done"], "bad": [[cell("1")], RuntimeError("provider is down")], "good": ["fine"]}
    async with make(script) as agent:
        events, result = await read(agent.run("root"))
    ends = finished(events)
    assert (ends["bad"].status, ends["good"].status, result.status) == ("failed", "completed", "completed")
    assert "provider is down" in ends["bad"].error
    outputs = [event.content for event in of_kind(events, ToolOutput) if event.tool_name == "task"]
    assert any(text.startswith("[ERROR]") and "provider is down" in text for text in outputs)


@pytest.mark.parametrize("text", ["", "  \n"])
async def test_no_answer_is_not_completed(make, text):
    async with make(lambda *_: [ThinkingPart("hm"), text or ThinkingPart("…")]) as agent:
        _, result = await read(agent.run("go"))
    assert result.status == "failed"
    assert result.error


async def test_a_denial_is_read_by_the_model_and_the_turn_goes_on(make):
    script = [[cell("1"), cell("2")], "I see"]
    rule = lambda request: Decision(allowed=request.call.code == "2", reason="one is dangerous")
    async with make(script) as agent:
        events, result = await read(agent.run("go"), rule)
        returns = [part for message in agent.history for part in message.parts if isinstance(part, ToolReturnPart)]
    assert [(part.outcome, part.model_response_str()) for part in returns] == [
        ("denied", "denied: one is dangerous"),
        ("success", "2"),
    ]
    assert {event.outcome for event in of_kind(events, ToolOutput)} == {"denied", "success"}
    assert result.status == "completed"


async def test_a_denial_ends_the_run_as_rejected_where_that_is_configured(make):
    async with make([[cell("1")], "never"], config={"on_denial": "end"}) as agent:
        _, result = await read(agent.run("go"), lambda _: Decision(allowed=False, reason="stop it"))
    assert result.status == "rejected"
    assert "stop it" in result.error


@pytest.mark.slow
async def test_always_for_this_session_covers_children_as_well(make):
    asked = []

    def rule(request):
        asked.append(request.call.kind)
        return Decision(allowed=True, remember="session")

    script = {"root": [[task("child")], [cell("1")], "done"], "child": [[cell("1")], "x"]}
    async with make(script) as agent:
        await read(agent.run("root"), rule)
    assert asked == ["spawn", "code"]


async def test_questions_of_several_children_are_open_at_once_and_the_others_go_on(make):
    script = {
        "root": [[task(f"asks {name}", description=name) for name in "abc"], "done"],
        "asks": [[cell("1")], "ok"],
    }
    open_requests: dict[str, ApprovalRequest] = {}

    def rule(request):
        if request.depth == 0:
            return Decision(allowed=True)
        open_requests[request.path[-1][-2]] = request
        if len(open_requests) == 3:
            open_requests["c"].approve()
        return None

    def on_event(event):
        if isinstance(event, AgentFinished) and event.depth:
            {1: lambda: open_requests["a"].approve(), 2: lambda: open_requests["b"].deny("not b")}.get(
                len(done := [*ended, event.agent_id]), lambda: None
            )()
            ended[:] = done

    ended: list[str] = []
    async with make(script) as agent:
        events, _ = await read(agent.run("root"), rule, on_event)
    order = [name for name in finished(events) if name]
    assert order == ["c", "a", "b"]


async def test_result_denies_what_nobody_is_there_to_answer(make):
    async with make([[cell("1")], "done"]) as agent:
        result = await asyncio.wait_for(agent.run("go").result(), 120)
        text = str(agent.history)
    assert result.status == "completed"
    assert "nobody is there to answer" in text


@each("where", ["silent model", "approval", "cell", "slot", "background", "program"])
@in_virtual_time
async def test_cancel_ends_the_run_wherever_it_is_and_waits_for_no_bound(make, where):
    """What it takes beyond that is work of this process; that of a real kernel's end is in `tests/kernel`."""
    silent = asyncio.Event()
    scripts = {
        "silent model": {"root": [["thinking", silent]]},
        "approval": {"root": [[cell("1")]]},
        "cell": {"root": [[cell("!sleep 1000")]]},
        "slot": {"root": [[task("a"), task("b")]], "a": [["x", silent]], "b": ["never"]},
        "background": {"root": [[task("a", background=True)], ["x", silent]], "a": [["x", silent]]},
        "program": {"root": [[ToolCallPart("starts_one", {})]], "a": [["x", silent]]},
    }
    config = {"subagents": {"max_concurrent": 1, "detach": False}}
    toolset = FunctionToolset()

    @toolset.tool_plain
    async def starts_one() -> str:
        return str(await agent.spawn_and_run("a"))

    async with make(scripts[where], config=config, toolsets=[toolset]) as agent:
        run = agent.run("root")
        loop, started = asyncio.get_running_loop(), None

        def on_event(event):
            nonlocal started
            due = {
                "silent model": isinstance(event, ResponseChunk),
                "approval": isinstance(event, ApprovalRequest),
                "cell": isinstance(event, ToolCallStarted),
                "slot": isinstance(event, AgentStarted) and event.queued,
                "background": isinstance(event, ResponseChunk) and event.depth == 1,
                "program": isinstance(event, ResponseChunk) and event.depth == 1,
            }[where]
            if due and started is None:
                started = loop.time()
                loop.call_soon(run.cancel)

        events, result = await read(run, lambda _: None if where == "approval" else Decision(allowed=True), on_event)
        assert loop.time() == started
        assert result.status == "cancelled"
        assert {end.status for end in of_kind(events, AgentFinished)} == {"cancelled"}
        assert len(of_kind(events, Cancelled)) == len(of_kind(events, AgentStarted))
        assert run.status == "cancelled"
        _, after = await read(agent.run("and now?"))
        assert after.status == "completed"


async def test_one_child_is_cancelled_and_nobody_else(make):
    silent = asyncio.Event()
    script = {
        "root": [[task("hangs", description="a"), task("works", description="b")], "done"],
        "hangs": [["partial answer", silent]],
        "works": [[cell("1")], "fine"],
    }
    async with make(script) as agent:
        run = agent.run("root")
        names: dict[str, str] = {}

        def on_event(event):
            if isinstance(event, AgentStarted):
                names[event.agent_id] = event.description
            if isinstance(event, ResponseChunk) and names[event.agent_id] == "a":
                assert run.cancel(event.agent_id)

        events, result = await read(run, on_event=on_event)
        assert not run.cancel("agent-nobody")
        assert not run.cancel()
    ends = finished(events)
    assert (ends["a"].status, ends["b"].status, result.status) == ("cancelled", "completed", "completed")
    assert ends["a"].output.startswith("partial")


async def test_leaving_the_stream_early_ends_everything(make):
    script = {"root": [[task("a"), task("b")], "done"], "a": [[cell("!sleep 1000")]], "b": [[cell("!sleep 1000")]]}
    async with make(script) as agent:
        async for event in agent.stream("root"):
            if isinstance(event, ApprovalRequest):
                event.approve()
            if isinstance(event, ToolCallStarted) and event.depth:
                break
    assert all(kernel.lost_reason for kernel in agent.provider.kernels)
    assert {info.status for info in agent.agents()} == {"cancelled"}


async def test_a_kernel_that_dies_is_told_and_replaced_and_the_third_time_ends_the_run(make):
    async with make(lambda *_: [cell("!sleep 1000")]) as agent:

        def on_event(event):
            if type(event).__name__ == "ApprovalDecided":
                asyncio.get_running_loop().call_soon(asyncio.ensure_future, die())

        async def die():
            kernel = agent.provider.kernels[-1]
            await eventually(lambda: kernel.cells)
            kernel.die("killed by signal 9")

        events, result = await read(agent.run("go"), on_event=on_event)
    assert result.status == "kernel_lost"
    assert len(of_kind(events, KernelLost)) == 3
    assert len(of_kind(events, ToolCallStarted)) == len(of_kind(events, ToolOutput)) == 4
    assert len(agent.provider.kernels) == 3
    assert "killed by signal 9" in of_kind(events, KernelLost)[0].reason


async def test_a_reader_that_stops_holds_the_agents_back_and_goes_on_later(make):
    sent, config = [], {"budget": {"turns": 40}, "event_buffer": 4}
    async with make(lambda *_: [cell("print('x')")], config=config, taps=[sent.append]) as agent:
        run = agent.run("go")
        first = await anext(run)
        assert first.seq == 0
        if isinstance(first, ApprovalRequest):
            first.approve()
        await turns()
        assert len(sent) <= 1 + 6
        received = 1
        async for event in run:
            received += 1
            assert len(sent) - received <= 8
            if isinstance(event, ApprovalRequest):
                event.approve()
        assert (await run.result()).status == "limit"


@pytest.mark.slow
async def test_a_run_can_be_cancelled_at_any_step_and_leaves_no_task(make):
    for steps in range(100):
        async with make([["before ", asyncio.Event()]]) as agent:
            before = asyncio.all_tasks()
            run = agent.run("go")
            reader = asyncio.create_task(run.result())
            await turns(steps)
            run.cancel()
            assert (await asyncio.wait_for(reader, 120)).status == "cancelled"
            kernels = {"watch kernel of " + agent.agent_id, "start kernel of " + agent.agent_id}
            left = [task for task in asyncio.all_tasks() - before if task.get_name() not in kernels]
            assert not left, f"after {steps} steps"


async def test_a_second_child_that_is_approved_late_does_not_lock_its_siblings_out(make):
    """Slots: one. The middle agent waits for its slot again when its second child is approved and needs that slot."""
    script = {
        "root": [[task("middle one"), task("middle two")], "done"],
        "middle one": [[task("leaf a"), task("leaf b")], "one"],
        "middle two": [[cell("1")], "two"],
        "leaf": ["leaf"],
    }
    late: list[ApprovalRequest] = []

    def rule(request):
        if "leaf b" in str(request.call):
            late.append(request)
            return None
        return Decision(allowed=True)

    def on_event(event):
        if isinstance(event, AgentFinished) and event.output == "leaf" and late:
            asyncio.get_running_loop().call_soon(late.pop().approve)

    async with make(script, config={"subagents": {"max_depth": 2, "max_concurrent": 1}}) as agent:
        _, result = await asyncio.wait_for(read(agent.run("root"), rule, on_event), 120)
        assert result.status == "completed"
        assert agent.debug.free_slots == 1


async def test_a_cell_and_a_reset_in_one_response_both_end_well(make):
    for calls in ([cell("1"), ToolCallPart("reset_kernel", {})], [ToolCallPart("reset_kernel", {}), cell("1")]):
        async with make([calls, [cell("2")], "done"]) as agent:
            _, result = await read(agent.run("go"))
        assert result.status == "completed", result.error


async def test_a_tool_that_cancels_itself_or_exits_fails_alone(make):
    toolset = FunctionToolset()

    @toolset.tool_plain
    async def cancels() -> str:
        raise asyncio.CancelledError

    @toolset.tool_plain
    async def leaves() -> str:
        raise SystemExit(3)

    script = [[ToolCallPart("cancels", {}), ToolCallPart("leaves", {}), cell("6 * 7")], "done"]
    async with make(script, toolsets=[toolset]) as agent:
        events, result = await read(agent.run("go"))
    assert result.status == "completed"
    outputs = {event.tool_name: event for event in of_kind(events, ToolOutput)}
    assert outputs["cancels"].outcome == outputs["leaves"].outcome == "failed"
    assert "cancelled itself" in outputs["cancels"].content
    assert "SystemExit: 3" in outputs["leaves"].content
    assert outputs["execute_ipython_cell"].content == "42"


async def test_a_tool_that_does_not_heed_its_cancel_is_abandoned_and_every_agent_still_ends_once(make, caplog, monkeypatch):
    monkeypatch.setattr("freeact_sub.agents.loop.ABANDON_SECONDS", 0.1)
    toolset = FunctionToolset()
    deaf = asyncio.Event()

    @toolset.tool_plain
    async def stubborn() -> str:
        while not deaf.is_set():
            try:
                await deaf.wait()
            except asyncio.CancelledError:
                continue
        return "at last"

    script = {"root": [[task("child")], "done"], "child": [[ToolCallPart("stubborn", {})], "x"]}
    async with make(script, toolsets=[toolset]) as agent:
        run = agent.run("root")

        def on_event(event):
            if isinstance(event, ToolCallStarted) and event.tool_name == "stubborn":
                asyncio.get_running_loop().call_later(0.1, run.cancel)

        events, result = await asyncio.wait_for(read(run, on_event=on_event), 120)
        assert {end.status for end in of_kind(events, AgentFinished)} == {"cancelled"}
        assert result.status == "cancelled"
        assert {info.status for info in agent.agents()} == {"cancelled"}
        assert "does not end when it is cancelled" in caplog.text
        deaf.set()
        await eventually(lambda: not [task for task in asyncio.all_tasks() if "run of" in task.get_name()])


async def test_an_answer_may_come_from_another_thread(make):
    async with make([[cell("6 * 7")], "done"]) as agent:
        run = agent.run("go")

        def on_event(event):
            if isinstance(event, ApprovalRequest):
                threading.Thread(target=event.approve).start()

        events, result = await asyncio.wait_for(read(run, lambda _: None, on_event), 120)
    assert result.status == "completed"
    assert of_kind(events, ToolOutput)[0].content == "42"
