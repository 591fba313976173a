"""Runs a person's editor, which gets the terminal for a while."""

import asyncio
import os
import shlex
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

RunOutside: TypeAlias = Callable[[Sequence[str]], Awaitable[bool]]
"""Gives the terminal to a program; False if it cannot be started."""


def editor(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The person's editor as a command; empty if none is set."""
    return shlex.split(environment.get("VISUAL") or environment.get("EDITOR") or "")


async def edit(text: str, suffix: str, run: RunOutside) -> str | None:
    """Lets the person change a text in their editor; returns None if that fails."""
    with tempfile.TemporaryDirectory(prefix="freeact-sub-") as folder:
        file = Path(folder) / f"edit{suffix}"
        await asyncio.to_thread(file.write_text, text, encoding="utf-8")
        if not await run([*editor(), str(file)]):
            return None
        try:
            return await asyncio.to_thread(file.read_text, encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None
