"""Keeps the kernel's folder for temporary files, which cells may remove. Standard library and IPython only."""

import contextlib
import os
from pathlib import Path
from typing import Any


def install(shell: Any) -> None:
    """Make the folder again before each cell, if it is gone: without it no temporary file can be made."""
    folder = os.environ.get("TMPDIR")
    if folder:
        shell.events.register("pre_run_cell", lambda _: restore(folder))


def restore(folder: str) -> None:
    """Make it, with the rights that it had."""
    if not Path(folder).is_dir():
        with contextlib.suppress(OSError):  # the kernel's own folder may be gone, or a wall stands before it
            Path(folder).mkdir(0o700, parents=True)
