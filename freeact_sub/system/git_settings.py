"""Settings of git, read as git reads them (git-config(1), "Syntax"). No program is started for it."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from freeact_sub.system.safe_files import read_file

Setting: TypeAlias = tuple[str, str, str]
"""Section and name in lower case, and the value."""
HEADER: Final = re.compile(r'\[\s*([\w-]+)(?:[^\]"\n]|"(?:[^"\\\n]|\\.)*+")*+\]')
NAME: Final = re.compile(r"([A-Za-z][\w-]*)[ \t]*(=?)")
REST_OF_LINE: Final = re.compile(r"[^\n]*\n?")
PLAIN: Final = re.compile(r'[^"\\#;\n]+')
QUOTED: Final = re.compile(r'[^"\\\n]+')
ESCAPES: Final = {"n": "\n", "t": "\t", "b": "\b", "\n": ""}
UNREADABLE: Final = "/" + "x" * 300
MAX_BYTES: Final = 200_000
"""Bound on a file with settings or attributes: one of 1 MB takes seconds."""
MAX_FILES: Final = 100
"""Files with settings of one repository, included ones among them."""


def files_of_user(name: str) -> list[str]:
    """Return the paths where git looks for the user's and the system's `config` or `attributes`, existing or not."""
    own = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    system = [f"{folder}/git{name}" for folder in ("/etc", "/usr/local/etc", "/opt/homebrew/etc")]
    found = [f"{own}/git/{name}", f"~/.config/git/{name}", *system]
    if name == "config":
        found += ["~/.gitconfig", *(os.environ.get(f"GIT_CONFIG_{level}", "") for level in ("GLOBAL", "SYSTEM"))]
    return [os.path.expanduser(path) for path in dict.fromkeys(found) if path]


def settings_of(*paths: str) -> Iterator[tuple[str, Sequence[Setting] | None]]:
    """Yield the path and settings of each settings file, and of all that it includes, whatever the condition.

    None: the file exists, but cannot be read, or is one too many.
    """
    todo, seen = list(paths), set[str]()
    while todo:
        if (path := todo.pop(0)) in seen:
            continue
        seen.add(path)
        text = text_of(path) if len(seen) <= MAX_FILES else None
        settings = None if text is None else tuple(read_settings(text))
        yield path, settings
        if len(seen) > MAX_FILES:
            return
        included = (
            value for section, name, value in settings or () if section in ("include", "includeif") and name == "path"
        )
        todo += [named_path(value, os.path.dirname(path)) for value in included]


def named_path(value: str, base: str) -> str:
    """Return the path that a setting names; a path relative to git's own folder becomes one that nobody can read."""
    if value.startswith("%(prefix)/"):
        return UNREADABLE
    return os.path.join(base, os.path.expanduser(value.replace("\0", "").removeprefix(":(optional)")))


def pointed_folder(pointer: str) -> str:
    """Return the repository that a `.git` is or names; empty if the file names none."""
    if os.path.isdir(pointer):
        return pointer
    target = (text_of(pointer) or "").removeprefix("gitdir: ").rstrip("\r\n")
    return os.path.join(os.path.dirname(pointer), target) if target else ""


def text_of(path: str) -> str | None:
    """Return a small text file; empty if there is none. None: unreadable."""
    try:
        return read_file(Path(path), MAX_BYTES).decode("utf-8", "surrogateescape").replace("\0", "")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError:
        return None


def read_settings(text: str) -> Iterator[Setting]:
    """Yield each setting of a file; lines that git would not understand are skipped."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    section, at = "", 0
    while at < len(text):
        if text[at].isspace():
            at += 1
        elif header := HEADER.match(text, at):
            section, at = header[1].lower(), header.end()
        elif name := NAME.match(text, at):
            value, at = _read_value(text, name.end()) if name[2] else ("", name.end())
            yield section, name[1].lower(), value
        else:
            at = _end_of_line(text, at)


def _read_value(text: str, at: int) -> tuple[str, int]:
    """Return the value that begins at an offset, and the start of the next line."""
    value, kept, quoted = "", 0, False
    while at < len(text) and text[at] != "\n":
        if text[at] == '"':
            quoted = not quoted
            at += 1
        elif text[at] == "\\":
            following = text[at + 1 : at + 2]
            value += ESCAPES.get(following, following)
            at += 2
        elif part := (QUOTED if quoted else PLAIN).match(text, at):
            value, at = value + (part[0] if value or quoted else part[0].lstrip()), part.end()
            if not quoted:
                continue
        else:
            return _trimmed(value, kept), _end_of_line(text, at)
        kept = len(value)
    return _trimmed(value, kept), at


def _trimmed(value: str, kept: int) -> str:
    """Strip the white space at the end, except for quoted text."""
    return value[:kept] + value[kept:].rstrip()


def _end_of_line(text: str, at: int) -> int:
    found = REST_OF_LINE.match(text, at)
    return len(text) if found is None else max(at + 1, found.end())
