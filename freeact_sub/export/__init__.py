"""A session as a file to hand to somebody: a page, a notebook, a text, or its events.

- `document`: the stories of a session's agents (`show/agent_story.py`) as a `Report`, of which all formats are made; as md.
- `page` (html), `notebook` (ipynb); `jsonl` is the events themselves.

Exports contain events only. What the store leaves out of them, such as keys and headers, is in no export.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Literal, TypeAlias

from freeact_sub.errors import SessionError
from freeact_sub.events import Event
from freeact_sub.export.document import Report, document, report_of
from freeact_sub.export.notebook import notebook
from freeact_sub.export.page import page
from freeact_sub.sessions import SessionStore, session_store
from freeact_sub.show.replay import with_ends
from freeact_sub.text import whole_text

Format: TypeAlias = Literal["html", "ipynb", "md", "jsonl"]
_MADE: Final[dict[str, Callable[[Report], str]]] = {"html": page, "ipynb": notebook, "md": document}
FORMATS: Final = (*_MADE, "jsonl")


def export_events(events: "Iterable[Event]", to: Format, *, title: str = "") -> str:
    """Return the events of a session, of one or more runs of its root, as the text of a file.

    Args:
        events: The events, in order.
        to: The format.
        title: The title of the file. Default: the first prompt.
    """
    if to == "jsonl":
        return "".join(f"{event.to_json()}\n" for event in events)
    return whole_text(_MADE[to](report_of(events, title=title)))


def export_session(session_id: str, to: Format, *, store: SessionStore | None = None, file: Path | None = None) -> str:
    """Return a stored session as the text of a file.

    Args:
        session_id: The session's id, or the beginning of it if no other id begins like it.
        to: The format.
        store: The store of the session. None: that of the default settings.
        file: A file to write the text to; it is replaced if it exists.

    Raises:
        SessionError: There is no such session, it cannot be read, or the file cannot be written.
    """
    store = store or session_store()
    found = store.find(session_id).session_id
    with store.reader(found) as reader:
        events = reader.events()
        text = export_events(events if to == "jsonl" else with_ends(events, goes_on=store.is_open(found)), to)
    if file is not None:
        try:
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise SessionError(f"the export cannot be written to {file}: {error.strerror}") from error
    return text
