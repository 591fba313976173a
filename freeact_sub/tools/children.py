"""Tools that have others work: `task` starts a child, `delegate` carries out a plan, `ask` makes one model request."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Final, Self

from pydantic import BaseModel, Field, model_validator

from freeact_sub.calls import SpawnCall
from freeact_sub.errors import FreeactError
from freeact_sub.events import PlanUpdated
from freeact_sub.events.progress import PlanStatus, PlanStep
from freeact_sub.text import own_title, shortened
from freeact_sub.tools.tool import AskedChild, ChildRequest, Outcome, PlainTool, ToolContext, ToolResult


class TaskArguments(AskedChild):
    """Arguments of `task`."""

    background: bool = Field(default=False, description="Return its id at once; you are told when it has ended.")

    @property
    def request(self) -> ChildRequest:
        """The request for the child."""
        return ChildRequest(prompt=self.prompt, **self.chosen)


class Task:
    """A tool that starts a child through the context's `spawn`."""

    name = "task"
    arguments = TaskArguments

    def call(self, arguments: TaskArguments) -> SpawnCall:
        """Return the start of the child."""
        return arguments.request.call(background=arguments.background)

    async def run(self, arguments: TaskArguments, context: ToolContext) -> ToolResult:
        """Start the child, and wait for its end."""
        request = arguments.request.replace(tool_call_id=context.tool_call_id)
        if not arguments.background:
            return await context.spawn(request)
        child = await context.children.start(request)
        lifetime = "" if context.config.subagents.detach else " It is cancelled if you give your final answer before."
        return ToolResult(
            text=f"{child.agent_id} works in the background; you are told when it has ended. "
            f"The tool subagents lists, waits for, messages and cancels such children.{lifetime}"
        )


MAX_SUBTASKS: Final = 5
ANSWER_CHARS: Final = 6_000
"""Characters of an earlier answer that a subtask reads, as head and tail."""


class Subtask(BaseModel):
    """One piece of a plan."""

    model_config = {"extra": "forbid", "defer_build": True}
    task: str = Field(min_length=1)
    scope: str = ""
    depends_on: list[int] = Field(default_factory=list)
    agent: str = ""


class DelegateArguments(BaseModel):
    """Arguments of `delegate`; `tools/delegate.json` describes them."""

    model_config = {"extra": "forbid", "defer_build": True}
    plan: str = Field(min_length=1)
    subtasks: list[Subtask] = Field(min_length=1, max_length=MAX_SUBTASKS)
    stop_on_error: bool = True

    @model_validator(mode="after")
    def _can_be_done(self) -> Self:
        order_of([subtask.depends_on for subtask in self.subtasks])
        return self


def order_of(depends_on: Sequence[Sequence[int]]) -> list[int]:
    """Return an order in which each subtask follows its dependencies.

    Raises:
        ValueError: A dependency does not exist, or subtasks form a circle; the message names them.
    """
    for index, others in enumerate(depends_on):
        for other in others:
            if not 0 <= other < len(depends_on):
                last = len(depends_on) - 1
                raise ValueError(f"subtask {index} depends on subtask {other}, but there are only subtasks 0 to {last}")
    try:
        return [*TopologicalSorter(dict(enumerate(depends_on))).static_order()]
    except CycleError as error:
        circle = ", which depends on ".join(f"subtask {index}" for index in reversed(error.args[1]))
        raise ValueError(f"these subtasks wait for each other: {circle}") from error


@dataclass(frozen=True, kw_only=True)
class _SubtaskOutcome:
    status: str
    text: str

    @property
    def completed(self) -> bool:
        return self.status == "completed"


class Delegate:
    """A tool that carries out a plan through the context's `spawn`."""

    name = "delegate"
    arguments = DelegateArguments

    def call(self, arguments: DelegateArguments) -> SpawnCall:
        """Return the start of all children of the plan."""
        prompts = [f"{index}. {subtask.task}" for index, subtask in enumerate(arguments.subtasks)]
        count = len(arguments.subtasks)
        return SpawnCall(
            prompt="\n\n".join([arguments.plan, *prompts]),
            description=f"{count} {'child' if count == 1 else 'children'} for the plan: {arguments.plan}",
            agent=", ".join(sorted({subtask.agent for subtask in arguments.subtasks if subtask.agent})),
        )

    async def run(self, arguments: DelegateArguments, context: ToolContext) -> ToolResult:
        """Carry out the plan, and return the answers in its order."""
        outcomes = await carry_out_plan(arguments, context)
        done = sum(outcome.completed for outcome in outcomes)
        lines = [f"{done} of {len(outcomes)} subtasks completed. The plan: {arguments.plan}"]
        for index, (subtask, outcome) in enumerate(zip(arguments.subtasks, outcomes, strict=True)):
            lines.append(f"## Subtask {index}: {outcome.status}\n{shortened(subtask.task, 200)}\n\n{outcome.text}")
        ended: Outcome = "success" if done == len(outcomes) else "failed"
        return ToolResult(text="\n\n".join(lines), sections=tuple(lines), outcome=ended)


async def carry_out_plan(arguments: DelegateArguments, context: ToolContext) -> list[_SubtaskOutcome]:
    """Run each subtask once its dependencies have ended; return the outcomes in the order of the plan."""
    subtasks = arguments.subtasks
    states: list[PlanStatus] = ["pending"] * len(subtasks)
    at_work: dict[int, asyncio.Task[_SubtaskOutcome]] = {}
    failed: list[int] = []

    async def show(index: int, state: PlanStatus) -> None:
        states[index] = state
        steps = (PlanStep(step=own_title(task.task), status=now) for task, now in zip(subtasks, states, strict=True))
        plan = own_title(arguments.plan)
        await context.emit(PlanUpdated(steps=tuple(steps), explanation=plan, plan_id=context.tool_call_id))

    async def do(index: int) -> _SubtaskOutcome:
        before = [at_work[other] for other in sorted(set(subtasks[index].depends_on))]
        if before:
            await asyncio.wait(before)
        if failed and arguments.stop_on_error:
            await show(index, "failed")
            return _SubtaskOutcome(status="not started", text=f"Subtask {failed[0]} did not complete.")
        await show(index, "in_progress")
        outcome = await _do(_prompt(arguments, index, lambda other: at_work[other].result()), index, arguments, context)
        if not outcome.completed:
            failed.append(index)
        await show(index, "completed" if outcome.completed else "failed")
        return outcome

    try:
        async with asyncio.TaskGroup() as group:
            for index in order_of([subtask.depends_on for subtask in subtasks]):
                at_work[index] = group.create_task(do(index), name=f"subtask {index}")
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None  # an error that ends the whole run passes unchanged
    return [at_work[index].result() for index in range(len(subtasks))]


async def _do(prompt: str, index: int, arguments: DelegateArguments, context: ToolContext) -> _SubtaskOutcome:
    subtask = arguments.subtasks[index]
    request = ChildRequest(
        prompt=prompt,
        description=shortened(f"subtask {index}: {subtask.task}", 60),
        agent=subtask.agent or None,
        scope=subtask.scope,
        tool_call_id=context.tool_call_id,
    )
    try:
        result = await context.spawn(request)
    except FreeactError as error:
        return _SubtaskOutcome(status="not started", text=f"[ERROR] {error}")
    return _SubtaskOutcome(status="completed" if result.outcome == "success" else "failed", text=result.text)


def _prompt(arguments: DelegateArguments, index: int, outcome_of: Callable[[int], _SubtaskOutcome]) -> str:
    subtask = arguments.subtasks[index]
    parts = [subtask.task, f"This is one part of a plan, and only this part is yours. The plan: {arguments.plan}"]
    for other in sorted(set(subtask.depends_on)):
        task = shortened(arguments.subtasks[other].task, 200)
        parts.append(f"Earlier part ({task}):\n{shortened(outcome_of(other).text, ANSWER_CHARS)}")
    return "\n\n".join(parts)


class AskArguments(BaseModel):
    """Arguments of `ask`; `tools/ask.json` describes them."""

    model_config = {"extra": "forbid", "defer_build": True}
    prompt: str = Field(min_length=1)
    model: str = ""
    label: str = ""


class Ask(PlainTool):
    """A tool that asks a model through the context's `ask`."""

    name = "ask"
    arguments = AskArguments

    async def run(self, arguments: AskArguments, context: ToolContext) -> ToolResult:
        """Ask the model."""
        return ToolResult(text=await context.ask(arguments.prompt, arguments.model or None))
