"""`search_tools`: tools of MCP servers whose schemas would take too much of a model's window.

The model reads their names with a line each, in the description of this tool, and asks it for more. Its code calls them.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, Field
from pydantic_ai import ToolDefinition

from freeact_sub.kernels.guest.mcp import identifier
from freeact_sub.text import one_line
from freeact_sub.tools.tool import ToolResult
from freeact_sub.tools.toolset import load_definition

if TYPE_CHECKING:
    from freeact_sub.mcp import McpTool

SEARCH: Final = "search_tools"
LINE_CHARS: Final = 100
MOST_LINES: Final = 300
"""Of more tools some names can only be found by a search."""
MATCHES: Final = 8
SCHEMA_CHARS: Final = 4_000


class SearchArguments(BaseModel):
    """See `tools/search_tools.json`."""

    model_config = {"extra": "forbid", "defer_build": True}
    query: str = Field(min_length=1)


@dataclass(frozen=True)
class UnlistedTool:
    """A tool whose schema is not sent."""

    server: str
    tool: "McpTool"

    @property
    def place(self) -> str:
        """The expression by which code finds it."""
        return f"agent.mcp{_step(self.server, 'server')}{_step(self.tool.name, 'tool')}"

    def matches(self, words: Sequence[str]) -> int:
        """How well it fits: a word in its name counts more than one in its description."""
        name, text = f"{self.server} {self.tool.name}".casefold(), (self.tool.description or "").casefold()
        return sum(5 * (word in name) + (word in text) for word in words)


def definition_of(unlisted: Sequence[UnlistedTool]) -> ToolDefinition:
    """The definition of `search_tools`, which names all that it finds, as far as there is room."""
    definition, server = load_definition(SEARCH), ""
    lines = [f"{definition.description}\n\nThe tools, by server:"]
    for each in unlisted[:MOST_LINES]:
        if each.server != server:
            server = each.server
            lines.append(f"{server}:")
        about = one_line(each.tool.description or "", LINE_CHARS)
        lines.append(f"- {each.tool.name}: {about}" if about else f"- {each.tool.name}")
    if len(unlisted) > MOST_LINES:
        lines.append(f"and {len(unlisted) - MOST_LINES:,} more")
    return replace(definition, description="\n".join(lines))


def search(unlisted: Sequence[UnlistedTool], query: str) -> ToolResult:
    """Describe the tools that fit best."""
    words = re.findall(r"\w+", query.casefold())
    ranked = sorted(((each.matches(words), each) for each in unlisted), key=lambda found: -found[0])
    found = [each for fit, each in ranked if fit][:MATCHES]
    if not found:
        return ToolResult(text="No tool fits these words. The description of search_tools names them.", outcome="failed")
    sections = tuple(map(_described, found))
    return ToolResult(text="\n\n".join(sections), sections=sections)


def _described(each: UnlistedTool) -> str:
    schema = json.dumps(each.tool.parameters_json_schema, ensure_ascii=False)
    if len(schema) > SCHEMA_CHARS:
        schema = f"{schema[:SCHEMA_CHARS]}… (all of it: help({each.place}))"
    return "\n".join(
        filter(None, [f"await {each.place}(...)", (each.tool.description or "").strip(), f"Arguments: {schema}"])
    )


def _step(name: str, kind: str) -> str:
    return f".{name}" if identifier(name, kind) == name else f"[{name!r}]"
