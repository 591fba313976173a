"""Children of one agent: `ChildOwner` is the only place that begins, awaits, cancels and ends them.

Each child is an asyncio task. When the agent's run ends, its children end first; the result names those that were still
wanted. With `subagents.detach`, background children live on until they end or the root is closed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from pydantic_ai.messages import UserContent
from pydantic_ai.models import Model

from freeact_sub.agents.answers import schema_output_type
from freeact_sub.agents.call import check_spawn, permit
from freeact_sub.agents.child import Child, ChildWork, Messages, StartedBy, report
from freeact_sub.agents.feature import Asker, Maker, NewChild
from freeact_sub.agents.kernel import AgentKernel
from freeact_sub.agents.life import Tree, TreeAgent, chosen_model, tree_agent
from freeact_sub.agents.nodes import Nodes, OwnedNode
from freeact_sub.agents.prompt import last_exchanges
from freeact_sub.agents.results import RunResult
from freeact_sub.agents.resumed import EarlierChild, as_it_was, earlier_child, ended_child, model_of
from freeact_sub.agents.rights import AgentType, unknown_tool
from freeact_sub.agents.verifier import Verifier, checked_check
from freeact_sub.config.budget import Budget
from freeact_sub.errors import (
    ApprovalDeniedError,
    ConfigError,
    FreeactError,
    InvalidRequestError,
    KernelError,
    SpawnForbiddenError,
)
from freeact_sub.events import AgentStarted
from freeact_sub.kernels import Kernel
from freeact_sub.models.code_actions import acting_by
from freeact_sub.modes import INHERIT, narrower
from freeact_sub.system.closing import carry_out, until_done
from freeact_sub.text import unknown_name, whole_text
from freeact_sub.tools import TOOL_NAMES, ChildRequest, ChildState, ToolResult

if TYPE_CHECKING:
    from freeact_sub.agents.loop import AgentLoop

MAX_IN_BACKGROUND: Final = 20
"""Background children of one agent that may work or wait for a slot at the same time."""
END_SECONDS: Final = 30.0
"""Seconds to wait for cancelled children, whose own bounds are shorter."""

CUT_OFF: Final = "the agent's run has ended, and this call, which was a part of it, was cancelled with it: call it again"

T = TypeVar("T")

logger = logging.getLogger(__name__)

AgentProgram: TypeAlias = Callable[[], Awaitable[Any]]
"""A program that answers instead of a model."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work of a run."""

    prompt: str
    note: str = ""
    """A text that the model reads after the prompt."""
    content: tuple[UserContent, ...] = ()
    """The prompt's texts, pictures and files in order, where it has more than text."""
    output_type: Any = None
    """The type of the answer, as pydantic-ai's `output_type`. None: the agent's."""
    prepare: Callable[[Kernel], Awaitable[str]] | None = None
    """A function that prepares the kernel; returns text for the model."""
    program: AgentProgram | None = None
    request: ChildRequest | None = None
    """The request for a child whose answer may be an earlier one's."""
    verifier: Verifier | None = None
    """The check of the answer. None: only the type checks it."""

    def __post_init__(self) -> None:
        for name in ("prompt", "note"):  # no provider takes half a character
            object.__setattr__(self, name, whole_text(getattr(self, name)))
        content = tuple(whole_text(part) if isinstance(part, str) else part for part in self.content)
        object.__setattr__(self, "content", content)

    def started(self, agent: TreeAgent) -> AgentStarted:
        """Return the event of the start. Args: agent: does the work."""
        shared, has_model = agent.shared, self.program is None
        must_wait = not shared.slots.value or (has_model and shared.kernel_places.full)
        return AgentStarted(
            prompt=self.prompt,
            description=agent.description,
            queued=agent.parent is not None and must_wait,
            key=agent.key,
            agent_type=agent.rights.type_name,
            mode=agent.policy.mode,
            model=agent.model.model_id if has_model else "",
            tool_call_id=agent.tool_call_id,
        )


@dataclass(frozen=True, kw_only=True)
class PlannedChild:
    """A child that does not exist yet."""

    request: ChildRequest
    """The request, completed by features and the child's type."""
    agent_type: AgentType | None
    model: Model | None
    """The model. None: the parent's."""
    earlier: EarlierChild | None
    """The ended child that this run resumes. None: the child is new."""
    new: NewChild

    def work(self, child: TreeAgent) -> Work:
        """Return the work of the child. Args: child: made for this plan."""
        prompt, program = self.request.prompt, self.new.program
        if program is not None:
            return Work(prompt=prompt, program=lambda: program(prompt, child.context))
        check, verify = self.request.check, self.request.verify
        verifier = None
        if check or verify:
            starter, of_program = tree_agent(self.new.agent), self.new.by == "program"
            verifier = Verifier(check=check, verify=verify, starter=starter, of_program=of_program)
        work = Work(prompt=prompt, content=self.request.content, prepare=self.request.prepare, verifier=verifier)
        if self.earlier is not None or verifier is not None:
            return work  # what it answers follows from what it has done before, and what was checked is in its kernel
        return replace(work, request=self.request)


def resolved(request: ChildRequest, agent: TreeAgent) -> tuple[ChildRequest, AgentType | None]:
    """Complete a request from the child's type, and return it with that type.

    Args:
        request: The child as requested.
        agent: The requesting agent.

    Raises:
        InvalidRequestError: The type does not exist.
        SpawnForbiddenError: This agent may not start it.
    """
    agent_type, startable = agent.rights.agent_type, agent.rights.startable
    if request.agent is not None:
        agent_type = agent.shared.types.get(request.agent)
        if agent_type is None:
            raise InvalidRequestError(unknown_name("agent type", request.agent, startable))
        if agent_type.name not in startable:
            others = ", ".join(sorted(startable)) or "none"
            raise SpawnForbiddenError(
                f"this agent may not start agents of type {agent_type.name!r} (`allow_agents`); it may start: {others}"
            )
    if agent_type is None:
        return request, None
    mode = agent_type.mode if request.mode is None else request.mode
    output_type = request.output_type
    if output_type is str and agent_type.output is not None:
        output_type = schema_output_type(agent_type.output)
        request = request.replace(output_schema=agent_type.output)
    request = request.replace(
        thinking=request.thinking or agent_type.thinking,
        own_files=request.own_files or agent_type.own_files,
        mode=mode if mode is None or agent_type.mode is None else narrower(mode, agent_type.mode),
        budget=request.budget.over(agent_type.budget).over(_depth(agent_type, agent)),
        output_type=output_type,
    )
    return request, agent_type


def _depth(agent_type: AgentType, agent: TreeAgent) -> Budget:
    return Budget() if agent_type.max_depth is None else Budget(depth=max(0, agent_type.max_depth - agent.depth - 1))


def check_model_name(named: str | Model | None, parent: TreeAgent) -> None:
    """Refuse a model name from a model or its code that no setting has: who pays names the models.

    Raises:
        InvalidRequestError: No setting has the name.
    """
    names = parent.shared.config.models.names
    if named is not None and named != INHERIT and named not in names:
        raise InvalidRequestError(f"{unknown_name('model', str(named), [*names, INHERIT])} (the setting `models`)")


def check_tools(request: ChildRequest, agent_type: AgentType | None, parent: TreeAgent) -> None:
    """Refuse a list of tools with one that the child would not have without the list.

    Raises:
        InvalidRequestError: A tool does not exist, or the child would not have it.
    """
    shared, rights = parent.shared, parent.rights.for_child(agent_type)
    known = sorted({*TOOL_NAMES, *shared.own_tools.names})
    servers = parent.rights.servers
    for name in request.tools or ():
        if not (shared.toolsets or shared.capabilities) and (problem := unknown_tool(name, known, servers)):
            raise InvalidRequestError(problem)
        if "*" in name or any(name.startswith(f"{server}_") for server in servers):
            continue  # what it matches is known once its servers run, and is held against all lists then
        if not rights.has_tool(name):
            had = ", ".join(filter(rights.has_tool, known)) or "none"
            raise InvalidRequestError(
                f"the child would not have the tool {name!r}, and `tools` can only take tools away: it has {had}"
            )


async def planned(new: NewChild, tree: Tree) -> PlannedChild:
    """Complete the request for a child by its type, or by the ended child that it resumes.

    Raises:
        SpawnForbiddenError: There is to be no such child.
        InvalidRequestError: There is no such type, or no such child.
        ConfigError: The model cannot be built.
    """
    agent, request, earlier = tree_agent(new.agent), new.request, None
    if request.check is not None:
        request = request.replace(check=checked_check(request.check))
    if request.resume is not None:
        earlier = await earlier_child(request.resume, agent, tree)
        request = as_it_was(request, earlier, agent)
    request, agent_type = resolved(request, agent)
    check_tools(request, agent_type, agent)
    name = chosen_model(request.model, agent_type, agent)
    fallbacks = agent_type.fallback_models if agent_type is not None and name == agent_type.model else None
    model = await agent.shared.other_models.get(name, fallbacks) if name is not None and new.program is None else None
    if agent_type is not None and agent_type.code_actions is not None:
        model = acting_by(model or agent.model, agent_type.code_actions)
    if earlier is not None and request.model is None:
        model = await model_of(earlier, model or agent.model, agent)
    return PlannedChild(
        request=request,
        agent_type=agent_type,
        model=model,
        earlier=earlier,
        new=new,
    )


class ChildOwner:
    """The children of one agent. The model's tools use it as `freeact_sub.tools.BackgroundChildren`."""

    def __init__(self, loop: "AgentLoop") -> None:
        self._loop, self._agent, self._tree, self._kernel = loop, loop.agent, loop.tree, loop.kernel
        self._nodes: Nodes | None = None
        self._messages = Messages(loop.agent, loop.tree)
        self._children: dict[str, ChildWork] = {}
        """Working children, and background children of this run that have ended."""
        self._starting = set[object]()
        """Children that are about to begin."""
        self._busy: set[asyncio.Task[Any]] = set()
        """Tasks of other work, begun by `in_run`."""
        self._changed = asyncio.Event()
        """An event, set when a child begins, asks or ends."""
        self.is_open = loop.agent.run.is_live
        """Whether the agent's run accepts children."""
        self.left: list[str] = []
        """Sentences on the children that were cancelled because the run ended."""

    def open(self) -> None:
        """Begin a run of the agent."""
        self.left, self.is_open = [], True

    async def run(self, request: ChildRequest, together: int, *, by: Maker) -> ChildWork:
        """Start a child for a call and wait until it ends, however it ends; cancelling the wait cancels the child.

        Args:
            request: The child.
            together: The length of the list that holds the child.
            by: The caller.

        Raises:
            SpawnForbiddenError: No child, or none of this type, may be started now.
            InvalidRequestError: The type does not exist.
            ConfigError: The model cannot be built.
            FreeactError: The agent's run takes no more children.
        """
        return await self._begin(request, "call", by, self._until_its_end, together)

    async def _until_its_end(self, child: ChildWork) -> ChildWork:
        async with self._agent.run.waiting_for_child():
            try:
                await asyncio.wait({child.running})
            except asyncio.CancelledError:
                child.cancel()
                await carry_out(self._until_ended([child]), timeout_seconds=2 * END_SECONDS)
                raise
        return child

    async def run_for_model(self, request: ChildRequest) -> ToolResult:
        """Run a child as `run` does, and return its report for the agent's model."""
        try:
            child = await self.run(request, self._agent.run.children_asked, by="model")
        except (ApprovalDeniedError, SpawnForbiddenError, InvalidRequestError, ConfigError) as error:
            if isinstance(error, ApprovalDeniedError) and (error.ends_run or self._agent.shared.config.on_denial == "end"):
                raise
            return ToolResult(text=f"[ERROR] {error}", outcome="failed")
        return ToolResult(text=child.report, outcome="success" if child.completed else "failed")

    async def spawn(self, request: ChildRequest) -> Child:
        """Start a child for a program without waiting for it. Raises as `run` does."""
        await self._loop.until_live()
        return Child(await self._begin(request, "program", "program", _at_once))

    async def spawn_and_wait(self, request: ChildRequest, together: int) -> RunResult:
        """Start a child for a program and wait until it ends, with arguments and errors of `run`."""
        await self._loop.until_live()

        async def result_of(child: ChildWork) -> RunResult:
            try:
                return await child.result()
            except (asyncio.CancelledError, FreeactError):
                child.cancel()
                raise

        return await self._begin(request, "program", "program", result_of, together)

    async def in_run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do other work in the agent's run, or in one that begins for it: the run stays live meanwhile.

        The work has an asyncio task of its own. A caller that is cancelled ends it, and so does the end of the run, which
        neither cancels the caller's task nor waits for it.

        Raises:
            FreeactError: The agent's run is not live, or has ended before the work.
        """
        await self._loop.until_live()
        self._check_open()
        task = asyncio.create_task(work(), name=f"work in the run of {self._agent.agent_id}")
        self._busy.add(task)
        task.add_done_callback(self._has_worked)
        await until_done(task)
        if task.cancelled():
            raise FreeactError(CUT_OFF)
        return task.result()

    def _has_worked(self, task: asyncio.Task[Any]) -> None:
        self._busy.remove(task)
        self._changed.set()

    async def start(self, request: ChildRequest) -> ChildState:
        """Start a child without waiting for it."""
        return (await self._begin(request, "background", "model", _at_once)).state

    def list(self) -> Sequence[ChildState]:
        """Return the children of this run, oldest first."""
        return [child.state for child in self._in_background()]

    async def wait(self, agent_ids: Sequence[str], timeout_seconds: float) -> Sequence[ChildState]:
        """Wait until these children (default: all) have ended, one asks a question, or the time is up."""
        children = [self._find(agent_id) for agent_id in agent_ids] or [*self._in_background()]
        for child in children:
            child.waiters += 1
        try:
            async with self._agent.run.waiting_for_child():
                with suppress(TimeoutError):
                    async with asyncio.timeout(timeout_seconds):
                        while not all(child.ended for child in children) and not any(child.question for child in children):
                            await self._next_change()
        finally:
            for child in children:
                child.waiters -= 1
        return [child.state for child in children]

    async def message(self, agent_id: str, text: str, tool_call_id: str | None) -> str:
        """Answer a child's question, or send a message that its model reads before its next request."""
        child = self._children.get(agent_id)
        if child is not None and child.ended is None:
            return self._messages.send(child, text)
        earlier = await earlier_child(agent_id, self._agent, self._tree)
        label = earlier.lineage[-1].description
        request = ChildRequest(prompt=text, description=label, resume=agent_id, tool_call_id=tool_call_id)
        await permit(request.call(background=True), Asker(agent=self._agent, tool_call_id=tool_call_id))
        again = await self._begin(request, "background", "model", _at_once)
        return f"{again.label} had ended, and works on it in the background; you are told when it has ended again."

    async def cancel(self, agent_id: str) -> ChildState:
        """Cancel a child and its descendants; its state has what it found so far."""
        child = self._find(agent_id)
        if child.ended is None:
            self._messages.show_cancel(child)
            child.waiters += 1
            try:
                child.cancel()
                await asyncio.wait({child.running}, timeout=END_SECONDS)
            finally:
                child.waiters -= 1
        return child.state

    async def ask(self, agent_id: str, text: str) -> str:
        """Ask the agent on behalf of a background child, and return the answer."""
        return await self._messages.ask(self._find(agent_id), text, self._changed)

    def announce_end(self, agent_id: str, result: RunResult) -> None:
        """Announce a background child's end, before its event."""
        child = self._children.get(agent_id)
        if child is not None and not child.waiters and not child.given_up:
            self._messages.show_end(child, result)

    @property
    def nodes(self) -> Nodes:
        """The nodes of the agent."""
        if self._nodes is None:
            self._nodes = Nodes(self._agent, self._kernel, self.in_run)
        return self._nodes

    @property
    def is_of_root(self) -> bool:
        """Whether the agent is the root, whose nodes stay between runs."""
        return self._agent.parent is None

    @property
    def is_idle(self) -> bool:
        """Whether no child is working or about to."""
        return not (self._starting or self._busy) and all(child.ended for child in self._children.values())

    @property
    def are_ending(self) -> bool:
        """Whether only cancelled children are still working."""
        runs = [child.agent.run for child in self._children.values() if not child.ended]
        return not (self._starting or self._busy) and all(run.is_cancelled or not run.is_live for run in runs)

    async def until_idle(self) -> None:
        """Wait until no child is working, then accept no more."""
        while not self.is_idle:
            await self._next_change()
        self.is_open = False

    def left_behind(self) -> Sequence[str]:
        """Return the names of the background children that would be cancelled if the run ended now."""
        return [child.label for child in self._in_background() if child.ended is None and not child.agent.detached]

    def cancel_all(self) -> None:
        """Cancel all children that do not outlive the agent's run."""
        for child in self._children.values():
            if child.ended is None and not child.given_up and not child.agent.detached:
                if child.started_by != "call":
                    self.left.append(f"{child.label} was still at work when the run ended, and was cancelled")
                child.cancel()

    async def end(self) -> None:
        """End the agent's run: accept no more children, and end those that do not outlive it."""
        self.is_open = False
        self.cancel_all()
        busy = {*self._busy}
        for task in busy:
            task.cancel()
        await self._until_ended([child for child in self._children.values() if not child.agent.detached])
        for task in (await asyncio.wait(busy, timeout=END_SECONDS))[1] if busy else ():
            logger.error("%s does not end when it is cancelled: it is abandoned", task.get_name())
        self._children = {agent_id: child for agent_id, child in self._children.items() if child.agent.detached}
        if self._nodes is not None and not self.is_of_root:
            await self._nodes.aclose()
        if self._children or (self._nodes is not None and self._nodes.list()):
            self._tree.outliving.add(self.aclose)

    async def aclose(self) -> None:
        """End all children."""
        for child in self._children.values():
            child.cancel()
        await self._until_ended(self._children.values())
        self._children.clear()
        if self._nodes is not None:
            await self._nodes.aclose()

    async def _begin(
        self,
        request: ChildRequest,
        started_by: StartedBy,
        by: Maker,
        then: Callable[[ChildWork], Awaitable[T]],
        together: int | None = None,
    ) -> T:
        """Start a child, with all features around it. Args: together: None: nobody waits for its end."""
        self._check_open()
        if started_by != "program":
            check_model_name(request.model, self._agent)
        origin = self._origin_of(request)
        if origin is not None and request.mode is None:
            request = request.replace(mode=origin.code.policy.mode)  # own files need another wall
        starting = object()

        async def start(new: NewChild) -> T:
            try:
                child = await self._start(new, started_by)
            finally:
                self._has_started(starting)
            return await then(child)

        self._starting.add(starting)
        try:
            new = NewChild(agent=self._agent, request=request, by=by, waits=together is not None, together=together or 1)
            return await self._agent.run.features.child(new, start)
        finally:
            self._has_started(starting)

    def _has_started(self, starting: object) -> None:
        self._starting.discard(starting)
        self._changed.set()

    async def _start(self, new: NewChild, started_by: StartedBy) -> ChildWork:
        self._check_open()
        origin = self._origin_of(new.request)
        if new.request.is_branch:
            await self._kernel.bring_back()
        plan = await planned(new, self._tree)
        kept = None if plan.earlier is None else await self._node_of(plan.earlier, plan.request)
        self._check_open()
        return self._make(plan, started_by, origin, kept)

    def _origin_of(self, request: ChildRequest) -> OwnedNode | None:
        if request.branch_of is None:
            return None
        if request.branch:
            raise InvalidRequestError(
                "branch copies the agent's own kernel and branch_of copies a node's: give only one of them"
            )
        origin = request.branch_of if isinstance(request.branch_of, OwnedNode) else self.nodes.find(str(request.branch_of))
        origin.check_open()
        return origin

    async def _node_of(self, earlier: EarlierChild, request: ChildRequest) -> OwnedNode | None:
        mode = self._agent.policy.mode
        node = self.nodes.of_child(earlier.agent_id, narrower(mode, request.mode or mode))
        if node is not None:
            try:
                await node.kernel.get()
            except KernelError:  # it has died
                await node.close()
        return node

    def _make(
        self, plan: PlannedChild, started_by: StartedBy, origin: OwnedNode | None, kept: OwnedNode | None
    ) -> ChildWork:
        """Make a child and begin its run, with no `await` from the checks to its account and its task."""
        kept = kept if kept is not None and kept.is_open else None
        request = plan.request if kept is None else plan.request.replace(keep=True)
        before = None if plan.earlier is None else ended_child(plan.earlier.agent_id, self._tree)
        in_background = started_by == "background"
        if in_background and sum(child.ended is None for child in self._in_background()) >= MAX_IN_BACKGROUND:
            raise FreeactError(f"{MAX_IN_BACKGROUND} background children are at work: wait for one of them, or cancel one")
        check_spawn(self._agent)
        started = self._tree.add_child(
            self._agent,
            request,
            agent_type=plan.agent_type,
            model=plan.model,
            in_background=in_background,
            earlier=() if plan.earlier is None else plan.earlier.lineage,
            payer=plan.new.payer,
        )
        try:
            branch_of = origin.kernel if origin is not None else self._kernel if request.is_branch else None
            if request.history != "none":
                read = origin.history if origin is not None else self._loop.history
                started.run.keep_history(last_exchanges(read, request.history))
            if plan.earlier is not None:
                started.run.keep_history(plan.earlier.history)
                started.run.resumed = plan.earlier.written
            if kept is None:
                kernel = AgentKernel(started, branch_of, own_files=request.own_files)
            else:
                kernel = self.nodes.take_back(kept, started)
            bring_back = plan.earlier is not None and kept is None
            of_child = self._loop.of_child(started, kernel, request.output_type, bring_back=bring_back)
            work = of_child.run(plan.work(started))
        except BaseException:
            self._tree.withdraw(started, before)
            raise
        child = self._children[started.agent_id] = ChildWork(started, request.prompt, started_by)
        child.begin(asyncio.create_task(self._run(child, work), name=f"run of {started.agent_id}"))
        child.running.add_done_callback(lambda _: self._has_ended(child))
        return child

    async def _run(self, child: ChildWork, work: Any) -> RunResult:
        result: RunResult = await work
        if child.started_by != "program":
            child.report = await report(result, child.agent.output_folder, root=self._agent.shared.config.workspace)
        return result

    def _has_ended(self, child: ChildWork) -> None:
        self._changed.set()
        if not child.running.cancelled() and (error := child.running.exception()) is not None:
            logger.error("the run of %s failed", child.label, exc_info=error)
        if child.started_by != "background":
            self._children.pop(child.agent.agent_id, None)
        elif not child.waiters and not child.given_up and (self.is_open or child.agent.detached):
            self._messages.send_end(child)

    async def _until_ended(self, children: Iterable[ChildWork]) -> None:
        tasks = {child.running: child for child in children}
        for task in (await asyncio.wait(tasks, timeout=END_SECONDS))[1] if tasks else ():
            logger.error("child %s does not end when it is cancelled: it is abandoned", tasks[task].label)
            task.cancel()

    async def _next_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _check_open(self) -> None:
        if not self.is_open:
            raise FreeactError("the agent cannot start children now: its run has not begun, or is ending")

    def _in_background(self) -> Iterable[ChildWork]:
        return (child for child in self._children.values() if child.started_by == "background")

    def _find(self, agent_id: str) -> ChildWork:
        known = {child.agent.agent_id: child for child in self._in_background()}
        if agent_id not in known:
            raise FreeactError(f"{agent_id!r} is not a background child of yours, these are: {', '.join(known) or 'none'}")
        return known[agent_id]


async def _at_once(child: ChildWork) -> ChildWork:
    return child
