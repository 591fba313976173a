"""The folder of what the program keeps between its starts; apart, because a terminal that attaches imports nothing else."""

import os
from pathlib import Path


def state_folder() -> Path:
    """Return the folder of all sessions: `freeact` in `$XDG_STATE_HOME` or `~/.local/state`."""
    folder = os.environ.get("XDG_STATE_HOME", "")
    return (Path(folder) if folder.startswith("/") else Path.home().absolute() / ".local" / "state") / "freeact"
