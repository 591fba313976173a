"""Kernels of notebooks are forked from a Python that has imported what their cells import."""

import pytest
from support.warm_kernels import forking_kernels, warm_kernels

IMPORTED = (
    *("freeact_sub.notebook", "freeact_sub.agents.agent", "freeact_sub.testing"),
    *("pydantic_ai.models.openai", "openai.resources.chat", "jupyter_client.manager"),
)


@pytest.fixture(autouse=True, scope="session")
def _warm():
    with forking_kernels(*IMPORTED) as server, warm_kernels(server):
        yield
