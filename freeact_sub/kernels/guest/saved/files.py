"""Files of saved variables: a kernel writes them, each group that shares objects by itself, and a new kernel reads them.

A file is named by the digest of its content and holds one large group, or all small ones: pickles, and beside them their
large blocks, unchanged. `manifest.json` says where each is. It is written last: without it there is no snapshot. Values that
cannot be read are named, and the rest is restored.
"""

import ast
import contextlib
import hashlib
import importlib
import json
import linecache
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .. import values
from ..values import SaveLimitError, fits
from .borrowed_pickler import saving_pickler
from .groups import Groups
from .imported import DIGEST_BYTES, NAME_CHARS, PATH_CHARS, from_sources

MANIFEST, RESULT = "manifest.json", "restored.json"
FORMAT = 3
SMALL_BYTES = 64 * 1024
"""Groups up to this size share a file."""
GROUP_SECONDS = 30.0
"""Time limit for one group; code of its types may hang."""
SOURCE_CHARS = 2_000_000
"""Maximum characters of the sources of cells, which are kept so that tracebacks show them."""
SUBMODULES = 2000


class Writer(values.Pickles):
    """The writer of one snapshot."""

    def __init__(self, shell: Any, salt: str, imported: Callable[[], Any], request: dict[str, Any]) -> None:
        """Args: imported: tells of modules. request: the host's: `folder`, digests that are `known`, `seconds`, `bytes`."""
        kept = {name: value for name, value in values.variables(shell).items() if fits(name, NAME_CHARS)}
        self.modules = {name: value for name, value in kept.items() if type(value) is type(sys)}
        super().__init__({name: value for name, value in kept.items() if name not in self.modules}, None)
        self.namespace: dict[str, Any] = shell.user_ns
        self.folder: str = request["folder"]
        self.known = set(request["known"])
        self.seconds, self.bytes = request["seconds"], request["bytes"]
        self.deadline = time.monotonic() + self.seconds
        self.size = 0
        self.small = bytearray()
        self.sources: set[str] = set()
        self.files: dict[str, int] = {}
        self.groups: list[dict[str, Any]] = []
        self.salt = salt
        self.imported = imported

    def write(self) -> None:
        """Write all that can be kept, and then the manifest.

        Raises:
            OSError: The manifest cannot be written.
        """
        groups = Groups(self.namespace, self.check_time)
        found: list[list[str]] = []
        try:
            with values.time_limit(self.seconds):
                found = groups.of(self.variables)
        except SaveLimitError as error:
            self.lose([*self.variables], error)
        self.pickler = saving_pickler(self.namespace, self.salt, groups.arrays, self.sources)
        for names in found:
            for room in self.of(names):
                try:
                    self.put(room)
                except (OSError, SaveLimitError) as error:
                    self.lose([*room.lines], error)
        self.flush()
        manifest = {
            "format": FORMAT,
            "python": sys.implementation.cache_tag,
            "files": self.files,
            "groups": self.groups,
            "modules": self.module_names(),
            "lost": [self.about_lost(name, reason) for name, reason in self.lost.items()],
            "submodules": submodules(self.modules.values()),
            "path": [path for path in sys.path if fits(path, PATH_CHARS)],
            "folder": working_folder(),
            "sources": self.source_texts(),
            "imported": self.imported(),
        }
        path = os.path.join(self.folder, MANIFEST)
        with open(f"{path}.new", "x") as file:
            json.dump(manifest, file)
        os.rename(f"{path}.new", path)

    def pickled(self, names: Sequence[str]) -> values.Room:
        """Pickle a group within the limits of time and room."""
        room = values.Room(self.size, self.check_size)
        with values.time_limit(min(GROUP_SECONDS, self.deadline - time.monotonic())):
            self.pickle(names, room)
        return room

    def put(self, room: values.Room) -> None:
        """Write a group: into its own file, or to the small ones. Raises: OSError: There is no room for it."""
        blocks = room.parts
        places, file = values.places_of(blocks), ""
        if (size := sum(places[-1])) <= SMALL_BYTES:
            places = values.places_of(blocks, len(self.small))
            self.small += b"".join(values.padded(blocks, len(self.small)))
        else:
            file = self.put_file(lambda: values.padded(blocks), size)
        self.groups.append({"file": file, **room.entry(places)})
        self.size = room.size

    def put_file(self, pieces: Callable[[], Iterator[Any]], size: int) -> str:
        """Write a file, if the host has none with this content, and return its name.

        Raises:
            OSError: There is no room for it.
        """
        digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        for piece in pieces():
            digest.update(piece)
            self.check_time()
        name = digest.hexdigest()
        if name not in self.known:
            path = os.path.join(self.folder, name)
            try:
                with open(path, "xb") as file:
                    for piece in pieces():
                        file.write(piece)
                        self.check_time()
            except BaseException:
                values.drop(path)
                raise
            self.known.add(name)
        self.files[name] = size
        return name

    def flush(self) -> None:
        """Write the small groups."""
        small = [group for group in self.groups if not group["file"]]
        if not small:
            return
        try:
            name = self.put_file(lambda: iter([self.small]), len(self.small))
        except (OSError, SaveLimitError) as error:
            self.groups = [group for group in self.groups if group["file"]]
            self.lose([name for group in small for name in group["names"]], error)
            return
        for group in small:
            group["file"] = name

    def module_names(self) -> dict[str, str]:
        """Return the modules that can be imported again, by the name of the variable."""
        found = {}
        for name, module in self.modules.items():
            real = getattr(module, "__name__", None)
            if fits(real, NAME_CHARS) and sys.modules.get(real) is module and real != "__main__":
                found[name] = real
            else:
                self.lose([name], ImportError("it cannot be imported by its name"))
        return found

    def about_lost(self, name: str, reason: str) -> dict[str, Any]:
        """Return the host's report on a variable that is not kept."""
        kind, cell = values.cut(values.type_name(self.namespace.get(name))), cell_of(name, self.namespace.get("In", []))
        return {"name": name, "type": kind, "reason": reason, "cell": cell}

    def source_texts(self) -> dict[str, str]:
        """Return the sources of the cells that define kept functions."""
        texts, room = {}, SOURCE_CHARS
        for file in sorted(name for name in self.sources if not os.path.exists(name)):
            text = "".join(linecache.getlines(file))
            room -= len(text)
            if room < 0:
                break
            if fits(file, NAME_CHARS) and fits(text, SOURCE_CHARS):
                texts[file] = text
        return texts

    def check_time(self) -> None:
        """Raise `SaveLimitError` after the time limit. Called now and then."""
        if time.monotonic() > self.deadline:
            raise SaveLimitError(f"no time was left of the {self.seconds:g} s that saving may take")

    def check_size(self, size: int) -> None:
        """Raise `SaveLimitError` over the size limit. Called with the size of all saved so far."""
        if size > self.bytes:
            raise SaveLimitError(f"it does not fit into the {self.bytes:,} bytes that may be saved")
        self.check_time()


def submodules(modules: Any) -> list[str]:
    """Return the imported modules below these packages: `import xml.dom` makes a variable `xml`."""
    names = {module.__name__ for module in modules if hasattr(module, "__path__")}
    loaded = [name for name in list(sys.modules) if fits(name, NAME_CHARS)]
    return sorted(name for name in loaded if name.partition(".")[0] in names and "." in name)[:SUBMODULES]


def working_folder() -> str | None:
    """Return the working folder, if it is still there."""
    with contextlib.suppress(OSError):
        folder = os.getcwd()
        return folder if fits(folder, PATH_CHARS) else None
    return None


def cell_of(name: str, inputs: list[str]) -> int | None:
    """Return the number of the last cell whose source assigns this name."""
    for number in range(len(inputs) - 1, 0, -1):
        source = inputs[number]
        if isinstance(source, str) and name in source and name in names_given(source):
            return number
    return None


def names_given(source: str) -> set[str]:
    """Return the names to which a source gives values."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.partition(".")[0])
    return names


def restore(folder: str, namespace: dict[str, Any]) -> None:
    """Put a folder's snapshots into the namespace, the oldest first, and write a report into the folder."""
    with open(os.path.join(folder, MANIFEST)) as file:
        manifests = json.load(file)
    views = {name: mapped(os.path.join(folder, name)) for name in {name for each in manifests for name in each["files"]}}
    lost: dict[str, str] = {}
    restored: dict[str, str] = {}
    with from_sources():
        for manifest in manifests:
            restore_one(manifest, views, namespace, restored, lost)
    with open(os.path.join(folder, RESULT), "x") as file:
        json.dump({"restored": restored, "lost": lost}, file)


def restore_one(
    manifest: dict[str, Any],
    views: dict[str, memoryview | None],
    namespace: dict[str, Any],
    restored: dict[str, str],
    lost: dict[str, str],
) -> None:
    """Put the variables of one snapshot into the namespace. Args: restored, lost: get the names of either kind."""
    settle(manifest)
    for name, module in manifest["modules"].items():
        try:
            namespace[name] = importlib.import_module(module)
            restored[name] = values.cut(f"{name}: module {module}")
        except Exception as error:  # noqa: BLE001  # border: a module may fail in any way
            lost[name] = values.reason_of(error)
    missing = [name for name in manifest["submodules"] if name not in sys.modules]
    for name in missing:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    problem = "" if manifest["format"] == FORMAT else "it was saved by another version of this program"
    if manifest["python"] != sys.implementation.cache_tag:
        problem = f"it was saved by {manifest['python']}, and this kernel is {sys.implementation.cache_tag}"
    for group in manifest["groups"]:
        read, unread = dict[str, Any](), dict[str, Exception]()
        if problem:
            unread = dict.fromkeys(group["names"], RuntimeError(problem))
        elif (view := views.get(group["file"])) is None:
            unread = dict.fromkeys(group["names"], FileNotFoundError("its file is gone"))
        else:
            read, unread = values.unpickled(group, view)
        namespace.update(read)
        restored |= {name: group["names"][name] for name in read}
        lost |= {name: values.reason_of(error) for name, error in unread.items()}


def settle(manifest: dict[str, Any]) -> None:
    """Restore what imports and functions rely on: the search path, the working folder, the sources of cells."""
    sys.path += [path for path in manifest["path"] if path not in sys.path]
    with contextlib.suppress(OSError, TypeError):
        os.chdir(manifest["folder"])
    for name, text in manifest["sources"].items():
        linecache.cache.setdefault(name, (len(text), None, text.splitlines(keepends=True), name))


def mapped(path: str) -> memoryview | None:
    """Return the content of a file, which may then be removed. None: it is not there."""
    with contextlib.suppress(OSError, ValueError):
        return values.mapped(path)
    return None
