"""Folders of skills, read as they are trusted: whole, and once. `features/skills/skill.py` gives the contents a meaning.

A skill is a folder with `SKILL.md`. Its text and its Python are kept as they were read, so what a person has looked at
counts; all other files are only listed, with their digests.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from freeact_sub.errors import sentence
from freeact_sub.system.safe_files import is_folder, read_file

PROJECT_SKILLS: Final = (Path(".agents") / "skills", Path(".claude") / "skills")
"""Folders of skills in a workspace; the first one also in the home folder, shared by programs."""
OWN_SKILLS: Final = "skills"
"""The folder of skills in the user's own folder."""
TEXTS: Final = ("SKILL.md", "skill.md")
CODE: Final = "skill.py"
MAX_SKILLS: Final = 300
"""Skills of one folder."""
MAX_FILES: Final = 3_000
"""Files and folders of one skill."""
MAX_BYTES: Final = 200_000_000
"""Bytes of one skill."""
MAX_CODE_BYTES: Final = 2_000_000
"""Bytes of the Python of one skill."""
LISTED: Final = 25
"""Files of a skill that its listing names one by one."""
HEAD_LINES: Final = 40
NOT_PART: Final = (".git",)
"""The folder of git. Compiled Python is a part of a skill: it runs in place of the source."""


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
    left, left_for_code = MAX_BYTES, MAX_CODE_BYTES
    for name in _files_of(path):
        whole = path / name
        status = whole.lstat()
        left -= status.st_size
        if left < 0:
            raise OSError(errno.EFBIG, f"the skill has more than {MAX_BYTES:,} bytes", str(path))
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
        if seen > MAX_FILES:
            raise OSError(errno.EFBIG, f"the skill has more than {MAX_FILES:,} files", str(path))
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
