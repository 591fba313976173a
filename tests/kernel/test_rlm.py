"""Recursive language models: answers about contexts that no prompt holds, by scripts that stand in for the models."""

import math
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, UserPromptPart

from benchmarks.recursion import LINES, QUESTIONS, actor, expected, reader, records
from benchmarks.rlm import look, server, set_program
from benchmarks.rlm_costs import CHILDREN, EACH, LIMITS, LOOPS
from freeact_sub import ApprovalRequest, Budget, Config, TaskError
from freeact_sub.errors import FreeactError
from freeact_sub.rlm import RLM
from freeact_sub.testing import ScriptedModel, first_prompt

pytestmark = pytest.mark.kernel


def prompt_of(messages: list[ModelMessage]) -> str:
    return "\n".join(str(part.content) for part in messages[-1].parts if isinstance(part, UserPromptPart))


def acts(code: str) -> ScriptedModel:
    """Writes this code, and no more."""

    def script(messages: list[ModelMessage], info: Any) -> str:
        del messages, info
        return f"I look.\n```repl\n{code}\n```"

    return ScriptedModel(script)


def last_level(lines: int, depth: int) -> list[int]:
    """How many lines each kernel of the last level has."""
    if depth == 1:
        return [lines]
    return last_level(lines // 2, depth - 1) + last_level(lines - lines // 2, depth - 1)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("size", [32_000, 131_000])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_answers_are_exact_at_each_depth(depth: int, size: int, question: str) -> None:
    context, kinds = records(size)
    rlm = RLM(model=actor(question, depth), sub_model=reader(), max_depth=depth)
    completion = rlm.completion(context, QUESTIONS[question])
    assert completion.response == expected(question, kinds)
    assert completion.usage.turns == 2**depth - 1 + sum(math.ceil(lines / LINES) for lines in last_level(len(kinds), depth))


def test_the_prompt_of_the_root_is_as_long_for_ten_megabytes_as_for_32_kilobytes() -> None:
    lengths = []
    for size in (32_000, 10_000_000):
        sent: list[str] = []

        def script(messages: list[ModelMessage], info: Any, sent: list[str] = sent) -> str:
            sent.append(f"{info.instructions}{messages}")
            return "```repl\nprint(len(context))\n```" if len(messages) == 1 else "```repl\nFINAL(len(context))\n```"

        completion = RLM(model=ScriptedModel(script)).completion("x" * size, "How long is it?")
        assert int(completion.response) == size
        lengths.append([len(text) for text in sent])
    assert len(lengths[0]) == len(lengths[1])
    assert lengths[1] == pytest.approx(lengths[0], rel=0.02)


ANSWERS = {
    "FINAL(6 * 7)": "42",
    "found = 'forty-two'\nFINAL_VAR('found')": "forty-two",
    "found = 42\nFINAL_VAR(found)": "42",
    "answer['content'] = 'a'\nanswer['ready'] = True": "a",
    "answer = {'content': 'b', 'ready': True}": "b",
    "import asyncio\nawait asyncio.to_thread(int)\nFINAL('awaited')": "awaited",
    "FINAL('first')\n1 / 0": "first",
    "FINAL(context['a'] + context['b'])": "xy",
    "FINAL(sorted(SHOW_VARS()))": "['answer', 'context']",
}


@pytest.mark.parametrize("code", ANSWERS)
def test_an_answer_ends_the_run_after_its_cell(code: str) -> None:
    completion = RLM(model=acts(code)).completion({"a": "x", "b": "y"}, "?")
    assert completion.response == ANSWERS[code]
    assert completion.usage.turns == 1


@pytest.mark.parametrize(
    ("written", "answer"), [("FINAL(42)", "42"), ('FINAL("forty-two")', "forty-two"), ("It is 42.", "It is 42.")]
)
def test_an_answer_may_be_written_outside_of_code(written: str, answer: str) -> None:
    assert RLM(model=ScriptedModel([written])).completion("x", "?").response == answer


def test_a_variable_that_is_named_outside_of_code_is_asked_for_in_code() -> None:
    script = ScriptedModel(["```repl\nfound = 42\n```", "FINAL_VAR(found)", "```repl\nFINAL_VAR(found)\n```"])
    assert RLM(model=script).completion("x", "?").response == "42"


def test_an_equal_question_is_asked_once() -> None:
    asked: list[str] = []

    def sub(messages: list[ModelMessage], info: Any) -> str:
        del info
        asked.append(prompt_of(messages))
        return asked[-1].upper()

    code = "FINAL(llm_query_batched(['a', 'b', 'a']) + [llm_query('b')])"
    completion = RLM(model=acts(code), sub_model=ScriptedModel(sub)).completion("x", "?")
    assert completion.response == "['A', 'B', 'A', 'B']"
    assert sorted(asked) == ["a", "b"]


def test_an_equal_question_of_siblings_is_asked_once() -> None:
    asked: list[str] = []

    def script(messages: list[ModelMessage], info: Any) -> str:
        del info
        if first_prompt(messages).startswith("inner"):
            return "```repl\nFINAL(llm_query_batched(['a', 'b']))\n```"
        return "```repl\nFINAL([*rlm_query_batched(['inner 1', 'inner 2', 'inner 3']), llm_query('a')])\n```"

    def sub(messages: list[ModelMessage], info: Any) -> str:
        del info
        asked.append(prompt_of(messages))
        return asked[-1].upper()

    completion = RLM(model=ScriptedModel(script), sub_model=ScriptedModel(sub), max_depth=2).completion("x", "?")
    assert completion.response == str([*["['A', 'B']"] * 3, "A"])
    assert sorted(asked) == ["a", "b"]


def test_nobody_is_asked_to_approve_what_the_names_do() -> None:
    events: list[Any] = []

    def script(messages: list[ModelMessage], info: Any) -> str:
        del info
        if first_prompt(messages).startswith("inner"):
            return "```repl\nFINAL(llm_query('a'))\n```"
        return "```repl\nprint(budget.remaining())\nFINAL(rlm_query('inner') + llm_query('b'))\n```"

    config = Config(headless="deny")
    rlm = RLM(
        model=ScriptedModel(script),
        sub_model=ScriptedModel(lambda messages, _: prompt_of(messages)),
        max_depth=2,
        config=config,
        taps=[events.append],
    )
    assert rlm.completion("x", "?").response == "ab"
    assert [event for event in events if isinstance(event, ApprovalRequest)] == []


def test_a_recursive_call_works_in_a_copy_and_changes_nothing_here() -> None:
    def script(messages: list[ModelMessage], info: Any) -> str:
        del info
        if first_prompt(messages).startswith("inner"):
            return "```repl\nparsed.append(3)\nFINAL(f'{parsed} {context}')\n```"
        code = "parsed = [1, 2]\nsame = rlm_query('inner')\nother = rlm_query('inner, too', context='other')"
        return f"```repl\n{code}\nFINAL([same, other, parsed])\n```"

    completion = RLM(model=ScriptedModel(script), max_depth=2).completion("mine", "?")
    assert completion.response == "['[1, 2, 3] mine', '[1, 2, 3] other', [1, 2]]"


def test_at_the_last_level_a_recursive_call_is_a_plain_one() -> None:
    model, sub = (
        acts("FINAL(rlm_query('Translate.', context='eins'))"),
        ScriptedModel(lambda messages, _: prompt_of(messages)[::-1]),
    )
    assert RLM(model=model, sub_model=sub).completion("x", "?").response == "snie\n\n.etalsnarT"


def test_limits_end_it_with_a_reason_and_are_not_exceeded() -> None:
    asked: list[str] = []

    def sub(messages: list[ModelMessage], info: Any) -> str:
        del info
        asked.append(prompt_of(messages))
        return "more"

    code = "import itertools\nfor number in itertools.count(): llm_query(f'{number}')"
    rlm = RLM(model=acts(code), sub_model=ScriptedModel(sub), budget={"requests": 20})
    with pytest.raises(TaskError) as raised:
        rlm.completion("x", "?")
    assert raised.value.result.status == "limit"
    assert len(asked) <= 19


@pytest.mark.usefixtures("allow_model_requests")
@pytest.mark.parametrize("limit", LIMITS)
def test_sixteen_children_that_loop_for_ever_spend_no_more_than_the_limit(limit: str) -> None:
    program = LOOPS.replace("COUNT", str(CHILDREN)).replace("CHILDREN", "rlm_query_batched(prompts, prompts)")
    with server() as address:
        set_program(address, program)
        config = Config(base_url=f"{address}/d0/v1", subagents={"max_concurrent": CHILDREN})
        rlm = RLM(model="openai-chat:gpt-4o", max_depth=2, budget={limit: LIMITS[limit]}, config=config)
        with pytest.raises(TaskError) as raised:
            rlm.completion("context", "go")
        spent = look(address)["answered"] * EACH[limit]
    assert raised.value.result.status == "limit", raised.value
    assert 0 < spent <= LIMITS[limit]


def test_what_is_left_can_be_asked() -> None:
    code = "before = budget.remaining()['requests']\nllm_query('a')\nFINAL([before, budget.remaining()['requests']])"
    completion = RLM(model=acts(code), sub_model=ScriptedModel(["x"]), budget=Budget(requests=9)).completion("x", "?")
    assert completion.response == "[8, 7]"


def test_an_answer_that_fails_raises_and_keeps_the_others() -> None:
    asked: list[str] = []

    def sub(messages: list[ModelMessage], info: Any) -> str:
        del info
        asked.append(prompt_of(messages))
        if asked.count("bad") == 1 and asked[-1] == "bad":
            raise ValueError("the server is ill")
        return asked[-1]

    code = "try: llm_query_batched(['a', 'bad', 'c'])\nexcept Exception as error: print(type(error))"
    model = ScriptedModel([f"```repl\n{code}\n```", "```repl\nFINAL(llm_query_batched(['a', 'bad', 'c']))\n```"])
    completion = RLM(model=model, sub_model=ScriptedModel(sub)).completion("x", "?")
    assert completion.response == "['a', 'bad', 'c']"
    assert sorted(asked) == ["a", "bad", "bad", "c"]


def test_kernels_have_no_network_and_write_their_folder_only(tmp_path: Any) -> None:
    tries: dict[str, str] = {
        "connect": "import socket\nsocket.create_connection(('127.0.0.1', 9), timeout=2)",
        "write": f"open({str(tmp_path / 'x')!r}, 'w')",
    }
    code = "seen = []\n" + "".join(
        f"try:\n    {text.replace(chr(10), chr(10) + '    ')}\nexcept OSError as error: seen.append(type(error).__name__)\n"
        for text in tries.values()
    )
    response = (
        RLM(model=acts(f"{code}FINAL(seen)"), config=Config(workspace=tmp_path, mode="full")).completion("x", "?").response
    )
    assert response.count("PermissionError") == 2
    assert [*tmp_path.iterdir()] == []


async def test_in_an_event_loop_the_other_method_is_named() -> None:
    rlm = RLM(model=acts("FINAL(1)"))
    with pytest.raises(FreeactError, match="acompletion"):
        rlm.completion("x", "?")
    assert (await rlm.acompletion("x", "?")).response == "1"


@pytest.mark.parametrize("depth", [0, 4])
def test_a_depth_out_of_range_is_refused(depth: int) -> None:
    with pytest.raises(ValueError, match="from 1 to 3"):
        RLM(max_depth=depth)
