"""`NumberedOutput`: the messages of a cell, whole and in order though the connection drops in the middle.

The guest numbers what a cell puts out, and keeps the last of it. After a drop the host asks for what it has not seen. Until
the answer is there, what comes is held: the server sends on what it has kept, but not all that was on its way, and it may
take a message for itself when a connection is opened again.
"""

from collections.abc import Mapping
from typing import Any, Final

NUMBER: Final = "freeact_number"
"""The key in a message's metadata."""


class NumberedOutput:
    """Puts the output of the present cell in order, and drops repetitions."""

    def __init__(self) -> None:
        self.cell_id = ""
        self._low = 0
        self._seen: set[int] = set()
        """Numbers that have come, from `_low` on; all below have come."""
        self._held: dict[int, list[bytes]] | None = None
        """Messages that wait for earlier ones. None: nothing is held."""

    def begin(self, cell_id: str) -> None:
        """Starts with a new cell."""
        self.cell_id, self._low = cell_id, 0
        self._seen.clear()
        self._held = None

    def hold(self) -> int:
        """Holds messages back after the connection has dropped. Returns the first missing number."""
        self._held = self._held or {}
        return self._low

    def take(self, parent_id: str, metadata: Mapping[str, Any], parts: list[bytes]) -> bool:
        """Whether to pass a message on; otherwise it is held, or is a repetition."""
        number = metadata.get(NUMBER)
        if parent_id != self.cell_id or not isinstance(number, int):
            return True
        if number < self._low or number in self._seen:
            return False
        self._seen.add(number)
        while self._low in self._seen:
            self._seen.remove(self._low)
            self._low += 1
        if self._held is not None:
            self._held[number] = parts
        return self._held is None

    def release(self) -> tuple[list[list[bytes]], bool]:
        """The messages that were held, in order; and whether some before them will not come any more."""
        held, self._held = self._held or {}, None
        missing = bool(self._seen)
        if missing:
            self._low = max(self._seen) + 1
            self._seen.clear()
        return [held[number] for number in sorted(held)], missing
