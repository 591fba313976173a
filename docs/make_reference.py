"""Pages of the documentation site that are made of the program itself, and written nowhere else (`docs/make_site.py`).

The command line is made of the parser, the events of `docs/events.schema.json`, and the API of the names and docstrings of
`freeact_sub/__init__.pyi`.
"""

import ast
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from freeact_sub.cli.borrowed_argparse import OpenParser
from freeact_sub.cli.parser import command_line

ROOT: Final = Path(__file__).parents[1]
PROGRAM: Final = "freeact-sub"
ROOT_PAGES: Final = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/README.md", "examples/README.md")
"""Files beside `docs/` that are pages of the site too."""
NOT_EVENTS: Final = "Values in events"
HEADER: Final = ("agent_id", "parent_id", "depth", "tool_call_id", "seq", "time")
"""The fields that every event has."""
API: Final = {
    "agents": "Agents and runs",
    "config": "Settings",
    "calls": "Calls that may need approval",
    "approvals": "Rules",
    "cells": "Outputs of cells",
    "kernels": "Kernels",
    "sessions": "Sessions",
    "show": "Callbacks",
    "errors": "Errors",
}
"""The parts that have a section of their own, in this order; the others stand under `Other names`."""


def made_pages() -> dict[str, str]:
    """All of them: the text of each, by its path in the site."""
    return {
        "reference/command-line.md": command_line_page(),
        "reference/events.md": events_page(),
        "reference/api.md": api_page(),
        **{name: root_page(ROOT / name) for name in ROOT_PAGES},
    }


def root_page(path: Path) -> str:
    """A file beside `docs/`, with links as the site has them."""
    return path.read_text(encoding="utf-8").replace("](docs/", "](").replace("](../docs/", "](../")


def command_line_page() -> str:
    """Each command with its options, as the parser has them."""
    parts = ["# Command line\n", "What `freeact-sub COMMAND --help` says. This page is made of the same parser."]
    parts += commands_below(command_line())
    return "\n\n".join(parts)


def commands_below(parser: OpenParser) -> Iterator[str]:
    """The sections of a command and of all below it."""
    below = parser.commands()
    if not below or parser.prog == PROGRAM:
        yield f"## `{parser.prog}`\n\n```text\n{parser.format_help().strip()}\n```"
    for command in below.values():
        yield from commands_below(command)


def events_page() -> str:
    """Each event with its fields, as the JSON Schema has them."""
    schema = json.loads((ROOT / "docs/events.schema.json").read_text(encoding="utf-8"))
    definitions = schema["$defs"]
    events = [reference["$ref"].rpartition("/")[2] for reference in schema["oneOf"]]
    parts = [
        "# Events",
        "A run is a stream of these events. `event.to_json()` writes one, and `--output json` prints one a line.",
        "The same for programs: [JSON Schema](../events.schema.json).",
        "Every event has these fields:",
        fields_table(definitions[events[0]], only=HEADER),
    ]
    for name in events:
        parts += [f"## {name}", text_of(definitions[name]), fields_table(definitions[name], without=(*HEADER, "type"))]
    parts.append(f"## {NOT_EVENTS}")
    for name in sorted(definitions.keys() - {*events}):
        parts += [f"### {name}", text_of(definitions[name]), fields_table(definitions[name])]
    return "\n\n".join(part for part in parts if part)


def fields_table(definition: dict[str, Any], *, only: tuple[str, ...] = (), without: tuple[str, ...] = ()) -> str:
    """The fields of an event or a value. Args: only: leave out all others (default: none). without: leave these out."""
    fields = definition.get("properties", {}).items()
    shown = [(name, field) for name, field in fields if name not in without and (not only or name in only)]
    rows = [f"| `{name}` | {type_of(field)} | {text_of(field).replace('|', chr(92) + '|')} |" for name, field in shown]
    return "\n".join(["| field | type | |", "| --- | --- | --- |", *rows]) if rows else ""


def text_of(definition: dict[str, Any]) -> str:
    """The description, as one paragraph in a table."""
    return " ".join(str(definition.get("description", "")).split())


def type_of(field: dict[str, Any]) -> str:
    """A type in words, with a link if it has a section."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    if "enum" in field:
        return ", ".join(f"`{json.dumps(value)}`" for value in field["enum"])
    if choices := field.get("anyOf") or field.get("oneOf"):
        return " or ".join(dict.fromkeys(type_of(choice) for choice in choices))
    match field.get("type"):
        case "array" if "items" in field:
            return f"list of {type_of(field['items'])}"
        case "array":
            return "list"
        case str(kind):
            return "None" if kind == "null" else kind
        case _:
            return "any"


def api_page() -> str:
    """Each name that `freeact_sub` has, but for the events, with its docstrings."""
    stub = ast.parse((ROOT / "freeact_sub/__init__.pyi").read_text(encoding="utf-8"))
    found = defaultdict(list)
    for node in stub.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            part = node.module.split(".")[1]
            section = API.get(part, "Other names")
            found[section] += [f"{node.module}.{name.name}" for name in node.names if name.name != "*"]
    parts = ["# API", "The names that you import from `freeact_sub`. The events have a [page of their own](events.md)."]
    for section in [*API.values(), "Other names"]:
        parts.append(f"## {section}")
        parts += [f"::: {name}\n    options:\n      heading_level: 3" for name in found[section]]
    return "\n\n".join(parts)
