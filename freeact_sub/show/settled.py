"""`SettledResponses`: a response that is asked for again, because its stream broke, is not shown twice."""

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from freeact_sub.events import Event, ModelProgress, Notice, Response, ResponseChunk, ThoughtsChunk, UsageUpdated

T = TypeVar("T")
PASSING: Final = (ModelProgress, Notice, ResponseChunk, ThoughtsChunk, UsageUpdated)
"""Events that may come between a broken response and the one that is asked for in its place."""


class SettledResponses(Generic[T]):
    """Holds each agent's last response until its next event shows that it stays."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[Response, T]] = {}

    def text(self, agent_id: str) -> str:
        """The response that is held; empty if there is none."""
        return self._held[agent_id][0].content if agent_id in self._held else ""

    def settled(self, event: Event, drawn: T) -> Iterator[tuple[Event, T]]:
        """The events that can be shown now, in order. Args: drawn: what belongs to the event."""
        if not isinstance(event, PASSING) and (held := self._held.pop(event.agent_id, None)) is not None:
            begins = held[0].content.strip()
            if not (isinstance(event, Response) and event.content.strip().startswith(begins)):
                yield held
        if isinstance(event, Response):
            self._held[event.agent_id] = event, drawn
        else:
            yield event, drawn
