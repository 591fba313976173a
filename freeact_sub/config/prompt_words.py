"""The prompt of a command line: where it may stand, and how it is read. It imports the standard library alone."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from freeact_sub.errors import ConfigError

PROMPT_OPTIONS: Final = ("-p", "--print", "--prompt")
"""The option's names in other programs."""


def with_run(words: Sequence[str]) -> list[str]:
    """The words, in which `-p PROMPT` stands for `run PROMPT`."""
    end = words.index("--") if "--" in words else len(words)
    at = next((index for index, word in enumerate(words[:end]) if word in PROMPT_OPTIONS), None)
    if at is None:
        return [*words]
    return [*words[:at], *([] if "run" in words[:at] else ["run"]), *words[at + 1 :]]


def read_prompt(argument: str | None, path: Path | None) -> str:
    """The prompt.

    Args:
        argument: Itself; `-` for standard input; None: there is none, so a pipe is read.
        path: A file with it.

    Raises:
        ConfigError: There is none, or there are two, or it cannot be read.
    """
    if argument is not None and path is not None:
        raise ConfigError("give the prompt either as an argument, or with --file PATH, not both")
    try:
        if path is not None:
            prompt = path.read_text(encoding="utf-8")
        else:
            prompt = standard_input() if argument in (None, "-") else argument or ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the prompt from {path}: {error}") from error
    if not prompt.strip():
        raise ConfigError("the prompt is empty: give it as an argument, or as - for standard input, or with --file PATH")
    return prompt


def standard_input() -> str:
    """The text of standard input; empty if it is closed.

    Raises:
        ConfigError: It cannot be read.
    """
    if sys.stdin is None or sys.stdin.closed:
        return ""
    try:
        return sys.stdin.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the prompt from standard input: {error}") from error
