"""Makes `settings.md`, the table of all settings, from the classes in `freeact_sub/config/`.

    python docs/make_settings.py

Each setting's text is the docstring below its field. A test holds the page against what this makes.
"""

import ast
import inspect
import itertools
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from freeact_sub.config.schema import INNER, Config, McpServerConfig

PAGE: Final = Path(__file__).with_name("settings.md")
SPECIAL: Final = {"workspace": "this folder", "kernel.python": "this Python"}
"""Defaults that differ from machine to machine."""
HEAD: Final = """\
# Settings

<!-- Made by docs/make_settings.py from the docstrings in freeact_sub/config/. -->

Settings come from your own `~/.config/freeact/config.toml`, then `.freeact/config.toml` in the workspace, then
environment variables, then arguments; later ones win. A `base_url` belongs to the model that is set with it: if a later
source names a model of another provider, it no longer counts. The variable of a setting is `FREEACT_` and its path in
capitals, with `__` for the dot: `FREEACT_KERNEL__CELL_TIMEOUT_SECONDS=60`. In Python, `load_config()` reads all of them,
and `Config(...)` reads none. An unknown setting is an error that names the nearest known one. What a workspace's files
say counts only once you trust them ([approvals](approvals.md#trust)).
"""
BUDGETS: Final = """
In a file these are `[budget]` and `[subagents.budget]`; in Python `agent.run(prompt, budget=Budget(tokens=200_000,
seconds=600))`; a model bounds a child with `task`. A child never gets more than its parent has left, and its requests,
tokens, money and children count for all its ancestors. A run that reaches a bound ends as `limit` (time: `timeout`) and
keeps what it has; 0 allows nothing. Under a bound on tokens or money, each request carries `max_tokens`: yours from
`model_settings`, or 4096, or the rest if that is less.
"""
SERVERS: Final = """
MCP servers are read from your own `~/.config/freeact/mcp.json`, and from `.freeact/mcp.json` or `mcp.json` in the
workspace, whose servers win; or only from the file that `--mcp` names. The form is the usual one,
`{"mcpServers": {"NAME": {"command": "...", "args": [...]}}}`, also with comments. `${VAR}` and `${VAR:-default}` are
filled in. Keys of other programs are read where they have a meaning here. Each agent opens its own connections on first
use ([MCP servers](mcp.md)).
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for path, section in sections(Config):
        if rows := [row(f"{path}{name}", name, section) for name, _ in fields(section)]:
            parts += [f"\n## {heading(path)}\n", table("setting", rows)]
            parts += [BUDGETS] if path == "budget." else []
    parts += ["\n## MCP servers\n", SERVERS]
    parts.append(
        table(
            "setting of a server",
            [row(name, name, McpServerConfig) for name, _ in fields(McpServerConfig) if name not in INNER],
        )
    )
    return "".join(parts)


def sections(section: type[BaseModel], path: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """A section and all sections in it, each with the beginning of its settings' names."""
    yield path, section
    for name, field in section.model_fields.items():
        if is_section(field):
            yield from sections(field.annotation, f"{path}{name}.")  # type: ignore[arg-type]  # `is_section` has looked


def fields(section: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    """The settings of a section; sections in it are none."""
    return ((name, field) for name, field in section.model_fields.items() if not is_section(field))


def is_section(field: FieldInfo) -> bool:
    """Whether the setting is a table of further settings."""
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def heading(path: str) -> str:
    """The heading of a section."""
    return f"`[{path.removesuffix('.')}]`" if path else "At the top"


def table(subject: str, rows: list[str]) -> str:
    """A table in Markdown."""
    return "\n".join(["", f"| {subject} | default | what it is |", "| --- | --- | --- |", *rows, ""])


def row(path: str, name: str, section: type[BaseModel]) -> str:
    """The row of one setting."""
    cells = (f"`{path}`", shown_default(path, section.model_fields[name]), linked(text_of(section, name)))
    return f"| {' | '.join(cells)} |"


def shown_default(path: str, field: FieldInfo) -> str:
    """The default as in a settings file."""
    if path in SPECIAL:
        return SPECIAL[path]
    default = field.get_default(call_default_factory=True)  # type: ignore[call-arg]  # no factory takes the other values
    return "none" if default is None else f"`{json.dumps(default)}`"


def text_of(section: type[BaseModel], name: str) -> str:
    """The docstring below a field, on one line. The class that has the field may be a base of the section.

    Raises:
        SystemExit: There is none.
    """
    for kind in section.__mro__:
        if kind is BaseModel:
            break
        (body,) = ast.parse(inspect.getsource(kind)).body
        statements = body.body if isinstance(body, ast.ClassDef) else []
        for statement, below in itertools.pairwise(statements):
            match statement, below:
                case ast.AnnAssign(target=ast.Name(id=found)), ast.Expr(value=ast.Constant(value=str(text))) if (
                    found == name
                ):
                    return " ".join(text.split())
    sys.exit(f"{section.__name__}.{name} has no docstring")


def linked(text: str) -> str:
    """The text with links to the pages that it names."""
    return re.sub(r"\bdocs/((\w+)\.md)", r"[\2](\1)", text).replace("|", "\\|")


if __name__ == "__main__":
    main()
