"""A session is forked as it was after an earlier prompt: conversation, variables and files, with real kernels."""

import asyncio
import os

import pytest
from pydantic_ai.messages import ToolCallPart, ToolReturnPart, UserPromptPart
from support.agents import as_read
from support.elsewhere import CANNOT_FORK
from support.sessions import everything_of

from freeact_sub import Agent, Config, fork_session, list_sessions, session_events
from freeact_sub.errors import SessionError
from freeact_sub.events import Notice
from freeact_sub.sessions import session_store
from freeact_sub.testing import ScriptedModel, prompts

pytestmark = [pytest.mark.kernel, pytest.mark.skipif(CANNOT_FORK, reason="kernels are forked on Linux only")]

ONE = "x = [1]; _ = open('a', 'w').write('1')"
TWO = "x.append(2); _ = [open(name, 'w').write('2') for name in 'ab']"
THREE = "x.append(3); lock = __import__('threading').Lock(); __import__('os').remove('a')"
SHOW = "import os; print(x, sorted(name for name in os.listdir() if name[0] != '.'), os.getcwd())"


def runs_its_prompt(messages, info):
    """A model that runs each prompt as a cell, and then is done."""
    last = messages[-1].parts[-1]
    if not (isinstance(last, UserPromptPart) and info.function_tools) or "the last cell failed" in last.content:
        return "done"
    return ToolCallPart("execute_ipython_cell", {"code": last.content.split("]\n\n")[-1]})


MODEL = ScriptedModel(runs_its_prompt)


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


async def run(agent, code):
    """The output of a cell, which is a prompt of its own."""
    result = await agent.run(code).result()
    assert result.status == "completed", result.error
    parts = (part for message in reversed(agent.history) for part in message.parts)
    return next(part.content for part in parts if isinstance(part, ToolReturnPart))


def resume(session_id, **options):
    return asyncio.to_thread(lambda: Agent.resume(session_id, model=MODEL, **options))


def _prompts(session_id):
    with session_store().reader(session_id) as reader:
        return prompts(reader.messages(reader.agents()[0].agent_id))


@pytest.mark.parametrize("mode", ["auto", "full"])
async def test_conversation_variables_and_files_are_those_of_then_and_the_original_stays(work, mode):
    async with Agent(Config(workspace=work, mode=mode), model=MODEL, session="new") as agent:
        agent.keep_undo()
        for code in (ONE, TWO, "1/0", THREE):
            await run(agent, code)
        await agent.undo()
        await agent.run_cell("y = 1").result()  # no prompt
        await agent.compact()
        for code in (THREE, SHOW):
            await run(agent, code)
        original = agent.session_id
        present = await agent.fork(at=-2)
    before = everything_of(original)
    assert (await asyncio.to_thread(_prompts, present))[0] == ONE  # then the summary
    config = Config(workspace=work, mode=mode)
    forked = await resume(original, config=config, at=2)
    assert prompts(forked.history) == [ONE, TWO]
    async with forked:
        forked.keep_undo()
        shown = await run(forked, SHOW)
        copy = forked.config.workspace
        assert f"[1, 2] ['a', 'b'] {copy}" in shown
        assert (copy / "a").read_text() == "2"
        assert copy != work
        news = as_read(forked.history)[-1]
        assert f"forked after prompt 2. Your workspace is {copy}" in news
        assert "x: list" in news
        await run(forked, "x.append('forked'); open('a', 'w').write('forked')")
        second = forked.session_id
    assert everything_of(original) == before
    assert [path.name for path in work.iterdir() if path.name[0] != "."] == ["b"]
    assert [session.session_id for session in list_sessions(work)] == [original]
    # a fork of the fork, in which the prompts before count as well, and which its own prompts follow
    other = await fork_session(second, 1)
    assert (other.next_prompt, other.missing) == (TWO, "")
    async with await resume(other.session_id, config=config) as again:
        assert f"[1] ['a'] {other.workspace}" in await run(again, SHOW)
        assert (other.workspace / "a").read_text() == "1"
    last = await fork_session(second)
    assert (last.at, last.next_prompt, last.missing) == (4, "", "")
    async with await resume(last.session_id, config=config) as again:
        assert "[1, 2, 'forked']" in await run(again, SHOW)
    first = await fork_session(original, 0)
    async with await resume(first.session_id, config=config) as again:
        assert again.history == []
        assert "NameError" in await run(again, SHOW)
        assert os.listdir(first.workspace) in ([".freeact"], [])
    for outside in (6, -6):
        with pytest.raises(SessionError, match=f"has 5 prompts, so a fork cannot begin after {outside}: give"):
            await fork_session(original, outside)
    store = session_store()
    for session in (present, second, other.session_id, last.session_id, first.session_id):
        await asyncio.to_thread(store.remove, session)
    assert not [*store.copies.iterdir()]
    assert everything_of(original) == before


async def test_what_was_not_kept_is_named(work):
    async with Agent(Config(workspace=work, mode="full"), model=MODEL, session="new") as agent:
        for code in (ONE, TWO):
            await run(agent, code)
        original = agent.session_id
    fork = await fork_session(original, 1)
    assert fork.missing == (
        "Not as after prompt 1: the files are those of now (no state was stored before the next prompt); there are no "
        "variables (those of then are not kept)."
    )
    async with await resume(fork.session_id, config=Config(workspace=work, mode="full")) as agent:
        assert "NameError" in await run(agent, SHOW)
        assert any(fork.missing in text for text in as_read(agent.history))
        fork_id = agent.session_id
    assert fork.missing in [event.content for event in session_events(fork_id) if isinstance(event, Notice)]


async def test_a_cancelled_or_refused_fork_leaves_nothing(work, monkeypatch):
    async with Agent(Config(workspace=work, mode="full"), model=MODEL, session="new") as agent:
        await run(agent, ONE)
        with pytest.raises(SessionError, match="is open"):
            await fork_session(agent.session_id)
        original = agent.session_id
    store = session_store()
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    listdir = os.listdir

    def slow(folder):
        loop.call_soon_threadsafe(begun.set)
        return listdir(folder)

    monkeypatch.setattr("freeact_sub.kernels.files.layer.os.listdir", slow)
    forking = asyncio.create_task(fork_session(original))
    await begun.wait()
    forking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await forking
    monkeypatch.setattr("freeact_sub.features.sessions.forking.MAX_FILES", 0)
    with pytest.raises(SessionError, match="cannot be copied for a fork: too many files"):
        await fork_session(original)
    assert not [*store.copies.iterdir()]
    assert [session.session_id for session in list_sessions()] == [original]
