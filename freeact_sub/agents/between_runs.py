"""`BetweenRuns`: what happens while the root has no live run; its next run reports it."""

from dataclasses import dataclass, field

from freeact_sub.channel import Emitter
from freeact_sub.events import AgentEvent, Notice


@dataclass(kw_only=True)
class BetweenRuns:
    """Notices, events and messages held back for the next run of a root."""

    notices: list[str] = field(default_factory=list)
    """For people."""
    events: list[AgentEvent] = field(default_factory=list)
    """Starts and ends of agents, with their headers: each agent starts and ends exactly once over all streams."""
    messages: list[str] = field(default_factory=list)
    """For the root's model: answers of children whose ancestors were all idle when they ended."""

    def emit(self, emitter: Emitter) -> None:
        """Put notices and events on the stream of a new run. Args: emitter: the root's."""
        for text in self.notices:
            emitter.put(Notice(content=text))
        for event in self.events:
            emitter.channel.put(event)
        self.notices, self.events = [], []

    def take_messages(self) -> list[str]:
        """Remove and return the messages, which precede the next prompt."""
        texts, self.messages = self.messages, []
        return texts

    def emit_or_keep(self, event: AgentEvent, emitter: Emitter) -> None:
        """Put an event of a detached agent on the open stream, or keep it for the next one."""
        if emitter.channel.closed:
            self.events.append(emitter.signed(event))
        else:
            emitter.put(event)
