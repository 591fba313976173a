"""Runs in which agents lack features: `--bare` without any, `--without NAME` without one, `--without each` once for each.

A test that needs features is marked with their names, `pytest.mark.features("undo")`, or stands in a folder of `FOLDERS`. It is
left out where one of them is missing; all other tests pass.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pytest

from freeact_sub.features import default_features

if TYPE_CHECKING:
    from freeact_sub.agents.feature import Feature

EACH: Final = "each"
FOLDERS: Final = {"tests/unit/features/sessions/": ("sessions",)}
"""Features that all tests of a folder need."""


def name_of(feature: "Feature") -> str:
    """The name of a feature: of its file or folder."""
    return type(feature).__module__.removeprefix("freeact_sub.features.").partition(".")[0]


def names() -> list[str]:
    """The names of all features, in their order."""
    return [name_of(feature) for feature in default_features()]


def all_but(name: str) -> "Callable[..., Sequence[Feature]]":
    """A `default_features` that leaves one out. Raises: pytest.UsageError: There is none with this name."""
    if name not in names():
        raise pytest.UsageError(f"--without {name}: the features are {', '.join(names())}")
    return lambda hooks=(): [feature for feature in default_features(hooks) if name_of(feature) != name]


def needed(item: pytest.Item) -> set[str]:
    """The names of the features that a test needs."""
    marks = [*item.iter_markers("features")]
    if not all(mark.args for mark in marks):
        raise pytest.UsageError(f"{item.nodeid}: the mark `features` names the features")
    of_folder = (found for folder, found in FOLDERS.items() if item.nodeid.startswith(folder))
    return {*(name for mark in marks for name in mark.args), *_flat(of_folder)}


def _flat(lists: Iterator[Sequence[str]]) -> Iterator[str]:
    for found in lists:
        yield from found


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that need what is missing."""
    bare, without = config.getoption("--bare"), config.getoption("--without")
    if not bare and not without:
        return
    kept, left_out = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        lacks = needed(item) if bare else needed(item) & {_without(item) or without}
        (left_out if lacks else kept).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


def _without(item: pytest.Item) -> str:
    callspec = getattr(item, "callspec", None)
    return "" if callspec is None else str(callspec.params.get("without", ""))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bare", action="store_true", help="agents of unit tests have no features")
    parser.addoption("--without", default="", help="agents of unit tests lack this feature; `each`: one after the other")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test once for each feature."""
    if metafunc.config.getoption("--without") == EACH and "without" in metafunc.fixturenames:
        metafunc.parametrize("without", names(), indirect=True)
