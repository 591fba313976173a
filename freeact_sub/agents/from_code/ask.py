"""Answers `ask`: single model requests from code in a cell or a program (`await agent.ask(...)`)."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator
from pydantic_core import to_jsonable_python

from freeact_sub.agents.from_code.answers import typed_answer_of
from freeact_sub.agents.from_code.base import CodeCalls, Params, paused, validated
from freeact_sub.agents.runs.results import text_of
from freeact_sub.agents.turn.calls import EndedCall
from freeact_sub.agents.turn.single_request import SingleRequests, TypedAnswer
from freeact_sub.calls import ToolCall
from freeact_sub.kernels import CellClock


class AskParams(Params):
    """The parameters of `agent.ask`."""

    prompt: str = Field(min_length=1)
    model: str | None = None
    output: dict[str, Any] | None = None
    """The answer's JSON schema. None: text."""
    history: list[str] = Field(default_factory=list)
    """Earlier prompts and answers, alternating."""
    label: str = ""
    """Its name for people."""

    @field_validator("history")
    @classmethod
    def _ends_with_an_answer(cls, history: list[str]) -> list[str]:
        if len(history) % 2:
            raise ValueError("prompts and answers in turn are needed: the last one is a prompt without an answer")
        return history


class AskRequests:
    """Answers `ask`."""

    def __init__(self, calls: CodeCalls, single_requests: SingleRequests) -> None:
        self._calls = calls
        self._single_requests = single_requests
        self.handlers = {"ask": self._ask}

    async def _ask(self, params: Mapping[str, Any], clock: CellClock | None) -> Any:
        asked = validated(AskParams.model_validate, params, "agent.ask")
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

        async def work() -> EndedCall[Any]:
            with paused(clock):
                answer = await self._single_requests.ask(asked.prompt, model=asked.model, typed=typed, history=asked.history)
            return EndedCall(value=answer, text=text_of(answer), outcome="success")

        args = asked.model_dump(exclude_none=True, exclude_defaults=True)
        return await self._calls.carry_out("ask", ToolCall(tool_name="ask", args=args), args, clock, work)
