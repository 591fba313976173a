"""The wall around the trial of a cell, within that of its agent's kernel (docs/effects.md).

A trial builds its wall itself, in memory that code of earlier cells has been in. So the host does two things. It sends the
code of the wall with each request (`sources`): functions that a cell has replaced in its kernel do not run. And it asks
Linux (`unproven`), before a cell runs there, whether the process is behind its wall, and holds nothing of its origin's.
Linux tells nobody outside of a Landlock domain about it, and no system call filter's content.
"""

import functools
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final, Self

from freeact_sub.errors import KernelBranchError
from freeact_sub.kernels.files.layer import PINS
from freeact_sub.kernels.wall import sandbox
from freeact_sub.kernels.wall.wall import FILE_CAPABILITIES

SOURCES: Final = {
    "freeact_view": "wall/view.py",
    "freeact_seccomp": "wall/seccomp.py",
    "freeact_wall": "wall/wall.py",
    "freeact_layer": "files/layer.py",
    "freeact_guest.trial": "guest/trial.py",
}
"""The modules that build a trial's wall, by name, in the order in which they are made."""
FILTERS: Final = 2
"""Filters of system calls that a trial has besides its origin's (`confine`, `refuse_names`)."""
FILTERED: Final = 2
"""The value of `Seccomp` in `/proc/PID/status` of a process whose system calls are filtered."""
HARMLESS_DEVICES: Final = frozenset(((1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2)))
"""Numbers of `null`, `zero`, `full`, `random`, `urandom`, `tty`, `ptmx`."""
BOUNDED: Final = ("Max data size", "Max file size")
"""Lines of `/proc/PID/limits`."""


def wire_of_trial(branch: Mapping[str, Any] | None, covers: bool, workspace: Path) -> dict[str, Any]:
    """Returns the wall of a trial, which writes its copy of the workspace and its own folder only, and has no network.

    Args:
        branch: The wall of an ordinary branch.
        covers: Whether its copy of the workspace is at the workspace's path.
        workspace: That path.

    Raises:
        KernelBranchError: This machine lacks a piece of the wall.
    """
    pieces: set[str] = set() if branch is None else {*branch["pieces"]}
    if branch is None or not pieces >= {"landlock", "seccomp"} or sandbox.support().landlock < sandbox.ABI_SIGNALS:
        raise KernelBranchError(
            "a trial needs the sandbox, which this machine does not have or `kernel.sandbox` switches off"
        )
    if not covers:
        raise KernelBranchError("it would not see its own copy of the workspace at the workspace's path")
    kept = {"readable": ["/"], "writable": [str(workspace), "/dev/shm"]}  # noqa: S108  # it is the trial's own
    more = {"walled": True, "above": "", "network": False, "connect": False, "pieces": ["landlock", "seccomp"]}
    return {**branch, **kept, **more}


@functools.cache
def sources() -> dict[str, str]:
    """Returns the code of `SOURCES`."""
    folder = resources.files("freeact_sub.kernels")
    return {name: folder.joinpath(path).read_text(encoding="utf-8") for name, path in SOURCES.items()}


@dataclass(frozen=True, kw_only=True)
class OriginKernel:
    """The state of the kernel that is copied for a trial, as Linux tells it before the copy is made."""

    pid: int
    spaces: Mapping[str, int]
    """The numbers of the namespaces that were made for the trial, by kind."""
    filters: int
    """The number of its filters of system calls."""

    @classmethod
    def look(cls, pid: int, folder: Path) -> Self:
        """Looks at a kernel. Args: folder: the private folder of the trial, which has the files that lead to its namespaces.

        Raises:
            KernelBranchError: Linux does not tell.
        """
        try:
            pins = {kind: Path(f"/proc/{pid}/root{folder}/{name}") for kind, name in PINS.items()}
            spaces = {kind: pin.stat().st_ino for kind, pin in pins.items()}
            return cls(pid=pid, spaces=spaces, filters=int(_status(f"/proc/{pid}")["Seccomp_filters"]))
        except (OSError, LookupError, ValueError) as error:
            raise KernelBranchError(f"the wall of a trial could not be checked: {error}") from error


def unproven(trial: int, origin: OriginKernel, memory_bytes: int) -> str:
    """Returns the missing pieces of a trial's wall, as Linux tells them, in words.

    Args:
        trial: The trial's process id.
        origin: The kernel that it is a copy of.
        memory_bytes: The bound on the size of a file.
    """
    try:
        return next(_missing(trial, origin, memory_bytes), "")
    except (OSError, LookupError, ValueError) as error:
        return f"it could not be looked at: {error}"


def _missing(trial: int, origin: OriginKernel, memory_bytes: int) -> Iterator[str]:
    here = Path(f"/proc/{trial}")
    for thread in (here / "task").iterdir():
        for kind, number in origin.spaces.items():
            if (thread / "ns" / kind).stat().st_ino != number:
                yield f"it is not in the {kind} namespace that was made for it"
        status = _status(str(thread))
        if status["NoNewPrivs"] != "1":
            yield "it may gain privileges"
        if int(status["Seccomp"]) != FILTERED or int(status["Seccomp_filters"]) < origin.filters + FILTERS:
            yield "its system calls are not filtered"
        if (int(status["CapPrm"], 16) | int(status["CapEff"], 16)) & ~sum(1 << number for number in FILE_CAPABILITIES):
            yield "it has capabilities"
        if (thread / "children").read_text().strip():
            yield "it has started a process"
    bounds = {line[:25].strip(): line.split()[-3] for line in (here / "limits").read_text().splitlines()}
    if bounds[BOUNDED[0]] == "unlimited" or int(bounds[BOUNDED[1]]) > memory_bytes:
        yield "its memory, or the size of its files, is not limited"
    yield from _shared_files(here, Path(f"/proc/{origin.pid}"))
    yield from _shared_memory(here, Path(f"/proc/{origin.pid}"))


def _shared_files(trial: Path, origin: Path) -> Iterator[str]:
    """Yields open files that stand outside of the trial's own mounts, and connections that are the origin's."""
    mounts = {line.split(maxsplit=1)[0] for line in (trial / "mountinfo").read_text(errors="replace").splitlines()}
    theirs = {_target(path) for path in (origin / "fd").iterdir()}
    for path in (trial / "fd").iterdir():
        target = _target(path)
        if target.startswith(("socket:", "pipe:")):
            if target in theirs:
                yield "it holds a connection of the kernel that it is a copy of"
        elif target.startswith("/") and not _is_harmless(path):
            fields = dict(line.split(maxsplit=1) for line in (trial / "fdinfo" / path.name).read_text().splitlines()[:3])
            if fields["mnt_id:"].strip() not in mounts:
                yield f"it holds an open file that is not its own: {target}"


def _target(path: Path) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115  # not a path: a description
    except FileNotFoundError:  # it has just been closed
        return ""


def _is_harmless(path: Path) -> bool:
    try:
        found = path.stat()
    except FileNotFoundError:
        return True
    return stat.S_ISCHR(found.st_mode) and (os.major(found.st_rdev), os.minor(found.st_rdev)) in HARMLESS_DEVICES


def _shared_memory(trial: Path, origin: Path) -> Iterator[str]:
    """Yields memory that both could write."""
    theirs = {memory for memory, _ in _shared(origin)}
    suspects = {lines for memory, lines in _shared(trial) if memory in theirs}
    if not suspects:
        return
    addresses = ""
    with (trial / "smaps").open(encoding="utf-8", errors="replace") as file:
        for line in file:
            first, _, rest = line.partition(" ")
            if re.fullmatch("[0-9a-f]+-[0-9a-f]+", first):
                addresses = first
            elif first == "VmFlags:" and "mw" in rest.split() and addresses in suspects:
                yield "it shares memory with the kernel that it is a copy of"


def _shared(process: Path) -> Iterator[tuple[tuple[str, str], str]]:
    """Yields the shared mappings of a process: device and number of the file, addresses."""
    with (process / "maps").open(encoding="utf-8", errors="replace") as file:
        for line in file:
            addresses, rights, _, device, number, *_ = line.split(maxsplit=5)
            if "s" in rights:
                yield (device, number), addresses


def _status(process: str) -> dict[str, str]:
    lines = Path(f"{process}/status").read_text(encoding="utf-8", errors="replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
