"""The MCP server as a whole, on standard streams or over HTTP, and its tools (`KernelTools`, `AgentTools`).

The docstring of a tool describes it to the client.
"""

import asyncio
import difflib
import hmac
import os
import secrets
import select
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, nullcontext, suppress
from typing import Annotated, Any, Final, NoReturn, TypeAlias

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.request_state import RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import Field, ValidationError
from starlette.datastructures import Headers
from starlette.responses import Response

from freeact_sub import __version__
from freeact_sub.agents import KernelNode
from freeact_sub.config.schema import Config, token_folder
from freeact_sub.errors import ConfigError, FreeactError, InvalidRequestError
from freeact_sub.mcp_server.pending import PendingCall, PendingCalls, Returned, WithLeaving, answer_by_values
from freeact_sub.mcp_server.reports import (
    BranchReport,
    CellReport,
    ChangesReport,
    CopyReport,
    DoneReport,
    Resources,
    RunReport,
    StatusReport,
    VariablesReport,
    cell_result,
    changes_result,
    output_address,
    plain_result,
    run_report,
    run_result,
    status_report,
)
from freeact_sub.mcp_server.served import ClientCell, LiveRun, ServedAgent, ServedAgents
from freeact_sub.models import require_model
from freeact_sub.system.safe_files import put_file, read_file
from freeact_sub.text import one_line, wrong_fields

Call: TypeAlias = Context[Any, Any]
KernelId: TypeAlias = Annotated[str, Field(description="A kernel: a branch's id, or a session's, which is its own kernel's")]
BranchId: TypeAlias = Annotated[str, Field(description="The id of a branch")]
READS: Final = ToolAnnotations(read_only_hint=True, open_world_hint=False)
MAKES: Final = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
CHANGES: Final = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)
MOST_WAIT_SECONDS: Final = 50.0
"""Maximum seconds of a wait: many clients give a call 60 s."""
Prompt: TypeAlias = Annotated[str, Field(description="What to do, with all that the agent needs to know")]
Session: TypeAlias = Annotated[str, Field(description="The session")]
Continued: TypeAlias = Annotated[
    str, Field(description="Continues this session, with conversation and variables. Empty: a new one")
]
LOOPBACK: Final = "127.0.0.1"
FILE_OF_OWN: Final = "of-mcp-server"
CLOSE_SECONDS: Final = 3.0
"""Seconds for closing everything once the client has gone; then the process ends, and its guards end the rest."""
INSTRUCTIONS: Final = """\
Live Python kernels in one workspace, behind a wall, and agents that work with them.
- `execute` runs code; name the kernel_id that it returns to keep the variables.
- `branch` copies a kernel with its variables and files. Try something in the copy, look at `diff`, then `promote` its \
files, `adopt` its variables, or `close` it.
- `run` has an agent do a whole task."""


class KernelTools:
    """Tools for kernels: any other agent gets Python behind a wall, which can be copied, compared and thrown away."""

    def __init__(self, served: ServedAgents, pending: PendingCalls) -> None:
        self._served = served
        self._pending = pending

    def add_to(self, server: MCPServer[Any]) -> None:
        """Add the tools to a server."""
        server.add_tool(self.execute, annotations=CHANGES)
        server.add_tool(self.branch, annotations=MAKES)
        server.add_tool(self.diff, annotations=READS)
        server.add_tool(self.promote, annotations=CHANGES)
        server.add_tool(self.adopt, annotations=CHANGES)
        server.add_tool(self.variables, annotations=READS)
        server.add_tool(self.snapshot, annotations=MAKES)
        server.add_tool(self.close, annotations=CHANGES)

    async def execute(
        self,
        code: Annotated[str, Field(description="Python, as a cell: the last value is shown, `!cmd` runs a command")],
        ctx: Call,
        kernel_id: Annotated[str, Field(description="As `execute` or `branch` returned it. Empty: a new kernel")] = "",
    ) -> Annotated[CallToolResult, CellReport] | InputRequiredResult:
        """Run Python in a live kernel in the workspace and return what it printed and displayed.

        Variables stay from call to call. The kernel is behind a wall: it writes in the workspace only, and has a network
        only if the person allows it. Use `branch` before you try something that may go wrong.
        """

        async def run(served: ServedAgent, node: KernelNode | None) -> CallToolResult:
            output = await (served.agent.execute(code) if node is None else node.execute_asked(code))
            whole = output_address(served.session_id, output.output_file)
            return cell_result(served.session_id if node is None else node.node_id, output, whole)

        return await self._in_kernel(ctx, kernel_id, run, is_cell=True)

    async def branch(
        self,
        ctx: Call,
        kernel_id: KernelId,
        description: Annotated[str, Field(description="A short label")] = "",
        own_files: Annotated[
            bool, Field(description="Give it its own copy of the workspace, for `diff` and `promote`")
        ] = True,
    ) -> Annotated[CallToolResult, BranchReport] | InputRequiredResult:
        """Copy a live kernel, with all its variables, in a fraction of a second.

        Try something in the copy, compare, `promote` its files or `adopt` its variables, and `close` it.
        """

        async def copy(served: ServedAgent, node: KernelNode | None) -> CallToolResult:
            new = await (node or served.agent).branch(description, own_files=own_files)
            served.nodes[new.node_id] = new
            report = BranchReport(kernel_id=new.node_id, session_id=served.session_id, description=description)
            return plain_result(report)

        return await self._in_kernel(ctx, kernel_id, copy)

    async def diff(self, kernel_id: BranchId) -> Annotated[CallToolResult, ChangesReport]:
        """List what a branch has changed in its own copy of the workspace."""
        served, node = await told(self._branch(kernel_id))
        async with served.in_use():
            return changes_result(await told(node.diff()))

    async def promote(
        self, ctx: Call, kernel_id: BranchId
    ) -> Annotated[CallToolResult, ChangesReport] | InputRequiredResult:
        """Take a branch's changed files over into the workspace: all, or none if the workspace has changed there too."""

        async def take(served: ServedAgent, node: KernelNode | None) -> CallToolResult:
            return changes_result(await served.agent.promote(_is_branch(node)))

        return await self._in_kernel(ctx, kernel_id, take)

    async def adopt(
        self,
        ctx: Call,
        kernel_id: BranchId,
        names: Annotated[tuple[str, ...], Field(description="The variables. Empty: the whole kernel replaces it")] = (),
    ) -> Annotated[CallToolResult, VariablesReport] | InputRequiredResult:
        """Take variables of a branch over into its session's own kernel."""

        async def take(served: ServedAgent, node: KernelNode | None) -> CallToolResult:
            await served.agent.adopt(_is_branch(node), names or None)
            return plain_result(VariablesReport(kernel_id=served.session_id, variables=await served.agent.variables()))

        return await self._in_kernel(ctx, kernel_id, take)

    async def variables(self, kernel_id: KernelId) -> Annotated[CallToolResult, VariablesReport]:
        """List the variables of a kernel with their types and sizes."""
        served, node = await told(self._served.kernel(kernel_id))
        async with served.in_use():
            found = await told((node or served.agent).variables())
            return plain_result(VariablesReport(kernel_id=kernel_id, variables=found))

    async def snapshot(
        self, session_id: Annotated[str, Field(description="The session")]
    ) -> Annotated[CallToolResult, CopyReport]:
        """Copy a session to disk as it is now, with its conversation and variables, and return the id of the copy.

        `execute` and `run` open the copy under that id, also after the server was restarted. They share the workspace.
        """
        served = await told(self._served.session(session_id))
        async with served.in_use():
            return plain_result(CopyReport(session_id=await told(served.agent.fork())))

    async def close(self, kernel_id: KernelId) -> Annotated[CallToolResult, DoneReport]:
        """Close a branch, which throws away what it has not handed over; or a session with all its branches.

        A closed session is opened again, with its variables, when a call names it.
        """
        await told(self._served.close(kernel_id))
        return plain_result(DoneReport(done=True))

    async def _branch(self, kernel_id: str) -> tuple[ServedAgent, KernelNode]:
        served, node = await self._served.kernel(kernel_id)
        return served, _is_branch(node)

    async def _in_kernel(
        self,
        ctx: Call,
        kernel_id: str,
        work: Callable[[ServedAgent, KernelNode | None], Awaitable[CallToolResult]],
        *,
        is_cell: bool = False,
    ) -> Returned:
        """Begin work in a kernel as a call that may ask."""

        async def begin() -> PendingCall:
            served, node = await self._served.kernel(kernel_id)
            stack = AsyncExitStack()
            live = await stack.enter_async_context(served.working())

            async def do() -> CallToolResult:
                async with stack:
                    with nullcontext() if cell is None else live.at_work(cell):
                        return await work(served, node)

            cell = ClientCell() if is_cell else None
            return PendingCall(served, live, asyncio.create_task(do(), name="works for a client"), cell)

        return await self._pending.call(ctx, begin)


def _is_branch(node: KernelNode | None) -> KernelNode:
    if node is None:
        raise InvalidRequestError("this is a session's own kernel: name a branch of it")
    return node


async def told(work: Awaitable[Any]) -> Any:
    """Await a result; the client reads the reason of a failure."""
    try:
        return await work
    except FreeactError as error:
        raise ToolError(str(error)) from error


class AgentTools:
    """Tools for agents: `run` does a task; others begin one and follow it, for clients whose calls must be short."""

    def __init__(self, served: ServedAgents, pending: PendingCalls) -> None:
        self._served = served
        self._pending = pending

    def add_to(self, server: MCPServer[Any]) -> None:
        """Add the tools to a server."""
        server.add_tool(self.run, annotations=CHANGES)
        server.add_tool(self.start, annotations=CHANGES)
        server.add_tool(self.status, annotations=READS)
        server.add_tool(self.answer, annotations=CHANGES)
        server.add_tool(self.cancel, annotations=CHANGES)

    async def run(
        self,
        prompt: Prompt,
        ctx: Context[Any, Any],
        session_id: Continued = "",
    ) -> Annotated[CallToolResult, RunReport] | InputRequiredResult:
        """Have an agent do a task in the workspace by running Python in its own kernel; it may start child agents.

        Returns its answer. `execute` with the same id reaches its variables. It can take minutes: progress is reported, and
        clients whose calls must be short use `start` and `status`.
        """

        async def begin() -> PendingCall:
            served, live = await self._begin(prompt, session_id)
            return PendingCall(served, live, asyncio.create_task(_end_of(served, live), name="waits for a served run"))

        return await self._pending.call(ctx, begin)

    async def start(self, prompt: Prompt, session_id: Continued = "") -> Annotated[CallToolResult, StatusReport]:
        """Begin what `run` does, and return at once. Follow it with `status`."""
        served, _ = await told(self._begin(prompt, session_id))
        return plain_result(status_report(served))

    async def status(
        self,
        session_id: Session,
        wait_seconds: Annotated[
            float, Field(ge=0, le=MOST_WAIT_SECONDS, description="Wait so long for an end or a question")
        ] = 0,
    ) -> Annotated[CallToolResult, StatusReport]:
        """Tell how far a session is: at work and with what, which questions it waits for, or how its last run ended."""
        served = await told(self._served.session(session_id))
        async with served.in_use():
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_seconds):
                    while (live := served.live) is not None and not live.asked:
                        await live.next_change.wait()
            return plain_result(status_report(served))

    async def answer(
        self,
        request_id: Annotated[str, Field(description="Of a question of `status`")],
        values: Annotated[dict[str, Any], Field(description="The answer, by the question's JSON schema `answer`")],
    ) -> Annotated[CallToolResult, DoneReport]:
        """Answer a question of a run that `start` began. Ask the person what to answer: it decides what the agent may do."""
        for served in self._served:
            live = served.live
            if live is not None and (asked := live.asked.get(request_id)) is not None:
                try:
                    answer_by_values(asked, values)
                except ValueError as error:
                    raise ToolError(str(error)) from error
                live.closed(request_id)
                return plain_result(DoneReport(done=True))
        return plain_result(DoneReport(done=False))

    async def cancel(self, session_id: Session) -> Annotated[CallToolResult, DoneReport]:
        """Cancel what a session is doing, with all its child agents. Its kernel and variables stay."""
        served = await told(self._served.session(session_id))
        live = served.live
        if live is None or not live.run.cancel():
            return plain_result(DoneReport(done=False))
        with suppress(FreeactError):
            await live.ended()
        return plain_result(DoneReport(done=True))

    async def _begin(self, prompt: str, session_id: str) -> tuple[ServedAgent, LiveRun]:
        if not self._served.has_model:
            require_model(self._served.config)
        served = await self._served.session(session_id)
        return served, await served.begin(prompt)


async def _end_of(served: ServedAgent, live: LiveRun) -> CallToolResult:
    """Wait for the end of a run, and cancel it if nobody waits any more."""
    try:
        result = await live.ended()
    except asyncio.CancelledError:
        live.run.cancel()
        raise
    return run_result(run_report(served.session_id, result))


class KernelServer(MCPServer[Any]):
    """A server that names the fault of a request in one sentence.

    The SDK passes over arguments that a tool does not have, so that a mistyped one does something else, unseen; of others it
    sends pydantic's text.
    """

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool. Raises: ToolError: Arguments are unknown, missing or wrong. Args: see the SDK."""
        tool = next((tool for tool in await self.list_tools() if tool.name == name), None)
        if tool is not None and (problem := _wrong_names(arguments, tool.input_schema)):
            raise ToolError(f"{name}: {problem}")
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                raise ToolError(f"{name}: {wrong_fields(error.__cause__.errors())}") from error
            raise

    async def get_prompt(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,  # noqa: ARG002  # the signature is the SDK's
        context: Context[Any, Any] | None = None,  # noqa: ARG002  # as above
    ) -> NoReturn:
        """Refuse: there are no prompts. Raises: MCPError. Args: see the SDK."""
        raise MCPError(INVALID_PARAMS, f"there is no prompt {name!r}: this server has none")


def _wrong_names(arguments: dict[str, Any], schema: dict[str, Any]) -> str:
    """Return the problem with the names of arguments."""
    known, needed = list(schema.get("properties", {})), schema.get("required", [])
    for name in arguments:
        if name not in known:
            there = [each for each in known if each not in arguments] or known
            near = difflib.get_close_matches(name, there, n=1, cutoff=0.4)
            meant = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(map(repr, known)) or 'none'}"
            return f"there is no argument {one_line(name)!r}: {meant}"
    missing = [name for name in needed if name not in arguments]
    return f"the argument {missing[0]!r} is missing" if missing else ""


def make_server(served: ServedAgents, pending: PendingCalls) -> MCPServer[Any]:
    """Make the server with all its tools."""
    server = KernelServer(
        "freeact-sub",
        title="freeact-sub",
        version=__version__,
        instructions=INSTRUCTIONS,
        log_level="WARNING",
        request_state_security=RequestStateSecurity.ephemeral(ttl=pending.away_seconds),
    )
    AgentTools(served, pending).add_to(server)
    KernelTools(served, pending).add_to(server)
    Resources(served.config).add_to(server)
    return server


async def serve_http(config: Config, port: int) -> None:
    """Serve any number of clients over HTTP on loopback, until Ctrl-C or SIGTERM. A client with the token acts for the user.

    Args:
        config: The settings.
        port: The port; 0: any free one.

    Raises:
        ConfigError: The port is taken.
    """
    try:
        listener = socket.create_server((LOOPBACK, port))
    except OSError as error:
        raise ConfigError(f"port {port} cannot be used: {error.strerror}") from error
    with listener:
        address, token = f"http://{LOOPBACK}:{listener.getsockname()[1]}/mcp", own_token()
        async with ServedAgents(config) as served:
            server = make_server(served, PendingCalls(config.approval_timeout_seconds))
            app = WithToken(WithLeaving(server.streamable_http_app(host=LOOPBACK)), token)
            settings = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
            sys.stdout.write(f"{address}\nAuthorization: Bearer {token}\n")
            sys.stdout.flush()
            await uvicorn.Server(settings).serve([listener])


async def serve_stdio(config: Config) -> NoReturn:
    """Serve one client on standard input and output, until it closes them or is gone, or a signal ends the server.

    Then the process ends at once: a client waits for that, and Python takes its time to take itself apart.
    """
    async with ServedAgents(config) as served:
        leaves = _Leaving(served)
        leaves.when_client_has_left()
        for end in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(end, leaves.soon)
        with suppress_broken_pipe():
            await make_server(served, PendingCalls(config.approval_timeout_seconds)).run_stdio_async()
    os._exit(0)


class _Leaving:
    """The end of the process, a bounded time after its client has left, even if work goes on."""

    def __init__(self, served: ServedAgents) -> None:
        self._served = served
        self._loop = asyncio.get_running_loop()
        self._closing: asyncio.Task[None] | None = None

    def when_client_has_left(self) -> None:
        """Note that standard input is at its end, even while nobody reads it."""
        waiting = threading.Thread(target=self._wait, args=(os.dup(0),), name="waits for the client to leave", daemon=True)
        waiting.start()

    def _wait(self, standard_input: int) -> None:
        poll = select.poll()
        poll.register(standard_input, 0)  # its end is told unasked
        poll.poll()
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._loop.call_later, CLOSE_SECONDS, os._exit, 0)

    def soon(self) -> None:
        """Close everything and end the process; reading from standard input cannot be interrupted."""
        self._loop.call_later(CLOSE_SECONDS, os._exit, 0)
        self._closing = self._loop.create_task(self._close(), name="closes the server")

    async def _close(self) -> None:
        await self._served.aclose()
        os._exit(0)


@contextmanager
def suppress_broken_pipe() -> Iterator[None]:
    """Ignore that the client is gone while it is written to."""
    try:
        yield
    except* BrokenPipeError:
        pass


def own_token() -> str:
    """Return the user's token; the first call makes it, so that clients keep their settings over restarts.

    Raises:
        ConfigError: It cannot be kept.
    """
    file = token_folder() / FILE_OF_OWN
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not file.exists():
            put_file(file, secrets.token_urlsafe().encode(), mode=0o600)
        return read_file(file).decode()
    except (OSError, ValueError) as error:
        raise ConfigError(f"the token of the server cannot be kept in {file}: {error}") from error


class WithToken:
    """An ASGI app that answers only requests with the token."""

    def __init__(self, app: Any, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request of ASGI."""
        if scope["type"] != "lifespan":
            given = Headers(scope=scope).get("authorization", "").encode("utf-8", errors="replace")
            if scope["type"] != "http" or not hmac.compare_digest(given, self._expected):
                refused = Response("the server's token is missing", 401, headers={"WWW-Authenticate": "Bearer"})
                await refused(scope, receive, send)
                return
        await self._app(scope, receive, send)
