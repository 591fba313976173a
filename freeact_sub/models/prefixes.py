"""`Prefixes`: of agents whose first requests begin alike, one is sent first, so that the others read it from the cache.

A provider that bills the writing of its cache lets others read an entry once it has begun to answer the request that wrote
it. Twenty children that ask at once would write the same tools and system prompt twenty times.
"""

import asyncio
import time
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

WAIT_SECONDS: Final = 30.0
"""The longest wait for another agent's first answer."""
KEPT_SECONDS: Final = 240.0
"""How long an entry is taken to be in the cache; providers keep it for 5 minutes."""


@dataclass(eq=False)
class _Entry:
    """A prefix in a provider's cache, or on its way there."""

    known: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the provider has begun to answer a request with it, or that request has failed."""
    since: float = field(default_factory=time.monotonic)

    @property
    def is_old(self) -> bool:
        """Whether the provider may have dropped it."""
        return self.known.is_set() and time.monotonic() - self.since > KEPT_SECONDS


@dataclass(kw_only=True)
class FirstRequest:
    """The first request of one agent. What comes after it waits for nobody."""

    entry: _Entry | None = None
    """None: there is nothing to wait for."""
    leads: bool = False
    """The request of this agent is the one that is sent first."""

    async def wait(self) -> None:
        """Wait until the prefix is in the cache, for a bounded time."""
        if self.entry is None or self.leads:
            return
        entry, self.entry = self.entry, None
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_SECONDS):
                await entry.known.wait()

    def is_known(self) -> None:
        """The provider has begun to answer, or the request has failed: the others go on."""
        if self.entry is not None and self.leads:
            self.entry.since = time.monotonic()
            self.entry.known.set()
            self.entry = None


@dataclass(kw_only=True)
class Prefixes:
    """The prefixes with which the agents of one root have begun."""

    _begun: dict[Hashable, _Entry] = field(default_factory=dict)

    def of(self, prefix: Hashable | None) -> FirstRequest:
        """Return the place of an agent's first request. Args: prefix: None: nothing is gained by waiting."""
        if prefix is None:
            return FirstRequest()
        entry = self._begun.get(prefix)
        if entry is not None and not entry.is_old:
            return FirstRequest(entry=entry)
        entry = self._begun[prefix] = _Entry()
        return FirstRequest(entry=entry, leads=True)
