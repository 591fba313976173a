"""`Background`: the children of one agent that work while it goes on, and what it and they tell each other.

Each is an asyncio task that this object owns. When the agent's run ends they are cancelled, and have ended before it has;
with `subagents.detach` they live on until they end or the root agent is closed, and what they find is told to the agent in
its next run. A child's end and its questions reach the agent's model as messages before its next request, unless it waits
for that child at that moment and reads them as the result of waiting.
"""

import asyncio
import functools
import itertools
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from freeact_sub.agents.results import RunResult
from freeact_sub.agents.spawn import Spawner
from freeact_sub.agents.tree import AgentNode
from freeact_sub.errors import FreeactError
from freeact_sub.events import AgentMessage, MessageKind
from freeact_sub.tools import ChildState, SpawnRequest

MAX_AT_WORK: Final = 20
"""Background children of one agent that may be at work, or wait for their turn, at a time."""
CANCEL_SECONDS: Final = 30.0
"""How long a cancelled child is waited for. Its own bounds are shorter."""
NO_ANSWER: Final = "decide yourself, and say in your final answer what you have assumed"

logger = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class _Question:
    text: str
    correlation_id: str
    answer: asyncio.Future[str]


@dataclass(frozen=True, kw_only=True)
class _Ended:
    result: RunResult
    report: str


@dataclass(kw_only=True, eq=False)
class _Child:
    node: AgentNode
    task: asyncio.Task["_Ended"]
    waited_for: int = 0
    """How many calls wait for it."""
    question: _Question | None = None

    @property
    def label(self) -> str:
        about = f" ({self.node.description})" if self.node.description else ""
        return f"{self.node.agent_id}{about}"

    @property
    def ended(self) -> _Ended | None:
        """How it ended; None before."""
        if not self.task.done():
            return None
        if self.task.cancelled() or self.task.exception() is not None:
            error = "it was abandoned"
            result = RunResult(output="", status="failed", error=error, agent_id=self.node.agent_id)
            return _Ended(result=result, report=f"[ERROR] {error}")
        return self.task.result()


@dataclass(kw_only=True, eq=False)
class Background:
    """See `freeact_sub.tools.Children`."""

    node: AgentNode
    spawner: Spawner
    tell: Callable[[str], bool]
    """Gives the agent's model a message; False if it is not at work."""
    find: Callable[[str], Callable[[str], bool] | None]
    """How another agent's model is given a message; None if it is not at work."""
    _children: dict[str, _Child] = field(default_factory=dict)
    _untold: list[str] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self, request: SpawnRequest) -> ChildState:
        """See `Children`."""
        if sum(not child.task.done() for child in self._children.values()) >= MAX_AT_WORK:
            raise FreeactError(f"{MAX_AT_WORK} background children are at work: wait for some of them, or cancel some")
        child_run = await self.spawner.prepare(request, asks=self._question)
        node = child_run.node
        node.detached = self.node.tree.config.subagents.detach
        node.begin()  # now, so that a cancel finds its scope though the task has not had its first turn
        task = asyncio.create_task(self._run(child_run.run()), name=f"background run of {node.agent_id}")
        child = self._children[node.agent_id] = _Child(node=node, task=task)
        task.add_done_callback(functools.partial(self._has_ended, child))
        return self._state(child)

    def list(self) -> Sequence[ChildState]:
        """See `Children`."""
        return [self._state(child) for child in self._children.values()]

    async def wait(self, agent_ids: Sequence[str], timeout_seconds: float) -> Sequence[ChildState]:
        """See `Children`."""
        children = [self._find(agent_id) for agent_id in agent_ids] or [*self._children.values()]
        for child in children:
            child.waited_for += 1
        try:
            async with self.node.waiting_for_child():
                await self._until_news(children, timeout_seconds)
        finally:
            for child in children:
                child.waited_for -= 1
        return [self._state(child) for child in children]

    def send(self, agent_id: str, text: str) -> str:
        """See `Children`."""
        child = self._find(agent_id)
        question = child.question
        if question is not None and not question.answer.done():
            question.answer.set_result(text)
            self._message("response", child, text, question.correlation_id)
            return f"{child.label} has its answer."
        deliver = self.find(agent_id)
        if child.task.done():
            raise FreeactError(f"{child.label} has ended already")
        if deliver is None or not deliver(f"[Message from the agent that started you]\n{text}"):
            raise FreeactError(f"{child.label} has not made its first request yet: wait a little, and send it again")
        self._message("status", child, text)
        return f"{child.label} reads it before its next request."

    async def cancel(self, agent_id: str) -> ChildState:
        """See `Children`."""
        child = self._find(agent_id)
        if not child.task.done():
            self._message("cancel", child)
            child.waited_for += 1
            try:
                self._cancel(child)
                await asyncio.wait({child.task}, timeout=CANCEL_SECONDS)
            finally:
                child.waited_for -= 1
        return self._state(child)

    def untold(self) -> str:
        """What the agent's model could not be told in its last run; for its next prompt."""
        texts, self._untold = self._untold, []
        return "".join(f"{text}\n\n" for text in texts)

    def cancel_all(self) -> None:
        """Begin to end all children, unless they outlive the agent's run; `end` waits for them."""
        if not self.node.tree.config.subagents.detach:
            self._cancel_at_work()

    async def end(self) -> None:
        """The agent's run ends: its children end first, unless they outlive it."""
        if self.node.tree.config.subagents.detach:
            self.node.tree.backgrounds.add(self)
        else:
            await self.aclose()

    async def aclose(self) -> None:
        """End all children."""
        self._cancel_at_work()
        tasks = {child.task for child in self._children.values()}
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_SECONDS)
        for child in self._children.values():
            if not child.task.done():
                logger.error("background child %s does not end when it is cancelled: it is abandoned", child.label)
                child.task.cancel()
        self._children.clear()
        self._untold.clear()

    async def _run(self, run: Awaitable[RunResult]) -> _Ended:
        result = await run
        return _Ended(result=result, report=await self.spawner.report(result))

    async def _question(self, agent_id: str, text: str) -> str:
        """A child asks its parent; returns what the child reads."""
        child = self._find(agent_id)
        question = _Question(
            text=text, correlation_id=f"question-{secrets.token_hex(4)}", answer=asyncio.get_running_loop().create_future()
        )
        if child.question is not None:
            raise FreeactError("another question of yours is open: wait for its answer")
        child.question = question
        seconds = self.node.tree.config.subagents.question_seconds
        try:
            message = AgentMessage(
                kind="request", recipient_id=self.node.agent_id, content=text, correlation_id=question.correlation_id
            )
            child.node.emitter.put(message)
            self._news.set()
            if not child.waited_for:
                self._tell(f"[{child.label} asks, and waits at most {seconds:g} s for subagents(action='send')]\n{text}")
            async with asyncio.timeout(seconds):
                return await question.answer
        except TimeoutError:
            return f"Your parent did not answer within {seconds:g} s: {NO_ANSWER}."
        finally:
            child.question = None

    async def _until_news(self, children: Sequence[_Child], timeout_seconds: float) -> None:
        """Until all have ended, one asks, or the time is up."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while not all(child.task.done() for child in children) and not any(child.question for child in children):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            pass

    def _has_ended(self, child: _Child, task: asyncio.Task[_Ended]) -> None:
        del task
        self._news.set()
        ended = child.ended
        if ended is None or child.node.agent_id not in self._children:
            return
        if not child.waited_for:
            self._tell(f"[{child.label} has ended]\n{ended.report}")

    def _tell(self, text: str) -> None:
        if not self.tell(text):
            self._untold.append(text)

    def _cancel_at_work(self) -> None:
        for child in self._children.values():
            self._cancel(child)

    def _cancel(self, child: _Child) -> None:
        if child.node.scope is not None:
            child.node.scope.cancel()

    def _find(self, agent_id: str) -> _Child:
        child = self._children.get(agent_id)
        if child is None:
            known = ", ".join(self._children) or "there are none"
            raise FreeactError(f"{agent_id!r} is no background child of yours: {known}")
        return child

    def _message(self, kind: MessageKind, child: _Child, content: str = "", correlation_id: str = "") -> None:
        """Tell whoever reads the stream what is told to a child."""
        message = AgentMessage(kind=kind, recipient_id=child.node.agent_id, content=content, correlation_id=correlation_id)
        self.node.emitter.put(message)

    def _state(self, child: _Child) -> ChildState:
        node, ended = child.node, child.ended
        return ChildState(
            agent_id=node.agent_id,
            description=node.description,
            status=node.status,
            ended=ended is not None,
            seconds=node.seconds,
            usage=node.tree_usage,
            output=ended.result.output if ended else None,
            error=ended.result.error if ended else "",
            report=ended.report if ended else "",
            question=child.question.text if child.question else "",
        )


def outlives(node: AgentNode, above: AgentNode) -> bool:
    """Whether an agent may go on when the run of an agent above it has ended."""
    return any(below.detached for below in itertools.takewhile(lambda other: other is not above, node.ancestors()))
