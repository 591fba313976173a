"""Differences between a value in this process and in another: rows, columns and cells, elements, keys, fields.

The process with the later value writes it as plain parts (`write`), and one with the earlier value compares (`compare`): a
trial and its fork (`trial.py`), a kernel and its branch before a prompt, a notebook's copy and a fork of the notebook. Any
code may have written the file, so it is JSON and blocks of numbers, which are not unpickled. No code of a user's type runs,
only that of Python, numpy and pandas: of other types the fields are compared, or else the identity.
"""

import contextlib
import datetime as dt
import decimal
import enum
import hashlib
import io
import itertools
import json
import math
import pathlib
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import Any, Final

from . import state, values

SECONDS, MOST_SECONDS = 0.1, 1.0
"""Time of the processor for writing all values, and again for comparing them; and the time limit of one."""
UNITS: Final = 4 << 20
"""Largest size that is compared, in numbers; a text or an object counts as `OBJECT_UNITS`."""
OBJECT_UNITS: Final = 32
NODES, LEVELS = 20_000, 20
"""Largest number of parts of a dict, a list or an object, and of levels in it."""
COLUMNS, VARIABLES = 2000, 50
SHOWN, CHARS, LONG_CHARS = 3, 40, 300
"""Differences of a kind that are named; characters of each, and of the texts that are kept whole."""
NUMBERS: Final = "biufcmM"
QUOTE: Final = "'"
MISSING: Final = ("oNaN", "oNaT", "o<NA>")
SAME_KINDS: Final = str.maketrans("biufc", "nnnnn")
PLAIN_KINDS: Final = {list, tuple, set, frozenset}
INT_BITS: Final = 1024
"""Size of the largest whole number that is told."""
FOREIGN: Final = {"numpy", "pandas"}
"""Packages whose objects have no fields of interest."""
SCALARS: Final = {"Timestamp", "Timedelta", "Period", "Interval", "NAType", "NaTType", "datetime64", "timedelta64"}
WHOLE: Final = {dt.datetime, dt.date, dt.time, dt.timedelta, decimal.Decimal, pathlib.PosixPath, pathlib.PurePosixPath}
"""Types whose text is told; a path has fields that come when it is first used."""
ZONES: Final = {"builtins", "datetime", "zoneinfo", "pytz", "dateutil"}
NAMES_OF, BASES_OF, MODULE_OF, TITLE_OF = (
    type.__dict__[name].__get__ for name in ("__dict__", "__mro__", "__module__", "__qualname__")
)
"""Attributes of a type as Python has them: a metaclass may have others."""


def write(file: str, names: list[str], variables: dict[str, Any]) -> None:
    """Write the parts of variables into a new file of this kernel's scratch folder, small ones first."""
    there = sorted((name for name in names if name in variables), key=lambda name: state.size_of(variables[name]))
    with values.new_file(file) as target:
        values.finish(target, in_time(there[:VARIABLES], lambda name: stored(parts_of(variables[name]), target)))


def compare(file: str | memoryview, variables: dict[str, Any]) -> bytes:
    """Return the differences to later variables, as JSON. Args: file: in the scratch folder; or the content of one."""
    view = file if isinstance(file, memoryview) else values.mapped(f"{values.scratch()}/{file}")
    later = values.index_of(view)
    there = [name for name in later if name in variables]
    found = in_time(there, lambda name: difference(parts_of(variables[name]), taken(later[name], view)))
    return json.dumps(found).encode()


def in_time(names: list[str], work: Callable[[str], Any]) -> dict[str, Any]:
    """Return the result of the work for each name, as long as there is time; without empty ones, and where it fails."""
    deadline, made = time.process_time() + SECONDS, {}
    for name in names:
        try:
            with values.time_limit(MOST_SECONDS if time.process_time() < deadline else 0):
                if found := work(name):
                    made[name] = found
        except values.SaveLimitError:
            made[name] = {"too_large": "it takes too long"}
        except Exception:  # noqa: BLE001, S112  # border: parts from another process, and values of any library
            continue
    return made


def stored(parts: Any, file: Any) -> Any:
    """Return parts for an index. Arrays in them become blocks of the file."""
    if type(parts) is dict:
        return {name: stored(part, file) for name, part in parts.items()}
    if not hasattr(parts, "dtype"):
        return parts
    block = sys.modules["numpy"].ascontiguousarray(parts).view("uint8")
    return {"dtype": parts.dtype.str, "block": values.put(file, block)}


def taken(parts: Any, view: memoryview) -> Any:
    """Return the parts that `stored` has stored."""
    if type(parts) is not dict:
        return parts
    if "block" in parts:
        return sys.modules["numpy"].frombuffer(values.part(view, parts["block"]), dtype=parts["dtype"])
    return {name: taken(part, view) for name, part in parts.items()}


# --- the parts of a value: columns of a table, an array, or a tree of lists and tokens


def parts_of(value: Any) -> dict[str, Any]:
    """Return the parts of a value."""
    kind, numpy, pandas = type(value), sys.modules.get("numpy"), sys.modules.get("pandas")
    if pandas is not None and kind in (pandas.DataFrame, pandas.Series):
        return table(value, pandas)
    if numpy is not None and kind is numpy.ndarray:
        parts, is_plain = {"shape": [*value.shape], "type": str(value.dtype)}, value.dtype.kind in NUMBERS
        if value.size * (1 if is_plain else OBJECT_UNITS) > UNITS:
            return parts
        flat = value.reshape(-1)
        return {**parts, "array": flat if is_plain else [*map(token, flat.tolist())]}
    try:
        return {"tree": node(value, itertools.count())}
    except OverflowError:
        many = dict.__len__(value) if issubclass(kind, dict) else len(value) if kind in PLAIN_KINDS else 0
        return {"large": f"{many:,} elements" if many > NODES else f"more than {NODES:,} parts"}


def table(value: Any, pandas: Any) -> dict[str, Any]:
    """Return the parts of a frame or a series; without its rows if there are too many."""
    is_frame = type(value) is pandas.DataFrame
    if is_frame and value.shape[1] > COLUMNS:
        raise OverflowError
    columns = [value.iloc[:, place] for place in range(value.shape[1])] if is_frame else [value]
    labels = [*map(token, value.columns)] if is_frame else [None]
    if len({*labels}) < len(labels):
        raise TypeError(labels)
    parts = {"labels": labels, "types": [str(each.dtype) for each in columns], "rows": len(value), "frame": is_frame}
    units = 1 + sum(1 if getattr(each.dtype, "kind", "O") in NUMBERS else OBJECT_UNITS for each in columns)
    if len(value) * units > UNITS:
        return parts
    levels = [value.index.get_level_values(level) for level in range(value.index.nlevels)]
    both = {"index": levels, "columns": columns}.items()
    return {**parts, **{kind: {str(at): column(each) for at, each in enumerate(found)} for kind, found in both}}


def column(series: Any) -> Any:
    """Return the values of a series or an index: an array of numbers, or a list of tokens."""
    numpy, kind = sys.modules["numpy"], series.dtype
    if isinstance(kind, numpy.dtype) and kind.kind in NUMBERS:
        return series.to_numpy()
    if isinstance(kind, numpy.dtype) or package(type(kind)) == "pandas":
        return [*map(token, numpy.asarray(series, dtype=object).tolist())]
    raise TypeError(kind)


def token(item: Any) -> Any:
    """Return what stands for a cell or a key: equal tokens are equal cells. None: it is missing."""
    if type(item) is str and len(item) <= LONG_CHARS:  # most are
        return f"'{item}"
    try:
        found = node(item, itertools.count())
    except OverflowError:
        found = opaque(item)
    return long("o", told(found), json.dumps(found)) if type(found) is list else None if found in MISSING else found


def node(item: Any, numbers: Iterator[int], above: tuple[int, ...] = ()) -> Any:
    """Return a token of a value, or the type and the items of one that has some.

    Args:
        item: The value.
        numbers: Counts the parts.
        above: The values that it is in, by their identity.
    """
    if next(numbers) > NODES:
        raise OverflowError
    kind = type(item)
    if kind in (str, bytes, int, float, complex, bool, type(None)):
        return scalar(item, kind)

    def inner(part: Any) -> Any:
        return inside(part, numbers, (*above, id(item)))

    if len(above) >= LEVELS:
        return opaque(item)
    if issubclass(kind, dict):
        return ["dict", [[token(name), inner(part)] for name, part in dict.items(item)]]
    if kind in (list, tuple):
        return [kind.__name__, [*map(inner, item)]]
    if kind in (set, frozenset):
        return ["set", [[token(part), None] for part in item]]
    if package(kind) in FOREIGN:
        return of_library(item, kind)
    return of_object(item, kind, inner)


def inside(part: Any, numbers: Iterator[int], above: tuple[int, ...]) -> Any:
    """Return the token of a part of a value; of one in which it is, the way up to it."""
    if id(part) in above:
        return f"o{TITLE_OF(type(part))[:CHARS]}\0{len(above) - above.index(id(part))} levels above"
    return node(part, numbers, above)


def scalar(item: Any, kind: type) -> Any:
    """Return the token of a plain value."""
    if kind is str:
        return f"'{item}" if len(item) <= LONG_CHARS else long("'", item, item)
    if kind is bytes:
        return long("o", repr(item[:LONG_CHARS]), item.hex())
    if kind is complex:
        return f"o{item!r}"
    if kind is int and item.bit_length() > INT_BITS:  # JSON does not take the largest
        return long("o", f"a number of {item.bit_length():,} bits", hex(item))
    return MISSING[0] if kind is float and math.isnan(item) else item


def of_library(item: Any, kind: Any) -> Any:
    """Return the token of a value of numpy or pandas."""
    if kind.__name__ in SCALARS:
        return f"o{item}"
    if getattr(item, "shape", None) == () and item.dtype.kind in "biufcSU":
        plain = item.item()
        return f"o{item}" if type(plain) is kind else node(plain, itertools.count())  # a long double is its own item
    if kind.__name__ not in ("ndarray", "DataFrame", "Series"):
        return opaque(item)
    blocks = io.BytesIO()
    whole = json.dumps(stored(parts_of(item), blocks)) + blocks.getvalue().hex()
    return long("o", f"{TITLE_OF(kind)[:CHARS]} {' x '.join(map(str, item.shape))}", whole)


def of_object(item: Any, kind: type, inner: Callable[[Any], Any]) -> Any:
    """Return the token of a value of another type, or the type and the fields. Args: inner: returns the token of a field."""
    if kind in WHOLE and package(type(getattr(item, "tzinfo", None))) in ZONES:
        return f"o{item}"
    found = fields(item, kind)
    if found is None:
        return opaque(item)
    if issubclass(kind, enum.Enum):
        return f"o{TITLE_OF(kind)}.{found['_name_']}"[:LONG_CHARS]
    return [f".{TITLE_OF(kind)[:CHARS]}", [[f"'{name}", inner(part)] for name, part in found.items()]]


def fields(item: Any, kind: type) -> dict[str, Any] | None:
    """Return the fields of an object, running no code of its type. None: it has none."""
    found: dict[str, Any] | None = None
    for base in reversed(BASES_OF(kind)):
        if package(base) in FOREIGN:
            return None
        for name, seen in NAMES_OF(base).items() if package(base) != "builtins" else ():
            if type(seen) is types.MemberDescriptorType:
                with contextlib.suppress(AttributeError):  # it is empty
                    found = {**(found or {}), name: seen.__get__(item)}
            elif name == "__dict__" and type(seen) is types.GetSetDescriptorType:
                found = {
                    **(found or {}),
                    **{name: part for name, part in dict.items(seen.__get__(item)) if type(name) is str},
                }
    return found


def opaque(item: Any) -> str:
    """Return the token of a value that is compared by identity."""
    return f"o{TITLE_OF(type(item))[:CHARS]}\0{id(item)}"


def long(mark: str, text: str, whole: str) -> str:
    """Return a token of bounded length. Args: whole: what must be equal."""
    digest = hashlib.blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{mark}{text[:LONG_CHARS]}\0{digest}"


def package(kind: type) -> str:
    """Return the name of a type's package."""
    return module.partition(".")[0] if type(module := MODULE_OF(kind)) is str else ""


# --- what differs


def difference(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return what differs, with the fields of `Difference`. Empty: nothing that is known."""
    if "labels" in old and "labels" in new and old["frame"] == new["frame"]:
        found = of_tables(old, new)
    elif "shape" in old and "shape" in new:
        found = of_arrays(old, new)
    elif "large" in old or "large" in new:
        found = {"too_large": new.get("large", old.get("large"))}
    else:
        trees: list[Any] = [parts.get("tree") for parts in (old, new)]
        is_comparable = all(type(tree) is list for tree in trees) and trees[0][0] == trees[1][0]
        found = of_trees(*trees) if is_comparable else {"too_large": new.get("too_large")}
    return found if any(each for name, each in found.items() if name not in ("parts", "of")) else {}


def of_tables(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return what differs between two frames, or two series."""
    before, after = ({key: str(place) for place, key in enumerate(parts["labels"])} for parts in (old, new))
    common = [key for key in before if key in after]
    types_of = [[key, old["types"][int(before[key])], new["types"][int(after[key])]] for key in common]
    found = {
        "parts": "cells" if old["frame"] else "values",
        "sizes": [old["rows"], new["rows"]] if old["rows"] != new["rows"] else None,
        **counted("new", [shown(key) for key in after if key not in before]),
        **counted("gone", [shown(key) for key in before if key not in after]),
        **counted("types", [[shown(key) if old["frame"] else "", *pair] for key, *pair in types_of if pair[0] != pair[1]]),
    }
    others = ["columns"] if common != [key for key in after if key in before] else []
    if "index" not in old or "index" not in new:
        return {**found, "others": others, "too_large": f"{max(old['rows'], new['rows']):,} rows"}
    rows, later_rows, others_of_rows = aligned([*old["index"].values()], [*new["index"].values()], old["rows"], new["rows"])
    size = rows.stop if isinstance(rows, slice) else len(rows)
    places, changed, columns = [], 0, 0
    for key in common:
        one, other = some(old["columns"][before[key]], rows), some(new["columns"][after[key]], later_rows)
        count, first = differing(one, other)
        changed, columns = changed + count, columns + bool(count)
        places += [(place, columns, key, text(one[place]), text(other[place])) for place in first]
    examples = []
    for place, _, key, *texts in sorted(places, key=lambda found: found[:2])[:SHOWN]:
        labels = [text(level[place if isinstance(rows, slice) else rows[place]]) for level in old["index"].values()]
        row = labels[0] if len(labels) == 1 else f"({', '.join(labels)})"
        name = shown(key) if old["frame"] else ""
        examples.append([f"{name[1:-1] if name[:1] == QUOTE else name}[{row}]", *texts])
    found["others"], found["new_rows"], found["gone_rows"] = (
        [*others_of_rows, *others],
        new["rows"] - size,
        old["rows"] - size,
    )
    return {**found, "changed": changed, "columns": columns, "examples": examples}


def aligned(old: list[Any], new: list[Any], old_size: int, new_size: int) -> tuple[Any, Any, list[str]]:
    """Return the rows of two indexes that have the same labels, and what else differs. Args: old, new: their levels."""
    head = slice(min(old_size, new_size))
    heads = [[level[head] for level in levels] for levels in (old, new)]
    if len(old) == len(new) and not any(differing(*pair)[0] for pair in zip(*heads, strict=True)):
        return head, head, []
    numpy, pandas = sys.modules["numpy"], sys.modules["pandas"]
    indexes = [pandas.Index(each[0]) if len(each) == 1 else pandas.MultiIndex.from_arrays(each) for each in (old, new)]
    if not all(index.is_unique for index in indexes):
        for number, index in enumerate(indexes):  # equal labels are counted
            equal = pandas.Series(0, index=index).groupby(level=[*range(index.nlevels)], sort=False, dropna=False)
            indexes[number] = pandas.MultiIndex.from_arrays([*(old, new)[number], equal.cumcount().to_numpy()])
    found = indexes[0].get_indexer(indexes[1]) if len(old) == len(new) else numpy.full(new_size, -1)
    later_rows = numpy.flatnonzero(found >= 0)
    rows = found[later_rows]
    if not len(rows) and old_size == new_size:
        return head, head, ["index"]
    return rows, later_rows, ["rows"] if (numpy.diff(rows) < 0).any() else []


def of_arrays(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return what differs between two arrays, in their elements as far as both have the same places."""
    shapes = [parts["shape"] for parts in (old, new)]
    found: dict[str, Any] = {"parts": "elements", "sizes": None}
    types = [["", old["type"], new["type"]]] if old["type"] != new["type"] else []
    if len(shapes[0]) == len(shapes[1]) == 1 and shapes[0] != shapes[1]:
        found["sizes"] = [shapes[0][0], shapes[1][0]]
    elif shapes[0] != shapes[1]:
        types.append(["shape", *(" x ".join(map(str, shape)) for shape in shapes)])
    found |= counted("types", types)
    if "array" not in old or "array" not in new:
        return {**found, "too_large": f"{max(map(math.prod, shapes)):,} elements"}
    if len(shapes[0]) != len(shapes[1]) or shapes[0][1:] != shapes[1][1:]:
        return found
    size = min(map(math.prod, shapes))
    one, other = (parts["array"][:size] for parts in (old, new))
    count, first = differing(one, other)
    examples = []
    for place in first:
        at = [place // math.prod(shapes[0][axis + 1 :]) % max(1, length) for axis, length in enumerate(shapes[0])]
        examples.append([f"[{', '.join(map(str, at))}]", text(one[place]), text(other[place])])
    return {**found, "changed": count, "of": size, "most": most(one, other) if count else "", "examples": examples}


def most(*arrays: Any) -> str:
    """Return the largest difference of two arrays of numbers. Empty: there is none."""
    if any(type(array) is list or array.dtype.kind not in "iuf" for array in arrays):
        return ""
    numpy = sys.modules["numpy"]
    with numpy.errstate(all="ignore"):
        apart = numpy.abs(arrays[1].astype(float) - arrays[0].astype(float))
    apart = apart[numpy.isfinite(apart)]
    return f"{apart.max():.4g}" if apart.any() else ""


def some(column: Any, rows: Any) -> Any:
    """Return some rows of a column."""
    return column[rows] if type(column) is not list or isinstance(rows, slice) else [column[row] for row in rows.tolist()]


def differing(old: Any, new: Any) -> tuple[int, list[int]]:
    """Return the number of cells that differ between two columns of one length, and the first places."""
    groups = ["" if type(found) is list else found.dtype.kind.translate(SAME_KINDS) for found in (old, new)]
    if "" in groups or groups[0] != groups[1]:
        pairs = zip(*(found if type(found) is list else map(token, found) for found in (old, new)), strict=True)
        places = [place for place, (earlier, later) in enumerate(pairs) if earlier != later]
        return len(places), places[:SHOWN]
    found = (old != new) & ~((old != old) & (new != new))  # noqa: PLR0124  # that is how NaN and NaT are seen
    places = sys.modules["numpy"].flatnonzero(found)
    return len(places), places[:SHOWN].tolist()


def text(item: Any) -> str:
    """Return one value of a column for people."""
    found = token(item) if hasattr(item, "dtype") else item
    return "missing" if found is None else shown(found).removesuffix(".000000").removesuffix("T00:00:00")


# --- trees


def of_trees(old: list[Any], new: list[Any]) -> dict[str, Any]:
    """Return what differs between two dicts, lists, sets or objects of one type."""
    kind = "keys" if old[0] == "dict" else "fields" if old[0][0] == "." else "elements"
    changes: dict[str, list[Any]] = {"new": [], "gone": [], "changed": []}
    walk(old, new, "", changes)
    changed = {"changed": len(changes["changed"]), "examples": changes["changed"][:SHOWN]}
    return {"parts": kind, **counted("new", changes["new"]), **counted("gone", changes["gone"]), **changed}


def walk(old: Any, new: Any, path: str, changes: dict[str, list[Any]]) -> None:
    """Note what differs below two nodes of one type."""
    kind = old[0]
    if kind in ("list", "tuple"):
        one, other = ([*map(repr, tree[1])] for tree in (old, new))  # `1`, `1.0` and `True` differ
        start = first_difference(one, other)
        end = first_difference(one[start:][::-1], other[start:][::-1])
        middles = [tree[1][start : len(tree[1]) - end] for tree in (old, new)]
        if path and len(middles[0]) != len(middles[1]):
            changes["changed"].append([path, told(old), told(new)])
            return
        changes["new"] += map(told, middles[1][len(middles[0]) :])
        changes["gone"] += map(told, middles[0][len(middles[1]) :])
        pairs = [(f"{path}[{start + place}]", *pair) for place, pair in enumerate(zip(*middles, strict=False))]
    else:
        before, after = (dict(tree[1]) for tree in (old, new))
        marks = [".", ""] if kind[0] == "." else ["[", "]"] if path else ["", ""]
        names = {name: name[1:] if kind[0] == "." else shown(name) for name in [*before, *after]}
        places = {name: f"{path}{marks[0]}{each}{marks[1]}".lstrip(".") for name, each in names.items()}
        changes["new"] += [places[name] for name in after if name not in before]
        changes["gone"] += [places[name] for name in before if name not in after]
        pairs = [(places[name], before[name], after[name]) for name in before if name in after]
    for place, one, other in pairs:
        if type(one) is list and type(other) is list and one[0] == other[0]:
            walk(one, other, place, changes)
        elif repr(one) != repr(other):
            changes["changed"].append([place, told(one), told(other)])


def first_difference(old: list[str], new: list[str]) -> int:
    """Return the first place at which two lists differ."""
    return next(
        (place for place, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), min(len(old), len(new))
    )


def told(item: Any) -> str:
    """Return a node for people."""
    if type(item) is not list:
        return shown(item)
    kind, inner = item[0].removeprefix("."), item[1]
    if len(inner) > SHOWN:
        return f"{kind} of {len(inner):,}"
    is_keyed = kind not in ("list", "tuple", "set")
    each = [f"{shown(part[0])}: {told(part[1])}" if is_keyed else told(part[0] if kind == "set" else part) for part in inner]
    marks = {"list": "[]", "tuple": "()", "dict": "{}", "set": "{}"}.get(kind, f"{kind}()")
    return f"{marks[:-1]}{', '.join(each)}{marks[-1]}"


def shown(found: Any) -> str:
    """Return a token for people."""
    if type(found) is str:
        plain = found[1:].partition("\0")[0]
        return repr(plain)[:CHARS] if found[:1] == "'" else plain[:CHARS]
    return "None" if found is None else str(found)[:CHARS]


def counted(kind: str, found: list[Any]) -> dict[str, Any]:
    """Return the first ones, and how many there are."""
    return {kind: found[:SHOWN], f"{kind}_count": len(found)}
