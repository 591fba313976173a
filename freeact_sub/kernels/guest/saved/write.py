"""Writes the variables of a kernel into a folder, each group that shares objects by itself.

A file is named by the digest of its content and holds one large group, or all small ones: pickles, and beside them what
they hold in large blocks, as it is. `manifest.json` says what is where. It is there last: without it there is no snapshot.
"""

import ast
import contextlib
import hashlib
import json
import linecache
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeGuard

from .. import values
from .borrowed_pickler import Room, saver_class
from .groups import Groups

MANIFEST = "manifest.json"
FORMAT = 1
SMALL_BYTES = 64 * 1024
"""Groups up to this size share a file."""
DIGEST_BYTES = 16
GROUP_SECONDS = 30.0
"""For one group; code of its types may hang."""
SOURCE_CHARS = 2_000_000
"""The bound on sources of cells, which are kept so that tracebacks show them."""
TEXT_CHARS = 300
NAME_CHARS, PATH_CHARS = 1000, 10_000
"""The host takes no longer ones."""
SUBMODULES = 2000
OF_IPYTHON = re.compile(r"_+|_i+|_\d+|_i\d+|_(ih|oh|dh|exit_code)|__\w*")
"""Names that IPython puts among the variables by itself."""


class SaveLimitError(BaseException):
    """There is no more time, or no more room. Not an `Exception`: the code of a type must not catch it."""


class Writer:
    """One snapshot."""

    def __init__(self, shell: Any, salt: str, imported: Callable[[], Any], request: dict[str, Any]) -> None:
        """Args: imported: tells of modules. request: the host's: `folder`, digests that are `known`, `seconds`, `bytes`."""
        self.namespace: dict[str, Any] = shell.user_ns
        self.hidden: dict[str, Any] = shell.user_ns_hidden
        self.inputs: list[str] = self.namespace.get("In", [])
        self.folder: str = request["folder"]
        self.known = set(request["known"])
        self.seconds, self.bytes = request["seconds"], request["bytes"]
        self.deadline = time.monotonic() + self.seconds
        self.size = 0
        self.small = bytearray()
        self.sources: set[str] = set()
        self.files: dict[str, int] = {}
        self.groups: list[dict[str, Any]] = []
        self.lost: dict[str, dict[str, Any]] = {}
        self.salt = salt
        self.imported = imported

    def write(self) -> None:
        """Writes all that can be kept, and then the manifest.

        Raises:
            OSError: The manifest cannot be written.
        """
        variables = {name: value for name, value in list(self.namespace.items()) if self.is_kept(name, value)}
        modules = {name: value for name, value in variables.items() if type(value) is type(sys)}
        for name in modules:
            del variables[name]
        groups = Groups(self.namespace, self.check_time)
        try:
            with time_limit(self.seconds):
                found = groups.of(variables)
        except SaveLimitError as error:
            found = []
            self.lose(list(variables), error)
        self.saver = saver_class(self.namespace, self.salt, groups.arrays, self.sources)
        for names in found:
            self.keep(names)
        self.flush()
        manifest = {
            "format": FORMAT,
            "python": sys.implementation.cache_tag,
            "files": self.files,
            "groups": self.groups,
            "lost": list(self.lost.values()),
            "modules": self.modules(modules),
            "submodules": submodules(modules.values()),
            "path": [path for path in sys.path if fits(path, PATH_CHARS)],
            "folder": working_folder(),
            "sources": self.source_texts(),
            "imported": self.imported(),
        }
        path = os.path.join(self.folder, MANIFEST)
        with open(f"{path}.new", "x") as file:
            json.dump(manifest, file)
        os.rename(f"{path}.new", path)

    def is_kept(self, name: Any, value: Any) -> bool:
        """Whether a name is the user's variable rather than one of IPython or of ours."""
        if not fits(name, NAME_CHARS) or OF_IPYTHON.fullmatch(name) or name in values.RESERVED:
            return False
        return not (name in self.hidden and self.hidden[name] is value)

    def keep(self, names: list[str]) -> None:
        """Writes a group. If that fails, tries each of its variables alone; those that can be saved stay together."""
        try:
            self.put(names)
        except SaveLimitError as error:
            self.lose(names, error)
        except Exception as error:  # noqa: BLE001  # border: pickling runs code of the values' types
            if len(names) == 1:
                self.lose(names, error)
                return
            rest = [name for name in names if self.can_be_kept(name)]
            if rest and len(rest) < len(names):
                self.keep(rest)
            else:
                self.lose(rest, error)

    def can_be_kept(self, name: str) -> bool:
        """Whether a variable can be pickled by itself; if not, it is lost."""
        try:
            self.pickled([name])
        except (Exception, SaveLimitError) as error:  # noqa: BLE001  # border: as above
            self.lose([name], error)
            return False
        return True

    def pickled(self, names: list[str]) -> tuple[Room, dict[str, str]]:
        """The pickle of variables, and a line on each.

        Raises:
            SaveLimitError: It takes too long, or too much room.
        """
        room = Room(self.size, self.check_size)
        with time_limit(min(GROUP_SECONDS, self.deadline - time.monotonic())):
            saver = self.saver(room, protocol=5, buffer_callback=room.take)
            saver.dump({name: self.namespace[name] for name in names})
            return room, {name: description(name, self.namespace[name]) for name in names}

    def put(self, names: list[str]) -> None:
        """Pickles a group and writes it: into its own file, or to what is small."""
        room, lines = self.pickled(names)
        blocks = [*room.blocks, b"".join(room.pieces)]
        places, size = [], 0
        for block in blocks:
            size += -size % values.ALIGNMENT
            places.append([size, len(block)])
            size += len(block)
        if size <= SMALL_BYTES:
            self.small += b"\0" * (-len(self.small) % values.ALIGNMENT)
            start, file = len(self.small), ""
            self.small += b"".join(padded(blocks))
        else:
            start, file = 0, self.put_file(lambda: padded(blocks), size)
        placed = [[start + begin, length] for begin, length in places]
        self.groups.append({"names": lines, "file": file, "data": placed[-1], "blocks": placed[:-1]})
        self.size = room.size

    def put_file(self, pieces: Callable[[], Iterator[Any]], size: int) -> str:
        """Writes a file, if the host has none with this content, and returns its name.

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
        """Writes what is small."""
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

    def modules(self, modules: dict[str, Any]) -> dict[str, str]:
        """The modules that can be imported again, by the name of the variable."""
        found = {}
        for name, module in modules.items():
            real = getattr(module, "__name__", None)
            if fits(real, NAME_CHARS) and sys.modules.get(real) is module and real != "__main__":
                found[name] = real
            else:
                self.lose([name], ImportError("it cannot be imported by its name"))
        return found

    def lose(self, names: list[str], error: BaseException) -> None:
        """These variables are not kept."""
        for name in names:
            kind = type(self.namespace.get(name))
            self.lost[name] = {
                "name": name,
                "type": cut(f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.").removeprefix("__main__.")),
                "reason": reason_of(error),
                "cell": cell_of(name, self.inputs),
            }

    def source_texts(self) -> dict[str, str]:
        """The sources of the cells in which kept functions stand."""
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
        """Called now and then."""
        if time.monotonic() > self.deadline:
            raise SaveLimitError(f"no time was left of the {self.seconds:g} s that saving may take")

    def check_size(self, size: int) -> None:
        """Called with the size of all that is saved."""
        if size > self.bytes:
            raise SaveLimitError(f"it does not fit into the {self.bytes:,} bytes that may be saved")
        self.check_time()


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Ends what hangs, if it runs Python at all; where somebody else uses the timer, nothing does."""
    if seconds <= 0:
        raise SaveLimitError("no time was left to save it")
    if not hasattr(signal, "setitimer") or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return

    def stop(*_: Any) -> None:
        raise SaveLimitError(f"saving it took more than {seconds:.2g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL if before is None else before)


def padded(blocks: list[Any]) -> Iterator[Any]:
    """The blocks, each at a multiple of the alignment."""
    size = 0
    for block in blocks:
        yield b"\0" * (-size % values.ALIGNMENT)
        yield block
        size += -size % values.ALIGNMENT + len(block)


def submodules(modules: Any) -> list[str]:
    """Return the imported modules below these packages: `import xml.dom` makes a variable `xml`."""
    names = {module.__name__ for module in modules if hasattr(module, "__path__")}
    loaded = [name for name in list(sys.modules) if fits(name, NAME_CHARS)]
    return sorted(name for name in loaded if name.partition(".")[0] in names and "." in name)[:SUBMODULES]


def working_folder() -> str | None:
    """Return the working folder. None: it is gone."""
    with contextlib.suppress(OSError):
        folder = os.getcwd()
        return folder if fits(folder, PATH_CHARS) else None
    return None


def fits(text: Any, chars: int) -> TypeGuard[str]:
    """Whether a text needs no cut."""
    return isinstance(text, str) and len(text) <= chars and cut(text, chars) == text


def cut(text: str, chars: int = TEXT_CHARS) -> str:
    """A text as the host takes it: not too long, and without half characters."""
    return text[:chars].encode("utf-8", "replace").decode()


def description(name: str, value: Any) -> str:
    """A line on a variable: its type and its size."""
    try:
        return cut(values.line(name, value))
    except Exception:  # noqa: BLE001  # border: runs code of the value's type
        return cut(f"{name}: {type(value).__qualname__}")


def reason_of(error: BaseException) -> str:
    """Why a variable is not kept."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # border: runs code of the error's type
        text = ""
    return cut(text or type(error).__name__)


def cell_of(name: str, inputs: list[str]) -> int | None:
    """Return the number of the last cell whose source assigns this name."""
    for number in range(len(inputs) - 1, 0, -1):
        source = inputs[number]
        if isinstance(source, str) and name in source and name in names_given(source):
            return number
    return None


def names_given(source: str) -> set[str]:
    """The names to which a source gives values."""
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
