"""What tests of branches share."""

from contextlib import asynccontextmanager

import pytest
from support.kernels import no_host, run_cell, spec

from freeact_sub.errors import KernelBranchError

HOST_TOOL = {"name": "ask", "parameters_json_schema": {"additionalProperties": True}}


@asynccontextmanager
async def branched(kernel, handler=no_host, **kwargs):
    """A branch for the time of a test."""
    branch = await kernel.branch(like(kernel, **kwargs), handler)
    try:
        yield branch
    finally:
        await branch.aclose()


def like(kernel, **kwargs):
    """What a branch of the kernel is asked for with."""
    own = kernel.spec
    values = {
        "environment": own.environment,
        "sandbox": own.sandbox,
        "mcp_servers": own.mcp_servers,
        "audit": own.audit,
    } | kwargs
    return spec(own.workspace, **values)


def host(answer):
    """A handler that answers `agent.mcp.host.ask(...)` in a cell with what `answer(arguments)` returns."""

    async def handle(method, params, clock):
        return {"version": "1", "tools": [HOST_TOOL]} if method == "mcp_tools" else await answer(params["args"])

    return handle


async def text_of(kernel, code):
    ran = await run_cell(kernel, code)
    assert ran.status == "ok", ran.text
    return ran.text


async def refused(kernel, **kwargs):
    with pytest.raises(KernelBranchError) as caught:
        await kernel.branch(like(kernel, **kwargs), no_host)
    return str(caught.value)
