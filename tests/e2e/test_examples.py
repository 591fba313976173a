"""Every example runs by itself, offline, and does what it says; with `--model` it asks that model."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from support.chat_server import ChatCall, ChatReply, by_turn
from support.cli import chat
from support.programs import ROOT, copy_examples, run_python

pytestmark = [pytest.mark.e2e, pytest.mark.kernel]

PROGRAMS = (
    "start/sdk",
    "start/ask_user",
    "children/parallel_children",
    "children/choices_for_children",
    "children/fan_out",
    "children/pipeline",
    "children/named_agents/run",
    "values/typed_output",
    "values/rlm",
    "values/values",
    "extending/own_tool",
    "extending/own_tools_in_cells",
    "extending/hooks",
    "extending/feature",
    "extending/skills/run",
)
OTHERS = (  # a real model is asked more than once
    "children/receipts",
    "values/agent_function",
    "values/map_frame",
    "strategies/branches",
    "strategies/debate",
    "strategies/plan_and_execute",
)
ELSEWHERE = ("demo/", "services/", "notebooks/", "data/", "extending/units_server")
"""What other tests run, or other examples."""


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    return copy_examples(tmp_path)


def tree(folder: Path) -> dict[str, bytes | None]:
    """All that is below a folder, without what Python compiles."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if "__pycache__" not in path.parts
    }


def output_of(examples: Path, name: str) -> str:
    """What it prints. It runs from any folder, and leaves nothing there and beside itself."""
    elsewhere, before = examples.parent / "elsewhere", tree(examples)
    elsewhere.mkdir(exist_ok=True)
    done = run_python(examples / f"{name}.py", cwd=elsewhere)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert tree(examples) == before
    assert tree(elsewhere) == {}
    return done.stdout


def there() -> set[str]:
    """All examples, without their suffix."""
    folder = ROOT / "examples"
    files = {path.relative_to(folder) for suffix in ("py", "ipynb") for path in folder.glob(f"**/*.{suffix}")}
    return {path.with_suffix("").as_posix() for path in files if not any(part.startswith(".") for part in path.parts)}


def test_none_is_without_a_test() -> None:
    assert {name for name in there() if not name.startswith(ELSEWHERE)} == {*PROGRAMS, *OTHERS}
    tests = Path(__file__).read_text(encoding="utf-8")
    assert [name for name in (*PROGRAMS, *OTHERS) if f'output_of(examples, "{name}")' not in tests] == []


def test_the_index_names_each_in_the_folder_that_it_is_in() -> None:
    """The page's own rows, and no other program."""
    page = (ROOT / "examples/README.md").read_text(encoding="utf-8")
    named = {name.rpartition(".")[0] for name in re.findall(r"`([\w/]+\.(?:py|ipynb))`", page)}
    assert named == {name for name in there() if not name.startswith("data/")}


@pytest.mark.parametrize("name", [*PROGRAMS, *OTHERS])
def test_each_says_by_its_exit_status_that_it_failed(examples: Path, tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    server = {"FREEACT_BASE_URL": "http://127.0.0.1:9/v1"}  # nobody listens there
    done = run_python(examples / f"{name}.py", "--model", "openai-chat:nobody", cwd=elsewhere, env=server)
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert done.stderr


def test_a_child_that_fails_fails_the_program(examples: Path, tmp_path: Path) -> None:
    for path in (examples / "data").glob("*.csv"):
        path.unlink()
    done = run_python(examples / "children/pipeline.py", cwd=tmp_path)
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert "subtask 3" in done.stderr


def test_sdk(examples: Path) -> None:
    output = output_of(examples, "start/sdk")
    assert re.search(r"^agent-\w{8} asks to run code: print\(datetime", output)
    assert re.search(r"^agent-\w{8} got: Saturday$", output, re.MULTILINE)
    assert re.search(r"^completed: It was a Saturday\. \(turns 2, tool calls 1, .* s\)$", output, re.MULTILINE)


def test_ask_user(examples: Path) -> None:
    assert output_of(examples, "start/ask_user") == (
        "asked for Where should it be?: park or beach\n"
        "asked for people: integer\nasked for day: Saturday or Sunday\nrefused: People must be a whole number\n"
        "completed: A picnic by the river: 6 people on Sunday.\n"
    )


def test_receipts(examples: Path) -> None:
    assert output_of(examples, "children/receipts").splitlines() == [
        "works says: 17.33",
        "  receipts: 1 cell",
        "  ok: prices = [17, 19, 16] -> mean 17.333333333333332",
        "  wrote prices.csv: 8 bytes, sha256 ee461fac...",
        "  its answer has passed the check",
        "talks says: All 12 tests pass. The summary is in summary.md.",
        "  receipts: nothing was run",
        "  no file that the answer names exists: summary.md",
        "counts says: 3",
        "  receipts: nothing was run",
        "  its answer has passed the check",
    ]


def test_branches(examples: Path) -> None:
    output = output_of(examples, "strategies/branches")
    tree, _, rest = output.partition("\n\n")
    tried = len(re.findall(r"[├└]── ", tree))
    assert tried > 3
    assert f"{tried} states, {tried + 2} cells\n" in rest, "no cell was run twice"
    found = re.findall(r"(\d+) rows, (\d+) implausible", rest)
    assert int(found[0][1]) > 0, "the state in which all began is as it was"
    assert found[0][0] == "365"
    assert int(found[-1][0]) > 330
    assert found[-1][1] == "0"
    way = re.findall(r"^ +(\d+ rows, \d+ implausible)  after", rest, re.MULTILINE)
    written = rest.partition("cleaning.txt, of the best state alone:\n")[2].split("\n")
    assert [line for line in written if line] == way, "files of other branches are not in it"


def test_debate(examples: Path) -> None:
    assert output_of(examples, "strategies/debate") == (
        "round 1  quick: 10, careful: 8, sceptical: 8\nround 2  quick: 8, careful: 8, sceptical: 8\n3 of 3 say: 8\n"
    )


def test_debate_with_another_model(examples: Path) -> None:
    with chat(lambda _: ["Said by the server."]) as server:
        env = {"FREEACT_BASE_URL": server.server.base_url}
        done = run_python(examples / "strategies/debate.py", "--model", "openai-chat:scripted", cwd=examples, env=env)
        assert len(server.server.requests) == 6
    assert done.stdout.endswith("3 of 3 say: Said by the server.\n"), done.stderr


def test_agent_function(examples: Path) -> None:
    output = output_of(examples, "values/agent_function")
    expected = ""
    for station in ("harbour", "ridge", "valley"):
        with (examples / f"data/{station}.csv").open(encoding="utf-8") as file:
            gone = [row["temp"].strip() in ("", "-999", "-999.0") for row in csv.DictReader(file)]
        longest = max(map(len, "".join(" x"[is_gone] for is_gone in gone).split()))
        expected += f"{station}: Gaps(missing={sum(gone)}, longest={longest})\n"
    assert output == expected


def test_plan_and_execute(examples: Path) -> None:
    output = output_of(examples, "strategies/plan_and_execute")
    assert re.search(r"data/harbor\.csv\.\n.*data/harbor\.csv is not there", output), "a step that has failed"
    rows = {name: (examples / f"data/{name}.csv").read_text().count("\n") - 1 for name in ("harbour", "ridge")}
    for name, count in rows.items():
        assert output.count(f"  {name}: {count} rows\n") == 1, "what was done is not done again"
    assert re.search(rf"\n2 plans, \d+ model requests: {max(rows, key=lambda name: rows[name])}\n$", output)


def test_own_tools_in_cells(examples: Path) -> None:
    assert output_of(examples, "extending/own_tools_in_cells").splitlines() == [
        "enough: 120 x pen",
        "ordered: 10 x ink",
        "ordered: 10 x paper",
        "The shop has ordered: 10 x ink, 10 x paper",
    ]


def test_rlm(examples: Path) -> None:
    first, second = output_of(examples, "values/rlm").splitlines()
    answer, known = re.findall(r"^(\d+) of 2,000 records ask for a place; (\d+) do\.$", first)[0]
    assert answer == known
    assert re.fullmatch(r"41 requests, [\d,]+ tokens for [\d,]+ characters", second)


def test_map_frame(examples: Path) -> None:
    lines = output_of(examples, "values/map_frame").splitlines()
    assert [line.split()[-2:] for line in lines[:3]] == [["topic", "angry"], ["delivery", "False"], ["price", "True"]]
    assert lines[5:] == ["failed: 103", "6 requests, then 3: the second call asked only the row that failed."]


def test_values(examples: Path) -> None:
    lines = output_of(examples, "values/values").splitlines()
    assert [line.split() for line in lines[:2]] == [["station", "temp"], ["b", "55.0"]]
    assert lines[2] == "ok Summary(stations=2, highest=55.0)"
    assert lines[3] == "'summary' does not have the requested type: Input should be a valid array"


def test_parallel_children(examples: Path) -> None:
    output = output_of(examples, "children/parallel_children")
    events = re.findall(r"^ *[\d.]+ s  (root|\d+ queens) +(.+)$", output, re.MULTILINE)
    assert [what for who, what in events if who != "root"][:6] == ["starts"] * 3 + ["waits for a place"] * 3
    at_work: set[str] = set()
    most = 0
    for who, what in events:
        if who != "root" and what.startswith("computed"):
            at_work.add(who)
        elif what == "completed":
            at_work.discard(who)
        most = max(most, len(at_work))
    assert most <= 3
    for n, ways in {5: 10, 6: 4, 7: 40, 8: 92, 9: 352, 10: 724}.items():
        assert f"\n{n} queens: {ways} ways\n" in output
    assert "All agents together: turns 14, tool calls 12," in output


def test_choices_for_children(examples: Path) -> None:
    with (examples / "data/ridge.csv").open(encoding="utf-8") as file:
        days = list(csv.DictReader(file))
    missing = sum(not day["temp"].strip() for day in days)
    *children, whole, lines = output_of(examples, "children/choices_for_children").splitlines()
    assert sorted(children) == [
        f"Count (function:small): {missing} without a temperature; my tools: execute_ipython_cell",
        f"Say it in words (function:large): My parent has read {len(days)} days.",
        f"Tidy (function:small): {len(days) - missing} left in the copy",
    ]
    assert whole.startswith(f"completed: {missing} without a temperature; ")
    assert lines == f"lines of data/ridge.csv: {len(days) + 1}"


def test_fan_out(examples: Path) -> None:
    output = output_of(examples, "children/fan_out")
    children = {line for line in output.splitlines() if ": completed, " in line}
    assert children == {
        f"{path.stem}: completed, {json.dumps({'rows': len(rows), 'missing': sum(not row['temp'].strip() for row in rows)})}"
        for path in (examples / "data").glob("*.csv")
        for rows in [list(csv.DictReader(path.open(encoding="utf-8")))]
    }
    assert output.endswith("\nIt is harbour.csv.\n")


def test_typed_output(examples: Path) -> None:
    assert output_of(examples, "values/typed_output") == "harbour.csv: 374 rows, 5 columns: date, logger, temp, rain, wind\n"
    with (examples / "data/harbour.csv").open("a", encoding="utf-8") as file:
        file.write("2025-01-01,TH-2,1.0,0.0,1.0\n")
    assert "375 rows" in output_of(examples, "values/typed_output")


def test_own_tool(examples: Path) -> None:
    output = output_of(examples, "extending/own_tool")
    assert "asked for: order(item='rain gauge', count=500)" in output
    assert "- ordered: 3 x thermometer\n- denied: more than 100 need a manager's signature" in output
    assert "The shop has: {'thermometer': 3}" in output


def test_pipeline(examples: Path) -> None:
    output = output_of(examples, "children/pipeline")
    last = "subtask 3: Which station has the most rows?"
    lines = output.splitlines()
    measured = [lines.index(line) for line in lines if re.match("completed: subtask [012]", line)]
    assert len(measured) == 3
    assert lines.index(f"begins: {last}") > max(measured)
    rows = {}
    for station in ("harbour", "ridge", "valley"):
        rows[station] = (examples / f"data/{station}.csv").read_text().count("\n") - 1
        assert f"\n{station}: {rows[station]} rows\n" in output
    assert f"{max(rows, key=lambda station: rows[station])} has the most: {rows}" in output


def test_named_agents(examples: Path) -> None:
    output = output_of(examples, "children/named_agents/run")
    assert "asks to start a child agent of type checker" in output
    assert "(the checker) asks to run code" in output
    assert "(the editor) asks" not in output
    assert output.endswith('\nThe editor says: {"verdict": "mend", "changes": ["Write 28 mm instead of 31 mm."]}\n')
    draft = examples / "children/named_agents/draft.md"
    draft.write_text(draft.read_text().replace("31 mm", "28 mm"))
    assert output_of(examples, "children/named_agents/run").endswith('{"verdict": "publish", "changes": []}\n')


def test_hooks(examples: Path) -> None:
    assert output_of(examples, "extending/hooks") == (
        "denied: git push\na cell has ended: success\nThe push was denied; the sum is 42.\n"
    )


def test_feature(examples: Path) -> None:
    said = output_of(examples, "extending/feature")
    assert re.fullmatch(r"3 cells have failed. What should [0-9a-f]{4} do\?\nThe sum is 42.\n", said), said


def test_skills(examples: Path) -> None:
    output = output_of(examples, "extending/skills/run")
    assert output.startswith("skills: commit-message table-report\nit loads table-report\n")
    assert "temp: line 5 is empty" in output
    assert "| temp | 245 | 4 | -10.2 | 59.9 |" in output


@pytest.mark.parametrize("name", PROGRAMS)
def test_another_model(examples: Path, name: str) -> None:
    def script(request: dict[str, Any]) -> ChatReply:
        offered = [tool["function"]["name"] for tool in request.get("tools", ())]
        answers = {"final_result": {"rows": 1, "columns": ["a"]}, "hand_over": {"variable": "readings"}}
        calls: list[Any] = [ChatCall(name, arguments) for name, arguments in answers.items() if name in offered]
        return calls or ["Said by the server."]

    with chat(script) as server:
        done = run_python(
            examples / f"{name}.py",
            "--model",
            "openai-chat:scripted",
            cwd=examples,
            env={"FREEACT_BASE_URL": server.server.base_url},
        )
        assert len(server.server.requests) == 1
    assert done.returncode == 0, done.stderr
    said = {"values/typed_output": "1 rows, 1 columns: a", "values/values": "station  temp\n      a  20.5"}
    assert said.get(name, "Said by the server.") in done.stdout


def test_notebook(examples: Path, tmp_path: Path) -> None:
    """Nobody can press buttons here, so everything is allowed by a setting."""
    assert all(not cell.get("outputs") for cell in nbformat.read(examples / "notebooks/notebook.ipynb", as_version=4).cells)
    env = {"FREEACT_HEADLESS": "allow", "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime")}
    arguments = ("-m", "jupyter", "execute", "--kernel_name=python3", f"--output={tmp_path}/done", "notebook.ipynb")
    done = run_python(*arguments, cwd=examples / "notebooks", env=env)
    assert done.returncode == 0, done.stderr
    cells = [cell for cell in nbformat.read(tmp_path / "done.ipynb", as_version=4).cells if cell.cell_type == "code"]
    shown = "\n".join("".join(output.get("data", {}).get("text/html", "")) for output in cells[2].outputs)
    assert 'src="data:image/png;base64,' in shown
    assert "Draw the temperatures of data/valley.csv." in shown
    assert "text/plain" in cells[3].outputs[0].data
    days = (examples / "data/valley.csv").read_text().count("\n") - 1 - 5  # five temperatures are -999
    assert (
        cells[3]
        .outputs[0]
        .data["text/plain"]
        .startswith(f"('completed', 'The valley in 2024: {days} days, from -3.2 to 25.0 °C")
    )


def test_notebook_on_a_copy(examples: Path, tmp_path: Path) -> None:
    """Nobody can answer here, so it says yes where a person is asked."""
    notebook = examples / "notebooks/copy.ipynb"
    notebook.write_text(notebook.read_text().replace("adopt days, mean", "adopt days, mean --yes"))
    work = (
        "days = [day for day in days if float(day['temp']) > -100]\n"
        "mean = round(sum(float(day['temp']) for day in days) / len(days), 1)"
    )
    with chat(by_turn([ChatCall("execute_ipython_cell", {"code": work})], ["Done."])) as server:
        env = {"FREEACT_HEADLESS": "allow", "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime")}
        env |= {"FREEACT_MODEL": "openai-chat:scripted", "FREEACT_BASE_URL": server.server.base_url}
        arguments = ("-m", "jupyter", "execute", "--kernel_name=python3", f"--output={tmp_path}/done", notebook.name)
        done = run_python(*arguments, cwd=notebook.parent, env=env)
    assert done.returncode == 0, done.stderr
    *_, prompt, adopted, result = (
        cell for cell in nbformat.read(tmp_path / "done.ipynb", as_version=4).cells if "outputs" in cell
    )
    table = prompt.outputs[-1].data["text/plain"]
    assert "mean: NoneType None -> float 9.4" in table, table
    assert adopted.outputs[0].text == "Taken over: days, mean\n"
    assert result.outputs[0].data["text/plain"] == "(354, 9.4)"
