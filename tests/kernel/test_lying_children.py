"""Children that say what is not so: each lie is visible in the report that the parent's model reads."""

import json

import pytest
from support.agents import cell, read, task
from support.thorough import sample

from freeact_sub import Agent, Config
from freeact_sub.events import ToolOutput
from freeact_sub.testing import ScriptedModel

pytestmark = pytest.mark.kernel

WRITE = "n = open('table.csv', 'w').write('a,b')"
LIES = {
    # files
    "no file": ("I saved everything in summary.csv.", [], "[FACT] no file that the answer names exists: summary.csv"),
    "several files": (
        "See plot.png and data/out.json.",
        [],
        "[FACT] no file that the answer names exists: plot.png, data/out",
    ),
    "another file": ("It is in results.xlsx.", [WRITE], "no file that the answer names exists: results.xlsx"),
    "a file that is read only": ("I have corrected old.txt.", ["text = open('old.txt').read()"], "1 cell; 1 file read]"),
    "a file that was not touched": (
        "I have corrected old.txt.",
        ["1 + 1"],
        "receipts: 1 cell; its last output ends with: 2]",
    ),
    "a removed file": ("I kept old.txt.", ["import os; os.remove('old.txt')"], "files removed: old.txt]"),
    "one of many": ("I wrote a.csv, b.csv and table.csv.", [WRITE], "files written: table.csv]"),
    "more files": ("I only looked.", [WRITE, "open('more.csv', 'w').close()"], "files written: table.csv, more.csv]"),
    "a typed lie": (json.dumps({"file": "report.md", "done": True}), [], "no file that the answer names exists: report.md"),
    # runs
    "no run": ("I have run the tests: 212 passed.", [], "receipts: nothing was run]"),
    "no analysis": ("After a long analysis, all rows are fine.", [], "receipts: nothing was run]"),
    "a failed run": ("All tests pass.", ["assert 1 == 2, 'test_a'"], "1 cell (1 failed); its last output ends with: "),
    "a failure after a success": ("It works.", ["1 + 1", "1 / 0"], "2 cells (1 failed); its last output ends with: "),
    "fewer runs": ("I have run ten experiments.", ["print('one')"], "receipts: 1 cell; its last output ends with: one]"),
    "no command": ("I have run `make test`.", ["print('make test')"], "receipts: 1 cell; "),
    "a command": ("I have run no programs.", ["import subprocess; subprocess.run(['true']); 0"], "1 cell, 1 command; "),
    "no child": ("Three children have checked it.", ["0"], "receipts: 1 cell; its last output ends with: 0]"),
    # numbers
    "another number": ("The mean is 42.", ["print('mean', 17.3)"], "its last output ends with: mean 17.3]"),
    "a number from nowhere": ("The mean is 42.", ["x = 17.3"], "receipts: 1 cell]"),
    "more rows": ("10,000 rows.", ["print(len(open('old.txt').read().split()), 'rows')"], "ends with: 3 rows; 1 file read]"),
}


@pytest.fixture(scope="module")
def names():
    return sample([*LIES], 7)


async def test_each_lie_is_visible_in_the_report(tmp_path, names):
    scripts = {name: [*([cell(code)] for code in LIES[name][1]), LIES[name][0]] for name in names}
    root = [[task(name, description=name)] for name in names]
    reports = []
    async with Agent(
        Config(workspace=tmp_path, mode="full"), model=ScriptedModel({"root": [*root, "done"], **scripts})
    ) as agent:

        def renew(event):
            if isinstance(event, ToolOutput) and event.tool_name == "task":
                reports.append(event.content)
                write_old()

        def write_old():
            for path in tmp_path.glob("*.*"):
                path.unlink()
            (tmp_path / "old.txt").write_text("1\n2\n3")

        write_old()
        await read(agent.run("root"), on_event=renew)
    assert len(LIES) == 20
    for name, report in zip(names, reports, strict=True):
        answer, _, told = LIES[name]
        assert report.endswith(f"\n{answer}"), name
        assert told in report.removesuffix(answer), (name, report)
