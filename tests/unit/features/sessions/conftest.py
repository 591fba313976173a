import pytest

from freeact_sub.sessions import state_folder
from freeact_sub.sessions.sqlite import SqliteStore


@pytest.fixture
def store(tmp_path, monkeypatch):
    """The sessions of a user who has none."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return SqliteStore(state_folder())
