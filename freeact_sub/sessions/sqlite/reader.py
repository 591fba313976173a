"""`SqliteReader`: reads one session, open or not.

`mended` repairs a conversation with unreadable messages, so that a model accepts it.
"""

import functools
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from pydantic import TypeAdapter

from freeact_sub import events as ev
from freeact_sub.agent_names import agents_meant, candidates
from freeact_sub.config.budget import Usage
from freeact_sub.errors import SessionError, no_such_session
from freeact_sub.events.ending import receipts_of
from freeact_sub.sessions.sqlite.database import Bodies, connect_to_read
from freeact_sub.sessions.sqlite.writer import chain_of
from freeact_sub.sessions.store import (
    KnownAnswer,
    StoredAgent,
    StoredCall,
    StoredCell,
    StoredQuestion,
    StoredRun,
    cells_of,
)
from freeact_sub.text import counted

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

LOST: Final = "{} of the session cannot be read"
UNREADABLE: Final = (SessionError, ValueError, TypeError, LookupError, RecursionError)
"""The exceptions of reading a damaged record."""
T = TypeVar("T")
R = TypeVar("R")
_USAGE: Final = TypeAdapter(Usage)
LOST_MESSAGE: Final = "[A message of the conversation stood here, and cannot be read any more.]"
LOST_RESULT: Final = "[The result of this call cannot be read any more.]"


class SqliteReader:
    """A reader of one session, as a context manager. Each method sees the commits up to its call.

    An unreadable record, for example one whose file is gone, is left out and counted in `lost`.
    """

    def __init__(self, folder: Path, session_id: str, session_folder: Path) -> None:
        """Open a session.

        Args:
            folder: The folder of all sessions.
            session_id: The session.
            session_folder: The folder of this session.

        Raises:
            SessionError: It cannot be read.
        """
        connection = connect_to_read(folder)
        if connection is None:
            raise no_such_session(session_id)
        self.session_id = session_id
        self._connection = connection
        self._bodies = Bodies(session_folder)
        self.lost: Counter[str] = Counter()
        """The numbers of unreadable records so far, by kind."""

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def agents(self) -> list[StoredAgent]:
        """Return all agents, root first, in the order of their start."""
        rows = self._rows("SELECT * FROM agents WHERE session_id = ? ORDER BY rowid", self.session_id)
        return [*self._read("agent", rows, self._agent)]

    def agent(self, agent_id: str) -> StoredAgent:
        """Return an agent by its key, its id, or another name that a person gives it (`agents_meant`).

        Raises:
            SessionError: There is no such agent, or more than one.
        """
        agents = {agent.agent_id: agent for agent in self.agents()}
        labels = {agent.agent_id: agent.description for agent in agents.values()}
        keys = [agent.agent_id for agent in agents.values() if agent.key == agent_id]
        found = keys or agents_meant(agent_id, labels)
        if len(found) == 1:
            return agents[found[0]]
        if found:
            raise SessionError(f"{agent_id!r} matches several agents: {candidates(found, labels)}; give the id of one")
        known = candidates([*agents], labels) or "none"
        raise SessionError(f"the session {self.session_id} has no agent {agent_id!r}; it has: {known}")

    def runs(self, agent_id: str | None = None) -> list[StoredRun]:
        """Return the runs of an agent, or of all agents, in order of their start."""
        select = (
            "SELECT *, head IS (SELECT head FROM agents WHERE session_id = runs.session_id AND agent_id = runs.agent_id) "
            "AS at_head FROM runs"
        )
        return [*self._read("run", self._of_agent(select, agent_id, "began, rowid"), self._run)]

    def messages(self, agent_id: str) -> "list[ModelMessage]":
        """Return an agent's present conversation, without what undo and compaction removed, one for each of `chain`."""
        from pydantic_ai.messages import ModelMessagesTypeAdapter  # noqa: PLC0415  # the import takes half a second

        rows = self._of_agent("SELECT entry_id, message FROM entries", agent_id, "entry_id")
        texts, chain = {row["entry_id"]: row["message"] for row in rows}, self.chain(agent_id)
        try:
            lines = ",".join(self._bodies.text(texts[entry]) for entry in chain)
            return ModelMessagesTypeAdapter.validate_json(f"[{lines}]")
        except UNREADABLE:
            found: list[ModelMessage | None] = []
            for entry in chain:
                read = self._read("message", [entry], lambda entry: self._bodies.text(texts[entry]))
                each = self._read("message", read, lambda text: ModelMessagesTypeAdapter.validate_json(f"[{text}]")[0])
                found.append(next(each, None))
            return mended(found)

    def chain(self, agent_id: str) -> list[int]:
        """Return the entries of an agent's present conversation, one for each message."""
        found = self._rows("SELECT head FROM agents WHERE session_id = ? AND agent_id = ?", self.session_id, agent_id)
        head = found[0]["head"] if found else None
        try:
            chain = chain_of(self._connection, head)
            first = self._rows("SELECT parent FROM entries WHERE entry_id = ?", chain[0]) if chain else []
        except sqlite3.Error:
            chain, first = [], []
        if head is not None and (not chain or first[0]["parent"] is not None):
            self.lost["earlier messages"] = 1
        return chain

    def calls(self, agent_id: str | None = None) -> list[StoredCall]:
        """Return the calls of an agent, or of all agents, in order of their start."""
        return [*self._read("call", self._of_agent("SELECT * FROM calls", agent_id, "call_id"), self._call)]

    def events(self, agent_id: str | None = None, *, root_run: int | None = None) -> Iterator[ev.Event]:
        """Yield the events of an agent, or of all agents, in order. Args: root_run: only those of this run of the root.

        The session does not keep `ModelProgress`, nor the chunks of responses and thoughts, which follow whole. Where events
        cannot be read, a `Notice` says so.
        """
        header: dict[str, Any] = {}
        lost = 0
        of_run = "" if root_run is None else f" AND root_run = {root_run:d}"
        for row in self._of_agent("SELECT agent_id, event FROM events", agent_id, "event_id", of_run):
            event = next(self._read("event", [row], self._event), None)
            if lost and event is not None:
                yield ev.Notice(content=LOST.format(counted(lost, "event")), **header)
            lost = 0 if event is not None else lost + 1
            if event is not None:
                header = {name: getattr(event, name) for name in ("agent_id", "parent_id", "depth", "time", "seq")}
                yield event
        if lost:
            yield ev.Notice(content=LOST.format(counted(lost, "event")), **header)

    def last_event(self, agent_id: str, kind: str) -> ev.Event | None:
        """Return the last event of a class of an agent; None if there is none."""
        rows = self._rows(
            "SELECT event FROM events WHERE session_id = ? AND agent_id = ? AND type = ? ORDER BY event_id DESC LIMIT 1",
            self.session_id, agent_id, kind,
        )  # fmt: skip
        return next(self._read("event", rows, self._event), None)

    def cells(self, agent_id: str) -> list[StoredCell]:
        """Return the cells of an agent, in order of their start."""
        return cells_of(self.events(agent_id))

    def questions(self, agent_id: str | None = None) -> list[StoredQuestion]:
        """Return the approval requests, in order, with the answers."""
        asked: dict[str, StoredQuestion] = {}
        for event in self.events(agent_id):
            if isinstance(event, ev.ApprovalRequest):
                asked[event.request_id] = StoredQuestion(request=event, allowed=None)
            elif isinstance(event, ev.ApprovalDecided) and event.request_id in asked:
                request = asked[event.request_id].request
                asked[event.request_id] = StoredQuestion(request=request, allowed=event.allowed, reason=event.reason)
        return list(asked.values())

    def known_answers(self, *, since: int = 0) -> list[KnownAnswer]:
        """Return the answers of children and asks, in order. Args: since: only those of later runs of the root."""
        rows = self._rows(
            "SELECT answer_id, digest, agent_id, root_run, value FROM answers "
            "WHERE session_id = ? AND root_run > ? ORDER BY answer_id",
            self.session_id, since,
        )  # fmt: skip
        return [
            *self._read(
                "answer", rows, lambda row: record_of(KnownAnswer, row, value=json.loads(self._bodies.text(row["value"])))
            )
        ]

    def _run(self, row: sqlite3.Row) -> StoredRun:
        ending = self._json(row["ending"], dict)
        lists = ("files_read", "files_written", "files_removed", "warnings", "missing_files")
        return record_of(
            StoredRun,
            row,
            prompt=self._json(row["prompt"], str),
            budget=self._json(row["budget"], dict),
            output=self._json(row["output"], object),
            **{name: str(ending.get(name, "")) for name in ("error", "reused_from")},
            **{name: usage_of(ending.get(name)) for name in ("usage", "tree_usage")},
            **{name: texts(ending.get(name)) for name in lists},
            receipts=receipts_of(ending.get("receipts")),
            undone=bool(row["undone"]),
            unwritten=row["ended"] is None and not row["undone"] and bool(row["at_head"]),
        )

    def _call(self, row: sqlite3.Row) -> StoredCall:
        return record_of(
            StoredCall,
            row,
            from_code=bool(row["from_code"]),
            args=self._json(row["args"], dict),
            state="begun" if row["ended"] is None else "done",
            result=self._json(row["result"], str),
        )

    def _agent(self, row: sqlite3.Row) -> StoredAgent:
        choices = self._json(row["choices"], dict)
        return record_of(StoredAgent, row, in_background=bool(row["in_background"]), choices=choices)

    def _event(self, row: sqlite3.Row) -> ev.Event:
        return ev.AgentEvent.from_json(self._bodies.text(row["event"]))

    def _json(self, stored: str | None, kind: type[T]) -> T:
        """Return a value of a record, or an empty one of its type if it is unreadable."""
        if stored is None:
            return kind()
        read = self._read("value", [stored], lambda stored: json.loads(self._bodies.text(stored)))
        value = next(read, None)
        return value if isinstance(value, kind) else kind()

    def _read(self, kind: str, rows: Iterable[R], read: Callable[[R], T]) -> Iterator[T]:
        """Yield the records of rows. Args: kind: the word for an unreadable one."""
        for row in rows:
            try:
                yield read(row)
            except UNREADABLE:
                self.lost[kind] += 1

    def _of_agent(self, select: str, agent_id: str | None, order: str, more: str = "") -> list[sqlite3.Row]:
        where = "WHERE session_id = ?" + ("" if agent_id is None else " AND agent_id = ?") + more
        values = (self.session_id,) if agent_id is None else (self.session_id, agent_id)
        return self._rows(f"{select} {where} ORDER BY {order}", *values)

    def _rows(self, select: str, *values: Any) -> list[sqlite3.Row]:
        try:
            return self._connection.execute(select, values).fetchall()
        except sqlite3.Error as error:
            raise SessionError(f"the session {self.session_id} cannot be read: {error}") from error


def record_of(kind: Callable[..., T], row: sqlite3.Row, **converted: Any) -> T:
    """Return the record of a row. Args: converted: the fields that are not the column of their name."""
    values = {name: row[name] for name in kind.__annotations__ if name not in converted}
    record: T = _adapter(kind).validate_python({**values, **converted})
    return record


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def usage_of(value: Any) -> Usage:
    """Return a stored usage; zero if it is unreadable."""
    try:
        return Usage() if value is None else _USAGE.validate_python(value)
    except ValueError:
        return Usage()


def texts(value: Any) -> tuple[str, ...]:
    """Return the texts of a stored list."""
    return tuple(filter(lambda each: isinstance(each, str), value)) if isinstance(value, list) else ()


def mended(messages: "Sequence[ModelMessage | None]") -> "list[ModelMessage]":
    """Return the same number of messages, with a note for each None. Each call has a result, and each result a call."""
    from pydantic_ai.messages import ModelRequest, ModelResponse, ToolReturnPart, UserPromptPart  # noqa: PLC0415  # slow

    found: list[ModelMessage] = []
    calls: dict[str, str] = {}
    for message in messages:
        if isinstance(message, ModelResponse):
            calls = {part.tool_call_id: part.tool_name for part in message.tool_calls}
            found.append(message)
            continue
        parts = [] if message is None else [part for part in message.parts if _call_of(part) in (None, *calls)]
        answered = {_call_of(part) for part in parts}
        lost = [
            ToolReturnPart(name, LOST_RESULT, call, outcome="failed") for call, name in calls.items() if call not in answered
        ]
        note = [] if parts else [UserPromptPart(LOST_MESSAGE)]
        found.append(replace(ModelRequest(parts=[]) if message is None else message, parts=[*lost, *parts, *note]))
        calls = {}
    return found


def _call_of(part: object) -> str | None:
    """Return the call to which a part belongs as a result, if it is one."""
    from pydantic_ai.messages import RetryPromptPart, ToolReturnPart  # noqa: PLC0415  # slow

    if isinstance(part, ToolReturnPart) or (isinstance(part, RetryPromptPart) and part.tool_name is not None):
        return part.tool_call_id
    return None
