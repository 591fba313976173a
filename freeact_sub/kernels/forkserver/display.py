"""What `display` and the last value of a cell go through in a forked kernel.

Loaded by `server.py`; it needs ipykernel and the standard library only.
"""

from typing import Any

from IPython.core.formatters import BaseFormatter, DisplayFormatter, PlainTextFormatter

PLAIN = frozenset(
    (bool, bytes, complex, dict, float, frozenset, int, list, range, set, slice, str, tuple, type(None), type(Ellipsis))
)
"""Types without a method for a display, which can be given none either, nor can their values."""
TEXT = "text/plain"
PRINTERS = ["type_printers", "singleton_printers", "deferred_printers"]


class ShortDisplayFormatter(DisplayFormatter):  # type: ignore[misc]  # IPython is not followed by the type checker
    """Asks for the text of a plain value only, where IPython asks eleven more formatters, which know nothing of it."""

    _asked: tuple[Any, ...] = ()
    """The formatters that IPython asks."""
    _by_type: tuple[Any, ...] = ()
    _by_other: tuple[Any, ...] = ()
    """What those have that may show a value other than as text: by its type, by its id or the name of its type."""

    def format(self, obj: Any, include: Any = None, exclude: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """As the original."""
        if type(obj) not in PLAIN or include or exclude or not self._has_text_only(type(obj)):
            formatted: tuple[dict[str, Any], dict[str, Any]] = super().format(obj, include, exclude)
            return formatted
        text = self.formatters[TEXT](obj)
        return ({} if text is None else {TEXT: text}), {}

    def _has_text_only(self, kind: type) -> bool:
        """Whether no formatter was made or told to show such values in another way."""
        formatters = self.formatters
        asked = (self.ipython_display_formatter, self.mimebundle_formatter, *formatters.values())
        if asked != self._asked:
            self._asked = asked
            self._note()
        return (
            type(formatters.get(TEXT)) is PlainTextFormatter
            and not any(self._by_other)
            and all(not printers or printers.keys().isdisjoint(kind.__mro__) for printers in self._by_type)
        )

    def _note(self, _: Any = None) -> None:
        """Notes the formatters' dictionaries, until one is replaced: to look them up takes as long as all the rest."""
        others = [formatter for formatter in self._asked if type(formatter) is not PlainTextFormatter]
        for formatter in others:
            formatter.observe(self._note, PRINTERS)
        strange = [formatter for formatter in others if type(formatter).__module__ != BaseFormatter.__module__]
        self._by_type = tuple(formatter.type_printers for formatter in others)
        self._by_other = (
            strange,
            *(formatter.singleton_printers for formatter in others),
            *(formatter.deferred_printers for formatter in others),
        )
