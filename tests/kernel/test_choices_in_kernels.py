"""What code in a cell chooses for a child, and what the child's own code may do then."""

import pytest
from support.agents import cell, of_kind, read, root_text, task

from freeact_sub.config.schema import ModelsConfig
from freeact_sub.events import AgentStarted, CodeExecutionOutput
from freeact_sub.testing import ScriptedModel

pytestmark = pytest.mark.kernel


async def test_code_chooses_a_model_and_reads_in_a_sentence_which_there_are(make):
    code = """
print(agent.task("a", model="small", thinking="low", history=1).output)
for wrong in ({"model": "openai-chat:x"}, {"history": True}, {"thinking": "much"}, {"tools": ["nothing"]}):
    try:
        agent.task("b", **wrong)
    except ValueError as error:
        print(error)
"""
    small = ScriptedModel({"root": ["the last exchange", "small answers"]}, name="small")
    script = {"root": [[cell(code)], "done"]}
    async with make(script, mode="auto", models=ModelsConfig(small=small)) as agent:
        events, _ = await read(agent.run("root"))
    lines = root_text(events).splitlines()
    assert lines[0] == "small answers"  # the second turn of a conversation that began with the parent's prompt
    assert "there is no model 'openai-chat:x'" in lines[1]
    assert "inherit, small" in lines[1]
    assert ["history" in lines[2], "thinking" in lines[3], "there is no tool 'nothing'" in lines[4]] == [True] * 3
    assert [event.model.rpartition(":")[2] for event in of_kind(events, AgentStarted)][1:] == ["small"]


async def test_a_list_of_tools_counts_in_the_childs_cells(make):
    code = """
for call in (lambda: agent.ask("?"), lambda: agent.task("below"), lambda: agent.children.list()):
    try:
        print(call())
    except PermissionError as error:
        print("refused:", error)
"""
    script = {"root": [task("work", tools=["execute_ipython_cell"]), "done"], "work": [[cell(code)], "done"]}
    async with make(script, mode="full", subagents={"max_depth": 3}) as agent:
        events, _ = await read(agent.run("root"))
    [text] = [event.text for event in of_kind(events, CodeExecutionOutput)]
    assert text.splitlines() == [
        f"refused: denied: this agent does not have the tool {name}" for name in ("ask", "task", "subagents")
    ]


async def test_a_child_with_files_of_its_own_is_a_branch_whose_changes_are_taken_over_when_wanted(make, tmp_path):
    code = """
count = 3
r = agent.task("write", own_files=True, keep=True)
import os
print(os.path.exists("made"), r.output)
agent.promote(r.node)
print(open("made").read())
"""
    script = {"root": [[cell(code)], "done"], "write": [[cell("open('made', 'w').write(str(count))")], "written"]}
    async with make(script, mode="auto") as agent:
        events, _ = await read(agent.run("root"))
    assert root_text(events).splitlines() == ["False written", "3"]


async def test_a_type_can_give_each_of_its_agents_files_of_their_own(make, tmp_path):
    (tmp_path / "types").mkdir()
    (tmp_path / "types/tries.md").write_text("---\ndescription: Tries.\nown_files: true\n---\n")
    script = {"root": [task("write", agent="tries"), "done"], "write": [[cell("open('made', 'w').write('x')")], "written"]}
    async with make(script, mode="auto", agent_folders=(tmp_path / "types",)) as agent:
        _, result = await read(agent.run("root"))
    assert result.status == "completed"
    assert not (tmp_path / "made").exists()


async def test_a_resumed_child_with_files_of_its_own_has_a_copy_again(make):
    code = """
import os
r = agent.task("write", own_files=True)
again = agent.task("once more", resume=r.agent_id)
print(r.output, again.output, os.path.exists("made"))
"""
    writes = cell("open('made', 'w').write('x')")
    script = {"root": [[cell(code)], "done"], "write": [[writes], "written", [writes], "again"]}
    async with make(script, mode="auto") as agent:
        events, _ = await read(agent.run("root"))
    assert root_text(events).splitlines() == ["written again False"]


async def test_variables_come_from_a_child_with_the_same_list_of_tools_and_not_from_one_with_less(make):
    code = """
agent.adopt(agent.task("make", keep=True).node, ["made"])
print(made)
try:
    agent.adopt(agent.task("make", keep=True, tools=["execute_ipython_cell"]).node, ["made"])
except Exception as error:
    print(str(error).partition(" has ")[2].partition(", and")[0])
"""
    script = {
        "root": [task("work", tools=["execute_ipython_cell", "task"]), "done"],
        "work": [[cell(code)], "done"],
        "make": [[cell("made = 3")], "made"],
    }
    async with make(script, mode="full", subagents={"max_depth": 2}) as agent:
        events, _ = await read(agent.run("root"))
    [text] = [event.text for event in of_kind(events, CodeExecutionOutput) if event.depth == 1]
    assert text.splitlines() == ["3", "another mode, type or list of tools than the agent that would adopt its variables"]
