"""`freeact-sub doctor`: what it finds, what it advises, how it is drawn. The kernels of a whole run: tests/e2e/test_doctor_command.py."""

from pathlib import Path
from typing import Any

import pytest
from support.tables import each

from freeact_sub import Config, KernelConfig
from freeact_sub.cli import doctor
from freeact_sub.cli.doctor import Finding, check_machine, check_model, check_python, is_writable
from freeact_sub.kernels.wall.sandbox import Support
from freeact_sub.models.build import FoundModel

LOCAL = FoundModel(model="openai-chat:qwen", because="Ollama at 127.0.0.1:11434", base_url="http://127.0.0.1:11434/v1")


@pytest.fixture(autouse=True)
def served(monkeypatch: pytest.MonkeyPatch) -> list[FoundModel]:
    """The models of local servers."""
    models: list[FoundModel] = []
    monkeypatch.setattr(doctor, "models_of_servers", lambda _: models)
    return models


def by_topic(findings: Any) -> dict[str, Finding]:
    return {finding.topic: finding for finding in findings}


@each(
    ("config", "environment", "state", "words"),
    [
        ({}, {}, "missing", "none is set, and none is found"),
        ({}, {"OPENAI_API_KEY": "x"}, "limited", "can be chosen"),
        ({"model": "openai:gpt-6"}, {}, "missing", "needs a key"),
        ({"model": "openai-responses:gpt-6"}, {"OPENAI_API_KEY": " "}, "missing", "needs a key"),
        ({"model": "openai-chat:gpt-6"}, {"OPENAI_API_KEY": "x"}, "works", "openai-chat:gpt-6"),
        ({"model": "google-cloud:gemini-3"}, {}, None, "google-cloud:gemini-3"),
        ({"model": "bedrock:x"}, {}, None, "bedrock:x"),
        ({"model": "gpt-6"}, {}, "missing", "did you mean 'openai:gpt-6'?"),
        ({"model": "openai-chat:x", "base_url": "http://127.0.0.1:1/v1"}, {}, "missing", "no server answers"),
        ({"model": "openai-chat:x", "base_url": "https://example.org/v1"}, {}, "works", "not on this machine"),
    ],
)
def test_the_model(config: dict[str, str], environment: dict[str, str], state: str | None, words: str) -> None:
    found = by_topic(check_model(Config(**config), environment))["model"]  # type: ignore[arg-type]
    assert words in found.text
    assert state is None or found.state == state
    assert "x" not in found.advice.split()  # no key is shown


def test_models_of_servers_are_named_and_can_be_chosen(served: list[FoundModel]) -> None:
    served += [LOCAL] * 6
    found = by_topic(check_model(Config(), {}))
    assert found["model"].state == "limited"
    assert found["servers"].text.startswith("qwen (Ollama at 127.0.0.1:11434), qwen")
    assert found["servers"].text.endswith(" and 2 more")


def test_keys_are_named_and_not_shown() -> None:
    found = by_topic(check_model(Config(), {"ANTHROPIC_API_KEY": "sk-secret", "HF_TOKEN": ""}))["keys"]
    assert found.text == "ANTHROPIC_API_KEY"


@pytest.mark.process
def test_a_python_that_is_not_there_is_missing() -> None:
    config = Config(kernel=KernelConfig(python="/nowhere/python"))
    found = check_python(config, None, {})
    assert found.state == "missing"
    assert "/nowhere/python" in found.text


def test_a_projects_python_that_nobody_has_agreed_to_is_told_of_and_not_run(tmp_path: Path) -> None:
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/pyvenv.cfg").write_text("version = 3.12.1\n")
    (tmp_path / ".venv/bin/python").write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\n")
    (tmp_path / ".venv/bin/python").chmod(0o755)
    found = check_python(Config(workspace=tmp_path), None, {})
    assert (found.state, "3.12.1, without ipykernel of its own" in found.text) == ("limited", True)
    assert "asks you once" in found.advice
    assert not (tmp_path / "was-run").exists()


def test_a_machine_without_git_and_with_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    found = by_topic(check_machine(Config(), {"TERM": "xterm"}))
    assert found["undo"].advice == "install git"
    assert found["sessions"].state == "limited"
    assert found["pictures"].state == "note"
    assert not is_writable(tmp_path / "file/below")
    assert is_writable(tmp_path / "new/below")
    assert not (tmp_path / "new").exists()


def test_missing_parts_of_the_wall_are_named_once_for_modes_with_equal_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "support", lambda: Support(landlock=0, seccomp=True, view=True, reason="no such system"))
    walls = list(doctor.walls(Config()))
    assert [finding.state for finding in walls] == ["limited"] * len(walls)
    assert any("in ask, full it does not hold memory" in finding.text for finding in walls)
    assert all("no such system" in finding.text and "Landlock" in finding.advice for finding in walls)
    [off] = doctor.walls(Config(kernel=KernelConfig(sandbox="off")))
    assert off.text == "none is built: `kernel.sandbox` is `off`"


@each("width", [24, 40, 80, 120])
def test_lines_fit_and_a_command_stays_whole(width: int) -> None:
    command = "/a/very/long/path/to/python -m pip install 'textual-image>=0.12'"
    finding = Finding("pictures", "limited", "not drawn in the \x1b[31mterminal: " + "word " * 20, "do this " * 9, command)
    *lines, last = doctor.lines_of(finding, width)
    assert last.strip() == command
    assert all(len(line) <= max(width, 33) for line in lines)
    assert not any("\x1b" in line for line in lines)


def test_marks_where_the_encoding_has_no_others(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "can_write", lambda _: False)
    doctor.show(Finding("undo", "limited", "not files", "install git"))
    assert capsys.readouterr().out == "! undo       not files\n             -> install git\n"


@pytest.mark.parametrize(
    ("states", "words"),
    [
        (["works", "note"], "Agents can work here."),
        (["works", "limited"], "Agents can work here, with limits: see t1."),
        (["missing", "limited"], "Agents cannot work here yet: see t0."),
    ],
)
def test_the_last_line(states: list[Any], words: str) -> None:
    assert doctor.summary([Finding(f"t{at}", state, "x") for at, state in enumerate(states)]) == words
