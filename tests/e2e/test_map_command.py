"""`freeact-sub map` asks about each row of a file, keeps what is answered, and overwrites nothing else."""

import asyncio
import csv
import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.chat_server import ChatCall, ChatReply, HttpError
from support.cli import LIMIT_SECONDS, PROGRAM, Chat, chat, environment, prompt_of
from support.waiting import wait_until
from support.warm import WarmProgram, run_program

pytestmark = [pytest.mark.e2e]

FIELDS = "kind: short|long, letters: int"
DATA = 'text,n\nabc,1\n"x, y",2\n,3\nabc,4\n'


def labelled(request: dict[str, Any]) -> ChatReply:
    text = prompt_of(request).rpartition(": ")[2]
    if text == "bad":
        return HttpError(400, "no such thing")
    if not request.get("tools"):
        return [text.upper() or "NOTHING"]
    name = request["tools"][0]["function"]["name"]
    return [ChatCall(name, {"kind": "long" if len(text) > 3 else "short", "letters": len(text)})]


@pytest.fixture
def server() -> Iterator[Chat]:
    with chat(labelled) as server:
        yield server


def mapped(server: Chat, cwd: Path, *words: str, data: str = "") -> "subprocess.CompletedProcess[str]":
    command = [PROGRAM, "map", *words, *server.options]
    return run_program(command, cwd=cwd, env=environment(), stdin=data, timeout=LIMIT_SECONDS)


def test_a_file_gets_columns_and_the_same_call_asks_nothing_again(server: Chat, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(DATA)
    words = ["data.csv", "Classify: {text}", "--output", FIELDS, "--out", "result.csv"]
    done = mapped(server, tmp_path, *words)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "4 of 4 rows" in done.stderr
    rows = [*csv.reader((tmp_path / "result.csv").read_text().splitlines())]
    assert rows == [
        ["text", "n", "kind", "letters", "error"],
        ["abc", "1", "short", "3", ""],
        ["x, y", "2", "long", "4", ""],
        ["", "3", "short", "0", ""],
        ["abc", "4", "short", "3", ""],
    ]
    assert len(server.server.requests) == 3
    assert mapped(server, tmp_path, *words).returncode == 0
    assert len(server.server.requests) == 3
    (tmp_path / "result.csv").write_text("mine")
    refused = mapped(server, tmp_path, *words)
    assert refused.returncode == 2
    assert "result.csv exists" in refused.stderr
    assert (tmp_path / "result.csv").read_text() == "mine"
    onto_itself = mapped(server, tmp_path, "data.csv", "{text}", "--out", "data.csv")
    assert onto_itself.returncode == 2
    assert (tmp_path / "data.csv").read_text() == DATA


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ('{"text": "abc", "n": [1]}\n\n{"text": "é"}\n', '{"text": "abc", "n": [1], "answer": "ABC", "error": null}'),
        ("text;n\nabc;1\n", "text;n;answer;error\nabc;1;ABC;"),
        ("text,n\n", "text,n,answer,error\n"),
    ],
    ids=["json lines", "semicolons", "no rows"],
)
def test_standard_input_and_output(server: Chat, tmp_path: Path, data: str, expected: str) -> None:
    done = mapped(server, tmp_path, "-", "{text}", data=data)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(expected)
    assert [*tmp_path.iterdir()] == []


def test_rows_that_fail_say_why_and_are_asked_again(server: Chat, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "ok"}\n{"text": "bad"}\n')
    done = mapped(server, tmp_path, "in.jsonl", "Say: {text}", "--out", "out.jsonl")
    assert done.returncode == 1
    assert "1 of 2 rows are answered, see the column error; to ask what is missing: freeact-sub map in.jsonl" in done.stderr
    first, second = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert (first["answer"], first["error"]) == ("OK", None)
    assert "no such thing" in second["error"]
    before = len(server.server.requests)
    assert mapped(server, tmp_path, "in.jsonl", "Say: {text}", "--out", "out.jsonl").returncode == 1
    assert len(server.server.requests) == before + 1


@pytest.mark.parametrize(
    ("words", "data", "said"),
    [
        (["none.csv", "{a}"], "", "cannot read none.csv"),
        (["-", "{b}"], "a\n1\n", "no column 'b'"),
        (["-", "{a}"], "a,b\n1\n", "row 1: it has 1 cells, and the header 2"),
        (["-", "{a}"], "a,a\n1,2\n", "a column more than once"),
        (["-", "{a}"], '{"a": 1}\n[]\n', "row 2: it must be an object"),
        (["-", "{a}", "--output", "a b"], "a\n1\n", "'a b' is no new field"),
        (["-", "{a}", "--output", "x: number"], "a\n1\n", "'x: number' is no new field with a type"),
        (["-", "{a}", "--output", "a"], "a\n1\n", "column 'a' already"),
        (["-", "{a}", "--budget", "much"], "a\n1\n", "'much' is not a budget"),
        (["-", "{a}", "--budget", "-1"], "a\n1\n", "is not a budget"),
        (["-", "{a}", "--out", "x.xlsx"], "a\n1\n", "in files that end in .csv"),
    ],
)
def test_wrong_usage_is_one_line_and_asks_nothing(
    server: Chat, tmp_path: Path, words: list[str], data: str, said: str
) -> None:
    done = mapped(server, tmp_path, *words, data=data)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert server.server.requests == []


def test_a_bound_leaves_rows_and_the_next_call_asks_them(server: Chat, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("text\n" + "".join(f"word {n}\n" for n in range(40)))
    words = ["in.csv", "{text}", "--out", "out.csv"]
    done = mapped(server, tmp_path, *words, "--budget", "500 tokens")
    assert done.returncode == 1
    assert "of 40 rows are answered, see the column error" in done.stderr
    assert mapped(server, tmp_path, *words).returncode == 0
    assert len(server.server.requests) == 40


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupt_leaves_what_is_done(tmp_path: Path, number: int) -> None:
    blocks = [True]

    def script(request: dict[str, Any]) -> ChatReply:
        if blocks[0] and int(prompt_of(request)) >= 20:
            return [asyncio.Event()]
        return [prompt_of(request)]

    with chat(script) as server:
        (tmp_path / "in.csv").write_text("n\n" + "".join(f"{n}\n" for n in range(30)))
        command = [PROGRAM, "map", "in.csv", "{n}", "--out", "out.csv", *server.options]
        in_order = environment() | {"FREEACT_MODELS__QUOTE_ABOVE": "100"}  # no pilots are chosen
        program = WarmProgram(command, cwd=tmp_path, env=in_order, stderr=subprocess.PIPE, text=True)
        kept = tmp_path / "out.csv.answers.jsonl"
        _wait(lambda: kept.exists() and kept.read_text().count("\n") == 21 and len(server.server.requests) == 30, program)
        program.send_signal(number)
        _, said = program.communicate(timeout=LIMIT_SECONDS)
        if number == signal.SIGINT:
            assert program.returncode == 130
            assert "freeact-sub: interrupted; to ask what is missing: freeact-sub map in.csv '{n}' --out out.csv" in said
        assert not (tmp_path / "out.csv").exists()
        blocks[0] = False
        before = len(server.server.requests)
        assert mapped(server, tmp_path, "in.csv", "{n}", "--out", "out.csv").returncode == 0
        assert len(server.server.requests) == before + 10


def _never() -> Any:
    import asyncio

    return asyncio.Event()


def _wait(condition: Callable[[], bool], program: "subprocess.Popen[str]") -> None:
    wait_until(lambda: condition() or program.poll() is not None)
    assert program.poll() is None, program.communicate()


def test_other_columns_are_written_as_they_stand_in_the_file(server: Chat, tmp_path: Path) -> None:
    numbers = ["1e400", "12345678901234567.89", "1.10", "1E5", "-0", "NaN", "12"]
    lines = [f'{{"n": {number}, "deep": [{{"m": {number}}}], "q": "same"}}' for number in numbers]
    lines += ['{"n": null, "te\\udc00xt": "\\ud83d\\ude00", "q": "same", "half": "a\\ud83d"}', "{}"]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    for out in ("out.jsonl", "out.csv"):
        done = mapped(server, tmp_path, "in.jsonl", "Classify: {q}", "--out", out)
        assert done.returncode == 0, done.stderr
    added = '"answer": "SAME", "error": null}'
    assert (tmp_path / "out.jsonl").read_text().splitlines() == [
        *(f"{line[:-1]}, {added}" for line in lines[:-1]),
        '{"answer": "NOTHING", "error": null}',
    ]
    head, *rows = csv.reader((tmp_path / "out.csv").read_text().splitlines())
    assert head == ["n", "deep", "q", "te\\udc00xt", "half", "answer", "error"]
    assert [row[0] for row in rows] == [*numbers, "", ""]
    assert rows[6] == ["12", '[{"m": 12}]', "same", "", "", "SAME", ""]
    assert rows[7][3:5] == ["\U0001f600", "a\\ud83d"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"a, b, c";d\n1;2\n', "a, b, c;d;answer;error\n1;2;2;\n"),
        ("a,d\n1,2\n", "a,d,answer,error\n1,2,2,\n"),
        ('d\n"2, 3"\n\n', 'd,answer,error\n"2, 3","2, 3",\n'),
    ],
)
def test_the_separator_is_read_in_the_header_outside_of_quotes(
    server: Chat, tmp_path: Path, text: str, expected: str
) -> None:
    (tmp_path / "in.csv").write_text(text)
    assert mapped(server, tmp_path, "in.csv", "{d}", "--out", "out.csv").returncode == 0
    assert (tmp_path / "out.csv").read_text() == expected
    assert mapped(server, tmp_path, "in.csv", "{d}", "--out", "out.tsv").returncode == 0
    assert "\t" in (tmp_path / "out.tsv").read_text()
