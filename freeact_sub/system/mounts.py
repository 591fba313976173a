"""Finds mounts in a folder, and those that do not respond: a program that reads one of these would hang."""

import contextlib
import os
import re
import threading
import time
from typing import Final

ANSWER_SECONDS: Final = 2.0
_probes: dict[str, threading.Thread] = {}
"""By path; one that still waits is not repeated."""
_lock: Final = threading.Lock()


def mounts_in(folder: str) -> list[str]:
    """The places in a folder, itself included, at which something is mounted. Linux only; elsewhere it finds none."""
    above, _, name = folder.rpartition("/")
    place = os.fsencode(os.path.join(os.path.realpath(above or "/"), name))  # noqa: PTH118
    with contextlib.suppress(OSError), open("/proc/self/mountinfo", "rb") as lines:  # noqa: PTH123
        found = [re.sub(rb"\\(\d{3})", lambda code: bytes([int(code[1], 8)]), line.split()[4]) for line in lines]
        return [os.fsdecode(path) for path in found if path == place or path.startswith(place.rstrip(b"/") + b"/")]
    return []


def silent_mounts(folder: str) -> frozenset[str]:
    """The real paths below a folder at which a file system is mounted that does not answer within `ANSWER_SECONDS`."""
    paths = [path for path in mounts_in(folder) if path != os.path.realpath(folder)]
    with _lock:
        for path in paths:
            if path not in _probes or not _probes[path].is_alive():
                _probes[path] = threading.Thread(target=_look_at, args=(path,), name=f"looks at {path}", daemon=True)
                _probes[path].start()
        looks = {path: _probes[path] for path in paths}
    until = time.monotonic() + ANSWER_SECONDS
    for look in looks.values():
        look.join(max(0.0, until - time.monotonic()))
    return frozenset(path for path, look in looks.items() if look.is_alive())


def _look_at(path: str) -> None:
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        next(entries, None)
