"""Prompts are undone after the program was started again. Kernels are fakes, git is a real one."""

import pytest
from pydantic_ai.messages import UserPromptPart
from support.agents import cell, read

from freeact_sub import Agent, Config
from freeact_sub.kernels.files import states
from freeact_sub.testing import FakeKernelProvider, ScriptedModel

FULL = {"mode": "full"}


def script(messages, info):
    last = messages[-1].parts[-1]
    return cell(last.content.split("\n")[-1]) if isinstance(last, UserPromptPart) else "done"


def prompts(messages):
    return [part.content for m in messages for part in m.parts if isinstance(part, UserPromptPart)]


@pytest.mark.process
async def test_conversation_and_files_go_back_behind_the_start_of_the_program(make, store, tmp_path):
    one, two, three = (f"n = {text!r}; open({str(tmp_path / 'a')!r}, 'w').write(n)" for text in ("one", "two", "three"))
    async with make(script, config=FULL, session="new") as agent:
        agent.keep_undo()
        await read(agent.run(one))
        await read(agent.run("lost = 1"))
        await agent.undo()
        await read(agent.run(two))
    async with make(script, config=FULL, session=agent.session_id) as again:
        again.keep_undo()
        assert again.undoable == (one, two)
        report = await again.undo()
        assert (report.prompts, report.files, report.files_problem) == ((two,), ("a",), "")
        assert report.variables_problem == "the program was started again since then"
        assert ((tmp_path / "a").read_text(), prompts(again.history)) == ("one", [one])
        await again.redo()
        assert ((tmp_path / "a").read_text(), prompts(again.history)) == ("two", [one, two])
        await again.undo(2)
        assert ((tmp_path / "a").exists(), again.history) == (False, [])
        await read(again.run(three))
        assert prompts(again.history)[0].startswith("[Your kernel is new. These variables came back:\n- n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "b").write_text("b")
    config = Config(workspace=elsewhere, mode="full")
    options = {"model": ScriptedModel(script), "kernel_provider": FakeKernelProvider()}
    async with Agent(config, session=agent.session_id, **options) as other:
        other.keep_undo()
        assert other.undoable == (three,)
        report = await other.undo()  # the model is told, since the variables stay
        assert (report.files, report.files_problem) == ((), "the kept files belong to another workspace")
        assert (elsewhere / "b").read_text() == "b"
    assert (tmp_path / "a").read_text() == "three"
    assert [session.title for session in store.sessions()] == [one]  # the state folder, here in the workspace, was left out


@pytest.mark.process
async def test_a_prompt_of_which_nothing_is_kept_ends_what_can_be_undone(make):
    async with make(script, config=FULL, session="new") as agent:
        agent.keep_undo()
        await read(agent.run("x = 1"))
    async with make(script, config=FULL, session=agent.session_id) as plain:
        await read(plain.run("y = 2"))
        await read(plain.run_program(lambda: plain.ask("?")))
    async with make(script, config=FULL, session=agent.session_id) as again:
        again.keep_undo()
        assert again.undoable == ()
        await read(again.run("z = 3"))
        await read(again.run_program(lambda: again.ask("?")))
    async with make(script, config=FULL, session=agent.session_id) as last:
        last.keep_undo()
        assert last.undoable == ("z = 3",)


@pytest.mark.process
async def test_a_model_reads_that_its_variables_are_others_now(make, store):
    async with make(script, config=FULL, session="new") as agent:
        agent.keep_undo()
        await read(agent.run("x = 1"))
    async with make(script, config=FULL, session=agent.session_id) as again:
        again.keep_undo()
        await read(again.run("x = 2"))
        await again.undo(2)
        await read(again.run("x = 3"))
        assert prompts(again.history)[0].startswith(
            "[What came after this was undone, but your variables are not as they were"
        )


@pytest.mark.process
async def test_states_that_take_too_much_are_forgotten(make, store, tmp_path, monkeypatch):
    (tmp_path / "a").write_text("")
    change = f"open({str(tmp_path / 'a')!r}, 'a').write('a')"
    async with make(script, config=FULL, session="new") as agent:
        agent.keep_undo()
        await read(agent.run(change))
        with monkeypatch.context() as small:
            small.setattr(states, "MAX_KEPT_BYTES", 0)
            await read(agent.run(change))
        assert (await agent.undo()).files == ("a",)
        assert (await agent.undo()).files_problem == "no earlier states of the files are kept"
    assert (tmp_path / "a").read_text() == "a"
