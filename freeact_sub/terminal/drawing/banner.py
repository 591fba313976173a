"""The banner of a conversation: its model, folder, and mode."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from freeact_sub import __version__
from freeact_sub.config.schema import Config
from freeact_sub.modes import Mode
from freeact_sub.text import visible

MODES: dict[Mode, str] = {
    "plan": "writes nothing, and runs nothing without asking",
    "ask": "asks before anything that matters",
    "auto": "runs without asking, behind a wall",
    "full": "runs without asking, with no wall around files and network",
}

NEW_SESSION: Final = " (--continue resumes the last one)"


def banner(config: Config, session: str) -> RenderableType:
    """Name, version, model, mode, folder, and the continued session. Args: session: its id, or `new`."""
    folder = Path(config.workspace)
    home = Path.home()
    shown = f"~/{folder.relative_to(home)}" if folder.is_relative_to(home) and folder != home else str(folder)
    lines: list[RenderableType] = [
        Text.assemble(("freeact-sub", "bold"), f" {__version__}"),
        Text(f"model   {visible(config.model or 'set by the program')}", "dim"),
        Text(f"mode    {config.mode}: {MODES[config.mode]}", "dim"),
        _FoldedRow(begin="folder  ", text=visible(shown)),
        Text(f"session {visible(session)}{NEW_SESSION if session == 'new' else ''}", "dim"),
    ]
    if config.instruction_files:
        lines.append(
            Text(f"reads   {visible(', '.join(path.name for path in config.instruction_files))}", "dim", overflow="fold")
        )
    return Group(*lines, Text("        /help lists commands and keys · / and @ complete", "dim", overflow="fold"))


@dataclass(frozen=True, kw_only=True)
class _FoldedRow:
    """Return a row that keeps its end: a long path begins with an ellipsis."""

    begin: str
    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        room = options.max_width - cell_len(self.begin)
        text = self.text
        if cell_len(text) > room:
            text = "…" + chop_cells(text[::-1], max(room - 1, 1))[0][::-1]
        yield Text(self.begin + text, "dim", no_wrap=True, overflow="crop")
