"""The contract of `Kernel` and `KernelProvider`: the same for every provider, and for the fake that `testing` ships."""

import asyncio
import os
import signal
from functools import partial

import pytest
from support.elsewhere import CANNOT_FORK
from support.gateways import behind
from support.kernels import PROVIDERS, no_host, open_kernel, run_cell, spec
from support.providers import ELSEWHERE, installed
from support.waiting import WORKS_ON

from freeact_sub.cells import CellError, ExecuteResult, StreamText
from freeact_sub.config.schema import KernelConfig
from freeact_sub.errors import KernelBranchError
from freeact_sub.kernels import CellClock, CellOutputBuffer
from freeact_sub.kernels.provider import make_provider
from freeact_sub.testing import FakeKernel, FakeKernelProvider

pytestmark = pytest.mark.kernel

WITH_THE_FAKE = {"fake": FakeKernelProvider, **PROVIDERS}


ELSEWHERE_TOO = [pytest.param(name, marks=pytest.mark.slow) for name in ("two gateways", "a Jupyter server")]


CELLS = "[entry[0] for name, entry in __import__('linecache').cache.items() if 'ipykernel_' in name]"


@pytest.fixture(params=[*WITH_THE_FAKE, "by entry point", *ELSEWHERE_TOO])
async def provider(request, tmp_path_factory):
    if request.param in WITH_THE_FAKE:
        provider = WITH_THE_FAKE[request.param]()
    elif request.param == "two gateways":
        provider = make_provider(behind(*request.getfixturevalue("gateways")))
    elif request.param == "a Jupyter server":
        provider = make_provider(behind(request.getfixturevalue("jupyter_server")))
    else:
        with installed(tmp_path_factory.mktemp("site"), ELSEWHERE):
            provider = make_provider(KernelConfig(provider="elsewhere"))
    yield provider
    await provider.aclose()


async def way_to_kill(kernel):
    """What ends the kernel from outside, without a word to it."""
    if isinstance(kernel, FakeKernel):
        return kernel.die
    pid = int((await run_cell(kernel, "import os; os.getpid()")).text)
    return partial(os.kill, pid, signal.SIGKILL)


async def test_a_cell_yields_its_output_in_order_and_then_one_reply(kernel):
    ran = await run_cell(kernel, "print('a')\nprint('b')")
    assert (ran.status, ran.text) == ("ok", "a\nb\n")
    assert "".join(output.text for output in ran.outputs if isinstance(output, StreamText)) == "a\nb\n"


async def test_the_value_of_an_expression_is_a_result(kernel):
    ran = await run_cell(kernel, "6 * 7")
    assert [output.data["text/plain"] for output in ran.outputs if isinstance(output, ExecuteResult)] == ["42"]
    assert ran.text == "42\n"
    assert int((await run_cell(kernel, f"max({CELLS}, default=0)")).text) < 5000, (
        "what prepares it is not read as a cell's text"
    )


async def test_an_error_is_output_and_status_and_never_raised(kernel):
    ran = await run_cell(kernel, "print('before')\n1 / 0")
    assert ran.status == "error"
    assert [(output.ename, output.evalue) for output in ran.outputs if isinstance(output, CellError)] == [
        ("ZeroDivisionError", "division by zero")
    ]
    assert ran.text.startswith("before\n")


async def test_state_is_kept_from_cell_to_cell_and_shared_with_no_other_kernel(provider, tmp_path):
    async with open_kernel(provider, tmp_path) as one, open_kernel(provider, tmp_path) as two:
        await run_cell(one, "x = 1")
        await run_cell(two, "x = 2")
        assert ((await run_cell(one, "x")).text, (await run_cell(two, "x")).text) == ("1\n", "2\n")


async def test_a_cell_whose_time_is_up_ends_as_timeout_and_the_kernel_lives(kernel):
    await run_cell(kernel, "x = 1")
    assert (await run_cell(kernel, "!sleep 1000", limit=0.3)).status == "timeout"
    assert kernel.lost_reason is None
    assert (await run_cell(kernel, "x")).text == "1\n"


async def test_an_interrupt_ends_the_cell_and_not_the_kernel(kernel):
    cell = asyncio.create_task(run_cell(kernel, "!sleep 1000"))
    while not cell.done():
        await asyncio.wait({cell}, timeout=0.2)  # the cell may not have begun
        await kernel.interrupt()
    assert cell.result().status == "interrupted"
    assert (await run_cell(kernel, "1")).text == "1\n"


@pytest.mark.skipif(CANNOT_FORK, reason="a session of its own outlives its kernel there")
async def test_a_kernel_that_dies_ends_its_cell_and_all_later_ones_and_tells_why(kernel):
    kill = await way_to_kill(kernel)
    lost = asyncio.create_task(kernel.wait_lost())
    cell = asyncio.create_task(run_cell(kernel, "!sleep 1000"))
    await asyncio.wait({cell}, timeout=0.2)
    kill()
    assert (await asyncio.wait_for(cell, 120)).status == "kernel_lost"
    assert await asyncio.wait_for(lost, 120) == kernel.lost_reason
    assert kernel.lost_reason
    assert (await run_cell(kernel, "1")).status == "kernel_lost"


async def test_a_cell_that_nobody_reads_any_more_is_ended(kernel):
    async with asyncio.timeout(120), kernel.execute("print('on')\n1", CellOutputBuffer(), CellClock(None)) as cell:
        await anext(cell)
    assert (await run_cell(kernel, "1")).text == "1\n"


async def test_a_branch_has_the_names_of_its_kernel_and_neither_sees_what_the_other_does_or_it_is_refused(kernel, tmp_path):
    await run_cell(kernel, "x = 1")
    try:
        branch = await kernel.branch(spec(tmp_path), no_host)
    except KernelBranchError:
        assert (await run_cell(kernel, "x")).text == "1\n"
        return
    await run_cell(branch, "x += 1; y = 1")
    assert (await run_cell(kernel, "x, 'y' in globals()")).text == "(1, False)\n"
    await kernel.aclose()
    assert (await run_cell(branch, "x")).text == "2\n"
    await branch.aclose()


async def test_closing_can_be_repeated_and_ends_what_runs(provider, tmp_path):
    kernel = await provider.start(spec(tmp_path), no_host)
    cell = asyncio.create_task(run_cell(kernel, f"!sleep 1000\n{WORKS_ON}"))
    await asyncio.wait({cell}, timeout=0.2)  # it may not have begun
    await asyncio.gather(kernel.aclose(), kernel.aclose())
    assert (await asyncio.wait_for(cell, 120)).status == "kernel_lost"
    assert (await run_cell(kernel, "1")).status == "kernel_lost"


async def test_a_provider_can_be_closed_twice(provider, tmp_path):
    async with open_kernel(provider, tmp_path):
        pass
    await provider.aclose()
