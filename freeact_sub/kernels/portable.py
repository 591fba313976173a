"""Reads values that `guest/portable.py` has written in a kernel: JSON, arrays and frames. No code in them is run.

Code in the kernel may have written anything into the file. So it is read into memory once, within a bound, and each part is
checked before it is used: no part is larger than the file, and all JSON is bounded because Python's objects are larger.
"""

import datetime as dt
import importlib
import io
import json
import zoneinfo
from collections.abc import Mapping
from typing import Any, Final

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError

from freeact_sub.errors import InvalidRequestError, KernelValueError
from freeact_sub.kernels.guest.portable import KINDS, MASKED, MAX_JSON_BYTES, MAX_LEVELS, block_type
from freeact_sub.kernels.guest.values import LENGTH_BYTES
from freeact_sub.text import one_line, wrong_fields

INDEX_BYTES: Final = 2**24
NPY_HEADER_BYTES: Final = 2**16
ERROR_CHARS: Final = 1000


def decoded(data: bytearray, variable: str, output: Any = None) -> Any:
    """Return the value in a file. Args: variable: names it in errors. output: its type; None: any.

    Raises:
        KernelValueError: It is malformed, or not of the type.
        InvalidRequestError: Values cannot be checked against `output`.
    """
    typed = None if output is None or block_type(output) else _adapter(output)
    try:
        reader = Reader(memoryview(data))
        if typed is not None and set(reader.index) == {"json"}:
            return typed.validate_json(bytes(reader.json_bytes(reader.index["json"])))
        value = reader.value(reader.index)
        if typed is not None:
            return typed.validate_python(value.tolist() if type(value).__name__ == "ndarray" else value)
    except ValidationError as error:
        raise KernelValueError(
            f"{variable!r} does not have the requested type: {wrong_fields(error.errors())[:ERROR_CHARS]}"
        ) from None
    except ModuleNotFoundError as error:
        raise KernelValueError(f"{variable!r} needs a package that is not installed here: {error.name}") from None
    except Exception as error:  # noqa: BLE001  # border: the bytes may be anything, and readers fail in any way
        reason = one_line(f"{type(error).__name__}: {error}", ERROR_CHARS)
        raise KernelValueError(f"the value of {variable!r} from the kernel cannot be read: {reason}") from None
    if output is not None and not isinstance(value, output):
        raise KernelValueError(
            f"{variable!r} does not have the requested type: wanted a {block_type(output)}, not a {type(value).__name__}"
        )
    return value


def _adapter(output: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(output)
    except (PydanticUserError, PydanticSchemaGenerationError, TypeError, NameError) as error:
        raise InvalidRequestError(
            f"output: {output!r} is not a type of plain values: {one_line(str(error), 300)}"
        ) from error


class Reader:
    """The parts of one file."""

    def __init__(self, view: memoryview) -> None:
        tail = len(view) - LENGTH_BYTES
        size = int.from_bytes(view[max(tail, 0) :], "little")
        if tail < 0 or not 0 < size <= min(tail, INDEX_BYTES):
            raise ValueError("it has no index")
        self._view = view[: tail - size]
        self._left, self._json_left = len(self._view), MAX_JSON_BYTES
        self.index: Any = json.loads(bytes(view[tail - size : tail]))
        if not isinstance(self.index, dict):
            raise TypeError("its index is no object")

    def value(self, node: Any, level: int = 0) -> Any:
        """Return the value that a node of the index describes."""
        if level > MAX_LEVELS:
            raise ValueError("it is too deep")
        match node:
            case {"json": place}:
                return self.json(place)
            case {"bytes": place}:
                return bytes(self.block(place))
            case {"array": place}:
                return self.array(place)
            case {"dict": dict(items)}:
                return {name: self.value(item, level + 1) for name, item in items.items()}
            case {"list": list(items)}:
                return [self.value(item, level + 1) for item in items]
            case {"series": column, "index": index, "name": name}:
                return self.pandas.Series(self.column(column), index=self.row_index(index), name=_name(name), copy=False)
            case {"frame": columns, "index": index, "columns": names}:
                return self.frame(columns, self.row_index(index), self.row_index(names), node)
            case {"index": index}:
                return self.row_index(index)
        raise ValueError("its index has an unknown entry")

    @property
    def pandas(self) -> Any:
        """pandas, if it is installed here."""
        return importlib.import_module("pandas")

    def block(self, place: Any) -> memoryview:
        """Return the bytes at a place. All places together are no larger than the file."""
        start, size = place
        if type(start) is not int or type(size) is not int or not 0 <= start <= start + size <= len(self._view):
            raise ValueError("a part lies outside of it")
        self._left -= size
        if self._left < 0:
            raise ValueError("its parts overlap")
        return self._view[start : start + size]

    def json_bytes(self, place: Any) -> memoryview:
        """Return the JSON at a place."""
        data = self.block(place)
        self._json_left -= len(data)
        if self._json_left < 0:
            raise ValueError(f"it has more than {MAX_JSON_BYTES:,} bytes of JSON")
        return data

    def json(self, place: Any) -> Any:
        """Return the plain value at a place."""
        return json.loads(bytes(self.json_bytes(place)))

    def array(self, place: Any) -> Any:
        """Return the array at a place: a view of the file, which is this process's own copy."""
        numpy, data = importlib.import_module("numpy"), self.block(place)
        file = io.BytesIO(data[:NPY_HEADER_BYTES])
        version = numpy.lib.format.read_magic(file)
        readers = {(1, 0): numpy.lib.format.read_array_header_1_0, (2, 0): numpy.lib.format.read_array_header_2_0}
        shape, is_fortran, kind = readers[version](file)
        if kind.hasobject or kind.kind not in KINDS or kind.subdtype is not None or not kind.itemsize:
            raise ValueError(f"an array has values of type {kind}")
        count = 1
        for length in shape:
            if length < 0:
                raise ValueError("an array has a negative length")
            count *= length
        body = data[file.tell() :]
        if count * kind.itemsize != len(body):
            raise ValueError("an array is not as large as it says")
        flat = numpy.frombuffer(body, dtype=numpy.uint8 if kind.kind == "b" else kind)
        flat = flat != 0 if kind.kind == "b" else flat  # another byte than 0 and 1 is neither true nor false
        return flat.reshape(shape, order="F" if is_fortran else "C")

    def frame(self, columns: Any, index: Any, names: Any, node: Mapping[str, Any]) -> Any:
        """Return a frame. Args: columns: one block, or the nodes of the columns."""
        pandas = self.pandas
        if columns and isinstance(columns[0], int):
            found = pandas.DataFrame(self.array(columns), index=index, columns=names, copy=False)
        else:
            parts = {place: self.column(column) for place, column in enumerate(columns)}
            if any(len(part) != len(index) for part in parts.values()):
                raise ValueError("a column is not as long as the index")
            found = pandas.DataFrame({place: pandas.Series(part, index=index, copy=False) for place, part in parts.items()})
            found = found if parts else pandas.DataFrame(index=index)
            found.columns = names
        if "attrs" in node:
            found.attrs = self.json(node["attrs"])
        return found

    def row_index(self, node: Any) -> Any:
        """Return an index of rows or columns."""
        pandas = self.pandas
        match node:
            case {"range": [int(start), int(stop), int(step)], "name": name}:
                return pandas.RangeIndex(start, stop, step, name=_name(name))
            case {"levels": list(levels), "names": list(names)}:
                return pandas.MultiIndex.from_arrays([self.column(level) for level in levels], names=[*map(_name, names)])
            case {"values": column, "name": name, "freq": freq}:
                found = pandas.Index(self.column(column), name=_name(name), copy=False)
                if isinstance(freq, str) and hasattr(found, "freq"):
                    found.freq = freq
                return found
        raise ValueError("an index is of an unknown kind")

    def column(self, node: Any) -> Any:
        """Return the values of a column."""
        pandas = self.pandas
        match node:
            case {"array": place}:
                return self._flat(place)
            case {"text": place, "type": "str" | "string" as kind}:
                return pandas.array(self.json(place), dtype=kind)
            case {"objects": place}:
                return pandas.Series(self.json(place), dtype=object).array
            case {"codes": place, "categories": categories, "ordered": bool(ordered)}:
                found = pandas.Index(self.column(categories), copy=False)
                return pandas.Categorical.from_codes(self._flat(place), categories=found, ordered=ordered)
            case {"times": place, "zone": zone}:
                return pandas.DatetimeIndex(self._flat(place)).tz_localize("UTC").tz_convert(_zone(zone)).array
            case {"masked": place, "missing": missing, "type": str(kind)} if kind in MASKED:
                found = pandas.array(self._flat(place), dtype=kind)
                found[self._flat(missing)] = pandas.NA
                return found
        raise ValueError("a column is of an unknown kind")

    def _flat(self, place: Any) -> Any:
        found = self.array(place)
        if found.ndim != 1:
            raise ValueError("a column is no row of values")
        return found


def _name(name: Any) -> Any:
    if name is not None and type(name) not in (str, int, float, bool):
        raise ValueError("a name is no text")
    return name


def _zone(zone: Any) -> dt.tzinfo:
    """Return a time zone. By a name of another form pandas would open a file of that name."""
    if isinstance(zone, str):
        return zoneinfo.ZoneInfo(zone)
    return dt.timezone(dt.timedelta(seconds=float(zone)))
