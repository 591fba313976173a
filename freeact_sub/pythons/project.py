"""The Python environments of projects, found by their files only: nothing of them is run.

`find_project_python`: the environment of the project that a workspace belongs to. First comes one that the user has
activated. Then the nearest one from the workspace upwards, to the top of the repository: `.venv`, `venv` and the like, the
one that uv or poetry keeps for the project. Last comes Conda's `base`, which is active in many shells that mean no
particular one. Programs and modules are found in virtual environments, in Conda's, and in whole Pythons.
"""

import base64
import functools
import hashlib
import json
import os
import re
import stat
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from freeact_sub.pythons import installed
from freeact_sub.pythons.installed import packages_in

MARKS: Final = ("pyvenv.cfg", "conda-meta")
"""Names that make a folder an environment."""
USUAL: Final = frozenset(
    (*installed.PARTS, *installed.BASE_PARTS, *MARKS, "sbin", "man", "doc", "var", ".gitignore", ".lock", "CACHEDIR.TAG")
)
"""The contents of a virtual environment that holds nothing else."""
PLACES: Final = (".venv", "venv", ".conda", ".pixi/envs/default")
"""Paths of an environment in the folder of a project."""
CONFIGURATION: Final = "pyproject.toml"
UV: Final = "UV_PROJECT_ENVIRONMENT"


def is_environment(folder: str) -> bool:
    """Return whether a Python that is started from the folder's `bin` belongs to the folder."""
    return any(os.path.exists(os.path.join(folder, mark)) for mark in MARKS) or bool(package_folders(folder))


def parts_of(folder: str) -> list[str]:
    """Return the paths of an environment that must not be written: the folder, or parts of it where it is also a project."""
    try:
        names = set(os.listdir(folder))
    except OSError:
        return []
    if "pyvenv.cfg" not in names or names <= USUAL:
        return [folder]  # nothing may be added: a `pyvenv.cfg` would name another Python
    return inner_parts(folder)


def inner_parts(folder: str) -> list[str]:
    """Return the parts of an environment, without the folder itself."""
    parts = (*installed.PARTS, *installed.BASE_PARTS, "sbin", "conda-meta")
    return [path for part in parts if os.path.lexists(path := os.path.join(folder, part))]


def package_folders(folder: str) -> list[str]:
    """Return the folders with the packages of an environment."""
    return [
        path
        for lib in ("lib", "lib64")
        for python in _names(os.path.join(folder, lib))
        if re.match(r"(python|pypy)\d", python)
        for packages in ("site-packages", "dist-packages")
        if os.path.isdir(path := os.path.join(folder, lib, python, packages))
    ]


def base_of(folder: str) -> str:
    """Return the folder of the Python that a virtual environment was made with; empty: not a virtual environment."""
    found = re.search(r"^\s*home\s*=\s*(.+?)\s*$", installed.read(os.path.join(folder, "pyvenv.cfg")), re.MULTILINE)
    return os.path.dirname(found[1]) if found else ""


def sources_of(packages: str) -> tuple[str, ...]:
    """Return the folders from which a folder of packages imports more, once they exist (`.pth`, editable installs)."""
    try:
        status = os.stat(packages)
    except OSError:
        return ()
    return _sources(packages, status.st_ino, status.st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _sources(packages: str, *identity: int) -> tuple[str, ...]:
    """Cache by the folder's identity and time of change: reading it takes milliseconds."""
    del identity
    named = (os.path.join(packages, name) for name in _names(packages) if name.endswith(".pth"))
    to_come = {os.path.join(packages, path) for pth in named for path in installed.named_by(pth)}
    return tuple(sorted(installed.editable(packages) | to_come))


def links_from(path: str) -> Iterator[str]:
    """Yield the path, and each path that it leads to, link by link."""
    for _ in range(40):  # as many as the system follows
        yield path
        try:
            target = os.readlink(path)
        except OSError:
            return
        path = os.path.normpath(os.path.join(os.path.dirname(path), target))


def words_of_script(path: str) -> list[str]:
    """Return the words of a script's first two lines, which hold its interpreter, even if its path is too long for one."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(1000)
    except OSError:
        return []
    if not head.startswith(b"#!"):
        return []
    return re.findall(r"[^\s'\"#!]+", "\n".join(os.fsdecode(head).splitlines()[:2]))


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


@dataclass(frozen=True, kw_only=True)
class ProjectPython:
    """A Python environment, as its files show it."""

    folder: Path
    variable: str = ""
    """The environment variable that names it, if the user has activated it. Empty: it was found by its place."""

    @property
    def python(self) -> str:
        """The path of its program."""
        return str(self.folder / "bin" / "python")

    @property
    def version(self) -> str:
        """The version of Python in it. Empty: its files do not say."""
        text = _read(self.folder / "pyvenv.cfg")
        found = re.search(r"^(?:version|version_info)\s*=\s*(\d+\.\d+(?:\.\d+)?)", text, re.MULTILINE)
        names = (path.name for path in (self.folder / "conda-meta").glob("python-3*.json"))
        known = found or next(filter(None, (re.match(r"python-(\d+\.\d+(?:\.\d+)?)-", name) for name in names)), None)
        return known[1] if known else ""

    @property
    def packages(self) -> dict[str, str]:
        """The versions of the packages that are installed in its own folder."""
        return packages_in(package_folders(str(self.folder)))

    def identity(self) -> bytes:
        """Return the creation time of its files, which tells it from any other environment at the same path.

        Code can forge any content, and any time of change but the inode's.
        """
        config, program = self.folder / "pyvenv.cfg", self.python
        steps = list(links_from(program))
        own = [path for path in (str(config), steps[-1]) if Path(path).is_relative_to(self.folder)]
        facts = [(path, status.st_ino, status.st_ctime_ns) for path in own if (status := _status(path)) is not None]
        return json.dumps([_read(config), steps, facts]).encode()


def find_project_python(workspace: Path, variables: Mapping[str, str]) -> ProjectPython | None:
    """Find the environment of the project. None: there is none, or it is the one that runs this program.

    Args:
        workspace: The workspace.
        variables: The environment variables of the user.
    """
    ours = os.path.realpath(sys.prefix)
    base = variables.get("CONDA_DEFAULT_ENV") in ("base", "root")
    active = {name: variables.get(name) for name in ("VIRTUAL_ENV", *(() if base else ("CONDA_PREFIX",)))}
    for variable, value in active.items():
        if value and _is_environment(Path(value)) and os.path.realpath(value) != ours:
            return ProjectPython(folder=Path(value), variable=variable)
    for folder in _project_folders(workspace):
        for place in _places(folder, variables):
            if _is_environment(place):
                return None if os.path.realpath(place) == ours else ProjectPython(folder=place)
    prefix = variables.get("CONDA_PREFIX", "")
    if base and prefix and _is_environment(Path(prefix)) and os.path.realpath(prefix) != ours:
        return ProjectPython(folder=Path(prefix), variable="CONDA_PREFIX")
    return None


def gone(variables: Mapping[str, str]) -> str:
    """Return a sentence on an activated environment that does not exist; empty: it exists, or none is activated."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        value = variables.get(variable)
        if value and not _is_environment(Path(value)):
            return f"{variable} names {value}, where there is no Python environment: activate another one, or unset it"
    return ""


def _project_folders(workspace: Path) -> Iterator[Path]:
    """Yield the workspace and the folders above it, to the top of its repository, without folders that others can write."""
    home = Path.home()
    for folder in (workspace, *workspace.parents):
        status = _status(str(folder))
        if folder != workspace:
            if folder in (home, Path(folder.anchor)) or status is None:
                return
            if status.st_uid != os.getuid() or status.st_mode & stat.S_IWOTH:
                return
        yield folder
        if (folder / ".git").exists():
            return


def _places(project: Path, variables: Mapping[str, str]) -> Iterator[Path]:
    has_configuration = (project / CONFIGURATION).is_file()
    if has_configuration and variables.get(UV):
        yield project / variables[UV]
    for name in PLACES:
        yield project / name
    if has_configuration:
        yield from _of_poetry(project, variables)


def _of_poetry(project: Path, variables: Mapping[str, str]) -> list[Path]:
    """Return the environments that poetry keeps for a project, the newest first.

    Poetry is not asked: it would run plugins that the project names.
    """
    digest = hashlib.sha256(os.path.realpath(project).encode()).digest()
    name = base64.urlsafe_b64encode(digest).decode()[:8]
    ends = re.compile(f".*-{re.escape(name)}-py3[.0-9]*")
    found = [path for path in _poetry_folder(variables).glob("*-py3*") if ends.fullmatch(path.name)]
    return sorted(found, key=lambda path: getattr(_status(str(path)), "st_mtime", 0), reverse=True)


def _poetry_folder(variables: Mapping[str, str]) -> Path:
    """Return the folder in which poetry keeps environments: by its variables, the user's settings, or by default."""
    mac = sys.platform == "darwin"
    own = Path("~/Library/Application Support" if mac else variables.get("XDG_CONFIG_HOME") or "~/.config").expanduser()
    settings_file = Path(variables.get("POETRY_CONFIG_DIR") or own / "pypoetry") / "config.toml"
    try:
        settings = tomllib.loads(_read(settings_file))
    except tomllib.TOMLDecodeError:
        settings = {}
    caches = Path("~/Library/Caches" if mac else variables.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    cache = variables.get("POETRY_CACHE_DIR") or settings.get("cache-dir") or str(caches / "pypoetry")
    environments_of = settings.get("virtualenvs")
    chosen = environments_of.get("path") if isinstance(environments_of, dict) else None
    path = variables.get("POETRY_VIRTUALENVS_PATH") or chosen or "{cache-dir}/virtualenvs"
    return Path(str(path).replace("{cache-dir}", str(cache))).expanduser()


def _is_environment(folder: Path) -> bool:
    marked = any((folder / mark).exists() for mark in MARKS)
    return marked and os.path.lexists(folder / "bin" / "python")


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return ""
