"""`span`: OpenTelemetry spans for work that pydantic-ai does not see; it has its own for runs, requests and tools.

Without an OpenTelemetry SDK in the program, spans are nothing and cost next to nothing. They carry ids and names, and
nothing of what was said or run.
"""

from collections.abc import Iterator
from contextlib import contextmanager


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
