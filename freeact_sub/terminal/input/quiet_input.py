"""`quiet`: the keys of a terminal, without the terminal's own reports of focus, late answers and unknown sequences.

prompt_toolkit takes a sequence that it does not know for the keys of its characters, and they would stand in the line.
"""

import re
from typing import Any, Final

from prompt_toolkit.input import Input
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.input.vt100 import Vt100Input

_SEQUENCE: Final = re.compile(
    r"""
      \x1b\[ [0-?]* [ -/]* [@-~]                          # CSI: keys, focus, positions, the mouse
    | \x1bO [ -~]                                         # SS3: keys
    | \x1b[\]PX^_] [^\x07\x1b]* (?: \x07 | \x1b\\ )       # OSC, DCS, SOS, PM, APC: answers about colours and names
    """,
    re.VERBOSE,
)
_BEGINNING: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O|[\]PX^_][^\x07\x1b]*\x1b?)?\Z")
_ANSWER: Final = re.compile(r"\x1b[\]PX^_][^\x07\x1b]{2}")
"""The beginning of an answer: nobody types that."""
PASTE, PASTE_END = "\x1b[200~", "\x1b[201~"


def quiet(source: Input) -> Input:
    """Return an input of prompt_toolkit that passes on nothing but keys."""
    if isinstance(source, Vt100Input) and not isinstance(source.vt100_parser, QuietParser):
        source.vt100_parser = QuietParser(source.vt100_parser)  # type: ignore[assignment]  # its two methods are used
    return source


class QuietParser:
    """Stands before prompt_toolkit's parser, and leaves out the sequences that are no keys."""

    def __init__(self, parser: Any) -> None:
        """Args: parser: a `Vt100Parser`."""
        self._parser = parser
        self._held = ""
        """The beginning of a sequence."""
        self._waited = False
        """No more of it has come for a moment."""
        self._pastes = False

    def feed(self, data: str) -> None:
        """Takes characters of the terminal."""
        data, self._held = self._held + data, ""
        while data:
            mark = PASTE_END if self._pastes else PASTE
            before, found, data = data.partition(mark)
            self._take(before, is_last=not found)
            if found:
                self._parser.feed(found)
                self._pastes = not self._pastes
        self._waited &= bool(self._held)

    def _take(self, data: str, *, is_last: bool) -> None:
        """Args: is_last: nothing comes behind it yet."""
        if self._pastes:
            counts = range(len(PASTE_END) - 1, 0, -1) if is_last else ()
            begins = len(data) - next((count for count in counts if data.endswith(PASTE_END[:count])), 0)
        else:
            data = _SEQUENCE.sub(lambda match: match[0] if match[0] in ANSI_SEQUENCES else "", data)
            beginning = _BEGINNING.search(data) if is_last else None
            begins = len(data) if beginning is None else beginning.start()
        self._held = data[begins:]
        self._parser.feed(data[:begins])

    def flush(self) -> None:
        """Takes what was held for keys, because no more has come; the beginning of an answer is waited for once more."""
        if self._held and not self._pastes:
            if _ANSWER.match(self._held):
                self._held, self._waited = "" if self._waited else self._held, not self._waited
            else:
                held, self._held = self._held, ""
                self._parser.feed(held)
        self._parser.flush()
