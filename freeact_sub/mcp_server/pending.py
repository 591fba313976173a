"""`PendingCalls`: calls of tools that may ask the client's user, in both eras of the protocol.

Up to 2025-11-25 the server asks during the call. From 2026-07-28 on the call returns its questions, and the client calls
again with the answers; meanwhile the work waits here, under a name that nobody can guess. A client that cannot ask is
not waited for: its questions are denied at once. The work of a client that is gone is cancelled.

A question of a run becomes a form of MCP's elicitation, which the person at the client fills in. Secrets are never
asked: the protocol forbids it, since a form may be seen by the client's model.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
)
from mcp_types.version import is_version_at_least

from freeact_sub import events as ev
from freeact_sub.errors import FreeactError, InvalidRequestError
from freeact_sub.events.forms import values_schema
from freeact_sub.mcp_server.served import Asked, ClientCell, LiveRun, ServedAgent
from freeact_sub.show.questions import refuse
from freeact_sub.show.wording import asked_text, asked_title, names_of_asker
from freeact_sub.text import visible

DECISION: Final = "decision"
REASON: Final = "reason"
ANSWER: Final = "answer"
NO_SECRETS: Final = "secrets are not asked through MCP clients: set it where the program can read it"
ASKS_BY_RESULT: Final = "2026-07-28"
"""The first version of the protocol in which a server does not ask during a call."""
AWAY_SECONDS: Final = 3600.0
"""Seconds that a call waits for a client that was told its questions, if `approval_timeout_seconds` says nothing."""
NEWS_SECONDS: Final = 0.2
"""Minimum seconds between two notifications of progress."""
CANNOT_ASK: Final = "this client cannot ask its user"
CANNOT_DECIDE: Final = f"{CANNOT_ASK}: start the server in the mode `auto` or `full`, or allow such calls by a rule"
GONE: Final = "the client is gone"
GONE_KEY: Final = "freeact_sub.gone"
Returned: TypeAlias = CallToolResult | InputRequiredResult


def message_of(asked: ev.ApprovalRequest | ev.QuestionRequest) -> str:
    """Return the whole question as a person reads it."""
    who = " > ".join(names_of_asker(asked))
    if isinstance(asked, ev.QuestionRequest):
        return f"{who} {asked_title(asked)}:\n{asked_text(asked)}"
    reason = f"\n\n({visible(asked.reason)})" if asked.reason else ""
    return f"{who} {asked.call.question}:\n\n{asked.call.text}{reason}"


def form_of(asked: ev.ApprovalRequest | ev.QuestionRequest) -> dict[str, Any]:
    """Return the JSON schema of the answer."""
    if isinstance(asked, ev.ApprovalRequest):
        decided = ["yes", *(["always"] if asked.suggested else []), "no"]
        always = f"; always: also allow {', '.join(asked.suggested)} in this session" if asked.suggested else ""
        fields = {
            DECISION: {"type": "string", "enum": decided, "title": "Allow it?", "description": f"yes: this once{always}"},
            REASON: {"type": "string", "title": "Reason", "description": "why not, for the agent"},
        }
        return {"type": "object", "properties": fields, "required": [DECISION]}
    if not asked.fields:
        return {"type": "object", "properties": {ANSWER: {"type": "string"}}, "required": [ANSWER]}
    fields = {field.name: _schema_of(field) for field in asked.fields}
    required = [field.name for field in asked.fields if field.required]
    return {"type": "object", "properties": fields, **({"required": required} if required else {})}


def answer_by_form(asked: ev.ApprovalRequest | ev.QuestionRequest, action: str, content: Mapping[str, Any] | None) -> None:
    """Answer a question as a client has answered its form. An unusable answer counts as a refusal, with that reason.

    Args:
        asked: The question.
        action: `accept`, `decline` or `cancel`.
        content: The values of the form.
    """
    values = content or {}
    if action != "accept":
        refuse(asked, "the person declined" if action == "decline" else "the person did not decide")
        return
    try:
        answer_by_values(asked, values)
    except ValueError as error:
        refuse(asked, f"the client's answer is none: {error}")


def answer_by_values(asked: ev.ApprovalRequest | ev.QuestionRequest, values: Mapping[str, Any]) -> None:
    """Answer a question by the values of its form. Raises: ValueError: They are no answer; the question stays open."""
    if isinstance(asked, ev.QuestionRequest):
        asked.answer(str(values.get(ANSWER, "")) if not asked.fields else values)
        return
    match values.get(DECISION):
        case "yes":
            asked.approve()
        case "always" if asked.suggested:
            asked.approve(remember="session")
        case "no":
            asked.deny(str(values.get(REASON) or ""))
        case other:
            raise ValueError(
                f"{DECISION} must be one of {', '.join(form_of(asked)['properties'][DECISION]['enum'])}: {other!r}"
            )


def _schema_of(field: ev.QuestionField) -> dict[str, Any]:
    schema = {"title": field.prompt or field.name, **values_schema(field)}
    names = {"enumNames": [*field.labels]} if field.labels else {}
    choices = {"enum": [*field.choices], **names}
    if field.kind == "choices":
        return {**schema, "items": {"type": "string", **choices}}
    if field.kind == "choice" and field.other:  # a form's choice allows nothing else
        return {**schema, "description": f"for example: {', '.join(field.labels or field.choices)}"}
    return {**schema, **choices} if field.kind == "choice" else schema


@dataclass(eq=False)
class PendingCall:
    """A call whose work goes on until its end, whichever request waits for it."""

    served: ServedAgent
    live: LiveRun
    work: asyncio.Task[CallToolResult]
    cell: ClientCell | None = None
    """The cell that the call runs, if any."""
    asking: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    """Tasks that ask the client now, by the id of the question."""
    told: float = 0.0

    def open_questions(self) -> list[Asked]:
        """Return the open questions that no other call puts to a client; a cell's questions belong to its own call."""
        live = self.live
        return [asked for key, asked in live.asked.items() if live.claimed.get(key, self) is self and self._is_mine(asked)]

    def _is_mine(self, asked: Asked) -> bool:
        call = self.live.call_of(asked)
        asking = next((cell for cell in self.live.cells if call in cell.calls), None)
        return asking is None or asking is self.cell  # None: that of a run, or of a child that an ended cell left at work

    def leave(self) -> None:
        """Stop asking."""
        for task in self.asking.values():
            task.cancel()
        self.asking.clear()
        self.live.claimed = {key: by for key, by in self.live.claimed.items() if by is not self}

    def refuse_all(self, why: str) -> None:
        """Close the questions that this call asks about."""
        for asked in [asked for key, asked in self.live.asked.items() if self.live.claimed.get(key) is self]:
            refuse(asked, why)
            self.live.closed(asked.request_id)

    def cancel(self) -> None:
        """End the work."""
        self.leave()
        self.work.cancel()


class PendingCalls:
    """Calls of tools that may ask the client's user."""

    def __init__(self, away_seconds: float | None = None) -> None:
        """Args: away_seconds: how long a call waits for the answers of its client."""
        self.away_seconds = away_seconds or AWAY_SECONDS
        self._away: dict[str, tuple[PendingCall, asyncio.TimerHandle]] = {}
        """Calls whose client was told the questions, by name."""

    async def call(self, ctx: Context[Any, Any], begin: Callable[[], Awaitable[PendingCall]]) -> Returned:
        """Begin a call, or go on with one whose client brings answers. Raises: ToolError: It failed."""
        try:
            pending = await begin() if ctx.request_state is None else self._back(ctx)
            async with pending.served.in_use():
                return await self._end_or_questions(ctx, pending)
        except FreeactError as error:
            raise ToolError(str(error)) from error

    def _back(self, ctx: Context[Any, Any]) -> PendingCall:
        """Return the call that the client continues, after taking the answers."""
        pending, timer = self._away.pop(ctx.request_state or "", (None, None))
        if pending is None or timer is None:
            raise InvalidRequestError("this call is over: its questions were not answered in time, or were answered before")
        timer.cancel()
        for key, given in (ctx.input_responses or {}).items():
            asked = pending.live.asked.get(key)
            if asked is not None and pending.live.claimed.get(key) is pending and isinstance(given, ElicitResult):
                answer_by_form(asked, given.action, given.content)
                pending.live.closed(key)
        return pending

    async def _end_or_questions(self, ctx: Context[Any, Any], pending: PendingCall) -> Returned:
        gone = gone_of(ctx)
        by_result = ctx.protocol_version is not None and is_version_at_least(ctx.protocol_version, ASKS_BY_RESULT)
        try:
            while not pending.work.done():
                change = pending.live.next_change
                open_now = self._open_questions(ctx, pending)
                if by_result and open_now:
                    return self._questions(pending, open_now)
                for asked in open_now:
                    if asked.request_id not in pending.asking:
                        task = asyncio.create_task(self._ask(ctx, pending, asked))
                        pending.asking[asked.request_id] = task
                await self._tell(ctx, pending)
                await _any_of(pending.work, change.wait(), gone.wait())
                if gone.is_set():
                    pending.refuse_all(GONE)
                    pending.cancel()
                    raise ToolError(GONE)
        except asyncio.CancelledError:
            pending.cancel()
            raise
        pending.leave()
        try:
            return pending.work.result()
        except asyncio.CancelledError:
            raise ToolError("this question has ended with its run") from None

    def _open_questions(self, ctx: Context[Any, Any], pending: PendingCall) -> list[Asked]:
        """Claim the open questions, and close them if this client can ask nobody."""
        capabilities = ctx.client_capabilities
        elicitation = None if capabilities is None else capabilities.elicitation
        can_ask = elicitation is not None and (elicitation.form is not None or elicitation.url is None)
        found = []
        for asked in pending.open_questions():
            why_not = _why_not(asked, can_ask=can_ask)
            if not why_not:
                pending.live.claimed[asked.request_id] = pending
                found.append(asked)
            else:
                refuse(asked, why_not)
                pending.live.closed(asked.request_id)
        for key in [key for key in pending.asking if key not in pending.live.asked]:
            pending.asking.pop(key).cancel()
        return found

    def _questions(self, pending: PendingCall, open_now: list[Asked]) -> InputRequiredResult:
        name = secrets.token_urlsafe()
        timer = asyncio.get_running_loop().call_later(self.away_seconds, self._forget, name)
        self._away[name] = pending, timer
        asked = {each.request_id: ElicitRequest(params=_form(each)) for each in open_now}
        return InputRequiredResult(request_state=name, input_requests={**asked})

    def _forget(self, name: str) -> None:
        if (found := self._away.pop(name, None)) is not None:
            found[0].cancel()

    async def _ask(self, ctx: Context[Any, Any], pending: PendingCall, asked: Asked) -> None:
        form = _form(asked)
        try:
            given = await ctx.session.elicit_form(form.message, form.requested_schema, ctx.request_context.request_id)
        except (MCPError, ValueError) as error:
            refuse(asked, f"the client did not ask its user: {error}")
        else:
            answer_by_form(asked, given.action, given.content)
        pending.live.closed(asked.request_id)

    async def _tell(self, ctx: Context[Any, Any], pending: PendingCall) -> None:
        """Tell the client how far the run is, at most five times a second."""
        now = asyncio.get_running_loop().time()
        if pending.live.news and now - pending.told >= NEWS_SECONDS:
            pending.told = now
            await ctx.report_progress(pending.live.events, None, pending.live.news)


def _why_not(asked: Asked, *, can_ask: bool) -> str:
    """Return the reason why a client is not asked; empty if it is."""
    if not can_ask:
        return CANNOT_ASK if isinstance(asked, ev.QuestionRequest) else CANNOT_DECIDE
    return NO_SECRETS if isinstance(asked, ev.QuestionRequest) and asked.secret else ""


def _form(asked: Asked) -> ElicitRequestFormParams:
    return ElicitRequestFormParams(message=message_of(asked), requested_schema=form_of(asked))


async def _any_of(work: asyncio.Task[Any], *others: Any) -> None:
    """Wait for the first one to end; a cancel leaves the work alone."""
    waiting = [asyncio.ensure_future(other) for other in others]
    try:
        await asyncio.wait({work, *waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for other in waiting:
            other.cancel()


class WithLeaving:
    """An ASGI app around another one: a request that loses its connection says so (`gone_of`)."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request of ASGI."""
        gone = asyncio.Event()

        async def hear() -> Any:
            message = await receive()
            if message["type"] == "http.disconnect":
                gone.set()
            return message

        await self._app({**scope, GONE_KEY: gone}, hear, send)


def gone_of(ctx: Context[Any, Any]) -> asyncio.Event:
    """Return the event of the client's departure; never set on standard streams, since the process ends with the client."""
    scope = getattr(ctx.request_context.request, "scope", {})
    gone = scope.get(GONE_KEY)
    return gone if isinstance(gone, asyncio.Event) else asyncio.Event()
