"""`FromProgram`: the methods `spawn`, `ask`, `task` and the like of `Agent`. Programs start children as code in a cell does.

A program that an agent runs, such as a tool, acts on that agent's behalf: its children are that agent's.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any, Final, overload

from pydantic_core import to_json

from freeact_sub.agents.children.child import Child
from freeact_sub.agents.from_code.ask import AskParams, typed_for_program
from freeact_sub.agents.from_code.base import validated
from freeact_sub.agents.output_types import check_output
from freeact_sub.agents.root import Root, with_inputs
from freeact_sub.agents.runs.prompt import Prompt, read_prompt
from freeact_sub.agents.runs.results import AnswerT, RunResult
from freeact_sub.config.budget import Budget
from freeact_sub.errors import FreeactError, InvalidRequestError, TaskError
from freeact_sub.tools import ChildRequest

FIELDS: Final = frozenset(ChildRequest.model_fields) - {
    "prompt",
    "content",
    "prepare",
    "verify",
    "tool_call_id",
    "output_schema",
}


class FromProgram:
    """What a program lets the agent do on whose behalf it runs, which is the root as a rule."""

    def __init__(self, root: Root) -> None:
        self._root = root

    async def spawn(self, request: ChildRequest | str) -> Child:
        """Start a child without waiting for it; a string is its prompt.

        When a tool, a `ChildAgent` or any other code that an agent runs calls this, the child belongs to that agent: it is
        bound by its depth, mode and budget, and is cancelled when that agent's run ends. Otherwise it belongs to the root
        and its present run. If no run is live, one begins (see `present_run`) and lasts until no child is working; its
        events reach the taps only, and its approval requests get the answer for unattended runs. Raises SpawnForbiddenError
        if no child, or none of this type, may be started now.
        """
        return await self._root.callers_loop.children.spawn(_request_for(request))

    async def spawn_and_run(self, request: ChildRequest | str) -> RunResult:
        """Start a child (see `spawn`) and wait until it ends, however it ends. Cancelling the wait cancels the child.

        An agent whose tool waits here lends its slot to other agents meanwhile.
        """
        return await self._spawn_and_run(_request_for(request))

    async def _spawn_and_run(self, request: ChildRequest, together: int = 1) -> RunResult:
        result = await self._root.callers_loop.children.spawn_and_wait(request, together)
        await self._root.settle()
        return result

    async def run_parallel(self, requests: Iterable[ChildRequest | str]) -> list[RunResult | Exception]:
        """Start children (see `spawn`) side by side and wait for all; for one that cannot be started, return the reason."""
        if isinstance(requests, str):
            raise InvalidRequestError("agent.run_parallel takes a list of requests, not one text: use agent.task for that")
        wanted, children = [*requests], self._root.callers_loop.children

        async def run(request: ChildRequest | str) -> RunResult:
            return await self._spawn_and_run(_request_for(request), len(wanted))

        async def run_all() -> list[RunResult | Exception]:
            return await asyncio.gather(*(outcome(run(request)) for request in wanted))

        # a question about a long list needs a live run
        is_long = len(wanted) > self._root.callers_loop.agent.shared.config.models.quote_above
        return await (children.in_run(run_all) if is_long else run_all())

    @overload
    async def ask(self, prompt: str, *, model: str | None = None, history: Sequence[str] = (), label: str = "") -> str: ...
    @overload
    async def ask(
        self, prompt: str, *, output: type[AnswerT], model: str | None = None, history: Sequence[str] = (), label: str = ""
    ) -> AnswerT: ...
    @overload
    async def ask(
        self, prompt: str, *, output: Any = None, model: str | None = None, history: Sequence[str] = (), label: str = ""
    ) -> Any: ...
    async def ask(
        self, prompt: str, *, model: str | None = None, output: Any = str, history: Sequence[str] = (), label: str = ""
    ) -> Any:
        """Make one model request without tools or kernel, in a run that pays for it (see `run_program`).

        The model reads the prompt, and before it `history`: earlier prompts and answers, alternating. `model` is a name in
        the setting `models`; the default is the agent's own model. `output` is the type of the answer, such as `int`, a
        dataclass or a pydantic model, and the call returns a value of it. `label` names the request for people. Raises
        FreeactError if no run is live, or the request is denied or fails.
        """
        loop = self._root.callers_loop
        if not loop.agent.run.is_live:
            raise FreeactError(
                "agent.ask must be called within a run, whose budget pays for it, such as "
                "`await agent.run_program(lambda: agent.ask(...)).result()`"
            )
        params = {"prompt": prompt, "model": model, "history": [*history], "label": label}
        asked = validated(AskParams.model_validate, params, "agent.ask")
        asks, in_run = loop.requests.asks, loop.children.in_run
        if output is None or output is str:
            return await in_run(lambda: asks.ask(asked, None, of_program=True))
        adapter, typed = typed_for_program(output)
        return adapter.validate_json(to_json(await in_run(lambda: asks.ask(asked, typed, of_program=True))))

    async def progress(self, /, **step: Any) -> None:
        """Report a step of a strategy, by the fields of a `StrategyStep`; it is dropped if no run is live."""
        loop = self._root.callers_loop
        if loop.agent.run.is_live:
            await loop.requests.progress.report(step)

    @overload
    async def task(self, /, prompt: "Prompt", *, output: type[AnswerT], **options: Any) -> RunResult[AnswerT]: ...
    @overload
    async def task(self, /, prompt: "Prompt", *, output: None = None, **options: Any) -> RunResult[str]: ...
    @overload
    async def task(self, /, prompt: "Prompt", *, output: Any, **options: Any) -> RunResult[Any]: ...
    async def task(self, /, prompt: "Prompt", *, output: Any = None, **options: Any) -> RunResult[Any]:
        """Start a child and wait until it ends. Its answer is a value of the type `output`; the default is text.

        `prompt` and `output` are as for `run`. The options are `inputs` (values that it finds as variables in its kernel, by
        name), `max_turns`, `budget` (a `Budget`, or a dict), and all other fields of `ChildRequest`. Raises TaskError if the
        child does not complete; `error.result` has what it achieved.
        """
        result = await self.spawn_and_run(request_of(prompt, {"output": output, **options}))
        if result.status != "completed":
            raise TaskError(result)
        return result


def _request_for(request: ChildRequest | str) -> ChildRequest:
    return request if isinstance(request, ChildRequest) else request_of(request, {})


def request_of(prompt: "Prompt", options: Mapping[str, Any]) -> ChildRequest:
    """Return the request for a child. Args: options: see `Agent.task`.

    Raises:
        InvalidRequestError: An option is invalid; the message names it.
    """
    rest = {name: value for name, value in options.items() if value is not None}
    inputs, output, turns = rest.pop("inputs", {}), rest.pop("output", None), rest.pop("max_turns", None)
    if unknown := [name for name in rest if name not in FIELDS]:
        raise InvalidRequestError(
            f"agent.task: unknown option {unknown[0]!r}: the known ones are {', '.join(sorted(FIELDS))}"
        )
    budget = validated(Budget.model_validate, rest.pop("budget", {}), "agent.task: budget")
    if turns is not None:
        budget = validated(Budget.model_validate, {**dict(budget), "turns": turns}, "agent.task: max_turns")
    if not isinstance(inputs, Mapping):
        raise InvalidRequestError(f"agent.task: inputs are values by their names, not {type(inputs).__name__}")
    if output is not None:
        rest["output_type"] = check_output(output, "agent.task")
    text, content = read_prompt(prompt)
    return ChildRequest(prompt=text, content=content, budget=budget, prepare=with_inputs(inputs) if inputs else None, **rest)


async def outcome(work: Awaitable[AnswerT]) -> AnswerT | Exception:
    """Return the result of one of several pieces of work, or its exception."""
    try:
        return await work
    except Exception as error:  # noqa: BLE001  # border: one that fails must not affect the others
        return error
