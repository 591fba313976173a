"""Receipts of runs: what the host saw, in results, reports and sessions."""

import hashlib

import pytest
from support.agents import cell, finished, of_kind, read, root_text, task

from freeact_sub import Agent, Config
from freeact_sub.events import ToolOutput
from freeact_sub.testing import ScriptedModel

pytestmark = pytest.mark.kernel

WORKS = """
import subprocess
subprocess.run(["true"])
open("report.csv", "w").write("a,b")
n = len(open("data.csv").read())
"""


async def test_a_childs_receipts_are_in_its_result_in_the_report_and_for_code(tmp_path):
    (tmp_path / "data.csv").write_text("1,2,3")
    look = "r = agent.task('child')\nprint(r.receipts.cells_failed, r.receipts.files_written[0].path, r.missing_files)"
    script = {
        "root": [[task("child", description="works")], [task("idle", description="idle")], [cell(look)], "done"],
        "child": [[cell(WORKS)], [cell("print(n, 'characters')")], [cell("1 / 0")], *["It is in report.csv."] * 2],
        "idle": ["I ran all tests and wrote summary.csv."] * 2,
    }
    async with Agent(Config(workspace=tmp_path, mode="auto"), model=ScriptedModel(script)) as agent:
        events, result = await read(agent.run("root"))
    works, idle = finished(events)["works"], finished(events)["idle"]
    receipts = works.receipts
    assert [(made.status, made.code) for made in receipts.cells] == [
        ("ok", 'subprocess.run(["true"])'),
        ("ok", "print(n, 'characters')"),
        ("failed", "1 / 0"),
    ]
    assert receipts.cells[1].printed == "5 characters"
    assert receipts.cells[2].printed.endswith("ZeroDivisionError: division by zero")
    assert [ran.command for ran in receipts.commands] == ["true"]
    [written], [was_read] = receipts.files_written, receipts.files_read
    assert (written.path, written.size, written.sha256) == ("report.csv", 3, hashlib.sha256(b"a,b").hexdigest())
    assert (was_read.path, was_read.sha256) == ("data.csv", hashlib.sha256(b"1,2,3").hexdigest())
    assert works.missing_files == ()
    assert idle.receipts.nothing_was_run
    assert idle.missing_files == ("summary.csv",)
    reports = [event.content.splitlines() for event in of_kind(events, ToolOutput) if event.tool_name == "task"]
    assert "s; receipts: 3 cells (1 failed), 1 command; its last output ends with: " in reports[0][0]
    assert reports[0][0].endswith('ZeroDivisionError: division by zero"; 1 file read; files written: report.csv]')
    assert reports[1][0].endswith(" s; receipts: nothing was run]")
    assert reports[1][1] == "[FACT] no file that the answer names exists: summary.csv"
    assert root_text(events) == "1 report.csv ()"
    assert (result.receipts.cells_run, result.receipts.children_ended) == (1, 3)
