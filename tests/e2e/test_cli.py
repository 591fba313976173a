"""The program without a terminal: what it writes where, and its exit status."""

import asyncio
import fcntl
import io
import json
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import jsonschema
import psutil
import pytest
from support.chat_server import ChatCall, ChatReply, HttpError, by_turn
from support.cli import PROGRAM, Chat, chat, environment, run, texts_of, turn_of
from support.waiting import is_running, pending_signals, wait_until
from support.warm import WarmProgram

from freeact_sub.cli import main
from freeact_sub.terminal.result import json_schema

pytestmark = [pytest.mark.e2e, pytest.mark.kernel]

BUSY = "open('begun', 'w').close()\nsum(range(10**12))"  # a loop in C
HEAVY = (
    "pydantic",
    "pydantic_ai",
    "rich",
    "prompt_toolkit",
    "zmq",
    "mcp",
    "httpx",
    "jupyter_client",
    "asyncio",
    "importlib.metadata",
)


def cell(code: str) -> list[ChatCall]:
    return [ChatCall("execute_ipython_cell", {"code": code})]


def cell_then_report(request: dict[str, Any]) -> ChatReply:
    """Run a cell, then say what came back."""
    return ["It gave ", texts_of(request)[-1]] if turn_of(request) else cell("print('six times seven'); 6 * 7")


@pytest.fixture
def reporter() -> Iterator[Chat]:
    with chat(cell_then_report) as server:
        yield server


def test_the_program_shows_no_banner_of_pydantic_ai_and_the_library_leaves_it_as_it_is(
    reporter: Chat, tmp_path: Path
) -> None:
    shows = {name: value for name, value in environment().items() if name not in ("CI", "PYTEST_VERSION")}
    shows = {name: value for name, value in shows.items() if name != "PYDANTIC_AI_NO_BANNER"} | {"AI_AGENT": "reader"}
    code = (
        "import pydantic_ai, freeact_sub.agents.loop; from pydantic_ai.models.test import TestModel; "
        "print(pydantic_ai.BANNER_ENABLED); pydantic_ai.Agent(TestModel()).run_sync('x')"
    )
    library = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=shows, capture_output=True, text=True, check=False
    )
    assert library.stdout == "True\n"
    assert "PYDANTIC_AI_NO_BANNER" in library.stderr, "the banner names it"
    command = [PROGRAM, "run", "--mode", "full", "--sandbox", "off", "multiply", *reporter.options]
    done = subprocess.run(command, cwd=tmp_path, env=shows, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "PYDANTIC_AI_NO_BANNER" not in done.stderr


def test_help_version_and_wrong_usage_import_nothing_heavy() -> None:
    code = f"""
import sys
before = set(sys.modules)
from freeact_sub.cli import main
for option, status in {{"--help": 0, "--version": 0, "--modle": 2, "walk": 2}}.items():
    try:
        main([option])
    except SystemExit as end:
        assert end.code == status, (option, end.code)
heavy = sorted(set({HEAVY!r}) & set(sys.modules) - before)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert "freeact-sub" in done.stdout
    assert "--modle" in done.stderr


@pytest.mark.parametrize("words", [[], ["run"], ["mcp", "add"], ["help"]])
def test_help_names_a_command_in_front_or_behind(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["help", *words], [*words, "--help"]):
        with pytest.raises(SystemExit) as end:
            main(arguments)
        assert end.value.code == 0
    shown = capsys.readouterr().out
    assert len(shown) > 100
    assert shown == shown[: len(shown) // 2] * 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "hi"], ["no model is set", "key", "local server", "--model"]),
        (["run", "hi", "--model", "gpt-5"], ["gpt-5", "openai:gpt-5"]),
        (["run", "hi", "--model", "o3-mini"], ["openai:o3-mini"]),
        (["run", "hi", "--model", "antropic:claude-sonnet-5-5"], ["anthropic:claude-sonnet-5-5"]),
        (["run", "hi", "--model", "openai/gpt-5"], ["openai:gpt-5"]),
        (["run", "hi", "--model", "qwen3:8b", "--base-url", "http://127.0.0.1:9/v1"], ["openai-chat:qwen3:8b"]),
        (["run", "hi", "--model", "openai:"], ["names only its provider"]),
        (["run", "hi", "--base-url", "http://127.0.0.1:9/v1"], ["no model is set"]),
        (["run", "hi", "--model", "foo:bar"], ["foo:bar", "PROVIDER:NAME"]),
        (["run", "hi", "--model", "anthropic:claude-sonnet-5-5"], ["ANTHROPIC_API_KEY"]),
        (["run", "hi", "--model", "nonsense:x"], ["nonsense"]),
        (["run", "hi", "--max-turns", "0"], ["--max-turns", "1 or more"]),
        (["run", "hi", "--max-turns", "few"], ["--max-turns", "few"]),
        (["run", "hi", "--mcp", "missing.json"], ["missing.json"]),
        (["run", "hi", "--workspace", "missing"], ["--workspace", "missing"]),
        (["run", "--file", "missing.txt"], ["missing.txt"]),
        (["run", "--file", "binary"], ["binary"]),
        (["run"], ["prompt is empty", "--file"]),
        (["run", "hi", "--file", "binary"], ["prompt", "--file", "not both"]),
        (["run", ""], ["prompt is empty"]),
        (["run", "-"], ["prompt is empty"]),
        (["run", "hi", "--nonsense"], ["--nonsense", "--help"]),
        (["--modle", "openai:x"], ["--modle", "did you mean", "--model"]),
        (["run", "hi", "--quite"], ["--quite", "did you mean --quiet"]),
        (["--worspace=/tmp", "run", "x"], ["did you mean --workspace"]),
        (["sessions", "list", "--al"], ["did you mean --all"]),
        (["run", "--max-turn", "3", "x"], ["did you mean --max-turns"]),
        (["run", "hi", "--output", "xml"], ["--output", "xml"]),
        (
            ["walk"],
            [
                "rlm, map, mcp, doctor, mcp-server, acp, help)",
                "`freeact-sub run walk`",
            ],
        ),
        (["word" * 30], ["unknown command '...'", "`freeact-sub run PROMPT`"]),
        (["", "--yes"], ["unknown command ''", "freeact-sub run"]),
        (["sessions", "lst"], ["unknown command 'lst' (list, show, export, fork, rm, prune): did you mean `list`?"]),
        (
            ["mcp", "two words"],
            ["unknown command 'two words' (list, add, remove, login, logout, check): choose one of these"],
        ),
        (["kill"], ["required: ID (see freeact-sub kill --help)"]),
        (["mcp", "add", "files"], ["(see freeact-sub mcp add --help)"]),
        (["mcp"], ["required: {list,add,remove,login,logout,check}"]),
        (["sessions", "list", "--model", "x"], ["unrecognized arguments: --model x"]),
        (["help", "mpc"], ["unknown command 'mpc'", "did you mean `mcp`?"]),
        (["agent"], ["did you mean `agents`?"]),
        (["--print"], ["prompt is empty", "--file"]),
        (["run", "hi", "--profile", "tiny"], ["--profile", "tiny"]),
        ([], ["terminal", "freeact-sub run"]),
    ],
)
def test_wrong_usage_is_one_clear_line_and_status_2(
    arguments: list[str],
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setattr("freeact_sub.models.build.SERVERS", {})
    for name in set(os.environ) - set(environment()):
        monkeypatch.delenv(name)
    try:
        status: Any = main(arguments)
    except SystemExit as end:
        status = end.code
    output, line = capsys.readouterr()
    assert (status, output) == (2, "")
    assert len(line.strip().splitlines()) == 1, line
    assert line.startswith("freeact-sub: ")
    assert all(word in line for word in words), line


def test_a_wrong_line_of_the_settings_names_itself_and_debug_shows_the_traceback(tmp_path: Path) -> None:
    (tmp_path / ".freeact").mkdir()
    (tmp_path / ".freeact" / "config.toml").write_text("on_denail = 3\n")
    done = run("run", "hi", cwd=tmp_path, check=2)
    assert "config.toml" in done.stderr
    assert "did you mean `on_denial`" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Traceback" in run("run", "hi", "--debug", cwd=tmp_path, check=2).stderr


def test_a_pipe_gets_plain_lines_and_nobody_to_ask_means_denied(reporter: Chat, tmp_path: Path) -> None:
    done = run("run", "multiply", *reporter.options, cwd=tmp_path, check=1)
    assert "\x1b" not in done.stdout
    assert done.stdout.startswith("It gave denied"), "the answer alone"
    lines = done.stderr.splitlines()
    assert sum("every action was denied because nobody" in line for line in lines) == 1
    assert len({line.split()[0] for line in lines}) == 1, "the short id of the agent"
    assert "starts: multiply" in lines[0]
    assert any("denied (nobody is there to answer" in line for line in lines)
    assert "ended (completed): turns 2, tool calls 1, tokens 32" in lines[-1]
    assert "--yes" in reporter.read_by_model()


@pytest.mark.parametrize(
    ("options", "output", "status"),
    [
        ([], "plain", 1),
        ([], "json", 1),
        ([], "text", 1),
        (["--mode", "plan"], "text", 1),
        (["--headless", "deny"], "plain", 1),
        (["--mode", "auto"], "json", 0),
        (["--yes"], "text", 0),
    ],
)
def test_a_run_in_which_nothing_was_done_says_so(
    reporter: Chat, tmp_path: Path, options: list[str], status: int, output: str
) -> None:
    done = run("run", "multiply", "--output", output, *options, *reporter.options, cwd=tmp_path, check=status)
    assert len(done.stderr.splitlines()) == status
    assert ("every action was denied because nobody was there to ask: --mode auto" in done.stderr) == (status == 1)
    assert ("--yes" in done.stderr) == (status == 1)


def test_a_run_in_which_one_action_was_allowed_is_none_of_those(tmp_path: Path) -> None:
    (tmp_path / ".freeact").mkdir()
    (tmp_path / ".freeact" / "permissions.toml").write_text('allow = ["code"]\n')
    with chat(by_turn(cell("import subprocess\nsubprocess.run(['touch', 'x'])"), ["done"])) as server:
        done = run("run", "touch", "--trust", *server.options, cwd=tmp_path)
    assert "denied (nobody" in done.stderr
    assert "every action was denied" not in done.stderr
    assert done.stdout == "done\n"


def test_yes_approves_everything_and_the_events_show_it(reporter: Chat, tmp_path: Path) -> None:
    (tmp_path / ".freeact").mkdir()
    (tmp_path / ".freeact" / "config.toml").write_text('headless = "deny"\n')
    done = run("--yes", "--trust", "run", "multiply", *reporter.options, cwd=tmp_path)
    for words in ("asks to run this cell", "approved: run code", "output: six times seven", "output: 42", "cell ok"):
        assert words in done.stderr
    assert "six times seven" in reporter.read_by_model()


@pytest.mark.parametrize("mode", ["ask", "auto"])
def test_git_has_nothing_to_say_of_a_run(tmp_path: Path, mode: str) -> None:
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    with chat(by_turn(cell("print('x' * 20_000)"), ["done"])) as server:
        run("run", "print much", "--yes", "--mode", mode, *server.options, cwd=tmp_path)
    assert list(tmp_path.glob(".freeact/outputs/*/*.txt"))
    status = subprocess.run(["git", "status", "--porcelain"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert status.stdout == ""


def test_the_profile_is_chosen_on_the_command_line(reporter: Chat, tmp_path: Path) -> None:
    sizes = []
    for profile in ("full", "small"):
        run("run", "multiply", "--yes", "--code-actions", "tool", "--profile", profile, *reporter.options, cwd=tmp_path)
        sizes.append(len(json.dumps(reporter.server.requests[-1]["tools"])))
    assert sizes[1] < sizes[0]


def test_json_is_one_event_a_line(reporter: Chat, tmp_path: Path) -> None:
    done = run("run", "multiply", "--yes", "--output", "json", *reporter.options, cwd=tmp_path)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert events[0]["type"] == "AgentStarted"
    assert events[-1]["type"] == "AgentFinished"
    assert events[-1]["status"] == "completed"
    assert {"ResponseChunk", "ApprovalRequest", "ApprovalDecided", "CodeExecutionOutputChunk"} <= {
        event["type"] for event in events
    }


def test_text_is_the_answer_alone(reporter: Chat, tmp_path: Path) -> None:
    done = run("run", "-", "--yes", "--output", "text", *reporter.options, cwd=tmp_path, stdin="multiply\n")
    assert done.stdout.startswith("It gave six times seven")
    assert done.stdout.endswith("42\n")
    assert done.stderr == ""


def result_in(stdout: str) -> dict[str, Any]:
    """The one JSON object on standard output, which is as the schema in the docs says."""
    (line,) = stdout.splitlines()
    jsonschema.validate(json.loads(line), json_schema())
    return dict(json.loads(line))


def test_result_is_one_object_at_the_end(tmp_path: Path) -> None:
    assert json.loads((Path(__file__).parents[2] / "docs/result.schema.json").read_text()) == json_schema()
    with chat(by_turn(cell("open(b'north\\xff.csv', 'w').write('1')"), ["written \ud83d"])) as server:
        done = run("run", "write it", "--yes", "--output", "result", *server.options, cwd=tmp_path)
    found = result_in(done.stdout)
    expected = {
        "status": "completed",
        "error": "",
        "answer": "written \\ud83d",
        "turns": 2,
        "files": ["north\\udcff.csv"],
        "cost_usd": None,
    }
    assert {name: found[name] for name in expected} == expected
    assert found["tokens"] > 0
    assert found["session"] in run("sessions", "list", cwd=tmp_path).stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("options", "status", "exit_status", "words"),
    [
        (["go", "--yes", "--max-turns", "2"], "limit", 1, "turns"),
        (["#fail"], "failed", 1, "no such thing"),
        (["go", "--model", "nonsense:"], "failed", 2, "unknown model 'nonsense:'"),
        (["go", "--resume", "no-such"], "failed", 1, "no-such"),
        (["go", "--mode", "plan"], "completed", 1, "every action was denied"),
    ],
)
def test_result_is_one_object_too_where_there_is_no_answer(
    options: list[str], status: str, exit_status: int, words: str, tmp_path: Path
) -> None:
    def script(request: dict[str, Any]) -> ChatReply:
        if "#fail" in str(request["messages"]):
            return HttpError(400, "no such thing")
        return ["done"] if "denied" in str(texts_of(request)) else cell("1")

    with chat(script) as server:
        words_of = ["run", *server.options, "--output", "result", *options]
        done = run(*words_of, cwd=tmp_path, check=exit_status)
    found = result_in(done.stdout)
    assert found["status"] == status
    assert words in f"{found['error']} {found['warnings']}"
    assert words in done.stderr


def test_the_prompt_can_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "prompt.md").write_text("Lies diese Grüße.")
    with chat(lambda request: [request["messages"][-1]["content"]]) as server:
        done = run("run", "--file", "prompt.md", "--output", "text", *server.options, cwd=tmp_path)
    assert done.stdout == "Lies diese Grüße.\n"


@pytest.mark.parametrize(
    ("script", "options", "words"),
    [
        (lambda _: HttpError(400, "no such thing"), [], "no such thing"),
        (lambda _: cell("1"), ["--max-turns", "2"], "limit"),
    ],
    ids=["the model fails", "the limit of turns"],
)
def test_an_ending_without_an_answer_is_status_1(script: Any, options: list[str], words: str, tmp_path: Path) -> None:
    with chat(script) as server:
        done = run("run", "go", "--yes", "--output", "text", *options, *server.options, cwd=tmp_path, check=1)
    assert words in done.stderr
    assert "Traceback" not in done.stderr


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the program with pipes, `cold` with its imports; what is left of it at the end is killed."""
    with ExitStack() as started:

        def start(*arguments: str, cold: bool = False) -> subprocess.Popen[str]:
            program = (subprocess.Popen if cold else WarmProgram)(
                [PROGRAM, *arguments],
                cwd=tmp_path,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            started.enter_context(program)  # closes the pipes and waits
            started.callback(program.kill)
            return program

        yield start


def test_a_full_disk_is_one_clear_line(reporter: Chat, tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [PROGRAM, "run", "go", *reporter.options],
            cwd=tmp_path,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=240,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "freeact-sub: cannot write to standard output: No space left on device"


def test_a_pipe_that_is_closed_ends_the_run_quietly(start: Start) -> None:
    code = "while True: print('line')"
    with chat(by_turn(cell(code), ["never"])) as server:
        program = start("run", "go", "--yes", "--output", "plain", *server.options)
        while "output: line" not in program.stdout.readline():
            pass
        program.stdout.close()
        assert program.wait(120) == 141
        assert program.stderr.read() == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_run_cleanly(start: Start, number: signal.Signals, tmp_path: Path) -> None:
    with chat(by_turn(cell(BUSY), ["never"])) as server:
        program = start("run", "go", "--yes", "--output", "plain", *server.options)
        wait_until((tmp_path / "begun").exists)
        kernels = psutil.Process(program.pid).children(recursive=True)
        assert kernels
        program.send_signal(number)
        output = program.stdout.read()
        assert program.wait(120) == 130
        assert "is cancelled" in output
        assert "ended (cancelled)" in output
        wait_until(lambda: not any(is_running(kernel.pid) for kernel in kernels))


def test_a_run_that_is_interrupted_has_a_result_too(start: Start, tmp_path: Path) -> None:
    with chat(by_turn(cell(BUSY), ["never"])) as server:
        program = start("run", "go", "--yes", "--output", "result", *server.options)
        wait_until((tmp_path / "begun").exists)
        program.send_signal(signal.SIGINT)
        found = result_in(program.stdout.read())
        assert program.wait(120) == 130
    assert (found["status"], found["turns"]) == ("cancelled", 1)


def test_a_second_signal_leaves_at_once_and_no_process_behind(start: Start) -> None:
    with chat(by_turn(cell("while True:\n    print('line')"), ["never"])) as server:
        program = start("run", "go", "--yes", "--output", "plain", *server.options)
        wait_until(lambda: waiting_bytes(program.stdout) >= 60_000)  # nobody reads: no ending can be written
        kernels = psutil.Process(program.pid).children(recursive=True)
        assert kernels
        program.send_signal(signal.SIGINT)
        wait_until(lambda: not pending_signals(program.pid))
        assert program.poll() is None
        program.send_signal(signal.SIGINT)
        assert program.wait(120) == 130
        wait_until(lambda: not any(is_running(kernel.pid) for kernel in kernels))


def waiting_bytes(pipe: IO[str]) -> int:
    """How much has been written to the pipe and not been read."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


@pytest.mark.parametrize("module", ["pydantic_core", "_zmq"], ids=["settings", "model"])
def test_an_interrupt_while_the_program_starts_ends_it(start: Start, module: str) -> None:
    with chat(lambda _: [asyncio.Event()]) as server:  # a model that is silent
        program = start("run", "go", *server.options, cold=True)
        modules = psutil.Process(program.pid).memory_maps
        wait_until(lambda: any(module in item.path for item in modules()))  # it still imports
        program.send_signal(signal.SIGINT)
        assert program.wait(120) == 130
        assert "Traceback" not in program.stderr.read()


def test_settings_that_nobody_has_looked_at_start_nothing(reporter: Chat, tmp_path: Path) -> None:
    file = tmp_path / ".freeact" / "permissions.toml"
    file.parent.mkdir()
    file.write_text('allow = ["code"]')
    for options in ([], ["--yes"]):
        done = run("run", "multiply", *options, *reporter.options, cwd=tmp_path, check=2)
        assert str(file) in done.stderr
        assert "--trust" in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert not reporter.server.requests
    run("run", "multiply", "--trust", *reporter.options, cwd=tmp_path)
    assert "42" in run("run", "multiply", *reporter.options, cwd=tmp_path).stdout  # once is enough
    file.write_text('allow = ["code", "shell"]')
    run("run", "multiply", *reporter.options, cwd=tmp_path, check=2)


def test_permissions_check_ends_with_a_status_that_stands_for_the_decision(tmp_path: Path) -> None:
    for command, status, verdict in (("git log", 0, "allow"), ("git push", 3, "ask"), ("rm -rf /", 1, "deny")):
        done = run("permissions", "check", command, cwd=tmp_path, check=status)
        assert (done.stdout.partition(":")[0], done.stderr) == (verdict, "")
