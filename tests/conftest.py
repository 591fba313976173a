"""What all tests share: nothing is left behind, no request leaves this machine, and real models only with `--live`."""

import os
from collections.abc import Iterator

import pytest

pytest_plugins = ["support.leaks", "support.network"]


@pytest.fixture(autouse=True, scope="session")
def own_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the user trusts, and the user's rules, are none of the tests' business."""
    before = os.environ.get("XDG_CONFIG_HOME")
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))
    yield
    if before is None:
        del os.environ["XDG_CONFIG_HOME"]
    else:
        os.environ["XDG_CONFIG_HOME"] = before
