"""Programs are forked from a Python that has imported all that they import."""

from collections.abc import Iterator

import pytest
from support.warm import forking

STARTS = {"kernel", "mcp", "e2e", "slow"}
"""Markers of tests that may start programs."""


@pytest.fixture(scope="session")
def warm() -> Iterator[None]:
    with forking():
        yield


@pytest.fixture(autouse=True, scope="module")
def _warm(request: pytest.FixtureRequest) -> None:
    """Only where tests that start programs are run: to import all of it takes seconds."""
    if any(
        item.path == request.path and STARTS & {mark.name for mark in item.iter_markers()} for item in request.session.items
    ):
        request.getfixturevalue("warm")
