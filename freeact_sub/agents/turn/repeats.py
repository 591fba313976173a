"""`Repeats`: notices a model that goes in circles.

It counts the same call with the same result in consecutive responses; errors are the same if their last lines are. Parallel
calls in one response count once: asking five children the same question is a vote, not a circle. A call whose result changes
does not count, nor does one that waits: to check every half minute whether a file exists is legitimate.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

WAITED_SECONDS: Final = 5.0
"""A call that takes longer has waited for something and is not a repetition."""

_SLEEPS: Final = re.compile(r"\bsleep\s*\(|(?:^|[\s!;&|])sleep\s+[\d.]", re.MULTILINE)
"""Code that sleeps, in Python or in a shell."""
_ADDRESS: Final = re.compile(r"0x[0-9a-f]+")
"""Memory addresses, which do not distinguish errors."""


class Repeats:
    """Counts repeated calls of one run."""

    def __init__(self) -> None:
        self._known: tuple[str, str, str] | None = None
        self._turn = -1
        self._times = 0

    def count(self, turn: int, tool: str, args: Mapping[str, Any], text: str, *, failed: bool, seconds: float = 0.0) -> int:
        """Counts a call with its result.

        Args:
            turn: The number of the response that made it.
            tool: The tool's name.
            args: Its arguments.
            text: Its result.
            failed: The result is an error.
            seconds: How long it took.

        Returns:
            How many times in a row the same has now happened. 0: the call waited for something.
        """
        if seconds > WAITED_SECONDS or _SLEEPS.search(str(args.get("code", ""))):
            self._known = None
            return 0
        call = (tool, json.dumps(args, sort_keys=True, default=str), _last_line(text) if failed else text)
        if call != self._known:
            self._times = 1
        elif turn != self._turn:
            self._times += 1
        self._known, self._turn = call, turn
        return self._times


def advice(times: int, *, failed: bool) -> str:
    """Returns the advice for a model that goes in circles."""
    what = "error" if failed else "result"
    other = "read the error, change what it names, or try another way" if failed else "use this result, or try another way"
    return (
        f"[NOTE] You have made this call, with the same {what}, {times} times in a row. Once more, and the run ends. "
        f"Do something else: {other}; print what you do not know; or answer now with what you have."
    )


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return _ADDRESS.sub("#", lines[-1]) if lines else "(no text)"
