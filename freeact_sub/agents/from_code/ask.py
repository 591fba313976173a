"""Answers `ask`: single model requests from code in a cell or a program (`await agent.ask(...)`)."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from pydantic import BaseModel, Field, ValidationError, field_validator
from pydantic_core import to_jsonable_python

from freeact_sub.agents.from_code.answers import typed_answer_of
from freeact_sub.agents.from_code.base import CodeCalls, Handler
from freeact_sub.agents.runs.results import text_of
from freeact_sub.agents.turn.single_request import Asker, TypedAnswer
from freeact_sub.calls import ToolCall
from freeact_sub.errors import InvalidRequestError
from freeact_sub.kernels import CellClock
from freeact_sub.tools import ToolResult


class AskParams(BaseModel):
    """The parameters that `agent.ask` in a kernel sends."""

    model_config = {"extra": "forbid", "strict": True}
    prompt: str = Field(min_length=1)
    model: str | None = None
    output: dict[str, Any] | None = None
    """The answer's JSON schema. None: text."""
    history: list[str] = Field(default_factory=list)
    """Earlier prompts and answers, alternating."""

    @field_validator("history")
    @classmethod
    def _ends_with_an_answer(cls, history: list[str]) -> list[str]:
        if len(history) % 2:
            raise ValueError("prompts and answers in turn are needed: the last one is a prompt without an answer")
        return history


class AskRequests:
    """Answers `ask`."""

    def __init__(self, calls: CodeCalls, asker: Asker) -> None:
        self._calls = calls
        self._asker = asker

    @property
    def handlers(self) -> dict[str, Handler]:
        """By method."""
        return {"ask": self._ask}

    async def _ask(self, params: Mapping[str, Any], clock: CellClock | None) -> Any:
        asked = asked_for(params)
        typed = None if asked.output is None else typed_answer_of(asked.output)
        return to_jsonable_python(await self.ask(asked, typed, clock))

    async def ask(self, asked: AskParams, typed: TypedAnswer | None, clock: CellClock | None = None) -> Any:
        """Make the request as a call of the agent, with events, counting and rules, and return the model's answer.

        Args:
            asked: The request.
            typed: The form of the answer. None: text.
            clock: That of the requesting cell. None: a program asks.

        Raises:
            FreeactError: The request is denied or fails.
        """
        answer: Any = None

        async def work() -> ToolResult:
            nonlocal answer
            # as with a child: the cell's time limit covers only what the cell itself does
            with clock.paused() if clock is not None else nullcontext():
                answer = await self._asker.ask(asked.prompt, model=asked.model, typed=typed, history=asked.history)
            return ToolResult(text=text_of(answer))

        args = asked.model_dump(exclude_none=True, exclude_defaults=True)
        await self._calls.carry_out("ask", ToolCall(tool_name="ask", args=args), args, clock, work)
        return answer


def asked_for(params: Mapping[str, Any]) -> AskParams:
    """Validate the parameters.

    Raises:
        InvalidRequestError: A parameter is invalid; the message names it.
    """
    try:
        return AskParams.model_validate(params)
    except ValidationError as error:
        problem = error.errors()[0]
        raise InvalidRequestError(f"agent.ask: {'.'.join(map(str, problem['loc']))}: {problem['msg']}") from error
