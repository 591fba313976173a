"""Groups of variables that share objects, and so have to be kept together.

A walk from each variable follows the references that Python's garbage collector knows; two variables that reach the same
object are one group. Unchangeable objects, and those found again by name, make no group. Nor does a class of a cell: it is
saved with each group that has instances of it, and is one class again when they are read (`borrowed_pickler`); the walk
follows its attributes, though.
"""

import contextlib
import enum
import gc
import logging
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

LEAVES = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    range,
    type(Ellipsis),
    type(NotImplemented),
    types.CodeType,
    types.FrameType,
    types.ModuleType,
    types.TracebackType,
    enum.Enum,
    logging.Logger,
    weakref.ref,
)
"""Kinds of objects that the walk does not look into."""
LEAF, PLAIN, CLASS, FUNCTION, ARRAY = range(5)
NOT_FOLLOWED = -1
OF_CLASSES = {"_abc_impl", "_fields", "_field_defaults"}
"""Attributes of a class that each of its instances reaches, and no code changes."""
OBJECT_BYTES = 64
"""The assumed size of an object, to tell small groups from large ones."""


class Groups:
    """Variables by shared objects."""

    def __init__(self, namespace: dict[str, Any], check_time: Callable[[], None]) -> None:
        """Args: check_time: called now and then; what it raises ends the walk."""
        self.check_time = check_time
        self.kinds: dict[type, int] = dict.fromkeys(LEAVES, LEAF)
        self.owner: dict[int, int] = {id(namespace): NOT_FOLLOWED}
        """The number of the first variable to reach an object, by the object's id."""
        self.parents: list[int] = []
        """Another variable of each variable's group, or itself."""
        self.sizes: list[int] = []
        self.arrays: set[int] = set()
        """Ids of arrays whose memory more than one object uses."""
        self.viewed: set[int] = set()
        """Ids of arrays met once so far, themselves or as a view."""

    def of(self, variables: Mapping[str, Any]) -> list[list[str]]:
        """Return the groups, the smallest first."""
        names = list(variables)
        for number, name in enumerate(names):
            self.parents.append(number)
            self.sizes.append(0)
            self.walk(number, variables[name])
        found: dict[int, list[str]] = {}
        for number, name in enumerate(names):
            root = self.root(number)
            found.setdefault(root, []).append(name)
            if root != number:
                self.sizes[root] += self.sizes[number]
        return [found[root] for root in sorted(found, key=self.sizes.__getitem__)]

    def walk(self, number: int, value: Any) -> None:
        """Look at all that a variable reaches and no earlier one has reached."""
        frontier, classes = [value], set[int]()
        while frontier:
            self.check_time()
            further: list[Any] = []
            plain: list[Any] = []
            for item in frontier:
                kind = self.kinds.get(type(item))
                if kind is None:
                    kind = self.kinds[type(item)] = kind_of(type(item))
                if kind == LEAF:
                    continue
                if kind == CLASS:
                    if id(item) not in classes:
                        classes.add(id(item))
                        further += parts_of_class(item)
                elif self.is_new(number, item):
                    if kind == PLAIN:
                        plain.append(item)
                    else:
                        further += parts_of_function(item) if kind == FUNCTION else self.parts_of_array(number, item)
            self.sizes[number] += OBJECT_BYTES * len(frontier)
            frontier = further + gc.get_referents(*plain)

    def is_new(self, number: int, item: Any) -> bool:
        """Whether no variable has reached this object before; one that has joins the group."""
        owner = self.owner.get(id(item))
        if owner is None:
            self.owner[id(item)] = number
            return True
        if owner != NOT_FOLLOWED:
            self.parents[self.root(number)] = self.root(owner)
        if id(item) in self.viewed:
            self.arrays.add(id(item))
        return False

    def parts_of_array(self, number: int, array: Any) -> list[Any]:
        """Return the elements, if they are objects, and the owner of the memory: numpy tells the collector of neither."""
        root = root_of(array)
        if id(root) in self.viewed:
            self.arrays.add(id(root))
        self.viewed.add(id(root))
        self.sizes[number] += array.nbytes
        if root is not array and not self.is_new(number, root):
            return []
        elements = root.ravel().tolist() if root.dtype.hasobject and root.dtype.names is None else []
        return elements if root.base is None else [*elements, root.base]

    def root(self, number: int) -> int:
        """Return the variable that stands for a group."""
        while self.parents[number] != number:
            self.parents[number] = self.parents[self.parents[number]]
            number = self.parents[number]
        return number


def kind_of(kind: type) -> int:
    """Return the way to examine objects of a type."""
    if issubclass(kind, LEAVES):
        return LEAF
    if issubclass(kind, type):
        return CLASS
    if issubclass(kind, types.FunctionType):
        return FUNCTION
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(kind, numpy.ndarray):
        return ARRAY
    return LEAF if numpy is not None and issubclass(kind, numpy.dtype) else PLAIN


def parts_of_class(kind: type, module: str = "__main__") -> Iterable[Any]:
    """Return the attributes of a class of a module, such as of a cell, except those that all classes have."""
    parts: list[Any] = []
    if getattr(kind, "__module__", None) == module:
        parts += kind.__bases__
        for name, value in vars(kind).items():
            if isinstance(value, types.FunctionType):
                parts += contents_of(value)
            elif not (name.startswith("__") or name in OF_CLASSES or hasattr(type(value), "__get__")):
                parts.append(value)
    return parts


def contents_of(function: types.FunctionType) -> list[Any]:
    """Return the values of a function's closure; the cell of `super()` is no object of its own."""
    contents = []
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # it is empty
            contents.append(cell.cell_contents)
    return contents


def parts_of_function(function: types.FunctionType) -> list[Any]:
    """Return the objects that belong to the function only, without its globals."""
    cells = function.__closure__ or ()
    return [*cells, function.__defaults__, function.__kwdefaults__, *vars(function).values()]


def root_of(array: Any) -> Any:
    """Return the array whose memory a view shows; for an array that is no view, itself."""
    ndarray = sys.modules["numpy"].ndarray
    while type(array.base) is ndarray:
        array = array.base
    return array
