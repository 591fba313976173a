"""`Agent`: what a user of the SDK holds: the root of a tree of agents, with a kernel and a history that last."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.toolsets import AbstractToolset

from freeact_sub.activity import Activities
from freeact_sub.agents.definitions import load_agent_types
from freeact_sub.agents.factory import AgentFactory, DefaultFactory
from freeact_sub.agents.loop import AgentLoop
from freeact_sub.agents.program import Child
from freeact_sub.agents.results import ACTIVE, NO_BOUNDS, AgentInfo, RunResult
from freeact_sub.agents.run import Run
from freeact_sub.agents.tree import AgentNode, AgentTree
from freeact_sub.approvals import Gate, Policy, ProjectRules, load_rules
from freeact_sub.budget import Budget, Usage
from freeact_sub.channel import EventChannel, Tap
from freeact_sub.closing import carry_out
from freeact_sub.config import Config, user_folder
from freeact_sub.errors import AgentBusyError, FreeactError
from freeact_sub.kernels import KernelProvider, make_provider
from freeact_sub.mcp import McpCatalogue
from freeact_sub.models import build_model, build_model_settings, wrap_model
from freeact_sub.tools import SpawnRequest
from freeact_sub.trust import Trust


class Agent:
    """An agent that acts by running code in a kernel of its own, and may start children.

    Use it as an async context manager: leaving it ends its run, its children, its kernel and its MCP connections::

        async with Agent(config) as agent:
            async for event in agent.stream("How many rows has data.csv?"):
                ...
    """

    def __init__(  # noqa: PLR0913  # what a user may replace; all are given by name
        self,
        config: Config | None = None,
        *,
        model: Model | str | None = None,
        toolsets: Sequence[AbstractToolset[Any]] = (),
        capabilities: Sequence[AbstractCapability[Any]] = (),
        output_type: Any = str,
        model_settings: dict[str, Any] | None = None,
        kernel_provider: KernelProvider | None = None,
        taps: Sequence[Tap] = (),
        factory: AgentFactory | None = None,
    ) -> None:
        """Make an agent; nothing is started yet.

        Args:
            config: All settings. Default: `Config()`, which reads no file and no environment (see `load_config`).
            model: A pydantic-ai model, or a model's name, which then replaces `config.model`.
            toolsets: pydantic-ai toolsets for this agent and its children. Their tools ask for approval like ours.
            capabilities: pydantic-ai capabilities for this agent and its children.
            output_type: What the root's answer must be, as pydantic-ai's `output_type`. Children answer with text.
            model_settings: Win over `config.model_settings`.
            kernel_provider: Where kernels come from. Default: what `config.kernel.provider` names.
            taps: Called with every event before the reader gets it.
            factory: Decides what each child is. Default: an agent like its parent.

        Raises:
            ConfigError: There is no model, or it cannot be built; or a file with rules is wrong.
        """
        self.config = config or Config()
        if isinstance(model, str):
            self.config = self.config.model_copy(update={"model": model})
        self._activities = Activities()
        self._taps = (self._activities.observe, *taps)
        self._output_type = output_type
        self._tree = AgentTree(
            config=self.config,
            model=wrap_model(model if isinstance(model, Model) else build_model(self.config), self.config),
            provider=kernel_provider or make_provider(self.config.kernel, on_notice=self._notice),
            catalogue=McpCatalogue(),
            gate=Gate(headless=self.config.headless, project=ProjectRules(self.config.workspace, Trust(user_folder()))),
            policy=Policy(
                workspace=self.config.workspace,
                mode=self.config.mode,
                rules=load_rules(self.config.permission_files),
                network=self.config.kernel.network,
            ),
            toolsets=tuple(toolsets),
            capabilities=tuple(capabilities),
            model_settings={**build_model_settings(self.config), **(model_settings or {})},
            types=load_agent_types(self.config, other_tools=bool(toolsets or capabilities)),
            factory=factory or DefaultFactory(),
        )
        for problem in self._tree.types.problems:
            self._tree.notice(problem)
        self._root: AgentNode = self._tree.add()
        self._loop: AgentLoop | None = None
        self._run: Run | None = None
        self._own_run: asyncio.Task[RunResult] | None = None
        """Reads the run that began because a program started a child while there was none."""
        self._resources = AsyncExitStack()

    @property
    def agent_id(self) -> str:
        """The root agent's id, such as `agent-1f09a2c4`."""
        return self._root.agent_id

    @property
    def history(self) -> list[ModelMessage]:
        """The conversation so far, as the model sees it; each run continues it."""
        return self._root.history

    @property
    def usage(self) -> Usage:
        """What the agent and its descendants have spent in all runs."""
        return sum((node.total for node in self._tree.nodes.values()), Usage())

    def agents(self) -> tuple[AgentInfo, ...]:
        """The root and every child there was, in order of start."""
        infos = (node.info for node in self._tree.nodes.values())
        does = self._activities.of
        return tuple(replace(info, action=does(info.agent_id) if info.status in ACTIVE else "") for info in infos)

    def run(self, prompt: str, *, budget: Budget = NO_BOUNDS) -> Run:
        """Begin a run; see `Run`.

        Args:
            prompt: What to do.
            budget: What the run may spend, with all its children; `config.budget` counts for what it does not name.

        Raises:
            AgentBusyError: The agent's present run has not ended.
            FreeactError: The agent is not open: use `async with`.
        """
        return self._begin(prompt, budget)

    def run_program(self, program: Callable[[], Awaitable[Any]], *, budget: Budget = NO_BOUNDS) -> Run:
        """Begin a run in which a function of yours, and no model, starts the children: with `spawn` and the like.

        What it returns is the result's `output`; if it raises, the run has failed. Children that are still at work when it
        returns are cancelled.

        Args:
            program: Called without arguments.
            budget: What the children may spend together; `config.budget` counts for what it does not name.

        Raises:
            AgentBusyError: The agent's present run has not ended.
            FreeactError: The agent is not open: use `async with`.
        """
        return self._begin(f"[program {getattr(program, '__name__', '')}]", budget, program)

    async def spawn(self, request: SpawnRequest | str) -> Child:
        """Start a child of the root and do not wait for it.

        It belongs to the root's present run: its events are in that stream, and it is cancelled when that run ends. If there
        is none, one begins that lasts until no child is at work; its events go to the taps alone, and nobody is asked.

        Args:
            request: What is asked for; text is a prompt.

        Raises:
            SpawnForbiddenError: No child may be started now, or none of this type.
            FreeactError: It cannot be started; the agent is not open; or its run has not begun, or ends.
        """
        if isinstance(request, str):
            request = SpawnRequest(prompt=request)
        loop = self._opened
        while self._own_run is not None and not loop.program_children.is_open:
            await asyncio.shield(self._own_run)  # it has just come to its end
            loop = self._opened
        if self._run is None:
            run = self.run_program(loop.program_children.until_idle)
            self._own_run = asyncio.create_task(run.result(), name=f"reads the run of {self.agent_id}")
            self._own_run.add_done_callback(self._forget_own_run)
            run.start()
        return await loop.program_children.start(request)

    async def spawn_and_run(self, request: SpawnRequest | str) -> RunResult:
        """Start a child of the root (see `spawn`) and wait for its end, whatever it is. To give up waiting ends it.

        Raises:
            SpawnForbiddenError: No child may be started now, or none of this type.
            FreeactError: It cannot be started; the agent is not open; or its run has not begun, or ends.
        """
        child = await self.spawn(request)
        try:
            result = await child.result()
        except asyncio.CancelledError:
            child.cancel()
            raise
        if self._own_run is not None and self._opened.program_children.is_idle:
            await asyncio.shield(self._own_run)  # whoever waited for the last one may begin a run
        return result

    async def run_parallel(self, requests: Iterable[SpawnRequest | str]) -> list[RunResult | Exception]:
        """Start children of the root (see `spawn`) side by side, within `subagents.max_concurrent`, and wait for all.

        Returns:
            One for each request, in their order. A child that did not complete is a result with another status; one that
            could not be started is the exception.
        """

        async def one(request: SpawnRequest | str) -> RunResult | Exception:
            try:
                return await self.spawn_and_run(request)
            except Exception as error:  # noqa: BLE001  # border: one that cannot be started takes nothing from the others
                return error

        return await asyncio.gather(*(one(request) for request in requests))

    async def stream(self, prompt: str, *, budget: Budget = NO_BOUNDS) -> AsyncIterator[Any]:
        """The events of a run; the arguments are those of `run`.

        Leaving the loop early cancels the run. To use the agent again after that, close the stream first:
        `async with contextlib.aclosing(agent.stream(prompt)) as events`.
        """
        async with self.run(prompt, budget=budget) as run:
            async for event in run:
                yield event

    async def aclose(self) -> None:
        """End all that is open. Can be called again."""
        await carry_out(self._close(), timeout_seconds=60)

    async def open(self) -> Self:
        """Open the agent without `async with`, for example to keep it across a notebook's cells; `aclose()` ends it."""
        self._resources.push_async_callback(self._tree.provider.aclose)
        await self._resources.enter_async_context(self._tree.model)  # its HTTP client is closed when the agent is
        self._resources.push_async_callback(self._tree.other_models.aclose)
        self._loop = AgentLoop(self._root, output_type=self._output_type)
        self._resources.push_async_callback(self._loop.resources.aclose)
        self._loop.resources.kernel.start_soon()  # it is there when the first prompt is
        return self

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _close(self) -> None:
        self._loop = None
        if self._run is not None:
            await self._run.aclose()
        if self._own_run is not None:
            await asyncio.wait({self._own_run})
        for background in tuple(self._tree.backgrounds):
            await background.aclose()
        await self._resources.aclose()

    @property
    def _opened(self) -> AgentLoop:
        if self._loop is None:
            raise FreeactError("the agent is not open: use it as `async with Agent(...) as agent`")
        return self._loop

    def _begin(self, prompt: str, budget: Budget, program: Callable[[], Awaitable[Any]] | None = None) -> Run:
        loop = self._opened
        if self._run is not None:
            raise AgentBusyError("the agent is at work: wait for its run to end, cancel it, or close its stream")
        self._tree.channel = EventChannel(self.config.event_buffer, self._taps)
        self._run = Run(loop, prompt, budget=budget, on_end=self._forget_run, program=program)
        return self._run

    def _forget_own_run(self, task: asyncio.Task[RunResult]) -> None:
        del task
        self._own_run = None

    def _notice(self, text: str) -> None:
        self._tree.notice(text)

    def _forget_run(self) -> None:
        self._run = None
