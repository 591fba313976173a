"""`Messages`: questions, answers, steering and ends between an agent and its background children.

All are delivered like steering: the model reads them before its next request. A call that waits for a child returns its
questions and its end instead. A message to an agent that has ended goes to its nearest working ancestor, or to the root in
its next run.
"""

import asyncio
import itertools
import secrets
from typing import Any, Final

from freeact_sub.agents.children.child import ChildQuestion, OwnedChild
from freeact_sub.agents.children.report import ANSWER_BYTES, status_line
from freeact_sub.agents.runs.results import RunResult, text_of
from freeact_sub.agents.tree import Tree, TreeAgent
from freeact_sub.errors import FreeactError
from freeact_sub.events import AgentMessage, MessageKind
from freeact_sub.text import shortened

NO_ANSWER: Final = "decide yourself, and say in your final answer what you have assumed"


class Messages:
    """The messages of one agent and its background children."""

    def __init__(self, agent: TreeAgent, tree: Tree) -> None:
        self._agent = agent
        self._tree = tree

    async def ask(self, child: OwnedChild, text: str, asked: asyncio.Event) -> str:
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

    def send(self, child: OwnedChild, text: str) -> str:
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
            raise FreeactError(f"{child.label} has ended already")
        if not self._deliver(child.agent, f"[Message from the agent that started you]\n{text}"):
            raise FreeactError(f"{child.label} has not made its first request yet: wait a little, and send it again")
        self._put("status", child, text)
        return f"{child.label} reads it before its next request."

    def show_cancel(self, child: OwnedChild) -> None:
        """Emit an event: the agent cancels a child."""
        self._put("cancel", child)

    def show_end(self, child: OwnedChild, result: RunResult) -> None:
        """Emit an event: the report on a child's end that the agent's model is about to read."""
        answer = shortened(text_of(result.output), ANSWER_BYTES)
        text = "\n".join(part for part in (status_line(result), result.error, answer) if part)
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

    def send_end(self, child: OwnedChild) -> None:
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

    def _put(self, kind: MessageKind, child: OwnedChild, text: str = "", **facts: Any) -> None:
        """Emit a message between the agent and a child. Only a child makes requests; all others are the agent's."""
        sender, to = (child.agent, self._agent) if kind == "request" else (self._agent, child.agent)
        sender.emitter.put(
            AgentMessage(kind=kind, recipient_id=to.agent_id, content=text, task=child.task, **facts),
        )
