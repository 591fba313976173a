"""A pytest plugin for many workers: a module's tests run in one of them, which makes what they share once; the longest first.

How long is guessed from marks, so that nobody keeps a table: to start a process takes a hundred times what other tests
take. What comes last is short, so no worker is alone with a long module while the others have nothing left to do.
"""

from collections import Counter
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

UNITS = {"slow": 500, "kernel": 100, "mcp": 100, "e2e": 100}
"""How long a test takes that is marked so, where one without a mark takes 1."""
GATEWAYS = ("gateway", "a Jupyter server")
"""In the names of tests in `tests/kernel` that share the servers of a session, which take seconds to start."""


def worker_group(nodeid: str) -> str:
    """What the tests that one worker runs have in common: their module, or that they share gateways."""
    module = nodeid.partition("::")[0]
    return "gateways" if module.startswith("tests/kernel/") and any(word in nodeid for word in GATEWAYS) else module


class ByModule(LoadScopeScheduling):  # type: ignore[misc]  # without types
    """Gives each worker a module when it has nothing left to do."""

    def _split_scope(self, nodeid: str) -> str:
        return worker_group(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByModule:
    config.option.loadscopereorder = False
    return ByModule(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker, whose order the scheduler keeps."""
    if not hasattr(config, "workerinput"):
        return
    units: Counter[str] = Counter()
    for item in items:
        marks = [UNITS[mark.name] for mark in item.iter_markers() if mark.name in UNITS]
        units[worker_group(item.nodeid)] += max(marks, default=1)
    items.sort(key=lambda item: -units[worker_group(item.nodeid)])
