"""`SessionLock`: a session is open in one program at a time; the system releases it when that program ends."""

import fcntl
import os
from pathlib import Path

from freeact_sub.errors import SessionBusyError

NAME = "lock"


class SessionLock:
    """Holds a session, from `take` to `give_back`."""

    def __init__(self, folder: Path, session_id: str) -> None:
        """Args: folder: the session's own; it need not exist."""
        self._path = folder / NAME
        self._session_id = session_id
        self._descriptor: int | None = None

    def take(self) -> None:
        """Takes the lock.

        Raises:
            SessionBusyError: Another program, or another agent of this one, has it.
            OSError: The folder cannot be written.
        """
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise SessionBusyError(self._session_id, holder) from None
        except BaseException:
            os.close(descriptor)
            raise
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        self._descriptor = descriptor

    def give_back(self) -> None:
        """Releases the lock. Can be called again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def is_free(self) -> bool:
        """Whether the session is free now; True also if it does not exist."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
        return True
