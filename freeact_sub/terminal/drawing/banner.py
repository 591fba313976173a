"""The banner of a conversation: its model, folder, and mode."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from freeact_sub import __version__
from freeact_sub.config.project_texts import is_nested
from freeact_sub.config.schema import ON_THIS_MACHINE, Config
from freeact_sub.errors import UnusablePythonError
from freeact_sub.modes import Mode
from freeact_sub.pythons.about import packages_text, version_and_packages
from freeact_sub.text import counted, visible

if TYPE_CHECKING:  # slow to import
    from freeact_sub.show.rule_texts import CodeRule

MODES: dict[Mode, str] = {
    "plan": "writes nothing, and runs nothing without asking",
    "ask": "asks before anything that matters",
    "auto": "runs without asking, behind a wall",
    "full": "runs without asking, with no wall around files and network",
}


def mode_words(mode: Mode, code_rule: "CodeRule | None", workspace: Path) -> str:
    """Return a mode and its meaning. Args: code_rule: the rule by which code runs unasked in it."""
    if code_rule is None:
        return f"{mode}: {MODES[mode]}"
    runs = "cells that change nothing run unasked" if code_rule.is_for_harmless else "code runs unasked"
    source = _short(Path(code_rule.source), workspace) if Path(code_rule.source).is_absolute() else code_rule.source
    return f"{mode}: {MODES[mode]}, but {runs} ({visible(source)})"


NEW_SESSION: Final = " (--continue resumes the last one)"


def banner(config: Config, session: str, code_rule: "CodeRule | None" = None) -> RenderableType:
    """Return the facts, and the way to get help. Args: see `facts`."""
    hint = Text("        /help lists commands and keys · / and @ complete", "dim", overflow="fold")
    return Group(facts(config, session, code_rule), hint)


def facts(config: Config, session: str, code_rule: "CodeRule | None" = None) -> RenderableType:
    """Return name, version, model, mode, folder, Python and session.

    Args:
        config: The settings.
        session: Its id, or `new`.
        code_rule: See `mode_words`.
    """
    shown = _short(config.workspace)
    lines: list[RenderableType] = [
        Text.assemble(("freeact-sub", "bold"), f" {__version__}"),
        Text(f"model   {visible(config.model or 'set by the program')}", "dim"),
        Text(f"mode    {mode_words(config.mode, code_rule, config.workspace)}", "dim"),
        _FoldedRow(begin="folder  ", text=visible(shown)),
        Text(f"python  {python_text(config)}", "dim", overflow="fold"),
        Text(f"session {visible(session)}{NEW_SESSION if session == 'new' else ''}", "dim"),
    ]
    if config.instruction_files:
        names = [path.name for path in config.instruction_files if not is_nested(config.workspace / path, config.workspace)]
        count = len(config.instruction_files) - len(names)
        names += [f"those of {counted(count, 'folder')} when files there are used"] if count else []
        lines.append(Text(f"reads   {visible(', '.join(names))}", "dim", overflow="fold"))
    return Group(*lines)


def python_text(config: Config) -> str:
    """Return the Python that runs cells, and its notable packages."""
    if config.kernel.provider not in ON_THIS_MACHINE:
        return f"where {config.kernel.provider} runs kernels"
    python = config.kernel.python
    try:
        version, packages = version_and_packages(python)
    except UnusablePythonError as error:
        return visible(str(error))
    folder = Path(python).parent.parent
    whose = _short(folder, config.workspace) if folder != Path(sys.prefix) else "freeact-sub's own"
    return visible(" · ".join(filter(None, (version, whose, packages_text(packages)))))


def _short(folder: Path, workspace: Path | None = None) -> str:
    """Return the folder from the workspace or the home directory, if it is in there."""
    if workspace is not None and folder.is_relative_to(workspace):
        return str(folder.relative_to(workspace))
    home = Path.home()
    return f"~/{folder.relative_to(home)}" if folder.is_relative_to(home) and folder != home else str(folder)


@dataclass(frozen=True, kw_only=True)
class _FoldedRow:
    """A row that keeps its end: a long path begins with an ellipsis."""

    begin: str
    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        room = options.max_width - cell_len(self.begin)
        text = self.text
        if cell_len(text) > room:
            text = "…" + chop_cells(text[::-1], max(room - 1, 1))[0][::-1]
        yield Text(self.begin + text, "dim", no_wrap=True, overflow="crop")
