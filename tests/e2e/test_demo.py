"""The demo, on real kernels: what it finds is held against what the weather was, which only its data's maker knows."""

import csv
import importlib.util
import struct
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.chat_server import ChatReply
from support.cli import chat, environment
from support.programs import copy_examples, run_python
from support.terminal import Terminal

from freeact_sub import __version__

pytestmark = [pytest.mark.e2e, pytest.mark.kernel, pytest.mark.mcp]

STATIONS = ("harbour", "ridge", "valley")
COLUMNS = ("temp", "rain", "wind")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the demo was run, without a terminal, and what it printed, in `printed`."""
    folder = tmp_path_factory.mktemp("demo")
    done = run_python(copy_examples(folder) / "demo/demo.py", "--mode", "ask", cwd=folder)
    assert done.returncode == 0, (done.stdout, done.stderr)
    (folder / "printed").write_text(done.stdout, encoding="utf-8")
    return folder


@pytest.fixture
def printed(folder: Path) -> str:
    return (folder / "printed").read_text(encoding="utf-8")


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def maker_of(examples: Path) -> ModuleType:
    """The program that makes the demo's data."""
    spec = importlib.util.spec_from_file_location("make_data", examples / "data" / "make_data.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_data"] = module
    spec.loader.exec_module(module)
    return module


def test_the_data_files_are_what_their_maker_makes(folder: Path, tmp_path: Path) -> None:
    maker_of(folder / "examples").main(tmp_path)
    for station in STATIONS:
        assert (tmp_path / f"{station}.csv").read_bytes() == (folder / "examples/data" / f"{station}.csv").read_bytes()


@pytest.mark.parametrize("station", STATIONS)
def test_the_clean_days_are_the_true_weather(folder: Path, station: str) -> None:
    truth = {day.date.isoformat(): day for day in maker_of(folder / "examples").true_days(station)}
    raw = {row["date"]: row for row in rows_of(folder / "examples/data" / f"{station}.csv")}
    clean = rows_of(folder / "out" / f"{station}.csv")

    assert [row["date"] for row in clean] == list(raw)  # each day once, in order
    for row in clean:
        for column, tolerance in zip(COLUMNS, (0.06, 0.2, 0.0), strict=True):  # °F and inches were rounded
            if raw[row["date"]][column] in ("", "-999.0"):
                assert row[column] == ""
            else:
                assert abs(float(row[column]) - getattr(truth[row["date"]], column)) <= tolerance, row


def test_the_report_has_the_figures_of_the_files_and_their_faults(folder: Path) -> None:
    report = (folder / "out/report.md").read_text(encoding="utf-8")
    for station in STATIONS:
        clean, raw = rows_of(folder / "out" / f"{station}.csv"), rows_of(folder / "examples/data" / f"{station}.csv")
        temp = [float(row["temp"]) for row in clean if row["temp"]]
        rain = sum(float(row["rain"]) for row in clean if row["rain"])
        assert f"| {station} | {len(clean)} | {sum(temp) / len(temp):.1f} | {rain:.0f} |" in report
        faults = report.partition(f"## Faults in {station}.csv\n")[2].partition("##")[0]
        assert ("twice" in faults) == (len(raw) > len(clean))
        assert ("°F" in faults) == (len({row["logger"] for row in raw}) > 1)
        assert ("7 days without a row" in faults) == (len(clean) == 366 - 7)
        for column in COLUMNS:
            values = [row[column] for row in raw]
            for count in (values.count(""), values.count("-999.0")):
                assert (f"{count} {column}" in faults) == (count > 0)


def test_the_picture_is_a_picture(folder: Path) -> None:
    content = (folder / "out/weather.png").read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", content[16:24])
    assert width > 600
    assert height > 400


def test_without_a_terminal_it_approves_and_tells_of_everything(folder: Path, printed: str) -> None:
    assert printed.startswith("model: scripted demo model, no LLM\n")
    for text in (
        "asks to start a child agent (clean ridge.csv)",
        "asks to call convert of the MCP server units",  # by the model
        "asks to call conversion of the MCP server units",  # by code in a cell
        "approved: run code",
        "[picture: image/png",
        "The demo is complete.",
        "4: a root and 3 children, 3 of them at the same time",
        "10, in 4 kernels",
        "3 answered by the server `units`",
        "16, 0 denied",
        str(folder / "out/report.md"),
        str(folder / "out/weather.png"),
    ):
        assert text in printed
    *_, advice, command = printed.splitlines()
    assert "ANTHROPIC_API_KEY" in advice
    done = subprocess.run(
        ["/bin/sh", "-c", f"{command.partition('#')[0]} --version"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert done.stdout == f"freeact-sub {__version__}\n"
    assert printed.count("asks to run this cell") == 10


def test_other_data_give_another_report_and_what_did_not_happen_is_an_error(tmp_path: Path) -> None:
    examples = copy_examples(tmp_path)
    (examples / "data/valley.csv").unlink()
    ridge = examples / "data/ridge.csv"
    ridge.write_text("".join(line for line in ridge.read_text().splitlines(keepends=True) if "HX-90" not in line))
    harbour = examples / "data/harbour.csv"
    harbour.write_text("\n".join(dict.fromkeys(harbour.read_text().splitlines())) + "\n")  # no line twice

    done = run_python(examples / "demo/demo.py", "--out", tmp_path / "elsewhere", cwd=tmp_path)

    assert done.returncode == 1
    assert "The demo is not complete:\n- the MCP server was not asked, or did not answer\n" in done.stdout
    assert "3: a root and 2 children, 2 of them at the same time" in done.stdout
    report = (tmp_path / "elsewhere/report.md").read_text(encoding="utf-8")
    assert "| ridge | 221 |" in report
    assert "valley" not in report
    assert "twice" not in report
    assert "°F" not in report
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("denied", [False, True])
def test_the_demo_asks_in_a_terminal(tmp_path: Path, denied: bool) -> None:
    demo = str(copy_examples(tmp_path) / "demo/demo.py")
    with Terminal([sys.executable, demo, "--mode", "ask"], cwd=tmp_path, env=environment()) as terminal:
        terminal.answer("a", "Approval 1 of 1", "asks to run this cell")
        terminal.answer("a", "Approval 1 of 3", "asks to start a child agent")
        assert not (tmp_path / "out/report.md").exists()
        terminal.answer("r" if denied else "y", "Approval 1 of 1", "asks to call convert of the MCP server units")
        if denied:
            terminal.wait_at_bottom("why not:")
            terminal.enter("not on a Sunday")
        else:
            terminal.answer("a", "Approval 1 of 2", "asks to call conversion of the MCP server")
        assert terminal.wait_end() == (1 if denied else 0)
    report = (tmp_path / "out/report.md").read_text(encoding="utf-8")
    if denied:
        assert "not cleaned: I could not clean ridge.csv: denied: not on a Sunday" in terminal.shown
        assert "The demo is not complete:" in terminal.shown
        assert "- ridge.csv was not written" in terminal.shown
        assert "ridge" not in report
    else:
        assert "The demo is complete." in terminal.shown
        assert "| ridge | 366 |" in report


def test_the_demo_runs_unasked_behind_a_wall_and_ends_with_the_picture(tmp_path: Path) -> None:
    demo = str(copy_examples(tmp_path) / "demo/demo.py")
    with Terminal([sys.executable, demo], cwd=tmp_path, env=environment()) as terminal:
        assert terminal.wait_end() == 0
        assert "The demo is complete." in terminal.shown
        assert "± report.md" in terminal.shown
        assert "Approval 1 of" not in terminal.shown
        _, unasked, end = terminal.shown.rpartition("approvals  0, 0 denied")
        assert unasked
        assert "out/report.md" in end.replace("\n", "")
        if importlib.util.find_spec("textual_image"):
            assert end.count("▀") > 100


def test_ctrl_c_ends_it(tmp_path: Path) -> None:
    demo = str(copy_examples(tmp_path) / "demo/demo.py")
    with Terminal([sys.executable, demo, "--mode", "ask"], cwd=tmp_path, env=environment()) as terminal:
        terminal.wait_at_bottom("Approval 1 of 1")
        terminal.press("\x03")
        assert terminal.wait_end() == 130
        assert "demo: interrupted" in terminal.shown


def test_a_real_model_gets_the_same_prompt(tmp_path: Path) -> None:
    def script(request: dict[str, Any]) -> ChatReply:
        del request
        return ["I will not."]

    examples = copy_examples(tmp_path)
    with chat(script) as server:
        done = run_python(examples / "demo/demo.py", *server.options, cwd=tmp_path)
        assert f"The folder {examples / 'data'} has CSV files of weather stations" in server.read_by_model()
    assert done.returncode == 1
    assert done.stdout.startswith("model: openai-chat:scripted\n")
    assert "- report.md was not written" in done.stdout
