"""`OwnKernel`: the methods of `Agent` for a kernel: run code in it, put values in, take values out, copy it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from freeact_sub.agents.call import in_cell_of
from freeact_sub.agents.ports import KernelNode
from freeact_sub.agents.root import Root
from freeact_sub.agents.runs.loop import AgentLoop
from freeact_sub.agents.turn.own_calls import run_own_cell
from freeact_sub.errors import FreeactError, InvalidRequestError
from freeact_sub.events import CodeExecutionOutput
from freeact_sub.kernels import put_values

if TYPE_CHECKING:
    from freeact_sub.kernels.workspaces import Changes

T = TypeVar("T")

CALLS: Final = "program_"
"""The prefix of the ids of calls that run a program's own code."""
BUSY: Final = (
    "the kernel is busy: a cell in it waits for what asks this, so nothing else can be done with it until that returns"
)


class OwnKernel:
    """The kernel of the agent on whose behalf a method is called, which is the root's as a rule."""

    def __init__(self, root: Root) -> None:
        self._root = root

    async def execute(self, code: str) -> CodeExecutionOutput:
        """Run code in the agent's kernel, as one cell, and return how it ended, its text and what it displayed.

        Nobody is asked whether it may run, for it is the program's own. The agent's wall holds for it, and what it does
        (files, programs, connections, children) needs approval like what the model's cells do. An error that it raises is
        a `status`. It waits for a cell that is running, and the model reads nothing of it. Raises KernelLostError if the
        kernel ends, and LimitReachedError if the budget has no call left.
        """
        if not isinstance(code, str):
            raise InvalidRequestError(f"agent.execute: code is a text, not {type(code).__name__}")
        loop = self._loop()
        kernel = loop.resources.kernel

        async def run() -> CodeExecutionOutput:
            await kernel.bring_back()
            return await run_own_cell(code, CALLS, loop.agent, kernel.get, loop.tool_context, is_asked=False)

        return await loop.children.in_run(run)

    async def put(self, /, **values: Any) -> None:
        """Put values of the program into variables of the agent's kernel: `await agent.put(df=df)`.

        They are pickled, with classes and functions of the program's own modules, and travel in a file of which the kernel
        maps large arrays and frames. They are variables like any other: cells may change and replace them, and a session
        brings them back. Nothing tells the model of them; `run(inputs=...)` does. Raises InvalidRequestError for a value
        that cannot be pickled or a name that no variable can have, and KernelError if the kernel cannot read it.
        """
        if values:
            loop = await self._ready()
            await put_values(values, await loop.resources.kernel.get())
            loop.agent.shared.journal.kernel_changed(loop.agent.agent_id)

    @overload
    async def get(self, name: str, *, output: type[T], trust: bool = False) -> T: ...
    @overload
    async def get(self, name: str, *, output: Any = None, trust: bool = False) -> Any: ...
    async def get(self, name: str, *, output: Any = None, trust: bool = False) -> Any:
        """Return the value of a variable of the agent's kernel: `df = await agent.get("df")`.

        Frames, series and indexes of pandas, arrays of numpy and bytes come as they are. All other values come as JSON does:
        models and dataclasses as dicts, tuples and sets as lists, times as texts. `output` makes values of a type of them,
        such as `Report`, `set[int]` or `datetime`, and raises for those of another type. An array or a frame may stand in
        a list or a dict. Nothing that the kernel has written is unpickled, because its code, which a model may have written,
        decides what a pickle does where it is read.

        With `trust` the value is unpickled: all that pickle can carry comes back, a fitted model for example. Reading it can
        run any code in this process, with all its rights and outside the agent's wall. Do so only if you trust all
        code that has run in the kernel as much as your own.

        At most 1 GiB, and 128 MiB of JSON. Raises KernelValueError if there is no such variable, it cannot be taken, takes
        longer than `kernel.cell_timeout_seconds`, or is not of the type; and KernelLostError if the kernel ends.
        """
        loop = await self._ready()
        return await loop.resources.kernel.take(name, output, trust=trust)

    async def variables(self) -> dict[str, str]:
        """Return the variables that cells have made in the agent's kernel, oldest first: by name, a line on each.

        The line has the type and the size, such as `df: pandas.DataFrame, shape (3, 2)`, or the value of a number. It waits
        for a cell that is running. Raises KernelError if the kernel does not answer within `kernel.cell_timeout_seconds`.
        """
        return await (await self._ready()).resources.kernel.variables()

    async def branch(self, description: str = "", *, own_files: bool = False) -> KernelNode:
        """Make a node by copying the kernel of the agent whose child `spawn` would start. No model works in it.

        It counts towards `kernel.max_live` and is closed with the agent or by `KernelNode.close`. With `own_files`, it and
        its branches work in copies of the workspace: nobody else sees what they write there. `description` is a label.
        Raises KernelBranchError if the kernel cannot be copied, and SpawnForbiddenError if all kernels belong to nodes and
        to waiting agents.
        """
        return await self._root.callers_loop.children.nodes.branch(None, description, own_files=own_files)

    async def adopt(self, node: KernelNode, names: Sequence[str] | None = None) -> None:
        """Take variables of one of the agent's nodes over into the agent's kernel. The node stays open.

        The named variables are pickled; without names, the agent's kernel becomes a copy of the node's. Raises KernelError
        if that cannot be done, and FreeactError if the node may do less than the agent.
        """
        await self._root.callers_loop.children.nodes.adopt(node, names)

    async def promote(self, node: KernelNode) -> "Changes":
        """Take over a node's changes to its copy of the workspace (`KernelNode.diff`): all of them or none.

        Each path needs approval like a write of the agent's own. A cancellation takes effect afterwards. Returns what was
        taken over; files that freeact or git obey never are, and `left_out` names them. Raises WorkspaceConflictError if
        the workspace has changed in the same places, ApprovalDeniedError if a path was denied, and OSError if writing
        failed; then the workspace is unchanged.
        """
        return await self._root.callers_loop.children.nodes.promote(node)

    def _loop(self) -> AgentLoop:
        loop = self._root.callers_loop
        if in_cell_of(loop.agent.agent_id):
            raise FreeactError(BUSY)
        return loop

    async def _ready(self) -> AgentLoop:
        """The loop of the agent, when its kernel has the variables that a session brings back."""
        loop = self._loop()
        if loop.resources.kernel.is_due:
            await loop.children.in_run(loop.resources.kernel.bring_back)  # a person may be asked about them
        return loop
