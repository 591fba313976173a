"""Questions to a person (`PersonQuestion`), the fields of an answer, and their values.

A field is a text, a number, a yes or no, or one or several of a few choices. `read_value` decides for every front end and
every program alike whether a value is an answer. `fields_of` reads a form's JSON schema, as models and MCP servers write it,
and `values_schema` writes one. A form is a flat object of texts, numbers, yes or no, and choices, which is what MCP's
elicitation allows. Choices are an `enum` (with `enumNames`, if need be), or alternatives of `const` and `title`; an array of
choices takes several of them.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any, Final, Literal, TypeAlias

from freeact_sub.events.answers import Answer
from freeact_sub.text import one_line, visible

FieldKind: TypeAlias = Literal["text", "integer", "number", "boolean", "choice", "choices"]
"""The kind of a field. `choice`: one of the choices; `choices`: any number of them."""

YES: Final = frozenset({"y", "yes", "true"})
NO: Final = frozenset({"n", "no", "false"})
LABEL_CHARS: Final = 60
"""Characters of a field in a sentence about its value."""
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,300}")
_FORMATS: Final[dict[str, tuple[str, re.Pattern[str]]]] = {
    "email": ("an e-mail address", re.compile(r"[^\s@]+@[^\s@]+")),
    "uri": ("an address with its scheme, such as https://example.org", re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")),
}
MAX_FIELDS: Final = 30
MAX_CHOICES: Final = 200
MAX_CHARS: Final = 2_000
"""Characters of each text in a form, at most."""
_KINDS: Final[dict[Any, FieldKind]] = {"string": "text", "integer": "integer", "number": "number", "boolean": "boolean"}
_BOUNDS: Final[dict[FieldKind, tuple[str, str]]] = {
    "text": ("minLength", "maxLength"),
    "integer": ("minimum", "maximum"),
    "number": ("minimum", "maximum"),
    "choices": ("minItems", "maxItems"),
}
_TYPES: Final[dict[FieldKind, str]] = {
    **{kind: name for name, kind in _KINDS.items()},
    "choice": "string",
    "choices": "array",
}


@dataclass(frozen=True, kw_only=True)
class QuestionField:
    """A field of a question."""

    name: str
    """The key of the value in `QuestionAnswered.values`."""
    prompt: str = ""
    """The question about this field. Empty: the question's `prompt` says it."""
    kind: FieldKind = "text"
    choices: tuple[str, ...] = ()
    """The values to choose from."""
    labels: tuple[str, ...] = ()
    """The choices as people read them. Empty: the choices themselves."""
    other: bool = False
    """Whether any other text is an answer as well as a choice."""
    required: bool = True
    """Whether the field must not be left out."""
    default: Any = None
    """The value if nothing is given. None: there is no default."""
    least: float | None = None
    """The least number, length of a text, or number of choices."""
    most: float | None = None
    """The greatest number, length of a text, or number of choices."""
    format: str = ""
    """The format: `email`, `uri`, `date` or `date-time`. Empty: any text."""

    @property
    def rows(self) -> tuple[str, ...]:
        """The choices as people read them; empty if the answer is typed."""
        if self.kind == "boolean":
            return ("yes", "no")
        return self.labels or self.choices


@dataclass(frozen=True, kw_only=True)
class PersonQuestion:
    """A question to a person."""

    prompt: str
    """The question. Empty: code reads from the keyboard and gave no prompt, or the fields say all."""
    fields: tuple[QuestionField, ...] = ()
    """The fields of the answer, in the order of the form. Empty: one text."""
    server: str = ""
    """The MCP server that asks. Empty: the agent or its code."""
    url: str = ""
    """A page that the MCP server wants the person to open. Nothing opens it by itself."""
    secret: bool = False
    """Whether the answer is hidden while it is typed, and never recorded."""


CONFIRMED: Final = "confirmed"
CONFIRMATION: Final = QuestionField(name=CONFIRMED, kind="boolean")
"""The field of a question that asks for nothing but a yes."""


def read_answer(fields: Sequence[QuestionField], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of all fields that are not left out.

    Raises:
        ValueError: A value is missing, wrong or of no field; the message says which, and what is wanted.
    """
    if unknown := given.keys() - {field.name for field in fields}:
        names = ", ".join(repr(field.name) for field in fields)
        raise ValueError(f"the question has no field {one_line(str(min(map(str, unknown))))!r}: it asks for {names}")
    values = {field.name: read_value(field, given.get(field.name)) for field in fields}
    return {name: value for name, value in values.items() if value is not None}


def read_value(field: QuestionField, given: Any) -> Any:
    """Return the value of a field from a value or a typed text. None: left out.

    Raises:
        ValueError: The value is no answer; the message says what is wanted.
    """
    if given is None or (isinstance(given, str) and not given.strip()):
        if field.default is None and field.required:
            raise ValueError(f"{_called(field)} needs an answer: {wanted(field)}")
        return field.default
    value = _READERS[field.kind](field, given)
    if value is None:
        raise ValueError(f"{_called(field)} must be {wanted(field)}")
    return value


def typed_value(field: QuestionField, text: str) -> Any:
    """Return the value of a field from a typed line, which may name a choice by its number, or by how it alone begins.

    Raises:
        ValueError: The line is no answer; the message says what is wanted.
    """
    if field.kind == "choices" and text.strip():
        return read_value(field, [_named(field, part.strip()) for part in text.split(",") if part.strip()])
    return read_value(field, _named(field, text.strip()) if field.rows else text)


def _named(field: QuestionField, text: str) -> str:
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 5 else 0
    if text in field.rows:  # what is seen counts before numbers, and both before values that have labels
        number = field.rows.index(text) + 1
    elif not 0 < number <= len(field.rows):
        begun = [at for at, row in enumerate(field.rows, 1) if text and row.strip().casefold().startswith(text.casefold())]
        if field.other or len(begun) != 1:
            return text
        number = begun[0]
    return field.choices[number - 1] if field.choices else field.rows[number - 1]


def wanted(field: QuestionField) -> str:
    """Return the values that a field takes, in words that follow "must be"."""
    match field.kind:
        case "boolean":
            return "yes or no"
        case "choice" | "choices":
            of = "one of" if field.kind == "choice" else f"{_bounds(field) or 'any'} of"
            listed = ", ".join(one_line(visible(row), LABEL_CHARS) for row in field.rows)
            return f"{of} these: {listed}{'; or any other text' if field.other else ''}"
        case "integer" | "number":
            return ", ".join(filter(None, ("a whole number" if field.kind == "integer" else "a number", _bounds(field))))
    if field.format in _FORMATS:
        return _FORMATS[field.format][0]
    if field.format in ("date", "date-time"):
        return "a date, such as 2026-01-31" if field.format == "date" else "a date and time, such as 2026-01-31T09:30:00Z"
    return f"a text, {_bounds(field)} characters long" if _bounds(field) else "a text"


def _bounds(field: QuestionField) -> str:
    least, most = (None if bound is None else f"{bound:g}" for bound in (field.least, field.most))
    if least is not None and most is not None:
        return f"from {least} to {most}"
    return f"at least {least}" if least is not None else f"at most {most}" if most is not None else ""


def text_of_values(fields: Sequence[QuestionField], values: Mapping[str, Any]) -> str:
    """Return the values of an answer as one text for people, each behind its question if there are several."""
    parts = []
    for field in fields:
        if field.name in values:
            shown = text_of_value(field, values[field.name])
            parts.append(shown if len(fields) == 1 else f"{_called(field)}: {shown}")
    return "; ".join(parts)


def answer_to(fields: Sequence[QuestionField], answer: Answer) -> Answer:
    """Return an answer with values of the right types; a text answers a question with one field.

    Raises:
        ValueError: The answer does not fit; the message says what is wanted.
    """
    given = answer.values
    if answer.text is None and given is None:
        return answer
    if not fields:
        if answer.text is None:
            raise ValueError("this question takes a text, not values")
        return answer
    if given is None:
        if len(fields) > 1:
            names = ", ".join(repr(field.name) for field in fields)
            raise ValueError(f"this question takes values by name, not one text: it asks for {names}")
        given = {fields[0].name: answer.text}
    values = read_answer(fields, given)
    return Answer(text=text_of_values(fields, values), values=values)


def text_of_value(field: QuestionField, value: Any) -> str:
    """Return the value of one field as people read it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    labels = dict(zip(field.choices, field.labels, strict=False))
    return ", ".join(str(labels.get(item, item)) for item in (value if isinstance(value, list) else [value]))


def _called(field: QuestionField) -> str:
    return one_line(visible(field.prompt or field.name), LABEL_CHARS)


def _text(field: QuestionField, given: Any) -> str | None:
    if not isinstance(given, str) or not _within(field, len(given)):
        return None
    if field.format in _FORMATS:
        return given.strip() if _FORMATS[field.format][1].fullmatch(given.strip()) else None
    if field.format in ("date", "date-time"):
        read = date.fromisoformat if field.format == "date" else datetime.fromisoformat
        try:
            read(given.strip())
        except ValueError:
            return None
        return given.strip() if field.format == "date" or len(given.strip()) > len("2026-01-31") else None
    return given


def _number(field: QuestionField, given: Any) -> float | int | None:
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        return None
    try:
        if isinstance(given, str):
            typed = given.strip()
            number = int(typed) if _INTEGER.fullmatch(typed) else float(typed.replace("_", " "))
        else:
            number = given
        if not math.isfinite(number):
            return None
    except (ValueError, OverflowError):
        return None
    if field.kind == "integer" and isinstance(number, float):
        if not number.is_integer():
            return None
        number = int(number)
    return number if _within(field, number) else None


def _boolean(_field: QuestionField, given: Any) -> bool | None:
    if isinstance(given, bool):
        return given
    word = given.strip().lower() if isinstance(given, str) else ""
    return True if word in YES else False if word in NO else None


def _choice(field: QuestionField, given: Any) -> str | None:
    if not isinstance(given, str):
        return None
    if given in field.choices:
        return given
    meant = given.strip().casefold()
    for index, row in enumerate(field.rows):
        if meant in (row.strip().casefold(), field.choices[index].strip().casefold()):
            return field.choices[index]
    return given if field.other and _within(field, len(given)) else None


def _choices(field: QuestionField, given: Any) -> list[str] | None:
    items = given.split(",") if isinstance(given, str) else given
    if not isinstance(items, list | tuple):
        return None
    picked = [_choice(field, item.strip() if isinstance(item, str) else item) for item in items]
    found = list(dict.fromkeys(item for item in picked if item is not None))
    return found if None not in picked and _within(field, len(found)) else None


def _within(field: QuestionField, number: float) -> bool:
    return (field.least is None or number >= field.least) and (field.most is None or number <= field.most)


_READERS: Final[dict[FieldKind, Any]] = {
    "text": _text,
    "integer": _number,
    "number": _number,
    "boolean": _boolean,
    "choice": _choice,
    "choices": _choices,
}


def form_question(prompt: str, schema: Any, server: str = "") -> PersonQuestion:
    """Return the question of a form; one without fields asks for a yes.

    Args:
        prompt: The question. Empty: a sentence stands for it.
        schema: The form.
        server: The MCP server that asks, if one does.

    Raises:
        ValueError: As for `fields_of`.
    """
    fields = fields_of(schema) or (CONFIRMATION,)
    return PersonQuestion(prompt=prompt or "Please fill this in.", server=server, fields=fields)


def fields_of(schema: Any) -> tuple[QuestionField, ...]:
    """Return the fields of a form.

    Raises:
        ValueError: The schema is no flat object, or a field has an unknown kind; the message says what is wrong.
    """
    properties = schema.get("properties", {}) if isinstance(schema, Mapping) else None
    if not isinstance(schema, Mapping) or not isinstance(properties, Mapping) or schema.get("type", "object") != "object":
        raise ValueError("a form must be the JSON schema of an object with properties")
    if len(properties) > MAX_FIELDS:
        raise ValueError(f"a form must have at most {MAX_FIELDS} fields: this one has {len(properties):,}")
    required = schema.get("required")
    names = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    defined = {
        f"#/{place}/{name}": about for place in ("$defs", "definitions") for name, about in _of(schema, place).items()
    }
    resolved = {name: _resolved(about, defined) for name, about in properties.items()}
    return tuple(_field(str(name), about, name in names) for name, about in resolved.items())


def values_schema(field: QuestionField) -> dict[str, Any]:
    """Return the JSON schema of a field's values, without the words and choices that each protocol writes in its own way."""
    schema: dict[str, Any] = {"type": _TYPES[field.kind]}
    for name, bound in zip(_BOUNDS.get(field.kind, ()), (field.least, field.most), strict=False):
        if bound is not None and math.isfinite(bound):
            schema[name] = int(bound) if bound == int(bound) else bound
    if field.format and field.kind == "text":
        schema["format"] = field.format
    if field.default is not None:
        schema["default"] = field.default
    return schema


def _of(schema: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    found = schema.get(place)
    return found if isinstance(found, Mapping) else {}


def _resolved(about: Any, defined: Mapping[str, Any], levels: int = 4) -> Any:
    if not isinstance(about, Mapping) or not levels:
        return about
    found = defined.get(str(about.get("$ref")))
    whole = {**found, **about} if isinstance(found, Mapping) else {**about}
    for key in ("anyOf", "oneOf"):
        if isinstance(parts := whole.get(key), list):
            whole[key] = [_resolved(part, defined, levels - 1) for part in parts]
    if "items" in whole:
        whole["items"] = _resolved(whole["items"], defined, levels - 1)
    return whole


def _field(name: str, about: Any, required: bool) -> QuestionField:
    shown = one_line(visible(name))
    if not isinstance(about, Mapping):
        raise ValueError(f"the form's field {shown!r} must be a JSON schema")  # noqa: TRY004  # of what somebody wrote
    about, may_be_null = _without_null(about)
    words = [about[key] for key in ("title", "description") if isinstance(about.get(key), str) and about[key].strip()]
    field = QuestionField(name=name[:MAX_CHARS], prompt=": ".join(words)[:MAX_CHARS], required=required and not may_be_null)
    is_many = about.get("type") == "array"
    choices, labels = _choices_of(about.get("items") if is_many else about, shown)
    kind: FieldKind | None = _KINDS.get(about.get("type"))
    if choices:
        kind = "choices" if is_many else "choice"
    if kind is None or (is_many and not choices):
        raise ValueError(
            f"the form's field {shown!r} must be a string, number, integer, boolean, enum, or an array of an enum"
        )
    least, most = (_bound(about.get(key)) for key in _BOUNDS.get(kind, ("", "")))
    written = about.get("format") if kind == "text" else ""
    field = replace(
        field,
        kind=kind,
        choices=choices,
        labels=labels,
        least=least,
        most=most,
        format=written if isinstance(written, str) else "",
    )
    return _with_default(field, about.get("default"))


def _with_default(field: QuestionField, default: Any) -> QuestionField:
    try:
        value = None if default is None else read_value(field, default)
    except ValueError:
        return field
    return replace(field, default=value)


def _without_null(about: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """Return the schema without its alternative `null`, which says that the field may be left out."""
    if isinstance(kinds := about.get("type"), list):
        others: list[Any] = [kind for kind in kinds if kind != "null"]
        return {**about, "type": others[0] if len(others) == 1 else None}, "null" in kinds
    for key in ("anyOf", "oneOf"):
        parts = about.get(key)
        if isinstance(parts, list) and {"type": "null"} in parts:
            others = [part for part in parts if part != {"type": "null"}]
            rest = {name: value for name, value in about.items() if name != key}
            if len(others) == 1 and isinstance(others[0], Mapping):
                return {**others[0], **rest}, True
            return {**rest, key: others}, True
    return about, False


def _choices_of(about: Any, shown: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if not isinstance(about, Mapping):
        return (), ()
    values, labels = about.get("enum"), about.get("enumNames")
    if not isinstance(values, list):
        parts: list[Any] = next((about[key] for key in ("oneOf", "anyOf") if isinstance(about.get(key), list)), [])
        if not all(isinstance(part, Mapping) and "const" in part for part in parts):
            return (), ()
        values, labels = [part["const"] for part in parts], [part.get("title", part["const"]) for part in parts]
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"the choices of the form's field {shown!r} must be texts")
    if len(values) > MAX_CHOICES:
        raise ValueError(f"the form's field {shown!r} must have at most {MAX_CHOICES} choices: it has {len(values):,}")
    if not isinstance(labels, list) or len(labels) != len(values) or labels == values:
        return tuple(values), ()
    return tuple(values), tuple(str(label)[:MAX_CHARS] for label in labels)


def _bound(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
