"""What the model is told of each tool is data; here it is held against the code."""

import json
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from freeact_sub.tools import TOOL_NAMES, TOOLS, load_definition

FOLDER = Path(__file__).parents[3] / "tools"


def test_every_file_has_a_tool_and_every_tool_a_file():
    assert {path.stem for path in FOLDER.glob("*.json")} == TOOL_NAMES


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_the_file_says_what_the_code_does(tool):
    told = json.loads((FOLDER / f"{tool.name}.json").read_text())
    assert set(told) - {"metadata"} == {"name", "description", "parameters_json_schema"}
    assert told["name"] == tool.name
    assert told == {name: getattr(load_definition(tool.name), name) for name in told}
    assert told.get("metadata") in (None, {"small_profile": False})
    code = TypeAdapter(tool.arguments).json_schema()
    assert_same(told["parameters_json_schema"], code, code.get("$defs", {}))


def assert_same(told, code, definitions):
    """A schema says what the code's does, and describes each argument; what stands inside it as well."""
    if "$ref" in code:
        code = definitions[code["$ref"].rpartition("/")[2]]
    written = {name: item for name, item in told.items() if name not in ("description", "properties", "items")}
    known = ("title", "description", "properties", "items", "$defs")
    assert written == {name: item for name, item in code.items() if name not in known}
    assert told.get("additionalProperties", False) is False or "properties" not in told
    assert set(told.get("properties", {})) == set(code.get("properties", {}))
    for name, item in told.get("properties", {}).items():
        assert item["description"], name
        assert_same(item, code["properties"][name], definitions)
    if "items" in told or "items" in code:
        assert_same(told["items"], code["items"], definitions)
