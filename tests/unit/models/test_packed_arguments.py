"""Arguments that come inside a text are found there; text that only looks like it stays what it is."""

import json
import random
from typing import Any

import pytest
from support.thorough import examples

from freeact_sub.models.small.arguments import repaired

CELL = {"properties": {"code": {"type": "string"}}, "required": ["code"]}
PLAN = {"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a", "b"]}
CODE = {"code": "print(41)"}


@pytest.mark.parametrize(
    ("args", "schema", "expected"),
    [
        (json.dumps(json.dumps(CODE)), CELL, CODE),
        (json.dumps(json.dumps(json.dumps(CODE))), CELL, CODE),
        (f"```json\n{json.dumps(CODE)}\n```", CELL, CODE),
        (f"```\n{json.dumps(CODE)}\n```", CELL, CODE),
        (json.dumps(json.dumps({"a": 1, "b": "x"})), PLAN, {"a": 1, "b": "x"}),
        (json.dumps("{'x': 1}"), CELL, {"code": "{'x': 1}"}),
        (json.dumps('{"x": 1}'), CELL, {"code": '{"x": 1}'}),
        ('{"code": "print(\'\\ud83d\')"}', CELL, {"code": "print('\\ud83d')"}),
        ("{}" + json.dumps(CODE), CELL, CODE),
        (json.dumps(CODE) * 2, CELL, CODE),
        (f"{json.dumps(CODE)}\n{json.dumps(CODE)} ", CELL, CODE),
        ('{} {"a": 1, "b": "x"}', PLAN, {"a": 1, "b": "x"}),
        ('{"a": 1, "b": "\\ud83d"}', PLAN, {"a": 1, "b": "\\ud83d"}),
    ],
)
def test_arguments_are_found(args: str, schema: dict[str, Any], expected: dict[str, Any]) -> None:
    assert repaired(args, schema) == expected


@pytest.mark.parametrize("schema", [CELL, PLAN])
@pytest.mark.parametrize("args", [json.dumps(CODE), '{"a": 1, "b": "x"}', "{}", "", "[1]", "null"])
def test_valid_arguments_and_what_is_none_stay(args: str, schema: dict[str, Any]) -> None:
    made = repaired(args, schema)
    assert made == args or isinstance(made, dict)
    if args == json.dumps(CODE) and schema is CELL:
        assert made is args


@pytest.mark.parametrize(
    "args", ['{"a": 1, "b": "x"}{"a": 2, "b": "x"}', '{"a": 1, "b": "x"}' * 9, '{"a": 1, "b": "x"} and more']
)
def test_of_several_objects_none_is_chosen(args: str) -> None:
    assert repaired(args, PLAN) == args


def test_whatever_a_model_writes_nothing_raises() -> None:
    for number in range(examples(10_000)):
        source = random.Random(number)
        text = list(source.choice((json.dumps(CODE), json.dumps(json.dumps(CODE)), f"```json\n{json.dumps(CODE)}\n```")))
        for _ in range(source.randrange(4)):
            text[source.randrange(len(text))] = source.choice('{}[]"\\`\n\ud83dé0')
        made = repaired("".join(text), CELL)
        if isinstance(made, dict):
            json.dumps(made, ensure_ascii=False).encode()
    print(f"{examples(10_000):,} arguments of a model")
