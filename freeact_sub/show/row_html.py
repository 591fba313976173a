"""An event as HTML, for pages that draw what people read of events one below the other."""

from freeact_sub.events import Event
from freeact_sub.show.agent_view import AgentView
from freeact_sub.show.rows import Part, Row, rows
from freeact_sub.show.safe_html import bundle_html, code_html, escaped, markdown_html, text_html


def event_html(view: AgentView, event: Event) -> str:
    """The rows of an event as HTML that is safe in any page. Args: view: its agent, which has observed the event."""
    return "".join(_row(row) for row in rows(view, event))


def _row(row: Row) -> str:
    title = ", ".join(filter(None, [row.title, row.detail]))
    head = "" if row.goes_on else f'<div class="fsub-note">{escaped(title)}</div>'
    return head + "".join(_part(part, "error" if row.tone == "bad" else "text") for part in row.parts)


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
