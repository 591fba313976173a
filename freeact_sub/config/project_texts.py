"""Texts of a project for models: instructions such as AGENTS.md, commands, and skills, read as they are trusted.

An AGENTS.md or CLAUDE.md in a folder of the workspace counts for the files there: `features/instructions.py` shows it
to a model that uses one of them. All other instructions stand in every system prompt.

A skill is a folder with `SKILL.md`, read whole, and once; `features/skills/skill.py` gives the contents a meaning. Its text
and its Python are kept as they were read, so what a person has looked at counts; all other files are only listed, with their
digests.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from freeact_sub.config.parsing import prose_of_file
from freeact_sub.errors import ConfigError, sentence
from freeact_sub.system.safe_files import MAX_BYTES, files_in, is_folder, read_file, work_folders

INSTRUCTION_FILES: Final = ("AGENTS.md", "CLAUDE.md")
"""The files that `load_config` looks for in a workspace and in its folders."""
MEMORY_FILE: Final = Path(".freeact") / "memory.md"
"""Notes of earlier sessions, trusted as instructions are; `features/memory.py` lets models read them."""
COMMANDS: Final = Path(".agents") / "commands"
"""The commands of a workspace: a prompt each."""
MAX_CHARS: Final = 20_000
"""The characters of all instruction files together: each request pays for them."""
MAX_NESTED: Final = 500
"""The most files in folders of a workspace."""
PROJECT_SKILLS: Final = (Path(".agents") / "skills", Path(".claude") / "skills")
"""Folders of skills in a workspace; the first one also in the home folder, shared by programs."""
OWN_SKILLS: Final = "skills"
"""The folder of skills in the user's own folder."""
TEXTS: Final = ("SKILL.md", "skill.md")
CODE: Final = "skill.py"
MAX_SKILLS: Final = 300
"""Skills of one folder."""
MAX_SKILL_FILES: Final = 3_000
"""Files and folders of one skill."""
MAX_SKILL_BYTES: Final = 200_000_000
"""Bytes of one skill."""
MAX_CODE_BYTES: Final = 2_000_000
"""Bytes of the Python of one skill."""
LISTED: Final = 25
"""Files of a skill that its listing names one by one."""
HEAD_LINES: Final = 40
NOT_PART: Final = (".git",)
"""The folder of git. Compiled Python is a part of a skill: it runs in place of the source."""


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
    """Return the text of all other files but the memory, which stands in the system prompt."""
    is_other = {path: is_nested(path, workspace) or path == workspace / MEMORY_FILE for path in contents}
    return instructions_of({path: content for path, content in contents.items() if not is_other[path]})


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


@dataclass(frozen=True, kw_only=True)
class SkillFolder:
    """A skill as it was read."""

    path: Path
    file: Path
    """The path of `SKILL.md`."""
    text: bytes = b""
    code: dict[str, bytes] = field(default_factory=dict)
    """The contents of `skill.py`, or of the files of the package, by path in the folder."""
    files: tuple[str, ...] = ()
    """All other files, by path in the folder."""
    listing: bytes = b""
    """The text that a person trusts: the head of `SKILL.md`, and the digest of each file."""
    problem: str = ""
    """The reason why the skill cannot be read."""

    @property
    def module(self) -> str:
        """The name of the module after `skills.`."""
        return module_name(self.path.name)


@dataclass(frozen=True, kw_only=True)
class SkillModule:
    """A module of a skill, as a kernel gets it."""

    name: str
    """The name after `skills.`: the module of a skill, or one in its package."""
    file: str
    source: str
    is_package: bool = False


def module_name(name: str) -> str:
    """Return a skill's name as a name in Python."""
    return name.replace("-", "_").replace(".", "_")


def read_skill_folders(folders: Iterable[Path]) -> dict[Path, SkillFolder]:
    """Read all skills in folders, by the path of the skill. A skill under two folders counts once."""
    found: dict[Path, SkillFolder] = {}
    real: set[str] = set()
    for folder in folders:
        for path in skill_paths(folder):
            place = os.path.realpath(path)
            if place not in real:
                real.add(place)
                found[path] = read_skill(path)
    return found


def skill_paths(folder: Path) -> list[Path]:
    """Return the skills in a folder, sorted; none if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if not entry.name.startswith("."))
    except (OSError, ValueError):
        return []
    return [folder / name for name in names if _text_in(folder / name) is not None][:MAX_SKILLS]


def read_skill(path: Path) -> SkillFolder:
    """Read one skill; faults of its files are its `problem`. Args: path: its folder."""
    file = _text_in(path) or path / TEXTS[0]
    try:
        return _read(path, file)
    except OSError as error:
        name = Path(error.filename).name if isinstance(error.filename, str) else path.name
        return SkillFolder(path=path, file=file, problem=sentence(f"{name} cannot be read: {error.strerror or error}"))


def _text_in(path: Path) -> Path | None:
    if not is_folder(path):
        return None
    return next((path / name for name in TEXTS if os.path.lexists(path / name)), None)


def _read(path: Path, file: Path) -> SkillFolder:
    """Read one skill. Raises: OSError: A file cannot be read, or there is too much."""
    text, code, files, digests = b"", dict[str, bytes](), list[str](), dict[str, str]()
    left, left_for_code = MAX_SKILL_BYTES, MAX_CODE_BYTES
    for name in _files_of(path):
        whole = path / name
        status = whole.lstat()
        left -= status.st_size
        if left < 0:
            raise OSError(errno.EFBIG, f"the skill has more than {MAX_SKILL_BYTES:,} bytes", str(path))
        is_text = whole == file
        if is_text or _is_code(name, module_name(path.name)):
            content = read_file(_not_a_link(whole, status))
            digests[name] = f"{len(content):,} bytes, sha256 {hashlib.sha256(content).hexdigest()}"
            if is_text:
                text = content
                continue
            left_for_code -= len(content)
            if left_for_code < 0:
                raise OSError(errno.EFBIG, f"its Python has more than {MAX_CODE_BYTES:,} bytes", str(path))
            code[name] = content
        else:
            files.append(name)
            digests[name] = _digest(whole, status)
    if f"{module_name(path.name)}/__init__.py" not in code:
        files += sorted(name for name in code if name != CODE)
        code = {name: content for name, content in code.items() if name == CODE}
    listing = "\n".join([*_head(text), *_listed(digests)])
    return SkillFolder(path=path, file=file, text=text, code=code, files=tuple(files), listing=listing.encode())


def _is_code(name: str, module: str) -> bool:
    return name == CODE or (name.startswith(f"{module}/") and name.endswith(".py"))


def _files_of(path: Path) -> Iterator[str]:
    """Yield the paths in a folder, sorted, with links to folders. Raises: OSError: It cannot be read."""
    seen = 0

    def fail(error: OSError) -> None:
        raise error

    for folder, folders, names in os.walk(path, onerror=fail):
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        folders[:] = sorted(name for name in folders if name not in NOT_PART and name not in links)
        seen += len(folders) + len(names) + len(links)
        if seen > MAX_SKILL_FILES:
            raise OSError(errno.EFBIG, f"the skill has more than {MAX_SKILL_FILES:,} files", str(path))
        for name in sorted([*names, *links]):
            yield (Path(folder) / name).relative_to(path).as_posix()


def _not_a_link(path: Path, status: os.stat_result) -> Path:
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, "it is a link, which may point to something else later", str(path))
    return path


def _digest(path: Path, status: os.stat_result) -> str:
    """Return a file's digest; for a link, its target's name. Nothing but a regular file is opened."""
    if stat.S_ISLNK(status.st_mode):
        return f"a link to {str(path.readlink())!r}"
    if not stat.S_ISREG(status.st_mode):
        return "not a file"
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        return f"{status.st_size:,} bytes, sha256 {hashlib.file_digest(file, 'sha256').hexdigest()}"


def _head(text: bytes) -> list[str]:
    """Return the settings as they stand in the text, to be seen before they are trusted."""
    lines = text.decode(errors="replace").replace("\r\n", "\n").split("\n")[: HEAD_LINES + 1]
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), HEAD_LINES)
    return lines[1:end] if lines and lines[0].rstrip() == "---" else []


def _listed(digests: dict[str, str]) -> list[str]:
    lines = [f"{name!r}: {told}" for name, told in digests.items()]
    rest = lines[LISTED:]
    if not rest:
        return lines
    both = hashlib.sha256("\n".join(rest).encode("utf-8", "surrogateescape")).hexdigest()
    return [*lines[:LISTED], f"and {len(rest):,} more files, sha256 of their list {both}"]
