"""The place of the prompts of earlier conversations in this folder."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path


def history_file(folder: Path | None = None) -> str:
    """The file of a folder's prompts, in the user's state, for the user alone; `os.devnull` where it cannot be made.

    Args:
        folder: The folder of the conversations. None: the present one.
    """
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    digest = hashlib.sha256(os.fsencode(folder or Path.cwd())).hexdigest()[:16]
    file = Path(state) / "freeact" / "prompts" / digest
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError:
        return os.devnull
    return os.fspath(file) if os.access(file, os.R_OK | os.W_OK) else os.devnull
