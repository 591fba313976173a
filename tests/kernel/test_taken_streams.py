"""A cell that takes `sys.stdout` or `sys.stderr` away does it no harm to later cells, or a note says where their output goes."""

import pytest
from support.elsewhere import CANNOT_FORK
from support.kernels import PROVIDERS, no_host, open_kernel, run_cell, spec

pytestmark = [pytest.mark.kernel, pytest.mark.skipif(CANNOT_FORK, reason="forked kernels")]

BACK = "[The cell has left a sys.{} that cannot be written to. The kernel's own is back.]\n"
LEFT = (
    "[The cell has set sys.stdout to a StringIO: later cells write into it. "
    "`sys.stdout = sys.__stdout__` shows their output here again.]\n"
)
NEXT = "sys.stdout.write('next\\n'); sys.stdout.flush(); sys.stderr.write('error\\n'); sys.stderr.flush()"
"""Flushed, because ipykernel orders the two streams only where they are."""


async def texts(kernel, *cells):
    return [(await run_cell(kernel, cell)).text for cell in cells]


async def check(kernel):
    await run_cell(kernel, "import contextlib, io, sys")
    shown = await texts(kernel, NEXT)
    assert await texts(kernel, "sys.stdout = None", NEXT) == [BACK.format("stdout"), *shown]
    assert await texts(kernel, "sys.stdout.close(); print('a')", "with sys.stderr: pass", NEXT) == ["a\n", "", *shown]
    assert await texts(kernel, "with open('kept', 'w') as sys.stdout: print('b')", NEXT) == [BACK.format("stdout"), *shown]
    failed = await run_cell(kernel, "sys.stderr = None; 1 / 0")
    assert failed.status == "error"
    assert "ZeroDivisionError" in failed.text
    assert await texts(kernel, "kept = sys.stdout; sys.stdout = io.StringIO()", "print('c')") == [LEFT, ""]
    [both] = await texts(kernel, "sys.__stdout__.write('d\\n'); kept.write('e\\n'); None")
    assert sorted(both) == ["\n", "\n", "d", "e"]
    assert await texts(kernel, "print('f', file=sys.__stdout__); sys.stdout = sys.__stdout__", "print('g')") == [
        "f\n",
        "g\n",
    ]
    assert await texts(kernel, "sys.stdout = kept", NEXT) == ["", *shown]
    assert await texts(kernel, "%%capture out\nprint('j')", "out.show()") == ["", "j\n"]
    assert await texts(kernel, "with contextlib.redirect_stdout(io.StringIO()): print('h')", NEXT) == ["", *shown]


@pytest.mark.parametrize("name", ["fork", "local"])
async def test_later_cells_keep_their_output(name, tmp_path):
    provider = PROVIDERS[name]()
    try:
        async with open_kernel(provider, tmp_path) as kernel:
            await check(kernel)
            if name == "fork":
                await run_cell(kernel, "sys.stdout = io.StringIO()")
                branch = await kernel.branch(spec(tmp_path), no_host)
                try:
                    assert await texts(branch, "sys.stdout = kept; print('i')") != [""]
                    await check(branch)
                finally:
                    await branch.aclose()
    finally:
        await provider.aclose()
