"""What a session brings back into a kernel, and when: beside hooks, refusals, cancels, changes of mode and kept kernels."""

import asyncio

import pytest
from pydantic_ai.messages import UserPromptPart
from support.agents import as_read, cell, of_kind, read
from support.sessions import as_after_a_crash
from support.waiting import eventually

from freeact_sub import ApprovalDeniedError, Feature, InvalidRequestError, RunPart, default_features
from freeact_sub.events import CodeExecutionOutput, Notice
from freeact_sub.testing import FakeKernel, FakeKernelProvider, prompts

FULL = {"mode": "full"}
CAME_BACK = "[Your kernel is new. These variables came back:\n- x]\n\n"


def runs_its_prompt(messages, info):
    return cell(prompts(messages)[-1]) if isinstance(messages[-1].parts[-1], UserPromptPart) else "done"


def texts(events):
    return [event.text for event in of_kind(events, CodeExecutionOutput) if event.text]


async def begun(make, code="x = 1"):
    """A session of one prompt, which has made a variable."""
    async with make(runs_its_prompt, config=FULL, session="new") as agent:
        await read(agent.run(code))
    return agent.session_id


class ToldKernel(FakeKernel):
    """Tells when variables come back, are saved, and when it is closed; it may hold a restore up."""

    def __init__(self, spec, handler, told, held_up):
        super().__init__(spec, handler)
        self._told, self._held_up = told, held_up

    async def restore(self, folder, **options):
        self._told.append("restore")
        if self._held_up:
            await asyncio.Event().wait()
        return await super().restore(folder, **options)

    async def snapshot(self, folder, **options):
        self._told.append("save")
        return await super().snapshot(folder, **options)

    async def aclose(self):
        self._told.append("close")
        await super().aclose()


class Told(FakeKernelProvider, Feature):
    """Tells in one list what happens in kernels and at the seams of the root's runs; it may refuse a prompt."""

    def __init__(self, refused=""):
        super().__init__()
        self.told, self.held_up, self.refused = [], [], refused

    async def start(self, spec, handler):
        self.kernels.append(ToldKernel(spec, handler, self.told, self.held_up))
        return self.kernels[-1]

    def run(self, agent):
        return None if agent.parent_id else ToldPart(self)


class ToldPart(RunPart):
    def __init__(self, feature):
        self._feature = feature

    def begins(self, prompt, request):
        self._feature.told.append(f"begins {prompt}")

    async def opening(self, said, *, is_prompt):
        self._feature.told.append(f"opening {said}")
        if said == self._feature.refused:
            raise ApprovalDeniedError("not this one")
        return ""

    async def call(self, call, proceed):
        self._feature.told.append("call")
        return await proceed()

    async def closing(self, ending, kernel):
        self._feature.told.append("closing")


def goes_on(make, told, session, **options):
    features = [told, *default_features()]
    return make(runs_its_prompt, config=FULL, session=session, kernel_provider=told, features=features, **options)


async def test_variables_are_back_before_any_feature_hears_the_prompt(make, store):
    told = Told()
    async with goes_on(make, told, await begun(make)) as again:
        events, _ = await read(again.run("print(x)"))
        await eventually(lambda: "save" in told.told)
    assert texts(events) == ["1"]
    assert told.told[:4] == ["begins print(x)", "restore", "opening print(x)", "call"]
    assert told.told[-1] == "close"
    assert told.told.count("restore") == 1


async def test_a_refused_prompt_leaves_what_came_back_to_be_read_with_the_next_one(make, store):
    told = Told(refused="no")
    async with goes_on(make, told, await begun(make)) as again:
        _, result = await read(again.run("no"))
        assert result.status == "rejected"
        await read(again.run("x"))
        await read(again.run("x"))
        read_by_model = as_read(again.history)[1:]
    assert read_by_model == [f"{CAME_BACK}x", "x"]
    assert told.told.count("restore") == 1


async def test_a_run_that_is_cancelled_meanwhile_leaves_the_variables_to_the_next_one(make, store):
    told = Told()
    session = await begun(make)
    async with goes_on(make, told, session) as again:
        told.held_up.append(True)
        run = again.run("x")
        reading = asyncio.create_task(read(run))
        await eventually(lambda: "restore" in told.told)
        run.cancel()
        await reading
        told.held_up.clear()
        assert "save" not in told.told, "the saved ones stay until they are back"
        events, _ = await read(again.run("print(x)"))
        assert as_read(again.history)[-1] == f"{CAME_BACK}print(x)"
    assert texts(events) == ["1"]


async def test_calls_side_by_side_bring_them_back_once(make, store):
    told = Told()
    async with goes_on(make, told, await begun(make)) as again:
        got = await asyncio.gather(*(again.execute("print(x)") for _ in range(3)))
        await read(again.run("x"))
        assert as_read(again.history)[-1] == f"{CAME_BACK}x"
    assert [each.text for each in got] == ["1"] * 3
    assert told.told.count("restore") == 1


async def test_a_change_of_mode_before_they_are_back_loses_nothing(make, store):
    """The kernel of the first mode was never given them: that of the second one gets those of the session."""
    told = Told()
    async with goes_on(make, told, await begun(make)) as again:
        await again.branch()  # uses the kernel
        again.mode = "plan"
        again.mode = "ask"
        assert (await again.execute("print(x)")).text == "1"
        await again.execute("x = 2")
        again.mode = "full"
    async with make(runs_its_prompt, config={"mode": "ask"}, session=again.session_id) as last:
        assert (await last.execute("print(x)")).text == "2"


async def test_what_is_told_of_two_kernels_is_read_in_order(make, store):
    async with make(runs_its_prompt, config=FULL, session=await begun(make)) as again:
        await again.execute("x = 2")
        again.mode = "ask"
        await again.execute("x")
        await read(again.run("x"))
        prompt = as_read(again.history)[-1]
    assert prompt.count("[Your kernel is new. These variables came back:") == 2
    assert prompt.endswith("]\n\nx")


@pytest.mark.process
async def test_undo_gives_back_what_the_model_had_not_read(make, store):
    """The variables are back and read with the prompt that is undone: the next prompt reads it again, once."""
    async with make(runs_its_prompt, config=FULL, session=await begun(make)) as again:
        again.keep_undo()
        await again.execute("x = 2")
        await read(again.run("x = 3"))
        await again.undo()
        assert (await again.execute("print(x)")).text == "2"
        await read(again.run("x"))
        await read(again.run("x"))
        assert as_read(again.history)[1:] == [f"{CAME_BACK}x", "x"]


async def test_a_kept_kernel_is_saved_at_the_end_of_each_run_and_taken_back_as_it_is(make, store):
    told = Told()
    features = [told, *default_features()]
    async with make(runs_its_prompt, config=FULL, session="new", kernel_provider=told, features=features) as agent:

        async def program():
            child = await agent.task("x = 1", keep=True)
            saved = told.told.count("save")
            await child.node.execute("x = 5")
            again = await agent.task("x += 1", resume=child.agent_id)
            return child.agent_id, saved, again.node is not None

        _, result = await read(agent.run_program(program))
        child, saved, is_kept = result.output
        assert (saved, is_kept) == (1, True)
        assert "restore" not in told.told
    async with make(runs_its_prompt, config=FULL, session=agent.session_id) as later:
        events, _ = await read(later.run_program(lambda: later.task("print(x)", resume=child)))
    assert texts(events) == ["6"]


async def test_a_child_that_is_resumed_twice_at_once_works_once(make, store):
    async with make(runs_its_prompt, config=FULL, session="new") as agent:
        child = await agent.spawn_and_run("x = 1")
    config = {"mode": "ask", "effects": {"enabled": False}}
    async with make(runs_its_prompt, config=config, session=agent.session_id) as later:
        done, refused, asked = [], [], []

        async def resumed():
            try:
                done.append(await later.task("x += 1", resume=child.agent_id))
            except InvalidRequestError as error:  # meanwhile the other one waits for a person
                refused.append(str(error))
                await eventually(lambda: bool(asked))
                asked[0].approve()

        async def program():
            await asyncio.gather(resumed(), resumed())

        await read(later.run_program(program), rule=asked.append)  # which decides nothing
        assert len(done) == 1
        assert "is at work" in refused[0]
        later.mode = "full"
        events, _ = await read(later.run_program(lambda: later.task("print(x)", resume=child.agent_id)))
    assert texts(events) == ["2"]
    with store.reader(agent.session_id) as reader:
        assert [run.number for run in reader.runs(child.agent_id)] == [1, 2, 3]


async def test_a_mode_that_was_chosen_between_runs_is_on_disk_before_a_run_begins(make, store, tmp_path):
    async with make(runs_its_prompt, config=FULL, session=await begun(make)) as agent:
        agent.mode = "plan"
        crashed = await as_after_a_crash(agent, tmp_path / "crashed")
    with crashed.reader(agent.session_id) as reader:
        assert [each.mode for each in reader.agents()] == ["plan"]


async def test_without_a_session_a_conversation_that_goes_on_reads_that_its_kernel_is_new(make):
    async with make(runs_its_prompt, config=FULL) as agent:
        await read(agent.run("x = 1"))
    async with make(runs_its_prompt, config=FULL, history=agent.history) as again:
        events, _ = await read(again.run("x"))
        assert as_read(again.history)[1].startswith("[Your kernel is new: the variables and imports")
        assert "came back" not in " ".join(event.content for event in of_kind(events, Notice))


class EndsUnderWatch(FakeKernelProvider):
    """Notes, as a kernel ends, what is looked at then."""

    def __init__(self, look):
        super().__init__()
        self.look, self.seen = look, []

    async def start(self, spec, handler):
        kernel = await super().start(spec, handler)
        ends = kernel.aclose

        async def aclose():
            self.seen.append(self.look())
            await ends()

        kernel.aclose = aclose
        return kernel


async def test_a_session_is_open_until_the_kernel_has_ended(make, store):
    provider = EndsUnderWatch(lambda: store.is_open(agent.session_id))
    async with make(["done"], config=FULL, session="new", kernel_provider=provider) as agent:
        await read(agent.run_cell("1"))
    assert provider.seen == [True]
    assert not store.is_open(agent.session_id)
