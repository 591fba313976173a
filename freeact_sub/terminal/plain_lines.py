"""`PlainLines`: events as lines of plain text, for pipes, logs and CI, and for conversations in plain lines.

There are no colours and no widths. An event's first line begins with its agent and says what it is. In a log each line
begins with the agent's short id, so that `grep` separates agents that work at the same time; if a text has more lines, those
follow with a bar. A person who reads or hears them in order gets names instead, and more lines are indented.
"""

from collections.abc import Callable, Iterable, Iterator

from freeact_sub.agent_names import short_id
from freeact_sub.events import AgentStarted, Event
from freeact_sub.show.agent_story import AgentStory, Stories
from freeact_sub.show.rows import Row, rows
from freeact_sub.text import clean


class PlainLines:
    """Writes the events of a run as lines, one after the other."""

    def __init__(self, views: Stories, name: Callable[[AgentStory], str] | None = None) -> None:
        """Args: views: observes each event before it is written here. name: names agents for a person. None: it is a log."""
        self._views = views
        self._name = name
        self._goes_on = ("", "")
        """The agent and the title of the last row, if another row may go on with it."""

    def write(self, event: Event, found: Iterable[Row] | None = None) -> str:
        """Return the event's lines with line ends; empty if it is not shown. Args: found: its rows. None: made here."""
        view = self._views.of(event)
        found = rows(view, event) if found is None else found
        lines = self._log(view, event, found) if self._name is None else self._told(view, self._name(view), found)
        return "".join(line.rstrip() + "\n" for line in lines)

    def _log(self, view: AgentStory, event: Event, found: Iterable[Row]) -> Iterator[str]:
        label = f"{view.label} " if isinstance(event, AgentStarted) and view.label else ""
        for title, text in (text for row in found for text in _texts(row)):
            first, *more = text.strip("\n").split("\n")
            head = f"{label}{title}"
            for line in (f"{head}: {first}" if first else head, *(f"| {line}" for line in more)):
                yield f"{short_id(view.agent_id)} {line}"

    def _told(self, view: AgentStory, name: str, found: Iterable[Row]) -> Iterator[str]:
        for row in found:
            last, self._goes_on = self._goes_on, (view.agent_id, row.title) if row.goes_on else ("", "")
            if row.goes_on and self._goes_on != last:
                yield f"{name} {row.title}:"
            for title, text in _texts(row):
                lines = text.strip("\n").split("\n")
                if row.goes_on:
                    yield f"  {text}"
                elif len(lines) > 1:
                    yield f"{name} {title}:"
                    yield from (f"  {line}" for line in lines)
                else:
                    yield f"{name} {title}: {lines[0]}" if lines[0] else f"{name} {title}"


def _texts(row: Row) -> Iterator[tuple[str, str]]:
    """Return titles with their texts."""
    texts = [clean(part.text) for part in row.parts if not part.name and not part.brief]
    if row.goes_on:
        lines = (line for part in row.parts for line in ([part.text] if part.form == "bundle" else part.text.split("\n")))
        yield from ((row.title, clean(line)) for line in lines)
        return
    yield from ((part.name, part.text) for part in row.parts if part.name)
    brief = "; ".join(filter(None, [row.detail, *(part.text for part in row.parts if part.brief)]))
    yield row.title, "\n".join(filter(None, [brief, *texts]))
