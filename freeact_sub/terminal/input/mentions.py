"""`@name` in a prompt names a file, whose text the model gets too, within bounds (MCP servers: `offered.py`)."""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from freeact_sub.config.parsing import UTF16_MARKS, prose_of_file
from freeact_sub.system.safe_files import read_file

if TYPE_CHECKING:  # slow to import
    from pydantic_ai import BinaryContent

MAX_CHARS: Final = 60_000
"""Bound on the text of all files of one prompt together."""
MAX_PICTURES: Final = 10
MAX_PICTURE_BYTES: Final = 4 * 2**20
PICTURES: Final = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
"""The media types that models see, by suffix."""
MARKS: Final = {"image/png": b"\x89PNG", "image/jpeg": b"\xff\xd8\xff", "image/gif": b"GIF8", "image/webp": b"RIFF"}
"""The first bytes of each media type."""
MAX_ENTRIES: Final = 2_000
"""The number of entries that are read in one folder."""
SHOWN: Final = 50
COMMAND_RUN: Final = "[The user has run this command in the workspace:]"
"""Begins the text about a command that goes along with a prompt."""
_ALONG: Final = re.compile(rf"\n\n(?:\[The (?:file|resource) [^\n]+:\]|{re.escape(COMMAND_RUN)})\n")
_MENTION: Final = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|([^\s@"]+))')


def texts_of(prompt: str, folder: Path) -> list[str]:
    """The text of each file that the prompt names; only the name of a file that is not text."""
    room = MAX_CHARS
    parts = []
    for name in mentioned_names(prompt):
        text = _text_of(folder / name, room)
        if text is not None:
            parts.append(f"[The file {name}:]\n{text}")
            room -= len(text)
    return parts


def typed_part(prompt: str) -> str:
    """What a person typed of a prompt of an earlier program: without the texts of files and commands that went along."""
    found = _ALONG.search(prompt)
    return prompt if found is None else prompt[: found.start()]


def pictures_of(prompt: str, folder: Path) -> "list[BinaryContent]":
    """Return the pictures that the prompt names, except those that are too large or have the wrong type for their name."""
    from pydantic_ai import BinaryContent  # noqa: PLC0415  # slow to import

    found: list[BinaryContent] = []
    for name in mentioned_names(prompt):
        media_type = PICTURES.get(Path(name).suffix.lower())
        if media_type is None or len(found) == MAX_PICTURES:
            continue
        with suppress(OSError):
            content = read_file(folder / name, MAX_PICTURE_BYTES)
            if content.startswith(MARKS[media_type]):
                found.append(BinaryContent(content, media_type=media_type))
    return found


def mentioned_names(prompt: str) -> list[str]:
    """What stands behind each `@`, once."""
    return [*dict.fromkeys(match[1] or match[2].rstrip(".,;:!?)") for match in _MENTION.finditer(prompt))]


def mention_of(name: str) -> str:
    """The text that names a file."""
    return f'@"{name}"' if re.search(r"[\s@]", name) else f"@{name}"


def matching_files(beginning: str, folder: Path) -> Iterator[str]:
    """Return the names of files and folders with this beginning; folders end with `/`."""
    inside, _, start = beginning.rpartition("/")
    prefix = f"{inside}/" if inside or beginning.startswith("/") else ""
    try:
        with os.scandir(folder / prefix) as entries:
            found = [entry for entry, _ in zip(entries, range(MAX_ENTRIES), strict=False)]
    except (OSError, ValueError):
        return
    named = [entry for entry in found if entry.name.startswith(start) and (start or not entry.name.startswith("."))]
    for entry in sorted(named, key=lambda entry: entry.name)[:SHOWN]:
        if entry.name.isprintable() and '"' not in entry.name:
            yield f"{prefix}{entry.name}{'/' if entry.is_dir() else ''}"


def _text_of(path: Path, room: int) -> str | None:
    """Return the file's beginning; None if it is not text, or if no room is left."""
    if room <= 0:
        return None
    try:
        with open(path, "rb", opener=_at_once) as file:
            status = os.fstat(file.fileno())
            content = file.read(room) if stat.S_ISREG(status.st_mode) else None
    except (OSError, ValueError):
        return None
    if content is None or (b"\0" in content and not content.startswith(UTF16_MARKS)):
        return None
    text = prose_of_file(content)
    more = status.st_size - len(content)
    return text if more <= 0 else f"{text}\n[... {more:,} more bytes]"


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe would wait for its other end
