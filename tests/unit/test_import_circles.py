"""The check that files do not import each other in circles sees every kind of import."""

import sys

import pytest

from tests.support.import_circles import circles

KINDS = {
    "at the top": "from knotted import {}",
    "of a name": "from knotted.{} import name",
    "for type checkers": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from knotted import {}",
    "in a function": "def use():\n    import knotted.{}",
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A folder for a package `knotted`, which can be imported."""
    folder = tmp_path / "knotted"
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    sys.modules.pop("knotted", None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_circle_is_found_whatever_kind_of_import_closes_it(package, kind):
    for module, other in ("ab", "bc", "cd"):
        (package / f"{module}.py").write_text(KINDS["at the top"].format(other))
    (package / "d.py").write_text("name = 1")
    assert circles("knotted") == []
    (package / "d.py").write_text(KINDS[kind].format("a"))
    assert circles("knotted") == [["knotted.a", "knotted.b", "knotted.c", "knotted.d"]]
