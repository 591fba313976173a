"""Reads files of a project for models: instructions such as AGENTS.md, and commands."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from freeact_sub.config.parsing import prose_of_file
from freeact_sub.errors import ConfigError
from freeact_sub.system.safe_files import files_in, read_file

INSTRUCTION_FILES: Final = ("AGENTS.md", "CLAUDE.md")
"""The files that `load_config` looks for in a workspace."""
COMMANDS: Final = Path(".agents") / "commands"
"""The commands of a workspace: a prompt each."""
MAX_CHARS: Final = 20_000
"""The characters of all instruction files together: each request pays for them."""


def read_files(paths: Iterable[Path], workspace: Path) -> dict[Path, bytes]:
    """Their contents.

    Raises:
        ConfigError: One cannot be read.
    """
    contents: dict[Path, bytes] = {}
    for path in paths:
        try:
            contents[workspace / path] = read_file(workspace / path)
        except OSError as error:
            raise ConfigError(
                f"cannot read {workspace / path} (the setting `instruction_files`): {error.strerror}"
            ) from error
    return contents


def read_commands(folders: Iterable[Path]) -> dict[Path, bytes]:
    """Return the commands in folders, in the order of the folders; unreadable files are left out."""
    contents: dict[Path, bytes] = {}
    for folder in folders:
        for path in files_in(folder, ".md"):
            with suppress(OSError):
                contents[path] = read_file(path)
    return contents


def instructions_of(contents: Mapping[Path, bytes]) -> str:
    """Return the text for models: each file's text once, under its name; a text that is too long is cut at its end."""
    parts: list[str] = []
    room, read = MAX_CHARS, set[str]()
    for path, content in contents.items():
        text = prose_of_file(content).strip()
        if not text or text in read:
            continue
        read.add(text)
        left_out = len(text) - room
        more = f"\n[... {left_out:,} more characters of {path.name}]" if left_out > 0 else ""
        parts.append(f"\n\nInstructions of this project, {path.name}:\n{text[: max(room, 0)]}{more}")
        room -= min(len(text), max(room, 0))
    return "".join(parts)
