"""`PlainLines`: events as lines of plain text, for pipes, logs and CI.

There are no colours and no widths. Each line begins with the agent's short id, so that `grep` separates agents that work
at the same time. An event's first line says what it is; if its text has more lines, those follow with a bar.
"""

from collections.abc import Iterator

from freeact_sub.agent_names import short_id
from freeact_sub.events import AgentStarted, Event
from freeact_sub.show.agent_story import Stories
from freeact_sub.show.rows import Row, rows
from freeact_sub.text import clean


class PlainLines:
    """Writes the events of a run as lines, one after the other."""

    def __init__(self, views: Stories) -> None:
        """Args: views: observes each event before it is written here."""
        self._views = views

    def write(self, event: Event) -> str:
        """Return the event's lines with line ends; empty if the event is not shown."""
        view = self._views.of(event)
        label = f"{view.label} " if isinstance(event, AgentStarted) and view.label else ""
        texts = (text for row in rows(view, event) for text in _texts(row))
        lines = (line for title, text in texts for line in _lines(f"{label}{title}", text))
        return "".join(f"{short_id(event.agent_id)} {line}".rstrip() + "\n" for line in lines)


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


def _lines(title: str, text: str) -> Iterator[str]:
    first, *more = text.strip("\n").split("\n")
    yield f"{title}: {first}" if first else title
    for line in more:
        yield f"| {line}"
