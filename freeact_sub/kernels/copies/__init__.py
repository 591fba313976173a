"""Copies of the Jupyter kernel that this process is: an agent works on the user's variables, and changes none of them.

`safety.py` says whether a fork is safe, `forking.py` makes it, with a guard between (`system/guard.py`), `becoming.py` turns
it into a kernel of its own, and `launcher.py` is the host's end. `kernel.py` is what an agent runs its cells in, and
`provider.py` hands it out. `changes.py` finds out what was changed and takes values over, with
`guest/state.py`, which runs in both. Linux only: elsewhere `unsafe` says so, and the modules that fork are not imported.
"""

from freeact_sub.kernels.copies.changes import changes_of, report_here, take
from freeact_sub.kernels.copies.kernel import NotebookCopy
from freeact_sub.kernels.copies.provider import CopyProvider

__all__ = ["CopyProvider", "NotebookCopy", "changes_of", "report_here", "take"]
