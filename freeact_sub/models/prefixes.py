"""`Prefixes`: of agents whose first requests begin alike, one is sent first, so that the others read it from the cache.

A provider that bills the writing of its cache lets others read an entry once it has begun to answer the request that wrote
it. Twenty children that ask at once would write the same tools and system prompt twenty times.
"""

import asyncio
import time
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

WAIT_SECONDS: Final = 30.0
"""The longest wait for another agent's first answer."""
KEPT_SECONDS: Final = 240.0
"""How long an entry is taken to be in the cache; providers keep it for 5 minutes."""


@dataclass(kw_only=True)
class FirstRequest:
    """The first request of one agent. What comes after it waits for nobody."""

    known: asyncio.Event | None = None
    """Set once the provider has begun to answer a request with this prefix. None: there is nothing to wait for."""
    leads: bool = False
    """The request of this agent is the one that is sent first."""
    entry: "list[float] | None" = None
    """The time of the first answer, for those that come later."""

    async def wait(self) -> None:
        """Wait until the prefix is in the cache, for a bounded time."""
        known, self.known = self.known, self.known if self.leads else None
        if known is not None and not self.leads:
            try:
                async with asyncio.timeout(WAIT_SECONDS):
                    await known.wait()
            except TimeoutError:
                pass

    def is_known(self) -> None:
        """The provider has begun to answer, or the request has failed: the others go on."""
        if self.leads and self.known is not None:
            self.known.set()
            self.known = None
            if self.entry is not None:
                self.entry[:] = [time.monotonic()]


@dataclass(kw_only=True)
class Prefixes:
    """The prefixes with which the agents of one root have begun."""

    _begun: dict[Hashable, tuple[asyncio.Event, list[float]]] = field(default_factory=dict)

    def of(self, prefix: Hashable | None) -> FirstRequest:
        """Return the place of an agent's first request. Args: prefix: None: nothing is gained by waiting."""
        if prefix is None:
            return FirstRequest()
        event, since = self._begun.get(prefix, (None, [0.0]))
        if event is None or (event.is_set() and time.monotonic() - since[0] > KEPT_SECONDS):
            event, since = self._begun[prefix] = asyncio.Event(), [time.monotonic()]
            return FirstRequest(known=event, leads=True, entry=since)
        return FirstRequest(known=event)
