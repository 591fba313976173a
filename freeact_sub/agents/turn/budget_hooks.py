"""`PaidRequests` reserves each model request and settles it or gives it up. `RunBudget` ends a run at its limit."""

from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import InstructionPart, ModelResponse, ToolCallPart
from pydantic_ai.models import ModelRequestContext

from freeact_sub.agents.budgets.booking import Booking
from freeact_sub.agents.turn.turns import Turns
from freeact_sub.errors import LimitReachedError

SALVAGE: Final = (
    "Your budget is used up ({reason}). No tools are left. Report now what you have found and done, and what is missing."
)


@dataclass(kw_only=True)
class PaidRequests(AbstractCapability[Any]):
    """Pays for the requests of one run, or of one ask."""

    booking: Booking

    async def before_model_request(self, ctx: RunContext[Any], request_context: ModelRequestContext) -> ModelRequestContext:
        """See pydantic-ai. Reserves what the request may take."""
        del ctx
        return await self.booking.reserve(request_context, salvage=False)

    async def wrap_model_request(self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: Any) -> Any:
        """See pydantic-ai. Gives a request up that brings no response."""
        del ctx
        try:
            return await handler(request_context)
        except BaseException:
            self.booking.give_up()
            raise

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """See pydantic-ai. Settles what the request took, and emits UsageUpdated."""
        del ctx, request_context
        await self.booking.settle(response)
        return response


@dataclass(kw_only=True)
class RunBudget(PaidRequests):
    """Counts the turns of a run. At its limit it makes one last request for a report (the salvage), or none."""

    booking: Booking = field(init=False)
    turns: Turns

    def __post_init__(self) -> None:
        self.booking = self.turns.booking
        self._salvage = self.turns.node.shared.config.subagents.salvage

    async def prepare_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        """See pydantic-ai. Offers no tools at a limit."""
        self.turns.step(ctx)
        if ctx.messages and isinstance(ctx.messages[-1], ModelResponse):
            return tool_defs  # pydantic-ai takes over from `PlainTurns`, in the same turn
        try:
            self.turns.node.run.account.check("turns")
        except LimitReachedError as error:
            self.turns.end(error)
        return [] if self.turns.ended else tool_defs

    async def before_model_request(self, ctx: RunContext[Any], request_context: ModelRequestContext) -> ModelRequestContext:
        """See pydantic-ai. Reserves what the request may take, turns it into the salvage, or ends the run."""
        turns, account = self.turns, self.turns.node.run.account
        turns.step(ctx)
        turns.node.shared.journal.messages(turns.node.agent_id, ctx.messages)
        if turns.ended is None:
            try:
                wait = turns.kept_answer is None  # with an answer at hand the agent does not wait for other requests
                return await self.booking.reserve(request_context, salvage=self._salvage, wait=wait)
            except LimitReachedError as error:
                turns.ended = error
        # either it was cut off, and a report would say less; or it was complete, and the model was only asked about children
        has_answer = bool(turns.answers.so_far) or turns.kept_answer is not None
        may_report = self._salvage and not turns.reporting and account.taken("turns") > 0 and not has_answer
        if not may_report or not isinstance(turns.ended, LimitReachedError):
            raise turns.ended
        turns.reporting = True
        try:
            return await self.booking.reserve(_as_salvage(request_context, turns.ended), salvage=True, last=True)
        except LimitReachedError:
            raise turns.ended from None

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """See pydantic-ai. Settles the request, and ends a run that the budget cut off.

        Tool calls in a salvage are removed.
        """
        turns = self.turns
        turns.kept_answer = None
        response = await super().after_model_request(ctx, request_context=request_context, response=response)
        if self.booking.shortened and response.finish_reason == "length" and turns.ended is None:
            turns.ended = turns.node.run.account.amount_error()
            turns.answers.keep_piece(response)
        if not turns.reporting:
            return response
        offered = {tool.name for tool in request_context.model_request_parameters.output_tools}
        kept = [part for part in response.parts if not isinstance(part, ToolCallPart) or part.tool_name in offered]
        return replace(response, parts=kept)


def _as_salvage(request: ModelRequestContext, reason: Exception) -> ModelRequestContext:
    parameters = request.model_request_parameters
    instructions = [*(parameters.instruction_parts or []), InstructionPart(content=SALVAGE.format(reason=reason))]
    return replace(request, model_request_parameters=replace(parameters, function_tools=[], instruction_parts=instructions))
