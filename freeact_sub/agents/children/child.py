"""`ChildWork`: a child, as its owner keeps it; `Child`: a program's handle on it; `Messages`: between agent and children.

Questions, answers, steering and ends are all delivered like steering: the model reads them before its next request. A call
that waits for a child returns its questions and its end instead. A message to an agent that has ended goes to its nearest
working ancestor, or to the root in its next run.
"""

import asyncio
import itertools
import secrets
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from freeact_sub.agents.call import caller_in
from freeact_sub.agents.children.record import ChildRecord
from freeact_sub.agents.children.report import ANSWER_BYTES, status_line
from freeact_sub.agents.runs.results import AgentStatus, RunResult
from freeact_sub.agents.tree import Tree
from freeact_sub.agents.tree_agent import TreeAgent
from freeact_sub.errors import FreeactError
from freeact_sub.events import AgentMessage, MessageKind
from freeact_sub.text import shortened
from freeact_sub.tools import ChildState

StartedBy: TypeAlias = Literal["call", "background", "program"]
"""A call of the model or of code that waits for its end; a call that does not; a program or tool that uses the SDK."""

ABANDONED: Final = "it was abandoned"
NO_ANSWER: Final = "decide yourself, and say in your final answer what you have assumed"


@dataclass(kw_only=True, eq=False)
class ChildQuestion:
    """A child's question that waits for its parent's answer."""

    text: str
    correlation_id: str
    answer: asyncio.Future[str]


class ChildWork:
    """A child, as the agent that owns it keeps it."""

    def __init__(self, agent: TreeAgent, task: str, started_by: StartedBy) -> None:
        """Nothing is started yet: `begin` does.

        Args:
            agent: The child.
            task: Its prompt.
            started_by: What has started it.
        """
        self.agent, self.task, self.started_by = agent, task, started_by
        writer = agent.shared.journal.writer
        self._session_id = "" if writer is None else writer.session_id  # that stays when the agent is closed
        self._number = agent.shared.journal.runs[agent.agent_id] + 1  # its run is about to begin
        self.run = agent.run
        """Its run; a resumed child gets another one."""
        self._running: asyncio.Task[RunResult] | None = None
        self.waiters = 0
        """Calls that wait for it; they return its end and its questions."""
        self.given_up = False
        """Cancelled by its parent, which needs no message about the end."""
        self.question: ChildQuestion | None = None
        self.report = f"[ERROR] {ABANDONED}"
        """The report on its end for its parent's model."""

    @property
    def label(self) -> str:
        """The child's name for people and models."""
        return self.agent.label

    @property
    def running(self) -> asyncio.Task[RunResult]:
        """The asyncio task in which it works."""
        if self._running is None:
            raise RuntimeError("the child has no asyncio task yet")
        return self._running

    def begin(self, work: asyncio.Task[RunResult]) -> None:
        """Set the asyncio task in which it works."""
        self._running = work

    @property
    def ended(self) -> RunResult | None:
        """Its result. None: it has not ended."""
        return self._result if self._running is not None and self._running.done() else None

    @property
    def completed(self) -> bool:
        """Whether it ended with the status `completed`."""
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
        """See `Child.record`."""
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
        """See `Child.result`."""
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
        """Cancel it and its descendants. Returns at once; `result()` waits for the end."""
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
        """Its id, as in its events."""
        return self._work.agent.agent_id

    @property
    def status(self) -> AgentStatus:
        """Its activity, or its outcome."""
        return self._work.run.status

    @property
    def task(self) -> str:
        """Its prompt."""
        return self._work.task

    @property
    def description(self) -> str:
        """The label of its work. Empty: it has none."""
        return self._work.agent.description

    @property
    def error(self) -> str:
        """Why it did not complete, in one sentence. Empty: it did, or it has not ended."""
        return "" if self.ended is None else self.ended.error

    @property
    def ended(self) -> RunResult | None:
        """Its result. None: it has not ended."""
        return self._work.ended

    @property
    def record(self) -> ChildRecord:
        """The child at this moment, in a form that can be stored and renewed in another program."""
        return self._work.record

    async def result(self) -> RunResult:
        """Wait until it ends, however it ends. Cancelling the wait does not cancel the child.

        Raises:
            SpawnForbiddenError: It waits for a kernel that could never become free while the calling agent waits.
            FreeactError: The caller is the child itself or one of its descendants.
        """
        return await self._work.result()

    def cancel(self) -> None:
        """Cancel it and its descendants. Returns at once; `result()` waits for the end."""
        self._work.cancel()


class Messages:
    """The messages of one agent and its background children."""

    def __init__(self, agent: TreeAgent, tree: Tree) -> None:
        self._agent = agent
        self._tree = tree

    async def ask(self, child: ChildWork, text: str, asked: asyncio.Event) -> str:
        """Ask the parent on behalf of a child, and return the answer.

        Args:
            child: Asks.
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
        """Answer a child's question, or steer the child; returns what was done.

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
        """Emit an event: the report on a child's end that the agent's model is about to read."""
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
