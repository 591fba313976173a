"""Who has written what, of all agents of a root; and what is found of programs."""

import os
import time
from dataclasses import replace

import pytest
from support.tables import each

from freeact_sub.agents.children.report import report
from freeact_sub.agents.runs.results import RunResult
from freeact_sub.events.receipts import Receipts
from freeact_sub.features.files.attribution import CLOCK_STEP_NS, FileAttribution, RunFiles, changed_files, obeyed
from freeact_sub.system.work_folders import MAX_ENTRIES

ROOT = "agent:r"


def work(name: str, parent: str = ROOT) -> RunFiles:
    return RunFiles(key=f"{parent}:sub:{name}", label=name)


@pytest.fixture
def writers() -> FileAttribution:
    return FileAttribution()


def test_two_agents_that_wrote_a_file_are_named_once(writers):
    a, b = work("a"), work("b")
    assert writers.note(a, ["x", "y", "z"], 1) == []
    expected = ["a and b have both written x, y: one may have undone the other's work"]
    assert writers.note(b, ["x", "y"], 1) == expected
    assert writers.note(b, ["x"], 3) == []
    assert writers.note(a, ["y", "x"], 5) == []
    assert a.warnings == b.warnings == expected
    assert list(b.written) == ["x", "y"]


def test_each_pair_is_told_of_and_many_files_are_counted(writers):
    files = [f"f{number}" for number in range(8)]
    for name in ("a", "b"):
        writers.note(work(name), files, 1)
    warnings = writers.note(work("c"), files, 1)
    assert [text.split(" have")[0] for text in warnings] == ["a and c", "b and c"]
    assert "f0, f1, f2, f3, f4 and 3 more" in warnings[0]


def test_what_python_of_another_agent_wrote_is_not_of_programs_that_ran_meanwhile(writers):
    programs, python = work("programs"), work("python")
    writers.note(python, ["x"], 15)
    writers.note_found(programs, {"x": 12, "mine": 12}, 20)
    assert (list(programs.written), list(python.written)) == (["mine"], ["x"])


def test_what_programs_have_changed_later_is_theirs_too_without_a_warning(writers):
    a, b = work("a"), work("b")
    writers.note(a, ["x"], 10)
    writers.note_found(b, {"x": 11}, 20)
    assert (list(a.written), list(b.written), a.warnings, b.warnings) == (["x"], ["x"], [], [])


def test_what_programs_of_two_agents_wrote_side_by_side_is_of_both(writers):
    a, b = work("a"), work("b")
    writers.note_found(a, {"x": 5}, 10)
    writers.note_found(b, {"x": 5}, 15)
    assert "x" in a.written
    assert "x" in b.written


def test_what_programs_wrote_while_a_parent_waits_is_of_the_child(writers):
    parent = work("parent")
    child = work("child", parent.key)
    writers.note_found(child, {"x": 5, "y": 5}, 6)
    writers.note_found(parent, {"x": 5, "y": 8}, 10)
    assert (list(parent.written), list(child.written)) == (["y"], ["x", "y"])


def test_programs_do_not_take_from_a_run_what_its_own_python_wrote(writers):
    a, b = work("a"), work("b")
    writers.note(a, ["x"], 10)
    writers.note_found(a, {"x": 12}, 20)
    assert len(writers.note(b, ["x"], 30)) == 1


def test_what_is_kept_of_a_run_is_bounded(writers):
    a = work("a")
    writers.note(a, [str(number) for number in range(5000)], 1)
    assert len(a.written) == 1000


async def test_a_parent_reads_how_many_files_were_read_which_were_written_and_the_first_warnings(tmp_path):
    result = RunResult(
        value="ok",
        status="completed",
        agent_id="a",
        files_read=("r",),
        files_written=("w",),
        warnings=("one", "two", "three"),
    )
    status, *rest = (await report(replace(result, receipts=Receipts(cells_run=1)), tmp_path)).splitlines()
    assert status.endswith(" s; receipts: 1 cell; 1 file read; files written: w]")
    assert rest == ["[WARNING] one", "[WARNING] two", "[WARNING] More of these: 1", "ok"]


def test_changed_files_are_found_and_folders_of_tools_are_not_looked_into(tmp_path):
    for folder in ("sub/deep", ".git", "node_modules/x", "env/lib", "sub/__pycache__"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "env/pyvenv.cfg").touch()
    (tmp_path / "old").touch()
    while time.time_ns() < (tmp_path / "old").stat().st_ctime_ns + 40_000_000:
        os.sched_yield()  # until the clock of files has moved on
    since = time.time_ns()
    new = ("new", "sub/deep/new", ".git/new", "node_modules/x/new", "env/new", "env/lib/new", "sub/__pycache__/new")
    for name in new:
        (tmp_path / name).touch()
    os.utime(tmp_path / "new", (1, 1))  # as `tar` and `cp -p` do
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert list(changed_files(tmp_path, since - CLOCK_STEP_NS)) == ["new", "sub/deep/new"]
    assert changed_files(tmp_path, 0) == {
        name: (tmp_path / name).stat().st_ctime_ns for name in ("new", "old", "sub/deep/new")
    }
    assert changed_files(tmp_path / "not there", 0) == {}


@pytest.mark.slow
def test_a_huge_workspace_ends_the_search(tmp_path):
    (tmp_path / "many").mkdir()
    for number in range(MAX_ENTRIES):
        (tmp_path / "many" / str(number)).touch()
    (tmp_path / "top").touch()
    found = changed_files(tmp_path, 0)
    assert "top" in found
    assert len(found) < MAX_ENTRIES


@each(
    "name",
    [
        ".envrc",
        "sub/Makefile",
        "package.json",
        ".vscode/tasks.json",
        "a/.github/workflows/x.yml",
        "conftest.py",
        "x.pth",
        ".idea/x",
        "tox.ini",
    ],
)
def test_a_file_that_other_programs_obey_is_told_in_the_result(name):
    one = work("a")
    one.written |= dict.fromkeys(["data.csv", name, "notes.md"])
    [sentence] = obeyed(one.written)
    assert name in sentence
    assert "data.csv" not in sentence
    one.undo({name})
    assert obeyed(one.written) == ()
