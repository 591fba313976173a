"""`task`: start a child agent, wait for it, return its answer."""

from pydantic import BaseModel, Field

from freeact_sub.budget import Budget
from freeact_sub.calls import SpawnCall
from freeact_sub.tools.tool import SpawnRequest, ToolContext, ToolResult


class TaskArguments(BaseModel):
    """See `tools/task.json`."""

    model_config = {"extra": "forbid"}
    prompt: str = Field(min_length=1)
    description: str = ""
    max_turns: int = Field(default=10, ge=1)


class Task:
    """Starts a child through the function that the agent placed in the context."""

    name = "task"
    arguments = TaskArguments

    def call(self, arguments: TaskArguments) -> SpawnCall:
        """See `Tool`."""
        return SpawnCall(prompt=arguments.prompt, description=arguments.description, max_turns=self._turns(arguments))

    async def run(self, arguments: TaskArguments, context: ToolContext) -> ToolResult:
        """See `Tool`."""
        return await context.spawn(
            SpawnRequest(
                prompt=arguments.prompt,
                description=arguments.description,
                budget=Budget(turns=self._turns(arguments)),
                tool_call_id=context.tool_call_id,
            )
        )

    def _turns(self, arguments: TaskArguments) -> int | None:
        """None where the model named none: the configured default counts, which the schema does not know."""
        return arguments.max_turns if "max_turns" in arguments.model_fields_set else None
