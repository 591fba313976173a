"""A pytest plugin: tests without a mark that allows it start no other program, and are marked `fast`.

An audit hook refuses every start in this process, whatever library makes it. It refuses nothing in a module while marked tests of
that module are selected: a fixture of the module may start a program before its first test, whichever that is.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MARKS = ("kernel", "mcp", "e2e", "process", "slow", "live")
"""A test with one of these marks may start programs, and is not fast."""
STARTS = frozenset(("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"))

_refuses = False
_may = pytest.StashKey[set[Path]]()


def may_start_processes(request: pytest.FixtureRequest) -> bool:
    """Whether a selected test in the module of a fixture may start programs."""
    return request.path in request.session.stash[_may]


def pytest_configure() -> None:
    sys.addaudithook(_refuse)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the fast tests, before pytest selects by marks."""
    for item in items:
        if not any(item.get_closest_marker(mark) for mark in MARKS):
            item.add_marker("fast")


def pytest_collection_finish(session: pytest.Session) -> None:
    session.stash[_may] = {item.path for item in session.items if not item.get_closest_marker("fast")}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    global _refuses  # noqa: PLW0603 - an audit hook cannot be removed and gets no context
    _refuses = item.path not in item.session.stash[_may]
    try:
        return (yield)
    finally:
        _refuses = False


def _refuse(event: str, args: tuple[Any, ...]) -> None:
    if _refuses and event in STARTS:
        raise RuntimeError(f"a test without a mark tried to start {args[:2]}: mark it `process`, see CONTRIBUTING")
