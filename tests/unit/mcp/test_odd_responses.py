"""Whatever a server lists or answers, nothing raises, the good tool works, and what is left out is told."""

import json
import random
from types import SimpleNamespace
from typing import Any

import pytest
from mcp_types import CallToolResult, ListToolsResult
from mcp_types.methods import validate_server_result
from pydantic_ai.profiles.google import GoogleJsonSchemaTransformer
from pydantic_ai.profiles.openai import OpenAIJsonSchemaTransformer
from support import odd_values
from support.tables import each
from support.thorough import examples

from freeact_sub.mcp.envelopes import opened, sealed, sound_schema
from freeact_sub.mcp.offers import McpResult, read_result

GOOD = {
    "name": "good",
    "description": "Good.",
    "inputSchema": {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]},
}
VERSIONS = ("2024-11-05", "2025-11-25", "2026-07-28")
NUMBER = 10_000


def listed(result: dict[str, Any]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    order = sealed("tools/list", result)
    for version in VERSIONS:
        validate_server_result("tools/list", version, order)
    page = ListToolsResult.model_validate(order, by_name=False)
    told = opened(page)
    assert [tool["name"] for tool in told["tools"]] == [tool.name for tool in page.tools]
    return {tool.name: tool.input_schema for tool in page.tools}, told["notes"]


def read(answer: dict[str, Any]) -> McpResult:
    order = sealed("tools/call", answer)
    for version in VERSIONS:
        validate_server_result("tools/call", version, order)
    return read_result(CallToolResult.model_validate(order, by_name=False))


def check_strict(value: Any) -> None:
    json.dumps(value, allow_nan=False, ensure_ascii=False).encode()


def test_one_odd_tool_costs_no_other_tool() -> None:
    for number in range(examples(NUMBER)):
        result = odd_values.tool_list(random.Random(number), GOOD)
        tools, notes = listed(result)
        assert tools["good"] == GOOD["inputSchema"], number
        named = {tool["name"] for tool in result["tools"] if isinstance(tool, dict) and isinstance(tool.get("name"), str)}
        assert tools.keys() == named, number
        nameless = sum(not (isinstance(tool, dict) and isinstance(tool.get("name"), str)) for tool in result["tools"])
        assert bool(nameless) == any("have no name" in note for note in notes), number
    print(f"{examples(NUMBER):,} lists of tools")


def test_every_schema_is_one_that_all_providers_take() -> None:
    for number in range(examples(NUMBER)):
        schema = sound_schema(odd_values.schema(random.Random(number)))
        check_strict(schema)
        assert schema["type"] == "object"
        assert not schema.keys() & {"anyOf", "oneOf", "allOf", "not", "enum", "$ref"}, number
        for transformer in (OpenAIJsonSchemaTransformer, GoogleJsonSchemaTransformer):
            transformer(json.loads(json.dumps(schema))).walk()
    print(f"{examples(NUMBER):,} schemas")


def test_whatever_a_tool_answers_is_read() -> None:
    for number in range(examples(NUMBER)):
        answer = odd_values.answer(random.Random(number))
        if answer.get("resultType") == "input_required":
            continue
        result = read(answer)
        check_strict([result.value, result.text, result.sections])
        blocks = answer.get("content")
        if isinstance(blocks, list) and len(blocks) > len(result.images):  # each block is a picture or has a text
            assert len(result.sections or [result.text]) + len(result.images) == len(blocks), number
    print(f"{examples(NUMBER):,} answers of tools")


@each(
    ("schema", "sound"),
    [
        (None, {"type": "object"}),
        ({"type": "string"}, {"type": "object"}),
        ({"type": ["object", "null"], "properties": {"a": "string"}}, {"type": "object", "properties": {"a": {}}}),
        ({"required": "a"}, {"type": "object"}),
        ({"required": ["a", "a", 5]}, {"type": "object", "required": ["a"], "properties": {"a": {}}}),
        ({"properties": {"a": {"type": "float"}}}, {"type": "object", "properties": {"a": {}}}),
        ({"properties": {"a": {"type": "array"}}}, {"type": "object", "properties": {"a": {"type": "array", "items": {}}}}),
        ({"properties": {"a": {"default": float("nan")}}}, {"type": "object", "properties": {"a": {"default": None}}}),
        ({"properties": {"a": {"$ref": "#/$defs/B"}}}, {"type": "object", "properties": {"a": {}}}),
        ({"properties": {"a": {"$ref": "#"}}}, {"type": "object", "properties": {"a": {}}}),
        (
            {"oneOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]},
            {"type": "object", "properties": {"a": {}, "b": {}}},
        ),
        ({"description": "half \ud83d"}, {"type": "object", "description": "half \\ud83d"}),
    ],
)
def test_what_json_schema_does_not_allow_is_left_out(schema: Any, sound: dict[str, Any]) -> None:
    assert sound_schema(schema) == sound


def test_a_schema_without_end_is_one_that_ends() -> None:
    schema: dict[str, Any] = {}
    for _ in range(3_000):
        schema = {"type": "object", "properties": {"a": schema}}
    check_strict(sound_schema(schema))


@each(
    ("answer", "value", "text"),
    [
        ({"content": None}, "", ""),
        ({"content": "plain"}, "plain", "plain"),
        ({"content": {"type": "text", "text": "one"}}, "one", "one"),
        ({"content": [{"type": "text", "text": None}]}, "null", "null"),
        ({"content": [{"type": "text", "text": "a"}], "_meta": 5, "isError": None}, "a", "a"),
        ({"content": [{"type": "text", "text": "a", "annotations": {"priority": 9}}]}, "a", "a"),
        ({"content": [], "structuredContent": [1, 2]}, [1, 2], "[1, 2]"),
        (
            {"content": [], "structuredContent": {"mean": float("nan"), "n": 1}},
            {"mean": None, "n": 1},
            '{"mean": null, "n": 1}',
        ),
        ({"toolResult": 5}, {"toolResult": 5}, '{"toolResult": 5}'),
    ],
)
def test_an_odd_answer_is_read_for_what_it_says(answer: dict[str, Any], value: Any, text: str) -> None:
    result = read(answer)
    assert (result.value, result.text, result.is_error) == (value, text, False)


def test_a_block_that_is_not_known_is_told_with_all_that_it_has() -> None:
    video = {"type": "video", "data": "AAEC"}
    result = read({"content": [{"type": "text", "text": "see"}, video]})
    assert result.value == [{"type": "text", "text": "see"}, video]
    assert result.text == 'see\n[a block of a kind that is not known: {"type": "video", "data": "AAEC"}]'


@pytest.mark.parametrize("capabilities", [{"tools": {}}, {"tools": True, "logging": None}, {"tools": [], "prompts": 5}])
def test_a_server_that_greets_oddly_has_its_tools(capabilities: dict[str, Any]) -> None:
    order = sealed("initialize", {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": None})
    validate_server_result("initialize", "2025-11-25", order)
    assert order["capabilities"].pop("tools") == {}
    assert order["capabilities"] in ({}, {"prompts": {}})


@each(
    ("method", "field", "entry", "bad"),
    [
        ("resources/list", "resources", {"uri": "a:b"}, {"name": "no uri"}),
        ("resources/templates/list", "resourceTemplates", {"uriTemplate": "a:{b}"}, {"uriTemplate": 5}),
        ("prompts/list", "prompts", {"name": "p", "arguments": "none"}, {"name": None}),
        ("resources/read", "contents", {"text": "half \ud83d"}, "text"),
        ("prompts/get", "messages", {"role": "nobody", "content": 5}, None),
    ],
)
def test_one_odd_entry_costs_no_other_entry(method: str, field: str, entry: dict[str, Any], bad: Any) -> None:
    for sent in ({field: [bad, entry, bad], "nextCursor": 7}, {field: [entry]}, {field: 5}, {}):
        order = sealed(method, sent)
        for version in VERSIONS:
            validate_server_result(method, version, order)
        entries = opened(SimpleNamespace(meta=order["_meta"]))
        check_strict(entries)
        assert [each.keys() for each in entries] == ([entry.keys()] if isinstance(sent.get(field), list) else [])


@pytest.mark.parametrize("sent", [{}, {"completion": {"values": ["a", 5]}}, {"completion": []}])
def test_an_odd_completion_is_read_for_its_texts(sent: dict[str, Any]) -> None:
    order = sealed("completion/complete", sent)
    validate_server_result("completion/complete", "2025-11-25", order)
    assert order["completion"]["values"] in ([], ["a"])
