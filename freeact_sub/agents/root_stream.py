"""`RootStream`: where the events of a root and its children go.

While no run is live, it holds back what the next one tells.
"""

from collections.abc import Callable, Sequence
from typing import Any

from freeact_sub.agents.runs.results import PictureUse
from freeact_sub.channel import DirectChannel, Emitter, EventChannel, Tap
from freeact_sub.events import AgentEvent, Notice


class RootStream:
    """The channel of the root's present run, and what waits for the next one."""

    def __init__(self) -> None:
        self.channel: EventChannel = EventChannel()
        """That of the present or last run."""
        self.pictures: PictureUse = "saved"
        """How pictures that cells display reach the user, in the present run."""
        self.messages: list[str] = []
        """For the root's model: answers of children whose ancestors were all idle when they ended."""
        self._notices: list[str] = []
        """For people."""
        self._events: list[AgentEvent] = []
        """Starts and ends of agents, with their headers: each agent starts and ends exactly once over all streams."""
        self._meanwhile: Callable[[], EventChannel] | None = None
        """Makes the channel of background children while no run is live."""

    @property
    def is_followed(self) -> bool:
        """Whether somebody hears background children while no run is live."""
        return self._meanwhile is not None

    def follow(self, hear: Callable[[Any], None], taps: Sequence[Tap]) -> None:
        """See `Agent.follow_background`."""
        self._meanwhile = lambda: DirectChannel(hear, taps)

    def begin(self, channel: EventChannel, pictures: PictureUse) -> None:
        """Begin a run."""
        self.channel, self.pictures = channel, pictures

    def end(self) -> None:
        """The run has ended, and its channel with it."""
        if self._meanwhile is not None:
            self.channel = self._meanwhile()

    def notice_later(self, text: str) -> None:
        """Hold a notice back for the next run."""
        self._notices.append(text)

    def emit_held_back(self, emitter: Emitter) -> None:
        """Put notices and events on the stream of a new run. Args: emitter: the root's."""
        for text in self._notices:
            emitter.put(Notice(content=text))
        for event in self._events:
            emitter.channel.put(event)
        self._notices, self._events = [], []

    def take_messages(self) -> list[str]:
        """Remove and return the messages, which precede the next prompt."""
        texts, self.messages = self.messages, []
        return texts

    def emit_or_keep(self, event: AgentEvent, emitter: Emitter) -> None:
        """Put an event of a detached agent on the open stream, or keep it for the next one."""
        if emitter.channel.closed:
            self._events.append(emitter.signed(event))
        else:
            emitter.put(event)
