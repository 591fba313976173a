"""`Repeats`: notices that a model goes in circles.

What counts is the same call with the same result, or the same error whatever the call, in response after response. Calls
side by side in one response count once: asking five children the same question is a vote, not a circle; and a call whose
result changes, such as looking at something that grows, is none either.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

TOLD_AT: Final = 3
"""Times in a row after which the model is told; the run ends at the next."""

_ADDRESS = re.compile(r"0x[0-9a-f]+")
"""Two errors that differ in these are the same."""


class Repeats:
    """Counts what repeats in one run."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Any, int, int]] = {}

    def seen(self, turn: int, tool: str, args: Mapping[str, Any], text: str, *, failed: bool) -> int:
        """Note a call and its result.

        Args:
            turn: Number of the response that made it.
            tool: Name of the tool.
            args: Its arguments.
            text: Its result.
            failed: The result is an error.

        Returns:
            How many times in a row the same has happened now.
        """
        call = (tool, json.dumps(args, sort_keys=True, default=str))
        times = self._count("call", turn, (call, text))
        error = _last_line(text) if failed else None
        return max(times, self._count("error", turn, error) if error else self._forget("error"))

    def _count(self, what: str, turn: int, value: Any) -> int:
        known, last_turn, times = self._last.get(what, (None, -1, 0))
        if known != value:
            times = 1
        elif last_turn != turn:
            times += 1
        self._last[what] = (value, turn, times)
        return times

    def _forget(self, what: str) -> int:
        self._last.pop(what, None)
        return 0


def advice(times: int, *, failed: bool) -> str:
    """What a model is told that goes in circles."""
    what = "ended in the same error" if failed else "made this call, with the same result"
    other = "read the error, change what it names, or try another way" if failed else "use this result, or try another way"
    return (
        f"[NOTE] You have {what} {times} times in a row. Once more, and the run ends. Do something else: {other}; "
        "print what you do not know; or answer now with what you have."
    )


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return _ADDRESS.sub("#", lines[-1]) if lines else "(no text)"
