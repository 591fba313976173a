"""What code in a cell asks and tells people: input from the keyboard, the steps of strategies (`progress`)."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

from pydantic import Field, TypeAdapter

from freeact_sub.agents.from_code.base import Params, tool_call_id_of, validated
from freeact_sub.agents.tree_agent import TreeAgent
from freeact_sub.approvals import required
from freeact_sub.events import StrategyProgress
from freeact_sub.events.forms import PersonQuestion
from freeact_sub.events.progress import SearchedState, StrategyStep
from freeact_sub.kernels import CellClock

MAX_PROMPT_CHARS: Final = 10_000


class QuestionParams(Params):
    """The parameters of a question."""

    prompt: str = Field(max_length=MAX_PROMPT_CHARS)
    secret: bool = False


class InputRequests:
    """Handles `question`, for what reads from the keyboard (`input()`, `getpass`, a debugger)."""

    def __init__(self, agent: TreeAgent) -> None:
        self._agent = agent
        self.handlers = {"question": self._read_line}

    async def _read_line(self, params: Mapping[str, Any], clock: CellClock | None) -> str:
        asked = validated(QuestionParams.model_validate, params, "a question")
        question = PersonQuestion(prompt=asked.prompt, secret=asked.secret)
        answer = await self._agent.ask_person(question, tool_call_id=tool_call_id_of(clock), clock=clock)
        return str(required(answer).text)


MAX_CHARS: Final = 500
"""Characters of each text in a step: code in a kernel writes them."""
MAX_NUMBER: Final = 10**9


class ProgressRequests:
    """Handles `progress`: the steps of strategies, in a cell or in a program, become events of their agent."""

    def __init__(self, agent: TreeAgent) -> None:
        self._agent = agent
        self.handlers = {"progress": self._reply}

    async def _reply(self, params: Mapping[str, Any], clock: CellClock | None) -> None:
        await self.report(params, tool_call_id_of(clock))

    async def report(self, step: Mapping[str, Any], tool_call_id: str | None = None) -> None:
        """Emit the event. Args: step: the fields of a `StrategyStep`.

        Raises:
            InvalidRequestError: A field is invalid.
        """
        valid = validated(_adapter().validate_python, step, "agent.progress")
        node = None if valid.node is None else replace(valid.node, **_bounded(valid.node))
        step = {**vars(valid), **_bounded(valid), "node": node}
        await self._agent.emitter.emit(StrategyProgress(**step), tool_call_id=tool_call_id)


def _bounded(value: StrategyStep | SearchedState) -> dict[str, Any]:
    fields = dict[str, Any]()
    for name, given in vars(value).items():
        if isinstance(given, str):
            fields[name] = given[:MAX_CHARS]
        elif isinstance(given, float):
            fields[name] = min(1.0, max(0.0, given))  # no number is 0
        elif isinstance(given, int):
            fields[name] = type(given)(min(MAX_NUMBER, max(0, given)))
    return fields


@cache
def _adapter() -> TypeAdapter[StrategyStep]:
    return TypeAdapter(StrategyStep)
