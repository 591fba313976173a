"""`Agent`, the entry point of the SDK: the root of a tree of agents, whose kernel and history outlast each run."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Generic, Self

from pydantic_ai import BinaryContent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.output import OutputSpec
from pydantic_ai.toolsets import AbstractToolset
from typing_extensions import TypeVar

from freeact_sub.agents.caller import caller_in
from freeact_sub.agents.children.spawn import Work
from freeact_sub.agents.context.methods import ContextMethods
from freeact_sub.agents.debug import DebugState, debug_state
from freeact_sub.agents.factory import AgentFactory
from freeact_sub.agents.from_program import AsInACell
from freeact_sub.agents.history import checked_history
from freeact_sub.agents.resources import AgentResources
from freeact_sub.agents.runs.event_stream import EventStream
from freeact_sub.agents.runs.loop import AgentLoop
from freeact_sub.agents.runs.results import NO_BOUNDS, AgentInfo, AnswerT, RunResult
from freeact_sub.agents.runs.run import RootRun, RootRuns, Run
from freeact_sub.agents.runs.user_cells import UserCells
from freeact_sub.agents.sessions.agent_session import NEW, AgentSession
from freeact_sub.agents.shared import make_shared
from freeact_sub.agents.tree import AgentNode, Tree
from freeact_sub.agents.undo import Undoable
from freeact_sub.approvals.rules.rule import Rule
from freeact_sub.channel import DirectChannel, EventChannel, Tap
from freeact_sub.config.budget import Budget, Usage
from freeact_sub.config.schema import Config
from freeact_sub.errors import AgentBusyError, ConfigError, FreeactError
from freeact_sub.events import Event
from freeact_sub.kernels import UNDONE, KernelProvider, recover
from freeact_sub.sessions import SessionStore, state_folder
from freeact_sub.system.closing import carry_out
from freeact_sub.system.event_loop import check_event_loop, running_loop

OutputT = TypeVar("OutputT", default=str)
"""The type of a root's answer."""


class Agent(AsInACell, ContextMethods, Undoable, UserCells, Generic[OutputT]):
    """An agent that acts by running code in its own kernel and may start children.

    Use it as an async context manager: leaving it ends its run, its children, its kernel and its MCP connections::

        async with Agent(config) as agent:
            async for event in agent.stream("How many rows has data.csv?"): print(event)
    """

    def __init__(  # noqa: PLR0913  # what a user may replace; all are given by name
        self,
        config: Config | None = None,
        *,
        model: Model | str | None = None,
        toolsets: Sequence[AbstractToolset[Any]] = (),
        capabilities: Sequence[AbstractCapability[Any]] = (),
        output_type: OutputSpec[OutputT] = str,  # type: ignore[assignment]  # the default of OutputT
        model_settings: dict[str, Any] | None = None,
        kernel_provider: KernelProvider | None = None,
        taps: Sequence[Tap] = (),
        factory: AgentFactory | None = None,
        history: Sequence[ModelMessage] = (),
        session: str | None = None,
        replay: bool = False,
    ) -> None:
        """Make an agent; nothing is started yet.

        Args:
            config: All settings. Default: `Config()`, which reads neither files nor environment (see `load_config`).
            model: A pydantic-ai model, or the name of one; replaces `config.model`.
            toolsets: pydantic-ai toolsets for this agent and its children. Their tools need approval like the built-in ones.
            capabilities: pydantic-ai capabilities for this agent and its children.
            output_type: The type of the root's answer, as pydantic-ai's `output_type`. Children answer with text.
            model_settings: Override `config.model_settings`.
            kernel_provider: Starts the kernels. Its creator closes it, after the agents that use it. Default: the one that
                `config.kernel.provider` names; the agents of an event loop share it, and the last one closes it.
            taps: Called with every event before the reader receives it.
            factory: Decides what each child is. Default: an agent like its parent.
            history: A conversation to continue, as returned by `Agent.history`. The model is told that its kernel is new.
            session: `new` records everything on disk; the id of a session continues it; None records nothing.
            replay: Before the first prompt, run the session's cells again, with approvals, instead of reading its variables.

        Raises:
            ConfigError: No model is set, or it cannot be built; a rule file is invalid; or `history` is not a conversation.
            SessionError: The session does not exist or cannot be read.
        """
        if session not in (None, NEW) and history:
            raise ConfigError("give either `history` or the id of a session, which has its own history")
        self.config = config or Config()
        if model is not None and not isinstance(model, str | Model):
            raise ConfigError(f"`model` must be a name or a Model of pydantic-ai, not a {type(model).__name__}")
        if isinstance(model, str):
            self.config = self.config.model_copy(update={"model": model})
        self._output_type = output_type
        is_given = isinstance(model, Model)
        self._session = AgentSession(session, self.config, self._notice, replay=replay, has_model=is_given)
        self.config = self._session.config
        self._shared = make_shared(
            self.config,
            model=model if isinstance(model, Model) else None,
            toolsets=toolsets,
            capabilities=capabilities,
            model_settings=model_settings or {},
            kernel_provider=kernel_provider,
            factory=factory,
            journal=self._session.journal,
            on_notice=self._notice,
        )
        self._session.use_model(self._shared.model, is_given=is_given)
        self._tree = Tree(shared=self._shared)
        self._taps = (self._session.observe, self._shared.activities.observe, *taps)
        for problem in self._shared.types.problems:
            self._tree.notice(problem)
        self._root = self._session.add_root(self._tree, checked_history(history))
        self._closes_provider = kernel_provider is None
        self._home: asyncio.AbstractEventLoop | None = None
        """The event loop that opened the agent; its kernel, connections and tasks live there."""
        self._loop: AgentLoop | None = None
        self._runs = RootRuns()
        self._resources = AsyncExitStack()

    @classmethod
    def resume(cls, session_id: str, config: Config | None = None, **options: Any) -> Self:
        """Make an agent that continues a session, in its workspace and with its model.

        Args:
            session_id: The id, or an unambiguous prefix of it.
            config: All settings. None: the session's workspace, and defaults. The settings of its model (name, `base_url`,
                `fallback_models` and so on) count where `config` and `options` set no other model.
            options: As for the constructor.

        Raises:
            SessionError: The session does not exist or cannot be read, or does not say at which address its model is.
        """
        stored = SessionStore(state_folder()).find(session_id)
        config = config or Config(workspace=stored.workspace)
        return cls(config, session=stored.session_id, **options)

    async def fork(self) -> str:
        """Copy the session as it is now; both go on, the copy by `Agent.resume`. They share the files of the workspace.

        Returns: The id of the copy.

        Raises:
            AgentBusyError: A run is live, of the agent or of a detached child.
            SessionError: There is no session, or it cannot be copied.
        """
        check_event_loop(self._home)
        await self._runs.settle()
        if self._runs.live is not None or self._tree.at_work:
            raise AgentBusyError("the agent, or a detached child, is at work: wait for its end, or cancel it, then fork")
        return await self._session.fork()

    @property
    def agent_id(self) -> str:
        """The root agent's id, such as `agent-1f09a2c4`."""
        return self._root.agent_id

    @property
    def is_open(self) -> bool:
        """Whether it takes prompts: from `open` to `aclose`."""
        return self._loop is not None

    @property
    def session_id(self) -> str | None:
        """The id under which the session can be resumed. None: nothing is recorded."""
        return self._session.session_id

    @property
    def history(self) -> list[ModelMessage]:
        """The conversation so far, as the model sees it; each run continues it."""
        return self._root.run.record.history

    @property
    def usage(self) -> Usage:
        """The spending of the agent and its descendants over all runs."""
        return self._shared.ledger.spent

    def agents(self) -> tuple[AgentInfo, ...]:
        """The root and its descendants, in the order in which they started; of earlier runs the newest 200."""
        return tuple(node.info for node in self._tree.nodes.values())

    @property
    def debug(self) -> DebugState:
        """The resources that the agents hold at this moment, for tests and for tracking down leaks."""
        return debug_state(self._tree, self._loop)

    def run(self, prompt: str, *, budget: Budget = NO_BOUNDS, pictures: Sequence[BinaryContent] = ()) -> Run[OutputT]:
        """Make a run; it begins when it is first used, see `Run`.

        Args:
            prompt: What to do.
            pictures: The model sees them with the prompt, unless `kernel.show_images_to_model` is off.
            budget: What the run and all its children may spend. `config.budget` fills in the bounds that it leaves open.

        Raises:
            AgentBusyError: The previous run has not ended.
            FreeactError: The agent is not open: use `async with`.
        """
        seen = tuple(pictures) if self.config.kernel.show_images_to_model else ()
        return self._begin(Work(prompt=prompt, pictures=seen), budget)

    @property
    def present_run(self) -> Run[Any] | None:
        """The live run, whether `run`, `run_program` or `spawn` began it. None: no run is live."""
        return self._runs.live

    def run_program(self, program: Callable[[], Awaitable[AnswerT]], *, budget: Budget = NO_BOUNDS) -> Run[AnswerT]:
        """Begin a run that a function drives instead of a model: it starts children with `spawn` and similar methods.

        Its return value becomes the result's `output`; an exception fails the run. Children that are still working when it
        returns are cancelled.

        Args:
            program: An async function without parameters.
            budget: What the children may spend together. `config.budget` fills in the bounds that it leaves open.

        Raises:
            AgentBusyError: The previous run has not ended.
            FreeactError: The agent is not open: use `async with`.
        """
        return self._begin(Work(prompt=f"[program {getattr(program, '__name__', '')}]", program=program), budget)

    def stream(self, prompt: str, *, budget: Budget = NO_BOUNDS) -> AsyncGenerator[Event, None]:
        """Run a prompt and yield the events; the arguments are those of `run`.

        Leaving the loop early cancels the run, and the next run waits for its end. A stream that a variable still holds is
        cancelled by `aclose()`, or by `async with contextlib.aclosing(agent.stream(prompt)) as events`.
        """
        return EventStream(self.run(prompt, budget=budget))

    def run_sync(self, prompt: str, *, budget: Budget = NO_BOUNDS) -> RunResult[OutputT]:
        """Open the agent, run a prompt to its end, and close the agent: for programs without `async`.

        The next call continues the conversation in a new kernel. Approval requests get the answer for unattended runs (see
        `Config.headless`); events reach the taps only.

        Args:
            prompt: What to do.
            budget: What the run and all its children may spend. `config.budget` fills in the bounds that it leaves open.

        Raises:
            FreeactError: An event loop is running in this thread, or the agent is open.
        """
        if running_loop() is not None:
            raise FreeactError(
                "run_sync cannot be used where an event loop runs (async code, a notebook): write "
                "`async with agent: result = await agent.run(prompt).result()`"
            )
        if self._loop is not None:
            raise FreeactError("run_sync opens and closes the agent by itself, and this one is open: use `agent.run`")

        async def run() -> RunResult[OutputT]:
            async with self:
                return await self.run(prompt, budget=budget).result()

        return asyncio.run(run())

    @property
    def allowed(self) -> tuple[Rule, ...]:
        """What a person has allowed for the session. An agent that goes on with it in the same program may be given it."""
        return self._shared.gate.session

    @allowed.setter
    def allowed(self, rules: tuple[Rule, ...]) -> None:
        self._shared.gate.session = rules

    def follow_background(self, hear: Callable[[Any], None]) -> None:
        """Hear the events of background children also while no run is live; else they are dropped, and what asks is denied.

        What such a child asks stays open when a run ends: its event answers it.

        Args:
            hear: Called with each event, after the taps; must be quick and must not raise.
        """
        self._shared.between_runs = lambda: DirectChannel(hear, self._taps)

    def cancel(self, agent_id: str) -> bool:
        """Cancel a child with its descendants, also while no run is live. Returns False if no such agent is working."""
        node = self._tree.nodes.get(agent_id)
        return node is not None and node.run.cancel()

    async def aclose(self) -> None:
        """Close the agent and everything it holds. It can be opened again, with its history and a new kernel.

        Raises:
            FreeactError: The agent was opened in another event loop.
        """
        check_event_loop(self._home)
        await carry_out(self._close(), timeout_seconds=60)

    async def open(self) -> Self:
        """Open the agent without `async with`, for example to keep it across a notebook's cells; `aclose()` closes it.

        Raises:
            FreeactError: The agent is already open.
        """
        if self._loop is not None:
            raise FreeactError("the agent is already open: open it once and share it")
        await self._session.open()
        self._home = asyncio.get_running_loop()
        self._resources.push_async_callback(self._session.aclose)  # closed last: everything before it is still recorded
        try:
            await self._open()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def _open(self) -> None:
        self._shared.renew()
        if recover(self.config.workspace):
            self._notice(UNDONE)
        if self._closes_provider:
            self._resources.push_async_callback(self._shared.provider.aclose)
        await self._resources.enter_async_context(self._shared.model)  # closes its HTTP client with the agent
        self._resources.push_async_callback(self._shared.other_models.aclose)
        self._loop = AgentLoop(self._root, self._tree, AgentResources(self._root), output_type=self._output_type)
        self._runs.is_open = True
        self._loop.children.begin_run = self._begin_if_idle
        self._resources.push_async_callback(self._loop.resources.aclose)
        self._resources.push_async_callback(self._session.follow(self._loop, is_new=not self.history))
        self._loop.resources.kernel.start_soon()  # ready when the first prompt comes

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _close(self) -> None:
        self._loop = self._home = None
        self._runs.is_open = False
        if self._runs.live is not None:
            await self._runs.live.aclose()
        for close in self._tree.outliving:
            await close()
        self._tree.outliving.clear()
        await self._resources.aclose()

    @property
    def _callers_loop(self) -> AgentLoop:
        loop, caller = self._opened, caller_in(self._shared)
        return loop if caller is None or caller is self._root else self._loop_of(caller)

    async def _settle(self) -> None:
        if caller_in(self._shared) in (None, self._root):
            await self._runs.settle()

    async def _begin_if_idle(self) -> None:
        """Begin a run that lasts until no child is working, unless a run is live."""
        is_outside = caller_in(self._shared) is None
        while (run := self._runs.live) is not None and not (self._opened.children.is_open and not run.is_ending):
            if (first := run if run.is_ending and is_outside else run.ends_first) is None:
                return
            await first.ended()
        if run is None:
            self.run_program(self._opened.children.until_idle).start_without_reader()

    def _loop_of(self, node: AgentNode) -> AgentLoop:
        loop = self._tree.at_work.get(node.agent_id)
        if not isinstance(loop, AgentLoop):
            raise FreeactError(f"the run of {node.agent_id}, which this call belongs to, has ended")
        return loop

    @property
    def _opened(self) -> AgentLoop:
        if self._loop is None:
            raise FreeactError("the agent is not open: use it as `async with Agent(...) as agent`")
        check_event_loop(self._home)
        return self._loop

    def _begin(self, work: Work, budget: Budget) -> Run[Any]:
        loop = self._opened
        self._runs.check()
        channel = EventChannel(self.config.event_buffer, self._taps)
        return RootRun(loop, self._tree, work, runs=self._runs, channel=channel, budget=budget, home=self._home)

    def _notice(self, text: str) -> None:
        self._tree.notice(text)
