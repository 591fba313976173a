"""`RunHooks`: all our hooks into pydantic-ai, as one capability."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import ModelRequestContext

from freeact_sub.agents.children.type_effects import ToolFilter
from freeact_sub.agents.turn.answer_hooks import AnswerHooks
from freeact_sub.agents.turn.budget_hooks import RunBudget
from freeact_sub.agents.turn.call_hooks import CallHooks
from freeact_sub.agents.turn.calls import ToolCalls
from freeact_sub.agents.turn.stream import EmittingModel
from freeact_sub.agents.turn.turns import Turns
from freeact_sub.agents.turn.unmade import UnmadeCalls
from freeact_sub.tools import AgentToolset, McpToolset


def hooks_of(
    turns: Turns, ours: AgentToolset, mcp: McpToolset, *, forgotten: Callable[[], str], emitting: EmittingModel | None
) -> "RunHooks":
    """Returns the capability of a run, which follows the user's.

    Args:
        turns: The run's.
        ours: The built-in tools.
        mcp: The tools of MCP servers.
        forgotten: Returns the question for a model that would end its run while children are working; empty: none.
        emitting: The model, if it emits what it streams. None: pydantic-ai streams, and all its events are read.
    """
    return RunHooks(
        turns=turns,
        tools=ToolFilter(node=turns.node),
        calls=ToolCalls(turns.node),
        unmade=UnmadeCalls(turns=turns),
        ours=ours,
        mcp=mcp,
        answers=AnswerHooks(turns=turns, forgotten=forgotten),
        budget=RunBudget(turns=turns),
        emitting=emitting,
    )


@dataclass(kw_only=True)
class RunHooks(CallHooks):
    """All our hooks as one capability; those of tool calls are inherited.

    pydantic-ai calls each hook of each capability, even those that do nothing, around each event of a response: six
    capabilities would cost a sixth of a turn. Hooks before an action run in the order of the fields, hooks after it in
    reverse. So the budget reserves for a request as all others have changed it, and settles a response before anybody reads
    it.
    """

    tools: ToolFilter
    answers: AnswerHooks
    budget: RunBudget
    emitting: EmittingModel | None
    """See `hooks_of`."""

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Any) -> Any:
        """See `InnerTasks` and `UnmadeCalls`. Takes over from `PlainTurns`."""
        self.turns.step(ctx)
        for text in self.turns.taken_steering():
            ctx.enqueue(text)
        try:
            result = await self.turns.inner_tasks.wrap_run(ctx, handler=handler)
        except UnexpectedModelBehavior as error:
            self.unmade.end(self.turns.messages, str(error))
            raise
        self.unmade.end(self.turns.messages)
        return result

    async def prepare_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        """See `ToolFilter` and `RunBudget`."""
        return await self.budget.prepare_tools(ctx, await self.tools.prepare_tools(ctx, tool_defs))

    async def before_model_request(self, ctx: RunContext[Any], request_context: ModelRequestContext) -> ModelRequestContext:
        """See `UnmadeCalls`, `CallHooks` and `RunBudget`."""
        self.turns.count_unusable(request_context)
        self.unmade.tell(ctx.messages)
        return await self.budget.before_model_request(ctx, await super().before_model_request(ctx, request_context))

    async def wrap_model_request(self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: Any) -> Any:
        """See `RequestProgress`, `InnerTasks` and `RunBudget`. What has come of a response stays in the history."""

        async def noted(request: ModelRequestContext) -> Any:
            return await self.turns.inner_tasks.wrap_model_request(ctx, request_context=request, handler=paid)

        async def paid(request: ModelRequestContext) -> Any:
            return await self.budget.wrap_model_request(ctx, request_context=request, handler=handler)

        try:
            return await self.turns.progress.wrap_model_request(ctx, request_context=request_context, handler=noted)
        except BaseException:
            if self.emitting is not None and self.emitting.cut_off is not None:
                _keep(ctx, self.emitting.cut_off)
                self.emitting.cut_off = None
            raise

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """See `RunBudget` and `AnswerHooks`. A response stays in the history even if the run is cancelled meanwhile."""
        try:
            response = await self.budget.after_model_request(ctx, request_context=request_context, response=response)
            response = await self.answers.after_model_request(ctx, request_context=request_context, response=response)
        except asyncio.CancelledError:
            if self.emitting is not None:
                _keep(ctx, replace(response, state="interrupted"))
            raise
        self.unmade.responded(response, {tool.name for tool in request_context.model_request_parameters.output_tools})
        return response

    async def after_node_run(self, ctx: RunContext[Any], *, node: Any, result: Any) -> Any:
        """See `AnswerHooks`."""
        return await self.answers.after_node_run(ctx, node=node, result=result)


def _keep(ctx: RunContext[Any], response: ModelResponse) -> None:
    ctx.messages.append(replace(response, run_id=ctx.run_id, conversation_id=ctx.conversation_id))
