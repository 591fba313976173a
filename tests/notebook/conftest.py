"""Kernels of notebooks are forked from a Python that has imported what their cells import."""

import pytest
from support.processes import may_start_processes
from support.warm_kernels import forking_kernels, warm_kernels

IMPORTED = (
    *("freeact_sub.notebook", "freeact_sub.agent", "freeact_sub.testing"),
    *("pydantic_ai.models.openai", "openai.resources.chat", "jupyter_client.manager"),
)


@pytest.fixture(scope="session")
def forking():
    with forking_kernels(*IMPORTED) as python:
        yield python


@pytest.fixture(autouse=True, scope="module")
def _warm(request):
    """For the tests of a module only: what follows in this process may need kernels that are started as ever."""
    with warm_kernels(request.getfixturevalue("forking") if may_start_processes(request) else None):
        yield
