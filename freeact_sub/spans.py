"""Spans of OpenTelemetry for work that pydantic-ai does not see, and a clock that can be paused (`Stopwatch`).

pydantic-ai has spans of its own for runs, requests and tools (docs/tracing.md). Without an OpenTelemetry SDK in the program,
spans are nothing and cost next to nothing. They carry ids, names and numbers, and no texts or code. Names of attributes are
those of the conventions for generative AI where these have one, and begin with `freeact_sub.` otherwise.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from opentelemetry.trace import Span

CONVERSATION: Final = "gen_ai.conversation.id"
Value: TypeAlias = str | bool | int | float


@contextmanager
def span(name: str, /, **attributes: Value) -> Iterator["Span"]:
    """Trace a piece of work inside the current span. An error is named by its class, and not by its message.

    Args:
        name: The name of the work.
        attributes: Each becomes `freeact_sub.NAME`, unless its name has a dot.
    """
    from opentelemetry import trace  # noqa: PLC0415  # a part of the program's start that most commands do not need

    tracer = trace.get_tracer("freeact_sub")
    made = tracer.start_as_current_span(
        name, attributes=_named(attributes), record_exception=False, set_status_on_exception=False
    )
    with made as current:
        try:
            yield current
        except BaseException as error:
            note(current, error=type(error).__name__)
            raise


def note(current: "Span", *, error: str = "", **attributes: Value) -> None:
    """Add to a span.

    Args:
        current: The span.
        error: The class of the error that the work has failed with, or the exit code of its program.
        attributes: As for `span`.
    """
    current.set_attributes(_named(attributes))
    if error:
        from opentelemetry.trace import StatusCode  # noqa: PLC0415  # see `span`

        current.set_attribute("error.type", error)
        current.set_status(StatusCode.ERROR)


def note_here(*, error: str = "", **attributes: Value) -> None:
    """Add to the current span, as `note` does."""
    from opentelemetry import trace  # noqa: PLC0415  # see `span`

    note(trace.get_current_span(), error=error, **attributes)


@contextmanager
def part_of(conversation: str) -> Iterator[None]:
    """Make the current span, and all spans inside, part of a conversation: the agents of a session share one."""
    from opentelemetry import baggage, context  # noqa: PLC0415  # see `span`

    note_here(**{CONVERSATION: conversation})
    token = context.attach(baggage.set_baggage(CONVERSATION, conversation))
    try:
        yield
    finally:
        context.detach(token)


@contextmanager
def span_beside(name: str, /, **attributes: Value) -> Iterator["Span"]:
    """Trace a piece of work inside the current span that gives way to other work, so that it is never the current span.

    Arguments are those of `span`.
    """
    from opentelemetry import trace  # noqa: PLC0415  # see `span`

    made = trace.get_tracer("freeact_sub").start_span(name, attributes=_named(attributes), record_exception=False)
    try:
        yield made
    except BaseException as error:
        note(made, error=type(error).__name__)
        raise
    finally:
        made.end()


def environment_of(made: "Span") -> dict[str, str]:
    """Return the variables by which a program that is traced itself goes on with a trace (W3C: `TRACEPARENT`)."""
    from opentelemetry import trace  # noqa: PLC0415  # see `span`
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    carried: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carried, trace.set_span_in_context(made))
    return {name.upper(): value for name, value in carried.items()}


@dataclass(frozen=True, kw_only=True)
class EarlierWork:
    """Work outside of any span, done before somebody needed its result."""

    name: str
    began: int
    """The time in nanoseconds, as is `ended`."""
    ended: int
    attributes: Mapping[str, Value]

    def record(self) -> None:
        """Trace it inside the current span, with its own times."""
        from opentelemetry import trace  # noqa: PLC0415  # see `span`

        tracer = trace.get_tracer("freeact_sub")
        tracer.start_span(self.name, attributes=_named(self.attributes), start_time=self.began).end(self.ended)


@contextmanager
def span_or_later(name: str, later: list[EarlierWork], **attributes: Value) -> Iterator[None]:
    """Trace a piece of work inside the current span; without one, note it for the user of its result.

    Args:
        name: The name of the work.
        later: Gets the work, if it lies in no span.
        attributes: As for `span`.
    """
    if is_in_span():
        with span(name, **attributes):
            yield
        return
    began = time.time_ns()
    yield
    later.append(EarlierWork(name=name, began=began, ended=time.time_ns(), attributes=attributes))


def is_in_span() -> bool:
    """Return whether there is a current span."""
    from opentelemetry import trace  # noqa: PLC0415  # see `span`

    return trace.get_current_span().get_span_context().is_valid


def _named(attributes: Mapping[str, Value]) -> dict[str, Value]:
    from opentelemetry import baggage  # noqa: PLC0415  # see `span`

    named = {key if "." in key else f"freeact_sub.{key}": value for key, value in attributes.items()}
    conversation = baggage.get_baggage(CONVERSATION)
    return {**({CONVERSATION: conversation} if isinstance(conversation, str) else {}), **named}


class Stopwatch:
    """A count of seconds since it was made, which stands still while paused."""

    def __init__(self, on_change: Callable[[], None], *, now: Callable[[], float] = time.monotonic) -> None:
        """Args: on_change: called when it stops and when it continues. now: tells the time in seconds."""
        self._on_change = on_change
        self._now = now
        self._began = now()
        self._pauses = 0
        self._paused_at = 0.0
        self._paused_seconds = 0.0

    @property
    def is_paused(self) -> bool:
        """Whether it stands still now."""
        return self._pauses > 0

    @property
    def seconds(self) -> float:
        """Seconds so far, without those for which it stood still."""
        return self._now() - self._began - self.paused_seconds

    @property
    def paused_seconds(self) -> float:
        """Seconds for which it has stood still so far."""
        return self._paused_seconds + (self._now() - self._paused_at if self._pauses else 0.0)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stops the time inside; pauses may overlap."""
        if not self._pauses:
            self._paused_at = self._now()
        self._pauses += 1
        self._on_change()
        try:
            yield
        finally:
            if self._pauses == 1:
                self._paused_seconds = self.paused_seconds
            self._pauses -= 1
            self._on_change()
