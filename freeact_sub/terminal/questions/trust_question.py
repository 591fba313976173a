"""Questions with yes or no, before a conversation has begun: whether to trust files with settings, and others.

The files are shown whole before anything starts. The question shows the parsed file, setting by setting, so that blank lines
and comments cannot push a setting off the screen. A file with more settings than it can show is not trusted.
"""

import json
import sys
import termios
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TextIO

from freeact_sub.config.hooks import HOOKS_FILE
from freeact_sub.config.parsing import parse_jsonc, parse_toml
from freeact_sub.show.questions import says_yes
from freeact_sub.text import counted, fitted, visible

MAX_LINES: Final = 600
"""Lines of all files together."""
HEAD: Final = "This workspace has new or changed settings.\nThey decide what runs, and what runs without asking:"
ABOUT_HOOKS: Final = "The commands of hooks run with your rights, outside the sandbox."


def ask(files: Mapping[Path, bytes], terminal: TextIO, *, if_not: str, all_needed: bool) -> dict[Path, bytes]:
    """Shows the files and asks whether to trust them; returns those that a person trusts.

    Args:
        files: Their contents, by path.
        terminal: The stream for the question; the answer is read from standard input.
        if_not: What happens if they are not trusted.
        all_needed: Nothing is asked if there is too much to show. Else files for which there is no room are left out.
    """
    shown, lines, hidden = dict[Path, bytes](), list[str](), 0
    for path, content in files.items():
        part = ["", visible(str(path)), *_indented(path, content)]
        if len(lines) + len(part) <= MAX_LINES:
            shown[path] = content
            lines += part
        else:
            lines += part[: MAX_LINES - len(lines)] if all_needed else []
            hidden += len(part)
    print(HEAD, *lines, sep="\n", file=terminal)
    if hidden:
        left_out = (
            "these settings will"
            if all_needed
            else f"{counted(len(files) - len(shown), 'file')} that you have not seen will"
        )
        print(f"\n{counted(hidden, 'more line')} not shown, so {left_out} not count.", file=terminal)
        if all_needed or not shown:
            return {}
    about = f"\n{ABOUT_HOOKS}" if any(path.name == HOOKS_FILE.name for path in shown) else ""
    print(f"{about}\nIf you say no, {if_not}.", file=terminal)
    return shown if agrees("Trust these settings?", terminal) else {}


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


CHOICES: Final = "(y or n, then Enter)"


def forget_typed() -> None:
    """Drops what a person typed before a question was shown: it is no answer to it."""
    with suppress(termios.error):
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def agrees(question: str, terminal: TextIO | None) -> bool:
    """Whether a person says yes; the answer is read from standard input."""
    forget_typed()
    print(fitted(f"{question} {CHOICES}", terminal), end=" ", file=terminal, flush=True)
    return says_yes(sys.stdin.readline())
