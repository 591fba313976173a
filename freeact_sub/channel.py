"""The one bounded, ordered stream of a root run (`EventChannel`), and an agent's writer for it (`Emitter`).

An event gets its `seq` at the moment it is accepted, after the wait for room, so the order of the stream and the order of
the numbers are the same by construction. `send` waits for room: a slow reader slows the agents. `put` never waits: it is
for endings, which must not hang on a reader that is gone. Once the channel is closed, both drop their events; once it is
abandoned, only the taps hear of them.

One event loop only (`check_event_loop`); no locks are needed because nothing awaits between the check and the append.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

import anyio

from freeact_sub.errors import FreeactError
from freeact_sub.events import AgentEvent, Event

Tap = Callable[[Event], None]
"""A function called with each stamped event before it is queued, in order; must be quick and must not raise."""


def hearing(tap: Callable[[Any], None], *kinds: type[AgentEvent]) -> Tap:
    """Return a tap for events of these types only."""
    return lambda event: tap(event) if isinstance(event, kinds) else None


NO_HEADER: Final[Mapping[str, Any]] = MappingProxyType({})


class EventChannel:
    """The channel of a root run, from all its agents to one reader."""

    def __init__(self, size: int = 64, taps: Sequence[Tap] = ()) -> None:
        """Open the channel. Args: size: bound on queued events before `send` waits. taps: called with each event."""
        self._room = anyio.Semaphore(size, fast_acquire=True)  # first come, first served
        self._waiting: deque[tuple[AgentEvent, bool]] = deque()
        self._changed = asyncio.Event()
        self._taps = tuple(taps)
        self._next_seq = 0
        self._abandoned = False
        self._when_read: list[Callable[[], object]] = []
        self.closed = False

    @property
    def is_idle(self) -> bool:
        """Whether the reader has read all events."""
        return not self._waiting

    def when_read(self, call: Callable[[], object]) -> None:
        """Call a function once the reader has handled all events so far, and comes for the next one."""
        if self.is_idle:  # it was handed the last one already
            call()
        else:
            self._when_read.append(call)

    async def send(self, event: AgentEvent, header: Mapping[str, Any] = NO_HEADER) -> AgentEvent | None:
        """Queue an event once there is room. Args: header: fields to be set in it.

        Returns:
            The event as the reader gets it. None: there is no reader, or the channel is closed.
        """
        if not (self.closed or self._abandoned):
            await self._room.acquire()
        if self.closed or self._abandoned:
            self._room.release()  # the next waiter finds the same
            self.put(event, header)
            return None
        return self._append(event, header, took_room=True)

    def put(self, event: AgentEvent, header: Mapping[str, Any] = NO_HEADER) -> None:
        """Queue an event at once, even over the bound. Args: header: fields to be set in it."""
        if not self.closed:
            self._append(event, header, took_room=False)

    def finish(self) -> None:
        """End the stream after the queued events."""
        self.closed = True
        self._room.release()
        self._changed.set()

    def abandon(self) -> None:
        """Drop queued and later events: the reader is gone. The taps still hear of the end."""
        self._waiting.clear()
        self._abandoned = True
        self._room.release()
        self._changed.set()

    async def receive(self) -> Event | None:
        """Return the next event, or None at the end of the stream."""
        while not self._waiting:
            if self.closed or self._abandoned:
                return None
            if self._when_read:
                self._when_read.pop(0)()
                continue
            self._changed.clear()
            await self._changed.wait()
        event, took_room = self._waiting.popleft()
        if took_room:
            self._room.release()
        return event  # type: ignore[return-value]  # only members of Event are created

    def _append(self, event: AgentEvent, header: Mapping[str, Any], *, took_room: bool) -> AgentEvent:
        stamped = replace(event, **header, seq=self._next_seq, time=time.time())
        self._next_seq += 1
        for tap in self._taps:
            tap(stamped)  # type: ignore[arg-type]  # only members of Event are created
        if not self._abandoned:
            self._waiting.append((stamped, took_room))
            self._changed.set()
        return stamped


class DirectChannel(EventChannel):
    """A channel without a run, which hands each event over at once."""

    def __init__(self, hear: Tap, taps: Sequence[Tap] = ()) -> None:
        """Open the channel. Args: hear: gets each event after the taps; as quick as they are."""
        super().__init__(taps=(*taps, hear))

    def _append(self, event: AgentEvent, header: Mapping[str, Any], *, took_room: bool) -> AgentEvent:
        stamped = super()._append(event, header, took_room=took_room)
        self._waiting.clear()
        if took_room:
            self._room.release()
        return stamped


@dataclass(frozen=True, kw_only=True)
class Emitter:
    """A writer of one agent's events, with its header, to the root's channel."""

    channel: EventChannel
    agent_id: str
    parent_id: str | None = None
    depth: int = 0

    async def emit(self, event: AgentEvent, *, tool_call_id: str | None = None) -> AgentEvent | None:
        """Send an event, and wait for a slow reader. Return the event as the reader gets it. None: the channel is closed."""
        return await self.channel.send(event, self._header(tool_call_id))

    def put(self, event: AgentEvent, *, tool_call_id: str | None = None) -> None:
        """Send an event without waiting, for endings."""
        self.channel.put(event, self._header(tool_call_id))

    def signed(self, event: AgentEvent) -> AgentEvent:
        """Return the event with the agent's header."""
        return replace(event, **self._agent)

    @property
    def agent_fields(self) -> dict[str, Any]:
        """The fields that name the agent in its events."""
        return self._agent

    def _header(self, tool_call_id: str | None) -> dict[str, Any]:
        return {**self._agent, "tool_call_id": tool_call_id} if tool_call_id else self._agent

    @cached_property
    def _agent(self) -> dict[str, Any]:
        return {"agent_id": self.agent_id, "parent_id": self.parent_id, "depth": self.depth}


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, if one does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def check_event_loop(home: asyncio.AbstractEventLoop | None) -> None:
    """Refuse a call from an event loop other than the agent's.

    Args:
        home: The agent's loop. None: the agent is not open.

    Raises:
        FreeactError: Another loop is running here.
    """
    if home is None or running_loop() in (None, home):
        return
    if home.is_closed():
        raise FreeactError(
            "the event loop in which the agent was opened has ended, and the agent's kernel with it: make a new Agent, "
            "and open, use and close it in one event loop"
        )
    raise FreeactError("the agent was opened in another event loop: use and close it there, or make a new Agent here")
