"""What goes along with a prompt: files, long pastes, and data from standard input.

`@name` in a prompt names a file, whose text the model gets too, within bounds (MCP servers: `offered.py`). The line shows a
long paste as `[60 lines]`, which is sent whole.
"""

import os
import re
import secrets
import shlex
import stat
import urllib.parse
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from freeact_sub.config.parsing import UTF16_MARKS, prose_of_file
from freeact_sub.errors import ConfigError
from freeact_sub.system.safe_files import read_file, write_new
from freeact_sub.text import counted, fenced, shortened

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


MAX_LINES: Final = 10
"""A paste of more lines is folded."""
MAX_PATHS_CHARS: Final = 4_000
_FOLDED: Final = re.compile(r"\[\d+ lines(?: #\d+)?\]")


class Pastes:
    """Keeps the pastes of a conversation."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def folded(self, pasted: str) -> str:
        """Return the text that represents a paste in the line."""
        text = pasted.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + 1 - text.endswith("\n")
        if lines <= MAX_LINES:
            return mentions_of(text) or text
        name, number = f"[{lines} lines]", 1
        while self._texts.setdefault(name, text) != text:
            number += 1
            name = f"[{lines} lines #{number}]"
        return name

    def unfolded(self, line: str) -> str:
        """The line with its pastes unfolded."""
        return _FOLDED.sub(lambda match: self._texts.get(match[0], match[0]), line)


def mentions_of(text: str) -> str:
    """Return dragged picture files, which terminals paste as paths, as mentions; empty for other text."""
    if len(text) > MAX_PATHS_CHARS or not text.strip():
        return ""
    try:
        words = shlex.split(text)
    except ValueError:
        return ""
    paths = [urllib.parse.unquote(word.removeprefix("file://")) if word.startswith("file://") else word for word in words]
    if not paths or not all(_is_picture(path) for path in paths):
        return ""
    return "".join(f"{mention_of(path)} " for path in paths)


def _is_picture(path: str) -> bool:
    try:
        return Path(path).suffix.lower() in PICTURES and Path(path).expanduser().is_file()
    except (OSError, ValueError, RuntimeError):
        return False


@dataclass(frozen=True, kw_only=True)
class Piped:
    """Text, or a picture; nothing if both are empty."""

    text: str = ""
    picture: bytes | None = None
    media_type: str = ""

    @classmethod
    def of(cls, content: bytes) -> Self:
        """Make it from bytes: text or a picture.

        Raises:
            ConfigError: It is neither, or the picture is too large.
        """
        media_type = next((name for name, mark in MARKS.items() if content.startswith(mark)), None)
        if media_type is not None:
            if len(content) > MAX_PICTURE_BYTES:
                limit = f"{MAX_PICTURE_BYTES / 2**20:g} MiB"
                raise ConfigError(f"the picture on standard input has more than {limit}: make it smaller, or name its file")
            return cls(picture=content, media_type=media_type)
        if content.startswith(UTF16_MARKS) and len(content) % 2 == 0:
            return cls(text=content.decode("utf-16", errors="replace"))
        if b"\0" in content:
            raise ConfigError(
                "standard input is neither text nor a picture: save it to a file and name the file in the prompt"
            )
        return cls(text=content.decode("utf-8-sig", errors="replace"))

    def section(self, workspace: Path, folder: Path) -> list[str]:
        """Return the text for a prompt, marked and fenced; a long one is saved to a file.

        Args:
            workspace: The folder that agents work in.
            folder: The folder in it for such files.

        Raises:
            ConfigError: The file cannot be written.
        """
        if not self.text.strip():
            return []
        title, text = "Standard input", self.text.rstrip("\n")
        if len(text) > MAX_CHARS:
            file = folder / f"standard-input-{secrets.token_hex(4)}.txt"
            try:
                write_new(file, self.text.encode(errors="replace"), root=workspace)
            except (OSError, ValueError) as error:
                raise ConfigError(f"cannot keep the text of standard input in {file}: {error}") from error
            size = counted(len(text), "character")
            title += f", its beginning and its end; all of it, {size}, is in the file {file.relative_to(workspace)}"
            text = shortened(text, MAX_CHARS)
        return [f"[{title}:]\n{fenced(text)}"]
