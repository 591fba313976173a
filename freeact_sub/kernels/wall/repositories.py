"""Files that git obeys in folders that a kernel may write, found so that the kernel's wall can protect them.

A program that git's settings name runs at the next `git status` of a person there, outside of any wall. To keep `.git` is
not enough: it may be a file or a link that leads elsewhere, its settings may include files and name hooks and programs in
the working tree, and a folder is a repository without that name too (`git init --bare`). Folders are looked through level by
level up to a number, for a kernel's start must not wait for a large tree; the content of a folder is remembered until the
folder changes.
"""

import functools
import os
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from freeact_sub.pythons.installed import is_in
from freeact_sub.pythons.project import MARKS, inner_parts, parts_of
from freeact_sub.system.git_settings import files_of_user, named_path, pointed_folder, settings_of, text_of
from freeact_sub.system.safe_files import silent_mounts

MAX_FOLDERS: Final = 4000
"""The number of folders that are examined: some 80 ms the first time, 10 ms later."""
LAST: Final = ("node_modules", "site-packages", "__pycache__")
"""Folders that are examined after all others: large, and seldom a working tree."""
SETTINGS_SECONDS: Final = 2.0
"""Bound on the time for the settings of the repositories: code may have made files that take long to read."""
SECTIONS_WITHOUT_PROGRAMS: Final = ("branch", "user", "color")
FOLDERS: Final = (("core", "hookspath"), ("init", "templatedir"))
"""Settings that name folders with programs."""
MAX_STEPS: Final = 1000
"""Steps along a path, with those of the targets of its links, which may form a circle."""
FRESH_NANOSECONDS: Final = 10**9
"""Age below which a changed folder may change again within the same tick of the file system's clock."""


@dataclass(frozen=True, kw_only=True)
class Repositories:
    """The paths to protect."""

    kept: tuple[str, ...]
    """Real paths of files, folders and links in the folders that were searched; none is below another."""
    complete: bool
    """Whether all folders and settings were read. If not, a bound ended the search, or a mount does not answer."""
    sources: tuple[str, ...] = ()
    """Folders among these from which packages are installed in editable form."""
    open: tuple[str, ...] = ()
    """Paths that should be kept and cannot be, in words."""


def find_repositories(roots: Iterable[Path], others: Iterable[Path] = ()) -> Repositories:
    """Finds all that git obeys, as far as it is in the roots.

    Args:
        roots: Folders, searched to the bound; repositories around them count as well.
        others: Further paths to protect if they exist.
    """
    search = _RepositorySearch(tuple(dict.fromkeys(os.path.realpath(root) for root in roots)))
    for path in others:
        search.keep(str(path))
    complete = True
    for root in search.roots:
        search.look_at_user(root)
        search.look_above(root)
        complete = search.look_below(root) and complete
    complete = search.read_settings() and complete
    return Repositories(kept=outermost(search.kept), complete=complete)


def outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """Returns the paths that are not below another one, sorted."""
    found: list[str] = []
    for path in sorted(paths, key=lambda path: f"{path}/"):
        if not found or not path.startswith(f"{found[-1]}/"):
            found.append(path)
    return tuple(found)


class _RepositorySearch:
    def __init__(self, roots: tuple[str, ...]) -> None:
        self.roots = roots
        self.kept: set[str] = set()
        self._settings_of_user = files_of_user("config")
        self._seen: set[tuple[str, str]] = set()
        self._looked_into = 0
        self._unread: deque[tuple[str, str]] = deque()
        """Files with settings, each with its working tree: they are read when all repositories are known."""

    def look_at_user(self, root: str) -> None:
        """Looks at the user's settings, which count for each repository, there already or not."""
        for path in self._settings_of_user:
            self._unread.append((path, root))
        self.keep(os.environ.get("GIT_TEMPLATE_DIR", ""))

    def look_above(self, root: str) -> None:
        """Keeps the parts of the repositories around a root that lie in the root."""
        for folder in map(str, Path(root).parents):
            if os.path.lexists(f"{folder}/.git"):
                self._pointer(f"{folder}/.git", folder)

    def look_below(self, root: str) -> bool:
        """Finds the repositories in a root, and returns whether all folders could be looked into."""
        folders, last, silent = deque([root]), deque[str](), silent_mounts(root)
        while folders or last:
            if self._looked_into == MAX_FOLDERS:
                return False
            self._looked_into += 1
            for folder in self._look_into((folders or last).popleft()):
                if folder not in silent:
                    (last if folder.endswith(LAST) else folders).append(folder)
        return not silent

    def _look_into(self, folder: str) -> tuple[str, ...]:
        """Looks into a folder, and returns the folders in it that are still to be looked into."""
        try:
            status = os.stat(folder, follow_symlinks=False)
            if time.time_ns() - status.st_ctime_ns < FRESH_NANOSECONDS:
                found = _list.__wrapped__(folder)
            else:
                found = _list(folder, status.st_dev, status.st_ino, status.st_ctime_ns)
        except OSError:
            return ()
        if found.is_repository:
            self._repository(folder, folder)
            return ()
        if found.is_environment:
            for path in parts_of(folder) if folder not in self.roots else inner_parts(folder):
                self.keep(path)
            if folder in self.kept:
                return ()
            return tuple(inner for inner in found.folders if inner not in self.kept)
        for pointer in found.pointers:
            self._pointer(pointer, folder)
        for path in found.modules:
            self.keep(path)
        return found.folders

    def _pointer(self, path: str, tree: str) -> None:
        """Looks at a `.git`: a repository, a link to one, or a file that names one. Args: tree: its working tree."""
        self.keep(path)
        if named := pointed_folder(path):
            self.keep(named)
            self._repository(os.path.realpath(named), tree)

    def _repository(self, folder: str, tree: str) -> None:
        if not self._is_new(folder, tree):
            return
        named = os.path.join(folder, _text(f"{folder}/commondir").rstrip("\r\n"))
        common = os.path.realpath(named)
        for place in (folder, named):
            self.keep(place)
            for inner in (place, f"{place}/hooks", f"{place}/info"):
                self._keep_targets(inner)
        for line in _text(f"{common}/objects/info/alternates").splitlines():
            self.keep(os.path.join(common, "objects", line))
        for path in (f"{common}/config", f"{folder}/config.worktree", *self._settings_of_user):
            self._unread.append((path, tree))

    def read_settings(self) -> bool:
        """Keeps the paths in the settings; returns whether there was time for all of them."""
        until = time.monotonic() + SETTINGS_SECONDS
        while self._unread:
            start, tree = self._unread.popleft()
            if self._is_new(start, tree) and not self._settings(start, tree, until):
                return False
        return True

    def _settings(self, start: str, tree: str, until: float) -> bool:
        for path, settings in settings_of(start):
            if time.monotonic() > until:
                return False
            self.keep(path)
            for section, name, value in settings or ():
                if (section, name) in FOLDERS:
                    named = named_path(value, tree)
                    self.keep(named)
                    for folder in (named, f"{named}/hooks"):
                        self._keep_targets(folder)
                elif section not in SECTIONS_WITHOUT_PROGRAMS:
                    for word in (value, *re.findall(r"[^\s'\"|&;()<>!=]+", value)):
                        if os.path.isfile(place := named_path(word, tree)):
                            self.keep(place)
        return True

    def _is_new(self, path: str, tree: str) -> bool:
        new = (path, tree) not in self._seen
        self._seen.add((path, tree))
        return new

    def _keep_targets(self, folder: str) -> None:
        """Keeps the targets of the links in a folder: git follows them."""
        try:
            with os.scandir(folder) as entries:
                links = [entry.path for entry in entries if entry.is_symlink()]
        except OSError:
            return
        for link in links:
            self.keep(link)

    def keep(self, path: str) -> None:
        """Keeps the target of a path, and each link on the way, if it is there and in a root."""
        for place in _steps(path):
            if is_in(place, self.roots) and os.path.lexists(place):
                self.kept.add(place)


def _steps(path: str) -> Iterator[str]:
    """Yields the links on the way to a path from the root, and its target."""
    at, rest = "", deque(path.split("/"))
    for _ in range(MAX_STEPS):
        if not rest:
            yield at
            return
        match rest.popleft():
            case "" | ".":
                continue
            case "..":
                at = at.rpartition("/")[0]
            case name:
                place = f"{at}/{name}"
                try:
                    target = os.readlink(place)
                except OSError:
                    at = place
                    continue
                yield place
                rest.extendleft(reversed(target.split("/")))
                if target.startswith("/"):
                    at = ""


class _FolderContents(NamedTuple):
    is_repository: bool
    """Whether it is a repository by its content, whatever its name."""
    is_environment: bool = False
    """Whether it is a virtual environment, or one of Conda's."""
    pointers: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


@functools.lru_cache(maxsize=5 * MAX_FOLDERS)
def _list(folder: str, *identity: int) -> _FolderContents:
    """Lists a folder, cached by its identity and its time of change.

    Raises:
        OSError: It cannot be read.
    """
    del identity
    with os.scandir(folder) as entries:
        found = {entry.name: entry for entry in entries}
    if "HEAD" in found and ("commondir" in found or {"objects", "refs"} <= found.keys()):
        return _FolderContents(is_repository=True)
    named: dict[str, list[str]] = {".git": [], ".gitmodules": []}
    folders = []
    for name, entry in found.items():
        kind = name.lower()  # on some file systems case does not count
        if kind in named:
            named[kind].append(entry.path)
        if kind != ".git" and entry.is_dir(follow_symlinks=False):
            folders.append(entry.path)
    return _FolderContents(
        is_repository=False,
        is_environment=not found.keys().isdisjoint(MARKS),
        pointers=tuple(named[".git"]),
        modules=tuple(named[".gitmodules"]),
        folders=tuple(folders),
    )


def _text(path: str) -> str:
    return text_of(path) or ""
