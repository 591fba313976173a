"""What Linux says of processes, in `/proc`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal


def stat_fields(process: int | Literal["self"]) -> list[str]:
    """The fields of `/proc/PID/stat` behind the name, which may hold anything: first the state, then the parent.

    Raises:
        OSError: The process has ended, or this is not Linux.
    """
    return Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def ancestors(process: int) -> Iterator[int]:
    """The process ids of a process's parent, of that one's parent, and so on, as far as they can be read."""
    while process > 0:
        try:
            process = int(stat_fields(process)[1])
        except OSError:
            return
        if process:
            yield process
