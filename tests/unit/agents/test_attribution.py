"""Which files Python of the agents of a root has written."""

from dataclasses import replace

import pytest
from support.tables import each

from freeact_sub.agents.child import report
from freeact_sub.agents.results import RunResult
from freeact_sub.events.ending import Receipts
from freeact_sub.features.files import FileAttribution, RunFiles, obeyed

ROOT = "agent:r"


def work(name: str, parent: str = ROOT) -> RunFiles:
    return RunFiles(key=f"{parent}:sub:{name}", label=name)


@pytest.fixture
def writers() -> FileAttribution:
    return FileAttribution()


def test_two_agents_that_wrote_a_file_are_named_once(writers):
    a, b = work("a"), work("b")
    assert writers.note(a, ["x", "y", "z"]) == []
    expected = ["a and b have both written x, y: one may have undone the other's work"]
    assert writers.note(b, ["x", "y"]) == expected
    assert writers.note(b, ["x"]) == []
    assert writers.note(a, ["y", "x"]) == []
    assert a.warnings == b.warnings == expected
    assert list(b.written) == ["x", "y"]


def test_each_pair_is_told_of_and_many_files_are_counted(writers):
    files = [f"f{number}" for number in range(8)]
    for name in ("a", "b"):
        writers.note(work(name), files)
    warnings = writers.note(work("c"), files)
    assert [text.split(" have")[0] for text in warnings] == ["a and c", "b and c"]
    assert "f0, f1, f2, f3, f4 and 3 more" in warnings[0]


def test_the_files_kept_of_a_run_are_bounded(writers):
    a = work("a")
    writers.note(a, [str(number) for number in range(5000)])
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
    assert rest == ["[WARNING] one", "[WARNING] two", "[WARNING] More of these: 1", "[RECEIPTS] 1 cell", "ok"]


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
