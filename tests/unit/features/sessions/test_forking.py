"""A session is forked: the copy has all that was said, the variables and the answers, and each goes on by itself."""

import os
from functools import partial
from pathlib import Path

import pytest
from pydantic_ai.messages import UserPromptPart
from support.agents import as_read, cell, of_kind, read

from freeact_sub import Agent, Config, fork_session
from freeact_sub.errors import AgentBusyError, SessionBusyError, SessionError
from freeact_sub.events import CodeExecutionOutput
from freeact_sub.testing import FakeKernelProvider, ScriptedModel, prompts

FULL = {"mode": "full"}
LONG = "x" * 40_000


def script(messages, info):
    if not isinstance(messages[-1].parts[-1], UserPromptPart):
        return f"done {LONG}"
    prompt = prompts(messages)[-1]
    return cell("notes = []" if prompt == "begin" else f"notes.append({prompt[-1]!r}); print(notes)")


def texts(events):
    return [event.text for event in of_kind(events, CodeExecutionOutput)]


async def test_both_go_on_by_themselves(make, store):
    async with make(script, config=FULL, chunk_chars=len(LONG), session="new") as agent:
        await read(agent.run("begin"))
        child = await agent.spawn_and_run("begin")
        copy = await agent.fork()
        history = agent.history
        events, _ = await read(agent.run("add a"))
        assert texts(events) == ["['a']"]
        with pytest.raises(SessionBusyError):
            store.fork(agent.session_id)
    async with make(script, config=FULL, chunk_chars=len(LONG), session=copy) as other:
        assert (len(other.history), other.agent_id, other.session_id) == (len(history), agent.agent_id, copy)
        events, _ = await read(other.run("add b"))
        assert texts(events) == ["['b']"]
        events, _ = await read(other.run_program(lambda: other.task("add c", resume=child.agent_id)))
        assert texts(events) == ["['c']"]
    with store.reader(agent.session_id) as first, store.reader(copy) as second:
        assert [run.prompt for run in first.runs(agent.agent_id)][-1] == "add a"
        assert len(first.messages(agent.agent_id)) == len(second.messages(agent.agent_id)) == 2 * len(history)
        old, new = list(first.events()), list(second.events())
        shared = len([event for event in new if event in old])
        assert [event.to_json() for event in new[:shared]] == [event.to_json() for event in old[:shared]]
        assert len(second.calls()) == len(first.calls()) + 1
    store.remove(agent.session_id)
    third = store.fork(copy)
    store.remove(copy)
    async with make(script, config=FULL, chunk_chars=len(LONG), session=third) as last:
        events, _ = await read(last.run("add d"))
        assert texts(events) == ["['b', 'd']"]


async def test_a_fork_of_the_past_has_the_children_of_then(make, store):
    async with make(script, config=FULL, chunk_chars=len(LONG), session="new") as agent:
        await read(agent.run("begin"))
        child, other = await agent.spawn_and_run("begin"), await agent.spawn_and_run("begin")
        await read(agent.run("add a"))
        await read(agent.run_program(lambda: agent.task("add b", resume=child.agent_id)))
        later = await agent.spawn_and_run("begin")
        spent = agent.usage
    fork = await fork_session(agent.session_id, 1, store=store)
    assert fork.next_prompt == "add a"
    with store.reader(agent.session_id) as old, store.reader(fork.session_id) as new:
        assert later.agent_id in [each.agent_id for each in old.agents()]
        assert [each.agent_id for each in new.agents()] == [agent.agent_id, child.agent_id, other.agent_id]
        for agent_id, prompts_of_it in ((agent.agent_id, 3), (child.agent_id, 1)):
            runs = old.runs(agent_id)[:prompts_of_it]
            assert [run.prompt for run in new.runs(agent_id)] == [run.prompt for run in runs]
            assert new.messages(agent_id) == old.messages(agent_id)[: len(new.messages(agent_id))]
            assert len(new.messages(agent_id)) == 4
        assert [each.to_json() for each in new.events()] == [
            each.to_json() for each in [*old.events()][: len([*new.events()])]
        ]
        assert 0 < len(new.calls()) < len(old.calls())
    assert 0 < store.find(fork.session_id).usage.tokens < spent.tokens
    async with make(script, config=FULL, chunk_chars=len(LONG), session=fork.session_id) as forked:
        for resumed, variables in ((child, "NameError: name 'notes' is not defined"), (other, "['c']")):
            asked = partial(forked.task, "add c", resume=resumed.agent_id)
            events, _ = await read(forked.run_program(asked))
            assert texts(events)[0] == variables  # of the one that has worked since those of then are not kept


async def test_files_that_git_removes_meanwhile_keep_no_fork(make, store, monkeypatch):
    def link(source, target, **options):
        if Path(source).name == "index.lock":
            Path(source).unlink()
        os_link(source, target, **options)

    os_link = os.link
    async with make(script, config=FULL, chunk_chars=len(LONG), session="new") as agent:
        await read(agent.run("begin"))
        files = store.folder_of(agent.session_id) / "files"
        files.mkdir()
        (files / "index.lock").touch()
        (files / "index").touch()
        monkeypatch.setattr("freeact_sub.system.safe_files.os.link", link)
        copy = await agent.fork()
    assert [path.name for path in (store.folder_of(copy) / "files").iterdir()] == ["index"]


async def test_what_cannot_be_forked(make, store, monkeypatch):
    async with make(script, config=FULL, chunk_chars=len(LONG)) as agent:
        with pytest.raises(SessionError, match="there is no session to fork: make the agent with session='new'"):
            await agent.fork()
    async with make(script, config=FULL, chunk_chars=len(LONG), session="new") as agent:
        async with agent.run("begin") as run:
            with pytest.raises(AgentBusyError, match="wait for its end, or cancel it, then fork"):
                await agent.fork()
            await run.result()
        monkeypatch.setattr("freeact_sub.system.safe_files.os.link", _no_room)
        monkeypatch.setattr("freeact_sub.system.safe_files.shutil.copy2", _no_room)
        with pytest.raises(SessionError, match=f"the session {agent.session_id} cannot be forked: .*No space"):
            await agent.fork()
    assert [session.session_id for session in store.sessions()] == [agent.session_id]
    assert [folder.name for folder in (store.folder / "sessions").iterdir()] == [agent.session_id]
    with pytest.raises(SessionError, match="there is no session 'nobody'"):
        store.fork("nobody")


def _no_room(*_, **__):
    raise OSError(28, "No space left on device")


async def test_the_model_of_a_fork_reads_once_where_it_works(make, store):
    def runs_it(messages, info):
        return f"done: {'forked after prompt' in as_read(messages)[-1]}"

    async with make(runs_it, config=FULL, session="new") as agent:
        await read(agent.run("begin"))
        await read(agent.run("go on"))
    for at, after in ((None, 2), (1, 1), (0, 0)):
        fork = await fork_session(agent.session_id, at, store=store)
        for is_news in (True, False):
            async with make(runs_it, config=FULL, session=fork.session_id) as forked:
                assert (await read(forked.run("next")))[1].output == f"done: {is_news}"
                if is_news:
                    news = f"[This conversation was forked after prompt {after}. Your workspace is {fork.workspace}"
                    assert news in as_read(forked.history)[-1]
    options = {"model": ScriptedModel(runs_it), "kernel_provider": FakeKernelProvider()}
    async with Agent(Config(workspace=fork.workspace, mode="full"), session="new", **options) as other:
        pass  # another session in the copy, which is no fork
    async with make(runs_it, config=FULL, session=other.session_id) as again:
        assert again.config.workspace == fork.workspace
        assert (await read(again.run("next")))[1].output == "done: False"


@pytest.mark.process
async def test_links_into_the_workspace_lead_into_the_copy(make, store, tmp_path):
    """Copied ones, those of an earlier state, those of a copy's copy, and those that undo makes there."""

    def runs_it(messages, info):
        last = messages[-1].parts[-1]
        return cell(last.content.split("\n")[-1]) if isinstance(last, UserPromptPart) else "done"

    def leads(folder, name):
        """Where a link leads; in the original, some by a roundabout way."""
        is_copy = folder != tmp_path
        return {
            "file": f"{folder}/data.txt",
            "folder": f"{folder}/sub" if is_copy else f"{folder}/sub/",
            "whole": f"{folder}" if is_copy else f"{folder}/",
            "around": f"{folder}/data.txt" if is_copy else f"{outside}/../{tmp_path.name}/data.txt",
            "circle": f"{folder}/circle",
            "tool": f"{folder}/.venv/tool",
            "relative": "sub/../data.txt",
            "outside": f"{outside}",
            "beside": f"{tmp_path}-x",
            "up": f"{tmp_path}/..",
        }[name]

    def check(copy):
        assert {name: os.readlink(copy / name) for name in names} == {name: leads(copy, name) for name in names}
        assert os.readlink(copy / ".venv") == str(tmp_path / ".venv")
        assert (copy / "tool").read_text() == "tool"
        (copy / "file").write_text("of the copy")
        assert (tmp_path / "data.txt").read_text() == "data"

    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    names = ("file", "folder", "whole", "around", "circle", "tool", "relative", "outside", "beside", "up")
    outside.mkdir()
    for folder in ("sub", ".venv"):
        (tmp_path / folder).mkdir()
    (tmp_path / "data.txt").write_text("data")
    (tmp_path / ".venv" / "tool").write_text("tool")
    links = {str(tmp_path / name): leads(tmp_path, name) for name in names}
    begin = f"import os; [os.symlink(target, link) for link, target in {links!r}.items()]"
    end = f"import os; [os.unlink(%r + '/' + name) for name in {names!r}]"
    async with make(runs_it, config=FULL, session="new") as agent:
        agent.keep_undo()
        await read(agent.run(begin))
        present = await agent.fork(at=1)
        await read(agent.run(end % str(tmp_path)))
    for session in (present, (await fork_session(agent.session_id, 1, store=store)).session_id):
        check(store.find(session).workspace)
    async with make(runs_it, config=FULL, session=session) as forked:
        forked.keep_undo()
        copy = forked.config.workspace
        await read(forked.run(end % str(copy)))
        await forked.undo()
        check(copy)
        await forked.undo()
        assert not (copy / "file").is_symlink()
        await forked.redo()
        check(copy)
        await read(forked.run("x = 1"))
    for at in (1, 2):
        again = await fork_session(session, at, store=store)
        store.remove(session) if at == 2 else None
        check(again.workspace)
