"""Runs a program as on a system that has less of Linux, such as macOS: `make test-elsewhere` runs tests so.

    python tests/support/elsewhere.py [--without WHAT[,WHAT ...]] PROGRAM [ARGUMENT ...]

The system itself takes away `WHAT` (default: all), from the program and from all that it starts. There is no `/proc`, and a
filter of system calls answers as a system that does not have them: `landlock`, `seccomp`, `prctl` (with capabilities),
`pidfd`. To make `namespaces` fails as in a container.
"""

import ctypes
import errno
import os
import struct
import sys

from freeact_sub.kernels.wall import view
from freeact_sub.kernels.wall.seccomp import (
    ALLOW,
    ANY_BIT,
    EQUAL,
    FIRST_ARGUMENT,
    LOAD,
    NEW_NAMESPACES,
    NUMBER,
    RETURN,
    call,
    put,
    refuse,
)
from freeact_sub.system.process import missing_for_forks

COLUMN = 0 if os.uname().machine == "x86_64" else 1
# system calls: number on x86_64, on aarch64
CALLS = {
    "landlock": ((444, 444), (445, 445), (446, 446)),
    "seccomp": ((317, 277),),
    "prctl": ((157, 167), (125, 90), (126, 91)),  # and capget, capset
    "pidfd": ((434, 434), (424, 424), (438, 438)),
}
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
UNSHARE, CLONE, CLONE3, SETNS = (272, 97), (56, 220), (435, 435), (308, 268)
CANNOT_FORK = bool(missing_for_forks(pidfds=True))
"""Whether this system cannot fork kernels; tests of forked ones are skipped there."""
PROC_OF_TESTS = "/proc-of-tests"
"""The place of `/proc` for what looks for left processes; no code of the program knows it."""


def main(arguments: list[str]) -> None:
    """Takes away what is named, then becomes the program."""
    away = {*CALLS, "namespaces", "proc"}
    if arguments[0] == "--without":
        away, arguments = {*arguments[1].split(",")}, arguments[2:]
    if "proc" in away:
        remove_proc()
    if calls := away - {"proc"}:
        view.LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # it stays: tests find all that is left behind
        view.LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        put(filter_without(calls))
    os.execvp(arguments[0], arguments)


def remove_proc() -> None:
    """Enters a file tree that lacks `/proc`. Raises: OSError: this user may make none here."""
    here = os.getcwd()
    view.new_namespaces()
    view.mount("none", "/", None, view.MS_REC | view.MS_PRIVATE)
    view.mount("tmpfs", "/tmp", "tmpfs", 0, "mode=755,size=4m")
    os.mkdir("/tmp/old")
    if view.LIBC.syscall(view.SYS_PIVOT_ROOT[os.uname().machine], b"/tmp", b"/tmp/old"):
        raise OSError(ctypes.get_errno(), "a file tree without /proc cannot be made here")
    for name in os.listdir("/old"):
        source, target = f"/old/{name}", PROC_OF_TESTS if name == "proc" else f"/{name}"
        if os.path.islink(source):
            os.symlink(os.readlink(source), target)
        else:
            view.bind(source, target, {"/"})
    view.LIBC.umount2(b"/old", view.MNT_DETACH)
    os.rmdir("/old")
    os.chdir(here)


def filter_without(away: set[str]) -> bytes:
    """Returns the instructions of a filter that refuses these system calls."""
    lines = [(LOAD, 0, 0, NUMBER)]
    for number in (numbers[COLUMN] for what in away for numbers in CALLS.get(what, ())):
        lines += [(EQUAL, 0, 1, number), refuse(errno.ENOSYS)]
    if "namespaces" in away:
        # clone3 keeps its flags where a filter cannot see them; the C library then takes clone
        lines += [(EQUAL, 0, 1, CLONE3[COLUMN]), refuse(errno.ENOSYS), (EQUAL, 0, 1, SETNS[COLUMN]), refuse(errno.EPERM)]
        for numbers in (UNSHARE, CLONE):
            new = [(LOAD, 0, 0, FIRST_ARGUMENT), (ANY_BIT, 0, 1, NEW_NAMESPACES), refuse(errno.EPERM)]
            lines += call(numbers[COLUMN], new)
    return b"".join(struct.pack("=HBBI", *line) for line in [*lines, (RETURN, 0, 0, ALLOW)])


if __name__ == "__main__":
    main(sys.argv[1:])
