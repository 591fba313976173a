"""A pytest plugin: a test starts another program only if a mark says so; the others are `make test-fast`.

An audit hook refuses the start; it sees each one of this process, whatever library makes it. In a module that has tests with such
a mark, and where they run too, it refuses none: a fixture of the module may start programs in its first test.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MARKS = ("kernel", "mcp", "e2e", "process", "slow", "live")
"""One of them marks each test that starts a program."""
STARTS = frozenset(("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"))

_refuses = False
_may = pytest.StashKey[set[Path]]()


def starts_processes(item: pytest.Item) -> bool:
    """Whether a test may start programs."""
    return any(item.get_closest_marker(mark) for mark in MARKS)


def any_starts_processes(request: pytest.FixtureRequest) -> bool:
    """Whether a test that is selected in the module of a fixture may."""
    return request.path in request.session.stash[_may]


def pytest_configure() -> None:
    sys.addaudithook(_refuse)


def pytest_collection_finish(session: pytest.Session) -> None:
    session.stash[_may] = {item.path for item in session.items if starts_processes(item)}


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
