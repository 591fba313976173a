"""What the model is told of each tool is data; here it is held against the code."""

import json
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from freeact_sub.tools import ExecuteIPythonCell, ResetKernel, Task, load_definition

TOOLS = [ExecuteIPythonCell(), ResetKernel(), Task()]
FOLDER = Path(__file__).parents[2] / "tools"


def test_every_file_has_a_tool_and_every_tool_a_file():
    assert {path.stem for path in FOLDER.glob("*.json")} == {tool.name for tool in TOOLS}


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_the_file_says_what_the_code_does(tool):
    told = json.loads((FOLDER / f"{tool.name}.json").read_text())
    assert set(told) == {"name", "description", "parameters_json_schema"}
    assert told["name"] == tool.name
    assert told == {
        "name": load_definition(tool.name).name,
        "description": load_definition(tool.name).description,
        "parameters_json_schema": load_definition(tool.name).parameters_json_schema,
    }
    schema, code = told["parameters_json_schema"], TypeAdapter(tool.arguments).json_schema()
    assert schema.get("required", []) == code.get("required", [])
    assert schema["additionalProperties"] is code["additionalProperties"] is False
    assert set(schema["properties"]) == set(code["properties"])
    for name, item in schema["properties"].items():
        assert item["description"], name
        in_code = {key: value for key, value in code["properties"][name].items() if key != "title"}
        assert {key: value for key, value in item.items() if key != "description"} == in_code
