"""The user's folders for settings, trust, rules and sessions."""

import os
from pathlib import Path

from freeact_sub.config.schema import user_folder


def state_folder() -> Path:
    """The folder of all sessions: `freeact` in `$XDG_STATE_HOME` or `~/.local/state`."""
    folder = os.environ.get("XDG_STATE_HOME", "")
    return (Path(folder) if folder.startswith("/") else Path.home().absolute() / ".local" / "state") / "freeact"


def own_folders() -> tuple[Path, ...]:
    """All of them, without links."""
    return (user_folder().resolve(), state_folder().resolve())


def cache_folder() -> Path:
    """The folder of what a Python has compiled of scripts of hooks and servers. No kernel behind a wall writes it."""
    return state_folder() / "compiled"


def token_folder() -> Path:
    """The folder of the sign-ins to MCP servers, which no kernel sees."""
    return user_folder() / "mcp-tokens"
