"""The wall around a program that only reads: neither it nor its children change a file or connect to anything.

Linux; standard library only; sent into every kernel as source. `enter` restricts the thread that calls it, and all that this
thread starts from then on, for good, and leaves the other threads of the process as they are. So a kernel starts a program
behind this wall from a thread that does nothing else (`guest/doors.py`).

It needs Landlock (any version) and seccomp. The filter of system calls guards truncation and signals to other programs,
which an older Landlock does not.
"""

import os
import sys
import threading

from . import seccomp, wall

HARMLESS_DEVICES = ("null", "zero", "full")
READ_CAPABILITIES = {1, 2}
"""Capabilities that root keeps: to read files and folders of any mode. Landlock and the filter refuse the rest."""


def enter() -> None:
    """Puts the wall around the calling thread. Raises: OSError: It cannot be built here."""
    if wall.LIBC.prctl(wall.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise wall.failure("no-new-privileges")
    wall.drop_capabilities(READ_CAPABILITIES)
    abi = wall.landlock_abi()
    if abi == 0:
        raise wall.WallError("landlock could not be set up: this system has none")
    every = sum(rights for version, rights in wall.FILE_RIGHTS_BY_ABI.items() if version <= abi)
    network = wall.TCP_BIND_AND_CONNECT if abi >= 4 else 0
    scoped = wall.ABSTRACT_SOCKETS_AND_SIGNALS if abi >= 6 else 0
    ruleset = wall.new_ruleset(abi, every, network, scoped)
    try:
        wall.allow(ruleset, "/", wall.READ & every)
        for name in HARMLESS_DEVICES:
            wall.allow(ruleset, f"/dev/{name}", (wall.READ_FILE | wall.WRITE_FILE | wall.TRUNCATE) & every)
        wall.restrict(ruleset)
    finally:
        os.close(ruleset)
    seccomp.install(walled=True, network=False, connect=False, join=False, trial=True)
    seccomp.refuse_changes(signals=abi < 6)


def is_available() -> bool:
    """Returns whether the wall can be built in this process, tested once."""
    if not found:
        found.append(sys.platform == "linux" and _works())
    return found[0]


found: list[bool] = []


def _works() -> bool:
    worked: list[bool] = []

    def attempt() -> None:
        try:
            enter()
        except (OSError, wall.WallError, KeyError, AttributeError):
            return  # that it does not work is what was asked
        worked.append(True)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join()
    return bool(worked)
