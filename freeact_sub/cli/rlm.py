"""`freeact-sub rlm FILE ... QUESTION`: a recursive language model answers a question about files of any length."""

import argparse
import functools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from freeact_sub.cli.commands import run_prompt
from freeact_sub.cli.standard_input import piped_prompt
from freeact_sub.cli.streams import is_terminal
from freeact_sub.errors import ConfigError

if TYPE_CHECKING:
    from freeact_sub.cli.commands import Settings


def answer(options: argparse.Namespace, settings: "Settings") -> int:
    """Answer the question, as `freeact-sub run` does."""
    *files, question = options.words
    context = _context(files)
    config = settings(headless="auto")
    from freeact_sub.models.names import require_model  # noqa: PLC0415  # slow to import, as the next one

    require_model(config)
    from freeact_sub.rlm import RLM  # noqa: PLC0415
    from freeact_sub.terminal.run_once import NOTHING  # noqa: PLC0415

    sub_model = getattr(options, "sub_model", None)
    rlm = RLM(sub_model=sub_model, max_depth=getattr(options, "depth", 1), config=config)
    open_agent = functools.partial(rlm.agent, context)
    return run_prompt(options, config, open_agent, rlm.prompt(context, question), NOTHING)


def _context(files: list[str]) -> Any:
    """The text of one file, or of standard input; of several files, their texts by name."""
    if not files and is_terminal(sys.stdin):
        raise ConfigError("name the files that the question is about, or pipe a text into the program")
    texts = {name: piped_prompt() if name == "-" else _text(Path(name)) for name in files or ["-"]}
    return texts if len(texts) > 1 else next(iter(texts.values()))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
