"""Types as JSON schemas and back, with pydantic and without; what the host makes of such a schema."""

import dataclasses
import enum
import json
import sys
from typing import Any, Literal, NotRequired, TypedDict

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import ToolCallPart
from support.tables import each

from freeact_sub.agents.ask import MAX_NODES, output_type_of
from freeact_sub.errors import InvalidRequestError
from freeact_sub.kernels.guest.schemas import schema_of
from freeact_sub.testing import ScriptedModel


class Colour(enum.Enum):
    RED = "red"


class Row(TypedDict):
    key: str
    count: NotRequired[int]


@dataclasses.dataclass
class Tree:
    name: str
    rows: list[Row] = dataclasses.field(default_factory=list)
    best: "Tree | None" = None


class Model(BaseModel):
    x: int


VALUES = [
    (int, 3, 3),
    (float, 3, 3.0),
    (bool, True, True),
    (list[str], ["a"], ["a"]),
    (list, [1, "a"], [1, "a"]),
    (tuple[int, str], [1, "a"], (1, "a")),
    (tuple[int, ...], [1, 2], (1, 2)),
    (set[int], [1, 2], {1, 2}),
    (dict[str, float], {"a": 1}, {"a": 1.0}),
    (Literal["a", 1], 1, 1),
    (int | None, None, None),
    (list[int | str], [1, "a"], [1, "a"]),
    (Colour, "red", Colour.RED),
    (Row, {"key": "k"}, {"key": "k"}),
    (dict[str, Any], {"a": [None]}, {"a": [None]}),
    (Tree, {"name": "t", "rows": [{"key": "k", "count": 1}]}, Tree("t", [{"key": "k", "count": 1}])),
]

WRONG = [
    (int, "x"),
    (list[str], ["a", 1]),
    (tuple[int, str], [1]),
    (Literal["a", 1], "b"),
    (int | None, "x"),
    (Colour, "green"),
    (Row, {"count": 1}),
    (Tree, {"name": 1}),
    (dict[str, int], {"a": "b"}),
    (Tree, []),
    (list[int], {}),
]


@pytest.fixture(params=["pydantic", "alone"])
def schemas(request, monkeypatch):
    """Both ways; a module that is None in `sys.modules` is one that is not installed."""
    if request.param == "alone":
        monkeypatch.setitem(sys.modules, "pydantic", None)
    return request.param


@each(("kind", "given", "value"), VALUES, ids=lambda item: str(item)[:30])
def test_a_value_comes_back_as_one_of_its_type(schemas, kind, given, value):
    schema, decode = schema_of(kind)
    json.dumps(schema)
    assert decode(given) == value
    assert type(decode(given)) is type(value)


@each(("kind", "given"), WRONG, ids=lambda item: str(item)[:30])
def test_a_wrong_value_is_refused_with_a_text(schemas, kind, given):
    _, decode = schema_of(kind)
    with pytest.raises(ValueError, match=r"."):
        decode(given)


@each("kind", [json.JSONDecoder, 3, "text"])
def test_what_is_no_type_is_refused(schemas, kind):
    with pytest.raises(TypeError, match="has no JSON schema"):
        schema_of(kind)


def test_a_wrong_value_is_named_by_its_place_without_pydantic(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydantic", None)
    _, decode = schema_of(list[Tree])
    with pytest.raises(ValueError, match=r"the answer\[0\]\.rows\[1\]: missing \['key'\], unknown \['other'\]"):
        decode([{"name": "t", "rows": [{"key": "k"}, {"other": 1}]}])


def test_a_json_schema_is_held_against_values_without_fetching_anything():
    _, decode = schema_of({"type": "array", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"minimum": 3}}})
    assert decode([3]) == [3]
    with pytest.raises(ValueError, match=r"\$\[1\]: 2 is less than the minimum of 3"):
        decode([3, 2])
    _, decode = schema_of({"$ref": "http://127.0.0.1:1/x.json"})
    with pytest.raises(Exception, match="Unresolvable"):
        decode(1)


async def never_wrong(value):
    del value
    return ""


@each(
    ("schema", "answer", "value"),
    [
        ({"type": "integer"}, {"value": 3}, 3),
        ({"type": "object", "properties": {"value": {}}}, {"value": 3}, {"value": 3}),
        ({"type": "array", "items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"type": "string"}}}, {"value": ["x"]}, ["x"]),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"value": None}, None),
        ({}, {"value": [1]}, [1]),
    ],
)
async def test_the_host_asks_for_it_and_unwraps_it(schema, answer, value):
    seen = []

    def script(messages, info):
        seen.append(info.output_tools[0].parameters_json_schema)
        return ToolCallPart("hand_over", answer)

    agent = Agent(ScriptedModel(script), output_type=output_type_of(schema, never_wrong))
    async with agent.run_stream("p") as run:
        assert await run.get_output() == value
    assert "$defs" not in json.dumps(seen) or "$ref" not in json.dumps(seen)


def nested(levels):
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


BOMB = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/a0"}},
    "$defs": {f"a{i}": {"anyOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 4} for i in range(10)} | {"a10": {}},
}


@each(
    ("schema", "why"),
    [
        (nested(200), "levels deep"),
        (BOMB, f"more than {MAX_NODES:,} parts"),
        ({"enum": list(range(20_000))}, f"more than {MAX_NODES:,} parts"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}, "a contains itself"),
        ({"$ref": "file:///etc/passwd"}, "not in its"),
        ({"$ref": "#/$defs/b", "$defs": {}}, "not in its"),
        ({"$ref": {"a": 1}, "$defs": []}, "not in its"),
    ],
)
def test_the_host_refuses_a_schema_that_would_cost_it_dear(schema, why):
    with pytest.raises(InvalidRequestError, match=why):
        output_type_of(schema, never_wrong)
