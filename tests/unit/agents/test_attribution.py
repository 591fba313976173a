"""Who has written what, of all agents of a root; and what is found of programs."""

import os
import time

import pytest

from freeact_sub.agents.children.report import report
from freeact_sub.agents.files.attribution import FileAttribution, RunFiles, Writing
from freeact_sub.agents.files.changed import CLOCK_STEP_NS, MAX_ENTRIES, changed_files
from freeact_sub.agents.runs.results import RunResult

ROOT = "agent:r"


def work(name: str, parent: str = ROOT) -> RunFiles:
    return RunFiles(key=f"{parent}:sub:{name}", label=name)


def writing(of: RunFiles, since: int, until: int, *, certain: bool) -> Writing:
    return Writing(work=of, since_ns=since, until_ns=until, certain=certain)


@pytest.fixture
def writers() -> FileAttribution:
    return FileAttribution()


def test_two_agents_that_wrote_a_file_are_named_once(writers):
    a, b = work("a"), work("b")
    assert writers.note(writing(a, 0, 1, certain=True), ["x", "y", "z"]) == []
    expected = ["a and b have both written x, y: one may have undone the other's work"]
    assert writers.note(writing(b, 0, 1, certain=True), ["x", "y"]) == expected
    assert writers.note(writing(b, 2, 3, certain=True), ["x"]) == []
    assert writers.note(writing(a, 4, 5, certain=True), ["y", "x"]) == []
    assert a.warnings == b.warnings == expected
    assert list(b.written) == ["x", "y"]


def test_each_pair_is_told_of_and_many_files_are_counted(writers):
    files = [f"f{number}" for number in range(8)]
    for name in ("a", "b"):
        writers.note(writing(work(name), 0, 1, certain=True), files)
    warnings = writers.note(writing(work("c"), 0, 1, certain=True), files)
    assert [text.split(" have")[0] for text in warnings] == ["a and c", "b and c"]
    assert "f0, f1, f2, f3, f4 and 3 more" in warnings[0]


@pytest.mark.parametrize("guess_first", [True, False])
def test_a_guess_gives_way_to_what_is_certain_at_the_same_time(writers, guess_first):
    guessing, sure = work("guessing"), work("sure")
    notes = [(writing(guessing, 5, 20, certain=False), ["x", "mine"]), (writing(sure, 10, 15, certain=True), ["x"])]
    for note, names in notes if guess_first else reversed(notes):
        assert writers.note(note, names) == []
    assert (list(guessing.written), list(sure.written)) == (["mine"], ["x"])


def test_a_guess_of_another_time_stands(writers):
    a, b = work("a"), work("b")
    writers.note(writing(a, 0, 10, certain=True), ["x"])
    assert len(writers.note(writing(b, 11, 20, certain=False), ["x"])) == 1
    assert list(b.written) == ["x"]


def test_while_a_cell_of_another_agent_runs_a_guess_warns_of_nothing(writers):
    first, second, guessing = work("first"), work("second"), work("guessing")
    writers.note(writing(first, 0, 10, certain=True), ["x"])
    with writers.at_work(second.key):  # it has just written x, and will say so when it ends
        assert writers.note(writing(guessing, 11, 20, certain=False), ["x"]) == []
    assert len(writers.note(writing(second, 12, 18, certain=True), ["x"])) == 1
    assert (first.warnings, guessing.warnings) == (second.warnings, [])
    assert list(guessing.written) == []


@pytest.mark.parametrize("at_work", ["own", "parent"])
def test_neither_its_own_cell_nor_one_that_waits_for_it_keeps_a_guess_from_warning(writers, at_work):
    parent = work("parent")
    other, child = work("other"), work("child", parent.key)
    writers.note(writing(other, 0, 10, certain=True), ["x"])
    with writers.at_work(child.key if at_work == "own" else parent.key):
        assert len(writers.note(writing(child, 11, 20, certain=False), ["x"])) == 1


def test_what_programs_of_two_agents_wrote_side_by_side_is_of_both_without_a_warning(writers):
    a, b = work("a"), work("b")
    assert writers.note(writing(a, 0, 10, certain=False), ["x"]) == []
    assert writers.note(writing(b, 5, 15, certain=False), ["x"]) == []
    assert "x" in a.written
    assert "x" in b.written


@pytest.mark.parametrize("child_first", [True, False])
def test_what_programs_wrote_while_a_parent_waits_is_of_the_child(writers, child_first):
    parent = work("parent")
    child = work("child", parent.key)
    notes = [writing(child, 5, 6, certain=False), writing(parent, 0, 10, certain=False)]
    for note in notes if child_first else reversed(notes):
        assert writers.note(note, ["x"]) == []
    assert (list(parent.written), list(child.written)) == ([], ["x"])


def test_what_is_kept_of_a_run_is_bounded_and_a_new_run_of_the_root_begins_anew(writers):
    a, b = work("a"), work("b")
    writers.note(writing(a, 0, 1, certain=True), [str(number) for number in range(5000)])
    assert len(a.written) == 1000
    writers.clear()
    assert writers.note(writing(b, 0, 1, certain=True), ["0"]) == []


async def test_a_parent_reads_how_many_files_were_read_which_were_written_and_the_first_warnings(tmp_path):
    result = RunResult(
        output="ok",
        status="completed",
        agent_id="a",
        files_read=("r",),
        files_written=("w",),
        warnings=("one", "two", "three"),
    )
    status, *rest = (await report(result, tmp_path)).splitlines()
    assert status.endswith("; 1 file read; files written: w]")
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


@pytest.mark.parametrize(
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
    [sentence] = one.all_warnings
    assert name in sentence
    assert "data.csv" not in sentence
    one.undo({name})
    assert one.all_warnings == ()
