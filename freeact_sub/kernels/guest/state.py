"""The variables of a kernel and of its copy: what they are, what differs, and how values of a notebook's copy come back.

Runs in a notebook's kernel, in its copy and in bare forks of the first; and in the trial of a cell (`trial.py`). `report`
gives each variable a digest; two that are equal in both mean that nothing has changed. Values come back by pickle: a class
or function that the notebook has already is named, so that `isinstance` holds; one that the copy has made goes along.
"""

import contextlib
import hashlib
import io
import json
import math
import os
import pickle
import reprlib
import sys
import time
import types
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from . import values
from .saved.borrowed_pickler import saver_class
from .saved.groups import Groups
from .saved.write import OF_IPYTHON, time_limit

DIGEST_SECONDS: Final = 10.0
"""For all variables together; what comes after it is compared by identity only."""
PIECE_BYTES: Final = 16 << 20
DIGESTED_BYTES: Final = 2 << 30
"""More than are digested in a second."""
LARGE_BYTES: Final = 1 << 20
"""Of pieces from this size on, the digest takes in a checksum, which is several times faster to make."""
LIMIT: Final = "it is too large to be compared in time"
TEXT_CHARS: Final = 80
COLUMNS: Final = 12
NAME_CHARS: Final = 200
SALT: Final = "notebook"
FUNCTIONS: Final = (type, types.FunctionType)

_before: dict[str, Any] = {}
"""In a copy: the variables that there were when it was made. It keeps them, so that no other object gets their ids."""


def begin(shell: Any) -> None:
    """Called once in a copy, before any code runs in it."""
    _before.update(variables(shell))


def variables(shell: Any) -> dict[str, Any]:
    """The user's variables: nothing of IPython, and nothing of ours, such as an agent or the result of a run."""
    hidden, missing = shell.user_ns_hidden, object()
    return {
        name: value
        for name, value in list(shell.user_ns.items())
        if isinstance(name, str)
        and len(name) <= NAME_CHARS
        and not (name in values.RESERVED or OF_IPYTHON.fullmatch(name) or value is hidden.get(name, missing))
        and not is_ours(value)
    }


def is_ours(value: Any) -> bool:
    """Whether a value is of this package."""
    if isinstance(value, types.ModuleType):
        module = value.__name__
    else:
        module = value.__module__ if isinstance(value, FUNCTIONS) else type(value).__module__
    return isinstance(module, str) and module.partition(".")[0] in ("freeact_sub", "freeact_guest")


def report(shell: Any, *, digests: bool = True, seconds: float = DIGEST_SECONDS) -> dict[str, dict[str, Any]]:
    """Each variable by its name: `id`, `digest`, `kind`, `shape`, `columns`, `text`, `imported`.

    The digests of all of them together take this many seconds at most. Where no digest can be made it is empty, and `why`
    says why if the value may have been changed in place all the same.
    """
    deadline, found = time.monotonic() + seconds, {}
    for name, value in sorted(
        variables(shell).items(), key=lambda item: size_of(item[1])
    ):  # what is large may take all of it
        about = describe(value)
        digest, why = digest_of(value, deadline) if digests else ("", "")
        found[name] = {"id": id(value), "digest": digest, "why": why, **about}
    return found


def size_of(value: Any) -> int:
    """About how many bytes a value has, as far as that is told at once."""
    with contextlib.suppress(Exception):
        shape = None if isinstance(value, FUNCTIONS) else getattr(value, "shape", None)
        if isinstance(shape, tuple):
            return int(getattr(value, "nbytes", 0)) or 8 * math.prod(shape)
        if isinstance(value, str | bytes | bytearray | list | tuple | dict | set | frozenset):
            return len(value) * (1 if isinstance(value, str | bytes | bytearray) else 8)
    return 0


def report_to(file: str) -> None:
    """Writes the report of a copy into a new file of its scratch folder."""
    write_new(file, json.dumps(report(shell_here())).encode())


def write_new(file: str, *pieces: Any) -> None:
    """Writes a new file of this copy's scratch folder."""
    with open(os.path.join(values.scratch(), file), "xb") as target:  # noqa: PTH118, PTH123  # as the guest does it
        target.writelines(pieces)


def shell_here() -> Any:
    """The IPython shell of this process."""
    from IPython.core.getipython import get_ipython  # noqa: PLC0415  # it runs in kernels only

    return get_ipython()


# --- what a value is


def describe(value: Any) -> dict[str, Any]:
    """What people and models read of a value, without running more of its type's code than needed."""
    kind = type(value)
    module = kind.__module__.partition(".")[0] if isinstance(kind.__module__, str) else ""
    name = kind.__qualname__ if module in ("builtins", "__main__", "") else f"{module}.{kind.__qualname__}"
    about = {"kind": name[:TEXT_CHARS], "shape": "", "columns": [], "text": "", "imported": is_imported(value)}
    with contextlib.suppress(Exception):
        about["shape"] = shape_of(value)
    with contextlib.suppress(Exception):
        about["columns"] = columns_of(value)
    with contextlib.suppress(Exception):
        about["text"] = text_of(value)
    return about


def is_imported(value: Any) -> bool:
    """Whether a value is a module, or a function or class of one."""
    if isinstance(value, types.ModuleType | types.BuiltinFunctionType):
        return True
    return isinstance(value, FUNCTIONS) and value.__module__ != "__main__"


def shape_of(value: Any) -> str:
    """Rows and columns of a table, axes of an array, or the number of items."""
    shape = None if isinstance(value, FUNCTIONS) else getattr(value, "shape", None)
    if isinstance(shape, tuple) and all(isinstance(size, int) for size in shape):
        return " x ".join(map(str, shape)) if shape else ""
    if isinstance(value, str | bytes | bytearray | list | tuple | dict | set | frozenset):
        return str(len(value))
    return ""


def columns_of(value: Any) -> list[str]:
    """The first columns of a table."""
    columns = None if isinstance(value, FUNCTIONS) else getattr(value, "columns", None)
    if columns is None or not hasattr(value, "shape"):
        return []
    return [str(column)[:TEXT_CHARS] for column in list(columns)[:COLUMNS]]


def text_of(value: Any) -> str:
    """A line of a value: of a number, a text or a container its beginning; of tables and arrays nothing."""
    if isinstance(value, types.ModuleType):
        return value.__name__
    if isinstance(value, FUNCTIONS):
        return value.__qualname__
    if hasattr(value, "shape") and shape_of(value):
        return ""
    short = reprlib.Repr()
    short.maxstring = short.maxother = TEXT_CHARS
    return " ".join(short.repr(value).split())[:TEXT_CHARS]


# --- whether it was changed


class _Digest(io.RawIOBase):
    """What a pickler writes into, which keeps only a digest of it."""

    def __init__(self, deadline: float) -> None:
        self.hash, self.deadline = hashlib.blake2b(digest_size=16), deadline

    def write(self, data: Any) -> int:
        if time.monotonic() > self.deadline:
            raise TimeoutError(LIMIT)
        large = len(data) >= LARGE_BYTES
        self.hash.update(zlib.crc32(data).to_bytes(4, "little") if large else data)
        return len(data)


class _Comparing(pickle.Pickler):
    """Pickles for a digest only: a function or class of a cell is the object that it is."""

    def reducer_override(self, value: Any) -> Any:
        """See `pickle.Pickler`."""
        if isinstance(value, FUNCTIONS) and value.__module__ == "__main__":
            return same, (value.__qualname__, id(value))
        if isinstance(value, types.ModuleType):
            return same, (value.__name__,)
        return NotImplemented


def same(*of: Any) -> Any:
    """Stands in digests for what is compared by identity."""
    return of


def digest_of(value: Any, deadline: float) -> tuple[str, str]:
    """A digest of a value's content, and else why it may have changed unseen."""
    sink = _Digest(deadline)
    if size_of(value) > (deadline - time.monotonic()) * DIGESTED_BYTES:
        return "", LIMIT

    def take(buffer: pickle.PickleBuffer) -> bool:
        try:
            block = buffer.raw()
        except BufferError:  # it is not contiguous: it goes into the pickle
            return True
        for start in range(0, len(block), PIECE_BYTES):
            sink.write(block[start : start + PIECE_BYTES])
        return False

    try:
        with time_limit(max(0.01, deadline - time.monotonic())):
            _Comparing(sink, protocol=5, buffer_callback=take).dump(value)
    except TimeoutError:
        return "", LIMIT
    except BaseException as error:  # border: pickling runs code of the value's type
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return "", LIMIT if type(error).__name__ == "SaveLimitError" else ""
    return sink.hash.hexdigest(), ""


# --- how it comes back


def write_to(file: str, names: list[str]) -> None:
    """Pickles variables of a copy, those that share objects together, into a new file of its scratch folder.

    The file: the length of the index in eight bytes, the index as JSON (sizes of pieces; the reason for each name that
    cannot be pickled), then the pieces: the pickle and its large blocks.
    """
    shell = shell_here()
    present = {name: shell.user_ns[name] for name in names if name in shell.user_ns}
    lost = {name: "there is no such variable in the copy" for name in names if name not in present}
    groups = Groups(shell.user_ns, lambda: None)
    groups.of(present)
    dump = dumper(shell.user_ns, groups.arrays)
    try:
        pieces = dump(present)
    except Exception:  # noqa: BLE001  # border: pickling runs code of the values' types
        for name, value in list(present.items()):
            try:
                dump({name: value})
            except Exception as error:  # noqa: BLE001  # border: as above
                lost[name] = f"{type(value).__qualname__} cannot be pickled: {error}"[:300]
                del present[name]
        pieces = dump(present)
    index = json.dumps({"sizes": [len(piece) for piece in pieces], "lost": lost}).encode()
    write_new(file, len(index).to_bytes(8, "little"), index, *pieces)


def dumper(namespace: dict[str, Any], arrays: set[int]) -> Callable[[Mapping[str, Any]], list[Any]]:
    """A function that pickles variables of a copy for the notebook's kernel."""
    base: Any = saver_class(namespace, SALT, arrays, set())

    class Pickler(base):  # type: ignore[misc]  # chosen at run time
        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, FUNCTIONS) and _before.get(name := str(value.__name__)) is value:
                return of_notebook, (name,)
            return super().reducer_override(value)

    def dump(present: Mapping[str, Any]) -> list[Any]:
        file, buffers = io.BytesIO(), []
        Pickler(file, protocol=5, buffer_callback=lambda buffer: buffers.append(buffer.raw())).dump(dict(present))
        return [file.getvalue(), *buffers]

    return dump


def of_notebook(name: str) -> Any:
    """A function or class that the notebook has."""
    return sys.modules["__main__"].__dict__[name]


def read(data: memoryview) -> tuple[dict[str, Any], dict[str, str]]:
    """In the notebook's kernel: the values in the content of a file, and the reasons of those that are not in it.

    To unpickle is to run code of whoever wrote the file. Raises: what such code raises.
    """
    size = int.from_bytes(data[:8], "little")
    index, start, pieces = json.loads(bytes(data[8 : 8 + size])), 8 + size, []
    for length in index["sizes"]:
        pieces.append(data[start : start + length])
        start += length
    found = pickle.loads(pieces[0], buffers=pieces[1:])  # noqa: S301  # a person has said yes
    return found, index["lost"]
