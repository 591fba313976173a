"""Two bounds on concurrency in a tree: slots for working children, a semaphore, and `KernelPlaces` for live kernels.

An agent gives its slot back while it waits for a child, but not its kernel, which holds its variables. So agents that wait
for children may occupy all kernel places, and one more child would wait for ever. A child takes its kernel place before its
slot: whoever waits for a kernel holds no slot that others need.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field

from freeact_sub.agents.ports import KernelHolder
from freeact_sub.errors import SpawnForbiddenError


@dataclass(kw_only=True, eq=False)
class _WaitingHolder:
    holder: KernelHolder
    is_over: asyncio.Event = field(default_factory=asyncio.Event)
    refused: bool = False
    """All places now belong to nodes and to waiting agents."""


class KernelPlaces:
    """A bound on the live kernels of a tree; more agents wait in order."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._holders: set[KernelHolder] = set()
        self._waiting: deque[_WaitingHolder] = deque()

    @property
    def full(self) -> bool:
        """Whether the next agent has to wait."""
        return len(self._holders) >= self.size

    def would_never_come(self, parent: KernelHolder) -> bool:
        """Whether a child of this agent would wait for ever, because all holders are nodes or wait for children."""
        return self.full and all(self._keeps_place(holder) or holder is parent for holder in self._holders)

    @property
    def holders(self) -> tuple[KernelHolder, ...]:
        """The agents and nodes that hold a place."""
        return tuple(self._holders)

    @property
    def waiting(self) -> int:
        """Agents that wait for a place."""
        return len(self._waiting)

    @property
    def stuck(self) -> bool:
        """Whether somebody waits for a place while all holders are nodes or wait for children."""
        return bool(self._waiting) and all(map(self._keeps_place, self._holders))

    def take_now(self, holder: KernelHolder) -> None:
        """Take a place without waiting, for the root."""
        self._holders.add(holder)

    async def take(self, holder: KernelHolder) -> None:
        """Wait for a place and take it.

        Raises:
            SpawnForbiddenError: Meanwhile the last place went to a node.
        """
        if holder in self._holders:  # it has got the place with its kernel
            return
        if not self.full and not self._waiting:
            self._holders.add(holder)
            return
        waiting = _WaitingHolder(holder=holder)
        self._waiting.append(waiting)
        try:
            await waiting.is_over.wait()
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
        if waiting.refused:
            raise no_kernel_left(self)

    def pass_on(self, holder: KernelHolder, other: KernelHolder) -> None:
        """Transfer a place."""
        self._holders.discard(holder)
        self._holders.add(other)

    def give_back(self, holder: KernelHolder) -> None:
        """Give the holder's place, if it has one, to the next agent."""
        self._holders.discard(holder)
        while self._waiting and not self.full:
            first = self._waiting.popleft()
            self._holders.add(first.holder)
            first.is_over.set()
        if self.stuck and any(other.keeps_kernel for other in self._holders):
            for waiting in self._waiting:
                waiting.refused = True
                waiting.is_over.set()
            self._waiting.clear()

    def _keeps_place(self, holder: KernelHolder) -> bool:
        return holder.waits_for_child or holder.keeps_kernel


def no_kernel_left(places: KernelPlaces) -> SpawnForbiddenError:
    """Return the error for a start that would wait for a kernel for ever."""
    return SpawnForbiddenError(
        f"all {places.size} kernels belong to agents that wait for a child or are kept as nodes, so one more would never "
        "come (setting `kernel.max_live`): close nodes, or do the work yourself"
    )
