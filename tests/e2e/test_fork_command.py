"""`freeact-sub sessions fork ID --at N --model A,B`: models continue a session at an earlier prompt, side by side."""

import asyncio
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import ChatCall, ChatReply
from support.cli import LIMIT_SECONDS, Chat, chat, environment, run
from support.sessions import everything_of
from support.waiting import eventually, wait_until
from support.warm import PROGRAM, WarmProgram

from freeact_sub import Agent, Config, compare_models, list_sessions
from freeact_sub.system.private_folders import sweep

pytestmark = [pytest.mark.e2e, pytest.mark.kernel]
ANSWERS = {"good": "rows: 3\nmore", "bad": ""}
WRITES = {
    "scripted": "open('data', 'a').write(f'{len(open(\"data\").readlines())}\\n')",
    "good": "open('data', 'a').write('good\\n'); open('new', 'w').write('x\\n'); made = rows + ['good']; print(made)",
    "bad": "1/0",
}


def script(request: dict[str, Any]) -> ChatReply:
    """Each prompt is answered by a cell, then by a text. `slow` never ends."""
    name, last = request["model"], request["messages"][-1]
    if name == "slow":
        return [asyncio.Event()]
    if last["role"] == "tool":
        return [ANSWERS.get(name, "done")]
    return [ChatCall("execute_ipython_cell", {"code": f"rows = globals().get('rows', []) + [1]\n{WRITES[name]}"})]


@pytest.fixture
def server() -> Iterator[Chat]:
    with chat(script) as server:
        yield server


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setattr("pydantic_ai.models.ALLOW_MODEL_REQUESTS", True)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "data").write_text("first\n")
    return tmp_path / "work"


def conversation(work: Path, base_url: str) -> str:
    """A session of two prompts. Returns: its id."""

    async def talk() -> str:
        config = Config(workspace=work, mode="auto", model="openai-chat:scripted", base_url=base_url)
        async with Agent(config, session="new") as agent:
            agent.keep_undo()
            for prompt in ("begin", "count the rows"):
                result = await agent.run(prompt).result()
                assert result.status == "completed", result.error
            return str(agent.session_id)

    return asyncio.run(talk())


def files_in(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


def test_models_continue_side_by_side_and_the_workspace_stays(server: Chat, work: Path) -> None:
    session_id = conversation(work, server.server.base_url)
    before, files = everything_of(session_id), files_in(work)
    words = ("sessions", "fork", session_id[:-1], "--at", "1", "--model", "openai-chat:good, openai-chat:bad")
    done = run(*words, cwd=work, check=1)  # one gave no answer
    assert (everything_of(session_id), files_in(work)) == (before, files)
    header, good, answer, session, bad, error, _ = done.stdout.splitlines()
    assert header.split() == ["model", "status", "cost", "time", "files"]
    assert re.match(r"1  openai-chat:good +completed +[\d,]+ tokens +\d+ s +2 files \+2 -0$", good)
    assert re.match(r"2  openai-chat:bad +limit +[\d,]+ tokens +\d+ s +none$", bad)
    assert (answer, error[:3]) == ("   rows: 3", "   ")
    asked = [request["messages"] for request in server.server.requests if request["model"] == "good"]
    assert "count the rows" in str(asked[0][-1])  # the prompt that followed, again
    assert "[1, 1, 'good']" in str(asked[1][-1])  # with the variables of then
    copy = work.parent / "state/freeact/workspaces" / session.strip() / work.name
    assert files_in(copy) == {"data": "first\n1\ngood\n", "new": "x\n"}
    more = run("run", "--resume", session.strip(), "more", "--output", "text", "--mode", "auto", cwd=work)
    assert "rows: 3" in more.stdout
    assert files_in(copy)["data"] == "first\n1\ngood\ngood\n"
    assert files_in(work) == files
    run("sessions", "rm", session.strip(), cwd=work)
    assert not copy.exists()
    alone = run("sessions", "fork", session_id, "--at", "-1", cwd=work)
    assert alone.stdout.strip() in [session.session_id for session in list_sessions()]
    assert f"freeact-sub --resume {alone.stdout.strip()} continues it" in alone.stderr
    refused = run("sessions", "fork", session_id, "--at", "2", "--model", "openai-chat:good", cwd=work, check=1)
    assert "no prompt followed prompt 2" in refused.stderr
    assert len(list_sessions()) == 3  # and the other one


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_end_in_the_middle_leaves_the_original_and_nothing_at_work(server: Chat, work: Path, number: int) -> None:
    session_id = conversation(work, server.server.base_url)
    before, files = everything_of(session_id), files_in(work)
    names = "openai-chat:slow,openai-chat:slow,openai-chat:good"
    command = [PROGRAM, "sessions", "fork", session_id, "--at", "1", "--model", names, "--prompt", "count"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    program = WarmProgram(command, cwd=work, env=environment(), **streams)
    wait_until(lambda: sum(request["model"] == "slow" for request in server.server.requests) == 2)
    wait_until(lambda: any(request["messages"][-1]["role"] == "tool" for request in server.server.requests[4:]))
    program.send_signal(number)
    program.communicate(timeout=LIMIT_SECONDS)
    if number == signal.SIGINT:
        assert program.returncode == 130
        assert len(list_sessions()) <= 2, "only one that has ended stays"
    assert (everything_of(session_id), files_in(work)) == (before, files)
    assert [session.session_id for session in list_sessions(work)] == [session_id]
    sweep()  # as the next start does


async def test_a_program_compares_models_and_a_cancel_removes_the_forks(server: Chat, work: Path) -> None:
    session_id = await asyncio.to_thread(conversation, work, server.server.base_url)
    (good,) = await compare_models(session_id, ["openai-chat:good"], at=1)
    assert (good.status, good.answer, good.fork.missing) == ("completed", ANSWERS["good"], "")
    assert dict(good.files) == {"data": (1, 0), "new": (1, 0)}
    comparing = asyncio.create_task(compare_models(session_id, ["openai-chat:slow"], prompt="count"))
    await eventually(lambda: server.server.requests[-1]["model"] == "slow")
    comparing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await comparing
    assert {session.session_id for session in list_sessions()} == {session_id, good.fork.session_id}
