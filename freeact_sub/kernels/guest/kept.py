"""Advice where the kernel's wall keeps code from a file or from a process. Standard library only.

The system's own error names a file system that is read-only, and a program that installs packages says no more.
"""

import errno
import os
import re
import sys
import sysconfig

INSTALLS = re.compile(
    r"\b(pip[\d.]*|uv|conda|mamba|micromamba|poetry|pdm)['\"]?\s[^|;&\n]*\b(install|add|sync|remove|uninstall|update)\b"
)
"""A command that changes an environment."""
ELSEWHERE = re.compile(r"\s(--target|-t|--prefix|--root|--dry-run|--help)\b")
REFUSED = (errno.EROFS, errno.EBUSY)
"""Errors of a read-only mount, and of moving one."""
CONNECTS = ("multiprocessing.forkserver", "connect_to_new_process")
"""The module and function of the start method `forkserver`, the usual one since Python 3.14, that a wall refuses."""
USE_FORK = (
    'No process of this kernel may connect to another one: call multiprocessing.set_start_method("fork", force=True) first, '
    'or pass mp_context=multiprocessing.get_context("fork").'
)


class KeptAdvice:
    """Advice to code that the wall refuses something."""

    def __init__(self) -> None:
        self.text = ""
        """The advice. Empty: the wall keeps nothing from this kernel."""
        self._needed = False

    def on_command(self, command: str) -> None:
        """Note a command to run."""
        if self.text and INSTALLS.search(command) and not ELSEWHERE.search(command):
            self._needed = True

    def on_end_of_cell(self) -> None:
        """Advise a cell that has tried to install packages where the kernel cannot."""
        needed, self._needed = self._needed, False
        if needed and not os.access(sysconfig.get_path("purelib"), os.W_OK):
            print(self.text, file=sys.stderr, flush=True)

    def add_to(self, error: BaseException) -> None:
        """Add the advice to the error of a change, or of a process that cannot be started."""
        if isinstance(error, PermissionError) and _is_raised_in(error, *CONNECTS) and USE_FORK not in _notes_of(error):
            error.add_note(USE_FORK)
        if self.text and isinstance(error, OSError) and error.errno in REFUSED and self.text not in _notes_of(error):
            error.add_note(self.text)


def _is_raised_in(error: BaseException, module: str, function: str) -> bool:
    found = error.__traceback__
    while found is not None and found.tb_next is not None:
        found = found.tb_next
    frame = None if found is None else found.tb_frame
    return frame is not None and (frame.f_globals.get("__name__"), frame.f_code.co_name) == (module, function)


def _notes_of(error: BaseException) -> list[str]:
    notes: list[str] = getattr(error, "__notes__", [])
    return notes


ADVICE = KeptAdvice()
