"""Variables of a kernel and of its copy: descriptions, differences, and how values of a notebook's copy come back.

Runs in a notebook's kernel, in its copy and in bare forks of the first; and in the trial of a cell (`trial.py`). `report`
gives each variable a digest; a variable with the same digest in both has not changed. Values come back by pickle: a class
or function that the notebook has already is named, so that `isinstance` holds; one that the copy has made goes along.
"""

import contextlib
import hashlib
import json
import math
import pickle
import reprlib
import time
import types
import zlib
from typing import Any, Final

from . import values
from .saved.borrowed_pickler import saving_pickler
from .saved.groups import Groups

DIGEST_SECONDS: Final = 10.0
"""Time limit for all variables together; later ones are compared by identity only."""
PIECE_BYTES: Final = 16 << 20
DIGESTED_BYTES: Final = 2 << 30
"""Bytes digested in a second, at most."""
LARGE_BYTES: Final = 1 << 20
"""Smallest size of a piece that is digested by a checksum, which is several times faster."""
LIMIT: Final = "it is too large to be compared in time"
TEXT_CHARS: Final = 80
COLUMNS: Final = 12
NAME_CHARS: Final = 200
SALT: Final = "notebook"
FUNCTIONS: Final = (type, types.FunctionType)

earlier: dict[str, Any] = {}
"""Variables at the time when the copy was made. It keeps them, so that no other object gets their ids."""


def begin(shell: Any) -> None:
    """Note the variables. Called once in a copy, before any code runs in it."""
    earlier.update(variables(shell))


def variables(shell: Any) -> dict[str, Any]:
    """Return the user's variables, without objects of this package, such as an agent or the result of a run."""
    found = values.variables(shell)
    return {name: value for name, value in found.items() if len(name) <= NAME_CHARS and not is_ours(value)}


def is_ours(value: Any) -> bool:
    """Whether a value is of this package."""
    if isinstance(value, types.ModuleType):
        module = value.__name__
    else:
        module = value.__module__ if isinstance(value, FUNCTIONS) else type(value).__module__
    return isinstance(module, str) and module.partition(".")[0] in ("freeact_sub", "freeact_guest")


def report(
    shell: Any,
    *,
    digests: bool = True,
    seconds: float = DIGEST_SECONDS,
    pickler: "type[Comparing] | None" = None,
    described: bool = True,
) -> dict[str, dict[str, Any]]:
    """Return a description of each variable: `id`, `digest`, `kind`, `shape`, `columns`, `text`, `imported`.

    All digests together take this many seconds at most. Where none can be made, `digest` is empty, and `why`
    says why if the value may have been changed in place all the same. Without descriptions no `repr` of the user's runs.
    """
    deadline, found = time.monotonic() + seconds, {}
    for name, value in sorted(
        variables(shell).items(), key=lambda item: size_of(item[1])
    ):  # what is large may take all of it
        about = describe(value) if described else {}
        digest, why = digest_of(value, deadline, pickler or Comparing) if digests else ("", "")
        found[name] = {"id": id(value), "digest": digest, "why": why, **about}
    return found


def size_of(value: Any) -> int:
    """Return about how many bytes a value has, as far as that is known at once."""
    with contextlib.suppress(Exception):
        shape = None if isinstance(value, FUNCTIONS) else getattr(value, "shape", None)
        if isinstance(shape, tuple):
            return int(getattr(value, "nbytes", 0)) or 8 * math.prod(shape)
        if isinstance(value, str | bytes | bytearray | list | tuple | dict | set | frozenset):
            return len(value) * (1 if isinstance(value, str | bytes | bytearray) else 8)
    return 0


def report_to(file: str) -> None:
    """Write the report of a copy into a new file of its scratch folder."""
    write_new(file, json.dumps(report(shell_here())).encode())


def write_new(file: str, *pieces: Any) -> None:
    """Write a new file of this copy's scratch folder."""
    with values.new_file(file) as target:
        target.writelines(pieces)


def shell_here() -> Any:
    """Return the IPython shell of this process."""
    from IPython.core.getipython import get_ipython  # noqa: PLC0415  # it runs in kernels only

    return get_ipython()


# --- what a value is


def describe(value: Any) -> dict[str, Any]:
    """Return a description of a value for people and models, running no more of its type's code than needed."""
    about = {
        "kind": values.type_name(value)[:TEXT_CHARS],
        "shape": "",
        "columns": [],
        "text": "",
        "imported": is_imported(value),
    }
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
    """Return rows and columns of a table, axes of an array, or the number of items."""
    shape = None if isinstance(value, FUNCTIONS) else getattr(value, "shape", None)
    if isinstance(shape, tuple) and all(isinstance(size, int) for size in shape):
        return " x ".join(map(str, shape)) if shape else ""
    if isinstance(value, str | bytes | bytearray | list | tuple | dict | set | frozenset):
        return str(len(value))
    return ""


def columns_of(value: Any) -> list[str]:
    """Return the first columns of a table."""
    columns = None if isinstance(value, FUNCTIONS) else getattr(value, "columns", None)
    if columns is None or not hasattr(value, "shape"):
        return []
    return [str(column)[:TEXT_CHARS] for column in list(columns)[:COLUMNS]]


def text_of(value: Any) -> str:
    """Return a line about a value: the beginning of a number, text or container; nothing of tables and arrays."""
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


class _Digest(values.Room):
    """A file for a pickler that keeps only a digest."""

    def __init__(self, deadline: float) -> None:
        super().__init__()
        self.hash, self.deadline = hashlib.blake2b(digest_size=16), deadline

    def write(self, data: Any) -> None:
        if time.monotonic() > self.deadline:
            raise TimeoutError(LIMIT)
        large = len(data) >= LARGE_BYTES
        self.hash.update(zlib.crc32(data).to_bytes(4, "little") if large else data)

    def keep(self, block: memoryview) -> None:
        for start in range(0, len(block), PIECE_BYTES):
            self.write(block[start : start + PIECE_BYTES])


class Comparing(pickle.Pickler):
    """A pickler for digests only: a function or class of a cell stands for itself."""

    def reducer_override(self, value: Any) -> Any:
        """Reduce definitions of cells by identity."""
        if isinstance(value, FUNCTIONS) and value.__module__ == "__main__":
            return same, (value.__qualname__, id(value))
        if isinstance(value, types.ModuleType):
            return same, (value.__name__,)
        return NotImplemented


def same(*of: Any) -> Any:
    """Stand in digests for a value compared by identity."""
    return of


def digest_of(value: Any, deadline: float, pickler: type[Comparing] = Comparing) -> tuple[str, str]:
    """Return a digest of a value's content, or else why it may have changed unseen."""
    sink = _Digest(deadline)
    if size_of(value) > (deadline - time.monotonic()) * DIGESTED_BYTES:
        return "", LIMIT

    try:
        with values.time_limit(max(0.01, deadline - time.monotonic())):
            pickler(sink, protocol=5, buffer_callback=sink.take).dump(value)
    except (TimeoutError, values.SaveLimitError):
        return "", LIMIT
    except BaseException as error:  # border: pickling runs code of the value's type
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return "", ""
    return sink.hash.hexdigest(), ""


# --- how it comes back


def write_to(file: str, names: list[str], salt: str = SALT) -> None:
    """Write variables of a copy, in groups that share objects, into a new file of its scratch folder."""
    shell = shell_here()
    present = {name: shell.user_ns[name] for name in names if name in shell.user_ns}
    lost = {name: "there is no such variable in the copy" for name in names if name not in present}
    groups = Groups(shell.user_ns, lambda: None)
    found = groups.of(present)
    pickles = values.Pickles(present, saving_pickler(shell.user_ns, salt, groups.arrays, set(), known=earlier))
    with values.new_file(file) as target:
        written = [values.put_group(target, room) for group in found for room in pickles.of(group)]
        for name, reason in pickles.lost.items():
            lost[name] = f"{type(present[name]).__qualname__} cannot be pickled: {reason}"
        values.finish(target, {"groups": written, "lost": lost})
