"""`PlainLines`: events as lines of plain text, for pipes, logs and CI, and for conversations in plain lines.

There are no colours and no widths. An event's first line begins with its agent and says what it is. In a log each line
begins with the agent's short id, so that `grep` separates agents that work at the same time; if a text has more lines, those
follow with a bar. A person who reads or hears them in order gets names instead, and more lines are indented.
"""

from collections.abc import Callable, Iterator, Sequence

from freeact_sub.agent_names import short_id
from freeact_sub.events import AgentEvent
from freeact_sub.show.agent_story import AgentStory, Stories
from freeact_sub.show.blocks import Prompt, StoryBlock
from freeact_sub.show.teller import blocks
from freeact_sub.text import clean


class PlainLines:
    """The events of a run as lines, one after the other."""

    def __init__(self, views: Stories, name: Callable[[AgentStory], str] | None = None) -> None:
        """Args: views: observes each event before it is written here. name: names agents for a person. None: it is a log."""
        self._views = views
        self._name = name
        self._goes_on = ("", "")
        """The agent and the title of the last block, if another block may go on with it."""

    def write(self, event: AgentEvent, found: Sequence[StoryBlock] | None = None) -> str:
        """Return the event's lines with line ends; empty if it is not shown. Args: found: its blocks. None: made here."""
        view = self._views.of(event)
        found = [block for block in (blocks(view, event) if found is None else found) if block.title]
        lines = self._log(view, found) if self._name is None else self._told(view, self._name(view), found)
        return "".join(line.rstrip() + "\n" for line in lines)

    def _log(self, view: AgentStory, found: Sequence[StoryBlock]) -> Iterator[str]:
        for block in found:
            label = f"{view.label} " if isinstance(block, Prompt) and view.label else ""
            for title, text in _texts(block):
                first, *more = text.strip("\n").split("\n")
                head = f"{label}{title}"
                for line in (f"{head}: {first}" if first else head, *(f"| {line}" for line in more)):
                    yield f"{short_id(view.agent_id)} {line}"

    def _told(self, view: AgentStory, name: str, found: Sequence[StoryBlock]) -> Iterator[str]:
        for block in found:
            last, self._goes_on = self._goes_on, (view.agent_id, block.title) if block.goes_on else ("", "")
            if block.goes_on and self._goes_on != last:
                yield f"{name} {block.title}:"
            for title, text in _texts(block):
                lines = text.strip("\n").split("\n")
                if block.goes_on:
                    yield f"  {text}"
                elif len(lines) > 1:
                    yield f"{name} {title}:"
                    yield from (f"  {line}" for line in lines)
                else:
                    yield f"{name} {title}: {lines[0]}" if lines[0] else f"{name} {title}"


def _texts(block: StoryBlock) -> Iterator[tuple[str, str]]:
    texts = [clean(part.text) for part in block.parts if not part.name and not part.brief]
    if block.goes_on:
        lines = (line for part in block.parts for line in ([part.text] if part.form == "bundle" else part.text.split("\n")))
        yield from ((block.title, clean(line)) for line in lines)
        return
    yield from ((part.name, part.text) for part in block.parts if part.name)
    brief = "; ".join(filter(None, [block.detail, *(part.text for part in block.parts if part.brief)]))
    yield block.title, "\n".join(filter(None, [brief, *texts]))
