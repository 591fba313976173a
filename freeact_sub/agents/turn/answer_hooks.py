"""`AnswerHooks`: a run ends with a complete answer, and forgets no child."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import ModelRequestContext
from pydantic_graph import End

from freeact_sub.agents.turn.turns import Turns


@dataclass(kw_only=True)
class AnswerHooks(AbstractCapability[Any]):
    """Checks each response, and the end of the run."""

    turns: Turns
    forgotten: Callable[[], str] = lambda: ""
    """See `hooks_of`."""

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """See pydantic-ai. Asks for the missing part of an answer, or ends the run."""
        del ctx
        turns, answers = self.turns, self.turns.answers
        if turns.reporting:
            answers.check_report(response)
        elif turns.ended is None:
            tools = request_context.model_request_parameters.function_tools
            turns.ended = answers.check(response, {tool.name: tool.parameters_json_schema for tool in tools}, turns.messages)
            if turns.ended is not None and (response.tool_calls or not (answers.texts and response.text)):
                raise turns.ended  # otherwise the run ends by itself, with the text
        return response

    async def after_node_run(self, ctx: RunContext[Any], *, node: Any, result: Any) -> Any:
        """See pydantic-ai. Asks the model once if it ends its run while children are working."""
        del node
        turns = self.turns
        if isinstance(result, End) and turns.ended is None and not turns.reporting and turns.may_go_on:
            question = self.forgotten()
            if question:
                turns.kept_answer = replace(result.data, output=turns.answers.whole(result.data.output))
                turns.answers.reset()
                ctx.enqueue(question)
        return result
