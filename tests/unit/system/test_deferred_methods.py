"""Dataclasses whose methods are compiled later behave as all others do."""

import dataclasses
import inspect
import pickle
import sys
import threading
from dataclasses import dataclass, field
from types import FunctionType

import cloudpickle
import pytest

from freeact_sub.system import deferred_imports
from freeact_sub.system.deferred_imports import import_lean

TWIG = {"__annotations__": {"length": int}, "length": 1, "__doc__": "Short."}
NAMES = {"__annotations__": {"x": int}, "__doc__": "One number."}
pytestmark = pytest.mark.skipif(sys.version_info >= (3, 13), reason="dataclasses compiles all methods of a class at once")

with deferred_imports.methods_compiled_when_used():

    @dataclass(frozen=True, order=True, slots=True)
    class Point:
        x: int
        y: int = 2

    @dataclass
    class Tree:
        """A node."""

        name: str
        below: list["Tree"] = field(default_factory=list)

    @dataclass(kw_only=True)
    class Leaf(Tree):
        colour: str = "green"

        def __post_init__(self) -> None:
            self.name += "!"

    class Oak(Tree):
        def __init__(self) -> None:
            super().__init__("oak")

    @dataclass
    class Untouched:
        """Without a text here, `dataclasses` looks at the signature of `__init__` to write one."""

        x: int


def twig() -> type:
    """A class that is under no name in a module."""
    with deferred_imports.methods_compiled_when_used():
        return dataclass(type("Twig", (Tree,), dict(TWIG)))


def test_methods_do_what_those_of_any_dataclass_do():
    assert Point(1) == Point(1, 2) != Point(2)
    assert repr(Point(1)) == "Point(x=1, y=2)"
    assert len({Point(1), Point(1, 2), Point(3)}) == 2
    assert Point(1) < Point(1, 3) <= Point(2)
    assert pickle.loads(pickle.dumps(Point(1))) == Point(1)
    assert repr(cloudpickle.loads(cloudpickle.dumps(twig()))("twig")) == "Twig(name='twig', below=[], length=1)"
    assert str(inspect.signature(Point)) == "(x: int, y: int = 2) -> None"
    with pytest.raises(dataclasses.FrozenInstanceError):
        Point(1).x = 3  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del Point(1).x
    with pytest.raises(TypeError, match=r"Point.__init__\(\) missing 1 required positional argument: 'x'"):
        Point()  # type: ignore[call-arg]


def test_subclasses_take_the_method_of_the_class_above():
    leaf, oak = Leaf("leaf"), Oak()
    oak.below += [leaf, oak]
    assert repr(oak) == "Oak(name='oak', below=[Leaf(name='leaf!', below=[], colour='green'), ...])"
    assert Tree("tree") == Tree("tree") != Leaf("tree")


@pytest.mark.parametrize("name", ["__init__", "__repr__", "__eq__"])
def test_a_method_says_of_itself_what_one_that_is_compiled_at_once_does(name):
    said = []
    for method in (getattr(one, name) for one in (dataclass(type("Twig", (Tree,), dict(TWIG))), twig())):
        inner = inspect.unwrap(method)
        named = [(one.__module__, one.__qualname__, one.__doc__, type(one)) for one in (method, inner)]
        said.append((named, inspect.signature(method), method.__annotations__))
    assert said[0] == said[1]


def test_a_method_that_is_looked_up_is_a_function_from_then_on_and_others_wait():
    assert not isinstance(vars(Untouched)["__init__"], FunctionType)
    assert isinstance(Untouched.__init__, FunctionType)
    assert vars(Untouched)["__init__"] is Untouched.__init__
    assert Untouched.__init__.__qualname__ == "Untouched.__init__"
    assert not isinstance(vars(Untouched)["__eq__"], FunctionType)


def test_only_classes_of_an_import_wait_and_only_of_its_thread():
    made = {}

    def make() -> None:
        made["there"] = dataclass(type("There", (), NAMES))

    with deferred_imports.methods_compiled_when_used():
        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        import_lean("freeact_sub.errors")
        made["here"] = dataclass(type("Here", (), NAMES))
    made["after"] = dataclass(type("After", (), NAMES))
    assert {name for name, one in made.items() if isinstance(vars(one)["__init__"], FunctionType)} == {"there", "after"}
