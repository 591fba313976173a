"""`KeyGuard`: keys typed before a question appeared never answer it."""

import time
from collections.abc import Callable
from typing import Final

GUARD_SECONDS: Final = 0.4
ENTER: Final = "\r"
RESTS: Final = {"y": "es", "n": "o", "a": "lways", "p": "roject"}
"""Letters that may follow an answering key if somebody types the whole word."""


class KeyGuard:
    """Decides whether a key may answer: the question has been open for a moment in which nobody typed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Args: clock: seconds that only grow."""
        self._clock = clock
        self._since = self._answered = -GUARD_SECONDS
        self._rest = ""

    def restart(self) -> None:
        """Notes that a question opened, or that the person is still typing."""
        self._since = self._clock()

    def answered(self, key: str) -> None:
        """Notes that a key answered: the rest of its word and Enter are ignored if they follow at once."""
        self._answered, self._rest = self._clock(), RESTS.get(key, "") + ENTER

    @property
    def is_open(self) -> bool:
        """Whether a key counts."""
        return self._clock() - self._since >= GUARD_SECONDS

    @property
    def may_drop(self) -> bool:
        """Whether the next key may belong to the last answer."""
        return bool(self._rest) and self._clock() - self._answered < GUARD_SECONDS

    def drops(self, text: str) -> bool:
        """Whether a key belongs to the answer before it; the first one that does not ends the answer."""
        rest = ENTER if text == ENTER else self._rest
        if not text or not self.may_drop or not rest.startswith(text):
            self._rest = ""
            return False
        self._answered, self._rest = self._clock(), rest[len(text) :]
        return True
