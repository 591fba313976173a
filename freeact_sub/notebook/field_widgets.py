"""The fields of a question as widgets: choices as buttons, with a text beside them; and the values that they hold."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from freeact_sub.events import QuestionField, QuestionRequest
from freeact_sub.show.forms import heading, numbered, shown_default
from freeact_sub.show.safe_html import escaped

WIDE: Final = {"width": "40em"}
AUTO: Final = {"width": "auto", "flex": "0 0 auto"}
"""As wide as its words, in a narrow notebook too."""


class FieldWidgets:
    """What a person fills in for one question."""

    def __init__(self, widgets: Any, request: QuestionRequest, on_pick: Callable[[], None]) -> None:
        """Args: widgets: the package ipywidgets. on_pick: called when a choice alone is the whole answer."""
        self._fields = request.fields
        self._picks: dict[str, list[Any]] = {}
        self._texts: dict[str, Any] = {}
        self._widgets = widgets
        self._on_pick = on_pick if len(request.fields) == 1 else lambda: None
        self.rows: list[Any] = []
        """From top to bottom."""
        self.buttons: list[Any] = []
        for field in request.fields:
            self._add(request, field)

    def values(self) -> dict[str, Any]:
        """What is filled in, by field; a text counts more than a choice beside it."""
        found: dict[str, Any] = {}
        for field in self._fields:
            typed = self._texts[field.name].value if field.name in self._texts else ""
            found[field.name] = typed if typed.strip() else self._picked(field)
        return found

    def _picked(self, field: QuestionField) -> Any:
        values: Sequence[Any] = field.choices or ("yes", "no")
        picks = self._picks.get(field.name, [])
        picked = [value for value, button in zip(values, picks, strict=False) if button.value]
        if field.kind == "choices":
            return picked or None
        return picked[0] if picked else None

    def _add(self, request: QuestionRequest, field: QuestionField) -> None:
        words = heading(request, field)
        if field.default is not None:
            words = f"{words} (nothing means {shown_default(field)})".strip()
        elif not field.required:
            words = f"{words} (may be left out)".strip()
        if words:
            self.rows.append(self._widgets.HTML(f"<b>{escaped(words)}</b>"))
        if field.rows:
            picks = [self._widgets.ToggleButton(description=row, tooltip=row, layout=AUTO) for row in numbered(field)]
            for pick in picks:
                pick.observe(lambda change, pick=pick: self._toggled(field, pick, change["new"]), names="value")
            self._picks[field.name] = picks
            self.buttons += picks
            self.rows.append(self._widgets.VBox(picks))
        if not field.rows or field.other:
            text = self._widgets.Textarea(placeholder="or your own answer" if field.other else "", rows=1, layout=WIDE)
            self._texts[field.name] = text
            self.rows.append(text)

    def _toggled(self, field: QuestionField, picked: Any, is_on: bool) -> None:
        """Only one choice is on, except where several may be."""
        if not is_on or field.kind == "choices":
            return
        for other in self._picks[field.name]:
            if other is not picked:
                other.value = False
        if field.name in self._texts:
            self._texts[field.name].value = ""
        self._on_pick()
