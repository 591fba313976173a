"""Requests of code in a kernel: `HostRequests` hands them on, `CodeCalls` carries out the calls among them.

Code in the kernel wrote everything in a request, so none of it is trusted: the host decides by its own knowledge of the
agent.

Here stand the handlers of requests that may need a person: actions (`check`), commands outside the wall (`shell`),
tools, `input()`. `run_requests.py` has the ones that the agent's own run answers; features bring more (`Feature.requests`,
`KernelPart.requests`).

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
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_ai import RunContext
from pydantic_ai.exceptions import ApprovalRequired
from pydantic_ai.usage import RunUsage
from pydantic_core import to_jsonable_python

from freeact_sub.agents.call import acting_as, in_cell, make, permit
from freeact_sub.agents.feature import Asker, EndedCall, Handler, RequestedCall
from freeact_sub.agents.life import TreeAgent
from freeact_sub.agents.results import text_of
from freeact_sub.approvals import required
from freeact_sub.calls import Call, FileOperation, FileWrite, NetworkConnect, ShellCommand, ToolCall
from freeact_sub.cells import ExecuteReply, StreamText
from freeact_sub.errors import ApprovalDeniedError, FreeactError, InvalidRequestError
from freeact_sub.events import Decision
from freeact_sub.events.forms import PersonQuestion
from freeact_sub.kernels import WALLED, CellClock, CellOutputBuffer, Kernel, block_type, write_value
from freeact_sub.spans import environment_of, note, span, span_beside
from freeact_sub.system.closing import guarded_shell
from freeact_sub.text import wrong_fields
from freeact_sub.tools import head_and_tail

T = TypeVar("T")

END_SECONDS: Final = 10.0
"""Seconds to wait for cancelled calls."""
MAX_PROBLEM_CHARS: Final = 1000
MAX_PROMPT_CHARS: Final = 10_000
MAX_COMMAND_CHARS: Final = 100_000
"""Characters of the longest command; nobody could judge a longer one."""
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


class Params(BaseModel):
    """Parameters of a request, as code in a kernel has written them."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


class HostRequests:
    """Replies to the requests of code in one agent's kernel."""

    def __init__(self, agent: TreeAgent) -> None:
        self._agent = agent
        self._makers: list[Callable[[], Mapping[str, Handler]]] = []
        """Functions that make handlers, once the code asks something."""
        self._handlers: dict[str, Handler] = {}

    def add(self, make: Callable[[], Mapping[str, Handler]]) -> None:
        """Add handlers. Args: make: called when the code next asks something."""
        self._makers.append(make)

    def serve(self, agent: TreeAgent, make: Callable[[], Mapping[str, Handler]]) -> None:
        """Reply on behalf of another agent, which now owns the kernel, with these handlers alone."""
        self._agent, self._handlers, self._makers = agent, {}, [make]

    async def reply(self, method: str, params: Mapping[str, Any], clock: CellClock | None) -> Any:
        """Reply to a request of the code in the kernel."""
        while self._makers:
            self._handlers.update(self._makers.pop(0)())
        handler = self._handlers.get(method)
        if handler is None and self._agent.owner is not None:
            raise FreeactError(
                f"code in a node cannot call {method!r}, because no agent works in it: start a child with branch_of"
            )
        if handler is None:
            raise FreeactError(f"unknown request {method!r}: this agent has no feature that answers it")
        waits = nullcontext() if clock is None else in_cell(self._agent.agent_id)
        with acting_as(self._agent.principal), waits:
            return await handler(params, clock)


def new_call_id() -> str:
    """Return the id of a call from code."""
    return f"call-{secrets.token_hex(4)}"


class CodeCalls:
    """The calls of code in an agent's cells, carried out if the agent has the tool."""

    def __init__(self, agent: TreeAgent) -> None:
        self.agent = agent
        self._open: set[asyncio.Task[Any]] = set()
        """Tasks of open calls."""

    async def check(self, call: Call, clock: CellClock | None) -> Decision | None:
        """Ask the rules, then perhaps a person, whether a call may be made."""
        decision = await permit(call, self.asker(clock))
        if isinstance(call, ShellCommand):
            self.agent.run.features.did(self.agent, call)
        return decision

    def asker(self, clock: CellClock | None) -> Asker:
        """Return the code as an asker."""
        return Asker(agent=self.agent, by="code", tool_call_id=tool_call_id_of(clock), clock=clock)

    async def carry_out(
        self,
        name: str,
        call: Call,
        args: Mapping[str, Any],
        clock: CellClock | None,
        work: Callable[[], Awaitable[EndedCall[T]]],
        call_id: str = "",
    ) -> T:
        """Carry out a call as if the model had made it, and return the value for the code.

        Raises:
            FreeactError: The call is denied or fails.
        """
        limit = self.agent.shared.config.kernel.output_chars

        async def run(_: RequestedCall) -> EndedCall[T]:
            ended = await work()
            return replace(ended, text=head_and_tail(ended.text, limit))

        requested = RequestedCall(
            agent=self.agent,
            by="code",
            name=name,
            args=dict(args),
            call=call,
            tool_call_id=tool_call_id_of(clock),
            clock=clock,
            call_id=call_id or new_call_id(),
        )
        with self._open_call():
            return (await make(requested, run)).value

    @contextmanager
    def _open_call(self) -> Iterator[None]:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("there is no asyncio task")
        self._open.add(task)
        try:
            yield
        finally:
            self._open.discard(task)

    async def end(self) -> None:
        """Cancel open calls and wait until they have ended, because their run ends."""
        tasks = set(self._open)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=END_SECONDS)


def validated(validate: Callable[[Any], T], params: Any, what: str) -> T:
    """Validate the parameters of a request.

    Args:
        validate: A pydantic validation.
        params: The parameters.
        what: The beginning of the error's message.

    Raises:
        InvalidRequestError: Parameters are invalid; the message names them.
    """
    try:
        return validate(params)
    except ValidationError as error:
        raise InvalidRequestError(f"{what}: {wrong_fields(error.errors())[:MAX_PROBLEM_CHARS]}") from error


def paused(clock: CellClock | None) -> AbstractContextManager[None]:
    """Stop the clock of the requesting cell, if there is one, during work that has a limit of its own."""
    return nullcontext() if clock is None else clock.paused()


def tool_call_id_of(clock: CellClock | None) -> str | None:
    """Return the id of the requesting cell's call."""
    return clock.tool_call_id if clock is not None else None


class ActionRequests:
    """Handler of `check`; a return means that the action may happen, perhaps behind a wall (`reply_to_check`)."""

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
    """Return the reply to `check` for an allowed action. `WALLED`: behind the wall for programs that only read."""
    return WALLED if decision is not None and decision.walled else None


def action_of(params: Mapping[str, Any], workspace: Path) -> Call:
    """Return the action that a request describes.

    Raises:
        ApprovalDeniedError: The request describes none.
    """
    match params.get("kind"):
        case "shell":
            command = _text(params, "command", MAX_COMMAND_CHARS)
            cwd = _path(params, "cwd")
            where = "" if cwd == str(workspace) else cwd
            wall, library = (params.get(name) is True for name in ("wall", "library"))
            return ShellCommand(command=command, cwd=where, wall=wall, by_library=library)
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
    """Handler of `shell`."""

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
        """Run the command; yield its output as it comes, and finally its outcome."""
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
    """Handler of `own_tools` and `own_call`: functions of the program (`await agent.tools.NAME(...)`)."""

    def __init__(self, calls: CodeCalls, kernel: Callable[[], Awaitable[Kernel]]) -> None:
        """Make the handler. Args: kernel: the one whose code asks."""
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
        agent = self._calls.agent
        return RunContext(
            deps=agent.shared.own_tools.deps,
            model=agent.model,
            usage=RunUsage(),
            messages=[*agent.run.record.history],
            tool_call_id=tool_call_id_of(clock),
        )


class QuestionParams(Params):
    """Parameters of a question."""

    prompt: str = Field(max_length=MAX_PROMPT_CHARS)
    secret: bool = False


class InputRequests:
    """Handler of `question`, for readers of the keyboard (`input()`, `getpass`, a debugger)."""

    def __init__(self, agent: TreeAgent) -> None:
        self._agent = agent
        self.handlers = {"question": self._read_line}

    async def _read_line(self, params: Mapping[str, Any], clock: CellClock | None) -> str:
        asked = validated(QuestionParams.model_validate, params, "a question")
        question = PersonQuestion(prompt=asked.prompt, secret=asked.secret)
        answer = await self._agent.ask_person(question, tool_call_id=tool_call_id_of(clock), clock=clock)
        return str(required(answer).text)
