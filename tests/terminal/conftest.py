"""Programs are forked from a Python that has imported all that they import."""

from collections.abc import Iterator

import pytest
from support.warm import forking


@pytest.fixture(autouse=True, scope="session")
def _warm() -> Iterator[None]:
    with forking():
        yield


@pytest.fixture(autouse=True)
def _own_sessions(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test lists the sessions of another one."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("sessions")))
