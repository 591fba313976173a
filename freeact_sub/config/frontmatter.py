"""Heads of Markdown files, YAML between two lines `---`, as plain data with the line of each part."""

from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from freeact_sub.errors import ConfigError

FENCE: Final = "---"
MAX_CHARS: Final = 50_000
"""Characters of the longest head: the YAML parser takes a second for a million."""
Path: TypeAlias = tuple[str | int, ...]
"""The path of a value in the head: keys and indices, outermost first."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """A file's head and body."""

    head: dict[str, Any]
    body: str
    lines: dict[Path, int] = field(default_factory=dict)
    """The line of each part of the head, counted from 1."""

    def line_of(self, path: Path) -> int:
        """Return the line of a part, or of the nearest part above that exists."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


class BadLineError(ConfigError):
    """A line of a file is invalid.

    Attributes:
        line: The line, counted from 1.
    """

    def __init__(self, message: str, *, line: int) -> None:
        super().__init__(message)
        self.line = line


def read_document(text: str) -> Document:
    """Split a text into head and body.

    Raises:
        BadLineError: The head is missing or invalid.
    """
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != FENCE:
        raise BadLineError(f"it must begin with a line `{FENCE}`, the settings, and another line `{FENCE}`", line=1)
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == FENCE), None)
    if end is None:
        raise BadLineError(f"the settings are not closed: write a line `{FENCE}` after them", line=1)
    if sum(map(len, lines[:end])) > MAX_CHARS:
        raise BadLineError(f"the settings have more than {MAX_CHARS:,} characters", line=2)
    from freeact_sub.config.plain_yaml import YamlReader  # noqa: PLC0415  # most starts read no such file

    reader = YamlReader()
    head = reader.read("\n".join(lines[1:end]))
    return Document(head=head, body="\n".join(lines[end + 1 :]).strip(), lines=reader.lines)
