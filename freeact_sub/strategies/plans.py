"""`plan_and_execute`: a planner divides the work, children do the steps, and the planner reviews (plan and execute).

The planner's first request returns steps. A step begins when its dependencies are done; independent steps run side by side.
When all are done, or one has failed, the planner reads the results and gives the answer or the remaining steps (replanning).
A step that is too large for one agent is divided in the same way (hierarchy).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from freeact_sub.errors import StrategyError
from freeact_sub.strategies.agent_like import AgentLike, Member, Progress, parallel, text_of

MAX_RESULT_CHARS: Final = 6000
"""Characters of a step's result that a prompt shows, as for the tool `delegate`."""
INVALID_PLANS: Final = 2
"""Corrections that a planner may make to an invalid plan."""

PLAN: Final = """\
Make a plan for the task below: few steps, each of which one agent can do that knows nothing but the text of the step and \
the results of the steps that it depends on. `depends_on` has the numbers of earlier steps, counted from 0. Steps that do \
not depend on each other are done side by side.{large}

The task:
{task}"""
LARGE: Final = " Mark a step as `divide` if it is too large for one agent: it gets a plan of its own."
REVIEW: Final = """\
The steps so far:

{steps}

Is the task done? Then give its answer as `answer`, and no steps. Else leave `answer` empty and give the steps that are \
still needed, as a new plan; their `depends_on` counts from 0 within the new plan. What was found so far is told to \
all of them."""
STEP: Final = "{task}\n\nThis is step {number} of a plan for a larger task, which is:\n{whole}{results}"
WRONG: Final = "This cannot be carried out: {problem}. Give all of it again."


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of a plan."""

    task: str
    depends_on: list[int] = field(default_factory=list)
    divide: bool = False


@dataclass(frozen=True, kw_only=True)
class Review:
    """The planner's verdict on the work so far."""

    answer: str = ""
    """The answer. Empty: the task is not done."""
    steps: list[Step] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """The result of a step."""

    step: Step
    output: Any = None
    """The answer. None: it failed, or did not begin because another step failed."""
    error: str = ""
    plan: "PlanResult | None" = None
    """The plan of a divided step."""


@dataclass(frozen=True, kw_only=True)
class PlanResult:
    """The result of a task."""

    answer: str
    steps: tuple[StepResult, ...]
    """The results of the steps, in the order of the plans."""
    plans: int
    """The number of plans. 1: the first one sufficed."""


async def plan_and_execute(  # all but the first two have a default, and are given by name
    agent: AgentLike,
    task: str,
    *,
    planner: Member = Member(name="planner"),  # noqa: B008  # a frozen value
    executor: Member = Member(acts=True),  # noqa: B008
    max_replans: int = 3,
    max_steps: int = 20,
    levels: int = 2,
) -> PlanResult:
    """Divide a task into steps, let agents do them, and replan if needed.

    Args:
        agent: Asks the planner, and starts the children.
        task: The task.
        planner: Makes the plans.
        executor: Does a step. Default: a child agent with a kernel.
        max_replans: Maximum number of further plans after the first one.
        max_steps: The bound on all steps of this task's plans together; divided steps have their own bound.
        levels: Maximum number of levels of plans. 1: no step is divided.

    Raises:
        StrategyError: The task is not done after `max_replans` plans, a plan has too many steps, none can be carried out, or
            the planner gave no answer to the steps' results, which the message has.
        ValueError: A bound is too small.
        Exception: The planner made no first plan.
    """
    if max_replans < 0 or max_steps < 1 or levels < 1:
        raise ValueError("max_replans must be at least 0, max_steps and levels at least 1")
    prompt = PLAN.format(task=task, large=LARGE if levels > 1 else "")

    async def divide(part: str) -> PlanResult:
        return await plan_and_execute(
            agent,
            part,
            planner=planner,
            executor=executor,
            max_replans=max_replans,
            max_steps=max_steps,
            levels=levels - 1,
        )

    async with Progress(agent, "plan_and_execute") as asking:
        conversation = _Planner(asking, planner)
        steps = await conversation.steps(prompt)
        work = _PlannedWork(asking, task, executor, divide if levels > 1 else None)
        for plans in range(1, max_replans + 2):
            if len(work.done) + len(steps) > max_steps:
                raise StrategyError(f"plan {plans} exceeds max_steps ({max_steps}), counting the steps already done")
            await work.carry_out(steps)
            done = _steps_text(work.done)
            try:
                review = await conversation.review(REVIEW.format(steps=done))
            except Exception as error:
                raise StrategyError(f"the planner gave no answer: {error}\nThe steps so far:\n{done}") from error
            if not review.steps:
                return PlanResult(answer=review.answer, steps=tuple(work.done), plans=plans)
            steps = review.steps
    raise StrategyError(
        f"the task is not done after {max_replans + 1} plans (max_replans); the last steps were:\n"
        f"{_steps_text(work.done[-3:])}"
    )


class _Planner:
    """The conversation with the planner, which remembers its plans."""

    def __init__(self, agent: AgentLike, planner: Member) -> None:
        self._agent = agent
        self._planner = planner
        self._history: list[str] = []

    async def steps(self, prompt: str) -> list[Step]:
        """Return the first plan."""
        found: list[Step] = await self._valid(prompt, list[Step], _problem)
        return found

    async def review(self, prompt: str) -> Review:
        """Return the answer or further steps."""

        def problem_of(review: Review) -> str:
            if review.steps:
                return _problem(review.steps)
            return "" if review.answer.strip() else "it has neither an answer nor steps"

        found: Review = await self._valid(prompt, Review, problem_of)
        return found

    async def _valid(self, prompt: str, output: Any, problem_of: Callable[[Any], str]) -> Any:
        for _ in range(INVALID_PLANS + 1):
            answer = await self._planner.answer(self._agent, prompt, output=output, history=tuple(self._history))
            self._history += [prompt, text_of(answer)]
            problem = problem_of(answer)
            if not problem:
                return answer
            prompt = WRONG.format(problem=problem)
        raise StrategyError(f"the planner made no usable plan: {problem}")


def _problem(steps: Sequence[Step]) -> str:
    """Return the problem of a plan; empty if there is none."""
    if not steps:
        return "it has no steps"
    for number, step in enumerate(steps):
        if not step.task.strip():
            return f"step {number} has no text"
        wrong = [other for other in step.depends_on if not 0 <= other < number]
        if wrong:
            return f"step {number} depends on step {wrong[0]}, which is not before it"
    return ""


class _PlannedWork:
    """The steps of all plans of one task."""

    def __init__(
        self,
        agent: AgentLike,
        task: str,
        executor: Member,
        divide: Callable[[str], Awaitable[PlanResult]] | None,
    ) -> None:
        """Args: divide: carries out a step that is too large for one agent. None: steps are never divided."""
        self._agent = agent
        self._task = task
        self._executor = executor
        self._divide = divide
        self.done: list[StepResult] = []

    async def carry_out(self, steps: Sequence[Step]) -> None:
        """Do the steps of a plan. After a failure no further step begins; those under way may finish."""
        before = tuple(self.done)
        stop = asyncio.Event()
        tasks: list[asyncio.Task[StepResult]] = []

        async def one(number: int, step: Step) -> StepResult:
            needed = [await asyncio.shield(tasks[other]) for other in step.depends_on]
            if stop.is_set():
                return StepResult(step=step, error="it has not begun, as another step has failed")
            result = await self._one(number, step, [*before, *needed])
            if result.error:
                stop.set()
            return result

        async with asyncio.TaskGroup() as group:
            for number, step in enumerate(steps):
                tasks.append(group.create_task(one(number, step)))
        self.done += [task.result() for task in tasks]

    async def _one(self, number: int, step: Step, known: Sequence[StepResult]) -> StepResult:
        results = f"\n\nWhat was found so far:\n\n{_steps_text(known)}" if known else ""
        prompt = STEP.format(task=step.task, number=number, whole=self._task, results=results)

        async def do() -> StepResult:
            if step.divide and self._divide is not None:
                plan = await self._divide(prompt)
                return StepResult(step=step, output=plan.answer, plan=plan)
            return StepResult(step=step, output=await self._executor.answer(self._agent, prompt))

        [result] = await parallel([do])
        if isinstance(result, Exception):  # the planner reads of it
            return StepResult(step=step, error=f"{result}" or type(result).__name__)
        return result


def _steps_text(results: Sequence[StepResult]) -> str:
    lines = []
    for each in results:
        found = f"failed: {each.error}" if each.error else text_of(each.output)
        cut = found if len(found) <= MAX_RESULT_CHARS else f"{found[:MAX_RESULT_CHARS]} […]"
        lines.append(f"- {each.step.task}\n  {cut}")
    return "\n".join(lines)
