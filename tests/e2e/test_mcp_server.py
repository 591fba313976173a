"""`freeact-sub mcp-server`, as real clients use it over standard streams."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp
import psutil
import pytest
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ElicitResult
from support.chat_server import ChatCall, ChatReply
from support.cli import PROGRAM, chat, environment, prompt_of, texts_of
from support.waiting import WORKS_ON, eventually, is_running, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.kernel, pytest.mark.mcp]

ERAS = pytest.mark.parametrize("era", ["legacy", "auto"])
"""`legacy`: the server asks during a call; `auto`: the call returns what is asked, in the newest protocol."""


class McpClient:
    """A client with a person, who decides as a list says, and what it was told."""

    def __init__(self, *decisions: str) -> None:
        self.decisions = [*decisions]
        self.asked: list[Any] = []
        self.news: list[str] = []
        self.held = asyncio.Event()
        """Not set: the person thinks."""
        self.held.set()
        self.connection: mcp.Client

    async def answer(self, _context: object, asked: Any) -> ElicitResult:
        self.asked.append(asked)
        await self.held.wait()
        return ElicitResult(action="accept", content={"decision": self.decisions.pop(0)})

    async def hear(self, _progress: float, _total: float | None, message: str | None) -> None:
        self.news.append(message or "")

    async def call(self, tool: str, **arguments: Any) -> CallToolResult:
        return await self.connection.call_tool(tool, arguments, progress_callback=self.hear)

    async def done(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = await self.call(tool, **arguments)
        assert not result.is_error, result.content
        assert result.structured_content is not None
        return result.structured_content


@asynccontextmanager
async def connected(
    folder: Path, *options: str, era: Any = "auto", decisions: tuple[str, ...] | None = ()
) -> AsyncIterator[McpClient]:
    """Args: decisions: of the person. None: the client cannot ask one."""
    command = ["mcp-server", "--workspace", str(folder), *options]
    client = McpClient(*(decisions or ()))
    callback = None if decisions is None else client.answer
    started = StdioServerParameters(command=str(PROGRAM), args=command, env=environment())
    async with mcp.Client(started, mode=era, elicitation_callback=callback) as client.connection:
        yield client


@ERAS
async def test_a_kernel_is_branched_compared_and_promoted(tmp_path, era):
    async with connected(tmp_path, era=era) as client:
        first = await client.done("execute", code="x = 1\nx")
        kernel = first["kernel_id"]
        assert (first["status"], first["text"]) == ("ok", "1")
        branches = [
            (await client.done("branch", kernel_id=kernel, description=name, own_files=name == "own"))["kernel_id"]
            for name in ("own", "shared")
        ]
        code = "x += 41\nif own: open('new.txt', 'w').write('new')\nx"
        ran = [
            client.done("execute", code=f"own = {own}\n{code}", kernel_id=branch)
            for own, branch in zip((1, 0), branches, strict=True)
        ]
        assert [each["text"] for each in await asyncio.gather(*ran)] == ["42", "42"]
        assert (await client.done("diff", kernel_id=branches[0]))["added"] == ["new.txt"]
        assert not (tmp_path / "new.txt").exists()
        assert (await client.done("promote", kernel_id=branches[0]))["added"] == ["new.txt"]
        assert (tmp_path / "new.txt").read_text() == "new"
        assert (await client.done("variables", kernel_id=kernel))["variables"] == {"x": "x = 1"}
        adopted = await client.done("adopt", kernel_id=branches[1], names=["x"])
        assert adopted == {"kernel_id": kernel, "variables": {"x": "x = 42"}}
        copy = (await client.done("snapshot", session_id=kernel))["session_id"]
        for closed in (*branches, kernel):
            await client.done("close", kernel_id=closed)
        gone = await client.call("execute", code="x", kernel_id=branches[0])
        assert gone.is_error
        assert "A branch ends with its session" in gone.content[0].text
        failed = await client.done("execute", code="1 / 0", kernel_id=copy)
        assert failed["status"] == "error"
        assert "ZeroDivisionError" in failed["text"]
        no_model = await client.call("run", prompt="anything")
        assert no_model.is_error
        assert "no model is set" in no_model.content[0].text
        with pytest.raises(MCPError, match="there is no prompt 'x'"):
            await client.connection.get_prompt("x")
    async with connected(tmp_path, era=era) as client:  # the variables outlive the server
        assert (await client.done("execute", code="x", kernel_id=kernel))["text"] == "42"
        assert (await client.done("execute", code="x", kernel_id=copy))["text"] == "42"
    async with connected(tmp_path / ".freeact", era=era) as client:
        assert (await client.call("execute", code="x", kernel_id=kernel)).is_error  # they are of another folder


def model(request: dict[str, Any]) -> ChatReply:
    if request["messages"][-1]["role"] == "tool":
        return [f"It said: {texts_of(request)[-1][:500]}"]
    return [ChatCall("execute_ipython_cell", {"code": "!touch ../beside && echo touched"})]


@ERAS
async def test_an_agent_works_and_its_questions_reach_the_person(tmp_path, era):
    (tmp_path / "w").mkdir()
    with chat(model) as server:
        options = (*server.options, "--mode", "ask")
        async with connected(tmp_path / "w", *options, era=era, decisions=("yes", "yes", "yes", "no")) as client:
            ran = await client.done("run", prompt="touch it")
            assert ran["status"] == "completed", ran
            assert "touched" in ran["answer"]
            assert "1 cell" in ran["receipts"]
            assert (tmp_path / "beside").exists()
            assert client.news
            assert any("touch ../beside" in asked.message for asked in client.asked)
            asked = len(client.asked)
            assert asked <= 3  # nothing twice
            client.decisions = ["no"] * 9
            denied = await client.call("run", prompt="touch it again", session_id=ran["session_id"])
            assert len(client.asked) > asked
            assert denied.structured_content["status"] in ("completed", "rejected")


WRONG = [
    ("execute", {"code": "1", "kernel": "k"}, "execute: there is no argument 'kernel': did you mean 'kernel_id'?"),
    ("execute", {"cod": "1"}, "execute: there is no argument 'cod': did you mean 'code'?"),
    ("execute", {"kernel_id": ""}, "execute: the argument 'code' is missing"),
    ("execute", {"code": 7}, "execute: code: Input should be a valid string"),
    ("branch", {"kernel_id": "k", "ownFiles": True}, "branch: there is no argument 'ownFiles': did you mean 'own_files'?"),
    ("adopt", {"kernel_id": "k", "variables": ["x"]}, "adopt: there is no argument 'variables': did you mean 'names'?"),
    ("adopt", {"kernel_id": "k", "names": 3}, "adopt: names: Input should be a valid tuple"),
    ("diff", {}, "diff: the argument 'kernel_id' is missing"),
    ("run", {"promt": "Go."}, "run: there is no argument 'promt': did you mean 'prompt'?"),
]


@ERAS
async def test_wrong_arguments_are_named_and_open_nothing(tmp_path, era):
    async with connected(tmp_path, era=era) as client:
        for tool, arguments, words in WRONG:
            result = await client.call(tool, **arguments)
            assert result.is_error
            assert [block.text for block in result.content] == [words]
    assert not [*tmp_path.rglob("*")]


async def test_a_client_that_cannot_ask_is_denied_at_once(tmp_path):
    async with connected(tmp_path, "--mode", "ask", decisions=None) as client:
        ran = await client.done("execute", code="!touch ../beside-this")
        assert "this client cannot ask its user" in ran["text"]
    assert not (tmp_path.parent / "beside-this").exists()


async def test_over_http_whoever_has_the_token_reconnects_to_live_kernels(tmp_path):
    folder = tmp_path / "w"
    folder.mkdir()
    async with served_over_http(folder, model, "ask") as (address, token):
        await over_http(address, token, folder)


@asynccontextmanager
async def served_over_http(folder: Path, reply: Any, mode: str) -> AsyncIterator[tuple[str, str]]:
    """A server, of which nothing is left behind; yields its address and the value of the header."""
    with chat(reply) as server:
        command = [str(PROGRAM), "mcp-server", "--http", "0", "--mode", mode, "--workspace", str(folder), *server.options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
            address, header = (process.stdout.readline().strip() for _ in range(2))
            try:
                yield address, header.removeprefix("Authorization: ")
            finally:
                below = psutil.Process(process.pid).children(recursive=True)
                process.terminate()
                process.wait()
    assert below
    await eventually(lambda: not any(is_running(each.pid) for each in below))


@asynccontextmanager
async def connected_over_http(address: str, token: str, *decisions: str, era: Any = "auto") -> AsyncIterator[McpClient]:
    client = McpClient(*decisions)
    async with (
        httpx2.AsyncClient(headers={"Authorization": token}, timeout=300) as web,
        mcp.Client(
            streamable_http_client(address, http_client=web),
            mode=era,
            elicitation_callback=client.answer if decisions else None,
        ) as client.connection,
    ):
        yield client


async def over_http(address: str, token: str, folder: Path) -> None:
    async with httpx2.AsyncClient() as stranger:
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            assert (await stranger.post(address, json={}, headers=headers)).status_code == 401

    def again() -> AbstractAsyncContextManager[McpClient]:
        return connected_over_http(address, token)

    async with again() as client:
        kernel = (await client.done("execute", code="import os\nx, pid = 42, os.getpid()\npid"))["kernel_id"]
        branch = (await client.done("branch", kernel_id=kernel, own_files=False))["kernel_id"]
    async with again() as client:
        said = await client.done("execute", kernel_id=kernel, code="print(os.getpid() == pid, x); print('long ' * 20_000)")
        assert said["text"].startswith("True 42")  # the same live kernel
        assert (await client.done("variables", kernel_id=branch))["variables"]["x"] == "x = 42"
        (whole,) = (await client.connection.read_resource(said["output"])).contents
        assert whole.text.count("long") == 20_000
        session = (await client.done("start", prompt="touch it"))["session_id"]
        assert (await client.call("start", prompt="more", session_id=session)).is_error  # it is at work
        answered, told = 0, await client.done("status", session_id=session, wait_seconds=50)
        while told["status"] == "asking":
            (question,) = told["questions"]
            key = question["request_id"]
            assert "no" in question["answer"]["properties"]["decision"]["enum"]
            assert (await client.call("answer", request_id=key, values={"decision": "perhaps"})).is_error
            assert (await client.done("answer", request_id=key, values={"decision": "yes"}))["done"]
            assert not (await client.done("answer", request_id=key, values={"decision": "yes"}))["done"]
            answered, told = answered + 1, await client.done("status", session_id=session, wait_seconds=50)
        assert answered
        assert (told["status"], told["result"]["status"]) == ("ended", "completed")
        assert (folder.parent / "beside").exists()
        assert (await client.done("start", prompt="touch it again", session_id=session))["status"] in ("working", "asking")
        assert (await client.done("cancel", session_id=session))["done"]
        assert (await client.done("status", session_id=session))["result"]["status"] == "cancelled"
        assert not (await client.done("cancel", session_id=session))["done"]
        (transcript,) = (await client.connection.read_resource(f"freeact://sessions/{session}/transcript")).contents
        assert "touch it" in transcript.text
        (listed,) = (await client.connection.read_resource("freeact://sessions")).contents
        assert session in listed.text
        for wrong in ("nonsense/transcript", f"{session}/outputs/nonsense", f"{session}/outputs/..%2F..%2Fbeside"):
            with pytest.raises(MCPError):
                await client.connection.read_resource(f"freeact://sessions/{wrong}")


CLIENT = """
import asyncio, json, sys, mcp
from mcp.client.stdio import StdioServerParameters
async def main(folder, tool, arguments, *command):
    async def never(*_):
        open(folder + "/asked", "w").close()
        await asyncio.Event().wait()
    started = StdioServerParameters(command=command[0], args=[*command[1:]])
    async with mcp.Client(started, mode="legacy", elicitation_callback=never) as client:
        await client.call_tool(tool, json.loads(arguments))
asyncio.run(main(*sys.argv[1:]))
"""
WORKS = f"import subprocess; subprocess.Popen(['sleep', '777'])\nopen('begun', 'w').close()\n{WORKS_ON}"


def with_child(request: dict[str, Any]) -> ChatReply:
    if "child's work" in prompt_of(request):
        return [ChatCall("execute_ipython_cell", {"code": WORKS})]
    return [ChatCall("task", {"prompt": "child's work", "description": "sleeps"})]


@pytest.mark.parametrize(
    ("mode", "tool", "arguments", "sign"),
    [
        ("auto", "execute", {"code": WORKS}, "begun"),
        ("ask", "execute", {"code": "import subprocess; subprocess.run(['touch', '../beside'])"}, "asked"),
        ("auto", "run", {"prompt": "have a child sleep"}, "begun"),
    ],
    ids=["in a cell", "in a question", "in a child"],
)
async def test_nothing_is_left_when_the_client_is_killed(tmp_path, mode, tool, arguments, sign):
    with chat(with_child) as server:
        command = [PROGRAM, "mcp-server", "--workspace", tmp_path, "--mode", mode, *server.options]
        words = [sys.executable, "-c", CLIENT, tmp_path, tool, json.dumps(arguments), *command]
        with subprocess.Popen([*map(str, words)], env=environment()) as client:
            wait_until((tmp_path / sign).exists)
            below = psutil.Process(client.pid).children(recursive=True)
            os.kill(client.pid, signal.SIGKILL)
            client.wait()
            await eventually(lambda: not any(is_running(each.pid) for each in below))
    assert len(below) >= 3


HTTP_CLIENT = """
import asyncio, json, sys, httpx2, mcp
from mcp.client.streamable_http import streamable_http_client
async def main(folder, address, token, calls):
    async def never(*_):
        open(folder + "/asked", "w").close()
        await asyncio.Event().wait()
    async with (
        httpx2.AsyncClient(headers={"Authorization": token}, timeout=1000) as web,
        mcp.Client(streamable_http_client(address, http_client=web), mode="legacy", elicitation_callback=never) as client,
    ):
        await asyncio.gather(*(client.call_tool(tool, arguments) for tool, arguments in json.loads(calls)))
asyncio.run(main(*sys.argv[1:]))
"""


async def test_the_work_of_a_client_that_is_killed_ends_over_http_and_its_kernels_stay(tmp_path):
    async with served_over_http(tmp_path, with_child, "auto") as (address, token):
        async with connected_over_http(address, token) as client:
            made = [client.done("execute", code="x = 42") for _ in range(3)]
            sleeps, asks, child = [each["kernel_id"] for each in await asyncio.gather(*made)]
        cell = f"open('in_cell', 'w').close()\n{WORKS_ON}"
        asking = "await agent.shell('touch ran', reason='test')"
        calls = [
            ("execute", {"code": cell, "kernel_id": sleeps}),
            ("execute", {"code": asking, "kernel_id": asks}),
            ("run", {"prompt": "have a child sleep", "session_id": child}),
        ]
        words = [sys.executable, "-c", HTTP_CLIENT, tmp_path, address, token, json.dumps(calls)]
        with subprocess.Popen([*map(str, words)], env=environment()) as killed:
            for sign in ("in_cell", "asked", "begun"):
                wait_until((tmp_path / sign).exists)
            os.kill(killed.pid, signal.SIGKILL)
        async with connected_over_http(address, token) as client:
            for kernel in (sleeps, asks):  # it waits for the cell before it
                assert (await client.done("execute", kernel_id=kernel, code="x"))["text"] == "42"
            ended = await client.done("status", session_id=child, wait_seconds=50)
            assert (ended["status"], ended["result"]["status"]) == ("ended", "cancelled")
            (transcript,) = (await client.connection.read_resource(f"freeact://sessions/{asks}/transcript")).contents
            assert "the client is gone" in transcript.text
        assert not (tmp_path / "ran").exists()


async def test_a_client_is_asked_about_its_own_cells_only_and_its_loss_ends_no_others(tmp_path):
    async with (
        served_over_http(tmp_path, model, "auto") as (address, token),
        connected_over_http(address, token, "yes", era="legacy") as client,
    ):
        kernel = (await client.done("execute", code="x = 42"))["kernel_id"]
        branch = (await client.done("branch", kernel_id=kernel, own_files=False))["kernel_id"]
        calls = [("execute", {"code": "await agent.shell('touch ran', reason='other')", "kernel_id": kernel})]
        words = [sys.executable, "-c", HTTP_CLIENT, tmp_path, address, token, json.dumps(calls)]
        with subprocess.Popen([*map(str, words)], env=environment()) as killed:
            wait_until((tmp_path / "asked").exists)
            client.held = asyncio.Event()
            code = "print(await agent.shell('echo mine', reason='mine'))"
            call = client.connection.call_tool("execute", {"code": code, "kernel_id": branch})  # tells no progress
            mine = asyncio.create_task(call)
            await eventually(lambda: client.asked)  # the other's question is open
            os.kill(killed.pid, signal.SIGKILL)
        assert (await client.done("execute", code="x", kernel_id=kernel))["text"] == "42"  # the other's cell has ended
        client.held.set()
        assert "mine" in (await mine).structured_content["text"]
        assert ["mine" in asked.message for asked in client.asked] == [True]
    assert not (tmp_path / "ran").exists()
