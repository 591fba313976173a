"""Nodes (`OwnedNode`): live kernels without an agent, either a kept child's or a branch without a model.

Code that runs in a node is a cell of its owner, the agent that made it: the owner's run asks for approval, counts it and
emits its events. The node's own mode and type, which may be narrower, decide what it may do.
"""

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from pydantic_ai.messages import ModelMessage

from freeact_sub.agents.call import permit, run_own_cell
from freeact_sub.agents.feature import Asker
from freeact_sub.agents.kernel import AgentKernel
from freeact_sub.agents.life import TreeAgent
from freeact_sub.agents.results import KernelNode
from freeact_sub.agents.shared import no_kernel_left
from freeact_sub.calls import FileOperation, FileWrite
from freeact_sub.errors import FreeactError, InvalidRequestError
from freeact_sub.events import CodeExecutionOutput
from freeact_sub.kernels import give_values, hand_over, own_files_of
from freeact_sub.modes import Mode
from freeact_sub.system.closing import carry_out, joined
from freeact_sub.tools import CellContext

if TYPE_CHECKING:
    from freeact_sub.kernels.files import Changes, OwnFiles

CALLS: Final = "cell_"
"""The prefix of the ids of calls that run a cell in a node."""
PROMOTE_SECONDS: Final = 600.0
"""Seconds that promoting files may take, even after a cancel."""

T = TypeVar("T")


class InRun(Protocol):
    """The run of the owner, in which nodes work."""

    async def __call__(self, work: Callable[[], Coroutine[Any, Any, T]], /) -> T:
        """Do work in the agent's run, as `ChildOwner.in_run` does."""


class OwnedNode(KernelNode):
    """A node, as its owner keeps it."""

    def __init__(self, code: TreeAgent, kernel: AgentKernel, owner: "Nodes", history: Sequence[ModelMessage] = ()) -> None:
        self.code = code
        self.kernel = kernel
        self._owner = owner
        self._history = tuple(history)
        self._lock = asyncio.Lock()
        self._closing: asyncio.Task[None] | None = None
        self._given_away = False

    @property
    def node_id(self) -> str:
        """The id of the child whose kernel this was, or the node's own."""
        return self.code.agent_id

    @property
    def description(self) -> str:
        """The label of the node, or its child's."""
        return self.code.description

    @property
    def history(self) -> list[ModelMessage]:
        """The conversation of the child whose kernel this was; a branch of a node has that node's."""
        return [*self._history]

    @property
    def is_open(self) -> bool:
        """Whether the node is not closed; its kernel may have died."""
        return self._closing is None and not self._given_away

    async def execute(self, code: str) -> CodeExecutionOutput:
        """Run a cell of the program's own code, without asking anybody."""
        return await self._execute(code, is_asked=False)

    async def execute_asked(self, code: str) -> CodeExecutionOutput:
        """Run a cell that needs approval like any cell of the owner's model."""
        return await self._execute(code, is_asked=True)

    async def _execute(self, code: str, *, is_asked: bool) -> CodeExecutionOutput:
        if not isinstance(code, str):
            raise InvalidRequestError(f"node.execute: code is a text, not {type(code).__name__}")
        self.check_open()
        kernel = self.kernel
        return await self._owner.in_run(
            lambda: run_own_cell(code, CALLS, self.code, kernel.get, self._context, self._lock, is_asked=is_asked)
        )

    async def branch(self, description: str = "", *, own_files: bool = False) -> "OwnedNode":
        """Make a node whose kernel starts as a copy of this one, as `Agent.branch` does."""
        self.check_open()
        async with self._lock:  # no cell runs while its files are copied
            return await self._owner.branch(self, description, own_files=own_files)

    async def variables(self) -> dict[str, str]:
        """Return a line on each variable, by name, as `Agent.variables` does."""
        self.check_open()
        return await self.kernel.variables()

    async def own_files(self) -> "OwnFiles | None":
        """Return the node's copy of the workspace. None: it works in the workspace itself."""
        return own_files_of(await self.kernel.get())

    async def diff(self) -> "Changes":
        """Return the changes in the node's copy of the workspace; empty if it has none."""
        self.check_open()
        own = await self.own_files()
        if own is None:
            from freeact_sub.kernels.files import Changes  # noqa: PLC0415  # few nodes have files

            return Changes()
        async with self._lock:
            return await asyncio.to_thread(own.look)

    async def close(self) -> None:
        """Close the kernel; branches of it live on. Can be called again."""
        if self._given_away:
            return
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name=f"close {self.code.label}")
        await carry_out(joined(self._closing))

    def give_away(self) -> None:
        """Mark the node closed; its kernel now belongs to the caller. Raises: FreeactError: Code is at work in it."""
        if self._lock.locked():
            raise FreeactError(f"{self.code.label} is at work: wait for its end")
        self._given_away = True

    def check_open(self) -> None:
        """Raise FreeactError if the node is closed."""
        if not self.is_open:
            raise FreeactError(f"{self.code.label} is closed: make another node with branch()")

    def __repr__(self) -> str:
        return f"<{self.code.label}, {'open' if self.is_open else 'closed'}>"

    def _context(self, call_id: str) -> CellContext:
        owner = self.code.principal
        return CellContext(
            config=owner.shared.config,
            tool_call_id=call_id,
            output_folder=owner.output_folder,
            emit=partial(owner.emitter.emit, tool_call_id=call_id),
            asked_seconds=lambda: owner.run.clock.stood_still,
            at_limit=self.code.at_limit_of_cell,
        )

    async def _close(self) -> None:
        try:
            await self.kernel.aclose()
        finally:
            self._owner.forget(self)


class Nodes:
    """The nodes of one agent."""

    def __init__(
        self,
        agent: TreeAgent,
        kernel: AgentKernel,
        in_run: InRun,
    ) -> None:
        """Start without nodes.

        Args:
            agent: The owner.
            kernel: The owner's.
            in_run: Does work in the owner's run.
        """
        self._agent = agent
        self._kernel = kernel
        self.in_run = in_run
        self._nodes: dict[str, OwnedNode] = {}
        self._promoting = asyncio.Lock()

    def list(self) -> Sequence[OwnedNode]:
        """Return the open nodes, oldest first."""
        return tuple(self._nodes.values())

    def find(self, node_id: str) -> OwnedNode:
        """Return the open node with this id.

        Raises:
            InvalidRequestError: The agent has no such node.
        """
        if node_id not in self._nodes:
            there = f"the open nodes are {', '.join(self._nodes)}" if self._nodes else "branch() makes one"
            raise InvalidRequestError(f"there is no node {node_id!r}: {there}")
        return self._nodes[node_id]

    async def branch(self, origin: OwnedNode | None, description: str = "", *, own_files: bool = False) -> OwnedNode:
        """Make a node by copying a kernel. Args: origin: the node to copy. None: the agent's own kernel."""
        made = list[OwnedNode]()

        async def make() -> None:
            made.append(await self._branch(origin, description, own_files=own_files))

        try:
            await self.in_run(make)
        except asyncio.CancelledError:
            for node in made:  # just made, and nobody gets it any more
                await node.close()
            raise
        return made[0]

    async def keep(self, child: TreeAgent, kernel: AgentKernel) -> OwnedNode:
        """Make a node of the kernel of a child whose run is ending.

        Raises:
            KernelError: The child has no live kernel.
        """
        code = TreeAgent(
            shared=child.shared,
            agent_id=child.agent_id,
            key=self._agent.key,
            parent=self._agent,
            owner=self._agent,
            choices=child.choices.model_copy(update={"keep": True}),
            policy=child.policy.with_scratch(()),
            model=child.model,
            rights=child.rights,
        )
        await kernel.live()
        kernel.assign(code)
        return self._add(OwnedNode(code, kernel, self, child.run.record.history))

    def of_child(self, agent_id: str, mode: Mode) -> OwnedNode | None:
        """Return the open node of a child that will work in this mode, if it has one.

        Raises:
            InvalidRequestError: The node's kernel has the wall of another mode.
        """
        node = self._nodes.get(agent_id)
        if node is None or not node.is_open:
            return None
        if node.code.policy.mode != mode:
            raise InvalidRequestError(
                f"{node.code.label} is in mode {node.code.policy.mode}, and its child would be in mode {mode}: close the "
                "node first, or start a new child"
            )
        return node

    def take_back(self, node: OwnedNode, child: TreeAgent) -> AgentKernel:
        """Give a node's kernel back to its child, which begins another run: the node is closed, and its kernel stays."""
        node.give_away()
        del self._nodes[node.node_id]
        node.kernel.assign(child)
        return node.kernel

    async def adopt(self, origin: KernelNode, names: Sequence[str] | None = None) -> None:
        """Take over a node's variables: those with these names, or its whole kernel."""
        node = _owned(origin)
        node.check_open()

        async def take() -> None:
            await self._kernel.bring_back()  # it would come over what is adopted
            if names is not None:
                name = await self.write_values(node, names)
                await hand_over(name, await node.kernel.get(), await self._kernel.get())
            elif await node.own_files() is not None:
                raise FreeactError(f"{node.code.label} works in its own copy of the workspace: name the variables to adopt")
            else:
                await self._kernel.become(node.kernel)

        await self.in_run(take)
        self._kernel.past.changed()

    async def promote(self, origin: KernelNode) -> "Changes":
        """Take over the files that a node has changed in its copy of the workspace."""
        node = _owned(origin)
        node.check_open()
        return await self.in_run(lambda: self._promote(node))

    async def write_values(self, node: OwnedNode, names: Sequence[str]) -> str:
        """Let a node write variables into a file of its scratch folder, and return the file's name.

        Raises:
            FreeactError: The reader may do more than the node, and reading a pickle runs the node's code.
            KernelError: A variable is missing or cannot be pickled.
        """
        mine, theirs = self._agent, node.code
        if theirs.policy.mode != mine.policy.mode or theirs.rights != mine.rights:
            raise FreeactError(
                f"{theirs.label} has another mode, type or list of tools than the agent that would adopt its variables, and "
                "reading them runs its code: have it write files instead"
            )
        return await give_values(await node.kernel.get(), names)

    def forget(self, node: OwnedNode) -> None:
        """Remove a closed node."""
        self._nodes.pop(node.node_id, None)
        self._agent.shared.kernel_places.give_back(node.code)

    async def aclose(self) -> None:
        """Close all nodes."""
        await asyncio.gather(*(node.close() for node in self.list()), return_exceptions=True)

    async def _branch(self, origin: OwnedNode | None, description: str, *, own_files: bool) -> OwnedNode:
        above = origin.code if origin is not None else self._agent
        code = TreeAgent(
            shared=self._agent.shared,
            agent_id=f"node-{secrets.token_hex(4)}",
            key=self._agent.key,
            parent=self._agent,
            owner=self._agent,
            choices=above.choices.model_copy(update={"description": description, "keep": True}),
            policy=above.policy.with_scratch(()),
            model=self._agent.model,
            rights=above.rights,
        )
        places = self._agent.shared.kernel_places
        if places.would_never_come(self._agent):
            raise no_kernel_left(places)
        try:
            async with self._agent.run.waiting_for_child() if places.full else nullcontext():  # keeps its own place
                await places.take(code)
            copied = origin.kernel if origin is not None else self._kernel
            if origin is None:
                await copied.bring_back()
            kernel = AgentKernel(code, copied, own_files=own_files)
            try:
                await kernel.live()
                kernel.assign(code)
            except BaseException:
                await carry_out(kernel.aclose())
                raise
        except BaseException:
            places.give_back(code)
            raise
        return self._add(OwnedNode(code, kernel, self, origin.history if origin is not None else ()))

    async def _promote(self, node: OwnedNode) -> "Changes":
        own, changes = await node.own_files(), await node.diff()
        if own is None:
            return changes
        from freeact_sub.kernels.files.own_files import promote  # noqa: PLC0415  # few nodes have files

        taken: list[Changes] = []
        for path in changes.paths:
            operation: FileOperation = "remove" if path in changes.deleted else "write"
            call = FileWrite(path=str(own.workspace / path.rstrip("/")), operation=operation)
            await permit(call, Asker(agent=self._agent))

        async def take() -> None:
            taken.append(await asyncio.to_thread(promote, own, changes))

        async with self._promoting:
            await carry_out(take(), timeout_seconds=PROMOTE_SECONDS)
        return taken[0]

    def _add(self, node: OwnedNode) -> OwnedNode:
        self._nodes[node.node_id] = node
        return node


def _owned(node: KernelNode) -> OwnedNode:
    """Return a node as its owner keeps it. Raises: InvalidRequestError: No agent has made it."""
    if not isinstance(node, OwnedNode):
        raise InvalidRequestError(f"{node!r} is not a node of an agent: give what branch() has returned")
    return node
