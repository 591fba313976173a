"""`McpConnection`: one connection to one MCP server, owned by its own task.

It uses `mcp.Client` of the MCP SDK and not pydantic-ai's `MCPToolset`: the SDK imports in a third of the time, has one
layer less between us and the server's process (`MCPToolset` keeps the process alive by default, behind two classes), and
its shutdown is shielded and bounded at every step. The price is its rule that a client is left by the task that entered
it. Hence the owner task: it enters, hands the client out, waits, and leaves. Requests come from any task.

The protocol has two eras, and only in the older one, which begins with `initialize`, can a server send a request of its own
in the middle of a call. So a server is met in the older one where it can ask there, and in the newer one (`server/discover`)
where it speaks no other, or has no session or no streams over which it could ask. The SDK would always take the newer one.
We never repeat a call of a tool: a failed one may have acted.

`transports.py` reaches the server, and imports the SDK. A connection is used once: when it fails or is lost, the next use
makes another.

`Pulse` is a server's word on the progress of a request. Each word of progress renews the request's time.

`Elicitations` are questions of a server to a person in the middle of a call: by a form, or by a page to be opened. The
protocol does not always tell the call that a server asks for. The newer one does, by the task that makes the call; else the
newest open call counts. A question ends with its call, and no call's time runs while one is open.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

import anyio

from freeact_sub.config.schema import McpServerConfig
from freeact_sub.errors import McpError
from freeact_sub.events import Answer
from freeact_sub.events.forms import CONFIRMATION, CONFIRMED, PersonQuestion, form_question
from freeact_sub.events.progress import CallProgress
from freeact_sub.mcp.offers import McpResult, McpTool, failure, hear_changes, list_tools, listen, read_result
from freeact_sub.mcp.transports import said, transport_for
from freeact_sub.spans import Stopwatch
from freeact_sub.system.closing import end_task
from freeact_sub.text import one_line, whole_line

if TYPE_CHECKING:
    import httpx2
    import mcp
    from mcp_types import CallToolResult, ElicitRequestFormParams, ElicitRequestURLParams, ElicitResult, ErrorData

Ask: TypeAlias = Callable[[PersonQuestion], Awaitable[Answer]]
"""Asks a person on behalf of a call's maker; an answer without a text is none."""

INVALID_PARAMS: Final = -32602
MESSAGE_CHARS: Final = 10_000
"""Maximum characters of a server's message."""
MAX_URL_CHARS: Final = 8_000


@dataclass(eq=False)
class AskingCall:
    """An open call, during which the server may ask."""

    ask: Ask
    unanswered: list[str] = field(default_factory=list)
    """Reasons of the questions without an answer."""
    tasks: set[asyncio.Task[Answer]] = field(default_factory=set)


_CALL: Final[ContextVar[AskingCall | None]] = ContextVar("freeact_sub_mcp_call", default=None)


class Elicitations:
    """The questions of one server on one connection."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._calls: list[AskingCall] = []
        self._clock = Stopwatch(lambda: None)

    @property
    def asked_seconds(self) -> float:
        """Seconds for which a person was asked so far."""
        return self._clock.paused_seconds

    @property
    def is_asking(self) -> bool:
        """Whether a question is open."""
        return self._clock.is_paused

    @contextmanager
    def during(self, ask: Ask | None) -> Iterator[AskingCall]:
        """Let the server ask inside; at the end its open questions are withdrawn. Args: ask: None: nobody is asked."""
        call = AskingCall(ask or _nobody)
        token = _CALL.set(call)
        self._calls.append(call)
        try:
            yield call
        finally:
            self._calls.remove(call)
            _CALL.reset(token)
            for task in call.tasks:
                task.cancel()

    async def elicit(
        self, context: Any, params: "ElicitRequestFormParams | ElicitRequestURLParams"
    ) -> "ElicitResult | ErrorData":
        """Ask the server's question. The MCP SDK calls this."""
        del context
        from mcp_types import ElicitResult, ErrorData  # noqa: PLC0415  # slow to import, see `transports.py`

        try:
            asked = question_of(self._server, params)
        except ValueError as error:
            return ErrorData(code=INVALID_PARAMS, message=str(error))
        call = _CALL.get() or (self._calls[-1] if self._calls else None)
        if call is None:
            return ElicitResult(action="cancel")
        answer = await self.ask(call, asked)
        if answer.text is None:
            return ElicitResult(action="cancel" if answer.nobody else "decline")
        values = dict(answer.values or {})
        if asked.fields == (CONFIRMATION,):
            agreed = values.get(CONFIRMED) is True
            content: dict[str, Any] | None = None if asked.url else {}
            return ElicitResult(action="accept", content=content) if agreed else ElicitResult(action="decline")
        return ElicitResult(action="accept", content=values)

    async def ask(self, call: AskingCall, asked: PersonQuestion) -> Answer:
        """Ask for a call; the question is withdrawn when the call ends."""
        task = asyncio.ensure_future(call.ask(asked))
        call.tasks.add(task)
        try:
            with self._clock.paused():
                await asyncio.wait({task})
        finally:
            task.cancel()
            call.tasks.discard(task)
        answer = Answer(reason="the call has ended", nobody=True) if task.cancelled() else task.result()
        if answer.text is None:
            call.unanswered.append(answer.reason or "the user declined")
        return answer

    async def opens_pages(self, data: Any) -> bool:
        """Ask a person to open the pages without which a server refuses a call; return whether all were.

        Args: data: the data of the server's error.
        """
        from mcp_types import ElicitationRequiredErrorData, ElicitResult  # noqa: PLC0415  # as above

        try:
            wanted = ElicitationRequiredErrorData.model_validate(data).elicitations
        except ValueError:
            return False
        for page in wanted:
            result = await self.elicit(None, page)
            if not isinstance(result, ElicitResult) or result.action != "accept":
                return False
        return bool(wanted)


def question_of(server: str, params: "ElicitRequestFormParams | ElicitRequestURLParams") -> PersonQuestion:
    """Return the question of a server.

    Raises:
        ValueError: It cannot be asked; the message says why.
    """
    message = params.message[:MESSAGE_CHARS].strip()
    if params.mode == "url":
        return PersonQuestion(
            prompt=message or "(no reason given)", server=server, url=checked_url(params.url), fields=(CONFIRMATION,)
        )
    return form_question(message, params.requested_schema, server)


def checked_url(url: str) -> str:
    """Return the address of a page that a person may open.

    Raises:
        ValueError: It is no web page, or it hides where it leads.
    """
    shown = one_line(url, 200)
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        host = None
    if host is None or parts.scheme not in ("http", "https"):
        raise ValueError(f"only a web page can be opened, not {shown!r}")
    if parts.username is not None or whole_line(url) != url or any(character.isspace() for character in url):
        raise ValueError(f"the address {shown!r} hides where it leads")
    if len(url) > MAX_URL_CHARS:
        raise ValueError(f"the address has more than {MAX_URL_CHARS:,} characters")
    return url


def unanswered_note(server: str, reasons: list[str]) -> str:
    """Return a note for a model on why a server got no answer from a person."""
    return f"[the MCP server {server!r} asked the user, and got no answer: {one_line('; '.join(reasons), 300)}]"


async def _nobody(_: PersonQuestion) -> Answer:
    return Answer(reason="nobody is there to answer", nobody=True)


logger = logging.getLogger(__name__)

T = TypeVar("T")

CLOSE_SECONDS: Final = 5.0
"""Time limit for closing a connection, in which the server may end, is terminated, and is killed at last."""
NEEDS_PAGES: Final = -32042
"""The error of a server that refuses a call until a person has opened pages."""
LOOK_SECONDS: Final = 0.2
"""Seconds between two looks at how much time a call has left, while a person is asked."""
MAX_TRIES: Final = 3
"""Maximum attempts at a call that is refused until pages are opened."""
OLDER: Final = "legacy"
NEWER_FIRST: Final = "auto"
"""Modes of `mcp.Client` that begin with `initialize`, or with `server/discover`."""
IN_NEWER: Final = (
    "[The tool may have acted, or not. If it has to ask the user something, it could not yet: another call of it, in the "
    "newer protocol, can.]"
)
"""A note for the model, after an error of a server of both eras: nobody else knows whether a second call does harm."""
PING_SECONDS: Final = 5.0
"""Seconds for the question whether a server still knows our session."""
TELL_SECONDS: Final = 0.2
"""Seconds between two reports of a request's progress that are passed on."""
MAX_TIMES: Final = 12
"""Multiple of its time limit that a request with reports of progress may take."""
MAX_CHARS: Final = 1_000
"""Maximum characters of a message about progress."""

OnProgress: TypeAlias = Callable[[CallProgress], None]


class Pulse:
    """The progress of one request."""

    def __init__(self, clock: Callable[[], float], seconds: float, on_progress: OnProgress | None = None) -> None:
        """Make it; its time begins with `begin`.

        Args:
            clock: The seconds that count.
            seconds: The time limit of the request, from its begin or from its last progress.
            on_progress: Called with each progress that is passed on. None: nobody hears it.
        """
        self._clock = clock
        self._seconds = seconds
        self._on_progress = on_progress
        self._began = self._last = clock()
        self._told = -math.inf

    def begin(self) -> None:
        """Start the time of the request."""
        self._began = self._last = self._clock()

    async def beat(self, progress: float, total: float | None, message: str | None) -> None:
        """Take a report of progress. The MCP SDK calls this."""
        self._last = now = self._clock()
        is_last = total is not None and progress >= total
        if self._on_progress is None or not math.isfinite(progress) or (now - self._told < TELL_SECONDS and not is_last):
            return
        self._told = now
        total = total if total is not None and math.isfinite(total) and total > 0 else None
        self._on_progress(CallProgress(progress=progress, total=total, message=(message or "")[:MAX_CHARS]))

    @property
    def left(self) -> float:
        """The seconds that the request has left."""
        return min(self._last + self._seconds, self._began + MAX_TIMES * self._seconds) - self._clock()

    @property
    def lateness(self) -> str:
        """The delay of a request, in words that follow its name."""
        if self._last == self._began:
            return f"did not respond within {self._seconds:g} s"
        if self._clock() - self._last >= self._seconds:
            return f"told of its progress, and then nothing for {self._seconds:g} s"
        return f"told of its progress, and has not ended within {MAX_TIMES} times its {self._seconds:g} s"


class McpConnection:
    """A connection that begins in the background as soon as it is made; the first request waits for it."""

    def __init__(
        self,
        server: str,
        config: McpServerConfig,
        *,
        log_file: Path,
        log_root: Path,
        on_change: "Callable[[McpConnection], None]",
        auth: "httpx2.Auth | None" = None,
        of: "McpConnection | None" = None,
    ) -> None:
        """Begin to connect.

        Args:
            server: The server's name.
            config: Its settings.
            log_file: As in `Transport`.
            log_root: As in `Transport`.
            on_change: Called with this connection when the server tells that its list of tools has changed.
            auth: As in `Transport`.
            of: The connection in the older era beside which this one, in the newer era, is used. None: it is used alone.
        """
        self._server = server
        self._on_change = on_change
        self._config = config
        self._transport = transport_for(server, config)(
            server=server, config=config, log_file=log_file, log_root=log_root, auth=auth
        )
        self._failure: BaseException | None = None
        self._closing = False
        self._may_be_cancelled = False
        self.has_called = False
        """Whether a tool was called: the server may keep state for its caller."""
        self._elicitations: Elicitations = Elicitations(server) if of is None else of._elicitations  # noqa: SLF001  # our own
        self._of = of
        self._newer: McpConnection | None = None
        self._only_newer: set[str] = set()
        """Requests, by their words in a sentence, that the server answers in the newer era alone."""
        self._open_newer = partial(
            McpConnection, server, config, log_file=log_file, log_root=log_root, on_change=lambda _: None, auth=auth, of=self
        )
        self._requests: set[asyncio.Future[Any]] = set()
        self._stop = asyncio.Event()
        self._scope = anyio.CancelScope()
        self._ready: asyncio.Future[mcp.Client] = asyncio.get_running_loop().create_future()
        self._ready.add_done_callback(lambda ready: ready.cancelled() or ready.exception())  # it may have no reader
        self._owner = asyncio.create_task(self._own(), name=f"MCP server {server}")

    @property
    def usable(self) -> bool:
        """Whether the connection is open, or will be unless the server fails."""
        return not (self._stop.is_set() or self._owner.done())

    @property
    def done(self) -> bool:
        """Whether the connection and its server have ended."""
        return self._owner.done()

    async def list_tools(self) -> tuple[tuple[McpTool, ...], tuple[str, ...]]:
        """Ask the server for its tools. Return them, and notes on unusable entries. Raises: as `ask`."""
        return await self.ask(list_tools, "its tools")

    async def ask(self, send: Callable[["mcp.Client"], Awaitable[T]], what: str, *, is_call: bool = False) -> T:
        """Ask the server for something.

        Args:
            send: Asks it.
            what: Words for the request, in a sentence.
            is_call: The time limit is that of calls; it is that of the start otherwise.

        Raises:
            McpError: The server cannot be reached, does not respond in time, or responds with an error.
        """
        setting = "call_timeout_seconds" if is_call else "init_timeout_seconds"
        what = f"MCP server {self._server!r}, asked for {what},"
        try:
            return await self._request(send, what=what, setting=setting, pulse=self._pulse(setting))
        except McpError:
            raise
        except Exception as error:  # the border to the SDK, whose errors for what it cannot read are of many types
            raise McpError(f"{what} responded with an error: {said(error)}", server=self._server) from error

    def asking(self, ask: Ask | None) -> AbstractContextManager[AskingCall]:
        """Let the server ask a person inside. Args: ask: as for `call`."""
        return self._elicitations.during(ask)

    async def call(
        self, tool: str, args: dict[str, Any], ask: Ask | None = None, on_progress: OnProgress | None = None
    ) -> McpResult:
        """Call a tool; one that fails, or that the server refuses to call, is a result.

        Args:
            tool: Its name.
            args: Its arguments.
            ask: Asks a person the server's questions during the call. None: nobody is asked.
            on_progress: Called when the server tells how far the call is.

        Raises:
            McpError: The server cannot be reached, or does not respond in time.
        """
        self.has_called = True
        with self.asking(ask) as call:
            result = await self._call(tool, args, on_progress)
        if not call.unanswered:
            return result
        return replace(result, text=f"{result.text}\n{unanswered_note(self._server, call.unanswered)}", sections=())

    async def _call(self, tool: str, args: dict[str, Any], on_progress: OnProgress | None, tries: int = 1) -> McpResult:
        what, setting = f"MCP tool {self._server}.{tool}", "call_timeout_seconds"
        pulse = self._pulse(setting, on_progress)

        async def send(client: "mcp.Client") -> "CallToolResult":
            return await client.call_tool(tool, args, progress_callback=pulse.beat)

        try:
            result = await self._request(send, what=what, setting=setting, pulse=pulse, may_act=True)
        except McpError:
            raise
        except Exception as error:  # noqa: BLE001  # the border to the SDK, as above
            import mcp  # noqa: PLC0415  # see `transports.py`

            if not isinstance(error, mcp.MCPError):  # the response does not follow the protocol
                return failure(f"the response of {what} cannot be used: {error}")
            may_repeat = error.code == NEEDS_PAGES and tries < MAX_TRIES
            if may_repeat and await self._elicitations.opens_pages(error.data):
                return await self._call(tool, args, on_progress, tries + 1)
            note = f"\n{IN_NEWER}" if what in self._only_newer else ""
            return failure(f"{said(error)}{note}")  # for example for its arguments
        return read_result(result)

    async def aclose(self) -> None:
        """Close the connection in any state, within `CLOSE_SECONDS`."""
        self._closing = True
        self._stop.set()
        if not self._ready.done() and self._may_be_cancelled:
            self._scope.cancel()
        newer = asyncio.gather(*(each.aclose() for each in (self._newer,) if each is not None))
        await asyncio.wait({self._owner, *self._requests}, timeout=CLOSE_SECONDS)
        if not self._owner.done():
            logger.error("MCP server %s did not end within %g s: abandoned", self._server, CLOSE_SECONDS)
            self._owner.cancel()
            await asyncio.wait({self._owner}, timeout=1)
        await newer

    async def _request(
        self,
        send: Callable[["mcp.Client"], Awaitable[T]],
        *,
        what: str,
        setting: str,
        pulse: Pulse,
        may_act: bool = False,
    ) -> T:
        """Make a request, in the newer era if the server could not answer it in the older one.

        Args:
            send: Makes it.
            what: Names it in a sentence.
            setting: The name of its time limit.
            pulse: Its time.
            may_act: It calls a tool. Then only its maker may repeat it in the newer era.
        """
        if what not in self._only_newer:
            try:
                return await self._request_here(send, what=what, setting=setting, pulse=pulse)
            except Exception as error:
                if not await self._may_answer_in_newer_era(error):
                    raise
                self._only_newer.add(what)
                if may_act:
                    raise
        if self._newer is None or not self._newer.usable:
            self._newer = self._open_newer()
        try:
            return await self._newer._request_here(send, what=what, setting=setting, pulse=pulse)  # noqa: SLF001  # our own
        except McpError:
            raise
        except Exception:
            self._only_newer.discard(what)  # it is the request that fails, not its era
            raise

    async def _may_answer_in_newer_era(self, error: Exception) -> bool:
        """Whether a server of both eras has failed in the older one in a way in which it might not in the newer.

        A tool, resource or prompt of the newer era may return its question (`input_required`), which the SDK's servers
        cannot send in the older one: they answer with an internal error. So may a tool that has acted, and then fails.
        """
        import mcp  # noqa: PLC0415  # see `transports.py`
        from mcp_types import INTERNAL_ERROR, INVALID_REQUEST  # noqa: PLC0415
        from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_MODERN_VERSION  # noqa: PLC0415

        if not isinstance(error, mcp.MCPError) or error.code != INTERNAL_ERROR or self._transport.was_refused():
            return False
        client = await asyncio.shield(self._ready)
        if client.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS or not self.usable:
            return False
        try:
            await client.session.send_discover(LATEST_MODERN_VERSION)
        except mcp.MCPError as answer:  # a stream of the older era, of a server that knows the newer one
            return answer.code == INVALID_REQUEST
        return True

    async def _request_here(
        self, send: Callable[["mcp.Client"], Awaitable[T]], *, what: str, setting: str, pulse: Pulse
    ) -> T:
        client = await asyncio.shield(self._ready)
        # A task of its own, since the SDK may take seconds to give a request up: it tells the server, and waits until
        # the server reads. Nor does the SDK's own timeout run while the server reads nothing.
        request = asyncio.ensure_future(send(client))
        self._requests.add(request)
        request.add_done_callback(self._forget)
        try:
            await self._wait(request, pulse)
        finally:
            request.cancel()
        if not request.done():
            hint = f"if it needs longer, raise its `{setting}`"
            raise McpError(f"{what} {pulse.lateness}; {hint}", server=self._server)
        try:
            return request.result()
        except Exception as error:
            if await self._is_forgotten(client):
                self._stop.set()
            if refusal := self._transport.refusal():
                self._stop.set()  # a sign-in may come before the next call
                raise self._error(refusal) from error
            if self.usable:
                raise
            raise await self._loss(error) from error

    async def _is_forgotten(self, client: "mcp.Client") -> bool:
        """Whether a server that has refused a request no longer knows our session: only a new connection helps then.

        Servers say it with any status, and some with none: a server that knows the session answers a ping.
        """
        if not self._transport.may_forget() or self._stop.is_set():
            return False
        import mcp  # noqa: PLC0415  # see `transports.py`
        from mcp_types import METHOD_NOT_FOUND  # noqa: PLC0415

        try:
            async with asyncio.timeout(PING_SECONDS):
                await client.session.send_ping()
        except mcp.MCPError as error:
            return error.code != METHOD_NOT_FOUND
        except Exception:  # noqa: BLE001  # the border to the SDK: a server that cannot be pinged is connected to anew
            return True
        return False

    def _pulse(self, setting: str, on_progress: OnProgress | None = None) -> Pulse:
        """Return the pulse of a request with this setting as its time limit; time to ask a person does not count."""
        loop, asked = asyncio.get_running_loop(), self._elicitations
        return Pulse(lambda: loop.time() - asked.asked_seconds, getattr(self._config, setting), on_progress)

    async def _wait(self, request: asyncio.Future[Any], pulse: Pulse) -> None:
        pulse.begin()
        while not request.done() and (left := pulse.left) > 0:
            await asyncio.wait({request}, timeout=max(left, LOOK_SECONDS) if self._elicitations.is_asking else left)

    def _forget(self, request: asyncio.Future[Any]) -> None:
        self._requests.discard(request)
        if not request.cancelled():
            request.exception()  # one that was given up has no reader

    async def _own(self) -> None:
        try:
            with self._scope:
                if not self._closing:
                    await self._serve()
        except Exception as error:  # noqa: BLE001  # the border to the SDK: whatever ends it becomes an `McpError`
            self._failure = _leaf(error)
        finally:
            if not self._ready.done():
                self._ready.set_exception(self._start_error())

    async def _serve(self) -> None:
        """Connect in the older era; in the newer one if the server refuses that, or beside one in the older."""
        if self._of is not None:
            async with self._transport.open(self._limit_start, self._stop.set) as streams:
                return await self._use(streams, NEWER_FIRST)
        try:
            async with self._transport.open(self._limit_start, self._stop.set) as streams:
                await self._use(streams, OLDER)
        except Exception as error:
            if self._ready.done() or self._stop.is_set() or not self._transport.refuses_era(_leaf(error)):
                raise
            async with self._transport.open(self._limit_start, self._stop.set) as streams:
                await self._use(streams, NEWER_FIRST)

    async def _use(self, streams: Any, mode: str) -> None:
        import mcp  # noqa: PLC0415  # see `transports.py`

        ask, hear = self._elicitations.elicit, partial(hear_changes, on_change=partial(self._on_change, self))
        ours = mcp.Client(nullcontext(streams), mode=mode, elicitation_callback=ask, message_handler=hear)
        async with ours as client:
            if mode == OLDER and not self._transport.can_be_asked():
                await _prefer_newer(client)
            self._scope.deadline = math.inf
            self._ready.set_result(client)
            listening = asyncio.create_task(listen(client, partial(self._on_change, self)), name="MCP changes")
            try:
                await self._stop.wait()
            finally:  # a transport that fails cancels us, before the requests that are under way hear of it
                self._stop.set()
                await end_task(listening)
            self._scope.deadline = anyio.current_time() + CLOSE_SECONDS

    def _limit_start(self) -> None:
        """Start the clock of the start. Not while a process is made: a cancel then would lose its pipes in asyncio."""
        self._may_be_cancelled = True
        self._scope.deadline = anyio.current_time() + self._config.init_timeout_seconds
        if self._closing:
            self._scope.cancel()

    def _start_error(self) -> McpError:
        if isinstance(self._failure, McpError):
            return self._failure
        if self._closing:
            return self._error("was closed before it was ready")
        late_seconds = self._config.init_timeout_seconds if self._scope.cancel_called else None
        return self._error(self._transport.start_failure(self._failure, late_seconds))

    async def _loss(self, error: Exception) -> McpError:
        await asyncio.wait({self._owner}, timeout=CLOSE_SECONDS)
        if self._closing:
            return self._error("was closed during the request")
        if isinstance(self._failure, McpError):
            return self._failure
        return self._error(self._transport.loss(self._failure or error))

    def _error(self, text: str) -> McpError:
        return McpError(f"MCP server {self._server!r} {text}", server=self._server)


async def _prefer_newer(client: "mcp.Client") -> None:
    """Go on in the newer era if the server speaks it."""
    import mcp  # noqa: PLC0415  # see `transports.py`

    try:
        await client.session.discover()
    except (mcp.MCPError, RuntimeError, ValueError) as error:  # it does not, or says so in a form of its own
        logger.debug("an MCP server stays in the older era: %r", error)


def _leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
