"""Reads files with settings of git as git reads them (git-config(1), "Syntax"). Nothing is started for it."""

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
    """Where git looks for the user's and the system's `config` or `attributes`, whether there are such files or not."""
    own = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    system = [f"{folder}/git{name}" for folder in ("/etc", "/usr/local/etc", "/opt/homebrew/etc")]
    found = [f"{own}/git/{name}", f"~/.config/git/{name}", *system]
    if name == "config":
        found += ["~/.gitconfig", *(os.environ.get(f"GIT_CONFIG_{level}", "") for level in ("GLOBAL", "SYSTEM"))]
    return [os.path.expanduser(path) for path in dict.fromkeys(found) if path]


def settings_of(*paths: str) -> Iterator[tuple[str, Sequence[Setting] | None]]:
    """The paths of files with settings and of all that they include, whatever the condition, each with its settings.

    None: the file is there, but cannot be read, or is one too many.
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
    """The path that a setting names; one that nobody can read where it is relative to git's own folder."""
    if value.startswith("%(prefix)/"):
        return UNREADABLE
    return os.path.join(base, os.path.expanduser(value.replace("\0", "").removeprefix(":(optional)")))


def pointed_folder(pointer: str) -> str:
    """The repository that a `.git` is, or names; empty if it is a file that names none."""
    if os.path.isdir(pointer):
        return pointer
    target = (text_of(pointer) or "").removeprefix("gitdir: ").rstrip("\r\n")
    return os.path.join(os.path.dirname(pointer), target) if target else ""


def text_of(path: str) -> str | None:
    """A small text file; empty if there is none. None: it cannot be read."""
    try:
        return read_file(Path(path), MAX_BYTES).decode("utf-8", "surrogateescape").replace("\0", "")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError:
        return None


def read_settings(text: str) -> Iterator[Setting]:
    """Each setting of a file; a line that git would not understand is skipped."""
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
    """The value that begins there, and where the next line does."""
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
    """Without the white space at its end, except for what was in quotes."""
    return value[:kept] + value[kept:].rstrip()


def _end_of_line(text: str, at: int) -> int:
    found = REST_OF_LINE.match(text, at)
    return len(text) if found is None else max(at + 1, found.end())
