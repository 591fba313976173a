"""`task`: start a child agent, wait for it, return its answer; or let it work in the background."""

from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, Field, NonNegativeInt, model_validator

from freeact_sub.calls import SpawnCall
from freeact_sub.config.budget import Budget
from freeact_sub.modes import Mode, Thinking
from freeact_sub.tools.tool import SpawnRequest, ToolContext, ToolResult


class TaskArguments(BaseModel):
    """See `tools/task.json`."""

    model_config = {"extra": "forbid", "defer_build": True}
    prompt: str = Field(min_length=1)
    description: str = ""
    max_turns: int = Field(default=10, ge=1)
    agent: str = ""
    model: str = ""
    thinking: Thinking | None = None
    history: Literal["none", "all"] | NonNegativeInt = "none"
    tools: list[str] | None = None
    mode: Mode | None = None
    scope: str = ""
    budget: dict[str, float] = Field(default={})
    background: bool = False
    branch: bool = False
    branch_of: str = ""
    own_files: bool = False
    keep: bool = False
    resume: str = ""

    @model_validator(mode="after")
    def _budget_is_one(self) -> Any:
        self.limits  # noqa: B018  # a wrong value raises here, and the model reads the error with the field's name
        return self

    @property
    def limits(self) -> Budget:
        """The requested budget. Turns that the model did not name stay unset: their default is a setting."""
        turns = {"turns": self.max_turns} if "max_turns" in self.model_fields_set else {}
        return Budget.model_validate({**self.budget, **turns})

    @property
    def request(self) -> SpawnRequest:
        """The request for the child."""
        own = self.model_dump(exclude={"max_turns", "budget", "background"})
        named = {name: own[name] or None for name in ("agent", "model", "branch_of", "resume")}
        tools = None if self.tools is None else tuple(self.tools)
        return SpawnRequest(**own | named | {"tools": tools}, budget=self.limits)


class Task:
    """Starts a child through the function that the agent placed in the context."""

    name = "task"
    arguments = TaskArguments

    def call(self, arguments: TaskArguments) -> SpawnCall:
        """See `Tool`."""
        return arguments.request.call(background=arguments.background)

    async def run(self, arguments: TaskArguments, context: ToolContext) -> ToolResult:
        """See `Tool`."""
        request = replace(arguments.request, tool_call_id=context.tool_call_id)
        if not arguments.background:
            return await context.spawn(request)
        child = await context.children.start(request)
        lifetime = "" if context.config.subagents.detach else " It is cancelled if you give your final answer before."
        return ToolResult(
            text=f"{child.agent_id} works in the background; you are told when it has ended. "
            f"The tool subagents lists, waits for, messages and cancels such children.{lifetime}"
        )
