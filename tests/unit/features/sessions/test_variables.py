"""The root's variables are saved after each cell and come back when its session goes on. Kernels are fakes."""

from pathlib import Path

import pytest
from pydantic_ai.messages import ToolCallPart, UserPromptPart
from support.agents import as_read, cell, of_kind, read
from support.sessions import as_after_a_crash
from support.waiting import eventually

from freeact_sub.errors import KernelSnapshotError
from freeact_sub.events import CodeExecutionOutput, Notice
from freeact_sub.features.sessions.variables import SAVED_UP_TO
from freeact_sub.sessions import VARIABLES
from freeact_sub.system.removal import remove
from freeact_sub.testing import FakeKernel, prompts

FULL = {"mode": "full"}


async def test_variables_come_back_and_the_model_reads_which_did_not(make, store):
    script = [cell("rows = [1, 2]\nf = lambda: 1"), "done", cell("print(len(rows))"), "done"]
    async with make(script, config=FULL, session="new") as agent:
        await read(agent.run("make rows"))
    async with make(script, config=FULL, session=agent.session_id) as again:
        events, _ = await read(again.run("count them"))
        prompt = as_read(again.history)[-1]
    assert prompt.startswith("[Your kernel is new. These variables came back:\n- rows\n")
    assert "These did not, and are to be made again where you need them:\n- f (function):" in prompt
    assert "not in them" not in prompt
    assert prompt.endswith("count them")
    assert [event.text for event in of_kind(events, CodeExecutionOutput)] == ["2"]
    assert "1 variable came back, 1 did not: f" in [event.content for event in of_kind(events, Notice)]


async def test_a_kernel_that_is_reset_has_none(make, store):
    script = [cell("x = 1"), ToolCallPart("reset_kernel", {}), "done", "done"]
    async with make(script, config=FULL, session="new") as agent:
        await read(agent.run("root"))
    async with make(script, config=FULL, session=agent.session_id) as again:
        await read(again.run("go on"))
        assert as_read(again.history)[-1].startswith("[Your kernel is new. No variables came back.]")


async def test_what_was_not_saved_any_more_is_told(make, store):
    script = [cell("x = 1"), "done", "done"]
    async with make(script, config=FULL, session="new") as agent:
        await read(agent.run("root"))
    (mark,) = store.folder_of(agent.session_id).rglob(f"*{SAVED_UP_TO}")
    mark.write_text("1.0")
    async with make(script, config=FULL, session=agent.session_id) as again:
        await read(again.run("go on"))
        assert "before the last cell was saved" in as_read(again.history)[-1]


async def test_variables_that_cannot_be_saved_are_told_of_once_and_tried_again(make, store, monkeypatch):
    tried = []

    async def refuse(self, folder: Path, **_):
        tried.append(folder)
        raise KernelSnapshotError("no room")

    monkeypatch.setattr(FakeKernel, "snapshot", refuse)
    async with make([cell("x = 1"), "done"] * 2, config=FULL, session="new") as agent:
        first, _ = await read(agent.run("a"))
        await eventually(lambda: len(tried) == 1)
        second, _ = await read(agent.run("b"))
        await eventually(lambda: len(tried) == 2)
    told = [event.content for event in [*first, *second] if isinstance(event, Notice)]
    assert told == ["the session does not have the variables of now: no room"]
    async with make(["x", "y", "z"], config=FULL, session=agent.session_id) as again:
        await read(again.run("go on"))
        assert as_read(again.history)[-1].startswith("[Your kernel is new: the variables and imports")


async def test_people_are_told_of_a_session_whose_saved_variables_are_gone(make, store):
    async with make([cell("x = 1"), "done"], config=FULL, session="new") as agent:
        await read(agent.run("root"))
    remove(str(store.folder_of(agent.session_id) / VARIABLES))
    async with make(["x", "y", "z"], config=FULL, session=agent.session_id) as again:
        events, _ = await read(again.run("go on"))
        assert as_read(again.history)[-1].startswith("[Your kernel is new: the variables and imports")
    told = "its saved variables did not come back: none are saved"
    assert [event.content for event in of_kind(events, Notice)][-1] == told


@pytest.mark.parametrize("session", [None, "new"])
async def test_people_and_the_model_are_told_what_a_change_of_mode_has_cost(make, store, monkeypatch, session):
    """The variables of now cannot be saved, and the kernel has to go: it has the wall of another mode."""
    async with make(["done"] * 3, config=FULL, session=session) as agent:
        await agent.execute("x = 1")
        await read(agent.run("a"))

        async def refuse(*_, **__):
            raise KernelSnapshotError("no room")

        monkeypatch.setattr(FakeKernel, "snapshot", refuse)
        agent.mode = "ask"
        events, _ = await read(agent.run("b"))
        asked = as_read(agent.history)[-1]
    told = " ".join(event.content for event in of_kind(events, Notice))
    assert told.count("no room") == 1, told
    assert "no room" in asked
    assert ("1 variable came back" in told) == (session is not None), "the session has those of the last cell"


async def test_they_are_there_after_a_crash(make, store, tmp_path, monkeypatch):
    script = [cell("x = 1"), "done", cell("print(x)"), "done"]
    async with make(script, config=FULL, session="new") as agent:
        await read(agent.run("root"))
        await eventually(lambda: list(store.folder.rglob(f"*{SAVED_UP_TO}")))
        await as_after_a_crash(agent, tmp_path / "crashed")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "crashed"))
    async with make(script, config=FULL, session=agent.session_id) as again:
        events, _ = await read(again.run("go on"))
    assert [event.text for event in of_kind(events, CodeExecutionOutput)] == ["1"]


async def test_the_prompts_of_a_session_are_those_of_people(make, store):
    """Without what the host tells the model of its kernel: when its variables came back, and when there are none."""
    script = [cell("rows = [1]\nf = lambda: 1"), "done", "done", "done"]
    async with make(script, config=FULL, session="new") as agent:
        await read(agent.run("make\n\nrows"))
    async with make(["done"] * 4, config=FULL, session=agent.session_id) as again:
        await read(again.run("[sic] go on"))
    remove(str(store.folder_of(agent.session_id) / VARIABLES))
    async with make(["done"] * 6, config=FULL, session=agent.session_id) as last:
        await read(last.run("end"))
        assert all(text.startswith("[Your kernel is new") for text in as_read(last.history)[1:])
        assert prompts(last.history) == ["make\n\nrows", "[sic] go on", "end"]


async def test_what_runs_before_the_first_prompt_of_a_session_that_goes_on_finds_them(make, store):
    """A person's own cell, which no model has asked for."""
    async with make([cell("x = 1"), "done"], config=FULL, session="new") as agent:
        await read(agent.run("root"))
    async with make(["done"] * 3, config=FULL, session=agent.session_id) as again:
        events, _ = await read(again.run_cell("x += 1\nprint(x)"))
        assert [event.text for event in of_kind(events, CodeExecutionOutput)] == ["2"]
        await read(again.run("go on"))
        assert as_read(again.history)[-1].startswith("[Your kernel is new. These variables came back:\n- x]\n\ngo on")
    async with make([*["done"] * 3, cell("print(x)"), "done"], config=FULL, session=agent.session_id) as last:
        events, _ = await read(last.run("show"))
    assert [event.text for event in of_kind(events, CodeExecutionOutput)] == ["2"]


async def test_a_cell_in_a_node_does_not_replace_variables_that_are_not_back_yet(make, store):
    async with make([cell("x = 1"), "done"], config=FULL, session="new") as agent:
        await read(agent.run("root"))
    async with make([], config=FULL, session=agent.session_id) as again:

        async def program():
            async with await again.branch() as node:
                await node.execute("y = 1")

        await read(again.run_program(program))
    async with make([*["done"] * 2, cell("print(x)"), "done"], config=FULL, session=agent.session_id) as last:
        events, _ = await read(last.run("show"))
    assert [event.text for event in of_kind(events, CodeExecutionOutput)] == ["1"]


def runs_its_prompt(messages, info):
    last = messages[-1].parts[-1]
    return cell(last.content.split("\n")[-1]) if isinstance(last, UserPromptPart) else "done"


@pytest.mark.process
async def test_undo_of_the_first_prompt_of_a_session_that_goes_on_gives_what_came_back(make, store):
    async with make(runs_its_prompt, config=FULL, session="new") as agent:
        await read(agent.run("x = 1"))
    async with make(runs_its_prompt, config=FULL, session=agent.session_id) as again:
        again.keep_undo()
        await read(again.run("x = 5"))
        await again.undo()
        events, _ = await read(again.run_cell("print(x)"))
        assert [event.text for event in of_kind(events, CodeExecutionOutput)] == ["1"]
        await read(again.run("x = 6"))
        told = as_read(again.history)[-1]
        assert told.startswith("[Your kernel is new. These variables came back:\n- x]")
        await read(again.run("x = 7"))
        assert as_read(again.history)[-1] == "x = 7"
        await again.undo(2)
        await again.redo()
        await read(again.run("x = 8"))
        assert as_read(again.history)[-2:] == [told, "x = 8"]


@pytest.mark.process
async def test_what_was_undone_does_not_come_back(make, store):
    async with make(runs_its_prompt, config=FULL, session="new") as agent:
        agent.keep_undo()
        await read(agent.run("x = 1"))
        await read(agent.run("x = 5"))
        await agent.fork()  # by now they are saved
        await agent.undo()
    async with make(runs_its_prompt, config=FULL, session=agent.session_id) as again:
        events, _ = await read(again.run("print(x)"))
    assert [event.text for event in of_kind(events, CodeExecutionOutput)] == ["1"]


@pytest.mark.process
async def test_undo_of_the_first_prompt_leaves_what_a_person_s_own_cell_has_made(make, store):
    async with make(runs_its_prompt, config=FULL) as agent:
        agent.keep_undo()
        await read(agent.run_cell("x = 1"))
        await read(agent.run("x = 5"))
        await agent.undo()
        events, _ = await read(agent.run_cell("print(x)"))
    assert [event.text for event in of_kind(events, CodeExecutionOutput)] == ["1"]


async def test_what_a_program_adopts_comes_back(make, store):
    async with make(runs_its_prompt, config=FULL, session="new") as agent:
        await read(agent.run("x = 1"))

        async def program():
            async with await agent.branch() as node:
                await node.execute("x = 2")
                await agent.adopt(node)

        await read(agent.run_program(program))
    async with make(runs_its_prompt, config=FULL, session=agent.session_id) as again:
        events, _ = await read(again.run("print(x)"))
    assert [event.text for event in of_kind(events, CodeExecutionOutput)] == ["2"]
