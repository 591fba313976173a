"""Signals that this process has inherited from its starter, ignored or blocked: both outlast the start of a program.

Window managers, supervisors and shells leave them so, mostly by mistake. With SIGCHLD ignored, nobody learns how a process
has ended: no hook, no command, no test of the machine's wall. What a starter means is kept: SIGHUP (`nohup`), SIGINT and
SIGQUIT (a job in the background), and the signals of job control. Priority, limits and the mask of file modes are its own
to decide.
"""

import signal
import sys
import threading
from typing import Final

MEANT: Final = frozenset(
    ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGPIPE", "SIGXFSZ", "SIGKILL", "SIGSTOP")
)
"""What stays ignored; SIGPIPE and SIGXFSZ are ignored by Python."""


def renew_signals() -> None:
    """Blocks no signal, and ignores none that the starter cannot mean. For a program of ours, at its start."""
    if sys.platform == "win32":
        return
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals():
        if getattr(number, "name", "") not in MEANT and signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def hear_of_children() -> None:
    """Has the system tell of the ends of processes, if it does not. In the program of a user of the library."""
    is_main = threading.current_thread() is threading.main_thread()
    if sys.platform != "win32" and is_main and signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
