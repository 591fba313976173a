"""`Feed`: the events of a conversation as messages and HTML, for readers that come and go, such as pages in browsers."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator
from typing import Final

from freeact_sub.events import AgentEvent, QuestionRequest
from freeact_sub.show.agent_story import AgentStory, Stories
from freeact_sub.show.blocks import Part, StoryBlock
from freeact_sub.show.heads import doing
from freeact_sub.show.safe_html import bundle_html, code_html, escaped, markdown_html, text_html
from freeact_sub.show.teller import readable

MAX_MESSAGES: Final = 20_000
"""Maximum number of messages that a feed keeps."""


class Feed:
    """The messages of a conversation, kept so that a reader who connects late, or again, misses nothing.

    Of a long conversation the newest messages are kept; a reader who is further behind goes on with the oldest of them.
    """

    def __init__(self, most: int = MAX_MESSAGES) -> None:
        """Args: most: messages to keep."""
        self._views = Stories()
        self._messages: deque[str] = deque(maxlen=most)
        self._number = 0
        """Number of all messages so far."""
        self._changed = asyncio.Condition()
        self._closed = False

    async def read(self, events: AsyncIterable[AgentEvent]) -> None:
        """Read the events of a run to its end."""
        async for event in events:
            if isinstance(event, QuestionRequest):
                event.shown()
            view = self._views.observe(event)
            shown = json.dumps({"html": event_html(view, event), "does": doing(view)})
            self._number += 1
            self._messages.append(f'{{"event": {event.to_json()}, {shown[1:]}')
            async with self._changed:
                self._changed.notify_all()

    async def aclose(self) -> None:
        """End all readers when they have read all messages."""
        self._closed = True
        async with self._changed:
            self._changed.notify_all()

    async def after(self, number: int = -1) -> AsyncIterator[tuple[int, str]]:
        """Yield the messages after `number`, which counts from 0, and then each new one, until the feed is closed.

        A message is a JSON object: the `event`, its `html`, and what its agent `does` now.
        """
        while True:
            number += 1
            async with self._changed:
                while self._number <= number:
                    if self._closed:
                        return
                    await self._changed.wait()
            oldest = self._number - len(self._messages)
            number = max(number, oldest)
            yield number, self._messages[number - oldest]


def event_html(view: AgentStory, event: AgentEvent) -> str:
    """Return the blocks of an event as HTML, safe in any page. Args: view: its agent, which has observed the event."""
    return "".join(map(_block, readable(view, event)))


def _block(block: StoryBlock) -> str:
    title = ", ".join(filter(None, [block.title, block.detail]))
    head = "" if block.goes_on else f'<div class="fsub-note">{escaped(title)}</div>'
    return head + "".join(_part(part, "error" if block.tone == "bad" else "text") for part in block.parts)


def _part(part: Part, kind: str) -> str:
    match part.form:
        case "markdown":
            return markdown_html(part.text)
        case "code" | "arguments":
            return code_html(part.text)
        case "bundle":
            return bundle_html(part.data)
        case _ if part.brief:
            return f'<div class="fsub-note">{escaped(part.text)}</div>'
        case _:
            return text_html(part.text, "error" if part.tone == "bad" else kind)
