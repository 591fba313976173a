"""The pages of `docs/start/` and `docs/tutorials/` are followed to the letter, with a model that does what they say it does.

A file is written where a sentence ends in its name, as in "The server is one file, `rates.py`:". Commands are run in order in one
folder. A block of text after a command is what the command prints.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pytest
from support.chat_server import ChatCall, ChatReply
from support.cli import LIMIT_SECONDS, chat, environment, texts_of
from support.programs import ROOT
from support.terminal import READY, Terminal

pytestmark = [pytest.mark.e2e, pytest.mark.kernel]

Script = Callable[[dict[str, Any]], ChatReply]
BLOCK = re.compile(r"(?:`(?P<file>[\w./-]+)`:\n\n)?^```(?P<language>[a-z]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_RUN = ("python3 -m venv", ".venv/bin/pip install")
"""Lines that install: `scripts/release.py` and tests/e2e/test_wheel.py do that."""
BY_HAND = {"first-approval", "notebook", "service"}
"""Pages with tests of their own below, or, for the service, in tests/e2e/test_service.py."""
PAGES = sorted(
    path.relative_to(ROOT).as_posix() for name in ("start", "tutorials") for path in (ROOT / "docs" / name).glob("*.md")
)


@dataclass(frozen=True, kw_only=True)
class Step:
    """A block of a page."""

    file: str
    """Empty: it is no file."""
    language: str
    text: str


def steps(page: str) -> list[Step]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return [Step(file=found["file"] or "", language=found["language"], text=found["text"]) for found in BLOCK.finditer(text)]


def prompts(request: dict[str, Any]) -> list[str]:
    """The newest first; a child's too, and the texts of skills that were loaded."""
    return [str(message["content"]) for message in reversed(request["messages"]) if message["role"] == "user"]


def does(*acts: tuple[str, str, str]) -> Script:
    """A model. Args: acts: words of a prompt, the cell that it runs then, and its answer; `{}` is what the cell printed."""

    def script(request: dict[str, Any]) -> ChatReply:
        for message in prompts(request):
            for words, code, answer in acts:
                if words in message:
                    return reply(request, code, answer)
        raise AssertionError(request["messages"])

    return script


def reply(request: dict[str, Any], code: str, answer: str) -> ChatReply:
    if request["messages"][-1]["role"] != "tool":
        return [ChatCall("execute_ipython_cell", {"code": code})]
    printed = texts_of(request)[-1].strip()
    for tool in request.get("tools", ()) if answer.startswith("=") else ():
        if tool["function"]["name"] in ("final_result", "hand_over"):
            field = next(iter(tool["function"]["parameters"]["properties"]))
            value = answer[1:] if field == "variable" else float(printed)
            return [ChatCall(tool["function"]["name"], {field: value})]
    return [answer.replace("{}", printed)]


COLDEST = (
    "import csv\nprint(min((float(row['temp']), row['date']) for row in csv.DictReader(open('days.csv')) if row['temp'])[0])"
)
CHILDREN = """
import asyncio, pathlib

async def count(path):
    r = await agent.task("Count the lines of the file `name`.", description=path.name, inputs={"name": path.name}, output=int)
    return path.name, r.output

counts = dict(await asyncio.gather(*map(count, sorted(pathlib.Path().glob("*.txt")))))
print(sum(counts.values()), "lines:", ", ".join(f"{name} {number}" for name, number in counts.items()))
"""
RATES = 'print(*[f"{250 * await agent.mcp.rates.rate(currency=name):.2f} {name}" for name in ("USD", "CHF")], sep=" and ")'
SALES = "import pandas as pd\nsales = pd.read_csv('sales.csv')\nprint((~(sales.units > 0)).sum())"
EARNED = "sales = sales[sales.units > 0]\ne = (sales.units * sales.price).groupby(sales.region).sum()\nprint(f'The north earned {e.north:.2f}, the south {e.south:.2f}.')"
FRAME = "good = sales[sales.units > 0]\nearned = good.assign(earned=good.units * good.price).groupby('region', as_index=False)[['earned']].sum()"
NOTES = 'agent.skill("release-notes")\nfrom skills import release_notes\nprint(*(f"- {entry}" for entry in release_notes.entries("CHANGES.txt")), sep="\\n")'


def topics(request: dict[str, Any]) -> ChatReply:
    """The model of the fan-out: a request of a map, or a child."""
    text = prompts(request)[0]
    if "What is this message about?" in text:
        name = request["tools"][0]["function"]["name"]
        return [ChatCall(name, {"topic": "delivery" if "parcel" in text or "delivery" in text else "price"})]
    message = re.search(r"with code: (.*)", text)
    assert message
    return reply(request, f"n = len({message[1]!r}.split())\nprint(n)", "=n")


MODELS: dict[str, Script] = {
    "install": does(),
    "first-run": does(
        ("coldest", COLDEST, "2 January 2024 was the coldest day, with {} °C."),
        ("no temperature", "print(1)", "One day has no temperature: 3 January 2024."),
    ),
    "first-child": does(
        ("Start one child", CHILDREN.strip(), "The files have {}."),
        ("Count the lines of the file", "n = len(open(name).readlines())\nprint(n)", "=n"),
    ),
    "data-analysis": does(
        ("what is wrong", SALES, "Two rows are wrong: February in the south has no units, March in the south has -7."),
        ("Which region", EARNED, "{}"),
        ("Sum `sales`", FRAME, "=earned"),
    ),
    "mcp-server": does(("250 euros", RATES, "250 euros are {}.")),
    "skill": does(("release notes", NOTES, "{}")),
    "fan-out": topics,
}


def test_each_page_is_followed() -> None:
    assert {Path(page).stem for page in PAGES} == MODELS.keys() | BY_HAND


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project in an empty home."""
    (tmp_path / "home").mkdir()
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def variables(folder: Path, base_url: str) -> dict[str, str]:
    """As on a machine where somebody says yes to everything, with the program on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    settings = {"FREEACT_MODEL": "openai-chat:scripted", "FREEACT_BASE_URL": base_url, "FREEACT_HEADLESS": "allow"}
    return {
        **environment(),
        **settings,
        "PATH": path,
        "HOME": str(folder.parent / "home"),
        "XDG_CONFIG_HOME": "",
        "XDG_STATE_HOME": "",
    }


@pytest.mark.parametrize("page", [page for page in PAGES if Path(page).stem not in BY_HAND])
def test_the_page_works_as_printed(page: str, folder: Path) -> None:
    printed, done = "", 0
    with chat(MODELS[Path(page).stem]) as model:
        env = variables(folder, model.server.base_url)
        for step in steps(page):
            if step.file:
                (folder / step.file).parent.mkdir(parents=True, exist_ok=True)
                (folder / step.file).write_text(step.text, encoding="utf-8")
            elif step.language == "sh":
                lines = [line for line in step.text.splitlines() if not line.startswith(NOT_RUN)]
                printed, done = shell("\n".join(lines), folder, env), done + len(lines)
            elif step.language == "text":
                missing = [line for line in step.text.splitlines() if line.strip() not in printed]
                assert not missing, (missing, printed)
    assert done


def shell(lines: str, folder: Path, env: dict[str, str]) -> str:
    ran = subprocess.run(
        ["/bin/sh", "-ec", lines],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, (lines, ran.stdout, ran.stderr)
    return ran.stdout


def test_the_first_approval_looks_as_printed(folder: Path) -> None:
    code = 'import os\nos.makedirs("archive")\nos.rename("2023.csv", "archive/2023.csv")'

    def script(request: dict[str, Any]) -> ChatReply:
        if "How many lines" in prompts(request)[0]:
            return reply(request, "print(len(open('2023.csv').readlines()))", "2023.csv has {} lines.")
        if request["messages"][-1]["role"] == "tool":
            return ["Done: `2023.csv` is in `archive/`."]
        return [ChatCall("execute_ipython_cell", {"code": code, "description": "move last year's file"})]

    question, done, auto, _ = (step.text for step in steps("docs/start/first-approval.md"))
    (folder / "2023.csv").write_text("a\n1\n")
    with chat(script) as model:
        env = {**variables(folder, model.server.base_url), "FREEACT_HEADLESS": ""}
        del env["FREEACT_HEADLESS"]
        assert "2023.csv has 2 lines." in shell(auto, folder, env)
        with Terminal(["freeact-sub"], cwd=folder, env=env) as terminal:
            terminal.wait_at_bottom(READY)
            terminal.enter(question.splitlines()[0].removeprefix("> "))
            terminal.wait_for(*(line for line in question.splitlines() if line.strip()))
            assert (folder / "2023.csv").exists()
            terminal.answer("y")
            terminal.wait_for(done.strip())
            terminal.wait_at_bottom(READY)
            assert (folder / "archive/2023.csv").exists()
            terminal.enter("/undo")
            terminal.wait_for("undone: ")
            assert (folder / "2023.csv").exists()
            terminal.wait_at_bottom(READY)
            terminal.enter("/exit")
            assert terminal.wait_end() == 0


def test_the_notebook_works_as_printed(folder: Path) -> None:
    fill = "days = days.assign(temp=days.temp.interpolate())\nprint('filled')"
    script = does(
        ("Fill the gap", fill, "Filled with -0.85."),
        ("What is the mean", "mean = float(days.temp.mean())\nprint(mean)", "=mean"),
    )
    # nobody is there to press a button: that is why the program asks before it takes values over, and `--yes` answers
    texts = [step.text.replace("agent_adopt days", "agent_adopt days --yes") for step in steps("docs/tutorials/notebook.md")]
    cells = [nbformat.v4.new_code_cell(text) for text in texts]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / "page.ipynb")
    with chat(script) as model:
        env = {**variables(folder, model.server.base_url), "JUPYTER_RUNTIME_DIR": str(folder / "runtime")}
        shell("python -m jupyter execute --kernel_name=python3 --inplace page.ipynb", folder, env)
    shown = str([cell.outputs for cell in nbformat.read(folder / "page.ipynb", as_version=4).cells])
    assert all(words in shown for words in ("before: 1", "after: 0", "mean: 0.2"))


def test_no_output_stands_without_its_command() -> None:
    """A block of text on a page is a file, or what the commands above it print."""
    for page in PAGES:
        if Path(page).stem not in BY_HAND:
            found = steps(page)
            for before, step in zip([None, *found], found, strict=False):
                assert step.language != "text" or step.file or (before and before.language == "sh"), (page, step.text)
