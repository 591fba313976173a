"""An interrupt costs no variables, whatever a cell does when it comes; and where it must, both the model and people read it."""

import contextlib
import sys
from pathlib import Path

import pytest
from support.agents import cell, of_kind, read
from support.interrupted_cells import CELLS, WAYS, escaped, interrupted
from support.kernels import run_cell
from support.thorough import THOROUGH, sample
from support.waiting import WORKS_ON

from freeact_sub.errors import KernelError
from freeact_sub.events import CodeExecutionOutput, CodeExecutionOutputChunk, KernelLost
from freeact_sub.kernels.wire import client

pytestmark = [pytest.mark.kernel, pytest.mark.mcp]
PYTHONS = [sys.executable, *(sorted(map(str, Path(sys.prefix).parent.glob(".venv-3*/bin/python"))) if THOROUGH else ())]
"""The last ones, of which there are environments as `.ci/pythons` makes them, run the kernel only."""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(("way", "count"), [("cancel", 30), ("limit", 12)])
async def test_an_interrupted_cell_keeps_the_variables(way, count, python, tmp_path):
    names = sample([*CELLS], count)
    rows = [row async for row in interrupted(names, way, tmp_path, python=python)]
    assert len(rows) == len(names) >= count
    assert [row.name for row in rows if not row.kept] == []


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(900)
@pytest.mark.parametrize("python", PYTHONS)
def test_escape_keeps_the_variables(python, tmp_path):
    assert list(escaped(sample([*CELLS], 6), tmp_path, python=python)) == []
    assert len(WAYS) == 3


async def test_an_interrupt_ends_what_an_earlier_cell_has_left_at_work(kernel):
    """A callback that computes keeps the cell from beginning. It ends, and so does the cell, whose time is up."""
    await run_cell(kernel, "import asyncio\nkept = 41\ndef burn():\n    while True: pass")
    await run_cell(kernel, "asyncio.get_running_loop().call_soon(burn);")
    assert (await run_cell(kernel, WORKS_ON, limit=0.3)).status == "timeout"
    assert (await run_cell(kernel, "kept")).text == "41\n"


@pytest.mark.parametrize("end", ["raise KeyboardInterrupt", "import sys; sys.exit(3)"])
async def test_no_exception_of_a_task_or_a_callback_ends_the_kernel(kernel, end):
    await run_cell(kernel, f"import asyncio\nkept = 41\ndef f():\n    {end}\nasync def g(): f()")
    for code in ("await asyncio.gather(g(), g())", "asyncio.get_running_loop().call_soon(f); await asyncio.to_thread(int)"):
        await run_cell(kernel, code)
    assert (await run_cell(kernel, "kept")).text == "41\n"


@pytest.mark.parametrize("is_dead", [False, True], ids=["the next cell waits for it", "it is dead by then"])
async def test_a_kernel_that_code_in_c_has_cost_is_told_of(make, monkeypatch, is_dead):
    monkeypatch.setattr(client, "INTERRUPT_GRACE_SECONDS", 1.0 if is_dead else 8.0)
    endless = (
        "import hashlib, threading\nkept = 41\nthreading.Timer(0.5, print, ('on',)).start()\n"
        "hashlib.pbkdf2_hmac('sha256', b'x', b'y', 10**9)"
    )
    script = [[cell(endless)], [cell("print('next', kept)")], [cell("print('last')")], "done"]
    async with make(script, mode="full") as agent:

        def on_event(event):
            if isinstance(event, CodeExecutionOutputChunk) and event.output.text.startswith("on"):
                run.cancel()

        run = agent.run("go")
        cut_off, _ = await read(run, on_event=on_event)
        if is_dead:
            with contextlib.suppress(KernelError):  # it waits for the end, or uses the next kernel
                await agent.variables()
        events, _ = await read(agent.run("go on"))
    losses = of_kind([*cut_off, *events], KernelLost)
    assert [loss.reason.partition(";")[0] for loss in losses] == ["a cell did not end when it was interrupted"]
    first, *later = of_kind(events, CodeExecutionOutput)
    assert "a cell did not end when it was interrupted" in first.text
    assert [end.text for end in later] == ["last"]
