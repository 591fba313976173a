"""Foreign names that are no Python names, or become one: each tool and argument can be called, and help tells how."""

import inspect
import keyword
import random
from typing import Any

import pytest
from support import odd_values
from support.tables import each
from support.thorough import examples

from freeact_sub.calls import MAX_NAME_CHARS, mcp_tool_name
from freeact_sub.features.mcp_client.toolset import PLAIN_NAME, _with_plain_names, free_name
from freeact_sub.kernels.guest import mcp as guest


class Host:
    """Answers for the host: it offers tools, and a call returns what would be sent."""

    def __init__(self, tools: list[dict[str, Any]]) -> None:
        self.tools = tools

    def ask(self, method: str, **params: Any) -> Any:
        assert (method, params["server"]) == ("mcp_tools", "w")
        return {"version": "1", "tools": self.tools}

    def call(self, method: str, **params: Any) -> Any:
        assert method == "mcp_call"
        return params["tool"], params["args"]


def tool(name: str, *arguments: str, **schema: Any) -> dict[str, Any]:
    properties = {argument: {"type": "string"} for argument in arguments}
    return {
        "name": name,
        "description": "",
        "parameters_json_schema": {"type": "object", "properties": properties, **schema},
    }


def server(*tools: dict[str, Any]) -> guest.Namespace:
    return guest.server_namespace(Host(list(tools)), "w", "agent.mcp.w")


OTHERS = ("prompt", "prompts", "read", "resources")
"""Functions for what a server offers besides tools."""
TABLE = [
    (["user-id", "user_id"], ["user_id_2", "user_id"]),
    (["$filter", "filter"], ["argument__filter", "filter"]),
    (["m²", "m2"], ["m2_2", "m2"]),
    ([""], ["argument_"]),
    (["class", "None", "self", "agent"], ["argument_class", "argument_None", "self", "agent"]),
    (["1st", "_x", "a.b"], ["argument_1st", "argument__x", "a_b"]),
    (["ﬁle", "日本", "a b"], ["file", "日本", "a_b"]),
    (["a-b", "a.b", "a b"], ["a_b", "a_b_2", "a_b_3"]),
]


@each(("own", "python"), TABLE)
def test_each_argument_has_a_python_name_of_its_own(own: list[str], python: list[str]) -> None:
    function = server(tool("find", *own)).find
    assert list(inspect.signature(function).parameters) == python
    assert function(**{name: number for number, name in enumerate(python)}) == (
        "find",
        dict(zip(own, range(9), strict=False)),
    )
    assert function(**dict.fromkeys(own, 1)) == ("find", dict.fromkeys(own, 1))
    for name, own_name in zip(python, own, strict=True):
        assert (f"The server calls it {own_name!r}" in inspect.getdoc(function)) == any(
            other != theirs for other, theirs in zip(python, own, strict=True) if theirs == own_name
        ), name


@each(("own", "python"), TABLE)
def test_each_tool_has_a_python_name_of_its_own_and_answers_to_the_servers(own: list[str], python: list[str]) -> None:
    tools = server(*map(tool, own))
    names = [name.replace("argument_", "tool_") for name in python]
    assert dir(tools) == sorted([*names, *OTHERS])
    assert [getattr(tools, name)() for name in names] == [tools[name]() for name in own] == [(name, {}) for name in own]


def test_an_argument_that_is_given_by_both_names_is_refused() -> None:
    with pytest.raises(TypeError, match="given twice"):
        server(tool("find", "user-id")).find(**{"user-id": 1, "user_id": 2})


def test_arguments_that_are_not_listed_go_through_whatever_the_listed_ones_are_called() -> None:
    find = server(tool("find", "extra_arguments", additionalProperties=True)).find
    assert find(extra_arguments=1, **{"more-of-it": 2}) == ("find", {"extra_arguments": 1, "more-of-it": 2})


def test_random_names_can_all_be_called() -> None:
    for number in range(examples(10_000)):
        source = random.Random(number)
        own = list({"".join(source.choice("aA1_-. $²ﬁé日\ud83d") for _ in range(source.randrange(4))) for _ in range(4)})
        names = guest.python_names(own)
        assert list(names.values()) == own
        for name in names:
            assert name.isidentifier(), (number, name)
            assert not name.startswith("_")
            assert not keyword.iskeyword(name)
        schema, plain = _with_plain_names({"type": "object", "properties": {name: {} for name in own}, "required": own})
        assert sorted(plain.values()) == sorted(own)
        assert list(schema["properties"]) == schema["required"]
        assert all(map(PLAIN_NAME.fullmatch, schema["properties"]))
    print(f"{examples(10_000):,} lists of names")


def test_a_thousand_tools_whose_names_agree_at_the_beginning_have_names() -> None:
    taken: set[str] = {"reset_kernel"}
    for _ in range(1_000):
        taken.add(free_name(mcp_tool_name("w", "x" * 100), taken.__contains__))
    assert len(taken) == 1_001
    assert max(map(len, taken)) == MAX_NAME_CHARS
    assert free_name(mcp_tool_name("reset", "kernel"), taken.__contains__) == "reset_kernel_2"


def test_random_schemas_have_a_signature() -> None:
    from freeact_sub.mcp.envelopes import sound_schema  # the guest's code gets it from the host

    for number in range(examples(10_000)):
        schema = sound_schema(odd_values.schema(random.Random(number)))
        function = server({"name": "t", "description": "", "parameters_json_schema": schema}).t
        properties = schema.get("properties", {})
        assert function(**dict.fromkeys(properties, 1)) == ("t", dict.fromkeys(properties, 1)), number
        assert inspect.getdoc(function)


def test_a_tool_named_as_one_of_our_functions_keeps_its_name() -> None:
    tools = server(tool("read", "path"), tool("read_"), tool("prompts"))
    assert dir(tools) == ["prompt", "prompts", "prompts_", "read", "read_", "read__", "resources"]
    assert tools.read("a") == ("read", {"path": "a"})
    assert tools["read_"]() == ("read_", {})
    assert inspect.signature(tools.read__).parameters.keys() == {"uri"}
