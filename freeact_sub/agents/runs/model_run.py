"""`ModelRun`: the turns of one run. `PlainTurns` makes them, and where it cannot, pydantic-ai does."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.messages import ModelMessage, UserContent
from pydantic_ai.usage import UsageLimits

from freeact_sub.agents.context.compactor import CompactionHooks
from freeact_sub.agents.turn.hooks import RunHooks, hooks_of
from freeact_sub.agents.turn.plain import PlainTurns, is_traced
from freeact_sub.agents.turn.stream import EmittingModel, event_stream_handler_of, reads_events
from freeact_sub.agents.turn.turns import COUNTED_HERE, RETRIES, Turns
from freeact_sub.tools import AgentToolset, McpToolset


@dataclass(frozen=True, kw_only=True)
class ModelRun:
    """One run of an agent with a model."""

    turns: Turns
    output_type: Any
    """The type of the answer, as pydantic-ai's `output_type`."""
    compaction: CompactionHooks
    ours: AgentToolset
    mcp: McpToolset
    instructions: str
    """The system prompt."""
    forgotten: Callable[[], str]
    """See `hooks_of`."""

    async def answer(self, prompt: str | Sequence[UserContent]) -> Any:
        """Make turns up to the answer, and return it."""
        node, turns = self.turns.node, self.turns
        shared, history = node.shared, node.run.record.history
        emitting = None if reads_events(shared.capabilities) else EmittingModel(node.model, node.emitter)
        hooks = hooks_of(turns, self.ours, self.mcp, forgotten=self.forgotten, emitting=emitting)
        with turns.open():
            if self.output_type is not str or emitting is None or shared.capabilities or shared.toolsets or is_traced():
                return await self._by_agent(prompt, history, hooks)
            plain = PlainTurns(
                turns,
                emitting,
                hooks=hooks,
                before=self.compaction,
                toolsets=[self.ours, self.mcp],
                instructions=self.instructions,
                settings=shared.request_settings,
                history=history,
            )
            answer = await plain.run(prompt)
            return await self._by_agent(None, plain.messages, hooks) if answer is None else answer

    async def _by_agent(
        self, prompt: str | Sequence[UserContent] | None, history: Sequence[ModelMessage], hooks: RunHooks
    ) -> Any:
        """Let pydantic-ai make the turns, or continue the conversation so far."""
        node, shared, emitting = self.turns.node, self.turns.node.shared, hooks.emitting
        agent: PydanticAgent[Any, Any] = PydanticAgent(
            emitting or node.model,
            name=node.agent_id,
            output_type=self.output_type,
            instructions=self.instructions,
            toolsets=[self.ours, self.mcp, *shared.toolsets],
            capabilities=[self.compaction, *shared.capabilities, hooks],
            model_settings=shared.request_settings,
            # `Turns` counts outputs in a row, pydantic-ai those of the whole run
            retries={"tools": RETRIES, "output": COUNTED_HERE},
        )
        limit = node.run.account.budget.turns
        result = await agent.run(
            prompt,
            message_history=history or None,
            event_stream_handler=event_stream_handler_of(node.emitter) if emitting is None else None,
            infer_name=False,
            # a backstop for steps of a user's capability that bypass our hooks; ours acts first
            usage_limits=UsageLimits(request_limit=None if limit is None else limit + 1),
        )
        self.turns.messages = result.all_messages()
        return result.output
