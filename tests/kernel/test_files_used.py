"""Files that runs read and write, by Python and by programs, in real kernels."""

import time

import pytest
from support.agents import cell, of_kind, read, root_text, task

from freeact_sub import Agent, Config
from freeact_sub.agents.files.changed import changed_files
from freeact_sub.agents.from_code import files
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
    assert report.endswith(" s; 3 files read]\nok")


async def test_what_programs_write_is_told_of(make, tmp_path):
    (tmp_path / "old.txt").write_text("")
    code = """
import os, subprocess
open("python.txt", "w").close()
subprocess.run(["sh", "-c", "cat old.txt > by_popen.txt; mkdir -p made .git; touch -d 2001-01-01 made/old_time.txt .git/x"])
!echo 1 > by_bang.txt
os.system("echo 1 > by_system.txt")
"""
    script = {
        "root": [[cell("r = agent.task('child')\nprint(r.files_written, r.files_read, r.warnings)")], "done"],
        "child": [[cell(code)], "ok"],
    }
    async with make(script) as agent:
        events, result = await read(agent.run("root"))
    written = child_end(events).files_written
    assert written[0] == "python.txt"
    assert set(written) == {"python.txt", "by_popen.txt", "by_bang.txt", "by_system.txt", "made/old_time.txt"}
    assert root_text(events) == f"{written} () ()"
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


async def test_programs_that_write_the_same_file_are_noticed_where_their_cells_name_it(make):
    code = "import subprocess; subprocess.run(['sh', '-c', 'sleep 0.5; echo >> same.txt; echo >> $$.txt'])"
    script = {"root": [[task("one"), task("two")], "done"], "one": [[cell(code)], "ok"], "two": [[cell(code)], "ok"]}
    async with make(script) as agent:
        events, _ = await read(agent.run("root"))
    [notice] = of_kind(events, Notice)
    assert "have both written same.txt: " in notice.content
    assert all("same.txt" in event.files_written for event in of_kind(events, AgentFinished) if event.depth)


async def test_a_file_that_another_agent_overwrites_before_the_search_is_still_noticed(make, tmp_path, monkeypatch):
    goes_on, file = tmp_path.parent / f"{tmp_path.name}.goes_on", tmp_path / "same.txt"
    other = f"until [ -e {goes_on} ]; do sleep 0.01; done; echo two >> same.txt; echo >> unnamed$((1 + 1)).txt"

    def late(workspace, since):
        if not goes_on.exists():  # the search for the first, whose cell has ended
            deadline, ended, clock = time.monotonic() + 60, time.time_ns(), goes_on.with_suffix(".clock")
            while clock.touch() or clock.stat().st_ctime_ns <= ended:  # the clock of files lags
                pass
            goes_on.touch()
            while not ((tmp_path / "unnamed2.txt").exists() and "two" in file.read_text()) and time.monotonic() < deadline:
                time.sleep(0.01)
        return changed_files(workspace, since)

    monkeypatch.setattr(files, "changed_files", late)
    script = {
        "root": [[task("one"), task("two")], "done"],
        "one": [[cell("!echo one >> same.txt")], "ok"],
        "two": [[cell(f"import subprocess; subprocess.run(['sh', '-c', {other!r}])")], "ok"],
    }
    async with make(script) as agent:
        events, _ = await read(agent.run("root"))
    [notice] = of_kind(events, Notice)
    assert "have both written same.txt: " in notice.content
    ended = [event.files_written for event in of_kind(events, AgentFinished) if event.depth]
    assert sorted(ended) == [("same.txt",), ("same.txt", "unnamed2.txt")]


async def test_a_program_that_writes_the_file_of_a_child_is_noticed(make):
    script = {
        "root": [[task("child")], [cell("!echo changed >> result.txt")], "done"],
        "child": [[cell("open('result.txt', 'w').close()")], "ok"],
    }
    async with make(script) as agent:
        events, result = await read(agent.run("root"))
    assert result.files_written == ("result.txt",)
    assert len(result.warnings) == 1
    assert [event.content for event in of_kind(events, Notice)] == list(result.warnings)
