"""A client of the Agent Client Protocol: bare JSON-RPC over the pipes of a real process, all traffic recorded and checked.

It does not use the SDK that the program is made with. `violations` holds the traffic against the protocol's own JSON schema
(`tests/data/acp_schema.json.gz`: `schema/v1/schema.unstable.json` of `@agentclientprotocol/sdk` 2.4.0, Apache-2.0).
"""

import asyncio
import gzip
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self

from jsonschema import Draft202012Validator

SCHEMA = Path(__file__).parent.parent / "data" / "acp_schema.json.gz"
LIMIT_SECONDS = 120
ONCE = {"outcome": {"outcome": "selected", "optionId": "once"}}


class AcpError(Exception):
    """The agent answers with an error."""


class AcpClient:
    """An async context manager: the program runs inside it."""

    def __init__(self, *arguments: str, cwd: Path, env: dict[str, str], command: tuple[str, ...] = ()) -> None:
        self._command = (*(command or (sys.executable, "-m", "freeact_sub", "acp")), *arguments)
        self._cwd, self._env = cwd, env
        self.traffic: list[dict[str, Any]] = []
        self.updates: list[tuple[str, dict[str, Any]]] = []
        """All updates with their sessions."""
        self.asked: list[dict[str, Any]] = []
        """The parameters of all questions."""
        self.on_request: Callable[[str, dict[str, Any]], Awaitable[Any]] = self._allow
        """Answers what the agent asks."""
        self.other_lines: list[bytes] = []
        """What on standard output is no message."""
        self._changed = asyncio.Event()
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._answering: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        self.log = (self._cwd / "acp.log").open("wb")
        self.process = await asyncio.create_subprocess_exec(
            *self._command, cwd=self._cwd, env=self._env, stdin=pipe, stdout=pipe, stderr=self.log, limit=2**26
        )
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process.stdin is not None and not self.process.stdin.is_closing():
            self.process.stdin.close()
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                await self.process.wait()
        finally:
            if self.process.returncode is None:
                self.process.kill()
            self._reading.cancel()
            for task in self._answering:
                task.cancel()
            self.log.close()

    @property
    def said(self) -> str:
        """The messages of the agent."""
        return "".join(u["content"].get("text", "") for _, u in self.updates if u["sessionUpdate"] == "agent_message_chunk")

    def kinds(self, session_id: str) -> list[str]:
        """The kinds of all updates of a session."""
        return [update["sessionUpdate"] for session, update in self.updates if session == session_id]

    def calls(self) -> dict[str, dict[str, Any]]:
        """All tool calls as they are now."""
        found: dict[str, dict[str, Any]] = {}
        for _, update in self.updates:
            if update["sessionUpdate"] in ("tool_call", "tool_call_update"):
                found.setdefault(update["toolCallId"], {}).update(update)
        return found

    async def call(self, method: str, **params: Any) -> Any:
        """Call a method to its end."""
        return await self.begin(method, **params)

    def begin(self, method: str, **params: Any) -> "asyncio.Future[Any]":
        """Call a method."""
        name = f"client-{len(self.traffic)}"  # the agent's requests have numbers
        future = self._waiting[name] = asyncio.get_running_loop().create_future()
        self._send({"jsonrpc": "2.0", "id": name, "method": method, "params": params})
        return asyncio.ensure_future(asyncio.wait_for(future, LIMIT_SECONDS))

    def notify(self, method: str, **params: Any) -> None:
        """Send a notification."""
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def prompt(self, session_id: str, text: str) -> str:
        """Send a text; return why the turn ended."""
        answer = await self.call("session/prompt", sessionId=session_id, prompt=[{"type": "text", "text": text}])
        return str(answer["stopReason"])

    async def start(self, name: str = "test", **capabilities: Any) -> dict[str, Any]:
        """Initialize."""
        info = {"name": name, "version": "1"}
        given = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False, **capabilities}
        answer = await self.call("initialize", protocolVersion=1, clientCapabilities=given, clientInfo=info)
        return dict(answer)

    async def new(self, folder: Path, **more: Any) -> str:
        """Make a session."""
        return str((await self.call("session/new", cwd=str(folder), mcpServers=[], **more))["sessionId"])

    async def until(self, condition: Callable[[], Any]) -> Any:
        """Wait until something is so."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while not (found := condition()):
                self._changed.clear()
                await self._changed.wait()
        return found

    async def _allow(self, method: str, _: dict[str, Any]) -> Any:
        assert method == "session/request_permission", method
        return ONCE

    def _send(self, message: dict[str, Any]) -> None:
        self.traffic.append(message)
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            try:
                message = json.loads(line)
            except ValueError:
                self.other_lines.append(line)
                continue
            self.traffic.append(message)
            if "method" in message and "id" in message:
                self.asked.append(message["params"])
                task = asyncio.create_task(self._answer(message))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)
            elif message.get("method") == "session/update":
                self.updates.append((message["params"]["sessionId"], message["params"]["update"]))
            elif "method" not in message and (future := self._waiting.pop(message["id"], None)):
                if "error" in message:
                    future.set_exception(AcpError(message["error"]))
                else:
                    future.set_result(message.get("result"))
            self._changed.set()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionError("the agent is gone"))
        self._changed.set()

    async def _answer(self, message: dict[str, Any]) -> None:
        answer = await self.on_request(message["method"], message["params"])
        if answer is not None:
            self._send({"jsonrpc": "2.0", "id": message["id"], **(answer if "error" in answer else {"result": answer})})


def violations(traffic: list[dict[str, Any]]) -> list[str]:
    """What the traffic does that the protocol's schema does not allow."""
    schema = json.loads(gzip.decompress(SCHEMA.read_bytes()))
    names: dict[str, dict[str, str]] = {}
    for name, definition in schema["$defs"].items():
        if method := definition.get("x-method"):
            names.setdefault(method, {})["result" if name.endswith("Response") else "params"] = name
    validators: dict[str, Draft202012Validator] = {}

    def check(name: str, value: Any, what: str) -> list[str]:
        definition = {"$schema": schema["$schema"], "$defs": schema["$defs"], "$ref": f"#/$defs/{name}"}
        validator = validators.setdefault(name, Draft202012Validator(definition))
        errors = validator.iter_errors(value)
        return [f"{what}: {'/'.join(map(str, error.path))}: {error.message[:300]}" for error in errors]

    found: list[str] = []
    open_requests: dict[Any, list[str]] = {}
    for message in traffic:
        if (method := message.get("method")) is not None:
            if "id" in message:
                open_requests.setdefault(message["id"], []).append(method)
            known = names.get(method, {}).get("params")
            found += [f"no schema for {method}"] if known is None else check(known, message.get("params"), method)
        else:
            method = open_requests[message["id"]].pop(0)
            known = names.get(method, {}).get("result")
            if known is not None and "result" in message:
                found += check(known, message["result"], f"the answer to {method}")
    return found


def environment(folder: Path, **more: str) -> dict[str, str]:
    """The environment of the program: nobody's settings, keys and sessions."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FREEACT_")}
    kept = {name: value for name, value in kept.items() if not name.endswith("_API_KEY") and name != "HF_TOKEN"}
    return {**kept, "XDG_STATE_HOME": str(folder / "state"), "XDG_CONFIG_HOME": str(folder / "config"), **more}


async def wait_for_ever(folder: Path, *options: str) -> None:
    """Begin a question, a cell and a child in three sessions of one agent, and answer nothing any more.

    When all three are there, `folder/ready` has the id of the agent's process.
    """
    client = AcpClient(*options, cwd=folder, env=dict(os.environ))
    answer = client.on_request

    async def hold(method: str, params: dict[str, Any]) -> Any:
        return None if "never" in json.dumps(params) else await answer(method, params)

    client.on_request = hold
    async with client:
        await client.start()
        turns = []
        for text in ("ask never", "sleep", "child"):
            session = await client.new(folder)
            turns.append(client.begin("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}]))
        await client.until(lambda: json.dumps(client.updates).count("begun-1") >= 2 and "never" in json.dumps(client.asked))
        (folder / "ready").write_text(str(client.process.pid))
        await asyncio.gather(*turns)


if __name__ == "__main__":
    asyncio.run(wait_for_ever(Path(sys.argv[1]), *sys.argv[2:]))
