"""Who ends a run: see `Run`. Fake kernels; real ones, and processes, are in `tests/kernel/test_runs_given_up.py`."""

import asyncio
import contextlib
import gc
import logging

import anyio
import pytest
from pydantic_ai.messages import ToolReturnPart
from support.agents import cell
from support.tables import each
from support.waiting import eventually, turns

from freeact_sub import AgentBusyError, ApprovalRequest, Callbacks, FreeactError, ResponseChunk, dispatch
from freeact_sub.testing import prompts

LIMIT_SECONDS = 120


def reply(messages, _):
    """Asks for a cell to `ask`, never ends its answer to `talk`, and answers all else."""
    prompt = prompts(messages)[-1]
    if prompt == "ask" and not isinstance(messages[-1].parts[-1], ToolReturnPart):
        return [cell("6 * 7")]
    return ["I begin. ", asyncio.Event()] if prompt == "talk" else "done"


async def until_it_is_at_work(agent):
    """Wait until its run waits for a model or a person."""
    await eventually(lambda: agent.scripted.requests and agent.present_run is not None)
    await turns(50)


async def cancelled(agent, reading):
    reader = asyncio.create_task(reading)
    await until_it_is_at_work(agent)
    reader.cancel()
    await asyncio.wait({reader})
    return reader  # a failed task keeps its frames, and all that they name


async def read_on(events, then=lambda: asyncio.Event().wait()):
    """Read, and wait for something else at the first event."""
    async for _ in events:
        await then()


async def result_cancelled(agent):
    return await cancelled(agent, agent.run("talk").result())


async def result_timed_out(agent):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await agent.run("talk").result()


async def result_waited_for(agent):
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(agent.run("talk").result(), 0.05)


async def result_never_begun(agent):
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(agent.run("ask").result(), 0)


async def result_in_a_scope(agent):
    with anyio.move_on_after(0.05):
        await agent.run("talk").result()


async def result_in_a_group_that_fails(agent):
    with contextlib.suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(agent.run("talk").result())
            await until_it_is_at_work(agent)
            raise KeyError


async def loop_cancelled(agent):
    async def loop():
        async for _ in agent.run("ask"):
            pass

    return await cancelled(agent, loop())


async def loop_in_a_scope(agent):
    run = agent.run("ask")
    with anyio.move_on_after(0.05):
        async for _ in run:
            pass
    return run


async def loop_cancelled_between_two_events(agent):
    run = agent.run("talk")
    return run, await cancelled(agent, read_on(run))


async def loop_timed_out_between_two_events(agent):
    run = agent.run("talk")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await read_on(run)
    return run


async def loop_of_a_stream_cancelled_between_two_events(agent):
    events = agent.stream("talk")
    return events, await cancelled(agent, read_on(events))


async def loop_left(agent):
    async for _ in agent.run("talk"):
        break


async def loop_left_with_its_run_kept(agent):
    run = agent.run("ask")
    async for event in run:
        if isinstance(event, ApprovalRequest):
            break
    return run


async def loop_that_fails(agent):
    async def fail():
        raise KeyError

    with pytest.raises(KeyError):
        await read_on(agent.run("talk"), fail)


async def loop_that_fails_with_its_run_kept(agent):
    run = agent.run("ask")
    with contextlib.suppress(KeyError):
        async for event in run:
            if isinstance(event, ApprovalRequest):
                raise KeyError
    return run


async def generator_dropped(agent):
    async def texts():
        async for event in agent.run("talk"):
            if isinstance(event, ResponseChunk):
                yield event.content

    async for _ in texts():
        break
    # Python closes generators that were dropped at the next turns of the loop
    await eventually(lambda: agent.present_run is None)


async def event_by_hand(agent):
    await anext(agent.run("talk"))


async def event_by_hand_cancelled(agent):
    run = agent.run("ask")

    async def read():
        while True:
            await anext(run)

    return run, await cancelled(agent, read())


async def dispatch_cancelled_in_a_callback(agent):
    run = agent.run("talk")
    callbacks = Callbacks(on_start=lambda _: asyncio.Event().wait())
    return run, await cancelled(agent, dispatch(run, callbacks))


async def block_left(agent):
    async with agent.run("talk") as run:
        await anext(run)
    return run


async def block_timed_out(agent):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05), agent.run("talk") as run:
            await run.result()


async def program_cancelled(agent):
    return await cancelled(agent, agent.run_program(lambda: agent.task("talk")).result())


async def cell_cancelled(agent):
    return await cancelled(agent, agent.run_cell("!sleep 1000").result())


async def ended_while_read(agent):
    run = agent.run("talk")
    async for _ in run:
        run.cancel()


WAYS = [
    *(result_cancelled, result_timed_out, result_waited_for, result_never_begun, result_in_a_scope),
    *(result_in_a_group_that_fails, loop_cancelled, loop_in_a_scope, loop_cancelled_between_two_events),
    *(loop_timed_out_between_two_events, loop_of_a_stream_cancelled_between_two_events, loop_left),
    *(loop_left_with_its_run_kept, loop_that_fails, loop_that_fails_with_its_run_kept, generator_dropped, event_by_hand),
    *(event_by_hand_cancelled, dispatch_cancelled_in_a_callback, block_left, block_timed_out, ended_while_read),
]


@each("way", WAYS)
@each("following", ["run", "execute", "branch", "task"])
@pytest.mark.slow
async def test_a_run_that_was_given_up_is_in_nobodys_way(way, following, make):
    async with make(reply) as agent:
        mine, before = asyncio.current_task(), asyncio.all_tasks()
        kept = await asyncio.wait_for(way(agent), LIMIT_SECONDS)
        async with asyncio.timeout(LIMIT_SECONDS):
            match following:
                case "execute" if "kept" in way.__name__:
                    assert (await agent.run("again").result()).output == "done"  # until then it may be read on
                case "execute":
                    assert (await agent.execute("1")).status == "ok"
                case "branch":
                    await (await agent.branch()).close()
                case "task" if "kept" in way.__name__:
                    assert (await agent.run_program(lambda: agent.task("child")).result()).output.output == "done"
                case "task":
                    assert (await agent.task("child")).output == "done"
            assert (await agent.run("again").result()).output == "done"
        assert mine.cancelling() == 0
        assert agent.present_run is None
        del kept
        left = [task for task in asyncio.all_tasks() - before if "kernel" not in task.get_name()]
        assert not left


@pytest.mark.parametrize("way", [program_cancelled, cell_cancelled])
async def test_a_run_without_a_model_is_given_up_like_any_other(way, make):
    async with make(reply, config={"mode": "full"}) as agent:
        async with asyncio.timeout(LIMIT_SECONDS):
            reader = asyncio.create_task(way(agent))
            agent.scripted.requests = 1  # there may be no model to wait for
            await reader
            assert (await agent.execute("1")).status == "ok"
        assert (await agent.run("again").result()).output == "done"


async def test_a_run_that_start_has_begun_goes_on_whoever_reads_it(make):
    async with make(reply) as agent:
        run = agent.run("talk")
        run.start()
        for read in (run.result(), read_on(run)):
            reader = asyncio.create_task(read)
            await until_it_is_at_work(agent)
            reader.cancel()
            await asyncio.wait({reader})
        with pytest.raises(AgentBusyError):
            await agent.run("again").result()
        del run, read, reader
        gc.collect()
        assert not agent.present_run.is_ending
        agent.present_run.cancel()
        assert (await agent.run("again").result()).output == "done"


async def test_a_loop_that_was_left_can_be_followed_by_another_one_while_the_program_has_the_run(make):
    async with make(reply) as agent:
        run = agent.run("ask")
        async for event in run:
            if isinstance(event, ApprovalRequest):
                break
        gc.collect()
        assert (await agent.execute("1")).status == "ok"
        event.approve()
        assert (await run.result()).status == "completed"


@each("how", ["run", "run_cell", "run_program", "stream"])
async def test_a_run_that_is_made_and_dropped_warns_as_a_coroutine_does(make, how):
    async with make(reply) as agent:
        made = {"run_program": lambda: agent.run_program(asyncio.Event)}.get(how, lambda: getattr(agent, how)("never used"))
        with pytest.warns(ResourceWarning, match=r"a run of '.+' was made and never used, so nothing was done: await"):
            made()
        for use in (lambda run: run.cancel(), lambda run: run.result().close(), lambda run: run.__aiter__()):
            if how != "stream":
                use(made())  # no warning, which would be an error here


async def test_work_in_a_run_ends_with_it_by_an_error_and_not_by_a_cancel(make, caplog):
    """The program goes on in its task as long as it likes, and nobody waits for it."""
    went_on = asyncio.Event()

    async def program(agent, call):
        try:
            await call(agent)
        except FreeactError as error:
            await went_on.wait()
            return str(error), asyncio.current_task().cancelling()

    async def in_a_node(agent):
        return await (await agent.branch()).execute("!sleep 1000")

    calls = [
        lambda agent: agent.execute("!sleep 1000"),
        lambda agent: agent.ask("talk"),
        lambda agent: agent.ask("talk", output=int),
        lambda agent: agent.ask_many(["talk", "talk"]),
        lambda agent: agent.map([{"a": "talk"}], "{a}"),
        in_a_node,
    ]
    async with make(reply, config={"mode": "full"}) as agent:
        for call in calls:
            run = agent.run("talk")
            run.start()
            await anext(run)
            task = asyncio.create_task(program(agent, call))
            await turns(200)  # it is at work by then, wherever it waits
            run.cancel()
            assert (await asyncio.wait_for(run.result(), LIMIT_SECONDS)).status == "cancelled"
            assert not task.done()
            assert (await asyncio.wait_for(agent.run("again").result(), LIMIT_SECONDS)).output == "done"
            went_on.set()
            said, cancelling = await task
            assert "the agent's run has ended, and this call" in said
            assert cancelling == 0
            went_on.clear()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_cancelled_program_waits_for_its_call_and_a_node_that_is_just_made_goes_with_it(make):
    async with make(reply, config={"mode": "full"}) as agent:
        for steps in range(60):
            branching = asyncio.create_task(agent.branch())
            await turns(steps)
            branching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await (await branching).close()
            assert agent.present_run is None or agent.present_run.is_ending
            assert (await asyncio.wait_for(agent.execute("1"), LIMIT_SECONDS)).status == "ok"
        assert sum(kernel.lost_reason is None for kernel in agent.provider.kernels) == 1
