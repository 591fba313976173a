"""Plans that models show people (`PlanFeature`, `update_plan`)."""

from collections.abc import Sequence
from typing import Final, Literal

from pydantic import BaseModel, Field

from freeact_sub.agents.feature import FeatureAgent, ToolsFeature
from freeact_sub.events import PlanUpdated
from freeact_sub.events.progress import PlanStep
from freeact_sub.text import own_title
from freeact_sub.tools import PlainTool, Tool, ToolContext, ToolResult

MAX_STEPS: Final = 30


class StepArguments(BaseModel):
    """One step."""

    model_config = {"extra": "forbid", "defer_build": True}
    step: str = Field(min_length=1)
    status: Literal["pending", "in_progress", "completed"]


class PlanArguments(BaseModel):
    """Arguments of `update_plan`; `tools/update_plan.json` describes them."""

    model_config = {"extra": "forbid", "defer_build": True}
    explanation: str = ""
    plan: list[StepArguments] = Field(min_length=1, max_length=MAX_STEPS)


class UpdatePlan(PlainTool):
    """A tool that writes the plan to the stream; front ends draw it in place."""

    name = "update_plan"
    arguments = PlanArguments

    async def run(self, arguments: PlanArguments, context: ToolContext) -> ToolResult:
        """Emit the plan."""
        steps = tuple(PlanStep(step=own_title(step.step), status=step.status) for step in arguments.plan)
        await context.emit(PlanUpdated(steps=steps, explanation=own_title(arguments.explanation)))
        return ToolResult(text="The user sees the plan.")


class PlanFeature(ToolsFeature):
    """Plans of all agents."""

    def tools(self, agent: FeatureAgent) -> Sequence[Tool]:
        """Give each agent the tool."""
        del agent
        return (UpdatePlan(),)
