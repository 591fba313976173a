"""What the agents of a session have done, as a file to hand to somebody: a page, a notebook, a text, or events.

- `report`: the events of a session as a `Report`: its agents, and what each did in which order. All formats are made of it.
- `timeline`: when each agent was working, and on whom the end waited.
- `page` (html), `notebook` (ipynb), `document` (md); `jsonl` is the events themselves.

Everything is made of events alone. What the store has left out of them, keys and headers among it, is in no export.
"""

from freeact_sub.export.formats import FORMATS, export_events, export_session

__all__ = ["FORMATS", "export_events", "export_session"]
