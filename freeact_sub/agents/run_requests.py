"""Requests of code that the agent's own run answers: children and nodes, questions to a model, steps of strategies.

Most runs are never asked, so `AgentLoop` imports this when code first asks something.

A child from code (`await agent.task(...)`) is like one from the `task` tool: `CodeCalls.carry_out` asks for approval
and emits its events, `ChildOwner` runs it. In addition, values go into its kernel, and a typed answer comes back. Only the
requesting kernel knows the type, so it validates the answer: it keeps a second request (`task_check`) open that waits for
one. A frame or an array is taken from the child's kernel as the program takes it, and written for the requesting kernel.

The agent owns its nodes (`await agent.branch()`), as it owns those of a program (`Nodes`), within its own bounds: a cell in
a node needs approval and counts like one of the agent's, a promotion needs approval for each path, and each node takes a
place of `kernel.max_live`.
"""

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import Field, TypeAdapter, model_validator
from pydantic_core import to_jsonable_python

from freeact_sub.agents.ask import AskRequests, SingleRequests, output_type_of
from freeact_sub.agents.children import ChildOwner
from freeact_sub.agents.feature import EndedCall, Handler
from freeact_sub.agents.kernel import AgentKernel
from freeact_sub.agents.life import TreeAgent
from freeact_sub.agents.nodes import Nodes
from freeact_sub.agents.requests import CodeCalls, Params, paused, tool_call_id_of, validated
from freeact_sub.agents.results import RunResult
from freeact_sub.errors import FreeactError, InvalidRequestError
from freeact_sub.events import StrategyProgress
from freeact_sub.events.progress import SearchedState, StrategyStep
from freeact_sub.kernels import CellClock, Kernel, block_type, hand_over, move_values, write_value
from freeact_sub.tools import ChildRequest
from freeact_sub.tools.tool import AskedChild

if TYPE_CHECKING:
    from freeact_sub.kernels.files import Changes

STEP_CHARS: Final = 500
"""Characters of each text in a step: code in a kernel writes them."""
MAX_NUMBER: Final = 10**9
CHECK_SECONDS: Final = 30.0
"""Seconds that the requesting kernel may take to validate an answer; after that only the final result is validated."""
MAX_PROBLEM_CHARS: Final = 2000

TaskId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


@dataclass
class RunRequests:
    """The requests that the run of one agent answers."""

    agent: TreeAgent
    kernel: AgentKernel
    children: ChildOwner
    single_requests: SingleRequests

    @cached_property
    def asks(self) -> AskRequests:
        """The handler of questions to a model."""
        return AskRequests(self.kernel.calls, self.single_requests)

    @cached_property
    def tasks(self) -> "TaskRequests":
        """The handler of children whose ends are awaited."""
        return TaskRequests(self.kernel.calls, self.children, self.kernel.get)

    @cached_property
    def progress(self) -> "ProgressRequests":
        """The handler of steps of strategies."""
        return ProgressRequests(self.agent)

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by the name of the request."""
        return {
            **self.tasks.handlers,
            **self.asks.handlers,
            **self.progress.handlers,
            **NodeRequests(self.children.nodes, self.kernel.get).handlers,
        }


class ProgressRequests:
    """Handler of `progress`: the steps of strategies, in a cell or in a program, become events of their agent."""

    def __init__(self, agent: TreeAgent) -> None:
        self._agent = agent
        self.handlers = {"progress": self._reply}

    async def _reply(self, params: Mapping[str, Any], clock: CellClock | None) -> None:
        await self.report(params, tool_call_id_of(clock))

    async def report(self, step: Mapping[str, Any], tool_call_id: str | None = None) -> None:
        """Emit the event. Args: step: fields of a `StrategyStep`.

        Raises:
            InvalidRequestError: A field is invalid.
        """
        valid = validated(_step().validate_python, step, "agent.progress")
        node = None if valid.node is None else replace(valid.node, **_bounded(valid.node))
        step = {**vars(valid), **_bounded(valid), "node": node}
        await self._agent.emitter.emit(StrategyProgress(**step), tool_call_id=tool_call_id)


def _bounded(value: StrategyStep | SearchedState) -> dict[str, Any]:
    fields = dict[str, Any]()
    for name, given in vars(value).items():
        if isinstance(given, str):
            fields[name] = given[:STEP_CHARS]
        elif isinstance(given, float):
            fields[name] = min(1.0, max(0.0, given))  # no number is 0
        elif isinstance(given, int):
            fields[name] = type(given)(min(MAX_NUMBER, max(0, given)))
    return fields


@cache
def _step() -> TypeAdapter[StrategyStep]:
    return TypeAdapter(StrategyStep)


class TaskParams(AskedChild):
    """Parameters of `agent.task`."""

    task_id: TaskId
    inputs: list[str] = Field(default_factory=list)
    """Lines on the values in the task's file, one each. Empty: there is no file."""
    inputs_digest: str = Field(default="", pattern=r"^[0-9a-f]{0,64}$")
    """The digest of the values in the file. Empty: they are too large."""
    output: dict[str, Any] | None = None
    """The answer's JSON schema. None: text."""
    check: str | None = None
    verify: bool = False
    """Whether the type of the answer has a method `verify`."""
    by_value: Literal["", "pandas.DataFrame", "pandas.Series", "numpy.ndarray"] = ""
    """The type of an answer that is a variable of the child."""
    together: int = Field(default=1, ge=1)
    """The number of children that code starts at once, this one included."""

    @model_validator(mode="after")
    def _turns_are_said_once(self) -> Self:
        if None not in (self.max_turns, self.budget.turns):
            raise ValueError("max_turns and budget['turns'] are the same limit: give one of them")
        return self

    @property
    def variables(self) -> str:
        """The addition to the prompt."""
        lines = "\n".join(f"- {line}" for line in self.inputs)
        return f"These variables are in your kernel, until it is reset:\n{lines}" if lines else ""


@dataclass(kw_only=True, eq=False)
class _WorkingChild:
    """A working child of code in the kernel."""

    request: asyncio.Task[Any] | None
    answers: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)
    """Answers for the kernel to validate."""
    verdict: asyncio.Future[str] | None = None
    """The verdict on the answer that is being validated."""
    checker: asyncio.Task[Any] | None = None
    """The kernel's request that waits for an answer to validate."""

    async def check(self, value: Any) -> str:
        """Return the kernel's objection to an answer; empty if it has none, or does not reply."""
        try:
            return await self._ask(value, verify=False)
        except TimeoutError:
            return ""

    async def verify(self, value: Any) -> str:
        """Return the objection of the type's `verify` to an answer. Raises: TimeoutError: The kernel does not reply."""
        return await self._ask(value, verify=True)

    async def _ask(self, value: Any, *, verify: bool) -> str:
        self.verdict = asyncio.get_running_loop().create_future()
        self.answers.put_nowait({"value": value, "verify": verify})
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                return await self.verdict
        finally:
            self.verdict = None


class TaskRequests:
    """Handler of `task`, `task_check` and `task_cancel`."""

    def __init__(self, calls: CodeCalls, children: ChildOwner, kernel: Callable[[], Awaitable[Kernel]]) -> None:
        """Make the handler. Args: kernel: the one whose code asks."""
        self._calls = calls
        self._children = children
        self._kernel = kernel
        self._tasks: dict[str, _WorkingChild] = {}
        self.handlers = {"task": self._task, "task_check": self._check, "task_cancel": self._cancel}

    @property
    def open_tasks(self) -> int:
        """The number of `agent.task` calls that have not returned."""
        return len(self._tasks)

    async def _task(self, params: Mapping[str, Any], clock: CellClock | None) -> dict[str, Any]:
        asked = validated(TaskParams.model_validate, params, "agent.task")
        task = self._tasks.setdefault(asked.task_id, _WorkingChild(request=None))
        if task.request is not None:
            raise InvalidRequestError("agent.task: this task_id is already in use")
        task.request = asyncio.current_task()
        try:
            request = self._request(asked, task, clock)
            result = await self._carry_out(asked, request, clock)
        finally:
            del self._tasks[asked.task_id]
            if task.checker is not None:
                task.checker.cancel()
        is_block = result.status == "completed" and block_type(type(result.output)) != ""
        return _wire(result, await write_value(result.output, await self._kernel()) if is_block else None)

    def _request(self, asked: TaskParams, task: _WorkingChild, clock: CellClock | None) -> ChildRequest:
        async def prepare(kernel: Kernel) -> str:
            await hand_over(f"values-{asked.task_id}", await self._kernel(), kernel)
            return asked.variables

        return ChildRequest(
            prompt=asked.prompt,
            **asked.chosen,
            output_type=_type(asked, task),
            output_schema=asked.output,
            check=asked.check,
            verify=task.verify if asked.verify else None,
            prepare=prepare if asked.inputs else None,
            inputs_digest=asked.inputs_digest,
            tool_call_id=tool_call_id_of(clock),
        )

    async def _carry_out(self, asked: TaskParams, request: ChildRequest, clock: CellClock | None) -> RunResult:
        async def work() -> EndedCall[RunResult]:
            with paused(clock):
                child = await self._children.run(request, asked.together, by="code")
            return EndedCall(
                value=await child.result(), text=child.report, outcome="success" if child.completed else "failed"
            )

        prompt = f"{asked.prompt}\n\n{asked.variables}" if asked.inputs else asked.prompt
        args = asked.model_dump(mode="json", exclude={"task_id", "inputs_digest", "together"}, exclude_defaults=True)
        return await self._calls.carry_out("task", request.replace(prompt=prompt).call(), args, clock, work)

    async def _check(self, params: Mapping[str, Any], _clock: CellClock | None) -> Any:
        task_id, problem = str(params.get("task_id")), params.get("problem")
        if problem is None:
            # it arrived before its task
            task = self._tasks.setdefault(task_id, _WorkingChild(request=None))
        elif task_id in self._tasks:
            task = self._tasks[task_id]
        else:
            raise InvalidRequestError("agent.task: the child has ended")
        if task.verdict is not None and not task.verdict.done():
            task.verdict.set_result(str(problem)[:MAX_PROBLEM_CHARS])
        task.checker = asyncio.current_task()
        try:
            return await task.answers.get()
        finally:
            if task.request is None:
                self._tasks.pop(task_id, None)

    async def _cancel(self, params: Mapping[str, Any], _clock: CellClock | None) -> None:
        task = self._tasks.get(str(params.get("task_id")))
        for request in (task.request, task.checker) if task is not None else ():
            if request is not None:
                request.cancel()


def _type(asked: TaskParams, task: _WorkingChild) -> Any:
    if asked.by_value:
        module, _, name = asked.by_value.partition(".")
        try:
            return getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            raise InvalidRequestError(f"agent.task: output: {module} is not installed where the program runs") from error
    return str if asked.output is None else output_type_of(asked.output, task.check)


def _wire(result: RunResult, file: str | None) -> dict[str, Any]:
    """Return a result in the form the kernel receives. Args: file: has the answer, if it is an array or a frame."""
    spent = result.tree_usage
    cost = None if spent.cost_usd is None else float(spent.cost_usd)
    usage = {**vars(spent), "tokens": spent.tokens, "cost_usd": cost}
    value = {**result.facts, "usage": usage, "text": result.text, "agent_id": result.agent_id}
    value["node"] = result.node.node_id if result.node is not None else None
    if (made := result.receipts) is not None:
        value["receipts"] = {**vars(made), "printed": made.printed, "nothing_was_run": made.nothing_was_run}
    value |= {"file": file, "output": result.output if result.status == "completed" and file is None else None}
    try:
        wire: dict[str, Any] = to_jsonable_python(value)
    except ValueError as error:
        raise FreeactError(f"the child's answer cannot be sent to the kernel: {error}") from error
    return wire


class NodeParams(Params):
    """Parameters of a request about a node."""

    action: Literal["branch", "execute", "diff", "close", "adopt", "promote"]
    node: str = ""
    """The id. Empty: the agent's own kernel, which can be branched only."""
    description: str = ""
    own_files: bool = False
    code: str = ""
    names: list[str] = Field(default_factory=list)


class NodeRequests:
    """Handler of `node`."""

    def __init__(self, nodes: Nodes, kernel: Callable[[], Awaitable[Kernel]]) -> None:
        """Make the handler. Args: nodes: the agent's. kernel: the one whose code asks."""
        self._nodes = nodes
        self._kernel = kernel
        self.handlers = {"node": self._reply}

    async def _reply(self, params: Mapping[str, Any], clock: CellClock | None) -> Any:
        asked = validated(NodeParams.model_validate, params, "node")
        with paused(clock):
            return await self._do(asked)

    async def _do(self, asked: NodeParams) -> Any:
        if asked.action == "branch" and not asked.node:
            made = await self._nodes.branch(None, asked.description, own_files=asked.own_files)
            return {"node": made.node_id}
        if asked.action == "close" and all(node.node_id != asked.node for node in self._nodes.list()):
            return None  # it is closed
        node = self._nodes.find(asked.node)
        match asked.action:
            case "branch":
                return {"node": (await node.branch(asked.description, own_files=asked.own_files)).node_id}
            case "execute":
                output = await node.execute_asked(asked.code)
                return {"status": output.status, "text": output.text}
            case "diff":
                return _paths(await node.diff())
            case "promote":
                return _paths(await self._nodes.promote(node))
            case "adopt":
                name = await self._nodes.write_values(node, asked.names)
                await move_values(name, await node.kernel.get(), await self._kernel())
                return {"values": name}  # the code that asks reads them: its kernel runs no other cell meanwhile
            case "close":
                return await node.close()


def _paths(changes: "Changes") -> dict[str, list[str]]:
    return {name: [*paths] for name, paths in vars(changes).items()}
