"""What code gets of a tool: a type by its output schema, objects for pictures and bytes."""

import base64
import inspect
import pickle
from typing import Any, Literal

from support.tables import each

from freeact_sub.kernels.guest import mcp as contents

WEATHER = {
    "type": "object",
    "title": "Weather",
    "properties": {"city": {"type": "string", "description": "Where"}, "degrees": {"type": "number"}},
    "required": ["city"],
}


@each(
    ("schema", "shown"),
    [
        (WEATHER, "Weather"),
        ({"type": "object", "properties": {"result": {"type": "integer"}}}, "int"),
        ({"type": "object", "properties": {"result": {"type": "array", "items": WEATHER}}}, "list[Weather]"),
        (
            {"type": "object", "properties": {"result": {"$ref": "#/$defs/W"}}, "$defs": {"W": WEATHER}},
            "Weather",
        ),
        ({"enum": ["a", "b"]}, "Literal['a', 'b']"),
        ({"type": ["string", "null"]}, "Optional[str]"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "Union[int, str]"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "dict[str, int]"),
        ({"type": "object"}, "dict[str, Any]"),
        ({"type": "any"}, "Any"),
        ({"$ref": "#/$defs/missing"}, "Any"),
        ({"$ref": "#", "$defs": {}}, "Any"),
        ({"anyOf": []}, "Any"),
        (None, "Any"),
        (True, "Any"),
    ],
)
def test_a_schema_becomes_a_type_that_a_signature_shows(schema: Any, shown: str) -> None:
    kind = contents.type_of(contents.unwrapped(schema), "Result")
    since_314 = {"Union[int, str]": "int | str", "Optional[str]": "str | None"}
    assert inspect.formatannotation(kind).replace("typing.", "") in (shown, since_314.get(shown))


def test_help_lists_the_fields_of_what_is_returned() -> None:
    assert contents.lines_of(WEATHER)[2:] == [
        "    a dict with",
        "        city (str): Where",
        "        degrees (float)",
    ]
    assert contents.lines_of({"type": "integer"}) == []


def test_a_type_keeps_which_fields_may_be_missing() -> None:
    kind = contents.type_of(WEATHER, "Result")
    assert kind.__required_keys__ == {"city"}
    assert contents.type_of({"enum": ["a"]}, "x") == Literal["a"]


def test_blocks_become_text_bytes_and_pictures() -> None:
    data = base64.b64encode(b"\x89PNG").decode()
    picture = {"type": "image", "data": data, "mimeType": "image/png"}
    link = {"type": "resource_link", "uri": "demo://a", "name": "a"}
    bad = {"type": "image", "data": "%%", "mimeType": "image/png"}
    text = {"type": "resource", "resource": {"uri": "demo://t", "text": "words"}}
    blob = {"type": "resource", "resource": {"uri": "demo://b", "blob": data}}
    parts = contents.of_blocks([{"type": "text", "text": "one"}, picture, link, bad, text, blob])
    assert isinstance(parts, contents.Contents)
    assert parts == ["one", b"\x89PNG", link, bad, "words", b"\x89PNG"]
    alone = contents.of_blocks([picture])
    assert isinstance(alone, contents.Blob)
    assert alone._repr_mimebundle_() == {"text/plain": "<4 bytes of image/png>", "image/png": data}
    assert parts[5]._repr_mimebundle_() == {"text/plain": "<4 bytes of unknown type>"}
    again = pickle.loads(pickle.dumps(alone))
    assert (again, again.mime_type, repr(again)) == (b"\x89PNG", "image/png", "<4 bytes of image/png>")
