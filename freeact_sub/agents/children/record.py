"""`ChildRecord`: a child as plain values, which can be stored and, in any program, renewed from the child's session."""

import json
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Final, Literal, TypeAlias

from pydantic import TypeAdapter, ValidationError

from freeact_sub.agents.runs.results import AgentStatus, text_of
from freeact_sub.errors import SessionError
from freeact_sub.events.ending import Receipts
from freeact_sub.sessions import SessionStore, session_store
from freeact_sub.text import wrong_fields

RecordedStatus: TypeAlias = AgentStatus | Literal["interrupted"]
"""That of its run; `interrupted`: its program has ended before it."""
LIVE: Final = ("idle", "queued", "starting", "running", "waiting")


@dataclass(frozen=True, kw_only=True)
class ChildRecord:
    """A child at one moment."""

    agent_id: str
    key: str
    """Its durable name, which shows its ancestors."""
    session_id: str = ""
    """The session that has it. Empty: there is none, and the record cannot be renewed."""
    run: int = 1
    """The number of its run; a resumed child has several."""
    task: str
    """Its prompt."""
    description: str = ""
    status: RecordedStatus
    error: str = ""
    """Why it did not complete. Empty: it did, or it has not ended."""
    output: str = ""
    """Its answer as text, or, if it did not complete, its last text. Empty: it has not ended."""
    receipts: Receipts | None = None
    """What it has done, as the host saw it. None: it has not ended, or is Python code."""

    @property
    def has_ended(self) -> bool:
        """Whether its run is over."""
        return self.status not in LIVE

    def to_json(self) -> str:
        """The record as one line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(line: str) -> "ChildRecord":
        """The record that `to_json` has written.

        Raises:
            ValueError: The line is no record of a child; the message says what is wrong with it.
        """
        try:
            return _adapter().validate_python(json.loads(line))
        except ValidationError as error:
            raise ValueError(f"this is not a record of a child: {wrong_fields(error.errors())}") from error
        except json.JSONDecodeError as error:
            raise ValueError(f"this is not a record of a child: {error}") from error

    def renewed(self, store: SessionStore | None = None) -> "ChildRecord":
        """The child as its session has it now, whichever program reads it.

        Args:
            store: The store of its session. None: that of the default settings.

        Raises:
            SessionError: The child has no session, or the session cannot be read.
        """
        if not self.session_id:
            raise SessionError(f"{self.agent_id} was started without a session, so it is not stored on disk")
        store = store or session_store()
        is_over = not store.is_open(self.session_id)  # first: what is written before the lock is given back counts
        with store.reader(store.find(self.session_id).session_id) as reader:
            found = next((run for run in reader.runs(self.agent_id) if run.number == self.run), None)
        if found is not None and found.ended is not None:
            output = "" if found.output is None else text_of(found.output)
            status = _status().validate_python(found.status)
            return replace(
                self,
                status=status,
                error=found.error,
                output=output,
                receipts=found.receipts,
            )
        if not is_over or self.has_ended:
            return self
        return replace(self, status="interrupted", error="its program ended before it")


@cache
def _adapter() -> TypeAdapter[ChildRecord]:
    return TypeAdapter(ChildRecord)


@cache
def _status() -> TypeAdapter[RecordedStatus]:
    return TypeAdapter(RecordedStatus)
