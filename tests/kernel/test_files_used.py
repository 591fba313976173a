"""Files that Python of runs reads and writes, in real kernels."""

import pytest
from support.agents import cell, of_kind, read, root_text, task

from freeact_sub import Agent, Config
from freeact_sub.events import AgentFinished, AgentStarted, Notice, ToolOutput
from freeact_sub.testing import ScriptedModel

pytestmark = pytest.mark.kernel


@pytest.fixture
def make(tmp_path):
    return lambda script: Agent(Config(workspace=tmp_path), model=ScriptedModel(script))


def child_end(events):
    return next(event for event in of_kind(events, AgentFinished) if event.depth)


async def test_files_that_cells_read_are_told_of(make, tmp_path):
    for name in ("data/a.csv", "data/b.csv", "node_modules/x.js", "helping.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    code = """
import os, pathlib, json, email.mime.text
open("data/a.csv").close()
open("node_modules/x.js").close()
open("/etc/hostname").close()
try:
    open("missing.txt")
except OSError:
    pass
os.chdir("data")
pathlib.Path("b.csv").read_bytes()
os.chdir("..")
"""
    script = {"root": [[task("child")], "done"], "child": [[cell(code)], [cell("import helping")], "ok"]}
    async with make(script) as agent:
        events, result = await read(agent.run("root"))
    assert child_end(events).files_read == ("data/a.csv", "data/b.csv", "helping.py")
    assert child_end(events).files_written == ()
    assert result.files_read == ()
    [report] = [event.content for event in of_kind(events, ToolOutput) if event.tool_name == "task"]
    assert " s; receipts: 2 cells; 3 files read]\n[RECEIPTS] cell 1: " in report


async def test_what_programs_write_is_not_told_of(make, tmp_path):
    (tmp_path / "old.txt").write_text("")
    code = """
import os, subprocess
open("python.txt", "w").close()
subprocess.run(["sh", "-c", "cat old.txt > by_popen.txt; rm old.txt"])
!echo 1 > by_bang.txt
os.system("echo 1 > by_system.txt")
"""
    script = {
        "root": [[cell("r = agent.task('child')\nprint(r.files_written, r.files_removed, r.warnings)")], "done"],
        "child": [[cell(code)], "ok"],
    }
    async with make(script) as agent:
        events, result = await read(agent.run("root"))
    assert child_end(events).files_written == ("python.txt",)
    assert root_text(events) == "('python.txt',) () ()"
    assert result.files_written == ()


async def test_children_that_write_the_same_file_are_named_to_people_and_to_their_parent(make):
    script = {
        "root": [[task("first"), task("second"), task("third")], "done"],
        "first": [[cell("open('same.txt', 'w').close(); open('own.txt', 'w').close()")], "ok"],
        "second": [[cell("open('same.txt', 'a').close()")], [cell("open('same.txt', 'a').close()")], "ok"],
        "third": [[cell("import os; os.system('sleep 0.2; echo > third.txt')")], "ok"],
    }
    async with make(script) as agent:
        events, _ = await read(agent.run("root"))
    first, second = (
        next(event.agent_id for event in of_kind(events, AgentStarted) if event.prompt == name)
        for name in ("first", "second")
    )
    [notice] = of_kind(events, Notice)
    assert notice.agent_id in (first, second)
    assert first in notice.content
    assert second in notice.content
    assert "have both written same.txt: " in notice.content
    reports = [event.content for event in of_kind(events, ToolOutput) if event.tool_name == "task"]
    warned = [report for report in reports if f"\n[WARNING] {notice.content}\n" in report]
    assert 1 <= len(warned) <= 2  # the one that had ended before the other wrote could not know
    assert all(first in report or second in report for report in warned)
