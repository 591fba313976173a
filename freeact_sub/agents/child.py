"""One child: `ChildWork`, as its owner keeps it; `Child`, a program's handle on it; `ChildRecord`, what can be stored of it.

`report` says to the parent's model how a child ended: a status line, the reason of a failure, and the answer. A long answer
goes to a file in the child's output folder, and the parent reads its head, its tail and the path, so that the parent's
history does not grow with its children's answers.

Questions, answers, steering and ends are all delivered like steering: the model reads them before its next request. A call
that waits for a child returns its questions and its end instead. A message to an agent that has ended goes to its nearest
working ancestor, or to the root in its next run.
"""

import asyncio
import itertools
import json
import logging
import secrets
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from pydantic import TypeAdapter, ValidationError

from freeact_sub.agents.call import caller_in
from freeact_sub.agents.life import Tree, TreeAgent
from freeact_sub.agents.results import AgentStatus, RunResult, text_of
from freeact_sub.errors import FreeactError, SessionError
from freeact_sub.events import AgentMessage, MessageKind
from freeact_sub.events.ending import Receipts
from freeact_sub.sessions import SessionStore, session_store
from freeact_sub.system.safe_files import write_new
from freeact_sub.text import counted, one_line, shortened, wrong_fields
from freeact_sub.tools import ChildState

RecordedStatus: TypeAlias = AgentStatus | Literal["interrupted"]
"""The status of the run; `interrupted`: its program ended first."""
LIVE: Final = ("idle", "queued", "starting", "running", "waiting")
ANSWER_BYTES: Final = 6_000
"""Bytes of the longest answer that is shown whole; a longer one is shown as head and tail."""
HEAD_BYTES: Final = 4_000
TAIL_BYTES: Final = 1_500
ERROR_CHARS: Final = 1_000
FILES_SHOWN: Final = 8
PRINTED_CHARS: Final = 160
WARNINGS_SHOWN: Final = 2
MARKS: Final = {*';,[]"\n'}
"""Characters that separate the parts of the status line."""

logger = logging.getLogger(__name__)
StartedBy: TypeAlias = Literal["call", "background", "program"]
"""The starter: a call that waits for the end; a call that does not; a program or tool that uses the SDK."""

ABANDONED: Final = "it was abandoned"
NO_ANSWER: Final = "decide yourself, and say in your final answer what you have assumed"


@dataclass(frozen=True, kw_only=True)
class ChildRecord:
    """A child at one moment."""

    agent_id: str
    key: str
    """The durable name, which shows the ancestors."""
    session_id: str = ""
    """The session that has the child. Empty: none has, and the record cannot be renewed."""
    run: int = 1
    """The number of the run; a resumed child has several."""
    task: str
    description: str = ""
    status: RecordedStatus
    error: str = ""
    """The reason why the child did not complete. Empty: it did, or it has not ended."""
    output: str = ""
    """The answer as text; of a child that did not complete, its last text. Empty: it has not ended."""
    receipts: Receipts | None = None
    """The actions, as the host saw them. None: it has not ended, or is Python code."""

    @property
    def has_ended(self) -> bool:
        """Whether the run is over."""
        return self.status not in LIVE

    def to_json(self) -> str:
        """Return the record as one line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(line: str) -> "ChildRecord":
        """Read a record from a line of `to_json`.

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
        """Return the child as its session has it now, in any program.

        Args:
            store: The store of its session. None: the store of the default settings.

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


async def report(result: RunResult, folder: Path, root: Path | None = None) -> str:
    """Return the report, at most about 8 KB.

    Args:
        result: The child's result.
        folder: The place of the file of a long answer.
        root: The folder from which `folder` is reached without following a link. None: `folder` itself.
    """
    answer = await _shown(result.text, folder, root or folder)
    warnings = [f"[WARNING] {one_line(text, ERROR_CHARS)}" for text in result.warnings[:WARNINGS_SHOWN]]
    if len(result.warnings) > WARNINGS_SHOWN:
        warnings.append(f"[WARNING] More of these: {len(result.warnings) - WARNINGS_SHOWN}")
    doubts = [f"[FACT] {one_line(text, ERROR_CHARS)}" for text in result.doubts]
    made = result.receipts if result.status == "completed" else None
    grounds = [] if made is None else [f"[RECEIPTS] {made.grounds}"]
    head = "\n".join([status_line(result), *doubts, *warnings, *grounds])
    if result.status == "completed":
        return f"{head}\n{answer}"
    partial = f"\nWhat it had so far:\n{answer}" if answer else "\nIt had no text so far."
    return f"[ERROR] The child did not complete: {one_line(result.error, ERROR_CHARS)}\n{head}{partial}"


def status_line(result: RunResult) -> str:
    """Return status, spending and time of a run and its descendants, and its receipts, in one line."""
    written = _files("files written", result.files_written) + _files("files removed", result.files_removed)
    count = len(result.files_read)
    read = f"; {counted(count, 'file')} read" if count else ""
    made = "".join(f"; {note}" for note in (*result.notes, *_last_output(result.receipts)))
    passed = "; its answer has passed the check" if result.verified else ""
    reused = f"; {result.reused_from} gave this answer to the same task" if result.reused_from else ""
    kept = f"; its kernel stays as node {result.node.node_id}" if result.node is not None else ""
    spent = f"{result.tree_usage}; {result.seconds:.1f} s"
    return f"[{result.agent_id}: {result.status}; {spent}{made}{read}{written}{passed}{reused}{kept}]"


def _last_output(made: Receipts | None) -> tuple[str, ...]:
    last = "" if made is None else one_line(made.printed[-PRINTED_CHARS:], PRINTED_CHARS)
    return (f"its last output ends with: {_quoted(last)}",) if last else ()


def _quoted(text: str) -> str:
    """Return a child's own words in quotes: the parent's model must not take them for the host's."""
    return json.dumps(text, ensure_ascii=False)


def _files(what: str, names: Sequence[str]) -> str:
    shown = [_quoted(name) if MARKS & {*name} else name for name in names[:FILES_SHOWN]]
    if len(names) > len(shown):
        shown.append(f"{len(names) - len(shown)} more")
    return f"; {what}: {one_line(', '.join(shown), ERROR_CHARS)}" if shown else ""


async def _shown(answer: str, folder: Path, root: Path) -> str:
    data = answer.encode("utf-8", "backslashreplace")
    if len(data) <= ANSWER_BYTES:
        return answer
    try:
        file = await asyncio.to_thread(_write, folder, data, root)
        where = f"the whole answer is in {file}"
    except OSError as error:
        logger.warning("an answer could not be written to %s", folder, exc_info=True)
        where = f"it could not be kept in {folder}: {error}"
    head = data[:HEAD_BYTES].decode("utf-8", "ignore")
    tail = data[-TAIL_BYTES:].decode("utf-8", "ignore")
    left_out = len(data) - HEAD_BYTES - TAIL_BYTES
    return f"{head}\n[... {left_out:,} of {len(data):,} bytes left out; {where} ...]\n{tail}"


def _write(folder: Path, data: bytes, root: Path) -> Path:
    file = folder / "answer.txt"
    try:
        write_new(file, data, root=root)
    except FileExistsError:  # the child's code has put something there
        file = folder / f"answer-{secrets.token_hex(4)}.txt"
        write_new(file, data, root=root)
    return file


@dataclass(kw_only=True, eq=False)
class ChildQuestion:
    """A child's question that waits for its parent's answer."""

    text: str
    correlation_id: str
    answer: asyncio.Future[str]


class ChildWork:
    """A child, as the agent that owns it keeps it."""

    def __init__(self, agent: TreeAgent, task: str, started_by: StartedBy) -> None:
        """Start nothing: `begin` does.

        Args:
            agent: The child.
            task: The prompt.
            started_by: The starter.
        """
        self.agent, self.task, self.started_by = agent, task, started_by
        recorded = agent.shared.recorded
        self._session_id = recorded.session_id if recorded.is_written else ""  # that stays when the agent is closed
        self._number = recorded.runs[agent.agent_id] + 1  # its run is about to begin
        self.run = agent.run
        """The run; a resumed child gets another one."""
        self._running: asyncio.Task[RunResult] | None = None
        self.waiters = 0
        """The number of calls that wait for the child; they return its end and its questions."""
        self.given_up = False
        """Whether the parent cancelled the child, and needs no message about the end."""
        self.question: ChildQuestion | None = None
        self.report = f"[ERROR] {ABANDONED}"
        """The report on its end for its parent's model."""

    @property
    def label(self) -> str:
        """The child's name for people and models."""
        return self.agent.label

    @property
    def running(self) -> asyncio.Task[RunResult]:
        """The asyncio task of the child's work."""
        if self._running is None:
            raise RuntimeError("the child has no asyncio task yet")
        return self._running

    def begin(self, work: asyncio.Task[RunResult]) -> None:
        """Set the asyncio task of the child's work."""
        self._running = work

    @property
    def ended(self) -> RunResult | None:
        """The result. None: the child has not ended."""
        return self._result if self._running is not None and self._running.done() else None

    @property
    def completed(self) -> bool:
        """Whether the child ended with the status `completed`."""
        return self.ended is not None and self.ended.status == "completed"

    @property
    def state(self) -> ChildState:
        """The child at this moment, for its parent."""
        agent, run, ended = self.agent, self.run, self.ended
        return ChildState(
            agent_id=agent.agent_id,
            description=agent.description,
            task=self.task,
            status=run.status,
            ended=ended is not None,
            action=agent.info.action,
            seconds=run.seconds,
            usage=run.account.usage,
            output=ended.value if ended else None,
            error=ended.error if ended else "",
            report=self.report if ended else "",
            question=self.question.text if self.question else "",
        )

    @property
    def record(self) -> ChildRecord:
        """The child at this moment, in a form that can be stored."""
        ended = self.ended
        return ChildRecord(
            agent_id=self.agent.agent_id,
            key=self.agent.key,
            session_id=self._session_id,
            run=self._number,
            task=self.task,
            description=self.agent.description,
            status=self.run.status if ended is None else ended.status,
            error="" if ended is None else ended.error,
            output="" if ended is None else ended.text,
            receipts=None if ended is None else ended.receipts,
        )

    async def result(self) -> RunResult:
        """Wait until the child ends, however it ends; cancelling the wait does not cancel the child."""
        if self._running is None or self._running.done():
            return self._result
        waiting = caller_in(self.agent.shared)
        if waiting is not None and self.agent in waiting.ancestors():
            raise FreeactError(
                f"{waiting.agent_id} cannot wait for the end of {self.agent.agent_id}: its own run is part of it"
            )
        is_live = waiting is not None and waiting.run.is_live  # otherwise the task has outlived the run that created it
        async with waiting.run.waiting_for_child() if waiting is not None and is_live else nullcontext():
            await asyncio.wait({self._running})
        return self._result

    def cancel(self) -> None:
        """Cancel the child and its descendants. Returns at once; `result()` waits for the end."""
        self.given_up = True
        self.run.cancel()

    @property
    def _result(self) -> RunResult:
        if self._running is None or self._running.cancelled() or self._running.exception() is not None:
            return RunResult(value="", status="failed", error=ABANDONED, agent_id=self.agent.agent_id)
        return self._running.result()


class Child:
    """A program's handle on a child; `Agent.spawn` makes it."""

    def __init__(self, work: ChildWork) -> None:
        self._work = work

    @property
    def agent_id(self) -> str:
        """The id, as in the child's events."""
        return self._work.agent.agent_id

    @property
    def status(self) -> AgentStatus:
        """The activity, or the outcome."""
        return self._work.run.status

    @property
    def task(self) -> str:
        """The prompt."""
        return self._work.task

    @property
    def description(self) -> str:
        """The label of the child's work. Empty: it has none."""
        return self._work.agent.description

    @property
    def error(self) -> str:
        """One sentence on why the child did not complete. Empty: it did, or it has not ended."""
        return "" if self.ended is None else self.ended.error

    @property
    def ended(self) -> RunResult | None:
        """The result. None: the child has not ended."""
        return self._work.ended

    @property
    def record(self) -> ChildRecord:
        """The child at this moment, in a form that can be stored and renewed in another program."""
        return self._work.record

    async def result(self) -> RunResult:
        """Wait until the child ends, however it ends. Cancelling the wait does not cancel the child.

        Raises:
            SpawnForbiddenError: The child waits for a kernel that could never become free while the calling agent waits.
            FreeactError: The caller is the child itself or one of its descendants.
        """
        return await self._work.result()

    def cancel(self) -> None:
        """Cancel the child and its descendants. Returns at once; `result()` waits for the end."""
        self._work.cancel()


class Messages:
    """The messages of one agent and its background children."""

    def __init__(self, agent: TreeAgent, tree: Tree) -> None:
        self._agent = agent
        self._tree = tree

    async def ask(self, child: ChildWork, text: str, asked: asyncio.Event) -> str:
        """Ask the parent on behalf of a child, and return the answer.

        Args:
            child: The asking child.
            text: The question.
            asked: Set when the question is open.
        """
        if child.question is not None:
            raise FreeactError("another question of yours is open: wait for its answer")
        question = child.question = ChildQuestion(
            text=text, correlation_id=f"question-{secrets.token_hex(4)}", answer=asyncio.get_running_loop().create_future()
        )
        seconds = self._agent.shared.config.subagents.question_seconds
        try:
            self._put("request", child, text, correlation_id=question.correlation_id)
            asked.set()
            asks = f"[{child.label} asks, and waits at most {seconds:g} s for subagents(action='message')]\n{text}"
            if not child.waiters and not self._deliver(self._agent, asks):
                if self._agent.parent is not None:
                    return f"Your parent's run has ended: {NO_ANSWER}."
                self._tree.shared.stream.messages.append(asks)
            async with asyncio.timeout(seconds):
                return await question.answer
        except TimeoutError:
            if self._agent.run.is_live:  # its end is its last event
                error = f"the question was not answered within {seconds:g} s"
                self._put("response", child, error, correlation_id=question.correlation_id, success=False, error=error)
            return f"Your parent did not answer within {seconds:g} s: {NO_ANSWER}."
        finally:
            child.question = None

    def send(self, child: ChildWork, text: str) -> str:
        """Answer a child's question, or steer the child; return what was done.

        Raises:
            FreeactError: The child has ended, or has not made its first request yet.
        """
        question = child.question
        if question is not None and not question.answer.done():
            question.answer.set_result(text)
            self._put("response", child, text, correlation_id=question.correlation_id, success=True)
            return f"{child.label} has its answer."
        if child.ended is not None:
            raise FreeactError(f"{child.label} has already ended: give it a new task with resume")
        if not self._deliver(child.agent, f"[Message from the agent that started you]\n{text}"):
            raise FreeactError(f"{child.label} has not made its first request yet: wait a little, and send it again")
        self._put("status", child, text)
        return f"{child.label} reads it before its next request."

    def show_cancel(self, child: ChildWork) -> None:
        """Emit an event: the agent cancels a child."""
        self._put("cancel", child)

    def show_end(self, child: ChildWork, result: RunResult) -> None:
        """Emit the report on a child's end that the agent's model is about to read."""
        answer = shortened(result.text, ANSWER_BYTES)
        text = "\n".join(part for part in (status_line(result), *result.doubts, result.error, answer) if part)
        message = AgentMessage(
            kind="status",
            recipient_id=self._agent.agent_id,
            content=text,
            task=child.task,
            success=result.status == "completed",
            error=result.error,
        )
        if child.agent.outlives(self._agent):
            self._tree.shared.stream.emit_or_keep(message, child.agent.emitter)
        else:
            child.agent.emitter.put(message)

    def send_end(self, child: ChildWork) -> None:
        """Send the agent's model the report on a child's end."""
        text = f"[{child.label} has ended]\n{child.report}"
        if self._deliver(self._agent, text):
            return
        if self._agent.parent is not None:
            text = f"[For {self._agent.agent_id}, whose run has ended]\n{text}"
        if not any(self._deliver(above, text) for above in itertools.islice(self._agent.ancestors(), 1, None)):
            self._tree.shared.stream.messages.append(text)

    def _deliver(self, agent: TreeAgent, text: str) -> bool:
        loop = self._tree.at_work.get(agent.agent_id)
        return loop is not None and bool(loop.send(text))

    def _put(self, kind: MessageKind, child: ChildWork, text: str = "", **facts: Any) -> None:
        """Emit a message between the agent and a child. Only a child makes requests; all others are the agent's."""
        sender, to = (child.agent, self._agent) if kind == "request" else (self._agent, child.agent)
        sender.emitter.put(
            AgentMessage(kind=kind, recipient_id=to.agent_id, content=text, task=child.task, **facts),
        )
