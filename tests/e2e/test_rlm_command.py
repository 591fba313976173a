"""`freeact-sub rlm` answers questions about files and about standard input."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import ChatReply, by_turn
from support.cli import LIMIT_SECONDS, PROGRAM, Chat, chat, environment
from support.warm import run_program

from freeact_sub.cli.parser import parse

pytestmark = [pytest.mark.e2e, pytest.mark.kernel]


@pytest.fixture
def server() -> Iterator[Chat]:
    with chat(by_turn(["I look.\n```repl\nFINAL(f'{type(context).__name__} {len(context)}')\n```"])) as server:
        yield server


def asked(server: Chat, cwd: Path, *words: str, data: str = "") -> "subprocess.CompletedProcess[str]":
    command = [PROGRAM, "rlm", *words, *server.options]
    return run_program(command, cwd=cwd, env=environment(), stdin=data, timeout=LIMIT_SECONDS)


@pytest.mark.parametrize(
    ("files", "data", "answer"),
    [(["a.txt"], "", "str 40000"), (["a.txt", "b.txt"], "", "dict 2"), ([], "12345", "str 5"), (["-"], "123", "str 3")],
    ids=["a file", "files", "standard input", "its name"],
)
def test_the_answer_is_on_standard_output(server: Chat, tmp_path: Path, files: list[str], data: str, answer: str) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("SECRET " * 5714 + "it")
    done = asked(server, tmp_path, *files, "How long is it?", data=data)
    assert (done.returncode, done.stdout) == (0, f"{answer}\n"), done.stderr
    sent = str(server.server.requests)
    assert "How long is it?" in sent
    assert "SECRET" not in sent
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "b.txt"]


def test_two_levels_and_a_model_for_parts_and_nothing_is_asked_of_a_person(tmp_path: Path) -> None:
    def script(request: dict[str, Any]) -> ChatReply:
        if request["messages"][0]["role"] != "system":
            return [f"{request['model']}: {request['messages'][-1]['content']}"]
        inner = "inner" in str(request["messages"][-1]["content"])
        return ["```repl\n" + ("FINAL(llm_query('part'))" if inner else "FINAL(rlm_query('inner'))") + "\n```"]

    with chat(script) as server:
        done = asked(server, tmp_path, "--depth", "2", "--sub-model", "openai-chat:reader", "-", "Which?", data="text")
    assert (done.returncode, done.stdout) == (0, "reader: part\n"), done.stderr
    assert "asks" not in done.stderr.replace("asks a model", "")
    assert "approved" not in done.stderr


def test_a_file_that_is_not_there_is_named(server: Chat, tmp_path: Path) -> None:
    done = asked(server, tmp_path, "missing.txt", "why?")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "freeact-sub: cannot read missing.txt: No such file or directory\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("rlm FILE --depth 2 QUESTION", ["FILE", "QUESTION"]),
        ("rlm --depth 2 FILE QUESTION", ["FILE", "QUESTION"]),
        ("rlm FILE QUESTION --depth 2", ["FILE", "QUESTION"]),
        ("rlm A --depth 2 B --sub-model small QUESTION", ["A", "B", "QUESTION"]),
        ("rlm - --depth=2 QUESTION", ["-", "QUESTION"]),
        ("rlm --depth 2 QUESTION", ["QUESTION"]),
        ("rlm FILE --depth 2 -- -5?", ["FILE", "-5?"]),
        ("--model m rlm FILE --depth 2 QUESTION", ["FILE", "QUESTION"]),
    ],
)
def test_options_may_stand_anywhere(words: str, expected: list[str]) -> None:
    options = parse(words.split())
    assert (options.words, options.depth) == (expected, 2)


@pytest.mark.parametrize("words", ["rlm FILE --dept 2 QUESTION", "rlm FILE --depth 2 QUESTION -x", "rlm --depth 2"])
def test_wrong_options_are_refused_wherever_they_stand(words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(words.split())
    assert ended.value.code == 2


def test_folders_of_skills_may_stand_around_options() -> None:
    assert parse(["skills", "check", "a", "--workspace", "w", "b"]).paths == ["a", "b"]
