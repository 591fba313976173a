"""The README says what is true: its code runs, its commands and settings exist, its picture can be made again."""

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from support.chat_server import ChatCall, ChatReply
from support.cli import Chat, chat, environment, prompt_of, run, texts_of
from support.programs import ROOT, code_blocks, run_python
from support.terminal import READY, Terminal

README = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAM, NOTEBOOK = code_blocks("python")
_START, TERMINAL = code_blocks("sh")
MAGIC = re.findall(r"^```\n(%%agent.*?)^```$", README, re.MULTILINE | re.DOTALL)


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
    assert len([line for line in PROGRAM.splitlines() if line]) == 10
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    done = run_python("program.py", cwd=tmp_path, env=settings_of(model))
    assert done.returncode == 0, done.stderr
    *events, answer = done.stdout.splitlines()
    kinds = [json.loads(line)["type"] for line in events]
    assert (kinds[0], kinds[-1], kinds.count("ApprovalRequest")) == ("AgentStarted", "AgentFinished", 1)
    assert answer == str(2**100)


@pytest.mark.e2e
@pytest.mark.parametrize("block", code_blocks("python", "docs/testing.md"), ids=lambda block: block.splitlines()[-1])
def test_programs_of_the_page_on_tests(block: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(block, encoding="utf-8")
    done = run_python("program.py", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.e2e
@pytest.mark.kernel
def test_the_notebook_in_a_few_lines(model: Chat, tmp_path: Path) -> None:
    assert len([line for line in NOTEBOOK.splitlines() if line]) <= 5
    cells = [nbformat.v4.new_code_cell(source) for source in (NOTEBOOK, "result.output", *MAGIC)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "readme.ipynb")
    env = {**settings_of(model), "FREEACT_HEADLESS": "allow", "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime")}
    arguments = ("-m", "jupyter", "execute", "--kernel_name=python3", "--inplace", "readme.ipynb")
    done = run_python(*arguments, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    shown = nbformat.read(tmp_path / "readme.ipynb", as_version=4).cells[1].outputs[0].data["text/plain"]
    assert shown == repr(str(2**100))
    assert len(MAGIC) == 1
    assert [prompt_of(request) for request in model.server.requests].count(
        "Draw a sine curve."
    ) == 4  # two turns in each cell


@pytest.fixture
def project(tmp_path: Path, model: Chat) -> Path:
    """`my-project` in a home whose settings name a model, as after the first start."""
    settings, project = tmp_path / "home/.config/freeact/config.toml", tmp_path / "my-project"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'model = "openai-chat:scripted"\nbase_url = "{model.server.base_url}"\n')
    project.mkdir()
    (project / "data.csv").write_text("a\n1\n2\n")
    (project / "prompt.txt").write_text("How many rows?")
    author = ("-c", "user.name=me", "-c", "user.email=me@example.org")
    for words in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "The first change"]):
        subprocess.run(["git", *words], cwd=project, check=True, timeout=60)
    return project


@pytest.mark.e2e
@pytest.mark.kernel
def test_each_line_of_the_terminal_works_as_printed(project: Path, model: Chat) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**environment(), "HOME": str(project.parent / "home"), "PATH": path, "FREEACT_HEADLESS": "allow"}
    change, *lines = TERMINAL.splitlines()
    assert len(lines) == 6
    for line in lines:
        said = len(model.server.requests)
        with Terminal(["/bin/sh", "-c", f"{change}\n{line}"], cwd=project.parent, env=env) as terminal:
            if line.split("#")[0].strip() == "freeact-sub":
                terminal.wait_at_bottom(READY)
                terminal.enter("What is 2 ** 100?")
                terminal.wait_for(str(2**100))
                terminal.wait_at_bottom(READY)
                terminal.enter("/exit")
            assert terminal.wait_end() == 0, line
        assert str(2**100) in terminal.shown, line
        assert len(model.server.requests) > said, line
        if "git log" in line:
            assert "The first change" in model.read_by_model()
        if "--continue" in line:
            assert "Clean data.csv" in model.read_by_model()


def test_the_readme_is_short() -> None:
    assert README.count("\n") <= 150


@pytest.mark.e2e
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
    for picture in (tmp_path / "effects.svg", ROOT / "docs/effects.svg"):
        for words in (
            "tried, in a copy that is dropped; a yes runs it:",
            "±reports/june.md ±sales.csv",
            "df: pandas.DataFrame 3 x 2",
        ):
            assert words in _words(picture)
    done = run_python(ROOT / "docs/make_recording.py", "--out", tmp_path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for picture in (tmp_path / "recording.svg", ROOT / "docs/recording.svg"):
        for words in ("tried, in a copy that is dropped; a yes runs it:", "±sales.csv", "Which totals do the reports name?"):
            assert words in _words(picture)
        text = picture.read_text(encoding="utf-8")
        assert len(text) < 300_000
        assert re.findall(r"https?://[^\"]*", text) == ["http://www.w3.org/2000/svg"], (
            "it is shown where no other host is asked"
        )
        assert float(re.findall(r"film ([\d.]+)s", text)[0]) <= 20


def _words(picture: Path) -> str:
    return " ".join("".join(ET.parse(picture).getroot().itertext()).replace("\u00a0", " ").split())
