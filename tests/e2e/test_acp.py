"""`freeact-sub acp` as a client finds it: a real process, real kernels, and every message held against the protocol."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.acp_client import ONCE, AcpClient, AcpError, environment, violations
from support.chat_server import ChatCall, ChatReply
from support.cli import chat
from support.sandbox import NEEDS_A_WALL
from support.waiting import WORKS_ON, is_running, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.kernel]

PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PLOT = f"import base64\nfrom IPython.display import Image, display\ndisplay(Image(base64.b64decode({PICTURE!r})))"
COUNT = "x = globals().get('x', 40) + 1\nx"
WORKS = f"print('begun-' + str(1), flush=True)\n{WORKS_ON}"
PLAN = {"plan": [{"step": "look", "status": "completed"}, {"step": "write", "status": "in_progress"}]}


def script(request: dict[str, Any]) -> ChatReply:
    """What the last message asks for."""
    last = request["messages"][-1]
    text = str(last["content"])
    if last["role"] == "tool":
        return ["It is ", text]
    if "whole final answer again" in text:  # a step of the plan is open
        return ["The user sees the plan."]
    cells = {"count": COUNT, "plot": PLOT, "sleep": WORKS, "ask": "print('never')", "write": "open('note.txt', 'w').close()"}
    for word, code in cells.items():
        if word in text:
            return [ChatCall("execute_ipython_cell", {"code": code})]
    if "child" in text:
        return [ChatCall("task", {"prompt": "sleep" if text == "child" else "count in it", "description": "a counter"})]
    if "question" in text:
        return [ChatCall("ask_user", {"questions": [{"question": "Which?", "choices": ["red", "blue"]}]})]
    if "plan" in text:
        return [ChatCall("update_plan", PLAN)]
    return ["Hello from ", str(request["model"])]


def text_of(request: dict[str, Any]) -> str:
    """All that a question shows."""
    return json.dumps(request["toolCall"])


async def test_a_session_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    (tmp_path / "config/freeact/commands").mkdir(parents=True)
    (tmp_path / "config/freeact/commands/scheme.md").write_text("Make a plan of $ARGUMENTS.")
    env = environment(tmp_path, FREEACT_CONTEXT__WINDOW_TOKENS="50000", FREEACT_MODELS__OTHER="openai-chat:other")
    with chat(script) as server:
        async with AcpClient(*server.options, "--mode", "ask", cwd=tmp_path, env=env) as client:
            await talk(client, workspace)
        assert client.process.returncode == 0
        assert client.other_lines == []
        async with AcpClient(*server.options, "--mode", "ask", cwd=tmp_path, env=env) as later:
            await talk_again(later, workspace, client.updates[0][0])
    ours = (
        "the answer to session/request_permission: ",
        "no schema for session/nonsense",
        "session/set_config_option: ",
        "$/cancel_request: ",
    )
    assert [text for text in violations(client.traffic) if not text.startswith(ours)] == []
    assert len(violations(client.traffic)) == len(ours), "what the test itself does wrong is found"
    assert violations(later.traffic) == []
    names = [u["toolCallId"] for _, u in client.updates if u["sessionUpdate"] == "tool_call"]
    assert len(names) == len(set(names)), "the model's ids are not unique, and clients keep what they show by these"


async def talk(client: AcpClient, workspace: Path) -> None:
    assert client.process.stdin is not None
    client.process.stdin.write(b'no message\n[1, 2]\nnull\n"x"\n\n{}\n{"jsonrpc": "2.0", "id": "x", "result": {}}\n')
    about = await client.start()
    assert about["protocolVersion"] == 1
    with pytest.raises(AcpError, match="absolute path"):
        await client.call("session/new", cwd="w", mcpServers=[])
    session = await client.new(workspace)
    await client.until(lambda: "available_commands_update" in client.kinds(session))

    assert await client.prompt(session, "hi") == "end_turn"
    assert client.said == "Hello from scripted"
    assert await client.prompt(session, "count") == "end_turn"
    (asked,) = client.asked
    assert asked["sessionId"] == session
    assert "globals().get('x', 40)" in asked["toolCall"]["content"][0]["content"]["text"]
    assert asked["toolCall"]["rawInput"]["code"] == COUNT
    assert [option["kind"] for option in asked["options"]] == ["allow_once", "allow_always", "allow_always", "reject_once"]
    assert "usage_update" in client.kinds(session)
    assert client.said.endswith("It is 41")

    assert await client.prompt(session, "a child, please") == "end_turn"
    (child,) = [call for name, call in client.calls().items() if name.startswith("child-")]
    assert child["status"] == "completed"
    assert "a counter" in child["title"]
    assert {asked["sessionId"] for asked in client.asked} == {session}, "questions of children have the root's session"
    assert {call["status"] for call in client.calls().values()} == {"completed"}

    assert await client.prompt(session, "plot") == "end_turn"
    shown = json.dumps([u for _, u in client.updates if u["sessionUpdate"] == "tool_call_update"])
    assert PICTURE in shown
    assert '"resource_link"' in shown
    assert "![" in client.said
    assert await client.prompt(session, "/scheme it") == "end_turn", "a command of the person's own"
    assert [u["entries"][1]["status"] for _, u in client.updates if u["sessionUpdate"] == "plan"] == ["in_progress"]

    turn = client.begin("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "sleep"}])
    other = await client.new(workspace)
    await client.until(lambda: "begun-1" in json.dumps(client.updates))
    assert await client.prompt(other, "hi") == "end_turn", "another session goes on meanwhile"
    await client.prompt(session, "/agents")
    assert "execute" in client.said or "running" in client.said
    client.notify("session/cancel", sessionId=session)
    assert (await turn)["stopReason"] == "cancelled"
    turn = client.begin("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "sleep"}])
    client.notify("$/cancel_request", requestId=last_id(client))
    assert (await turn)["stopReason"] == "cancelled", "though it has hardly arrived"

    await refusals(client, session)
    fork = await client.call("session/fork", sessionId=session, cwd=str(workspace), mcpServers=[])
    assert await client.prompt(fork["sessionId"], "count") == "end_turn"
    assert client.said.endswith("It is 42"), "a fork has the variables"
    options = await client.call("session/set_config_option", sessionId=session, configId="mode", value="plan")
    assert [option["currentValue"] for option in options["configOptions"]] == ["plan", "openai-chat:scripted"]
    await client.call("session/set_mode", sessionId=session, modeId="full")
    count = len(client.asked)
    assert await client.prompt(session, "write") == "end_turn"
    assert len(client.asked) <= count + 1, "only variables of a kernel that could do less are asked about"
    assert (workspace / "note.txt").exists()
    assert await client.prompt(session, "/rewind 1 --fork") == "end_turn"
    new, copy = re.findall("`([^`]+)`", client.said)[-3:-1]
    assert (workspace / "note.txt").exists()
    assert not (Path(copy) / "note.txt").exists()
    listed = (await client.call("session/list", cwd=copy))["sessions"]
    assert [each["sessionId"] for each in listed] == [new]
    assert await client.prompt(session, "/undo") == "end_turn"
    assert not (workspace / "note.txt").exists()
    await client.call("session/set_config_option", sessionId=session, configId="model", value="openai-chat:other")
    assert await client.prompt(session, "hi") == "end_turn"
    assert client.said.endswith("Hello from other")
    for each in (await client.new(workspace), other):  # one without a prompt, and one with
        await client.call("session/set_mode", sessionId=each, modeId="plan")
        await client.call("session/close", sessionId=each)
        back = await client.call("session/resume", sessionId=each, cwd=str(workspace), mcpServers=[])
        assert back["modes"]["currentModeId"] == "plan", "the mode that its user has chosen"
        await client.call("session/close", sessionId=each)
    with pytest.raises(AcpError, match="load it first"):
        await client.prompt(other, "hi")
    with pytest.raises(AcpError, match="Method not found"):
        await client.call("session/nonsense")
    with pytest.raises(AcpError, match="there is no option"):
        await client.call("session/set_config_option", sessionId=session, configId="mode", value=["plan"])
    client.notify("$/cancel_request", requestId=[1])
    link = {"type": "resource_link", "uri": "http://[odd", "name": "odd"}
    assert (await client.call("session/prompt", sessionId=session, prompt=[link]))["stopReason"] == "end_turn"
    await client.call("session/delete", sessionId=fork["sessionId"])


def last_id(client: AcpClient) -> Any:
    return next(m["id"] for m in reversed(client.traffic) if m.get("method") == "session/prompt")


async def refusals(client: AcpClient, session: str) -> None:
    """A client that denies, cancels, fails or answers nonsense has denied, and the person reads why."""
    allow = client.on_request
    answers = {
        "the user denied it": {"outcome": {"outcome": "selected", "optionId": "no"}},
        "the client cancelled the question": {"outcome": {"outcome": "cancelled"}},
        "not offered": {"outcome": {"outcome": "selected", "optionId": "everything"}},
        "could not ask its user": {"error": {"code": -32601, "message": "Method not found"}},
        "no answer that can be used": {"nothing": True},
    }
    for words, answer in answers.items():

        async def refuse(*_: Any, answer: Any = answer) -> Any:
            return answer

        client.on_request = refuse
        assert await client.prompt(session, "count") == "end_turn"
        assert words in client.said.rpartition("It is")[2], words

    async def choose(_: str, params: dict[str, Any]) -> Any:
        chosen = next(option for option in params["options"] if option["name"] == "blue")
        return {"outcome": {"outcome": "selected", "optionId": chosen["optionId"]}}

    client.on_request = choose
    assert await client.prompt(session, "question") == "end_turn"
    assert "blue" in client.said.rpartition("It is")[2]
    client.on_request = allow


async def talk_again(client: AcpClient, workspace: Path, session: str) -> None:
    """Another process loads what the first one has left."""
    await client.start(elicitation={"form": {}})
    listed = (await client.call("session/list", cwd=str(workspace)))["sessions"]
    assert [(each["title"], each["cwd"]) for each in listed if each["sessionId"] == session] == [("hi", str(workspace))]
    assert len(listed) == 2, "the fork was deleted"
    await client.call("session/load", sessionId=session, cwd=str(workspace), mcpServers=[])
    replayed = [update for each, update in client.updates if each == session]
    prompts = [u["content"]["text"] for u in replayed if u["sessionUpdate"] == "user_message_chunk"]
    assert prompts[:4] == ["hi", "count", "a child, please", "plot"]
    assert "write" not in prompts, "it was undone"
    assert client.said.startswith("Hello from scripted")
    assert all(call["status"] != "pending" for call in client.calls().values())
    assert await client.prompt(session, "count") == "end_turn"
    assert client.said.endswith("It is 42")

    async def fill(method: str, params: dict[str, Any]) -> Any:
        assert method == "elicitation/create"
        (name,) = params["requestedSchema"]["properties"]
        return {"action": "accept", "content": {name: "red"}}

    client.on_request = fill
    assert await client.prompt(session, "question") == "end_turn"
    assert "red" in client.said.rpartition("It is")[2]
    resumed = await client.call("session/resume", sessionId=session, cwd=str(workspace), mcpServers=[])
    assert resumed["modes"]["currentModeId"] == "ask"
    await client.start("Jupyter AI")
    count = len(client.updates)
    await client.call("session/load", sessionId=session, cwd=str(workspace), mcpServers=[])
    assert "user_message_chunk" not in [u["sessionUpdate"] for _, u in client.updates[count:]], "it has the chat itself"


@NEEDS_A_WALL
async def test_the_card_of_a_cell_shows_what_it_would_do(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("old\nkept\n")
    code = "open('note.txt', 'w').write('new\\nkept\\n'); open('made', 'w').write('m\\n'); print('said')"
    cell = [ChatCall("execute_ipython_cell", {"code": code})]
    with chat(lambda request: ["done"] if request["messages"][-1]["role"] == "tool" else cell) as server:
        env = environment(tmp_path)
        async with AcpClient(*server.options, "--mode", "ask", cwd=tmp_path, env=env) as client:
            seen: list[dict[str, Any]] = []

            async def answer(_: str, params: dict[str, Any]) -> Any:
                cards = lambda: [params["toolCall"], *(u for _, u in client.updates)]  # a late trial is an update
                is_card = lambda card: (
                    card.get("toolCallId") == params["toolCall"]["toolCallId"] and '"diff"' in json.dumps(card)
                )
                seen.extend(await client.until(lambda: [card for card in cards() if is_card(card)]))
                assert (tmp_path / "note.txt").read_text() == "old\nkept\n"
                return ONCE

            client.on_request = answer
            await client.start()
            assert await client.prompt(await client.new(tmp_path), "write") == "end_turn"
        assert violations(client.traffic) == []
    words = seen[0]["content"][1]["content"]["text"]
    assert {"tried", "said", "±note.txt"} <= {*words.replace(",", "").split()}, words
    assert [part for part in seen[0]["content"] if part["type"] == "diff"] == [
        {"type": "diff", "path": str(tmp_path / "made"), "newText": "m\n"},
        {"type": "diff", "path": str(tmp_path / "note.txt"), "oldText": "old\nkept\n", "newText": "new\nkept\n"},
    ]
    assert (tmp_path / "note.txt").read_text() == "new\nkept\n"


def test_files_are_no_client(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("")
    with (tmp_path / "in").open() as source, (tmp_path / "out").open("w") as out:
        command = [sys.executable, "-m", "freeact_sub", "acp"]
        pipes: dict[str, Any] = {"stdin": source, "stdout": out, "stderr": subprocess.PIPE, "env": environment(tmp_path)}
        done = subprocess.run(command, text=True, timeout=100, check=False, **pipes)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "must be pipes" in done.stderr


def test_nothing_is_left_when_the_client_is_killed(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    with chat(script) as server:
        program = Path(__file__).parents[1] / "support" / "acp_client.py"
        env = {**environment(tmp_path), "PYTHONPATH": str(program.parents[1])}
        command = [sys.executable, str(program), str(tmp_path), *server.options, "--mode", "ask"]
        client = subprocess.Popen(command, env=env, cwd=tmp_path, start_new_session=True)
        try:
            wait_until(lambda: (ready.exists() and ready.read_text()) or client.poll() is not None)
            agent = psutil.Process(int(ready.read_text()))
            running = [agent, *agent.children(recursive=True)]
            assert len(running) > 3, "kernels are among them"
        finally:
            os.kill(client.pid, signal.SIGKILL)
            client.wait()
        wait_until(lambda: not [process for process in running if is_running(process.pid)])
