"""`SqliteWriter`: the one thread that writes a session; callers queue values and continue.

It writes values in order, several in one transaction (`Backlog`): each transaction costs as much as several writes, and each
time the thread wakes up it takes the interpreter from the event loop. So it lets writes gather for a moment, unless a caller
waits for them. `commit` waits until all of them are on disk, while the event loop goes on. Values become JSON in the thread,
so they must not change after they are handed over.

A full or read-only disk, or a database that stays locked, ends the recording but not the run: the writer then drops
all values, because a record with a gap would be wrong, and calls `on_failure` once.
"""

import asyncio
import contextlib
import json
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from freeact_sub.errors import SessionError
from freeact_sub.events.json_lines import json_line
from freeact_sub.sessions.sqlite.database import Bodies, SessionLock, connect, reason_of
from freeact_sub.sessions.store import INTERRUPTED

GATHER_SECONDS: Final = 0.1
"""Seconds that a write may wait for others to share its transaction."""
COMMIT_SECONDS: Final = 10.0
"""Seconds that a commit may take before the writer gives up."""
AT_ONCE: Final = 500
"""Writes in one transaction, at most, since other programs wait for its end."""
TITLE_CHARS: Final = 200

logger = logging.getLogger(__name__)


class Backlog:
    """A queue that any thread puts into and one thread takes from.

    Waking the thread costs more than most writes. So an item without a waiting caller wakes it only if it sleeps without a
    time limit; after it has taken items, it looks once more by itself.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: list[Any] = []
        self._asleep = False
        """Whether the thread sleeps without a time limit: the next item must wake it."""
        self._wake: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """Signals to wake up. True: take at once."""

    def put(self, item: Any, *, now: bool = False) -> None:
        """Add an item. Args: now: write it without waiting for others."""
        with self._lock:
            self._items.append(item)
            if now or self._asleep:
                self._wake.put(now)
                self._asleep = False

    def take(self) -> list[Any]:
        """Wait for items, and return all of them in order."""
        self._sleep(GATHER_SECONDS)
        while True:
            with self._lock:
                taken, self._items = self._items, []
                self._asleep = not taken
                while not self._wake.empty():
                    self._wake.get_nowait()
            if taken:
                return taken
            if not self._sleep(None):
                self._sleep(GATHER_SECONDS)

    def _sleep(self, seconds: float | None) -> bool:
        """Sleep until the thread is woken or the time is over; return whether to take at once."""
        try:
            return self._wake.get(timeout=seconds)
        except queue.Empty:
            return False


@dataclass
class Target:
    """The connection and the session of a write."""

    connection: sqlite3.Connection
    session_id: str
    bodies: Bodies
    chains: dict[str, list[int]] = field(default_factory=dict)
    """The known entries of each agent's conversation."""
    moved: set[str] = field(default_factory=set)
    """The agents whose conversation has changed since the last commit."""
    begun: dict[tuple[str, int, int], int] = field(default_factory=dict)
    """The rows of calls that have not ended, by agent, run and number."""

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        """Run a statement."""
        return self.connection.execute(statement, values)

    def set_heads(self) -> None:
        """Write the ends of the conversations that have moved."""
        for agent_id in self.moved:
            head = self.head(agent_id)
            self.execute("UPDATE agents SET head = ? WHERE session_id = ? AND agent_id = ?", head, self.session_id, agent_id)
        self.moved.clear()

    def head(self, agent_id: str) -> int | None:
        """Return the last entry of an agent's conversation."""
        chain = self.chains.get(agent_id)
        return chain[-1] if chain else None

    def json(self, value: Any) -> str:
        """Return the database's value for a Python value."""
        return self.bodies.stored(json_line(value))


Write: TypeAlias = Callable[[Target], object]


@dataclass
class _WaitingCaller:
    """A caller that waits until all earlier writes are on disk."""

    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[bool | None]

    def wake(self, kept: bool) -> None:
        """Wake the caller, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            self.loop.call_soon_threadsafe(self.settle, kept)

    def settle(self, kept: bool | None) -> None:
        """Answer the caller, in the loop. Args: kept: None: it took too long."""
        if not self.done.done():
            self.done.set_result(kept)


_END: Final = object()


class SqliteWriter:
    """A writer of one session. Methods that write return at once and never raise."""

    def __init__(
        self,
        folder: Path,
        session_id: str,
        *,
        session_folder: Path,
        secrets: Sequence[str],
        on_failure: Callable[[str], None],
        lock: SessionLock | None = None,
    ) -> None:
        """Make a writer; nothing is opened yet.

        Args:
            folder: The folder of all sessions.
            session_id: The session; it is made with `session`.
            session_folder: The folder of this session.
            secrets: Values that are never written.
            on_failure: Called once, in the writer's thread, with the reason if writing has failed for good.
            lock: Given back when the writer is closed.
        """
        self._lock = lock
        self.session_id = session_id
        self._folder = folder
        self._bodies = Bodies(session_folder, secrets)
        self._on_failure = on_failure
        self._backlog = Backlog()
        self._failed = False
        self._thread: threading.Thread | None = None

    @property
    def keeps(self) -> bool:
        """Whether further writes will be stored."""
        return self._thread is not None and not self._failed

    def start(self) -> None:
        """Start writing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"writes session {self.session_id}", daemon=True)
            self._thread.start()

    def put(self, write: Write, *, now: bool = False) -> None:
        """Queue a custom write. Args: now: write it without waiting for others."""
        if self.keeps:
            self._backlog.put(write, now=now)

    async def commit(self) -> bool:
        """Wait until all writes are on disk; return False if they could not be stored."""
        if not self.keeps:
            return False
        loop = asyncio.get_running_loop()
        waiting = _WaitingCaller(loop, loop.create_future())
        self._backlog.put(waiting, now=True)
        too_long = loop.call_later(COMMIT_SECONDS, waiting.settle, None)
        try:
            kept = await waiting.done
        finally:
            too_long.cancel()
        if kept is None:
            self._fail(f"the disk does not answer within {COMMIT_SECONDS:.0f} s")
        return bool(kept)

    async def aclose(self) -> None:
        """Finish writing, and release the session. A disk that does not answer is not waited for."""
        try:
            if self._thread is not None:
                await self.commit()
                self._backlog.put(_END, now=True)
                thread, self._thread = self._thread, None
                if not self._failed:
                    await asyncio.to_thread(thread.join, COMMIT_SECONDS)
        finally:
            if self._lock is not None:
                self._lock.give_back()

    def session(self, *, workspace: Path, model: str, model_facts: str = "{}") -> None:
        """Record the session. An existing one continues, and its unfinished runs are marked as interrupted.

        Args:
            workspace: The folder that it works in.
            model: Its model from now on. Empty: the program passed an object.
            model_facts: JSON of the settings that give the model a meaning.
        """

        def write(to: Target) -> None:
            now = time.time()
            to.execute(
                "INSERT INTO sessions(session_id, workspace, created, updated, model, model_facts) VALUES(?, ?, ?, ?, ?, ?) "
                "ON CONFLICT DO UPDATE SET archived = 0, model = excluded.model, model_facts = excluded.model_facts",
                to.session_id, str(workspace), now, now, to.bodies.clean(model), to.bodies.stored(model_facts),
            )  # fmt: skip
            to.execute("UPDATE runs SET status = ? WHERE session_id = ? AND status = ''", INTERRUPTED, to.session_id)
            for agent_id, head in to.execute(
                "SELECT agent_id, head FROM agents WHERE session_id = ?", to.session_id
            ).fetchall():
                to.chains[agent_id] = chain_of(to.connection, head)

        self.put(write)

    def agent(self, **columns: Any) -> None:
        """Record an agent. Args: columns: by the names of the table `agents`."""

        def write(to: Target) -> None:
            plain = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in columns.items()}
            texts = {name: to.bodies.clean(value) for name, value in plain.items() if isinstance(value, str)}
            _insert(to, "agents", columns | texts, or_="IGNORE")

        self.put(write)

    def mode(self, agent_id: str, mode: str) -> None:
        """Record an agent's new mode."""
        update = "UPDATE agents SET mode = ? WHERE session_id = ? AND agent_id = ?"
        self.put(lambda to: to.execute(update, mode, to.session_id, agent_id))

    def run_begins(self, agent_id: str, number: int, root_run: int, *, prompt: str, budget: Any) -> None:
        """Record the start of a run; the root's first prompt becomes the session's title."""
        began = time.time()

        def write(to: Target) -> None:
            text, head = to.bodies.clean(prompt), to.head(agent_id)
            columns = {"agent_id": agent_id, "number": number, "root_run": root_run, "began": began, "head": head}
            _insert(to, "runs", {**columns, "prompt": to.json(prompt), "budget": to.json(budget)}, or_="REPLACE")
            to.execute(
                "UPDATE sessions SET updated = ?, title = CASE WHEN title = '' THEN ? ELSE title END WHERE session_id = ?",
                began, " ".join(text.split())[:TITLE_CHARS], to.session_id,
            )  # fmt: skip

        self.put(write)

    def run_ends(self, agent_id: str, number: int, *, status: str, ending: Any, output: Any) -> None:
        """Record the end of a run. Args: ending: the fields of `Ending`. output: the answer."""

        def write(to: Target) -> None:
            now = time.time()
            to.execute(
                "UPDATE runs SET ended = ?, status = ?, ending = ?, output = ? "
                "WHERE session_id = ? AND agent_id = ? AND number = ?",
                now, status, to.json(ending), to.json(output), to.session_id, agent_id, number,
            )  # fmt: skip
            to.execute("UPDATE sessions SET updated = ? WHERE session_id = ?", now, to.session_id)

        self.put(write, now=True)

    def files(self, agent_id: str, number: int, tree: str) -> None:
        """Record the state of the workspace's files before a run. Args: tree: empty: not stored."""
        update = "UPDATE runs SET files = ? WHERE session_id = ? AND agent_id = ? AND number = ?"
        self.put(lambda to: to.execute(update, tree, to.session_id, agent_id, number))

    def undone(self, agent_id: str, numbers: Sequence[int], *, undone: bool) -> None:
        """Record that runs of an agent were undone or redone."""
        update = "UPDATE runs SET undone = ? WHERE session_id = ? AND agent_id = ? AND number = ?"

        def write(to: Target) -> None:
            for number in numbers:
                to.execute(update, int(undone), to.session_id, agent_id, number)

        self.put(write)

    def messages(self, agent_id: str, keep: int, new: Sequence[Any]) -> None:
        """Record an agent's conversation.

        Args:
            agent_id: The agent.
            keep: The number of messages at its start that are the same as before.
            new: The messages after them, of pydantic-ai.
        """

        def write(to: Target) -> None:
            chain = to.chains[agent_id] = to.chains.get(agent_id, [])[:keep]
            for message in new:
                columns = {"agent_id": agent_id, "parent": chain[-1] if chain else None}
                chain.append(
                    _insert(to, "entries", {**columns, "message": to.bodies.stored(_message_json(message, first=not chain))})
                )
            to.moved.add(agent_id)

        self.put(write)

    def call_begins(self, agent_id: str, run: int, number: int, **columns: Any) -> None:
        """Record the start of a call. Args: number: of the agent in this run. columns: others of the table `calls`."""
        columns |= {"agent_id": agent_id, "run": run, "number": number, "began": time.time()}

        def write(to: Target) -> None:
            texts = {"name": to.bodies.clean(columns["name"]), "args": to.json(columns["args"])}
            to.begun[agent_id, run, number] = _insert(to, "calls", columns | texts)

        self.put(write)

    def call_ends(self, agent_id: str, run: int, number: int, *, outcome: str, result: str) -> None:
        """Record the end of a call, with the result that the model reads."""
        ended = time.time()

        def write(to: Target) -> None:
            row = to.begun.pop((agent_id, run, number), None)
            to.execute(
                "UPDATE calls SET ended = ?, outcome = ?, result = ? WHERE call_id = ?", ended, outcome, to.json(result), row
            )

        self.put(write)

    def answer(self, agent_id: str, root_run: int, digest: str, value: Any) -> None:
        """Record the answer of a child or an ask, for reuse after a crash."""
        columns = {"agent_id": agent_id, "root_run": root_run, "digest": digest}
        self.put(lambda to: _insert(to, "answers", {**columns, "value": to.json(value)}))

    def answer_used(self, answer_id: int, root_run: int) -> None:
        """Move an answer from before a crash to the present run of the root."""
        update = "UPDATE answers SET root_run = ? WHERE answer_id = ?"
        self.put(lambda to: to.execute(update, root_run, answer_id))

    def event(self, agent_id: str, root_run: int, kind: str, to_json: Callable[[], str]) -> None:
        """Record an event. Args: kind: its class. to_json: makes its line."""
        columns = {"agent_id": agent_id, "root_run": root_run, "type": kind}
        self.put(lambda to: _insert(to, "events", {**columns, "event": to.bodies.stored(to_json())}))

    def _work(self) -> None:
        try:
            connection = connect(self._folder)
        except (sqlite3.Error, OSError, SessionError) as error:
            self._fail(reason_of(error, self._folder))
            connection = None
        target = None if connection is None else Target(connection, self.session_id, self._bodies)
        ended = False
        while not ended:
            taken = self._backlog.take()
            ended = taken[-1] is _END
            writes = [item for item in taken if callable(item)]
            for start in range(0, len(writes), AT_ONCE):
                if target is not None and not self._failed:
                    self._write(target, writes[start : start + AT_ONCE])
            for item in taken:
                if isinstance(item, _WaitingCaller):
                    item.wake(not self._failed)
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _write(self, target: Target, writes: Sequence[Write]) -> None:
        try:
            target.execute("BEGIN IMMEDIATE")
            for write in writes:
                self._one(target, write)
            target.set_heads()
            target.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            self._fail(reason_of(error, self._folder))
            with contextlib.suppress(sqlite3.Error):
                target.execute("ROLLBACK")

    def _one(self, target: Target, write: Write) -> None:
        try:
            write(target)
        except (sqlite3.Error, OSError):
            raise
        except Exception:
            # border: a value that cannot be JSON (a user's own tool may return anything) is left out, all else is kept
            logger.exception("a part of session %s cannot be kept", self.session_id)

    def _fail(self, reason: str) -> None:
        if not self._failed:
            self._failed = True
            self._on_failure(reason)


def chain_of(connection: sqlite3.Connection, head: int | None) -> list[int]:
    """Return the entries of a conversation, the first one first."""
    found = connection.execute(
        "WITH RECURSIVE chain(entry_id, parent) AS (SELECT entry_id, parent FROM entries WHERE entry_id = ? UNION "
        "SELECT entries.entry_id, entries.parent FROM entries JOIN chain ON entries.entry_id = chain.parent) "
        "SELECT entry_id FROM chain",
        (head,),
    )
    return [row[0] for row in found][::-1]


def _message_json(message: Any, *, first: bool) -> str:
    """Return a message as JSON. Half a character, as the names of files may have it, becomes a question mark.

    The instructions, which pydantic-ai puts anew into each request, are kept with the first one alone.
    """
    from pydantic_ai.messages import ModelMessagesTypeAdapter  # noqa: PLC0415  # whoever has messages has imported it

    left_out = None if first else {0: {"instructions"}}
    try:
        return ModelMessagesTypeAdapter.dump_json([message], exclude=left_out, fallback=str).decode()[1:-1]
    except ValueError:
        plain = ModelMessagesTypeAdapter.dump_python([message], exclude=left_out, mode="json", fallback=str)[0]
        return json.dumps(plain, ensure_ascii=False).encode("utf-8", "replace").decode("utf-8")


def _insert(to: Target, table: str, columns: dict[str, Any], *, or_: str = "ABORT") -> int:
    columns = {"session_id": to.session_id, **columns}
    marks = ", ".join("?" * len(columns))
    statement = f"INSERT OR {or_} INTO {table}({', '.join(columns)}) VALUES({marks})"  # names of ours
    return to.execute(statement, *columns.values()).lastrowid or 0
