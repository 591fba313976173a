"""What the model is told of each tool is data; here it is held against the code."""

import json
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from support.tables import each

from freeact_sub.features.background import AskParent, Subagents
from freeact_sub.features.mcp_client.toolset import SEARCH
from freeact_sub.features.memory import Remember
from freeact_sub.features.plan import UpdatePlan
from freeact_sub.features.questions import AskUser
from freeact_sub.tools import TOOL_NAMES, AgentToolset, is_harmless, load_definition
from freeact_sub.tools import TOOLS as OF_CORE

FOLDER = Path(__file__).parents[3] / "tools"
TOOLS = (*OF_CORE, Subagents(), AskParent(), AskUser(), UpdatePlan(), Remember())
"""In the order in which a model has them."""


def test_every_file_has_a_tool_and_every_tool_a_file():
    assert {path.stem for path in FOLDER.glob("*.json")} == TOOL_NAMES == {SEARCH, *(tool.name for tool in TOOLS)}
    harmless = {"ask", "ask_parent", "ask_user", "reset_kernel", "search_tools", "subagents", "update_plan"}
    assert {name for name in (*TOOL_NAMES, "a tool of somebody") if is_harmless(name)} == harmless


@pytest.mark.features("background", "memory", "plan", "questions")
async def test_a_model_has_the_tools_in_this_order(make):
    seen = []

    def script(messages, info):
        seen.append([tool.name for tool in info.function_tools])
        return "done"

    async with make(script) as agent:
        await agent.run("go")
    assert seen == [[tool.name for tool in TOOLS if tool.name != "ask_parent"]]


@each("tool", TOOLS, ids=lambda tool: tool.name)
def test_the_file_says_what_the_code_does(tool):
    told = {"parameters_json_schema": load_definition(tool.name).parameters_json_schema}
    told |= json.loads((FOLDER / f"{tool.name}.json").read_text())  # that of `task` is made from the choices for a child
    assert set(told) - {"metadata"} == {"name", "description", "parameters_json_schema"}
    assert told["name"] == tool.name
    assert told == {name: getattr(load_definition(tool.name), name) for name in told}
    assert (told.get("metadata") or {}).items() <= {"harmless": True, "small_profile": False}.items()
    code = TypeAdapter(tool.arguments).json_schema()
    assert_same(told["parameters_json_schema"], code, code.get("$defs", {}))


def test_the_tools_and_instructions_of_a_root_stay_small():
    told = [load_definition(tool.name) for tool in TOOLS if tool.name != "ask_parent"]
    words = [json.dumps([each.name, each.description, each.parameters_json_schema]) for each in told]
    assert sum(map(len, words)) < 7_600, "in characters: leave out what a model does not need, or raise it knowingly"


def assert_same(told, code, definitions):
    """A schema says what the code's does, and describes each argument; what stands inside it as well."""
    if "$ref" in code:
        code = definitions[code["$ref"].rpartition("/")[2]]
    code = plain(code)
    written = {name: item for name, item in told.items() if name not in ("description", "properties", "items")}
    known = ("title", "description", "properties", "items", "$defs")
    assert written == {name: item for name, item in code.items() if name not in known}
    assert set(told.get("properties", {})) == set(code.get("properties", {}))
    for name, item in told.get("properties", {}).items():
        assert item["description"], name
        assert_same(item, code["properties"][name], definitions)
    if "items" in told or "items" in code:
        assert_same(told["items"], code["items"], definitions)


def plain(code):
    """A schema without what each request would pay for and no model needs: what a call may leave out is not said twice."""
    kinds = [kind for kind in code.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) == 1:
        code = {name: item for name, item in code.items() if name != "anyOf"} | kinds[0]
    left_out = {"minLength"} | ({"default"} if code.get("default") in ("", None, False, {}, []) else set())
    left_out |= {"additionalProperties"} if code.get("additionalProperties") is False else set()
    return {name: item for name, item in code.items() if name not in left_out}


def test_hooks_and_people_see_every_argument_of_a_tool_that_touches_only_agents():
    tools = AgentToolset(TOOLS, lambda tool_call_id: None)
    assert tools.call_of("ask", {"prompt": "p"}).args == {"prompt": "p", "model": "", "label": ""}
    assert tools.call_of("update_plan", {"plan": [{"step": "s", "status": "pending"}]}).args["explanation"] == ""
    assert tools.call_of("subagents", {"action": "list"}).args == {"action": "list"}
