"""The first thing in a conversation: what is talked to, where, and what may happen unasked."""

from pathlib import Path
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from freeact_sub import __version__
from freeact_sub.config.schema import Config
from freeact_sub.modes import Mode
from freeact_sub.text import visible

MODES: dict[Mode, str] = {
    "plan": "nothing is written, nothing runs unasked",
    "ask": "what matters is asked",
    "auto": "runs unasked, behind a wall",
    "full": "runs unasked, without a wall around files and network",
}

NEW_SESSION: Final = "; --continue goes on with the last one"


def banner(config: Config, session: str) -> RenderableType:
    """Name, version, model, mode, folder, and the session that is gone on with. Args: session: its id, or `new`."""
    folder = Path(config.workspace)
    home = Path.home()
    shown = f"~/{folder.relative_to(home)}" if folder.is_relative_to(home) and folder != home else str(folder)
    lines = [
        Text.assemble(("freeact-sub", "bold"), f" {__version__}"),
        Text(f"model   {visible(config.model or 'as the program gives it')}", "dim"),
        Text(f"mode    {config.mode}: {MODES[config.mode]}", "dim"),
        Text(f"folder  {visible(shown)}", "dim"),
        Text(f"session {visible(session)}{NEW_SESSION if session == 'new' else ''}", "dim"),
    ]
    return Text("\n", overflow="fold").join([*lines, Text("        /help lists what there is; / and @ complete", "dim")])
