"""What `benchmarks.structure` reads from the source of a package."""

import textwrap

import pytest
from support.tables import each

from benchmarks.structure import Source


@pytest.fixture
def source(tmp_path):
    """A function that writes modules of a package `freeact_sub`, by name, and reads them."""

    def write(**modules):
        folder = tmp_path / "freeact_sub"
        folder.mkdir()
        (folder / "__init__.py").write_text("")
        for name, text in modules.items():
            (folder / f"{name}.py").write_text(textwrap.dedent(text))
        return Source(tmp_path)

    return write


def test_a_circle_through_type_checking_and_through_a_function_is_found(source):
    found = source(
        a="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from freeact_sub.b import B\n",
        b="def use():\n    from .c import C\n",
        c="from . import a\n",
        d="from freeact_sub.a import A\n",
    )
    assert found.circles() == [["freeact_sub.a", "freeact_sub.b", "freeact_sub.c"]]


KINDS = {
    "at the top": "from knotted import {}",
    "of a name": "from knotted.{} import name",
    "for type checkers": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from knotted import {}",
    "in a function": "def use():\n    import knotted.{}",
}


@each("kind", KINDS)
def test_a_circle_is_found_whatever_kind_of_import_closes_it(tmp_path, kind):
    package = tmp_path / "knotted"
    package.mkdir()
    (package / "__init__.py").touch()
    for module, other in ("ab", "bc", "cd"):
        (package / f"{module}.py").write_text(KINDS["at the top"].format(other))
    (package / "d.py").write_text("name = 1")
    assert Source(tmp_path, "knotted").circles() == []
    (package / "d.py").write_text(KINDS[kind].format("a"))
    assert Source(tmp_path, "knotted").circles() == [["knotted.a", "knotted.b", "knotted.c", "knotted.d"]]


def test_class_names_that_differ_by_an_underscore_are_doubles(source):
    found = source(a="class Question: ...\n", b="class _Question: ...\n", c="class Other:\n    class Question: ...\n")
    assert found.doubles() == {"Question": ["freeact_sub.a", "freeact_sub.b"]}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("import asyncio\nasyncio.tasks._leave_task(1)\n", {"_leave_task"}),
        ("from library import _hidden\n", {"_hidden"}),
        ("from library._inner import shown\n", {"_inner"}),
        ("getattr(client, '_events', None)\n", {"_events"}),
        ("client._events = 1\n", {"_events"}),
        ("class A:\n    def __init__(self):\n        self._mine = 1\n\ndef f(a):\n    return a._mine\n", set()),
        ("import sys\nsys._getframe()\n", set()),
        ("from __future__ import annotations\n", set()),
    ],
)
def test_private_names_of_other_libraries_are_found(source, text, names):
    assert set().union(*source(a=text).borrowed().values()) == names


def test_lines_and_files_are_counted_by_folder(source):
    found = source(a="x = 1\ny = 2\n")
    assert (found.lines()["."], found.counts()["."]) == (2, 2)
