"""`Feed`: the events of a conversation as messages, for readers that come and go, such as pages in browsers."""

import asyncio
import json
from collections.abc import AsyncIterable, AsyncIterator

from freeact_sub.events import Event
from freeact_sub.show.agent_view import Views
from freeact_sub.show.row_html import event_html


class Feed:
    """Keeps every message of a conversation, so that a reader who connects late, or again, misses nothing."""

    def __init__(self) -> None:
        self._views = Views()
        self._messages: list[str] = []
        self._changed = asyncio.Condition()

    async def read(self, events: AsyncIterable[Event]) -> None:
        """Reads the events of a run to its end."""
        async for event in events:
            view = self._views.observe(event)
            shown = json.dumps({"html": event_html(view, event), "does": view.text})
            self._messages.append(f'{{"event": {event.to_json()}, {shown[1:]}')
            async with self._changed:
                self._changed.notify_all()

    async def after(self, number: int = -1) -> AsyncIterator[tuple[int, str]]:
        """Yields the messages after `number`, which counts from 0, and then each new one.

        A message is a JSON object: the `event`, its `html`, and what its agent `does` now.
        """
        while True:
            number += 1
            async with self._changed:
                while len(self._messages) <= number:
                    await self._changed.wait()
            yield number, self._messages[number]
