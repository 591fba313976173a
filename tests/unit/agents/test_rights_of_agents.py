"""What an agent may: that of its parent, narrowed by its type and by the list of tools with which it was started."""

import pytest

from freeact_sub.agents.rights import AgentType, Rights
from freeact_sub.calls import CodeAction, McpCall, ShellCommand, SpawnCall, ToolCall
from freeact_sub.config.schema import McpServerConfig
from freeact_sub.errors import ApprovalDeniedError

ONE, TWO = McpServerConfig(command="one"), McpServerConfig(command="two")


def kind(name, **settings):
    return AgentType(name=name, description=name, **settings)


def tools_of(rights, names="task delegate ask reset_kernel units_add"):
    return " ".join(filter(rights.has_tool, names.split()))


def test_tools():
    picky = kind("picky", allow=("task", "units_*", "reset_kernel"), deny=("reset_*",))
    alone = kind("alone", deny=("task",))
    at_picky = Rights().for_child(picky)
    for said, rights, tools in [
        ("all", Rights(), "task delegate ask reset_kernel units_add"),
        ("none", Rights().for_child(kind("none", allow=())), ""),
        ("deny overrides allow", at_picky, "task units_add"),
        ("a plain child has its parent's type", at_picky.for_child(), "task units_add"),
        (
            "allow is for its own agents, deny for all below",
            at_picky.for_child(kind("other")),
            "task delegate ask units_add",
        ),
        ("task stands for all that start children", Rights().for_child(alone), "ask reset_kernel units_add"),
        ("a list is for all below", Rights().for_child(None, ("ask", "task")).for_child(alone), "ask"),
        ("of two lists, what is in both", Rights().for_child(None, ("ask", "task")).for_child(None, ("t*", "u*")), "task"),
    ]:
        assert tools_of(rights) == tools, said


def test_the_nearest_type_that_denies_is_named():
    outer, inner = kind("outer", deny=("ask", "task")), kind("inner", deny=("ask",))
    rights = Rights().for_child(outer).for_child(inner)
    assert [denied and denied.name for denied in map(rights.denied_by, ("ask", "task", "reset_kernel"))] == [
        "inner",
        "outer",
        None,
    ]
    assert rights.type_name == "inner"
    assert [each.name for each in rights.for_child(outer).types] == ["outer", "inner"], "each once"


def test_servers_skills_and_types_are_those_of_the_parent_that_the_type_leaves():
    boss = kind("boss", mcp=("a",), servers={"own": TWO}, skills=("x", "y"), allow_agents=("worker",))
    worker = kind("worker", mcp=(), skills=("y", "z"), allow_agents=())
    root = Rights(servers={"a": ONE, "b": ONE}, startable={each.name: each for each in (boss, worker)})
    first = root.for_child(boss)
    second = first.for_child(worker)
    assert [({*each.servers}, each.skills, {*each.startable}) for each in (root, first, second)] == [
        ({"a", "b"}, None, {"boss", "worker"}),
        ({"a", "own"}, {"x", "y"}, {"worker"}),
        (set(), {"y"}, set()),
    ]
    assert first.for_child(kind("other", skills=())).skills == frozenset()


def test_agents_with_the_same_tools_and_servers_have_equal_rights():
    boss = kind("boss", deny=("ask",), mcp=("a",), servers={"own": TWO})
    rights = Rights(servers={"a": ONE}).for_child(boss, ("task",))
    assert rights == rights.for_child() == rights.for_child(boss) == rights.for_child(None, ("task",))
    assert rights not in (rights.for_child(kind("other")), rights.for_child(None, ("ask",)))


@pytest.mark.parametrize("names", [(), ("picky",)])
def test_code_is_refused_what_its_agent_does_not_have(names):
    rights = Rights()
    for name in names:
        rights = rights.for_child(kind(name))
    rights = rights.for_child(None, ("execute_ipython_cell", "my_server_add"))
    allowed = [CodeAction(code="1"), McpCall(server="my server", tool="add"), ShellCommand(command="ls")]
    for call in allowed:
        rights.check(call)
    for call, tool in [
        (SpawnCall(prompt="p"), "task"),
        (ToolCall(tool_name="ask", args={}), "ask"),
        (McpCall(server="a", tool="b"), "a_b"),
    ]:
        who = "agents of type 'picky' do" if names else "this agent does"
        with pytest.raises(ApprovalDeniedError, match=f"{who} not have the tool {tool}$"):
            rights.check(call)
