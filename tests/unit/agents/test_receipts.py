"""Receipts without a kernel: which names of an answer are files, what is kept, what a session brings back."""

import os

from support.sample_events import CHILD
from support.tables import each

from freeact_sub.agents.child import report, status_line
from freeact_sub.agents.results import RunResult
from freeact_sub.calls import CodeAction, McpCall, ShellCommand, ToolCall
from freeact_sub.events import AgentEvent, AgentFinished
from freeact_sub.events.ending import Ending, Receipts, receipts_of
from freeact_sub.features.files import KEPT, FileFacts, ReceiptBook, RunFiles, file_facts, named_files
from freeact_sub.show.wording import ending_notes, receipt_lines


@each(
    ("answer", "names"),
    [
        ("I wrote `report.csv` and out/plot.png.", ("report.csv", "out/plot.png")),
        ("See [the table](data/table-1.v2.json), ./a.md; /etc/x.toml", ("data/table-1.v2.json", "./a.md", "/etc/x.toml")),
        ('{"file": "out.parquet"}', ("out.parquet",)),
        ("test_a.py::test_x failed in test_a.py:12.", ("test_a.py",)),
        ("The mean is 3.5, e.g. for df.shape, np.log, response.json() and pandas.DataFrame.", ()),
        ("https://example.com/data.csv, www.example.com, Node.js, version 1.2.py3, i.e. nothing.", ()),
        ("All *.csv files, data_*.csv, {name}.csv, <name>.csv, $HOME.txt, ~/notes.md, .csv", ()),
        (".." * 50_000 + "a.b" * 50_000, ()),
        ("+" * 100_000, ()),
        (("+" * 400 + " ") * 250, ()),
    ],
)
def test_names_of_files_are_known_by_their_form(answer, names):
    assert named_files(answer) == names


@each(
    ("answer", "missing"),
    [
        ("It is in gone.csv and lost/b.json.", ("gone.csv", "lost/b.json")),
        ("It is in gone.csv, like there.txt.", ()),  # one of them exists
        ("See deep.md.", ()),  # an answer need not name the folder
        ("It was in old.csv.", ()),  # the run has removed it
        ("It is in /elsewhere/a.csv or ../a.csv.", ()),  # perhaps only the kernel sees it
        ("Look at linked/a.csv.", ()),
        ("There is none.", ()),
    ],
)
async def test_no_file_that_an_answer_names_exists(answer, missing, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/deep.md").touch()
    (tmp_path / "there.txt").touch()
    (tmp_path / "linked").symlink_to("/nowhere")
    files = RunFiles(key="k", label="l", removed={"old.csv": None})
    assert (await file_facts(files, answer, tmp_path)).missing == missing


async def test_a_workspace_that_is_gone_costs_no_answer(tmp_path):
    files = RunFiles(key="k", label="l", written={"a.csv": None})
    assert await file_facts(files, "It is in a.csv.", tmp_path / "gone") == FileFacts()


async def test_digests_follow_no_link_and_wait_for_no_pipe(tmp_path):
    (tmp_path / "a").write_text("a")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "folder").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    names = dict.fromkeys(["a", "link", "folder/a", "pipe", "gone", "nul\0"])
    facts = await file_facts(RunFiles(key="k", label="l", written=names), "", tmp_path)
    assert [file.size for file in facts.written] == [1, None, None, None, None, None]
    many = RunFiles(key="k", label="l", read=dict.fromkeys(map(str, range(1000))))
    facts = await file_facts(many, "", tmp_path)
    assert (len(facts.read), facts.left_out) == (50, 950)


def test_receipts_are_bounded_and_counted():
    book = ReceiptBook()
    for number in range(100):
        book.call(CodeAction(code=f"import os\nx = {number}"), "failed" if number % 2 else "ok", text="x" * 10_000)
        book.command(ShellCommand(command="true " * 1000))
    book.call(ToolCall(tool_name="search"), "ok")
    book.call(ToolCall(tool_name="ask"), "failed")
    book.call(McpCall(server="units", tool="convert"), "ok")
    book.call(ToolCall(tool_name="update_plan"), "ok")
    book.child("agent-1f09a2c4", "limit")
    made = book.receipts(FileFacts(), has_model=True)
    assert str(made) == (
        "100 cells (50 failed), 100 commands, 3 calls (search, ask, units/convert, 1 failed), 1 child (1 failed)"
    )
    assert (len(made.cells), len(made.commands), made.left_out) == (KEPT, KEPT, 2 * (100 - KEPT))
    assert made.cells[-1].code == "x = 99"
    event = AgentFinished(**CHILD, status="completed", receipts=made, missing_files=("a.csv",))
    assert len(event.to_json()) < 30_000
    assert AgentEvent.from_json(event.to_json()) == event
    assert event.doubts == ("no file that the answer names exists: a.csv",)
    assert receipt_lines(event)[-2:] == ["child: 1f09 (limit)", "140 more receipts"]


def test_people_and_a_parents_model_read_the_notes_of_an_ending_and_the_receipts_are_one():
    class Noted:
        notes = ("2 cells in all",)

    class Ended(Noted, AgentFinished):
        pass

    class Result(Noted, RunResult):
        pass

    event = Ended(**CHILD, status="completed")
    assert (ending_notes(event)[1:], receipt_lines(event)) == (["2 cells in all"], ["2 cells in all"])
    assert "; 2 cells in all" in status_line(Result(value="", status="completed", agent_id="agent-1"))
    assert AgentFinished(**CHILD, status="completed", receipts=Receipts()).notes == ("receipts: nothing was run",)


def test_python_code_has_no_receipts_unless_it_has_done_something():
    book = ReceiptBook()
    assert book.receipts(FileFacts(), has_model=False) is None
    assert book.receipts(FileFacts(), has_model=True).nothing_was_run
    book.child("agent-1f09a2c4", "completed")
    assert not book.receipts(FileFacts(), has_model=False).nothing_was_run
    assert Ending(status="completed").doubts == ()
    assert receipts_of({"cells": 3}) is None
    assert receipts_of(None) is None
    assert receipts_of({"cells_run": 3}) == Receipts(cells_run=3)


async def test_a_report_lists_the_receipts_of_an_answer_and_says_where_there_is_none(tmp_path):
    files = RunFiles(key="k", label="l", read={"in/a.csv": None}, written={"b.csv": None}, removed={"old.md": None})
    book = ReceiptBook()
    for number in range(5):
        book.call(CodeAction(code=f"# step {number}\nx"), "failed" if number == 3 else "ok")
    book.command(ShellCommand(command="make c.pdf"))
    facts = await file_facts(files, "From a.csv I made b.csv, out/c.pdf and d.png; old.md is gone.", tmp_path)
    made = book.receipts(facts, has_model=True)
    shown = "a.csv: read; b.csv: written; out/c.pdf: command; old.md: removed"
    cells = 'cell 3: "step 2"; cell 4 (failed): "step 3"; cell 5: "step 4"'
    assert made.grounds == f"{shown}; {cells}; no receipt: d.png"
    result = RunResult(value="ok", status="completed", agent_id="a", receipts=made)
    assert (await report(result, tmp_path)).splitlines()[1:] == [f"[RECEIPTS] {made.grounds}", "ok"]
    assert receipt_lines(AgentFinished(**CHILD, status="completed", receipts=made))[-1] == "no receipt: d.png"
