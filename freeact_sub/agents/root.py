"""The root of a tree of agents (`Root`), which is opened and closed, and begins runs one after the other.

The arguments of `Agent` are checked as they are given: a wrong part is named here, not where a run meets it.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Final, TypedDict

from pydantic_ai import AbstractToolset, BinaryContent, Tool
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model

from freeact_sub.agents.answers import check_output
from freeact_sub.agents.call import caller_in, run_own_cell
from freeact_sub.agents.children import AgentProgram, Work
from freeact_sub.agents.feature import Feature, FeatureRoot, Features
from freeact_sub.agents.kernel import AgentKernel
from freeact_sub.agents.life import Tree, TreeAgent
from freeact_sub.agents.loop import AgentLoop
from freeact_sub.agents.prompt import Prompt, read_prompt
from freeact_sub.agents.requests import validated
from freeact_sub.agents.results import NO_BOUNDS, AnswerT, RunResult
from freeact_sub.agents.run import Course, Run
from freeact_sub.agents.shared import Shared
from freeact_sub.approvals import Approve, Gate, OpenQuestions, Policy, ProjectRules, RuleFiles
from freeact_sub.channel import EventChannel, Tap, check_event_loop, running_loop
from freeact_sub.config.budget import Budget
from freeact_sub.config.schema import Config, notices_on, user_folder
from freeact_sub.config.trust import Trust
from freeact_sub.errors import AgentBusyError, ConfigError, FreeactError, InvalidRequestError
from freeact_sub.kernels import Kernel, KernelProvider, put_values
from freeact_sub.models import build_model_settings, make_traffic, usable_model
from freeact_sub.modes import MODES, Mode
from freeact_sub.system.closing import carry_out, end_left_behind, end_task, is_left_behind
from freeact_sub.system.process import hear_of_children
from freeact_sub.text import one_line
from freeact_sub.tools import ChildRequest
from freeact_sub.tools.toolset import make_own_tools

CLOSE_SECONDS: Final = 60.0
NOT_OPEN: Final = "the agent is not open: use it as `async with Agent(...) as agent`"
LOOP_ENDED: Final = (
    "the event loop in which the agent was opened has ended, and the agent was closed with it: open, use and close it in "
    "one event loop"
)
NOT_A_PROGRAM: Final = "agent.run_program takes an async function without parameters, not {given}"
MODE_CHANGED: Final = "calls are judged by mode {mode} from now on; its wall is around the kernel from the next prompt on"

TASK_FIELDS: Final = frozenset(ChildRequest.model_fields) - {
    "prompt",
    "content",
    "prepare",
    "verify",
    "tool_call_id",
    "output_schema",
}
"""Options of `Agent.task` that are fields of the request."""


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Arguments of an `Agent`, under their names there."""

    config: Config
    model: Model | None
    """The model. None: the settings'."""
    features: Sequence[Feature]
    """All features, with those that other arguments ask for."""
    tools: Sequence[Tool[Any] | Callable[..., Any]]
    deps: Any
    toolsets: Sequence[AbstractToolset[Any]]
    capabilities: Sequence[AbstractCapability[Any]]
    output_type: Any
    model_settings: Mapping[str, Any]
    kernel_provider: KernelProvider | None
    taps: Sequence[Tap]
    history: Sequence[ModelMessage]
    approve: Approve | None
    root_id: str | None = None
    """The id of the root in an earlier program. None: a new one."""
    notices: Sequence[str] = ()
    """Notices shown to people at the start of the first run."""


def arguments_of(given: Mapping[str, Any], features: Sequence[Feature]) -> Arguments:
    """Return the arguments of `Agent`. Args: given: checked, by name.

    Raises:
        ConfigError: Another model has the name of a setting, or is no model.
    """
    config, model = given["config"] or Config(), given["model"]
    if given["models"]:
        config = config.model_copy(update={"models": config.models.with_names(given["models"])})
    if isinstance(model, str):
        config, model = config.model_copy(update={"model": model}), None
    settings = given["model_settings"] or {}
    told: dict[str, Any] = {field.name: given[field.name] for field in fields(Arguments) if field.name in given}
    told |= {"config": config, "model": model, "features": features, "model_settings": settings}
    return Arguments(**told)


PROVIDER: Final = ("place", "hook", "start", "aclose")
OF_NAME: Final = "a provider is named by the settings, as `Config(kernel={{'provider': {!r}}})`"


def check_config(config: Any) -> None:
    """Check the first argument. Raises: ConfigError: It is not a `Config`."""
    if config is None or isinstance(config, Config):
        return
    if isinstance(config, str | Model):
        shown = repr(config) if isinstance(config, str) else "model"
        raise ConfigError(f"the first argument of Agent is a Config; a model is given as Agent(model={shown})")
    if isinstance(config, Mapping):
        raise ConfigError("the first argument of Agent is a Config, not a dict: write Agent(Config(**settings))")
    raise ConfigError(f"the first argument of Agent is a Config, not {_shown(config)}; a model is given as Agent(model=...)")


def check_arguments(given: Mapping[str, Any]) -> None:
    """Check the other arguments. Args: given: values by name; arguments with checks of their own may be missing.

    Raises:
        ConfigError: One has the wrong type; the message has its name and the way to write it.
    """
    for name, check in ITEMS.items():
        for item in _items(name, given.get(name)):
            if problem := check(item):
                raise ConfigError(f"{name}: {problem}")
    for name, check in VALUES.items():
        if given.get(name) is not None and (problem := check(given[name])):
            raise ConfigError(f"{name}: {problem}")


def _items(name: str, value: Any) -> Sequence[Any]:
    if value is None:
        return ()
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence | set | frozenset):
        raise ConfigError(f"{name} takes a list, not {_shown(value)}: write {name}=[...]")
    return tuple(value)


def _shown(value: Any) -> str:
    """Return a wrong value for a message: a function by its name."""
    if inspect.isroutine(value):
        return f"the function {value.__name__}"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if value is None or isinstance(value, str | int | float | bytes):
        return one_line(repr(value), 60)
    return f"a {type(value).__name__}"


def _toolset(item: Any) -> str:
    if isinstance(item, AbstractToolset):
        return ""
    if isinstance(item, PydanticAgent):
        return "an Agent of pydantic-ai is no toolset: its toolsets are, as `toolsets=other.toolsets`"
    if inspect.isroutine(item):
        return f"{_shown(item)} is no toolset: a function is given as `tools=[{item.__name__}]`"
    return f"{_shown(item)} is no toolset of pydantic-ai"


def _capability(item: Any) -> str:
    return "" if isinstance(item, AbstractCapability) else f"{_shown(item)} is no capability of pydantic-ai"


def _tap(item: Any) -> str:
    if not callable(item) or isinstance(item, type):
        return f"{_shown(item)} is no function of an event"
    if inspect.iscoroutinefunction(item) or inspect.iscoroutinefunction(getattr(item, "__call__", None)):  # noqa: B004
        return f"{_shown(item)} is async: a tap is a plain function, which is called with each event"
    return ""


def _methods(what: str, names: Sequence[str], hint: Callable[[Any], str] = lambda _: "") -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if isinstance(value, type):
            return f"{_shown(value)} is given instead of an object of it"
        missing = [name for name in names if not callable(getattr(value, name, None))]
        if not missing:
            return ""
        return f"{_shown(value)} is no {what}: it has no method `{missing[0]}`" + (
            f"; {said}" if (said := hint(value)) else ""
        )

    return check


def _models(value: Any) -> str:
    if not isinstance(value, Mapping):
        return f"models are given by their names, as {{'small': model}}, not as {_shown(value)}"
    for name, model in value.items():
        if not isinstance(name, str):
            return f"the name of a model is a text, not {_shown(name)}"
        if not isinstance(model, str | Model):
            return f"{name!r} must be the name of a model or a Model of pydantic-ai, not {_shown(model)}"
    return ""


def _of(kind: type | tuple[type, ...], what: str) -> Callable[[Any], str]:
    return lambda value: "" if isinstance(value, kind) else f"it is {what}, not {_shown(value)}"


ITEMS: Final[Mapping[str, Callable[[Any], str]]] = {
    "tools": lambda _: "",  # `make_own_tools` knows what can be one
    "hooks": lambda _: "",  # the feature looks at each
    "features": lambda _: "",  # `Features` knows what can be one
    "toolsets": _toolset,
    "capabilities": _capability,
    "taps": _tap,
    "history": lambda _: "",  # `checked_history` knows what a message is
}
VALUES: Final[Mapping[str, Callable[[Any], str]]] = {
    "model": _of((str, Model), "the name of a model or a Model of pydantic-ai"),
    "models": _models,
    "model_settings": _of(Mapping, "a dict, such as {'temperature': 0.1}"),
    "kernel_provider": _methods(
        "KernelProvider", PROVIDER, lambda value: OF_NAME.format(value) if isinstance(value, str) else ""
    ),
    "factory": _methods("AgentFactory", ("create",)),
    "store": _methods("SessionStore", ("sessions", "find", "reader", "open", "is_open", "folder_of", "fork")),
    "approve": lambda value: "" if callable(value) and not isinstance(value, type) else f"{_shown(value)} is no function",
    "session": _of(str, "'new', or the id of a session"),
}


@dataclass(frozen=True, kw_only=True)
class DebugState:
    """A snapshot, whose fields may change in any version."""

    agents: Mapping[str, TreeAgent]
    """The agents by id, in the order in which they started; the root comes first."""
    at_work: tuple[str, ...]
    """The ids of the agents with a live run."""
    free_slots: int
    kernel_holders: tuple[str, ...]
    """The ids of the agents and nodes that hold a place for a kernel, sorted."""
    waiting_for_kernels: int
    """The number of agents that wait for a place."""
    waiting_for_budget: int
    """The number of model requests that wait until others return budget."""
    waiting_messages: tuple[str, ...]
    """Messages that the root's model reads before its next prompt."""
    open_tasks: int
    """The number of `agent.task` calls by code in the root's kernel that have not returned."""

    @property
    def root(self) -> TreeAgent:
        """The agent without a parent."""
        return next(iter(self.agents.values()))


def debug_state(tree: Tree, loop: AgentLoop | None) -> DebugState:
    """Take a snapshot. Args: loop: the root's. None: the agent is not open."""
    shared = tree.shared
    return DebugState(
        agents=dict(tree.agents),
        at_work=tuple(tree.at_work),
        free_slots=shared.slots.value,
        kernel_holders=tuple(sorted(holder.agent_id for holder in shared.kernel_places.holders)),
        waiting_for_kernels=shared.kernel_places.waiting,
        waiting_for_budget=tree.ledger.waiting,
        waiting_messages=tuple(shared.stream.messages),
        open_tasks=0 if loop is None else loop.run_requests.tasks.open_tasks,
    )


class RunOptions(TypedDict, total=False):
    """The options of `Agent.run`, for type checkers."""

    inputs: Mapping[str, Any] | None
    budget: Budget
    pictures: Sequence[BinaryContent]


class Root:
    """The state behind the methods of `Agent`."""

    def __init__(
        self,
        tree: Tree,
        agent: TreeAgent,
        *,
        output_type: Any,
        closes_provider: bool,
    ) -> None:
        """Make the root; start nothing.

        Args:
            tree: All agents.
            agent: The root among them.
            output_type: The type of the root's answer.
            closes_provider: Whether the provider of kernels is closed with the root.
        """
        self.tree, self.agent = tree, agent
        self.taps: Sequence[Tap] = ()
        self.loop: AgentLoop | None = None
        """The loop. None: the root is not open."""
        self._output_type = check_output(output_type, "Agent")
        self._closes_provider = closes_provider
        self.live_run: Course | None = None
        self.home: asyncio.AbstractEventLoop | None = None
        """The event loop that opened the root; its kernel, connections and tasks live there."""
        self._resources = AsyncExitStack()
        self._judging: asyncio.Task[None] | None = None
        self._loop_end: AsyncGenerator[None] | None = None
        """A generator that closes the root when its event loop ends (`_until_loop_ends`)."""
        self._outlived_loop = False
        """Whether the root was closed because its event loop had ended."""

    def find(self, agent_id: str) -> TreeAgent | None:
        """Return an agent of the tree. None: none has this id, or it is forgotten."""
        return self.tree.agents.get(agent_id)

    def notice(self, text: str) -> None:
        """Show a notice to people, in the next run if none is live."""
        self.tree.notice(text)

    @property
    def mode(self) -> Mode:
        """The mode: the actions that the agent and its children may take unasked. Can be set at any time."""
        return self.tree.shared.gate.mode or self.tree.shared.policy.mode

    def use_mode(self, mode: Mode) -> None:
        """Set the mode. Raises: ConfigError: There is no such mode."""
        shared = self.tree.shared
        if mode not in MODES:
            raise ConfigError(f"the mode must be one of {', '.join(MODES)}, not {mode!r}")
        if mode == self.mode:
            return
        shared.provider.place(mode, shared.config.kernel, shared.config.workspace)  # it may refuse
        shared.gate.mode = mode
        if self.loop is None:
            return
        check_event_loop(self.home)
        if self.live_run is None:
            self.loop.kernel.use_mode()
        else:
            self.tree.notice(MODE_CHANGED.format(mode=mode))
        self._judging = asyncio.create_task(shared.gate.judge_again(), name="judges open questions again")

    @property
    def opened(self) -> AgentLoop:
        """The loop of the open root. Raises: FreeactError: It is not open."""
        if self.loop is None:
            raise FreeactError(NOT_OPEN if not self._outlived_loop else LOOP_ENDED)
        check_event_loop(self.home)
        return self.loop

    @property
    def callers_loop(self) -> AgentLoop:
        """The loop of the agent on whose behalf this is called."""
        root, caller = self.opened, caller_in(self.tree.shared)
        loop = root if caller is None or caller is self.agent else self.tree.at_work.get(caller.agent_id)
        if not isinstance(loop, AgentLoop):
            raise FreeactError(f"the run of {caller and caller.agent_id}, which this call belongs to, has ended")
        return loop

    def begin(self, work: Work, budget: Budget = NO_BOUNDS) -> Run[Any]:
        """Make a run, which begins when it is first used. Raises as `Agent.run` does."""
        return Run(self._course(work, budget))

    @property
    def present_run(self) -> Run[Any] | None:
        """The live run, if there is one."""
        course = self.live_run
        return None if course is None else (course.run and course.run()) or Run(course)

    def _course(self, work: Work, budget: Budget = NO_BOUNDS) -> Course:
        loop = self.opened
        budget = validated(Budget.model_validate, budget, "budget")
        self._ending_run()
        channel = EventChannel(self.tree.shared.config.event_buffer, self.taps)
        return Course(self, loop, work, channel=channel, budget=budget)

    def _ending_run(self) -> Course | None:
        """Return the run that must end before another one. Raises: AgentBusyError: A run is live and not about to end."""
        if self.live_run is not None and not (self.live_run.is_ending or self.live_run.gives_way):
            raise AgentBusyError("the agent is busy: wait for its run to end, cancel it, or close its stream")
        return self.live_run

    def take(self, run: Course) -> Course | None:
        """Make a run the live one. Returns the run that must end first.

        Raises:
            AgentBusyError: A run is live and not about to end.
            FreeactError: The agent is closed.
        """
        if self.loop is None:
            raise FreeactError("the agent was closed before this run began: open it, and make a new run")
        before, self.live_run = self._ending_run(), run
        if before is not None and before.gives_way:
            before.leave()
        return before

    def forget(self, run: Course) -> None:
        """Note that a run has ended."""
        if self.live_run is run:
            self.live_run = None

    def run(
        self,
        prompt: Prompt,
        *,
        output: Any,
        inputs: Mapping[str, Any],
        budget: Budget,
        pictures: Sequence[BinaryContent],
    ) -> Run[Any]:
        """Make a run that carries out the prompt; it begins when it is first used."""
        if (
            isinstance(pictures, str)
            or not isinstance(pictures, Sequence)
            or not all(isinstance(picture, BinaryContent) for picture in pictures)
        ):
            raise InvalidRequestError(
                "agent.run: pictures are a list of BinaryContent of pydantic-ai; files are in the prompt"
            )
        text, content = ("", ()) if pictures and prompt == "" else read_prompt(prompt)
        if output is not None:
            check_output(output, "agent.run")
        if not isinstance(inputs, Mapping):
            raise InvalidRequestError(f"agent.run: inputs are values by their names, not {type(inputs).__name__}")
        if pictures:
            content = (*(content or (text,)), *pictures)
        prepare = with_inputs(inputs) if inputs else None
        return self.begin(Work(prompt=text, content=content, prepare=prepare, output_type=output), budget)

    def run_cell(self, code: str) -> Run[str]:
        """Make a run without a model that runs a cell in the agent's kernel; the code `!command` runs a command."""
        if not isinstance(code, str):
            raise InvalidRequestError(f"agent.run_cell: code is a text, not {type(code).__name__}")
        return self.begin(Work(prompt=code, program=partial(_run_user_cell, self.opened, code)))

    def run_program(self, program: AgentProgram, budget: Budget = NO_BOUNDS) -> Run[Any]:
        """Make a run that a program drives. Raises as `Agent.run` does."""
        check_program(program)
        return self.begin(Work(prompt=_title_of(program), program=program), budget)

    def run_sync(self, make: Callable[[], Run[AnswerT]]) -> RunResult[AnswerT]:
        """Open the agent, wait for the end of a run, and close the agent. Args: make: makes the run."""
        if running_loop() is not None:
            raise FreeactError(
                "run_sync cannot be used where an event loop runs (async code, a notebook): write "
                "`async with agent: result = await agent.run(prompt).result()`"
            )
        if self.loop is not None:
            raise FreeactError("run_sync opens and closes the agent itself, but this agent is already open: use `agent.run`")

        async def run() -> RunResult[AnswerT]:
            await self.open()
            try:
                return await make().result()
            finally:
                await self.aclose()

        return asyncio.run(run())

    async def is_busy(self) -> bool:
        """Wait for the end of a run that is ending; return whether another one is live."""
        check_event_loop(self.home)
        await self._until_settled()
        return self.live_run is not None

    def follow_background(self, hear: Callable[[Any], None]) -> None:
        """Receive events of background children while no run is live; otherwise they are dropped, and approvals denied."""
        if not callable(hear):
            raise InvalidRequestError(f"agent.follow_background takes a function of an event, not {type(hear).__name__}")
        self.tree.shared.stream.follow(hear, self.taps)

    async def settle(self) -> None:
        """Wait for the end of a run that is ending, unless the caller is a part of it."""
        if caller_in(self.tree.shared) in (None, self.agent):
            await self._until_settled()

    async def _until_settled(self) -> None:
        while self.live_run is not None and self.live_run.is_ending:
            await self.live_run.ended()

    def on_close(self, close: Callable[[], Awaitable[None]]) -> None:
        """Call this when the root is closed, before earlier additions."""
        self._resources.push_async_callback(close)

    async def open(self) -> None:
        """Open the agent without `async with`, for example to keep it across a notebook's cells; `aclose()` closes it."""
        if self.loop is not None:
            raise FreeactError("the agent is already open: open it once and share it")
        if is_left_behind():
            await asyncio.to_thread(end_left_behind)
        hear_of_children()
        self.home = asyncio.get_running_loop()
        try:
            await self._open()
            self._outlived_loop, self._loop_end = False, self._until_loop_ends()
            await anext(self._loop_end)
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Close the agent and everything in it. It can be opened again, with its history and a new kernel.

        If its event loop was closed, only its processes can be ended, and it cannot be opened again.
        """
        if self.home is not None and self.home.is_closed():
            await asyncio.to_thread(end_left_behind)
            return
        check_event_loop(self.home)
        await carry_out(self._close(), timeout_seconds=CLOSE_SECONDS)

    async def _until_loop_ends(self) -> AsyncGenerator[None]:
        """Close the agent when its event loop ends: `asyncio.run` and the like then close all asynchronous generators."""
        try:
            yield
        finally:
            if self._loop_end is not None:
                self._outlived_loop, self._loop_end = True, None
                await self.aclose()

    async def _open(self) -> None:
        shared = self.tree.shared
        shared.renew()
        for feature in shared.features:
            await self._resources.enter_async_context(feature.around())
        for child in self.tree.agents.values():
            child.run.record.model_is_closed = True
        from freeact_sub.kernels.files import UNDONE, recover  # noqa: PLC0415  # only an agent that opens needs it

        if recover(shared.config.workspace):
            self.tree.notice(UNDONE)
        if self._closes_provider:
            self.on_close(shared.provider.aclose)
        await self._resources.enter_async_context(shared.model)  # closes its HTTP client with the agent
        self.on_close(shared.other_models.aclose)
        kernel = AgentKernel(self.agent)
        kernel.use_mode()
        self.loop = AgentLoop(
            self.agent,
            self.tree,
            kernel,
            output_type=self._output_type,
            begin_run=self._begin_if_idle,
        )
        self.on_close(kernel.aclose)
        if self.agent.run.record.history:
            kernel.past.begin_again()
        for feature in shared.features:
            await self._resources.enter_async_context(feature.open())
        kernel.start_soon()  # ready when the first prompt comes

    async def _close(self) -> None:
        self.loop = self.home = None
        ended, self._loop_end = self._loop_end, None
        if ended is not None:
            await ended.aclose()
        if self._judging is not None:
            await end_task(self._judging)
        if self.live_run is not None:
            await self.live_run.aclose()
        for close in self.tree.outliving:
            await close()
        self.tree.outliving.clear()
        await self._resources.aclose()

    async def _begin_if_idle(self) -> None:
        is_outside = caller_in(self.tree.shared) is None
        while (run := self.live_run) is not None and not (self.opened.children.is_open and not run.is_ending):
            if (first := run if run.is_ending and is_outside else run.ends_first) is None:
                return
            await first.ended()
        if run is None:
            until_idle = self.opened.children.until_idle
            self._course(Work(prompt=_title_of(until_idle), program=until_idle)).start_without_reader()


def check_program(program: Any) -> None:
    """Check the function for `run_program`. Raises: InvalidRequestError: It cannot be called without arguments."""
    if inspect.isawaitable(program):
        if inspect.iscoroutine(program):
            program.close()  # nobody will await it
        raise InvalidRequestError(NOT_A_PROGRAM.format(given="a call that has begun: write `lambda: agent.ask(...)`"))
    if not callable(program):
        raise InvalidRequestError(NOT_A_PROGRAM.format(given=type(program).__name__))
    try:
        inspect.signature(program).bind()
    except TypeError as error:
        given = f"one with others ({error}): write `lambda: {getattr(program, '__name__', 'program')}(...)`"
        raise InvalidRequestError(NOT_A_PROGRAM.format(given=given)) from error
    except ValueError:
        return  # it does not tell its parameters


def _title_of(program: AgentProgram) -> str:
    """Return the purpose of a program: the first line of its docstring, else its name."""
    told = (inspect.getdoc(program) or "").partition("\n")[0] if inspect.isroutine(program) else ""
    name = getattr(program, "__name__", "").replace("<lambda>", "")
    return told or f"[program {name}]".replace(" ]", "]")


async def _run_user_cell(loop: AgentLoop, code: str) -> str:
    """Run a cell of a person in a run without a model: under the agent's rules, its mode and its wall.

    The answer is empty: the output of the cell is among the events.

    Raises:
        LimitReachedError: The budget has no call left.
        ApprovalDeniedError: The cell is denied.
        KernelLostError: The kernel is lost for good.
    """
    kernel = loop.kernel
    await kernel.bring_back()
    await run_own_cell(code, "user-", loop.agent, kernel.get, loop.tool_context, may_replace_kernel=True)
    return ""


def with_inputs(values: Mapping[str, Any]) -> Callable[[Kernel], Awaitable[str]]:
    """Return a function that puts values into a kernel and describes them for its model."""

    async def prepare(kernel: Kernel) -> str:
        lines = "\n".join(f"- {line}" for line in await put_values(values, kernel))
        return f"These variables are in your kernel, until it is reset:\n{lines}"

    return prepare


def request_for(request: ChildRequest | str) -> ChildRequest:
    """Return the request for a child. Args: request: a request, or the prompt of the child."""
    return request if isinstance(request, ChildRequest) else request_of(request, {})


def request_of(prompt: "Prompt", options: Mapping[str, Any]) -> ChildRequest:
    """Return the request for a child. Args: options: those of `Agent.task`.

    Raises:
        InvalidRequestError: An option is invalid; the message names it.
    """
    rest = {name: value for name, value in options.items() if value is not None}
    inputs, output, turns = rest.pop("inputs", {}), rest.pop("output", None), rest.pop("max_turns", None)
    if unknown := [name for name in rest if name not in TASK_FIELDS]:
        raise InvalidRequestError(
            f"agent.task: unknown option {unknown[0]!r}: the known ones are {', '.join(sorted(TASK_FIELDS))}"
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


def make_shared(arguments: Arguments, on_notice: Callable[[str], None]) -> Shared:
    """Make the shared state of a new root's agents. Args: on_notice: shows a text to people.

    Raises:
        ConfigError: No model is set, or it cannot be built; or a rule file is invalid.
    """
    from freeact_sub.kernels.provider import make_provider  # noqa: PLC0415  # it needs Jupyter

    config, own_tools = arguments.config, make_own_tools(arguments.tools, arguments.deps)
    traffic, trust = make_traffic(config), Trust(user_folder())
    rules = RuleFiles(config.permission_files, config.workspace, trust)
    return Shared(
        config=config,
        model=usable_model(config, traffic, arguments.model),
        traffic=traffic,
        provider=arguments.kernel_provider or make_provider(config.kernel, on_notice=on_notice),
        gate=Gate(
            headless=config.headless,
            project=ProjectRules(config.workspace, trust),
            files=rules,
            timeout_seconds=config.approval_timeout_seconds,
            approve=arguments.approve,
        ),
        questions=OpenQuestions(headless=config.headless is not None, timeout_seconds=config.approval_timeout_seconds),
        rule_files=rules,
        policy=Policy(workspace=config.workspace, mode=config.mode, rules=rules.rules, network=config.kernel.network),
        own_tools=own_tools,
        toolsets=(*own_tools.toolsets, *arguments.toolsets),
        capabilities=tuple(arguments.capabilities),
        model_settings={**build_model_settings(config), **arguments.model_settings},
        features=Features(arguments.features),
    )


def make_root(arguments: Arguments) -> Root:
    """Make the root of a new tree. Raises as `Agent` does."""

    def notice(text: str) -> None:
        tree.notice(text)

    shared = make_shared(arguments, notice)
    tree = Tree(shared=shared)
    agent = tree.add_root([*arguments.history], arguments.root_id)
    for text in arguments.notices:
        tree.notice(text)
    closes_provider = arguments.kernel_provider is None
    root = Root(tree, agent, output_type=arguments.output_type, closes_provider=closes_provider)
    root.taps = (shared.activities.observe, *shared.features.attach(root), *arguments.taps)
    tree.add_parts()
    for problem in notices_on(shared.servers):
        tree.notice(problem)
    return root


def whole_root(root: FeatureRoot) -> Root:
    """Return the whole root, for features with methods of `Agent`."""
    if not isinstance(root, Root):
        raise TypeError(f"{root!r} is no root of a tree")
    return root
