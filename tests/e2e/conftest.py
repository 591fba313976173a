"""Programs are forked from a Python that has imported all that they import."""

from collections.abc import Iterator

import pytest
from support.warm import forking


@pytest.fixture(autouse=True, scope="session")
def _warm() -> Iterator[None]:
    with forking():
        yield
