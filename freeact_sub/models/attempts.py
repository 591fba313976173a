"""The bill of requests that were cut off after they were sent: no response says what they cost.

A request is made deep below the agent that pays for it, may be made more than once, and may be refused, or wait for its turn
and never be sent. Only where it is sent is that known. So the agent's `Bill` is found by context, as the watchers of
`progress` are, and each attempt is noted on it from the moment it is sent.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from pydantic_ai.exceptions import ModelConnectionError, ModelHTTPError, ModelRequestTimeout
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse


@dataclass(kw_only=True)
class Attempt:
    """One sending of a request."""

    model: Model
    messages: list[ModelMessage]
    parameters: ModelRequestParameters
    stream: StreamedResponse | None = None
    """None: it has not begun to answer, or does not stream."""
    response: ModelResponse | None = None
    """The whole answer. None: it has not come."""

    @property
    def received(self) -> ModelResponse | None:
        """The answer as far as it has arrived."""
        return self.response if self.stream is None else self.stream.get()

    def is_billed(self, error: BaseException) -> bool:
        """Whether the provider bills an attempt that failed with this error; a refused or undelivered request is free."""
        received = self.received
        if received is not None and received.parts:
            return True
        match error:
            case ModelHTTPError():
                return False
            case ModelConnectionError(phase=phase):
                return phase not in ("pool", "connect", "write")
            case ModelRequestTimeout():
                return True
        return not isinstance(error, Exception)  # a cancel comes while the provider works


@dataclass(kw_only=True)
class Bill:
    """Books the cut-off requests of one agent. The agent makes one request at a time."""

    book: Callable[[Attempt], None]
    """Called with an attempt that was cut off."""
    check_again: Callable[[], None] = field(default=lambda: None)
    """Raises if a request that was cut off must not be made again."""
    attempt: Attempt | None = None
    """The latest attempt. None: it was refused, or is booked."""

    def sent(self, attempt: Attempt) -> None:
        """Notes a new attempt; books the one before, unless that one was answered with `suspended` and continues here."""
        earlier, self.attempt = self.attempt, None
        if earlier is not None and (earlier.response is None or earlier.response.state != "suspended"):
            self.book(earlier)
            self.check_again()
        self.attempt = attempt

    def failed(self, error: BaseException) -> None:
        """Forgets the latest attempt if the provider does not bill it."""
        if self.attempt is not None and not self.attempt.is_billed(error):
            self.attempt = None

    def close(self) -> None:
        """Books the latest attempt if no response was counted for it."""
        attempt, self.attempt = self.attempt, None
        if attempt is not None:
            self.book(attempt)


_bill: ContextVar[Bill | None] = ContextVar("freeact_sub_bill", default=None)


@contextmanager
def charge_to(bill: Bill) -> Iterator[None]:
    """Notes the requests made inside on this bill."""
    token = _bill.set(bill)
    try:
        yield
    finally:
        _bill.reset(token)


def current_bill() -> Bill:
    """The bill of the agent that makes the request; outside an agent, a bill that nobody reads."""
    return _bill.get() or Bill(book=lambda _: None)
