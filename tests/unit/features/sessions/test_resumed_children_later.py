"""A child of a session is resumed: with the variables that were saved at its end, also in another program."""

import asyncio
import os

import pytest
from pydantic_ai.messages import UserPromptPart
from support.agents import as_read, cell, of_kind, read, task
from support.sessions import as_after_a_crash
from support.waiting import eventually

from freeact_sub.errors import InvalidRequestError
from freeact_sub.events import AgentStarted, CodeExecutionOutput, Notice
from freeact_sub.features.sessions import variables
from freeact_sub.features.sessions.variables import SAVED_UP_TO
from freeact_sub.testing import FakeKernel, ScriptedModel, first_prompt, prompts

FULL = {"mode": "full"}
SECRET = "sk-0123456789abcdef"


class Reviewer:
    """A child makes variables in its first run and shows one in each later one; a lambda cannot be kept."""

    def __init__(self):
        self.read = {}

    def __call__(self, messages, info):
        self.read[first_prompt(messages)] = as_read(messages)
        if not isinstance(messages[-1].parts[-1], UserPromptPart):
            return "done"
        return cell("notes = ['a']\nf = lambda: 1" if len(prompts(messages)) == 1 else "notes.append('b')\nprint(notes)")


def texts(events):
    return [event.text for event in of_kind(events, CodeExecutionOutput) if event.depth and event.text]


async def resumed(agent, child_id, prompt="and now?"):
    await eventually(lambda: agent.present_run is None)  # one that was begun for a child ends a moment after it
    return await read(agent.run_program(lambda: agent.task(prompt, resume=child_id)))


async def test_its_variables_come_back_and_it_reads_which_did_not(make, store):
    script = Reviewer()
    async with make(script, config=FULL, session="new") as agent:
        child = await agent.spawn_and_run("review")
        events, _ = await resumed(agent, child.agent_id)
        again, _ = await resumed(agent, child.agent_id, "once more")
    assert texts(events) == ["['a', 'b']"]
    assert texts(again) == ["['a', 'b', 'b']"]
    prompt = script.read["review"][1]
    assert prompt.startswith("[Your kernel is new. These variables came back:\n- notes\nThese did not, and are to be made")
    assert "- f (function):" in prompt
    assert prompt.endswith("]\n\nand now?")
    assert "1 variable came back, 1 did not: f" in [event.content for event in of_kind(events, Notice)]


async def test_it_is_resumed_in_another_program(make, store):
    """The child of a child too, by the root, of whose parent the program knows nothing but its name."""

    def script(messages, info):
        if first_prompt(messages) == "has one" and isinstance(messages[-1].parts[-1], UserPromptPart):
            return task("grandchild", scope="the file a")
        return Reviewer()(messages, info)

    depth = {**FULL, "subagents": {"max_depth": 3}}
    async with make(script, config=depth, session="new") as agent:
        child = await agent.spawn_and_run("has one")
        (grandchild,) = [info for info in agent.agents() if info.depth == 2]
        mode_before = await agent.task("planner", mode="plan", description="the planner")
    async with make(script, config=depth, session=agent.session_id) as later:
        events, result = await resumed(later, grandchild.agent_id)
        assert result.status == "completed"
        assert texts(events) == ["['a', 'b']"]
        started = of_kind(events, AgentStarted)[-1]
        assert (started.agent_id, started.key, started.depth) == (grandchild.agent_id, grandchild.key, 2)
        assert started.parent_id == child.agent_id
        events, _ = await resumed(later, mode_before.agent_id)
        started = of_kind(events, AgentStarted)[-1]
        assert (started.mode, started.description) == ("plan", "the planner")
        with pytest.raises(InvalidRequestError, match="'agent-0' is not a child of yours"):
            await later.task("x", resume="agent-0")
    with store.reader(agent.session_id) as reader:
        assert [run.number for run in reader.runs(grandchild.agent_id)] == [1, 2]
        assert reader.agent(grandchild.agent_id).choices == {"scope": "the file a"}
        assert len(prompts(reader.messages(grandchild.agent_id))) == 2


async def test_what_is_not_in_memory_any_more_is_read_from_the_session(make, store, monkeypatch):
    monkeypatch.setattr("freeact_sub.agents.life.MAX_HISTORIES", 0)
    async with make(Reviewer(), config=FULL, session="new") as agent:
        child = await agent.spawn_and_run("review")
        events, _ = await resumed(agent, child.agent_id)
    assert texts(events) == ["['a', 'b']"]


async def test_a_child_that_a_crash_has_cut_off_is_resumed(make, store, tmp_path, monkeypatch):
    """It was killed after a cell, whose variables were saved meanwhile."""
    monkeypatch.setattr(variables, "CHILD_SECONDS", 0.0)
    crashed = asyncio.Event()

    def script(messages, info):
        done = sum(message.kind == "response" for message in messages)
        if not crashed.is_set() and done:
            return asyncio.Event()
        return Reviewer()(messages, info)

    async with make(script, config=FULL, session="new") as agent:
        run = agent.run_program(lambda: agent.task("review"))
        reading = asyncio.create_task(read(run))
        await eventually(lambda: list(store.folder.rglob(f"agent-*.{SAVED_UP_TO}")))
        await eventually(lambda: agent.scripted.requests == 2)
        child = agent.agents()[1].agent_id
        await as_after_a_crash(agent, tmp_path / "crashed")
        run.cancel()
        await reading
    crashed.set()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "crashed"))
    async with make(script, config=FULL, session=agent.session_id) as later:
        events, result = await resumed(later, child)
    assert result.status == "completed"
    assert texts(events) == ["['a', 'b']"]


async def test_a_child_whose_last_cell_was_not_saved_reads_that(make, store):
    script = Reviewer()
    async with make(script, config=FULL, session="new") as agent:
        child = await agent.spawn_and_run("review")
        (mark,) = store.folder_of(agent.session_id).rglob(f"{child.agent_id}.{SAVED_UP_TO}")
        mark.write_text("1.0")
        await resumed(agent, child.agent_id)
    assert "before the last cell was saved" in script.read["review"][1]


async def test_a_child_that_is_cancelled_before_its_variables_are_back_keeps_them(make, store, monkeypatch):
    begun, restore = asyncio.Event(), FakeKernel.restore

    async def stuck(self, folder):
        begun.set()
        await asyncio.Event().wait()

    async with make(Reviewer(), config=FULL, session="new") as agent:
        child = await agent.spawn_and_run("review")
        await eventually(lambda: agent.present_run is None)
        monkeypatch.setattr(FakeKernel, "restore", stuck)
        run = agent.run_program(lambda: agent.task("and now?", resume=child.agent_id))
        reading = asyncio.create_task(read(run))
        await eventually(begun.is_set)
        run.cancel()
        await reading
        monkeypatch.setattr(FakeKernel, "restore", restore)
        events, _ = await resumed(agent, child.agent_id)
    assert texts(events) == ["['a', 'b']"]


async def test_the_oldest_variables_of_children_make_room(make, store, monkeypatch):
    monkeypatch.setattr(variables, "CHILDREN_BYTES", 1)
    script = Reviewer()
    async with make(script, config=FULL, session="new") as agent:
        first = await agent.spawn_and_run("first")
        await agent.spawn_and_run("second")
        await resumed(agent, first.agent_id)
    assert script.read["first"][1].startswith("[Your kernel is new: the variables and imports")


def test_a_child_whose_variables_vanish_meanwhile_leaves_the_others_to_make_room(tmp_path, monkeypatch):
    for name in "abc":
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_bytes(b"12345")
    scan, scanned = os.scandir, []

    def vanish(path):
        scanned.append(path)
        if len(scanned) == 2:  # the first child's
            os.rename(path, tmp_path.with_name("gone"))
        return scan(path)

    monkeypatch.setattr(os, "scandir", vanish)
    variables.remove_oldest(tmp_path, 0, {"c"})
    assert os.listdir(tmp_path) == ["c"]


async def test_a_model_and_a_type_that_are_gone(make, store, tmp_path):
    folder = tmp_path / "types"
    folder.mkdir()
    config = {**FULL, "agent_folders": [folder]}
    (folder / "reviewer.md").write_text("---\ndescription: reviews\n---\nReview.")
    (folder / "other.md").write_text("---\ndescription: does other things\nmode: full\n---\nAct.")
    async with make(Reviewer(), config=config, session="new") as agent:
        typed = await agent.task("typed", agent="reviewer")
        other = await agent.task("other", agent="other")
        own_model = await agent.task("model", model=ScriptedModel(Reviewer(), name="special"))
    (folder / "reviewer.md").unlink()
    (folder / "other.md").write_text("---\ndescription: reads\nmode: plan\n---\nRead.")
    async with make(Reviewer(), config=config, session=agent.session_id) as later:
        with pytest.raises(
            InvalidRequestError, match=f"{typed.agent_id} cannot be resumed: there is no agent type 'reviewer'"
        ):
            await later.task("x", resume=typed.agent_id)
        events, _ = await resumed(later, other.agent_id)
        assert [event.mode for event in of_kind(events, AgentStarted) if event.depth] == ["plan"]  # as the type says now
        with pytest.raises(
            InvalidRequestError,
            match=f"{own_model.agent_id} used the model function:special, which the settings no longer name",
        ):
            await later.task("x", resume=own_model.agent_id)
        again = await later.task("x", resume=own_model.agent_id, model=ScriptedModel(Reviewer(), name="another"))
        assert again.status == "completed"


async def test_no_secret_of_a_resumed_child_reaches_the_disk(make, store):
    config = {**FULL, "kernel": {"env": {"SERVICE_API_KEY": SECRET}}}
    async with make(lambda messages, info: f"the key is {SECRET}", config=config, session="new") as agent:
        child = await agent.spawn_and_run(f"review {SECRET}")
        await resumed(agent, child.agent_id, f"and {SECRET}?")
    found = [path for path in store.folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert found == []


async def test_a_child_whose_answer_is_known_from_before_a_crash_has_the_conversation_of_that_one(
    make, store, tmp_path, monkeypatch
):
    crashed = asyncio.Event()

    def script(messages, info):
        if first_prompt(messages) == "hangs" and not crashed.is_set():
            return asyncio.Event()
        return f"answer {len(prompts(messages))}"

    async def program(agent):
        review = await agent.task("review")
        await agent.task("hangs")
        return review.agent_id, (await agent.task("and now?", resume=review.agent_id))

    async with make(script, config=FULL, session="new") as agent:
        run = agent.run_program(lambda: program(agent))
        reading = asyncio.create_task(read(run))
        await eventually(lambda: agent.scripted.requests == 2)
        first = agent.agents()[1].agent_id
        await as_after_a_crash(agent, tmp_path / "crashed")
        run.cancel()
        await reading
    crashed.set()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "crashed"))
    async with make(script, config=FULL, session=agent.session_id) as later:
        _, result = await read(later.run_program(lambda: program(later)))
        reused, again = result.output
    assert reused != first
    assert (again.agent_id, again.output) == (first, "answer 2")
    async with make(script, config=FULL, session=agent.session_id) as last:
        _, result = await resumed(last, reused)
    assert result.output.output == "answer 3"


async def test_a_root_that_may_do_less_now_gives_less(make, store):
    async with make(Reviewer(), config=FULL, session="new") as agent:
        child = await agent.spawn_and_run("review")
    async with make(Reviewer(), config={"mode": "plan"}, session=agent.session_id) as later:
        events, result = await resumed(later, child.agent_id)
    assert result.status == "completed"
    assert [event.mode for event in of_kind(events, AgentStarted)] == ["plan", "plan"]
