"""Two bounds on what works at once in a tree: `Slots` for children at work, `KernelPlaces` for live kernels.

A slot is given back while its agent waits for a child; a kernel cannot be, its variables are in it. So agents that wait for
children may fill all places for kernels, and a further child would wait for ever. A child asks for its kernel first and for
its slot then: whoever waits for a kernel has no slot that others need.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol


class Slots:
    """A bound on how many children work at once; more wait in order."""

    def __init__(self, size: int) -> None:
        self._semaphore = asyncio.Semaphore(size)

    @property
    def full(self) -> bool:
        """True where the next child has to wait."""
        return self._semaphore.locked()

    async def acquire(self) -> None:
        """Wait for a slot and take it."""
        await self._semaphore.acquire()

    def release(self) -> None:
        """Give a slot back."""
        self._semaphore.release()


class Holder(Protocol):
    """An agent, as far as places for kernels are concerned."""

    @property
    def waits_for_child(self) -> bool:
        """Its run cannot end before a child's has."""
        ...


@dataclass(kw_only=True, eq=False)
class _Waiting:
    holder: Holder
    has_place: asyncio.Event = field(default_factory=asyncio.Event)


class KernelPlaces:
    """A bound on the live kernels of a tree; more agents wait in order."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._holders: set[Holder] = set()
        self._waiting: deque[_Waiting] = deque()

    @property
    def full(self) -> bool:
        """True where the next agent has to wait."""
        return len(self._holders) >= self.size

    def would_never_come(self, parent: Holder) -> bool:
        """Whether a place would never be free for a child of this agent: every agent that has one waits for a child."""
        return self.full and all(holder.waits_for_child or holder is parent for holder in self._holders)

    @property
    def stuck(self) -> bool:
        """Whether somebody waits for a place, and every agent that has one waits for a child."""
        return bool(self._waiting) and all(holder.waits_for_child for holder in self._holders)

    def take_now(self, holder: Holder) -> None:
        """Take a place without waiting: for the root, which comes first."""
        self._holders.add(holder)

    async def take(self, holder: Holder) -> None:
        """Wait for a place and take it."""
        if not self.full and not self._waiting:
            self._holders.add(holder)
            return
        waiting = _Waiting(holder=holder)
        self._waiting.append(waiting)
        try:
            await waiting.has_place.wait()
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)

    def give_back(self, holder: Holder) -> None:
        """Let the next agent have the place, if this one has one."""
        self._holders.discard(holder)
        while self._waiting and not self.full:
            first = self._waiting.popleft()
            self._holders.add(first.holder)
            first.has_place.set()
