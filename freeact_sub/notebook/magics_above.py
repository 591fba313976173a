"""`run_below`: what `%%time` and `%%capture` do, around a cell magic that is awaited.

IPython's own run their cell without awaiting it. A run may ask while it is captured, so until its end it is shown where
nothing is captured.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from IPython.core.getipython import get_ipython
from IPython.core.magic_arguments import parse_argstring
from IPython.core.magics.execution import ExecutionMagics
from IPython.utils.capture import capture_output

from freeact_sub.notebook.display import drawn_elsewhere
from freeact_sub.notebook.ipython_shell import shown_by


async def run_below(above: Sequence[tuple[str, str]], name: str, line: str, cell: str) -> None:
    """Run a cell magic below others. Args: above: their names and lines, the outermost first."""
    shell: Any = get_ipython()
    with ExitStack() as around:
        for outer, its_line in above:
            around.enter_context(_timed() if outer == "time" else _captured(shell, its_line))
        await shell.run_cell_magic(name, line, cell)


@contextmanager
def _timed() -> Iterator[None]:
    begun, worked = time.perf_counter(), time.process_time()
    try:
        yield
    finally:
        cpu, wall = time.process_time() - worked, time.perf_counter() - begun
        print(f"CPU times: total: {cpu:.3g} s (of this kernel)\nWall time: {wall:.3g} s")  # noqa: T201  # IPython's way


@contextmanager
def _captured(shell: Any, line: str) -> Iterator[None]:
    options = parse_argstring(ExecutionMagics.capture, line)
    publisher = shell.display_pub
    with capture_output(not options.no_stdout, not options.no_stderr, not options.no_display) as output:
        try:
            if options.no_display:
                yield
            else:
                with drawn_elsewhere(), shown_by(publisher):
                    yield
        finally:
            if options.output:
                shell.user_ns[options.output] = output
