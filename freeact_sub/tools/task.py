"""`task`: start a child agent, wait for it, return its answer."""

from typing import Any

from pydantic import BaseModel, Field, model_validator

from freeact_sub.budget import Budget
from freeact_sub.calls import SpawnCall
from freeact_sub.modes import Mode
from freeact_sub.tools.tool import SpawnRequest, ToolContext, ToolResult


class TaskArguments(BaseModel):
    """See `tools/task.json`."""

    model_config = {"extra": "forbid"}
    prompt: str = Field(min_length=1)
    description: str = ""
    max_turns: int = Field(default=10, ge=1)
    mode: Mode | None = None
    scope: str = ""
    budget: dict[str, float] = Field(default={})

    @model_validator(mode="after")
    def _budget_is_one(self) -> Any:
        self.limits  # noqa: B018  # what is wrong with it is raised here, and told to the model by the field's name
        return self

    @property
    def limits(self) -> Budget:
        """What is asked for. Turns that the model has not named are left to the settings, which the schema does not know."""
        turns = {"turns": self.max_turns} if "max_turns" in self.model_fields_set else {}
        return Budget.model_validate({**self.budget, **turns})


class Task:
    """Starts a child through the function that the agent placed in the context."""

    name = "task"
    arguments = TaskArguments

    def call(self, arguments: TaskArguments) -> SpawnCall:
        """See `Tool`."""
        return SpawnCall(
            prompt=arguments.prompt,
            description=arguments.description,
            max_turns=arguments.limits.turns,
            mode=arguments.mode,
        )

    async def run(self, arguments: TaskArguments, context: ToolContext) -> ToolResult:
        """See `Tool`."""
        return await context.spawn(
            SpawnRequest(
                prompt=arguments.prompt,
                description=arguments.description,
                mode=arguments.mode,
                scope=arguments.scope,
                budget=arguments.limits,
                tool_call_id=context.tool_call_id,
            )
        )
