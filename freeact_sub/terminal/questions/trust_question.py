"""Asks whether to trust files with settings in the workspace; they are shown whole before anything starts.

The question shows the parsed file, setting by setting, so that blank lines and comments cannot push a setting off the
screen. A file with more settings than it can show is not trusted.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TextIO

from freeact_sub.config.hooks import HOOKS_FILE
from freeact_sub.config.jsonc import parse_jsonc
from freeact_sub.config.parsing import parse_toml
from freeact_sub.terminal.questions.yes_no import agrees
from freeact_sub.text import counted, visible

MAX_LINES: Final = 600
"""Lines of all files together."""
HEAD: Final = "This workspace has new or changed settings.\nThey decide what runs, and what runs without asking:"
ABOUT_HOOKS: Final = "The commands of hooks run with your rights, outside the sandbox."


def ask(files: Mapping[Path, bytes], terminal: TextIO, *, if_not: str) -> bool:
    """Shows the files and asks whether to trust them; returns False also if there is too much to show.

    Args:
        files: Their contents, by path.
        terminal: The stream for the question; the answer is read from standard input.
        if_not: What happens if they are not trusted.
    """
    lines = [line for path, content in files.items() for line in ("", visible(str(path)), *_indented(path, content))]
    print(HEAD, *lines[:MAX_LINES], sep="\n", file=terminal)
    if len(lines) > MAX_LINES:
        print(f"\n{counted(len(lines) - MAX_LINES, 'more line')} not shown, so these settings do not count.", file=terminal)
        return False
    about = f"\n{ABOUT_HOOKS}" if any(path.name == HOOKS_FILE.name for path in files) else ""
    print(f"{about}\nIf you say no, {if_not}.", file=terminal)
    return agrees("Trust these settings?", terminal)


def settings_lines(path: Path, content: bytes) -> list[str]:
    """A line for each setting of a file with settings; the lines of a text."""
    text = content.decode(errors="backslashreplace")
    try:
        if path.suffix == ".json":
            return [*flat_lines(parse_jsonc(content))]
        if path.suffix == ".toml":
            return [*flat_lines(parse_toml(content))]
    except ValueError:
        pass
    return visible(text).splitlines()


def _indented(path: Path, content: bytes) -> Iterator[str]:
    return (f"    {line}" for line in settings_lines(path, content))


def flat_lines(value: Any, name: str = "") -> Iterator[str]:
    """A line for each setting in a table of settings. Args: name: of the table."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from flat_lines(item, f"{name}.{key}" if name else key)
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for number, item in enumerate(value):
            yield from flat_lines(item, f"{name}[{number}]")
    else:
        shown = visible(f"{name} = {json.dumps(value, ensure_ascii=False, default=str)}")
        yield shown.replace("\n", "\\n")
