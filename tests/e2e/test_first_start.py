"""The first start: nothing is set. What was typed, and what is seen, in an empty home, with servers on loopback."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import ChatCall, ChatReply, HttpError
from support.cli import Chat, chat, environment, texts_of
from support.programs import run_python
from support.terminal import CTRL_C, CTRL_D, ENTER, READY, Terminal

from freeact_sub import Config
from freeact_sub.cli import commands

pytestmark = [pytest.mark.e2e]

DOWN, ESCAPE = "\x1b[B", "\x1b"
PROGRAM = """
import json, sys
from freeact_sub.models import build as names
names.SERVERS = json.loads(sys.argv[1])
names.PACKAGES = dict(names.PACKAGES) | json.loads(sys.argv[2])
from freeact_sub import extras
extras.install_command = lambda *what: [sys.executable, "-c", "import sys, pathlib; print('fetching', sys.argv[2]); " + \
    "pathlib.Path(sys.argv[1], 'a_provider.py').touch()", sys.argv[3], *what]
sys.path.insert(0, sys.argv[3])
from freeact_sub.cli import main
sys.exit(main(sys.argv[4:]))
"""
"""The program, but its servers stand at free ports, and what it installs is an empty module."""
MODELS = [{"id": "qwen3:8b"}, {"id": "text-embed-1"}, {"id": "llama4"}]
SILENT: dict[str, int] = {}
Start = Callable[..., Terminal]


def count_then_answer(request: dict[str, Any]) -> ChatReply:
    if texts := texts_of(request):
        return [f"It has {texts[-1].strip()} rows."]
    return [ChatCall("execute_ipython_cell", {"code": "print(len(open('data.csv').readlines()) - 1)"})]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "data.csv").write_text("a\n1\n2\n3\n")
    return folder


@pytest.fixture
def ollama() -> Iterator[Chat]:
    """A server that lists models and answers."""
    with chat(count_then_answer, models=MODELS) as server:
        yield server


def ports(server: Chat) -> dict[str, int]:
    return {"Ollama": int(server.server.base_url.rpartition(":")[2].partition("/")[0])}


def words(home: Path, servers: dict[str, int], *arguments: str, packages: dict[str, Any] | None = None) -> list[str]:
    return ["-c", PROGRAM, json.dumps(servers), json.dumps(packages or {}), str(home), *arguments]


@pytest.fixture
def start(home: Path, folder: Path) -> Iterator[Start]:
    with ExitStack() as opened:

        def start(
            servers: dict[str, int], *arguments: str, packages: Any = None, env: Any = None, size: Any = (40, 110)
        ) -> Any:
            command = [sys.executable, *words(home, servers, *arguments, packages=packages)]
            variables = {**environment(), "HOME": str(home), **(env or {})}
            rows, columns = size
            terminal = Terminal(command, cwd=folder, env=variables, rows=rows, columns=columns)
            return opened.enter_context(terminal)

        yield start


def headless(home: Path, folder: Path, servers: dict[str, int], *arguments: str, **env: str) -> Any:
    return run_python(*words(home, servers, *arguments), cwd=folder, env={"HOME": str(home), **env})


def saved(home: Path) -> str:
    return (home / ".config/freeact/config.toml").read_text(encoding="utf-8")


@pytest.mark.kernel
def test_every_keystroke_from_an_empty_home_to_an_answer(start: Start, home: Path, ollama: Chat) -> None:
    (port,) = ports(ollama).values()
    terminal = start(ports(ollama), env={"OPENAI_API_KEY": "secret"})
    terminal.wait_at_bottom("No model is set yet. Which one do you want to use?", "> openai:", "OPENAI_API_KEY is set")
    terminal.wait_at_bottom("  openai-chat:qwen3:8b", f"Ollama at 127.0.0.1:{port}", "  openai-chat:llama4")
    assert "embed" not in terminal.bottom
    assert "secret" not in terminal.bottom
    terminal.press(DOWN)
    terminal.wait_at_bottom("> openai-chat:qwen3:8b")
    terminal.press(ENTER)
    terminal.wait_at_bottom("model openai-chat:qwen3:8b, saved in", READY)
    terminal.enter("How many rows has data.csv?")
    terminal.answer("y", "asks to run this cell")
    terminal.wait_for("It has 3 rows.")
    terminal.wait_at_bottom(READY)
    terminal.enter("/model gpt-5")
    terminal.wait_for("the model 'gpt-5' could be openai:gpt-5.6-luna or ")
    terminal.enter("/model no-such")
    terminal.wait_for("unknown model 'no-such': did you mean 'openai-chat:no-such'?")
    terminal.enter("/model")
    terminal.wait_at_bottom(
        "> openai-chat:qwen3:8b  ", f"now · Ollama at 127.0.0.1:{port}", "  openai:gpt-6.1-terra ", "Enter takes it"
    )
    terminal.press("llama" + ENTER)
    terminal.wait_at_bottom(f"model openai-chat:llama4 (Ollama at 127.0.0.1:{port}) · from the next prompt", READY)
    terminal.enter("And now?")
    terminal.wait_for_match(r"(?s)has 3 rows.*And now.*has 3 rows")
    terminal.enter("/exit")
    assert terminal.wait_end() == 0
    assert ollama.server.requests[0]["model"] == "qwen3:8b"
    assert ollama.server.requests[-1]["model"] == "llama4"
    assert saved(home) == f'model = "openai-chat:qwen3:8b"\nbase_url = "http://127.0.0.1:{port}/v1"\n'
    assert (home / ".config/freeact/config.toml").stat().st_mode & 0o777 == 0o600

    again = start(ports(ollama), env={"OPENAI_API_KEY": "secret"})  # it is asked once
    again.wait_at_bottom(READY)
    assert "No model is set" not in again.shown


def test_typing_filters_the_models_and_enter_chooses(start: Start, home: Path, ollama: Chat) -> None:
    terminal = start(ports(ollama), "run", "How many?", "--mode", "plan")
    terminal.wait_at_bottom("2 of 2", "  openai-chat:llama4")
    terminal.press("LLAMA")
    terminal.wait_at_bottom("model: LLAMA", "1 of 2", "> openai-chat:llama4")
    terminal.press(ENTER)
    terminal.wait_for("saved in")
    assert 'model = "openai-chat:llama4"' in saved(home)


def test_without_a_cursor_the_rows_are_numbered_lines(start: Start, home: Path, ollama: Chat) -> None:
    terminal = start(ports(ollama), "run", "How many?", "--output", "text", env={"TERM": "dumb"})
    terminal.wait_for("  1  openai-chat:qwen3:8b  (Ollama at", "number, words to search for, or Enter for none:")
    terminal.press("7" + ENTER)
    terminal.wait_until(lambda: terminal.shown.count("number, words") == 2, "the question to be put again")
    terminal.press("2" + ENTER)
    terminal.wait_for("model openai-chat:llama4, saved in")
    assert 'model = "openai-chat:llama4"' in saved(home)


@pytest.mark.parametrize(("key", "status"), [(ESCAPE, 2), (CTRL_D, 2), (CTRL_C, 130)])
def test_nothing_is_saved_when_nothing_is_chosen(start: Start, home: Path, ollama: Chat, key: str, status: int) -> None:
    terminal = start(ports(ollama), size=(12, 40))
    terminal.wait_at_bottom("> openai-chat:qwen3:8b")
    terminal.press(key)
    assert terminal.wait_end() == status
    assert not (home / ".config").exists()
    if status == 2:
        assert "no model was chosen" in terminal.shown


def test_keys_typed_before_the_question_are_no_answer(start: Start, home: Path, ollama: Chat) -> None:
    terminal = start(ports(ollama))
    terminal.press(ENTER + ENTER)
    terminal.wait_at_bottom("> openai-chat:qwen3:8b")
    assert not (home / ".config").exists()


def test_a_choice_that_cannot_be_saved_counts_all_the_same(start: Start, home: Path, ollama: Chat) -> None:
    (home / ".config").write_text("a file")
    terminal = start(ports(ollama))
    terminal.wait_at_bottom("> openai-chat:qwen3:8b")
    terminal.press(ENTER)
    terminal.wait_for("note: not saved: cannot write", "next time pass")
    terminal.wait_at_bottom("qwen3:8b")


def test_nothing_found_names_three_ways(start: Start, home: Path, folder: Path) -> None:
    terminal = start(SILENT)
    assert terminal.wait_end() == 2
    done = headless(home, folder, SILENT, "-p", "hi")
    assert done.returncode == 2
    for shown in (" ".join(terminal.shown.split()), done.stderr):
        for way in ("no model is set", "ANTHROPIC_API_KEY", "Ollama", "--model PROVIDER:NAME"):
            assert way in shown
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.kernel
def test_without_a_terminal_the_only_model_is_used_with_one_notice(home: Path, folder: Path) -> None:
    with chat(count_then_answer, models=[{"id": "tiny"}]) as server:
        done = headless(home, folder, ports(server), "-p", "How many?", "--yes", "--quiet")
    assert (done.returncode, done.stdout) == (0, "It has 3 rows.\n"), done.stderr
    assert done.stderr.count("note: no model is set: using openai-chat:tiny, as Ollama at 127.0.0.1:") == 1
    assert not (home / ".config").exists()  # nobody was asked


@pytest.mark.kernel
def test_a_server_takes_no_providers_place_by_a_short_name(home: Path, folder: Path) -> None:
    with chat(count_then_answer, models=[{"id": "opus-tiny"}]) as server:
        shown = f"openai-chat:opus-tiny (Ollama at 127.0.0.1:{ports(server)['Ollama']})"
        for name in ("opus", "tiny"):
            done = headless(
                home, folder, ports(server), "-p", "How many?", "--yes", "--model", name, ANTHROPIC_API_KEY="secret"
            )
            assert shown in done.stderr
            assert (done.returncode, "anthropic:claude-opus" in done.stderr) == ((2, True) if name == "opus" else (0, False))
        done = headless(home, folder, ports(server), "sessions", "fork", "x", "--model", "tiny", "--prompt", "go")
        assert f"the model {shown}: give its address, by --base-url http://" in done.stderr


def test_without_a_terminal_several_models_are_named(home: Path, folder: Path, ollama: Chat) -> None:
    done = headless(home, folder, ports(ollama), "-p", "hi", ANTHROPIC_API_KEY="secret")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    for found in (
        "pass one of --model anthropic:claude-sonnet-5-5 (ANTHROPIC_API_KEY is set)",
        f"--model openai-chat:qwen3:8b --base-url {ollama.server.base_url} (Ollama at",
    ):
        assert found in done.stderr
    assert "secret" not in done.stderr


def test_a_package_is_installed_after_a_yes_alone(start: Start, home: Path, ollama: Chat) -> None:
    packages = {"openai-chat": ["a_provider", "provider"]}
    arguments = ("run", "hi", *ollama.options)
    terminal = start(SILENT, *arguments, packages=packages)
    terminal.wait_for("needs a package that is not installed", "pydantic-ai-slim[provider]==", "Install it now?", "y yes")
    terminal.press("n")
    assert terminal.wait_end() == 2
    assert "fetching pydantic" not in terminal.shown
    assert not (home / "a_provider.py").exists()

    terminal = start(SILENT, *arguments, packages=packages)
    terminal.wait_for("Install it now?", "y yes")
    terminal.press("y")
    terminal.wait_for("fetching pydantic-ai-slim[provider]==", "> hi")
    assert (home / "a_provider.py").exists()


def test_without_a_terminal_nothing_is_installed(home: Path, folder: Path, ollama: Chat) -> None:
    program = words(home, SILENT, "-p", "hi", *ollama.options, packages={"openai-chat": ["a_provider", "provider"]})
    done = run_python(*program, cwd=folder, env={"HOME": str(home)})
    assert done.returncode == 2
    assert "needs a package that is not installed: run `" in done.stderr
    assert not (home / "a_provider.py").exists()


@pytest.mark.parametrize("name", ["gpt-5", "opnai:gpt-5", "openai/gpt-5"])
def test_a_name_without_its_provider_is_answered_before_a_conversation_begins(start: Start, name: str) -> None:
    terminal = start(SILENT, "--model", name)
    assert terminal.wait_end() == 2
    assert f"unknown model '{name}': did you mean 'openai:gpt-5'?" in " ".join(terminal.shown.split())
    assert "/help" not in terminal.shown


def test_an_address_without_a_model_asks_for_its_name(home: Path, folder: Path, ollama: Chat) -> None:
    done = headless(home, folder, ports(ollama), "-p", "hi", "--base-url", ollama.server.base_url)
    assert done.returncode == 2
    assert "no model is set, but `base_url` is: pass --model openai-chat:NAME" in done.stderr


def test_a_wrong_key_is_one_sentence_that_names_its_variable(home: Path, folder: Path) -> None:
    with chat(lambda _: HttpError(401, "Incorrect API key provided")) as server:
        done = headless(home, folder, SILENT, "-p", "hi", "--quiet", *server.options, OPENAI_API_KEY="wrong")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "Incorrect API key provided" in line
    assert "check the environment variable OPENAI_API_KEY" in line


@pytest.mark.parametrize(
    ("chosen", "base_url"),
    [({"model": "anthropic:x"}, None), ({"model": "openai-chat:y"}, "http://a/v1"), ({}, "http://a/v1")],
)
def test_the_next_conversation_keeps_the_address_for_its_provider_alone(
    chosen: dict[str, str], base_url: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "_agent", lambda config, session: (config, session))
    config, session = commands._open_session(Config(model="openai-chat:x", base_url="http://a/v1"), "new", chosen)  # noqa: SLF001
    assert (config.base_url, session) == (base_url, "new")


def test_a_server_that_is_gone_is_one_sentence_with_the_way_out(home: Path, folder: Path, ollama: Chat) -> None:
    (home / ".config/freeact").mkdir(parents=True)
    settings = 'model = "openai-chat:qwen3:8b"\nbase_url = "http://127.0.0.1:9/v1"\n'
    (home / ".config/freeact/config.toml").write_text(settings)
    done = headless(home, folder, SILENT, "-p", "hi", "--quiet")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "no server answers at http://127.0.0.1:9/v1/: start it" in line
    assert "name another model" in line
    assert saved(home) == settings
