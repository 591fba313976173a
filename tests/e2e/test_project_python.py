"""Cells run in the project's Python: what is seen and typed in the terminal, and what is told where nobody can be asked."""

import importlib.metadata
import json
import platform
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from support.chat_server import ChatCall, by_turn
from support.cli import PROGRAM, chat, environment
from support.project_environments import make_conda, make_uv, make_venv
from support.terminal import Terminal
from support.warm import run_program

pytestmark = [pytest.mark.e2e, pytest.mark.kernel]

TRANSCRIPT = Path(__file__).parents[1] / "data/project_python.txt"
CELL = """
import sys, pandas
print("the project's pandas:", sys.prefix)
print("mean price:", pandas.read_csv("data.csv").price.mean())
"""
WHERE = "import sys\nprint('runs in', sys.prefix)"


def script(code):
    return by_turn(
        [ChatCall("execute_ipython_cell", {"code": code, "description": "Read the file"})], ["The mean price is 2.5."]
    )


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "home" / "project"
    folder.mkdir(parents=True)
    (folder / "data.csv").write_text("name,price\na,1\nb,4\n")
    return folder


def variables(project, **more):
    """The environment of a newcomer: an empty home directory, and nothing active but what is named."""
    plain = {name: value for name, value in environment().items() if not name.startswith(("XDG_", "UV_", "POETRY"))}
    return plain | {"HOME": str(project.parent)} | more


def scenes():
    parts = TRANSCRIPT.read_text().split("\n== ")[1:]
    return {part.partition(":")[0]: part.splitlines()[1:] for part in parts}


def make(name, project):
    """The environment of a scene. Returns the variables of the shell in which it is active."""
    if name == "active":
        return {"VIRTUAL_ENV": str(make_venv(project / ".venv"))}
    if name == "uv":
        make_uv(project / ".venv")
        return {}
    conda = make_conda(project.parent / "conda/envs/science")
    return {"CONDA_PREFIX": str(conda), "CONDA_DEFAULT_ENV": "science"}


@pytest.mark.parametrize("name", scenes())
def test_the_transcript_of_a_newcomer(name, project):
    active = make(name, project)
    facts = {name: importlib.metadata.version(name) for name in ("numpy", "pandas")}
    facts |= {"version": platform.python_version(), "folder": str(project if name != "conda" else project.parent)}
    facts["conda"] = "~/conda/envs/science"
    with chat(script(CELL)) as server:
        command = [PROGRAM, *server.options]
        with Terminal(command, cwd=project, env=variables(project, **active), rows=40, columns=160) as terminal:
            for line in filter(None, scenes()[name]):
                what, _, text = line.partition(" ")
                text = text.format(**facts)
                if what == "see":
                    terminal.wait_for(text)
                elif what == "enter":
                    terminal.enter(text)
                elif what == "key":
                    terminal.press(text)
                else:
                    key, _, words = text.partition(" ")
                    terminal.answer(key, words)
            assert terminal.wait_end() == 0
        system = server.server.requests[0]["messages"][0]["content"]
    assert f"It runs Python {facts['version']} (" in system
    assert f"with numpy {facts['numpy']}, pandas {facts['pandas']} and without polars, matplotlib, " in system


def headless(project, *arguments, **active):
    with chat(script(WHERE)) as server:
        command = [PROGRAM, "run", "where?", "--mode", "full", "--quiet", *arguments, *server.options]
        done = run_program(command, cwd=project, env=variables(project, **active), timeout=240)
        texts = [str(message["content"]) for message in server.server.requests[-1]["messages"] if message["role"] == "tool"]
    assert done.returncode == 0, done.stderr
    return texts[0], done.stderr


def test_without_a_person_an_active_environment_is_used_and_another_only_once_agreed_to(project):
    venv = make_venv(project / ".venv", packages=())
    text, told = headless(project, VIRTUAL_ENV=str(venv))
    assert (f"runs in {venv}" in text, told) == (True, "")
    text, told = headless(project)
    assert f"runs in {sys.prefix}" in text
    assert told.count("note:") == 1
    assert "not in .venv: nobody has agreed to run that one" in told
    text, told = headless(project, "--trust")
    assert (f"runs in {venv}" in text, told) == (True, "")
    text, told = headless(project)
    assert (f"runs in {venv}" in text, told) == (True, ""), "it is kept"
    text, told = headless(project, FREEACT_KERNEL__PYTHON=sys.executable)
    assert (f"runs in {sys.prefix}" in text, told) == (True, ""), "what is set wins"


PLANTED = """
import os, subprocess
from pathlib import Path
home = Path(".venv")
(home / "bin").mkdir(parents=True)
(home / "pyvenv.cfg").write_text({config!r})
(home / "bin/python").write_text("#!/bin/sh\\necho ran >> {mark}\\nexec {python} \\"$@\\"\\n")
(home / "bin/python").chmod(0o755)
print("planted")
"""


def test_an_environment_that_code_has_planted_is_not_run_by_the_next_start(project, tmp_path):
    """Not even where one with the same files was agreed to before."""
    mark = tmp_path / "mark"
    venv = make_venv(project / ".venv", packages=())
    config = (venv / "pyvenv.cfg").read_text()
    headless(project, "--trust")
    subprocess.run(["rm", "-r", str(venv)], check=True)
    code = PLANTED.format(config=config, mark=mark, python=shlex.quote(sys.executable))
    with chat(script(code)) as server:
        command = [PROGRAM, "run", "x", "--mode", "auto", "--quiet", *server.options]
        run_program(command, cwd=project, env=variables(project), timeout=240).check_returncode()
    assert (venv / "bin/python").exists()
    text, told = headless(project)
    assert f"runs in {sys.prefix}" in text
    assert "nobody has agreed to run that one" in told
    with (
        chat(script(WHERE)) as server,
        Terminal([PROGRAM, *server.options], cwd=project, env=variables(project), columns=160) as terminal,
    ):
        terminal.wait_for("This project has a Python of its own: .venv", "y yes · n no:")
        assert not mark.exists(), "nothing of it is run to ask about it"
        terminal.press("n")
        terminal.wait_for("python  ", "freeact-sub's own")
        terminal.enter("/quit")
        assert terminal.wait_end() == 0
    _, told = headless(project)
    assert told == "", "the answer is kept"
    assert not mark.exists()


@pytest.mark.parametrize("answer", ["y", "n"])
def test_ipykernel_is_installed_on_a_question_where_ours_does_not_fit(project, tmp_path, answer):
    """The environment has an old traitlets; uv is a program that writes down how it was called, and installs what it should."""
    venv = make_venv(project / ".venv", packages=())
    [packages] = venv.glob("lib/python*/site-packages")
    (packages / "traitlets-4.0.dist-info").mkdir()
    tools, calls = tmp_path / "tools", tmp_path / "calls"
    tools.mkdir()
    ours = sysconfig.get_path("purelib")
    (tools / "uv").write_text(
        f"#!/bin/sh\necho $PWD $@ >> {calls}\necho {ours} > {packages}/ours.pth\nrm -r {packages}/traitlets-4.0.dist-info\n"
    )
    (tools / "uv").chmod(0o755)
    shell = variables(project, VIRTUAL_ENV=str(venv))
    shell["PATH"] = f"{tools}:{shell['PATH']}"
    with (
        chat(script(WHERE)) as server,
        Terminal([PROGRAM, *server.options], cwd=project, env=shell, columns=160) as terminal,
    ):
        terminal.wait_for(
            ".venv (Python", "has no ipykernel", "there (uv pip install --python .venv/bin/python ipykernel)? n: cells run"
        )
        terminal.wait_for("y yes · n no:")
        terminal.press(answer)
        terminal.wait_for("· .venv" if answer == "y" else "freeact-sub's own · ", "session new")
        terminal.enter("/quit")
        assert terminal.wait_end() == 0
    if answer == "y":
        assert calls.read_text() == f"/ pip install --python {venv}/bin/python ipykernel\n"
    else:
        assert not calls.exists()


@pytest.mark.parametrize("how", ["broken", "old"])
def test_a_python_that_does_not_work_is_told_in_a_sentence_and_ours_is_used(project, how):
    venv = make_venv(project / ".venv", packages=())
    (venv / "bin/python").unlink()
    if how == "broken":
        (venv / "bin/python").symlink_to("/gone/python")
    else:
        said = {"own": [], "editable": [], "version": "3.9.1", "abi": "cpython-39", "packages": {}}
        (venv / "bin/python").write_text(f"#!/bin/sh\necho '{json.dumps(said)}'\n")
        (venv / "bin/python").chmod(0o755)
    text, told = headless(project, VIRTUAL_ENV=str(venv))
    assert f"runs in {sys.prefix}" in text
    assert told.startswith("freeact-sub: note: cells run in freeact-sub's own Python: ")
    assert told.count("\n") == 1
    assert {"broken": "No such file or directory", "old": "it is Python 3.9.1, and cells need 3.11 or newer"}[how] in told


def test_without_a_person_a_python_for_cells_is_refused_until_it_is_agreed_to(project):
    venv = make_venv(project / ".venv", packages=())
    [packages] = venv.glob("lib/python*/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        (packages / entry.name).symlink_to(entry)
    command = [PROGRAM, "run", "where?", "--mode", "full", "--model", "test"]
    done = run_program(command, cwd=project, env=variables(project), timeout=240)
    assert done.returncode == 2
    assert "has a Python for cells, .venv, and nobody has agreed to run it: add --trust" in done.stderr
    text, told = headless(project, "--trust")
    assert (f"runs in {venv}" in text, told) == (True, "")
    text, told = headless(project)
    assert (f"runs in {venv}" in text, told) == (True, "")


def test_an_active_environment_that_is_gone_is_told(project):
    text, told = headless(project, VIRTUAL_ENV=str(project / "gone"))
    assert f"runs in {sys.prefix}" in text
    assert f"note: VIRTUAL_ENV names {project / 'gone'}, where there is no Python environment" in told
