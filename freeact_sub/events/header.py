"""`AgentEvent`: the header of every event."""

import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, TypeAdapter

from freeact_sub.events.json_lines import content, json_line

if TYPE_CHECKING:
    from freeact_sub.events import Event


@dataclass(frozen=True, kw_only=True)
class AgentEvent:
    """The header of every event."""

    momentary: ClassVar[bool] = False  # True: it describes a moment, and no story keeps it

    agent_id: str = ""
    """The agent that sent the event, such as `agent-1f09a2c4`."""
    parent_id: str | None = None
    """The agent's parent; None for the root."""
    depth: int = 0
    """Distance from the root."""
    tool_call_id: str | None = None
    """The model's tool call to which the event belongs, if any."""
    seq: int = -1
    """Position in the root run's stream, counted from 0 without gaps."""
    time: float = 0.0
    """Seconds since the epoch."""

    def to_json(self) -> str:
        """Return the event as one line of JSON; `type` names its class."""
        return json_line({"type": type(self).__name__} | content(self))

    @staticmethod
    def from_json(line: str) -> "Event":
        """Read an event from the output of `to_json`; unknown fields are skipped.

        Raises:
            ValueError: The line is not an event.
        """
        event: Event = _adapter().validate_python(json.loads(line))
        return event


@cache
def _adapter() -> TypeAdapter[Any]:
    """Reads events of all classes; made when it is first needed, because that takes a while."""
    from freeact_sub.events import Event  # noqa: PLC0415  # it is made of subclasses of this one

    return TypeAdapter(Annotated[Event, Field(discriminator="type")])
