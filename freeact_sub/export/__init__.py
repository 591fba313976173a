"""A session as a file to hand to somebody: a page, a notebook, a text, or its events.

- `report`: the stories of a session's agents (`show/agent_story.py`) as a `Report`; all formats are made of it.
- `page` (html), `notebook` (ipynb), `document` (md); `jsonl` is the events themselves.

Exports contain events only. What the store leaves out of them, such as keys and headers, is in no export.
"""

from freeact_sub.export.formats import FORMATS, export_events, export_session

__all__ = ["FORMATS", "export_events", "export_session"]
