"""What all tests share: nothing is left behind, no request leaves this machine, and real models only with `--live`."""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("loaded machine", deadline=None)
settings.load_profile("loaded machine")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # started in the background of a script: every program that a test starts would ignore its Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

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
