"""`span`: OpenTelemetry spans for work that pydantic-ai does not see; it has its own for runs, requests and tools.

Without an OpenTelemetry SDK in the program, spans are nothing and cost next to nothing. They carry ids and names, and
nothing of what was said or run.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@contextmanager
def span(name: str, **attributes: str | bool) -> Iterator[None]:
    """Traces a piece of work inside the current span.

    Args:
        name: The name of the work.
        attributes: Each becomes `freeact_sub.NAME`.
    """
    from opentelemetry import trace  # noqa: PLC0415  # a part of the program's start that most commands do not need

    named = {f"freeact_sub.{key}": value for key, value in attributes.items()}
    with trace.get_tracer("freeact_sub").start_as_current_span(name, attributes=named):
        yield


@dataclass(frozen=True, kw_only=True)
class EarlierWork:
    """Work that was done outside of any span, before somebody needed its result."""

    name: str
    began: int
    """The time in nanoseconds, as is `ended`."""
    ended: int
    attributes: dict[str, str | bool]

    def record(self) -> None:
        """Trace it inside the current span, with its own times."""
        from opentelemetry import trace  # noqa: PLC0415  # see `span`

        named = {f"freeact_sub.{key}": value for key, value in self.attributes.items()}
        tracer = trace.get_tracer("freeact_sub")
        tracer.start_span(self.name, attributes=named, start_time=self.began).end(self.ended)


@contextmanager
def span_or_later(name: str, later: list[EarlierWork], **attributes: str | bool) -> Iterator[None]:
    """Traces a piece of work inside the current span; where there is none, notes it for whoever uses its result.

    Args:
        name: The name of the work.
        later: Gets the work, if it lies in no span.
        attributes: See `span`.
    """
    if is_in_span():
        with span(name, **attributes):
            yield
        return
    began = time.time_ns()
    yield
    later.append(EarlierWork(name=name, began=began, ended=time.time_ns(), attributes=attributes))


def is_in_span() -> bool:
    """Whether there is a current span."""
    from opentelemetry import trace  # noqa: PLC0415  # see `span`

    return trace.get_current_span().get_span_context().is_valid
