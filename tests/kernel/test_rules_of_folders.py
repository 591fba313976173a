"""Instructions of folders with real kernels: read when a cell uses a file there, by each agent once, and never what it wrote."""

import pytest
from support.agents import cell, of_kind, read, task
from support.windows import is_summary_request, text_of

from freeact_sub import Agent, load_config
from freeact_sub.events import Notice
from freeact_sub.testing import ScriptedModel

pytestmark = pytest.mark.kernel


@pytest.fixture
def workspace(tmp_path):
    for folder in ("read", "written", "program", "unused"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "AGENTS.md").write_text(f"Rule of {folder}.")
    (tmp_path / "read/inner").mkdir()
    (tmp_path / "read/inner/data").write_text("1")
    return tmp_path


PROGRAMS = """
import os, subprocess, sys
!cat command/x
subprocess.run(["true", *["-x"] * 300, "--root=" + os.path.abspath("list/inner")])
subprocess.run([sys.executable, "-c", "pass"], cwd="cwd")
os.system("echo; (cd system && true)")
await agent.shell("true 'shell/x:12'", reason="look")
get_ipython().run_cell_magic("bash", "", "cd script\\ntrue")
!ls; echo unnamed.txt /unnamed unnamedx ../unnamed; unnamed/.venv/bin/none
"""


def rules(messages):
    text = text_of(messages)
    return [text.count(f"Rule of {folder}.") for folder in ("read", "written", "program", "unused", "new")]


async def test_a_model_reads_the_rules_of_the_files_that_its_cells_use_and_of_no_others(workspace):
    seen = {}

    def script(messages, info):
        number = len(messages)
        if is_summary_request(messages):
            return "a summary"
        seen.setdefault("root" if "BEGIN" in text_of(messages[:1]) else "child", []).append(rules(messages))
        assert "Rule of" not in str(info.instructions)
        return steps.pop(0) if steps else f"done {number}"

    steps = [
        [cell('print(open("read/inner/data").read())')],
        [cell('open("read/inner/data").read(); open("written/x", "w").write("1")')],
        [
            cell(
                'import os; os.makedirs("new"); open("new/AGENTS.md", "w").write("Rule " "of new.")\nopen("new/x", "w").write("1")'
            )
        ],
        [cell('open("unused/AGENTS.md", "a").write("Rule " "of new.")')],
        [cell("!ls program")],
        [task("look", history="none")],
        [cell('open("read/inner/data").read()')],
        "the child is done",
        [task("look", history="all")],
        [cell('open("read/inner/data").read()')],
        "this child is done",
        "done",
    ]
    config = load_config(workspace, arguments={"mode": "full"})
    async with Agent(config, model=ScriptedModel(script)) as agent:
        events, result = await read(agent.run("BEGIN"))
        assert seen["root"][:5] == [
            [0, 0, 0, 0, 0],
            [1, 0, 0, 0, 0],
            [1, 1, 0, 0, 0],
            [1, 1, 0, 0, 0],
            [1, 1, 0, 1, 0],  # its text as it was at the start
        ]
        assert seen["root"][-4:] == [[1, 1, 1, 1, 0]] * 4, "nothing is read twice"
        assert seen["child"] == [[0, 0, 0, 0, 0], [1, 0, 0, 0, 0]]
        notices = [event.content for event in of_kind(events, Notice) if event.agent_id == agent.agent_id]
        assert notices == [f"reads the instructions for {name}/" for name in ("read", "written", "unused", "program")]
        assert "new/AGENTS.md, unused/AGENTS.md" in str(result.warnings)
        await agent.run("word " * 3_000).result()
        await agent.run("word " * 3_000).result()
        await read(agent.run_compaction())
        assert "a summary" in text_of(agent.history)
        assert rules(agent.history) == [1, 1, 1, 1, 0]
        steps[:] = [[cell('open("read/inner/data").read()')], "done"]
        await agent.run("once more").result()
        assert rules(agent.history) == [1, 1, 1, 1, 0]


async def test_what_commands_name_and_where_they_work_is_used(workspace):
    named = ("command", "list/inner", "cwd", "system", "shell", "script")
    for folder in (*named, "list", "unnamed", "unnamed/.venv/bin"):
        (workspace / folder).mkdir(parents=True, exist_ok=True)
        (workspace / folder / "x").touch()
        (workspace / folder / "AGENTS.md").write_text(f"Rule of {folder}.")
    model = ScriptedModel([[cell(PROGRAMS)], "done"])
    async with Agent(load_config(workspace, arguments={"mode": "full"}), model=model) as agent:
        events, _ = await read(agent.run("look"))
    notices = {event.content for event in of_kind(events, Notice)}
    assert notices == {f"reads the instructions for {folder}/" for folder in named}, text_of(agent.history)
