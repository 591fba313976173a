"""`ServedAgents`: the agents that the server has open, each with its run, its branches and its open questions.

A session of the library is a session here, under the same id. It outlives the client's connection, and this process: one
that was closed is opened again with its variables when it is named. A run outlives the request that began it.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeAlias

from pydantic_ai.models import Model

from freeact_sub import events as ev
from freeact_sub.agent import Agent
from freeact_sub.agents import KernelNode, Run, RunResult
from freeact_sub.agents.call import calls_noted
from freeact_sub.config.schema import Config
from freeact_sub.errors import FreeactError, InvalidRequestError, SessionError
from freeact_sub.kernels.provider import make_provider
from freeact_sub.models.code_actions import NoModel
from freeact_sub.show.agent_story import Stories
from freeact_sub.show.teller import readable
from freeact_sub.text import one_line

IDLE_SECONDS: Final = 1800.0
"""Seconds after which an unused session is closed."""
LOOK_SECONDS: Final = 30.0
"""Maximum seconds between two looks for idle sessions."""
MAX_OPEN: Final = 20
"""Maximum number of open sessions; one more closes the least recently used one."""
NEWS_CHARS: Final = 200

Asked: TypeAlias = ev.ApprovalRequest | ev.QuestionRequest


@dataclass(eq=False)
class ClientCell:
    """A cell of a client."""

    calls: set[str] = field(default_factory=set)
    """The ids under which it asks."""


class LiveRun:
    """A run and its questions; it is read to its end, whether or not a client waits for it."""

    def __init__(self, run: Run[Any], *, prompt: str = "") -> None:
        """Begin the run. Args: prompt: of a model. Empty: code of the client works in kernels. Raises: AgentBusyError."""
        run.start()  # before any code of the client can begin one that nobody reads
        self.run = run
        self.prompt = prompt
        self.asked: dict[str, Asked] = {}
        """The open questions, oldest first."""
        self.cells: list[ClientCell] = []
        """The cells of clients that run, oldest first."""
        self.claimed: dict[str, object] = {}
        """The call that relays each question, by question id."""
        self.result: RunResult[Any] | None = None
        self.events = 0
        self.news = ""
        """The latest event, in one line."""
        self._stories = Stories()
        self._calls: dict[str, str | None] = {}
        """The root's call for which each child works."""
        self._change = asyncio.Event()
        self.task = asyncio.create_task(self._read(), name="reads a served run")

    @property
    def next_change(self) -> asyncio.Event:
        """An event that the next change sets."""
        return self._change

    @contextmanager
    def at_work(self, cell: ClientCell) -> Iterator[None]:
        """Count the cell as running inside."""
        self.cells.append(cell)
        try:
            with calls_noted(cell.calls):
                yield
        finally:
            self.cells.remove(cell)

    def call_of(self, asked: Asked) -> str | None:
        """Return the id of the call of the root that asks, itself or by a child."""
        return self._calls.get(asked.agent_id, asked.tool_call_id)

    def closed(self, request_id: str) -> None:
        """Note that a question is answered; its event may come later."""
        self.asked.pop(request_id, None)
        self.claimed.pop(request_id, None)

    async def ended(self) -> RunResult[Any]:
        """Wait for the end, and return the result. Raises: the error of the run."""
        await asyncio.wait({self.task})
        self.task.result()
        return await self.run.result()

    async def _read(self) -> None:
        try:
            async for event in self.run:
                self._observe(event)
            self.result = await self.run.result()
        finally:
            self._changed()

    def _observe(self, event: ev.Event) -> None:
        story = self._stories.observe(event)
        if isinstance(event, ev.AgentStarted) and event.depth:
            self._calls[event.agent_id] = self._calls.get(event.parent_id or "", event.tool_call_id)
        if isinstance(event, ev.ApprovalRequest | ev.QuestionRequest) and not event.headless:
            self.asked[event.request_id] = event
            event.shown()
        elif isinstance(event, ev.ApprovalDecided | ev.QuestionAnswered):
            self.closed(event.request_id)
        self.events += 1
        for block in readable(story, event):
            if not block.goes_on and (text := one_line(block.text, NEWS_CHARS)):
                self.news = f"{story.name}: {text}" if event.depth else text
        self._changed()

    def _changed(self) -> None:
        self._change.set()
        self._change = asyncio.Event()


@dataclass(eq=False)
class ServedAgent:
    """One session."""

    agent: Agent
    nodes: dict[str, KernelNode] = field(default_factory=dict)
    """Branches by id."""
    last_run: LiveRun | None = None
    """The live run, or the last one."""
    used: float = field(default_factory=time.monotonic)
    calls: int = 0
    """Calls of the client that wait for it."""
    _works: int = 0
    """The number of works of client code in the kernels."""
    _idle: asyncio.Event = field(default_factory=asyncio.Event)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def session_id(self) -> str:
        """The id of the session, which also names its own kernel."""
        return self.agent.session_id or self.agent.agent_id

    @property
    def live(self) -> LiveRun | None:
        """The live run, if any."""
        return self.last_run if self.last_run is not None and not self.last_run.task.done() else None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is at work in the session."""
        return self.live is None and not self.calls

    @asynccontextmanager
    async def in_use(self) -> AsyncGenerator[None]:
        """Keep the session open meanwhile."""
        self.calls += 1
        try:
            yield
        finally:
            self.calls -= 1
            self.used = time.monotonic()

    async def begin(self, prompt: str) -> LiveRun:
        """Begin a run of the model. Raises: InvalidRequestError: The session is at work."""
        async with self._lock:
            if self.live is not None and (self.live.prompt or self._works):
                raise InvalidRequestError(f"session {self.session_id} is at work: wait for its end, or cancel it")
            await self._settle()
            self.last_run = LiveRun(self.agent.run(prompt), prompt=prompt)
            return self.last_run

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[LiveRun]:
        """Let code of the client work in kernels: in the live run, or in one that lasts as long as the work."""
        async with self._lock:
            live = self.live
            if live is None or (not live.prompt and not self._works):
                await self._settle()
                self._idle.clear()
                live = self.last_run = LiveRun(self.agent.run_program(self.client_code))
            self._works += 1
        try:
            yield live
        finally:
            self._works -= 1
            if not self._works:
                self._idle.set()

    async def client_code(self) -> None:
        """Code of an MCP client."""
        await self._idle.wait()

    async def _settle(self) -> None:
        if self.last_run is not None:
            await asyncio.wait({self.last_run.task})


class ServedAgents:
    """All sessions of one server; an async context manager, which closes them."""

    def __init__(self, config: Config, *, model: Model | None = None, idle_seconds: float = IDLE_SECONDS) -> None:
        """Open nothing yet.

        Args:
            config: The settings of all agents. Only sessions of its workspace are opened again.
            model: The model, instead of the one that the settings name.
            idle_seconds: Seconds after which an unused session is closed.
        """
        self.config = config
        self._model = model or (None if config.model else NoModel())
        self._provider = make_provider(config.kernel)
        self._idle_seconds = idle_seconds
        self._sessions: dict[str, ServedAgent] = {}
        self._lock = asyncio.Lock()
        self._closing_idle: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._closing_idle = asyncio.create_task(self._close_idle(), name="closes idle sessions")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all sessions. Their conversations and variables are kept."""
        if self._closing_idle is not None:
            self._closing_idle.cancel()
        await asyncio.gather(*(served.agent.aclose() for served in self), return_exceptions=True)
        self._sessions.clear()
        await self._provider.aclose()

    @property
    def has_model(self) -> bool:
        """Whether prompts can be run."""
        return not isinstance(self._model, NoModel)

    def __iter__(self) -> Iterator[ServedAgent]:
        return iter([*self._sessions.values()])

    async def session(self, session_id: str = "") -> ServedAgent:
        """Return an open session; a closed one is opened again.

        Args:
            session_id: Its id. Empty: a new session.

        Raises:
            InvalidRequestError: There is no such session of this folder.
            FreeactError: It cannot be opened.
        """
        async with self._lock:
            if (served := self._sessions.get(session_id)) is not None:
                served.used = time.monotonic()
                return served
            await self._make_room()
            served = ServedAgent(await self._open(session_id))
            self._sessions[served.session_id] = served
            return served

    async def kernel(self, kernel_id: str = "") -> tuple[ServedAgent, KernelNode | None]:
        """Return a kernel's session, and its branch. None: the session's own kernel. Raises: see `session`."""
        for served in self:
            if (node := served.nodes.get(kernel_id)) is not None:
                return served, node
        return await self.session(kernel_id), None

    async def close(self, kernel_id: str) -> None:
        """Close a branch, or a session with its branches. Raises: InvalidRequestError: It is not open."""
        for served in self:
            if (node := served.nodes.pop(kernel_id, None)) is not None:
                await node.close()
                return
        if (known := self._sessions.pop(kernel_id, None)) is None:
            raise InvalidRequestError(f"no kernel {one_line(kernel_id)!r} is open")
        await known.agent.aclose()

    def _make(self, session: str) -> Agent:
        return Agent(self.config, model=self._model, session=session, kernel_provider=self._provider)

    async def _open(self, session_id: str) -> Agent:
        if session_id:
            agent = await asyncio.to_thread(self._resumed, session_id)
        else:
            agent = self._make("new")
        return await agent.open()

    def _resumed(self, session_id: str) -> Agent:
        missing = InvalidRequestError(
            f"there is no session or branch {one_line(session_id)!r} here. A branch ends with its session, which is closed "
            f"after {self._idle_seconds / 60:g} minutes without use; leave the id out to begin a new one"
        )
        try:
            agent = self._make(session_id)
        except SessionError as error:
            raise missing from error
        stored = agent.sessions.find(agent.session_id or "")
        if agent.session_id != session_id or stored.workspace != self.config.workspace:
            raise missing
        return agent

    async def _make_room(self) -> None:
        if len(self._sessions) < MAX_OPEN:
            return
        idle = sorted((served for served in self if served.is_idle), key=lambda served: served.used)
        if not idle:
            raise InvalidRequestError(f"{MAX_OPEN} sessions are at work: wait for the end of one, or cancel it")
        await self.close(idle[0].session_id)

    async def _close_idle(self) -> None:
        while True:
            await asyncio.sleep(min(LOOK_SECONDS, self._idle_seconds / 2))
            async with self._lock:
                for served in self:
                    if served.is_idle and time.monotonic() - served.used > self._idle_seconds:
                        with suppress(FreeactError):
                            await self.close(served.session_id)
