"""`AgentLike`: what a strategy needs of an agent. `Member`: one voice in a vote, a debate, a mixture or a plan."""

import dataclasses
import json
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class AgentLike(Protocol):
    """The methods that a strategy needs of an agent: an `Agent` in a program, `agent` in a cell, or a fake in a test."""

    def ask(
        self,
        prompt: str,
        *,
        model: str | None = None,
        output: Any = None,
        history: Sequence[str] = (),
        label: str = "",
    ) -> Awaitable[Any]:
        """Makes one model request, without tools.

        Args:
            prompt: The only text that the model reads besides the history.
            model: A name in the setting `models`. None: the agent's own.
            output: The type of the answer. None: text.
            history: Earlier prompts and answers, alternating.
            label: Its name for people.
        """
        ...

    def task(self, prompt: str, **options: Any) -> Awaitable[Any]:
        """Starts a child and waits for its end; returns a value with `output`, `status` and `agent_id`.

        Args:
            prompt: The child's task.
            options: Such as `description`, `inputs`, `output`, `agent` (a named type), `budget`, `branch`.

        Raises:
            Exception: The child did not complete.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Member:
    """Answers by one model request or, with `acts`, as a child agent that runs code."""

    name: str = ""
    """Its name for the other members and in events."""
    role: str = ""
    """Text before each question, such as `You are a sceptic.`"""
    model: str | None = None
    """A name in the setting `models`. None: the agent's own. A child has the model of its type."""
    acts: bool = False
    """It is a child agent, with a kernel and tools."""
    agent_type: str | None = None
    """The named type of the child."""

    def __post_init__(self) -> None:
        if self.model is not None and (self.acts or self.agent_type is not None):
            raise ValueError("a Member that acts uses the model of its agent type: give `agent_type` instead of `model`")

    async def answer(self, agent: AgentLike, prompt: str, *, output: Any = None, history: Sequence[str] = ()) -> Any:
        """Returns its answer.

        Args:
            agent: Asks, or starts the child.
            prompt: The question.
            output: The type of the answer. None: text.
            history: Its earlier prompts and answers, alternating.

        Raises:
            Exception: It gave no answer.
        """
        told = f"{self.role}\n\n{prompt}" if self.role and not history else prompt
        if not self.acts and self.agent_type is None:
            return await agent.ask(told, model=self.model, output=output, history=history, label=self.name)
        options = {"description": self.name or None, "output": output, "agent": self.agent_type}
        given = {name: value for name, value in options.items() if value is not None}
        return (await agent.task(_with_history(told, history), **given)).output


def members(given: int | str | Member | Sequence[Member | str], word: str) -> tuple[Member, ...]:
    """Returns members. Args: given: a number, a `Member`, a model name, or a list of these. word: names one member.

    Raises:
        ValueError: There are none.
    """
    if isinstance(given, int):
        found = [Member(name=f"{word} {number}") for number in range(1, given + 1)]
    else:
        those = [given] if isinstance(given, str | Member) else given
        found = [Member(name=each, model=each) if isinstance(each, str) else each for each in those]
    if not found:
        raise ValueError(f"at least one {word} is needed")
    return tuple(found)


def text_of(answer: Any) -> str:
    """Returns an answer as text: strings unchanged, other values as JSON, or as Python shows them if JSON cannot."""
    if isinstance(answer, str):
        return answer
    try:
        return json.dumps(answer, default=_plain, ensure_ascii=False, sort_keys=True)
    except (TypeError, ValueError):  # keys that are not text, or a value that holds itself
        return repr(answer)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    dump = getattr(value, "model_dump", None)  # a pydantic model; pydantic is not imported for this
    return dump(mode="json") if callable(dump) else str(value)


def _with_history(prompt: str, history: Sequence[str]) -> str:
    if not history:
        return prompt
    turns = [f"{'You answered' if index % 2 else 'You were asked'}:\n{text}" for index, text in enumerate(history)]
    return "\n\n".join(["What was said before:", *turns, "Now:", prompt])
