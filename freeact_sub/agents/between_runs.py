"""`BetweenRuns`: what happens while no run of the root goes on, and is told in its next run."""

from dataclasses import dataclass, field

from freeact_sub.channel import Emitter
from freeact_sub.events import AgentEvent, Notice


@dataclass(kw_only=True)
class BetweenRuns:
    """Kept for the next run of a root."""

    notices: list[str] = field(default_factory=list)
    """For people."""
    events: list[AgentEvent] = field(default_factory=list)
    """Starts and ends of agents, signed: each agent begins and ends once over all streams."""
    messages: list[str] = field(default_factory=list)
    """For the root's model: what children have found whose parents, and all above them, were not at work."""

    def tell(self, emitter: Emitter) -> None:
        """Put notices and events on the stream of a run that begins. Args: emitter: the root's."""
        for text in self.notices:
            emitter.put(Notice(content=text))
        for event in self.events:
            emitter.channel.put(event)
        self.notices, self.events = [], []

    def take_messages(self) -> list[str]:
        """The messages, to stand before the prompt of a run that begins."""
        texts, self.messages = self.messages, []
        return texts

    def tell_or_keep(self, event: AgentEvent, emitter: Emitter) -> None:
        """Put an event of a detached agent on the stream that is read; where there is none, on the next."""
        if emitter.channel.closed:
            self.events.append(emitter.signed(event))
        else:
            emitter.put(event)
