"""Plans that models show people (`PlanFeature`, `update_plan`)."""

from collections.abc import Sequence
from typing import Final, Literal

from pydantic import BaseModel, Field

from freeact_sub.agents.feature import FeatureAgent, RunPart, ToolsFeature
from freeact_sub.agents.life import TreeAgent, tree_agent
from freeact_sub.events import PlanUpdated
from freeact_sub.events.progress import PlanStep
from freeact_sub.text import one_line, own_title
from freeact_sub.tools import PlainTool, Tool, ToolContext, ToolResult

MAX_STEPS: Final = 30
OPEN_CHARS: Final = 300
"""Characters of the open steps that a model reads."""


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

    def __init__(self, agent: TreeAgent | None = None) -> None:
        """Args: agent: the one whose plan it is. None: the tool is only listed."""
        self._agent = agent

    async def run(self, arguments: PlanArguments, context: ToolContext) -> ToolResult:
        """Emit the plan."""
        steps = tuple(PlanStep(step=own_title(step.step), status=step.status) for step in arguments.plan)
        await context.emit(PlanUpdated(steps=steps, explanation=own_title(arguments.explanation)))
        for part in () if self._agent is None else self._agent.run.features.all(PlanPart):
            part.steps = steps
        return ToolResult(text="The user sees the plan.")


class PlanPart(RunPart):
    """The plan of one run."""

    def __init__(self, agent: TreeAgent) -> None:
        self._agent = agent
        self.steps: Sequence[PlanStep] = ()

    async def left(self, answer: str) -> Sequence[str]:
        """Return the open steps; in mode `plan` nothing can be done, and a plan may be all that is wanted."""
        del answer
        names = [step.step for step in self.steps if step.status != "completed"]
        if not names or self._agent.policy.mode == "plan":
            return ()
        return (f"open steps of the plan: {one_line('; '.join(names), OPEN_CHARS)}",)


class PlanFeature(ToolsFeature):
    """Plans of all agents."""

    def run(self, agent: FeatureAgent) -> RunPart:
        """Keep the plan of the run."""
        return PlanPart(tree_agent(agent))

    def tools(self, agent: FeatureAgent) -> Sequence[Tool]:
        """Give each agent the tool."""
        return (UpdatePlan(tree_agent(agent)),)
