"""`@name` in a prompt names a file: its text goes along, within bounds."""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MAX_CHARS: Final = 60_000
"""Of all files of one prompt together."""
MAX_ENTRIES: Final = 2_000
"""Looked at in one folder."""
SHOWN: Final = 50
_MENTION: Final = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|([^\s@"]+))')


def with_files(prompt: str, folder: Path) -> str:
    """The prompt with the text of the files that it names; what is no text file stays a name."""
    room = MAX_CHARS
    parts = [prompt]
    for name in dict.fromkeys(match[1] or match[2].rstrip(".,;:!?)") for match in _MENTION.finditer(prompt)):
        text = _text_of(folder / name, room)
        if text is not None:
            parts.append(f"[The file {name}:]\n{text}")
            room -= len(text)
    return "\n\n".join(parts)


def matching_files(beginning: str, folder: Path) -> Iterator[str]:
    """Names of files and folders that go on from a beginning; those of folders end with `/`."""
    inside, _, start = beginning.rpartition("/")
    prefix = f"{inside}/" if inside or beginning.startswith("/") else ""
    try:
        with os.scandir(folder / prefix) as entries:
            found = [entry for entry, _ in zip(entries, range(MAX_ENTRIES), strict=False)]
    except (OSError, ValueError):
        return
    named = [entry for entry in found if entry.name.startswith(start) and (start or not entry.name.startswith("."))]
    for entry in sorted(named, key=lambda entry: entry.name)[:SHOWN]:
        if entry.name.isprintable() and " " not in entry.name:
            yield f"{prefix}{entry.name}{'/' if entry.is_dir() else ''}"


def _text_of(path: Path, room: int) -> str | None:
    """Its beginning; None for what is no file of text, and where there is no room."""
    if room <= 0:
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would wait for its other end
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(descriptor)
        content = os.read(descriptor, room) if stat.S_ISREG(status.st_mode) else b"\0"
    except OSError:
        return None
    finally:
        os.close(descriptor)
    if b"\0" in content:
        return None
    text = content.decode(errors="replace")
    more = status.st_size - len(content)
    return text if more <= 0 else f"{text}\n[... {more:,} more bytes]"
