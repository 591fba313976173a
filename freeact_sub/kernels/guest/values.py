"""Pickles variables in groups that share objects, and passes values from kernel to kernel. Sent into every kernel as source.

All savers of values use it: how a pickle is made (`Pickles`), where its large blocks go, why a value cannot be saved. Large
blocks (arrays, frames) are written unchanged, out of band, and readers map them copy on write: they are not read until they
are used, and changes stay the reader's own. How single objects are taken apart: `saved/borrowed_pickler`.

A child gets values in one file: the parent's kernel writes it into its scratch folder, the host moves it into the child's,
the child's kernel reads it. The host never unpickles. The file: blocks, each at a multiple of 64 bytes; then the index as
JSON, which has the groups; then the index's length in eight bytes.
"""

import contextlib
import hashlib
import importlib
import io
import json
import keyword
import mmap
import os
import pickle
import re
import signal
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, TypeGuard

FOLDER = "FA_FOLDER"
"""The variable that names the private folder of a kernel; `tmp` in it is its scratch folder."""
ALIGNMENT = 64
LENGTH_BYTES = 8
DIGEST_BYTES = 32_000_000
"""Largest file to digest: about 50 ms."""
RESERVED = {"agent", "In", "Out", "get_ipython", "__builtins__"}
OF_IPYTHON = re.compile(r"_+|_i+|_\d+|_i\d+|_(ih|oh|dh|exit_code)|__\w*")
"""Names that IPython puts among the variables by itself."""
SMALLEST_BLOCK = 1024
"""Smallest size of a buffer that is written as it is; a smaller one goes into the pickle."""
TEXT_CHARS = 300
"""Maximum characters of a text, such as a reason, that the host takes from a kernel."""


def variables(shell: Any) -> dict[str, Any]:
    """Return the user's variables, without those that IPython or this package has added."""
    hidden, missing = shell.user_ns_hidden, object()
    return {
        name: value
        for name, value in list(shell.user_ns.items())
        if isinstance(name, str)
        and not (name in RESERVED or OF_IPYTHON.fullmatch(name) or value is hidden.get(name, missing))
    }


# --- how values are pickled


class SaveLimitError(BaseException):
    """An end of time or room. Not an `Exception`: the code of a type must not catch it."""


class Room:
    """The file that a pickle is written into, as long as there is room."""

    def __init__(self, size: int = 0, check: Callable[[int], None] = lambda _: None) -> None:
        """Args: size: the bytes written before. check: called with the bytes written so far; may raise."""
        self.size = size
        self.check = check
        self.pieces: list[bytes] = []
        self.blocks: list[Any] = []
        self.lines: dict[str, str] = {}
        """A line on each variable in the file, by name (`line`)."""

    def write(self, data: Any) -> None:
        """Write a part. Called by the pickler."""
        self.add(len(data))
        self.pieces.append(data if type(data) is bytes else bytes(data))

    def take(self, buffer: pickle.PickleBuffer) -> bool:
        """Whether a buffer goes into the pickle."""
        try:
            block = buffer.raw()
        except BufferError:  # it is not contiguous
            return True
        if block.nbytes < SMALLEST_BLOCK:
            return True
        self.keep(block)
        return False

    def keep(self, block: memoryview) -> None:
        """Keep a buffer that is not in the pickle."""
        self.add(block.nbytes)
        self.blocks.append(block)

    def add(self, size: int) -> None:
        """Count more bytes."""
        self.size += size
        self.check(self.size)

    @property
    def parts(self) -> list[Any]:
        """The blocks; the pickle is the last."""
        return [*self.blocks, b"".join(self.pieces)]

    def entry(self, places: list[list[int]]) -> dict[str, Any]:
        """Return the file's entry in an index. Args: places: where its parts are."""
        return {"names": self.lines, "data": places[-1], "blocks": places[:-1]}


class PlainPickler(pickle.Pickler):
    """A pickler that refuses functions and classes of cells: pickle saves only their names, which no other kernel has."""

    def reducer_override(self, value: Any) -> Any:
        """Refuse definitions of cells."""
        if isinstance(value, type | types.FunctionType) and value.__module__ == "__main__":
            raise pickle.PicklingError(
                f"{value.__qualname__} is defined in a cell, and there is no cloudpickle in the kernels' Python: "
                "install it, or define it in a module"
            )
        return NotImplemented


def handing_pickler() -> Any:
    """Return a class of picklers for values that go to another process, with copies of the globals that functions read."""
    try:
        return importlib.import_module("cloudpickle").CloudPickler
    except ImportError:
        return PlainPickler


class Pickles:
    """Pickles of variables by groups, without what cannot be pickled; `lost` has the reasons."""

    def __init__(self, variables: Mapping[str, Any], pickler: Any) -> None:
        """Args: pickler: the class."""
        self.variables = variables
        self.pickler = pickler
        self.lost: dict[str, str] = {}

    def of(self, names: Sequence[str]) -> Iterator[Room]:
        """Yield the pickle of a group, or of its picklable variables: they stay together."""
        try:
            room = self.pickled(names)
        except SaveLimitError as error:
            self.lose(names, error)
        except Exception as error:  # noqa: BLE001  # border: pickling runs code of the values' types
            kept = [name for name in names if len(names) > 1 and [*self.of([name])]]
            if len(kept) in (0, len(names)):
                self.lose([name for name in names if name not in self.lost], error)
            else:
                yield from self.of(kept)
        else:
            yield room

    def pickled(self, names: Sequence[str]) -> Room:
        """Return the pickle of a group. Raises: SaveLimitError, or any other error of code that makes it."""
        room = Room()
        self.pickle(names, room)
        return room

    def pickle(self, names: Sequence[str], room: Room) -> None:
        """Pickle a group into a room."""
        pickler = self.pickler(room, protocol=5, buffer_callback=room.take)
        for name in names:  # each refers to what it shares with those before
            pickler.dump((name, self.variables[name]))  # the host may leave names out of the index
            room.lines[name] = line(name, self.variables[name])

    def lose(self, names: Sequence[str], error: BaseException) -> None:
        """Note that these variables are not kept."""
        self.lost |= dict.fromkeys(names, reason_of(error))


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """End hanging code inside the block, if it runs Python at all; not where other code uses the timer."""
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


def padded(blocks: Sequence[Any], size: int = 0) -> Iterator[Any]:
    """Yield the blocks, each at a multiple of the alignment. Args: size: of all before them."""
    for block in blocks:
        yield b"\0" * (-size % ALIGNMENT)
        yield block
        size += -size % ALIGNMENT + len(block)


def places_of(blocks: Sequence[Any], size: int = 0) -> list[list[int]]:
    """Return position and size of each block in `padded`."""
    places = []
    for block in blocks:
        size += -size % ALIGNMENT
        places.append([size, len(block)])
        size += len(block)
    return places


def unpickled(group: Mapping[str, Any], view: memoryview) -> tuple[dict[str, Any], dict[str, Exception]]:
    """Return the variables of a group, and the errors of those that cannot be read: the first of them has raised it.

    Args:
        group: Its entry in an index.
        view: The file.
    """
    found: dict[str, Any] = {}
    try:
        buffers = [part(view, place) for place in group["blocks"]]
        data = io.BytesIO(part(view, group["data"]))
        unpickler = pickle.Unpickler(data, buffers=buffers)  # noqa: S301  # who has written it may run code here anyway
        while data.tell() < group["data"][1]:
            name, value = unpickler.load()
            if name in group["names"]:
                found[name] = value
    except Exception as error:  # noqa: BLE001  # border: unpickling runs code of the values' types
        return found, dict.fromkeys([name for name in group["names"] if name not in found], error)
    return found, {}


def part(view: memoryview, place: Sequence[int]) -> memoryview:
    """Return a block of a file."""
    start, size = place
    if start + size > len(view):
        raise EOFError("its file is shorter than it was")
    return view[start : start + size]


# --- what is said of them


def line(name: str, value: Any) -> str:
    """Return a short description of a value: its type and size; of a number, the number."""
    text = f"{name}: {type_name(value)}"
    try:
        shape = getattr(value, "shape", None)
        if value is None or isinstance(value, bool | int | float):
            text = f"{name} = {str(value)[:40]}"
        elif isinstance(shape, tuple):
            text = f"{text}, shape {shape}"
        else:
            text = f"{text}, length {len(value)}"
    except Exception:  # noqa: BLE001, S110  # border: all run code of the value's type; it has no size, then
        pass
    return cut(text, 200)


def type_name(value: Any) -> str:
    """Return the name of a value's type, with its package."""
    kind = type(value)
    package = kind.__module__.partition(".")[0] if isinstance(kind.__module__, str) else ""
    return kind.__qualname__ if package in ("builtins", "__main__", "") else f"{package}.{kind.__qualname__}"


def reason_of(error: BaseException) -> str:
    """Return why a value cannot be saved, or read."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # border: runs code of the error's type
        text = ""
    return cut(text or type(error).__name__)


def cut(text: str, chars: int = TEXT_CHARS) -> str:
    """Return a text as the host takes it: not too long, and without half characters."""
    return text[:chars].encode("utf-8", "replace").decode()


def fits(text: Any, chars: int) -> TypeGuard[str]:
    """Whether a text needs no cut."""
    return isinstance(text, str) and len(text) <= chars and cut(text, chars) == text


# --- how they get into another kernel


def give(name: str, values: dict[str, Any]) -> tuple[str, list[str]]:
    """Write values into a new file of that name in this kernel's scratch folder.

    Returns:
        The file's path, and one line for each value that describes it in the other kernel.

    Raises:
        TypeError: A value cannot be handed over; the message names it.
        ValueError: A name cannot be a variable's.
        OSError: There is no room for them, or this kernel has no such folder.
    """
    check_names(values)
    scratch()
    lines = [line(name, value) for name, value in values.items()]
    try:
        with new_file(name) as file:
            write(file, values)
    except OSError as error:
        raise OSError(error.errno, f"inputs could not be written ({error.strerror}): {', '.join(lines)}") from error
    return os.path.join(scratch(), name), lines


def give_variables(name: str, names: list[str], namespace: dict[str, Any]) -> None:
    """Write variables into a new file of this kernel's scratch folder. Raises: as `give`, `variable_of`."""
    give(name, {variable: variable_of(namespace, variable) for variable in names})


def variable_of(namespace: dict[str, Any], name: str) -> Any:
    """Return the value of a variable. Raises: NameError: It does not exist."""
    if name not in namespace:
        raise NameError(f"name {name!r} is not defined")
    return namespace[name]


def digest(path: str) -> str:
    """Return a digest of the values. Empty: the file is too large to digest quickly."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size > DIGEST_BYTES:
            return ""
        return hashlib.file_digest(file, "sha256").hexdigest()


def take(name: str) -> dict[str, Any]:
    """Return the values of a file in this kernel's scratch folder, by name, and remove the file."""
    return read(mapped(os.path.join(scratch(), name)))


def mapped(path: str) -> memoryview:
    """Return the content of a file, and remove its name: the mapping stays. Raises: OSError: There is no such file."""
    with open(path, "rb") as file:
        drop(path)
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))


def scratch() -> str:
    """Return the folder in which only this kernel may write.

    Raises:
        OSError: There is none.
    """
    folder = os.path.join(os.environ.get(FOLDER, ""), "tmp")
    if not os.path.isabs(folder) or not os.path.isdir(folder):
        raise OSError("inputs: this kernel has no folder to hand values over in: write them to files in the workspace")
    return folder


@contextlib.contextmanager
def new_file(name: str) -> Iterator[BinaryIO]:
    """Open a new file of this kernel's scratch folder; an incomplete one is removed."""
    path = os.path.join(scratch(), name)
    with open(path, "xb") as file:
        try:
            yield file
        except BaseException:
            drop(path)
            raise


def drop(path: str) -> None:
    """Remove a file, unless the host has moved it."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def check_names(values: Any) -> None:
    """Check that an object is a dict of variables.

    Raises:
        TypeError: It is not a dict, or a name is not text.
        ValueError: A name cannot be a variable's.
    """
    if not isinstance(values, dict):
        raise TypeError(f"inputs must be a dict of names and values, not {type(values).__name__}")
    for name in values:
        if not isinstance(name, str):
            raise TypeError(f"inputs: a name must be text, not {name!r}")
        if not name.isidentifier() or keyword.iskeyword(name):
            raise ValueError(f"inputs: {name!r} is not the name of a variable")
        if name in RESERVED:
            raise ValueError(f"inputs: {name!r} is reserved in every kernel: choose another name")


def write(file: BinaryIO, values: dict[str, Any]) -> None:
    """Write values, which keep shared objects shared. Raises: TypeError: as `give`."""
    pickles = Pickles(values, handing_pickler())
    groups = [put_group(file, room) for room in pickles.of([*values])]
    for name, reason in pickles.lost.items():
        raise TypeError(
            f"{name!r} ({type(values[name]).__name__}) cannot be handed over: {reason}. "
            "Hand over its parts, or write it to a file in the workspace."
        )
    finish(file, {"groups": groups})


def put_group(file: BinaryIO, room: Room) -> dict[str, Any]:
    """Write a group, and return its entry in the index."""
    return room.entry([put(file, block) for block in room.parts])


def put(file: BinaryIO, block: Any) -> list[int]:
    """Write a block, and return its position and size."""
    [place] = places_of([block], file.tell())
    file.writelines(padded([block], file.tell()))
    return place


def finish(file: BinaryIO, index: Any) -> None:
    """Write the index of a file, at its end."""
    tail = json.dumps(index).encode()
    file.write(tail)
    file.write(len(tail).to_bytes(LENGTH_BYTES, "little"))


def index_of(view: memoryview) -> dict[str, Any]:
    """Return the index in the content of a file."""
    tail = len(view) - LENGTH_BYTES
    index: dict[str, Any] = json.loads(bytes(view[tail - int.from_bytes(view[tail:], "little") : tail]))
    return index


def read(view: memoryview) -> dict[str, Any]:
    """Return the values in the content of a file, by name.

    Raises:
        TypeError: A value cannot be read here; the message names it.
    """
    found, lost = read_groups(view)
    for name, error in lost.items():
        raise TypeError(f"{name!r} cannot be read here: {type(error).__name__}: {error}") from error
    return found


def read_groups(view: memoryview) -> tuple[dict[str, Any], dict[str, Exception]]:
    """Return the values in the content of a file, and the errors of unreadable ones, by name."""
    found, lost = dict[str, Any](), dict[str, Exception]()
    for group in index_of(view)["groups"]:
        read, unread = unpickled(group, view)
        found |= read
        lost |= unread
    return found, lost
