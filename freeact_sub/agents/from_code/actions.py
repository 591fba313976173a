"""What code in a cell does that may need a person: actions (`check`), commands outside the wall (`shell`), tools, `input()`.

A kernel's hook asks `check` before code starts a program, changes a file or connects. An action that rules and mode allow
leaves no event; one that needs a person appears like any other question. What cannot be read as an action is denied.

`await agent.shell(command, reason=...)` runs one command outside the sandbox, if a person grants it. The host runs it in the
workspace, with the environment of kernels, which holds no key of the host. The process guard ends it and all its descendants
when the command ends, the cell is interrupted or the host ends.
"""

import asyncio
import codecs
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import Field
from pydantic_ai import RunContext
from pydantic_ai.exceptions import ApprovalRequired
from pydantic_ai.usage import RunUsage
from pydantic_core import to_jsonable_python

from freeact_sub.actions import FileOperation
from freeact_sub.agents.call import permit
from freeact_sub.agents.from_code.base import CodeCalls, Params, tool_call_id_of, validated
from freeact_sub.agents.requested_call import EndedCall
from freeact_sub.agents.runs.results import text_of
from freeact_sub.agents.tree_agent import TreeAgent
from freeact_sub.approvals import required
from freeact_sub.calls import Call, FileWrite, NetworkConnect, ShellCommand, ToolCall
from freeact_sub.cells import ExecuteReply, StreamText
from freeact_sub.errors import ApprovalDeniedError, FreeactError
from freeact_sub.events import Decision
from freeact_sub.events.forms import PersonQuestion
from freeact_sub.kernels import WALLED, CellClock, CellOutputBuffer, Kernel, block_type, write_value
from freeact_sub.spans import environment_of, note, span, span_beside
from freeact_sub.system.closing import guarded_shell

MAX_PROMPT_CHARS: Final = 10_000
MAX_COMMAND_CHARS: Final = 100_000
"""Nobody could judge a longer one."""
MAX_NAME_CHARS: Final = 8_000
MAX_ADDRESSES: Final = 1_000
"""Addresses that one host name may have."""
MAX_PURPOSE_CHARS: Final = 2_000
OUTPUT_CHARS: Final = 1_000_000
"""Characters of output that the cell shows live and returns as head and tail; a file has all of it."""
CHUNK_BYTES: Final = 65_536
OPERATIONS: Final[tuple[FileOperation, ...]] = get_args(FileOperation)

logger = logging.getLogger(__name__)
_numbers = itertools.count(1)


class ActionRequests:
    """Handles `check`; returning means that the action may happen, perhaps behind a wall (`reply_to_check`)."""

    def __init__(self, calls: CodeCalls) -> None:
        self._calls = calls
        self.handlers = {"check": self._check}

    async def _check(self, params: Mapping[str, Any], clock: CellClock | None) -> str | None:
        agent = self._calls.agent
        call = action_of(params, agent.shared.config.workspace)
        with span(f"action {call.kind}", call=call.kind, agent_id=agent.agent_id):
            decision = await self._calls.check(call, clock)
        logger.debug("%s may %s", agent.agent_id, call.summary)
        return reply_to_check(decision)


def reply_to_check(decision: Decision | None) -> str | None:
    """The reply to `check` for an action that may happen. `WALLED`: behind the wall for programs that only read."""
    return WALLED if decision is not None and decision.walled else None


def action_of(params: Mapping[str, Any], workspace: Path) -> Call:
    """Return the action that a request describes.

    Raises:
        ApprovalDeniedError: It describes none.
    """
    match params.get("kind"):
        case "shell":
            command = _text(params, "command", MAX_COMMAND_CHARS)
            cwd = _path(params, "cwd")
            where = "" if cwd == str(workspace) else cwd
            wall, posix, library = (params.get(name) is True for name in ("wall", "posix", "library"))
            return ShellCommand(command=command, cwd=where, wall=wall, posix=posix, by_library=library)
        case "write":
            path, named = _path(params, "path"), _path(params, "named")
            operation = next((known for known in OPERATIONS if known == params.get("operation")), None)
            if operation is None:
                raise _denied("operation")
            return FileWrite(path=path, operation=operation, named="" if named == path else named)
        case "connect":
            port = params.get("port")
            if type(port) is not int or not 0 <= port <= 65535:
                raise _denied("port")
            host, ip = _text(params, "host", MAX_NAME_CHARS), params.get("ip") and _text(params, "ip", MAX_NAME_CHARS)
            return NetworkConnect(host=host, port=port, ip="" if not ip or ip == host else ip, others=_others(params))
        case _:
            raise _denied("kind")


def _text(params: Mapping[str, Any], name: str, limit: int) -> str:
    value = params.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= limit:
        raise _denied(name)
    return value


def _others(params: Mapping[str, Any]) -> tuple[str, ...]:
    others = params.get("others", [])
    if not isinstance(others, list) or len(others) > MAX_ADDRESSES:
        raise _denied("others")
    return tuple(_text({"others": ip}, "others", MAX_NAME_CHARS) for ip in others)


def _path(params: Mapping[str, Any], name: str) -> str:
    path = _text(params, name, MAX_NAME_CHARS)
    if not path.startswith("/"):
        raise _denied(name)
    return path


def _denied(name: str) -> ApprovalDeniedError:
    return ApprovalDeniedError(f"what is to be done could not be read: its `{name}` is missing, wrong or too long")


class ShellRequests:
    """Handles `shell`."""

    def __init__(self, calls: CodeCalls, output_folder: Path) -> None:
        self._calls = calls
        self._output_folder = output_folder
        self.handlers = {"shell": self._shell}

    async def _shell(self, params: Mapping[str, Any], clock: CellClock | None) -> AsyncIterator[Any]:
        command, purpose = params.get("command"), params.get("reason")
        if not isinstance(command, str) or not isinstance(purpose, str):
            raise FreeactError("agent.shell needs a command and a reason, both as text")
        if "\0" in command or not 0 < len(command) <= MAX_COMMAND_CHARS:
            raise FreeactError(f"a command must have 1 to {MAX_COMMAND_CHARS:,} characters and no null character")
        call = ShellCommand(command=command, outside=True, purpose=purpose[:MAX_PURPOSE_CHARS])
        await self._calls.check(call, clock)
        return self._run(command)

    async def _run(self, command: str) -> AsyncIterator[Any]:
        """Run the command; yield its output as it comes, and finally how it ended."""
        config = self._calls.agent.shared.config
        environment = config.kernel.environment()
        file = self._output_folder / f"shell-{next(_numbers):04}.txt"
        buffer = CellOutputBuffer(model_chars=OUTPUT_CHARS, file=file, root=config.workspace)
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        shown, streams = 0, {"stdin": asyncio.subprocess.DEVNULL, "stderr": asyncio.subprocess.STDOUT}
        with span_beside("command") as traced:
            environment |= environment_of(traced)
            async with guarded_shell(command, config.workspace, environment, **streams) as process:
                if process.stdout is None:
                    raise FreeactError("the command has no output to read")
                try:
                    while data := await process.stdout.read(CHUNK_BYTES):
                        text = decoder.decode(data)
                        buffer.add(StreamText(name="stdout", text=text))
                        if text and shown < OUTPUT_CHARS:
                            yield text
                            shown += len(text)
                    exit_code = await process.wait()
                    note(traced, error=str(exit_code or ""), **{"process.exit.code": exit_code})
                finally:
                    buffer.end(ExecuteReply(status="ok"))
        if shown < buffer.total_chars:
            yield f"\n[… {buffer.total_chars - shown:,} more characters of output: {buffer.file} …]\n"
        yield {"exit_code": exit_code, "output": buffer.text}


class OwnToolRequests:
    """Answers `own_tools` and `own_call`: functions of the program (`await agent.tools.NAME(...)`)."""

    def __init__(self, calls: CodeCalls, kernel: Callable[[], Awaitable[Kernel]]) -> None:
        """Args: kernel: the one in which the code runs that asks."""
        self._calls = calls
        self._kernel = kernel
        self.handlers = {"own_tools": self._tools, "own_call": self._call}

    async def _tools(self, params: Mapping[str, Any], clock: CellClock | None) -> dict[str, Any]:
        agent = self._calls.agent
        if params.get("known"):  # they stay the same while the agent lives
            return {"version": params["known"]}
        tools = [
            {
                "name": tool.name,
                "description": tool.description,
                "parameters_json_schema": tool.parameters_json_schema,
            }
            for tool in await agent.shared.own_tools.definitions(self._context(clock))
            if agent.rights.has_tool(tool.name)
        ]
        return {"version": "only", "tools": tools}

    async def _call(self, params: Mapping[str, Any], clock: CellClock | None) -> Any:
        name, args = str(params.get("tool")), params.get("args")
        own = self._calls.agent.shared.own_tools
        prepared = await own.prepare(name, args if isinstance(args, Mapping) else {}, self._context(clock))
        shown = to_jsonable_python(prepared.args, fallback=str)
        call = ToolCall(tool_name=name, args=shown, requires_approval=prepared.needs_approval)

        async def work() -> EndedCall[Any]:
            with span("tool call", tool=name):
                try:
                    value = await prepared.run(approved=prepared.needs_approval)
                except ApprovalRequired:
                    await permit(replace(call, requires_approval=True), self._calls.asker(clock))
                    value = await prepared.run(approved=True)
            return EndedCall(value=value, text=text_of(value), outcome="success")

        value = await self._calls.carry_out(name, call, shown, clock, work)
        if block_type(type(value)):
            return {"file": await write_value(value, await self._kernel())}
        try:
            return {"value": to_jsonable_python(value)}
        except ValueError as error:
            raise FreeactError(f"the result of the tool {name} cannot be passed to code: {error}") from error

    def _context(self, clock: CellClock | None) -> RunContext[Any]:
        """What the functions get that take a `RunContext`."""
        agent = self._calls.agent
        return RunContext(
            deps=agent.shared.own_tools.deps,
            model=agent.model,
            usage=RunUsage(),
            messages=[*agent.run.record.history],
            tool_call_id=tool_call_id_of(clock),
        )


class QuestionParams(Params):
    """The parameters of a question."""

    prompt: str = Field(max_length=MAX_PROMPT_CHARS)
    secret: bool = False


class InputRequests:
    """Handles `question`, for what reads from the keyboard (`input()`, `getpass`, a debugger)."""

    def __init__(self, agent: TreeAgent) -> None:
        self._agent = agent
        self.handlers = {"question": self._read_line}

    async def _read_line(self, params: Mapping[str, Any], clock: CellClock | None) -> str:
        asked = validated(QuestionParams.model_validate, params, "a question")
        question = PersonQuestion(prompt=asked.prompt, secret=asked.secret)
        answer = await self._agent.ask_person(question, tool_call_id=tool_call_id_of(clock), clock=clock)
        return str(required(answer).text)
