"""The README says what is true: its code runs, its commands and settings exist, its picture can be made again."""

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from support.chat_server import ChatCall, ChatReply
from support.cli import Chat, chat, run, texts_of
from support.programs import ROOT, code_blocks, run_python

README = (ROOT / "README.md").read_text(encoding="utf-8")
NOTEBOOK, *PROGRAMS = sorted(code_blocks("python"), key=lambda block: not block.startswith("%"))


def cell_and_answer(request: dict[str, Any]) -> ChatReply:
    """What a model might do with the prompts of the README: run the expression of the prompt, say what came out."""
    if texts := texts_of(request):
        return [texts[-1]]
    return [ChatCall("execute_ipython_cell", {"code": "print(2 ** 100)"})]


@pytest.fixture
def model() -> Iterator[Chat]:
    with chat(cell_and_answer) as server:
        yield server


def settings_of(model: Chat) -> dict[str, str]:
    return {"FREEACT_MODEL": "openai-chat:scripted", "FREEACT_BASE_URL": model.server.base_url}


@pytest.mark.e2e
@pytest.mark.kernel
def test_the_sdk_in_ten_lines(model: Chat, tmp_path: Path) -> None:
    block = PROGRAMS[0]
    assert len([line for line in block.splitlines() if line]) == 10
    (tmp_path / "program.py").write_text(block, encoding="utf-8")
    done = run_python("program.py", cwd=tmp_path, env=settings_of(model))
    assert done.returncode == 0, done.stderr
    *events, answer = done.stdout.splitlines()
    kinds = [json.loads(line)["type"] for line in events]
    assert (kinds[0], kinds[-1], kinds.count("ApprovalRequest")) == ("AgentStarted", "AgentFinished", 1)
    assert answer == str(2**100)


@pytest.mark.e2e
@pytest.mark.parametrize("block", PROGRAMS[1:], ids=lambda block: block.splitlines()[-1])
def test_other_programs(block: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(block, encoding="utf-8")
    done = run_python("program.py", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.e2e
@pytest.mark.kernel
def test_the_notebook_in_a_few_lines(model: Chat, tmp_path: Path) -> None:
    assert len([line for line in NOTEBOOK.splitlines() if line]) <= 5
    cells = [nbformat.v4.new_code_cell(source) for source in (NOTEBOOK, "result.output")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "readme.ipynb")
    env = {**settings_of(model), "FREEACT_HEADLESS": "allow", "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime")}
    arguments = ("-m", "jupyter", "execute", "--kernel_name=python3", "--inplace", "readme.ipynb")
    done = run_python(*arguments, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    shown = nbformat.read(tmp_path / "readme.ipynb", as_version=4).cells[1].outputs[0].data["text/plain"]
    assert shown == repr(str(2**100))


def test_its_commands_exist() -> None:
    commands = "\n".join(code_blocks("sh"))
    known = set(re.findall(r"--[a-z-]+", run("run", "--help", cwd=ROOT).stdout))
    used = {
        option for line in re.findall(r"^freeact-sub.*", commands, re.MULTILINE) for option in re.findall(r"--[a-z-]+", line)
    }
    assert used
    assert used <= known
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    used_targets = set(re.findall(r"\bmake ([a-z]+)(?=[\s`])", README))
    assert {"demo", "test", "check"} <= used_targets <= targets


def test_its_extras_exist() -> None:
    declared = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    for extra in re.findall(r'"\.\[(\w+)\]"', README):
        assert re.search(rf"^{extra} = ", declared, re.MULTILINE)


def test_its_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!https?://)([^)]+)\)", README):
        assert (ROOT / target).exists(), target
    for name in re.findall(r"^\| `([a-z]+/)` \|", README, re.MULTILINE):
        assert (ROOT / name).is_dir(), name
    for name in re.findall(r"`(?:examples/)?(\w+\.(?:py|ipynb))`", README):
        assert [*ROOT.glob(f"examples/{name}"), *ROOT.glob(f"docs/{name}")], name


@pytest.mark.e2e
@pytest.mark.kernel
@pytest.mark.mcp
def test_its_picture_can_be_made_again(tmp_path: Path) -> None:
    done = run_python(ROOT / "docs/make_pictures.py", "--out", tmp_path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for picture in (tmp_path / "session.svg", ROOT / "docs/session.svg"):
        text = " ".join("".join(ET.parse(picture).getroot().itertext()).replace("\u00a0", " ").split())
        for words in (
            "make demo",
            "● Child clean ridge.csv",
            "clean ridge.csv asks: units.conversion(",
            "Approval 1 of 2",
            "asks to call conversion of the MCP server units",
        ):
            assert words in text
