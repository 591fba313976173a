import pytest

from freeact_sub.sessions import SessionStore, state_folder


@pytest.fixture
def store(tmp_path, monkeypatch):
    """The sessions of a user who has none."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return SessionStore(state_folder())
