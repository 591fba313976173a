"""Single requests from code: `await agent.ask(...)`."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import to_jsonable_python

from freeact_sub.agents.from_code.answers import typed_answer_of
from freeact_sub.agents.from_code.base import CodeCalls, Handler
from freeact_sub.agents.runs.results import text_of
from freeact_sub.agents.turn.single_request import Asker
from freeact_sub.calls import ToolCall
from freeact_sub.errors import InvalidRequestError
from freeact_sub.kernels import CellClock
from freeact_sub.tools import ToolResult


class AskParams(BaseModel):
    """What `agent.ask` in a kernel sends."""

    model_config = {"extra": "forbid", "strict": True}
    prompt: str = Field(min_length=1)
    model: str | None = None
    output: dict[str, Any] | None = None
    """JSON schema of the answer. None: text."""


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
        try:
            asked = AskParams.model_validate(params)
        except ValidationError as error:
            problem = error.errors()[0]
            raise InvalidRequestError(f"agent.ask: {'.'.join(map(str, problem['loc']))}: {problem['msg']}") from error
        typed = None if asked.output is None else typed_answer_of(asked.output)
        answer: Any = None

        async def work() -> ToolResult:
            nonlocal answer
            # as with a child: the limit of the cell is on what the cell itself does
            with clock.paused() if clock is not None else nullcontext():
                answer = await self._asker.ask(asked.prompt, model=asked.model, typed=typed)
            return ToolResult(text=text_of(answer))

        args = asked.model_dump(exclude_none=True)
        await self._calls.carry_out("ask", ToolCall(tool_name="ask", args=args), args, clock, work)
        return to_jsonable_python(answer)
