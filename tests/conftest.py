"""What all tests share: an empty home, nothing left behind, no request that leaves this machine, real models only with `--live`."""

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings
from support.contract import contract, quarantine
from support.thorough import THOROUGH, examples

settings.register_profile(
    "loaded machine",
    deadline=None,
    derandomize=not THOROUGH,
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("loaded machine")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # started in the background of a script: every program that a test starts would ignore its Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

# every program that a test starts would compile the package anew, and each worker all tests
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# jsonschema takes 1.2 s to build a grammar of addresses that nothing here reads; without it, it does not know them
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

pytest_plugins = ["support.features", "support.leaks", "support.network", "support.order", "support.processes"]


for name in [*os.environ]:  # an environment that is active around the tests is none of a program's that they start
    if name.startswith(("VIRTUAL_ENV", "CONDA_")):
        del os.environ[name]

PLACES_OF_A_USER = ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "MPLCONFIGDIR", "IPYTHONDIR")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays: it is not looked through for garbage, neither now nor while tests run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quarantined", action="store_true", help="run the tests of tests/quarantine.txt too")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of `contract.txt`, before pytest selects by marks."""
    named, kept_apart = contract(), {} if config.getoption("--quarantined") else quarantine()
    for item in items:
        if cause := kept_apart.get(item.nodeid):
            item.add_marker(pytest.mark.skip(reason=f"quarantined: {cause}"))
        name = item.nodeid
        if not named.isdisjoint((name, name.partition("[")[0], name.partition("::")[0])):
            item.add_marker("contract")


def pytest_configure(config: pytest.Config) -> None:
    """Tests have an empty home folder: what the user trusts and has used before is none of their business."""
    home = tempfile.TemporaryDirectory(
        prefix="fa-home-", dir=os.environ["PYTEST_DEBUG_TEMPROOT"], ignore_cleanup_errors=True
    )
    config.add_cleanup(home.cleanup)
    os.environ["HOME"] = home.name
    for name in PLACES_OF_A_USER:
        os.environ.pop(name, None)


@pytest.fixture(autouse=True)
def loaded_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is cancelled or interrupted may take its time; a test of those that never end sets a bound of its own."""
    monkeypatch.setattr("freeact_sub.agents.loop.ABANDON_SECONDS", 30.0)
    for name in ("INTERRUPT_GRACE_SECONDS", "IDLE_DEADLINE_SECONDS"):
        monkeypatch.setattr(f"freeact_sub.kernels.wire.client.{name}", 30.0)
