"""Writes a variable so that the host can read it without running code. Sent into every kernel as source.

Plain values become JSON, an array becomes npy, a frame becomes one array or list for each column. The file has the form of
`values.py`: blocks, and an index that says what they are. `kernels/portable.py` reads it.
"""

import decimal
import json
import math
import numbers
import sys
from collections.abc import Collection, Mapping
from typing import Any, BinaryIO

from . import plain, values  # relative, for in a kernel they are parts of another package

MAX_BYTES = 2**30
MAX_JSON_BYTES = 2**27
"""Size limit of all JSON in a file: as objects of Python it takes up to 25 times as much."""
MAX_LEVELS = 8
MAX_ITEMS = 1000
"""Maximum items of a list or dict that holds arrays or frames."""
NUMBERS = "biufcmM"
"""Kinds of numpy's types in a frame."""
KINDS = f"{NUMBERS}SUV"
"""Kinds of numpy's types in an array."""
MASKED = {f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)} | {"boolean", "Float32", "Float64"}
PLAIN = (type(None), bool, int, float, str, list, dict)
"""Types of values in a column of objects that JSON brings back unchanged."""
FRAMES = {"DataFrame": "pandas", "Series": "pandas", "ndarray": "numpy"}
"""Types of values sent as arrays, and their modules."""


def block_type(output: Any) -> str:
    """Return the name of a type of arrays or frames, such as `pandas.DataFrame`; empty for all other types."""
    name = getattr(output, "__name__", "")
    module = FRAMES.get(name, "")
    return f"{module}.{name}" if isinstance(output, type) and output.__module__.partition(".")[0] == module else ""


def write_variable(name: str, variable: str, namespace: dict[str, Any]) -> None:
    """Write a variable into a new file of this kernel's scratch folder.

    Raises:
        NameError: The variable does not exist.
        TypeError, ValueError: It cannot be written; the message says why.
        OSError: There is no room, or this kernel has no such folder.
    """
    value = values.variable_of(namespace, variable)
    with values.new_file(name) as file:
        values.finish(file, ValueWriter(file).node(value, variable))


class ValueWriter:
    """Writer of the blocks of a value."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.numpy: Any = sys.modules.get("numpy")
        self.pandas: Any = sys.modules.get("pandas")

    def node(self, value: Any, where: str, level: int = 0) -> dict[str, Any]:
        """Write a value; return its description. Args: where: names it in errors."""
        if isinstance(value, bytes | bytearray):
            return {"bytes": self.block(value, where)}
        if self.is_block(value):
            return self.frame(value, where) if self.is_frame(value) else {"array": self.array(value, where)}
        if type(value) is dict and self.holds_blocks(value.values(), level):
            if not all(isinstance(name, str) for name in value):
                raise TypeError(f"{where} holds arrays or frames under names that are no text")
            return {"dict": {name: self.node(item, f"{where}[{name!r}]", level + 1) for name, item in value.items()}}
        if type(value) in (list, tuple) and self.holds_blocks(value, level):
            return {"list": [self.node(item, f"{where}[{place}]", level + 1) for place, item in enumerate(value)]}
        return {"json": self.json(value, where)}

    def is_frame(self, value: Any) -> bool:
        """Whether a value is a frame, a series or an index of pandas."""
        kinds = self.pandas
        return kinds is not None and isinstance(value, kinds.DataFrame | kinds.Series | kinds.Index)

    def is_block(self, value: Any) -> bool:
        """Whether a value is an array or a frame."""
        return self.is_frame(value) or (self.numpy is not None and isinstance(value, self.numpy.ndarray))

    def holds_blocks(self, items: Collection[Any], level: int) -> bool:
        """Whether arrays or frames are among the items, at any level."""
        if level >= MAX_LEVELS or len(items) > MAX_ITEMS:
            return False
        for item in items:
            inner = item.values() if type(item) is dict else item if type(item) in (list, tuple) else ()
            if self.is_block(item) or (inner and self.holds_blocks(inner, level + 1)):
                return True
        return False

    def block(self, data: Any, where: str) -> list[int]:
        """Write bytes, and return their place."""
        self.check_room(len(data), where)
        return values.put(self.file, data)

    def check_room(self, size: int, where: str) -> None:
        """Raise ValueError if the file has no room for this many more bytes."""
        if self.file.tell() + size > MAX_BYTES:
            raise ValueError(
                f"{where} is too large: at most {MAX_BYTES:,} bytes can be handed out; let the code write it to a file"
            )

    def json(self, value: Any, where: str) -> list[int]:
        """Write a plain value, and return its place."""

        def simpler(item: Any) -> Any:
            if hasattr(item, "model_dump") and not isinstance(item, type):
                return item.model_dump(mode="json")
            if isinstance(item, numbers.Real) and not isinstance(item, numbers.Integral):
                return float(item)
            if isinstance(item, decimal.Decimal) and not item.is_finite():
                return math.nan if item.is_nan() else float(item)
            simple = plain.of_simple(item)
            if simple is not item:
                return simple
            if isinstance(item, Mapping):
                check_names(dict(item), where)
                return dict(item)
            if isinstance(item, Collection) and not self.is_block(item):
                return list(item)
            kind = type(item).__name__
            raise TypeError(f"{where} holds a {kind}, which is not a plain value: hand out its parts")

        data = json.dumps(value, default=simpler).encode()
        check_names(value, where)  # now that it is known not to contain itself
        if len(data) > MAX_JSON_BYTES:
            raise ValueError(f"{where} is too large: as JSON it has more than {MAX_JSON_BYTES:,} bytes")
        return self.block(data, where)

    def array(self, array: Any, where: str) -> list[int]:
        """Write an array as npy, and return its place."""
        if array.dtype.kind not in KINDS or array.dtype.hasobject or isinstance(array, self.numpy.ma.MaskedArray):
            raise TypeError(
                f"{where} is an array of {array.dtype}{' with a mask' if hasattr(array, 'mask') else ''}, which cannot be "
                "handed out: make it one of numbers or texts, or a list"
            )
        self.check_room(array.nbytes, where)
        start, _ = values.put(self.file, b"")
        self.numpy.lib.format.write_array(self.file, self.numpy.asarray(array), allow_pickle=False)
        return [start, self.file.tell() - start]

    def frame(self, value: Any, where: str) -> dict[str, Any]:
        """Write a frame, a series or an index, and return its description."""
        if isinstance(value, self.pandas.Index):
            return {"index": self.index(value, where)}
        index = self.index(value.index, f"the index of {where}")
        if isinstance(value, self.pandas.Series):
            return {"series": self.column(value, where), "index": index, "name": name_of(value.name, where)}
        node: dict[str, Any] = {"frame": [], "index": index, "columns": self.index(value.columns, f"the columns of {where}")}
        if value.attrs:
            node["attrs"] = self.json(value.attrs, f"{where}.attrs")
        kinds = {*value.dtypes}
        if len(kinds) == 1 and getattr(next(iter(kinds)), "kind", "") in NUMBERS and self.is_of_numpy(next(iter(kinds))):
            return node | {"frame": self.array(value.to_numpy(), where)}
        columns = [value.iloc[:, place] for place in range(value.shape[1])]
        return node | {"frame": [self.column(column, f"{where}[{column.name!r}]") for column in columns]}

    def is_of_numpy(self, kind: Any) -> bool:
        """Whether a type is numpy's, not pandas'."""
        return isinstance(kind, self.numpy.dtype)

    def index(self, index: Any, where: str) -> dict[str, Any]:
        """Write an index, and return its description."""
        pandas = self.pandas
        if isinstance(index, pandas.MultiIndex):
            levels = [index.get_level_values(place) for place in range(index.nlevels)]
            names = [name_of(name, where) for name in index.names]
            return {"levels": [self.column(level, where) for level in levels], "names": names}
        name = name_of(index.name, where)
        if isinstance(index, pandas.RangeIndex):
            return {"range": [int(index.start), int(index.stop), int(index.step)], "name": name}
        return {"values": self.column(index, where), "name": name, "freq": getattr(index, "freqstr", None)}

    def column(self, column: Any, where: str) -> dict[str, Any]:
        """Write the values of a series or an index, and return their description."""
        kind, pandas = column.dtype, self.pandas
        if self.is_of_numpy(kind) and kind.kind in NUMBERS:
            return {"array": self.array(column.to_numpy(), where)}
        if isinstance(kind, pandas.StringDtype):
            return {"text": self.texts(column, where), "type": kind.name}
        if isinstance(kind, pandas.CategoricalDtype):
            found = pandas.Categorical(column)
            categories = self.column(found.categories, f"the categories of {where}")
            return {"codes": self.array(found.codes, where), "categories": categories, "ordered": bool(found.ordered)}
        if isinstance(kind, pandas.DatetimeTZDtype):
            times = pandas.DatetimeIndex(column).tz_convert("UTC").tz_localize(None).to_numpy()
            return {"times": self.array(times, where), "zone": zone_of(kind.tz, where)}
        if kind.name in MASKED:
            filled = column.to_numpy(dtype=kind.numpy_dtype, na_value=0)
            missing = self.numpy.asarray(column.isna())
            return {"masked": self.array(filled, where), "missing": self.array(missing, where), "type": kind.name}
        if self.is_of_numpy(kind) and kind.kind == "O":
            return {"objects": self.objects(column, where)}
        raise TypeError(f"{where} has values of type {kind}, which cannot be handed out: convert them")

    def texts(self, column: Any, where: str) -> list[int]:
        """Write a column of texts, null for a missing one; return its place."""
        missing = self.numpy.asarray(column.isna())
        return self.json([None if gone else text for text, gone in zip(column, missing, strict=True)], where)

    def objects(self, column: Any, where: str) -> list[int]:
        """Write a column of objects, if they are plain; return its place."""
        items = [*column]
        for item in items:
            if type(item) not in PLAIN:
                kind = type(item).__name__
                raise TypeError(f"{where} holds a {kind} as an object, which cannot be handed out: convert it")
        return self.json(items, where)


def check_names(value: Any, where: str) -> None:
    """Raise TypeError if an object in the value has two names that are one in JSON."""
    if isinstance(value, dict):
        plain.check_names(value, where)
        value = value.values()
    elif not isinstance(value, list | tuple):
        return
    for item in value:
        if isinstance(item, dict | list | tuple):
            check_names(item, where)


def name_of(name: Any, where: str) -> Any:
    """Return the name of a series or an index, in a form that JSON brings back unchanged."""
    if name is not None and type(name) not in (str, int, float, bool):
        raise TypeError(f"{where} has the name {name!r}, which cannot be handed out: make it a text")
    return name


def zone_of(zone: Any, where: str) -> Any:
    """Return a time zone: its name, or its distance from UTC in seconds."""
    name = getattr(zone, "key", None) or getattr(zone, "zone", None)
    if isinstance(name, str):
        return name
    offset = zone.utcoffset(None)
    if offset is None:
        raise TypeError(f"{where} has the time zone {zone!r}, which cannot be handed out: convert it to UTC")
    return offset.total_seconds()
