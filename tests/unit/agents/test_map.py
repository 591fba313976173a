"""One question about each row: frames keep their form, errors stay in their rows, and what is answered is not asked again."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd
import pytest
from pydantic import BaseModel
from pydantic_ai.messages import ToolCallPart
from support.waiting import eventually
from typing_extensions import TypedDict

from freeact_sub import Agent, Budget, Config, FreeactError, InvalidRequestError, StrategyProgress
from freeact_sub.testing import FakeKernelProvider, ScriptedModel, first_prompt


class Label(BaseModel):
    kind: Literal["short", "long"]
    letters: int


@dataclass
class Plain:
    kind: str
    letters: int


class Typed(TypedDict):
    kind: str
    letters: int


@pytest.fixture
def labels():
    """Labels the text after the colon; fails for "bad"."""

    def script(messages, info):
        text = first_prompt(messages).rpartition(":")[2]
        if not info.output_tools:
            return "" if text == "bad" else text.upper()
        if text == "bad":
            return ToolCallPart(info.output_tools[0].name, {"letters": "many"})
        if "kind" not in str(info.output_tools[0].parameters_json_schema):
            return ToolCallPart(info.output_tools[0].name, {"value": len(text)})
        return ToolCallPart(info.output_tools[0].name, {"kind": "long" if len(text) > 2 else "short", "letters": len(text)})

    return script


@pytest.mark.parametrize("output", [Label, Plain, Typed])
async def test_a_frame_keeps_order_and_index_and_gets_the_fields_as_columns(make, labels, output):
    index = pd.MultiIndex.from_tuples([("b", 2), ("a", 1), ("a", 1)])
    frame = pd.DataFrame({"text": ["abc", "bad", "x"], 7: [1.5, 2, 3], "text twice": 0}, index=index)
    before = frame.copy()
    async with make(labels) as agent:
        done = await agent.map(frame, "{7:.1f} {{}} {text twice}:{text}", output=output)
    pd.testing.assert_frame_equal(frame, before)
    pd.testing.assert_frame_equal(done[["text", 7, "text twice"]], before)
    assert [*done.columns] == ["text", 7, "text twice", "kind", "letters", "error"]
    assert done.kind.iloc[0] == "long"
    assert done.letters.dtype == "Int64"
    assert done.letters.isna().tolist() == [False, True, False]
    assert done.error.isna().tolist() == [True, False, True]
    assert "letters" in done.error.iloc[1]


async def test_records_and_values_without_fields(make, labels):
    async with make(labels) as agent:
        rows = [{"t": "abc"}, {"t": None}, {"other": 1}, {"t": float("nan")}, {"t": "bad"}]
        done = await agent.map(rows, ":{t}", output=int)
        assert [row["answer"] for row in done] == [3, 0, 0, 0, None]
        assert done[2] == {"other": 1, "answer": 0, "error": None}
        assert rows[0] == {"t": "abc"}
        texts = await agent.map(pd.DataFrame({"t": ["ab", "bad"]}), ":{t}")
        assert texts.answer.iloc[0] == "AB"
        assert texts.answer.isna().iloc[1]
        assert [*(await agent.map(pd.DataFrame({"t": []}), ":{t}", output=Label)).columns] == [
            "t",
            "kind",
            "letters",
            "error",
        ]
        assert await agent.map([{"t": 2**80}], "{t}:a", output=int) == [{"t": 2**80, "answer": 1, "error": None}]


async def test_numbers_past_64_bits_stay_whole(make):
    big = 2**80
    async with make(lambda _, info: ToolCallPart(info.output_tools[0].name, {"value": big})) as agent:
        done = await agent.map(pd.DataFrame({"t": [1, 2]}), "{t}", output=int)
    assert done.answer.tolist() == [big, big]


@pytest.mark.parametrize(
    ("frame", "template", "output", "words"),
    [
        (pd.DataFrame({"text": ["a"]}), "{txt}", str, "no column 'txt': did you mean 'text'"),
        (pd.DataFrame({"text": ["a"]}), "none", str, "names no column"),
        (pd.DataFrame({"text": ["a"]}), "{text", str, "a brace itself"),
        (pd.DataFrame({"text": ["a"]}), "{text.__class__}", str, "no column 'text.__class__'"),
        (pd.DataFrame({"text": ["a"]}), "{}", str, "no column ''"),
        (pd.DataFrame([["a", "b"]], columns=["t", "t"]), "{t}", str, "more than once"),
        (pd.DataFrame({"kind": ["a"]}), "{kind}", Label, "column 'kind' already"),
        (pd.DataFrame({"error": ["a"]}), "{error}", str, "column 'error' already"),
        (pd.DataFrame({"answer": ["a"]}), "{answer}", str, "column 'answer' already"),
        (pd.DataFrame({"t": ["a"]}), "{t}", asyncio.Event, "output is a type"),
        ("abc", "{t}", str, "not builtins.str"),
        (pd.Series([1]), "{t}", str, "not pandas"),
    ],
)
async def test_errors_in_all_rows_are_raised_before_anything_is_asked(make, labels, frame, template, output, words):
    async with make(labels) as agent:
        with pytest.raises(InvalidRequestError, match=words.replace("(", r"\(")):
            await agent.map(frame, template, output=output)
        assert agent.scripted.requests == 0


async def test_frames_of_other_kinds_are_refused_with_what_to_pass(make, labels):
    class DataFrame:
        def to_dicts(self):
            return []

    async with make(labels) as agent:
        with pytest.raises(InvalidRequestError, match=r"pass frame.to_dicts\(\)"):
            await agent.map(DataFrame(), "{t}")
        with pytest.raises(InvalidRequestError, match="nobody"):
            await agent.map([{"t": 1}], "{t}", model="nobody")


async def test_a_second_call_asks_only_what_is_missing(make, labels, tmp_path):
    kept = tmp_path / "folder" / "kept.jsonl"
    rows = [{"t": text} for text in ("a", "bb", "a", "bad")]
    async with make(labels) as agent:
        done = await agent.map(rows, ":{t}", kept_in=kept)
        first = agent.scripted.requests
        assert [row["answer"] for row in done] == ["A", "BB", "A", None]
        again = await agent.map([*rows, {"t": "new"}], ":{t}", kept_in=str(kept))
        assert again[:4] == done
        assert again[4]["answer"] == "NEW"
        failed = first - 2  # equal rows are asked once
        assert agent.scripted.requests == first + failed + 1
        other = agent.scripted.requests
        await agent.map(rows[:1], "other:{t}", kept_in=kept)
        await agent.map(rows[:1], ":{t}", output=int, kept_in=kept)
        assert agent.scripted.requests == other + 2, "another template and another type are asked"
    assert kept.stat().st_mode & 0o077 == 0


async def test_files_of_answers_are_checked(make, labels, tmp_path):
    kept, foreign = tmp_path / "kept.jsonl", tmp_path / "data.csv"
    foreign.write_text("t\na\n")
    rows = [{"t": "a"}, {"t": "bb"}]
    async with make(labels) as agent:
        with pytest.raises(FreeactError, match="a file of something else"):
            await agent.map(rows, ":{t}", kept_in=foreign)
        with pytest.raises(FreeactError, match="cannot be kept"):
            await agent.map(rows, ":{t}", kept_in=tmp_path)
        assert foreign.read_text() == "t\na\n"
        await agent.map(rows, ":{t}", output=int, kept_in=kept)
        header, first, second = kept.read_text().splitlines()
        wrong = json.dumps(json.loads(first) | {"answer": "no number"})
        kept.write_text("\n".join([header, wrong, second, "[]", "nonsense", second[:20]]))
        asked = agent.scripted.requests
        done = await agent.map(rows, ":{t}", output=int, kept_in=kept)
        assert [row["answer"] for row in done] == [1, 2]
        assert agent.scripted.requests == asked + 1
        for torn in ("", header[:10]):
            kept.write_text(torn)
            await agent.map(rows, ":{t}", output=int, kept_in=kept)
            assert len(kept.read_text().splitlines()) == 3


@pytest.mark.features("sessions")
async def test_a_session_keeps_the_answers(make, labels):
    async with make(labels, session="new") as agent:
        await agent.map([{"t": "a"}], ":{t}")
        session = agent.session_id
    async with make(labels, session=session) as agent:
        assert await agent.map([{"t": "a"}], ":{t}") == [{"t": "a", "answer": "A", "error": None}]
        assert agent.scripted.requests == 0


async def test_a_bound_of_the_run_ends_in_the_rows_that_are_left(make, labels):
    rows = [{"t": f"{n}"} for n in range(10)]
    async with make(labels) as agent:
        run = agent.run_program(lambda: agent.map(rows, ":{t}"), budget=Budget(requests=4))
        done = (await run.result()).output
        assert [row["answer"] for row in done] == ["0", "1", "2", "3", *[None] * 6]
        assert all("limit of requests" in row["error"] for row in done[4:])
        assert agent.scripted.requests == 4


async def test_progress_is_an_event_that_counts_rows_and_failures(make, labels):
    steps = []
    async with make(labels) as agent:
        rows = [{"t": text} for text in ("a", "a", "bad")]
        async for event in agent.run_program(lambda: agent.map(rows, ":{t}")):
            if isinstance(event, StrategyProgress):
                steps.append(event)
    assert len({step.strategy_id for step in steps}) == 1
    assert [(steps[at].strategy, steps[at].step, steps[at].of, steps[at].done) for at in (0, -1)] == [
        ("map", 0, 3, False),
        ("map", 3, 3, True),
    ]
    assert steps[-1].failed == 1


KILLED = """
import asyncio, sys
from pathlib import Path
from freeact_sub import Agent, Config
from freeact_sub.testing import FakeKernelProvider, ScriptedModel, first_prompt

never = asyncio.Event()
def script(messages, info):
    text = first_prompt(messages)
    return [never, "x"] if int(text) >= 40 else text

async def main():
    config = Config(workspace=Path(sys.argv[1]), models={"max_concurrent": 4, "quote_above": 100})
    async with Agent(config, model=ScriptedModel(script), kernel_provider=FakeKernelProvider()) as agent:
        await agent.map([{"n": n} for n in range(60)], "{n}", kept_in=sys.argv[2])
asyncio.run(main())
"""


@pytest.mark.slow
async def test_a_kill_loses_at_most_the_open_requests(tmp_path):
    kept = tmp_path / "kept.jsonl"
    program = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path), str(kept)], env={**os.environ})
    try:
        lines = lambda: kept.read_text().count("\n") if kept.exists() else 0
        await eventually(lambda: lines() >= 41 or program.poll() is not None)
        assert program.poll() is None
    finally:
        program.send_signal(signal.SIGKILL)
        program.wait()
    scripted = ScriptedModel(lambda messages, _: first_prompt(messages))
    config = Config(workspace=tmp_path)
    async with Agent(config, model=scripted, kernel_provider=FakeKernelProvider()) as agent:
        done = await agent.map([{"n": n} for n in range(60)], "{n}", kept_in=kept)
    assert [row["answer"] for row in done] == [str(n) for n in range(60)]
    assert scripted.requests == 20


@pytest.mark.slow
def test_pandas_is_imported_only_for_its_own_frames(tmp_path):
    code = KILLED.replace(">= 40", ">= 99").replace(
        "asyncio.run(main())", "asyncio.run(main()); assert 'pandas' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), str(Path(tmp_path) / "kept")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "name",
    ["price: EUR", "price:EUR", "price:", "a!b", "wow!", "a.b", "a[0]", "0", "", "two words", "50 %", "größe: cm", "a:b:c"],
)
async def test_a_column_is_named_as_it_is(make, labels, name):
    async with make(labels) as agent:
        [row] = await agent.map([{name: "x", "price": 2.5}], f"{{{{y}}}} {{price:.2f}} {{price!r}}:{{{name}}}")
    assert row["answer"] == "X"


async def test_a_column_that_is_not_there_is_not_proposed(make, labels):
    async with make(labels) as agent:
        with pytest.raises(InvalidRequestError, match="no column 'pric': it has 'price: EUR'"):
            await agent.map([{"price: EUR": 1}], "Label {pric: EUR}")
