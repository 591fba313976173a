"""Answers `question`: code in a cell reads from the keyboard (`input()`, `getpass`, a debugger), and a person is asked."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from pydantic import Field

from freeact_sub.agents.from_code.base import Params, paused, tool_call_id_of, validated
from freeact_sub.agents.tree import TreeAgent
from freeact_sub.kernels import CellClock

MAX_PROMPT_CHARS: Final = 10_000


class QuestionParams(Params):
    """The parameters of a question."""

    prompt: str = Field(max_length=MAX_PROMPT_CHARS)
    secret: bool = False


class QuestionRequests:
    """Answers `question`."""

    def __init__(self, agent: TreeAgent) -> None:
        self._agent = agent
        self.handlers = {"question": self._answer}

    async def _answer(self, params: Mapping[str, Any], clock: CellClock | None) -> str:
        asked = validated(QuestionParams.model_validate, params, "a question")
        agent = self._agent
        return await agent.shared.questions.ask(
            asked.prompt,
            agent.emitter,
            secret=asked.secret,
            path=agent.path,
            tool_call_id=tool_call_id_of(clock),
            pause=self._paused(clock),
        )

    @contextmanager
    def _paused(self, clock: CellClock | None) -> Iterator[None]:
        with self._agent.run.clocks_paused(), paused(clock):
            yield
