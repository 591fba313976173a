"""Files of a project for models: instructions such as AGENTS.md, and commands.

An AGENTS.md or CLAUDE.md in a folder of the workspace counts for the files there: `features/instructions.py` shows it
to a model that uses one of them. All other instructions stand in every system prompt.
"""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from freeact_sub.config.parsing import prose_of_file
from freeact_sub.errors import ConfigError
from freeact_sub.system.safe_files import MAX_BYTES, files_in, read_file, work_folders

INSTRUCTION_FILES: Final = ("AGENTS.md", "CLAUDE.md")
"""The files that `load_config` looks for in a workspace and in its folders."""
COMMANDS: Final = Path(".agents") / "commands"
"""The commands of a workspace: a prompt each."""
MAX_CHARS: Final = 20_000
"""The characters of all instruction files together: each request pays for them."""
MAX_NESTED: Final = 500
"""The most files in folders of a workspace."""


def nested_files(workspace: Path) -> list[Path]:
    """Return the instruction files in folders of a workspace, as far as a bounded search finds them.

    Folders of packages and tools, hidden ones, and those that are links are not looked into. A file that is a link counts
    if it leads to a file in the workspace. Files that cannot be read, or are too large, are left out.
    """
    found: list[Path] = []
    for folder, entries in work_folders(workspace, hidden=False):
        if folder and folder.isprintable():  # a name is shown, to people and to models
            found += sorted(workspace / folder / entry.name for entry in entries if _counts(entry, workspace))
    return sorted(found[:MAX_NESTED])


def _counts(entry: os.DirEntry[str], workspace: Path) -> bool:
    if entry.name not in INSTRUCTION_FILES:
        return False
    try:
        is_inside = not entry.is_symlink() or Path(entry.path).resolve().is_relative_to(workspace)
        return is_inside and entry.is_file() and entry.stat().st_size <= MAX_BYTES and os.access(entry.path, os.R_OK)
    except (OSError, RuntimeError):  # it is gone, or a circle of links
        return False


def is_nested(path: Path, workspace: Path) -> bool:
    """Return whether an instruction file counts only for the folder that it is in."""
    return path.name in INSTRUCTION_FILES and workspace in path.parent.parents


def instructions_by_folder(contents: Mapping[Path, bytes], workspace: Path) -> dict[str, str]:
    """Return the texts of nested files for models, by folder relative to the workspace, as `sub/folder`."""
    folders: dict[str, dict[Path, bytes]] = {}
    for path, content in contents.items():
        if is_nested(path, workspace) and b"\0" not in content:
            name = path.relative_to(workspace)
            folders.setdefault(name.parent.as_posix(), {})[name] = content
    texts = {folder: instructions_of(files).strip() for folder, files in folders.items()}
    return {folder: text for folder, text in texts.items() if text}


def instructions_for_all(contents: Mapping[Path, bytes], workspace: Path) -> str:
    """Return the text of all other files, which stands in the system prompt."""
    return instructions_of({path: content for path, content in contents.items() if not is_nested(path, workspace)})


def read_files(paths: Iterable[Path], workspace: Path) -> dict[Path, bytes]:
    """Read the contents of files.

    Raises:
        ConfigError: A file cannot be read.
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
    """Return the text for models: each text once, under the file's name; a text that is too long is cut at its end.

    Args:
        contents: The files by path; a relative path is named whole.
    """
    parts: list[str] = []
    room, read = MAX_CHARS, set[str]()
    for path, content in contents.items():
        text = prose_of_file(content).strip()
        if not text or text in read:
            continue
        read.add(text)
        name = path.name if path.is_absolute() else path.as_posix()
        left_out = len(text) - room
        more = f"\n[... {left_out:,} more characters of {name}]" if left_out > 0 else ""
        parts.append(f"\n\nInstructions of this project, {name}:\n{text[: max(room, 0)]}{more}")
        room -= min(len(text), max(room, 0))
    return "".join(parts)
