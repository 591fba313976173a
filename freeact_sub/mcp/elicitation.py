"""`Elicitations`: what an MCP server asks a person in the middle of a call: by a form, or by a page to be opened.

The protocol does not always say which call a server asks for. The newer one does, by the task that makes the call; else the
newest open call counts. A question ends with its call, and no call's time runs while one is open.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

from freeact_sub.events import Answer
from freeact_sub.events.forms import CONFIRMATION, CONFIRMED, PersonQuestion, form_question
from freeact_sub.spans import Stopwatch
from freeact_sub.text import one_line, whole_line

if TYPE_CHECKING:
    from mcp_types import ElicitRequestFormParams, ElicitRequestURLParams, ElicitResult, ErrorData

Ask: TypeAlias = Callable[[PersonQuestion], Awaitable[Answer]]
"""Asks a person on behalf of whoever makes a call; an answer without a text is none."""

INVALID_PARAMS: Final = -32602
MAX_CHARS: Final = 10_000
"""Of a server's message."""
MAX_URL_CHARS: Final = 8_000


@dataclass(eq=False)
class AskingCall:
    """An open call, during which the server may ask."""

    ask: Ask
    unanswered: list[str] = field(default_factory=list)
    """For each question without an answer, why."""
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
        """For how many seconds a person was asked so far."""
        return self._clock.paused_seconds

    @property
    def is_asking(self) -> bool:
        """Whether a question is open."""
        return self._clock.is_paused

    @contextmanager
    def during(self, ask: Ask | None) -> Iterator[AskingCall]:
        """The server may ask inside; at the end its open questions are withdrawn. Args: ask: None: nobody is asked."""
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
        """Asks what the server asks; the callback of the MCP SDK."""
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
        """Asks for a call; the question is withdrawn when the call ends."""
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
        """Asks a person to open the pages without which a server refuses a call; returns whether all were.

        Args: data: what the server's error carries.
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
    """The question of a server.

    Raises:
        ValueError: It cannot be asked; the message says why.
    """
    message = params.message[:MAX_CHARS].strip()
    if params.mode == "url":
        return PersonQuestion(
            prompt=message or "(no reason given)", server=server, url=checked_url(params.url), fields=(CONFIRMATION,)
        )
    return form_question(message, params.requested_schema, server)


def checked_url(url: str) -> str:
    """The address of a page that a person may open.

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
    """For a model: why a server got no answer from a person."""
    return f"[the MCP server {server!r} asked the user, and got no answer: {one_line('; '.join(reasons), 300)}]"


async def _nobody(_: PersonQuestion) -> Answer:
    return Answer(reason="nobody is there to answer", nobody=True)
