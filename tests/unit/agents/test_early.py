"""A run that ends early is asked once: about open steps of its plan, a last cell that failed, files that are not there."""

import pytest
from pydantic_ai.messages import ModelResponse, ToolCallPart
from support.agents import as_read, cell, of_kind, read, task
from support.tables import each

from freeact_sub.events import Decision, Notice
from freeact_sub.features.files import RunFiles, unfounded_files

pytestmark = pytest.mark.features("early", "plan", "files")
WORKED = [cell("print('ok')")]
FAILED = [cell("# load the prices\n1 / 0")]
ASKED = "the model is asked once more before its answer counts: "


def steps(*states):
    return [ToolCallPart("update_plan", {"plan": [{"step": f"step {at}", "status": is_} for at, is_ in enumerate(states)]})]


async def asked(make, script, prompt="go", rule=None, **given):
    """What a run was asked about, and its result; the notes of its children count too."""
    async with make(script, **{"config": {"mode": "full"}} | given) as agent:
        events, result = await read(agent.run(prompt), *([rule] if rule else []))
    notes = [event.content for event in of_kind(events, Notice) if event.content.startswith(ASKED)]
    return [note.removeprefix(ASKED) for note in notes], result, agent


@each(
    ("turns", "fact"),
    [
        ([steps("completed", "in_progress", "pending")], "open steps of the plan: step 1; step 2"),
        ([WORKED, FAILED], "the last cell failed, and nothing has run since: load the prices"),
        ([WORKED, "I wrote `out/a.csv`, see [b](b.md)."], "the answer names files that do not exist: out/a.csv, b.md"),
        ([WORKED, "The table is in report.csv."], "the answer names files that do not exist: report.csv"),
        (
            [steps("pending"), FAILED, "See `a.csv`."],
            (
                "the last cell failed, and nothing has run since: load the prices; "
                "the answer names files that do not exist: a.csv; open steps of the plan: step 0"
            ),
        ),
    ],
)
async def test_a_run_that_ends_early_is_asked_once_and_its_next_answer_counts(make, turns, fact):
    first = turns if isinstance(turns[-1], str) else [*turns, "done"]
    facts, result, agent = await asked(make, [*first, first[-1], "never read"])
    assert (facts, result.status, result.output) == ([fact], "completed", first[-1])
    question = as_read(agent.history)[-1]
    assert question.count("\n- ") == 1 + fact.count("; the ") + fact.count("; open")
    assert agent.scripted.requests == len(first) + 1


async def test_what_the_question_brings_about_counts(make):
    script = [FAILED, "done", [cell("print('mended')")], "really done"]
    facts, result, _ = await asked(make, script)
    assert (len(facts), result.output, result.receipts.cells_run) == (1, "really done", 2)


@each(
    ("turns", "given"),
    [
        ([WORKED, "done"], {}),
        ([steps("pending"), steps("completed"), "done"], {}),
        ([steps("pending"), "shall I?"], {"config": {"mode": "plan"}}),
        ([FAILED, WORKED, "done"], {}),
        (
            [FAILED, WORKED, "done"],
            {"config": {"mode": "ask"}, "rule": lambda asks: Decision(allowed="ok" not in asks.call.text)},
        ),
        (["You could put it into `config.toml`."], {}),
        ([steps("pending"), "done"], {"config": {"mode": "full", "budget": {"turns": 2}}}),
        ([FAILED, "done"], {"features": ()}),
    ],
    ids=[
        "clean",
        "plan is done",
        "mode plan",
        "mended",
        "a person says no",
        "nothing was run",
        "no turn is left",
        "no features",
    ],
)
async def test_a_run_that_has_left_nothing_is_not_asked(make, turns, given):
    facts, result, agent = await asked(make, [*turns, "asked"], **given)
    assert (facts, result.output, agent.scripted.requests) == ([], turns[-1], len(turns))


@each(
    "answer",
    [
        "All tests pass; the mean is 17.3.",
        "See `there.txt` and `deep.md`.",
        "It was in `data/printed.csv`, as the listing says.",
        "You asked for `wanted.csv`: there is none.",
        "I read `pandas.DataFrame`, `np.log`, `config.load()` and `a/b`.",
        "The API is at https://example.com/data.csv, with docs at [docs](https://example.com/x.md).",
        "All `*.csv` files, `data_{year}.csv`, `<name>.csv`, `$HOME/a.txt`, `~/notes.md`.",
        "It is in `/elsewhere/a.csv` and `../b.csv`.",
        "Run it so:\n```sh\npython example.py out.csv\n```",
        "Like this:\n~~~python\nopen('example.txt')\n~~~\nand no other.",
        "Half of it (1/2) took 3.5 s; see chapter 2.1 and version 1.2.",
        "Next to there.txt you may want a notes.md.",
        "Use `python make_it.py --out x.csv` next to there.txt.",
        "The branch `feature/new-table` is ready, and so is `v1.2.3`.",
        "I set `kernel.python` in `there.txt`; `.gitignore` and `Makefile` stay.",
        "It is Node.js, e.g. `response.json()` or `text/html`.",
        "`there.txt:12` and `there.txt` differ.",
        "| file | rows |\n| --- | --- |\n| there.txt | 3 |\n| other.csv | 0 |",
        "It is at `www.example.com/data.csv`, or example.org/a/b.json.",
        "已写入there.txt。",
        "I read `two words.csv`.",
    ],
    together=True,
)
async def test_no_alarm_for_what_is_no_missing_file(make, tmp_path, answer):
    (tmp_path / "sub").mkdir(exist_ok=True)
    (tmp_path / "sub/deep.md").touch()
    (tmp_path / "there.txt").touch()
    (tmp_path / "two words.csv").touch()
    looks = [cell("print('data/printed.csv'); import os; os.path.exists('wanted.csv')")]
    facts, result, _ = await asked(make, [looks, answer, "asked"], "Is there a wanted.csv?")
    assert (facts, result.output) == ([], answer)


@each(
    ("code", "prompt", "answer"),
    [
        ("print(os.listdir(here))", "Is there a README.md?", "There is no `README.md`."),
        ("print(os.listdir(here))", "What is this?", "A program `app.py`; no `package.json`, no `setup.py`."),
        ("print(os.listdir(here))", "Review it.", "`app.py` is fine; add a `pyproject.toml` and a `docs/index.md`."),
        ("print([*here.glob('README*')])", "Is there a readme?", "No, there is no `README.md`."),
        ("command = 'find . -iname *.toml'", "Is there a config?", "There is no `config.toml`."),
    ],
    together=True,
)
async def test_the_model_knows_of_a_file_that_it_has_looked_for_that_it_is_not_there(make, tmp_path, code, prompt, answer):
    (tmp_path / "app.py").touch()
    look = [cell(f"import os, pathlib\nhere = pathlib.Path({str(tmp_path)!r})\n{code}")]
    facts, result, _ = await asked(make, [look, answer, "asked"], prompt)
    assert (facts, result.output) == ([], answer)


async def test_a_listing_does_not_found_a_file_that_code_names(make, tmp_path):
    (tmp_path / "app.py").touch()
    look = [cell("print('app.py')\nif False:\n    open('out.csv', 'w')")]
    facts, _, _ = await asked(make, [look, "I wrote `out.csv`.", "It is not written."])
    assert facts == ["the answer names files that do not exist: out.csv"]


def test_what_a_written_program_will_write_has_its_ground(tmp_path):
    (tmp_path / "make.py").write_text("save('report.csv')")
    files = RunFiles(key="", label="", written={"make.py": None, "gone.py": None})
    said = [ModelResponse(parts=[ToolCallPart("execute_ipython_cell", {"code": "write('make.py', 'report.csv')"})])]
    assert unfounded_files("Run `make.py`: it writes `report.csv`.", tmp_path, files, said) == ()
    assert unfounded_files("Run `make.py`: it writes `other.csv`.", tmp_path, files, said) == ("other.csv",)


async def test_a_typed_answer_may_name_what_is_not_there(make):
    facts, result, _ = await asked(
        make, [WORKED, ToolCallPart("final_result", {"response": ["a.csv"]})], output_type=list[str]
    )
    assert (facts, result.value) == ([], ["a.csv"])


async def test_a_child_is_asked_though_it_has_run_nothing(make):
    script = {"go": [[task("write it")], "done"], "write it": ["I wrote a.csv.", "It is not written."]}
    facts, _, agent = await asked(make, script)
    assert facts == ["the answer names files that do not exist: a.csv"]
    assert "[RECEIPTS] no receipt: nothing was run\nIt is not written." in agent.history[-2].parts[0].content
