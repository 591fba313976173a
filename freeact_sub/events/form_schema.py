"""JSON schemas of forms, as models and MCP servers write them: `fields_of` reads one, `values_schema` writes it.

A form is a flat object of texts, numbers, yes or no, and choices, which is what MCP's elicitation allows. Choices are an
`enum` (with `enumNames`, if need be), or alternatives of `const` and `title`; an array of choices takes several of them.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from freeact_sub.events.forms import CONFIRMATION, FieldKind, PersonQuestion, QuestionField, read_value
from freeact_sub.text import one_line, visible

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
    choices, labels = _choices(about.get("items") if is_many else about, shown)
    kind: FieldKind | None = _KINDS.get(about.get("type"))
    if choices:
        kind = "choices" if is_many else "choice"
    if kind is None or (is_many and not choices):
        raise ValueError(
            f"the form's field {shown!r} must be a string, number, integer, boolean, enum, or an array of an enum"
        )
    least, most = (_number(about.get(key)) for key in _BOUNDS.get(kind, ("", "")))
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


def _choices(about: Any, shown: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
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


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
