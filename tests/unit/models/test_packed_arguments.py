"""Arguments that come inside a text are found there; text that only looks like it stays what it is."""

import json
import random
from typing import Any

import pytest
from support.tables import each
from support.thorough import examples

from freeact_sub.models.arguments import repaired

CELL = {"properties": {"code": {"type": "string"}}, "required": ["code"]}
PLAN = {"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a", "b"]}
CODE = {"code": "print(41)"}


@each(
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


@each("schema", [CELL, PLAN])
@each("args", [json.dumps(CODE), '{"a": 1, "b": "x"}', "{}", "", "[1]", "null"])
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


WITH_WORDS = {"properties": {**CELL["properties"], "description": {"type": "string"}}, "required": ["code"]}
TEXT = json.dumps({"code": "print(6 * 7)"})
NEARLY = [
    TEXT + "}",
    TEXT + "}]",
    TEXT + '""',
    TEXT + " done",
    TEXT + "</tool_call>",
    TEXT + "\\n",
    TEXT + "," + TEXT,
    TEXT[1:],
    f"\ufeff{TEXT}",
    f"\\n{TEXT}",
    f"<tool_call>\n{TEXT}\n</tool_call>",
    f"<arguments>{TEXT}",
    f"```json\n{TEXT}}}\n```",
    f"```json\n{TEXT}\n```\nand that is all",
    f"Arguments: {TEXT}",
    f"json\n{TEXT}",
    """{"code": \"\"\"print(6 * 7)\"\"\"}""",
    '{"code": "print(6 * 7)", \\n"description": "x"}',
    '{\\n\\t"code": "print(6 * 7)"\\n}',
    '{"code": "print(6 * 7)",}',
    json.dumps(TEXT + "}"),
    json.dumps({"code": TEXT}),
    json.dumps({"code": TEXT + "}"}),
    json.dumps({"code": '{"code": "print(6 * 7)", \\n"description": "x"}'}),
]
REFUSED = [
    TEXT.replace('"', '\\"'),
    "{'code': 'print(6 * 7)'}}",
    TEXT[:-2],
    TEXT[:-9],
    json.dumps(TEXT)[:-9],
    json.dumps({"code": TEXT[:-9]}),
    '{"code": "print("hi")"}',
    '{"code" "print(1)"}',
    '{code: "print(1)"}',
    '{"code": "1" "description": "x"}',
    "{'code': 'print(1)', 'done': true}",
    '{"code": "print(1)"}{"code": "print(2)"}',
    '{{"code": "print(1)"}}',
    '[{"code": "print(1)"}]',
]
CODES = [
    '{"x": 1}["x"]',
    'x = {"code": 1}',
    'print({"code": "x"})',
    "{code: n for code, n in x}",
    "{1, 2}",
    'json = {"code": "1"}',
]
SHOWN = [*CODES, '{"code": r.status_code, "text": r.text}', '{"code": 404}', "{'code': 'x', 'n': 1}['n']"]


@each("args", NEARLY)
def test_an_object_that_is_nearly_json_is_read_up_to_its_end(args: str) -> None:
    made = repaired(args, WITH_WORDS)
    assert {name: value for name, value in made.items() if name != "description"} == {"code": "print(6 * 7)"}


@each("args", REFUSED)
def test_one_that_cannot_be_read_is_never_code(args: str) -> None:
    made = repaired(args, WITH_WORDS)
    assert not isinstance(made, dict), "no object: the arguments are wrong"


def test_code_that_looks_a_little_like_it_is_code() -> None:
    for code in CODES:
        assert repaired(code, WITH_WORDS) == {"code": code}
    for code in SHOWN:
        assert repaired({"code": code}, WITH_WORDS) == {"code": code}


def test_however_json_is_damaged_its_text_is_not_the_code() -> None:
    for number in range(examples(20_000)):
        source = random.Random(number)
        text = list(json.dumps({"code": source.choice(["print(41)", 'print("a")\nx = {"b": 1}']), "description": "x"}))
        for _ in range(source.randrange(1, 4)):
            place = source.randrange(len(text))
            text[place : place + source.randrange(2)] = source.choice(
                ["", "}", '"', "\\n", "\n", "<b>", "'", "\ufeff", " ok "]
            )
        if text[:2] != ["{", '"'] and '"code":' not in "".join(text):
            continue  # nothing tells any more that it was an object
        made = repaired("".join(text), WITH_WORDS)
        code = made.get("code", "") if isinstance(made, dict) else ""
        assert "description" not in code, "".join(text)
        assert not code.lstrip().startswith('{"code'), "".join(text)


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
