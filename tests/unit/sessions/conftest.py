import pytest

from freeact_sub.sessions import SessionStore


@pytest.fixture
def store(tmp_path):
    return SessionStore(tmp_path / "state")
