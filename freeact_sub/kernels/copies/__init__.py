"""Copies of a notebook's kernel: an agent works on the user's variables, and changes none of them.

The kernel and the host of agents are two processes. In the kernel, `forks.py` says whether a fork is safe, `making.py` has
it made, with a guard between (`system/guard.py`), and `becoming.py` turns it into a kernel of its own. At the host,
`copied.py` asks for the fork, hands it out, and runs an agent's cells in it. `changes.py` finds the changes and takes values
over, with `guest/state.py`, which runs in kernel and copy, and with the bare forks of `forks.py`. Linux only: elsewhere
`unsafe` says so, and the modules that fork are not imported.
"""

from freeact_sub.kernels.copies.changes import (
    CopyChange,
    EarlierVariables,
    changed,
    explained_here,
    report_here,
    report_of,
    take,
)
from freeact_sub.kernels.copies.copied import CopyProvider, NotebookCopy, Origin
from freeact_sub.kernels.copies.forks import kernel_app, unsafe
from freeact_sub.kernels.copies.making import CopyMaker

__all__ = [
    "CopyChange",
    "CopyMaker",
    "CopyProvider",
    "EarlierVariables",
    "NotebookCopy",
    "Origin",
    "changed",
    "explained_here",
    "kernel_app",
    "report_here",
    "report_of",
    "take",
    "unsafe",
]
