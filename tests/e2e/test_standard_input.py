"""Standard input goes along with a prompt, the files that a prompt names do too, and a pipe gets the answer alone."""

import base64
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import by_turn
from support.cli import LIMIT_SECONDS, PROGRAM, Chat, chat, environment, run
from support.waiting import wait_until
from support.warm import WarmProgram

from freeact_sub.cli.streams import MAX_BYTES
from freeact_sub.terminal.attachments import MAX_CHARS

pytestmark = [pytest.mark.e2e, pytest.mark.kernel]

PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


@pytest.fixture
def server() -> Iterator[Chat]:
    with chat(by_turn(["It is 42."])) as server:
        yield server


def started(server: Chat, cwd: Path, *arguments: str, **streams: Any) -> "subprocess.Popen[bytes]":
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    command = [PROGRAM, *arguments, "--mode", "auto", *server.options]
    start = subprocess.Popen if "preexec_fn" in streams else WarmProgram
    return start(command, cwd=cwd, env=environment(), **streams)


def asked(server: Chat) -> Any:
    """What the person's message has in the last request."""
    return next(message["content"] for message in server.server.requests[-1]["messages"] if message["role"] == "user")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"SECRETDATA\n", "[Standard input:]\n```\nSECRETDATA\n```"),
        (b"a ``` b\n````\n", "[Standard input:]\n`````\na ``` b\n````\n`````"),
        ("\ufeffname;café\r\n".encode(), "name;café"),
        ("größer".encode("utf-16"), "größer"),
        (b"caf\xe9 in another encoding", "caf\ufffd in another encoding"),
        (b"@AGENTS.md @notes.txt", "```\n@AGENTS.md @notes.txt\n```"),
    ],
    ids=["text", "fences", "mark", "utf-16", "latin-1", "at"],
)
@pytest.mark.parametrize("arguments", [["-p", "why?"], ["run", "why?"], ["run", "--file", "prompt.md"]])
def test_data_goes_along_behind_the_prompt(
    server: Chat, tmp_path: Path, arguments: list[str], content: bytes, text: str
) -> None:
    (tmp_path / "prompt.md").write_text("why?")
    (tmp_path / "notes.txt").write_text("not asked for")
    done = started(server, tmp_path, *arguments, stdin=subprocess.PIPE)
    out, error = done.communicate(content, timeout=LIMIT_SECONDS)
    assert (done.returncode, out) == (0, b"It is 42.\n"), error
    prompt = asked(server)
    assert text in prompt
    assert prompt.index("why?") < prompt.index("[Standard input:]")
    assert "not asked for" not in prompt


@pytest.mark.parametrize("stdin", ["empty", "null", "file", "closed", "write-only"])
def test_empty_input_and_files_are_read_at_once(server: Chat, tmp_path: Path, stdin: str) -> None:
    (tmp_path / "data").write_text("from a file" if stdin == "file" else "")
    names = {"empty": "data", "file": "data", "null": os.devnull, "write-only": os.devnull}
    streams: dict[str, Any] = {"preexec_fn": lambda: os.close(0)}
    with ExitStack() as files:
        if stdin in names:  # `nohup` makes it one for writing
            mode = "w" if stdin == "write-only" else "r"
            streams = {"stdin": files.enter_context((tmp_path / names[stdin]).open(mode))}
        done = started(server, tmp_path, "run", "why?", **streams)
    _, error = done.communicate(timeout=LIMIT_SECONDS)
    assert done.returncode == 0, error
    assert b"nothing came" not in error
    assert ("from a file" in asked(server)) == (stdin == "file")
    assert ("Standard input" in asked(server)) == (stdin == "file")


def test_an_inherited_pipe_in_which_nobody_writes_is_told_and_not_waited_for(server: Chat, tmp_path: Path) -> None:
    done = started(server, tmp_path, "run", "why?", stdin=subprocess.PIPE)  # its other end stays open here
    assert done.wait(LIMIT_SECONDS) == 0
    assert done.stdout is not None
    assert done.stderr is not None
    assert done.stdout.read() == b"It is 42.\n"
    assert b"nothing came on standard input in 3 s" in done.stderr.read()
    assert "Standard input" not in asked(server)


@pytest.mark.skipif(not Path("/proc/self/fdinfo").exists(), reason="only /proc tells who writes")
def test_a_command_of_the_pipeline_that_is_slow_is_waited_for(server: Chat, tmp_path: Path) -> None:
    slow = "while ! [ -e go ]; do sleep 0.1; done; echo LATE"
    words = " ".join(["run", "why?", "--mode", "auto", *server.options])
    with (tmp_path / "log").open("w") as log:
        shell = subprocess.Popen(
            ["bash", "-c", f"({slow}) | {PROGRAM} {words}"],
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=log,
        )
        wait_until(lambda: "waiting for the end of standard input" in (tmp_path / "log").read_text())
        (tmp_path / "go").touch()
        out, _ = shell.communicate(timeout=LIMIT_SECONDS)
    assert (shell.returncode, out) == (0, b"It is 42.\n")
    assert "LATE" in asked(server)


def test_a_long_text_goes_whole_to_a_file_and_the_model_reads_where(server: Chat, tmp_path: Path) -> None:
    lines = "".join(f"line {number}\n" for number in range(20_000))
    run("run", "why?", "--mode", "auto", *server.options, cwd=tmp_path, stdin=lines)
    prompt = asked(server)
    assert len(prompt) < MAX_CHARS + 2_000
    assert "line 0\n" in prompt
    assert "line 19999\n" in prompt
    (file,) = tmp_path.glob(".freeact/outputs/agent-*/standard-input-*.txt")
    assert file.read_text() == lines
    assert str(file.relative_to(tmp_path)) in prompt


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x7fELF\0\0\1", "neither text nor a picture"),
        (b"\x89PNG" + bytes(5 * 2**20), "picture"),
        (b"x" * MAX_BYTES + b"y", "50 MiB"),
    ],
    ids=["program", "large picture", "endless"],
)
def test_input_that_no_model_reads_is_refused_with_a_sentence(
    server: Chat, tmp_path: Path, content: bytes, words: str
) -> None:
    done = started(server, tmp_path, "run", "why?", stdin=subprocess.PIPE)
    out, error = done.communicate(content, timeout=LIMIT_SECONDS)
    assert (done.returncode, out) == (2, b"")
    assert error.startswith(b"freeact-sub: ")
    assert words in error.decode()
    assert len(error.splitlines()) == 1
    assert not server.server.requests


def test_a_picture_goes_along_as_one(server: Chat, tmp_path: Path) -> None:
    done = started(server, tmp_path, "run", "what is it?", stdin=subprocess.PIPE)
    done.communicate(PIXEL, timeout=LIMIT_SECONDS)
    assert done.returncode == 0
    (picture,) = (part for part in asked(server) if part["type"] == "image_url")
    assert base64.b64encode(PIXEL).decode() in picture["image_url"]["url"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["-p", "explain @app.py and @p.png"],
        ["run", "explain @app.py and @p.png"],
        ["run", "--file", "prompt.md"],
        ["-"],
        ["--quiet"],
    ],
)
def test_files_that_a_prompt_names_go_along(server: Chat, tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "app.py").write_text("answer = 6 * 7\n")
    (tmp_path / "p.png").write_bytes(PIXEL)
    (tmp_path / "prompt.md").write_text("explain @app.py and @p.png")
    words = ["run", *arguments] if arguments == ["-"] else arguments
    is_piped = arguments in (["-"], ["--quiet"])
    done = run(
        *words, "--mode", "auto", *server.options, cwd=tmp_path, stdin="explain @app.py and @p.png" if is_piped else ""
    )
    assert done.stdout == "It is 42.\n"
    assert "answer = 6 * 7" in str(asked(server))
    assert base64.b64encode(PIXEL).decode() in str(asked(server))


def test_a_pipe_gets_the_answer_and_standard_error_the_log(server: Chat, tmp_path: Path) -> None:
    read: Callable[..., Any] = lambda *options: run("run", "why?", "--mode", "auto", *options, *server.options, cwd=tmp_path)
    done = read()
    assert done.stdout == "It is 42.\n"
    assert "starts: why?" in done.stderr
    assert "says: It is 42." in done.stderr
    done = read("--quiet")
    assert (done.stdout, done.stderr) == ("It is 42.\n", "")
    done = read("--output", "plain")
    assert "says: It is 42." in done.stdout
    assert done.stderr == ""
