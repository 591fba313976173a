"""What the lower files of `agents/` know of the higher ones, which are built on them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, Self

from freeact_sub.events import CodeExecutionOutput
from freeact_sub.kernels import HostRequestHandler, Kernel, KernelSpec

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, TextContent

    from freeact_sub.kernels.workspaces import Changes, OwnFiles


class KernelHolder(Protocol):
    """Somebody who holds a place for a live kernel: an agent, or a node."""

    @property
    def agent_id(self) -> str:
        """Its id."""
        ...

    @property
    def keeps_kernel(self) -> bool:
        """Whether it holds its place until somebody closes it."""
        ...

    @property
    def waits_for_child(self) -> bool:
        """Whether it holds its place at least until a child has ended."""
        ...


class AtWork(Protocol):
    """An agent at work, as its run and others of its tree reach it."""

    @property
    def expected(self) -> "Sequence[ModelMessage]":
        """The conversation so far, and what waits for the next request."""
        ...

    def send(self, text: "str | TextContent", *, of_person: bool = False) -> bool | None:
        """Send what the model reads before its next request. Returns None before its first request, False after its last."""
        ...

    def give_up(self) -> None:
        """Declares its run ended."""
        ...


class UsedKernel(Protocol):
    """An agent's kernel, which may be starting, lost or replaced."""

    @property
    def is_used(self) -> bool:
        """Whether code may have run in it."""
        ...

    @property
    def has_own_files(self) -> bool:
        """Whether it works in a copy of the workspace."""
        ...

    async def get(self) -> Kernel:
        """Returns the live kernel; starts one if needed. Raises: KernelError: There is none."""
        ...

    async def copy(
        self, handler: HostRequestHandler | None = None, change: Callable[[KernelSpec], KernelSpec] | None = None
    ) -> Kernel:
        """Branch the live kernel; the caller closes it. Raises: KernelError: It cannot be branched."""
        ...

    async def reset(self) -> None:
        """Replaces the kernel with a new one. Raises: KernelError: There is none."""
        ...


class KernelNode(ABC):
    """A live kernel that an agent keeps. It counts towards `kernel.max_live` and ends with its owner at the latest.

    As an async context manager it closes on exit. `Agent.branch` makes it, and a child that is started with `keep`.
    """

    @property
    @abstractmethod
    def node_id(self) -> str:
        """Its id: the child's whose kernel it was, or its own."""

    @property
    @abstractmethod
    def description(self) -> str:
        """Its label, or its child's."""

    @property
    @abstractmethod
    def history(self) -> list["ModelMessage"]:
        """The conversation of the child whose kernel it was; a branch of a node has that node's."""

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether it is not closed; its kernel may have died."""

    @abstractmethod
    async def execute(self, code: str) -> CodeExecutionOutput:
        """Run a cell of the program's own code, as `Agent.execute` does in the agent's kernel: nobody is asked about it.

        What it does (files, programs, connections, children) needs approval, and the node's mode decides what it may do. It
        counts as a cell of the node's owner. Code that a model has written runs by `execute_asked`.

        Returns:
            The cell's `status`, `text` and `displays`. An error raised by the code is a `status`.

        Raises:
            LimitReachedError: The owner's budget has no call left.
            KernelLostError: The node's kernel has ended.
            FreeactError: The node is closed, or its owner's run has ended.
        """

    @abstractmethod
    async def execute_asked(self, code: str) -> CodeExecutionOutput:
        """Run a cell that needs approval like any cell of the owner's model, as the steps of a search do. See `execute`.

        Raises:
            ApprovalDeniedError: The cell was denied.
        """

    @abstractmethod
    async def branch(self, description: str = "", *, own_files: bool = False) -> "KernelNode":
        """Make a node whose kernel starts as a copy of this one. Arguments and errors: see `Agent.branch`."""

    @abstractmethod
    async def variables(self) -> dict[str, str]:
        """Return a line on each variable of its kernel, by name. See `Agent.variables`."""

    @abstractmethod
    async def own_files(self) -> "OwnFiles | None":
        """The copy of the workspace in which it works. None: the workspace itself."""

    @abstractmethod
    async def diff(self) -> "Changes":
        """Return what it has changed in its copy of the workspace; empty if it has none.

        Raises:
            KernelLostError: The node's kernel has ended, and its copy with it.
            FreeactError: The node is closed, or the copy is too large to compare.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close its kernel; its branches live on. Can be called again."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
