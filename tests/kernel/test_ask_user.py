"""A model asks a person with `ask_user`, and code with `agent.ask_user`: with choices, by a form, or where nobody is there."""

import asyncio

import pytest
from pydantic_ai.messages import ToolCallPart
from support.agents import cell, of_kind, task
from support.elsewhere import CANNOT_FORK

from freeact_sub import Agent, Config
from freeact_sub.config.schema import KernelConfig
from freeact_sub.events import (
    Answer,
    ApprovalRequest,
    CodeExecutionOutput,
    QuestionAnswered,
    QuestionRequest,
    ToolOutput,
)
from freeact_sub.testing import ScriptedModel, first_prompt

pytestmark = [pytest.mark.kernel, pytest.mark.skipif(CANNOT_FORK, reason="forked kernels")]

WAIT_SECONDS = 60
DATABASE = {"question": "Which database?", "choices": ["SQLite", "PostgreSQL"]}
WHY = {"question": "Why?"}
FORM = {
    "title": "A server",
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2},
        "port": {"type": "integer", "minimum": 1, "maximum": 65535},
        "share": {"type": "number", "default": 0.5},
        "secure": {"type": "boolean"},
        "place": {"type": "string", "enum": ["eu", "us"], "enumNames": ["Europe", "America"]},
        "days": {"type": "array", "items": {"type": "string", "enum": ["Mo", "Tu"]}},
    },
    "required": ["name", "port", "secure", "place"],
}


def asks(**args):
    return ToolCallPart("ask_user", args)


@pytest.fixture
def run_asking(tmp_path):
    """Run a script; each question gets what the next answer makes of it."""

    async def run(script, *answers, **config):
        left, events = list(answers), []
        async with Agent(Config(workspace=tmp_path, **{"mode": "ask", **config}), model=ScriptedModel(script)) as agent:
            running = agent.run("root")
            async for event in running:
                events.append(event)
                if isinstance(event, QuestionRequest) and not event.headless:
                    assert event in running.open_requests
                    left.pop(0)(event)
                elif isinstance(event, ApprovalRequest) and not event.headless:
                    assert event.call.kind != "tool", "asking is never itself asked about"
                    event.approve()
            assert (await running.result()).status == "completed"
        assert not left
        return events

    return run


def told(events):
    return [event.content for event in of_kind(events, ToolOutput)]


def answered(given):
    return lambda event: event.answer(given)


@pytest.mark.parametrize("mode", ["plan", "ask", "auto", "full"])
async def test_the_model_reads_the_choice_in_every_mode(run_asking, mode):
    events = await run_asking([[asks(questions=[DATABASE])], "done"], answered("PostgreSQL"), mode=mode)
    assert told(events) == ["PostgreSQL"]
    (request,), (end,) = of_kind(events, QuestionRequest), of_kind(events, QuestionAnswered)
    assert (request.prompt, request.fields[0].choices, request.fields[0].other) == (
        "Which database?",
        ("SQLite", "PostgreSQL"),
        True,
    )
    assert (end.answered, end.text, end.values) == (True, "PostgreSQL", {"Which database?": "PostgreSQL"})
    assert request.tool_call_id == end.tool_call_id is not None


async def test_a_free_text_is_an_answer_and_several_questions_are_one(run_asking):
    given = {"Which database?": "DuckDB, please", "Why?": "it is small"}
    events = await run_asking([[asks(questions=[DATABASE, WHY])], "done"], answered(given))
    assert told(events) == ["Which database?\n-> DuckDB, please\nWhy?\n-> it is small"]
    assert of_kind(events, QuestionAnswered)[0].values == given


async def test_a_form_refuses_what_is_of_another_type_and_stays_open(run_asking):
    good = {"name": "web", "port": "8080", "secure": "yes", "place": "America", "days": ["Mo"]}
    wrong = {
        "name": ("x", "name must be a text, at least 2 characters long"),
        "port": ("many", "port must be a whole number, from 1 to 65535"),
        "secure": ("perhaps", "secure must be yes or no"),
        "place": ("asia", "place must be one of these: Europe, America"),
        "days": (["Su"], "days must be any of these: Mo, Tu"),
        "other": ("x", "the question has no field 'other'"),
    }

    def answer(event):
        for name, (value, why) in wrong.items():
            with pytest.raises(ValueError, match=why):
                event.answer({**good, name: value})
        with pytest.raises(ValueError, match="port needs an answer: a whole number"):
            event.answer({name: value for name, value in good.items() if name != "port"})
        with pytest.raises(ValueError, match="values by name, not one text"):
            event.answer("web")
        assert event.answer(good)
        assert not event.answer(good)

    events = await run_asking([[asks(form=FORM)], "done"], answer)
    assert told(events) == ['{"name": "web", "port": 8080, "share": 0.5, "secure": true, "place": "us", "days": ["Mo"]}']
    assert "place: America" in of_kind(events, QuestionAnswered)[0].text


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({}, "either `questions` or a `form`"),
        ({"questions": [DATABASE], "form": FORM}, "either `questions` or a `form`"),
        ({"questions": [WHY, WHY]}, "takes 1 to 4 different questions"),
        ({"questions": [{"question": f"{number}?"} for number in range(5)]}, "takes 1 to 4 different questions"),
        ({"questions": [{"question": " "}]}, "takes 1 to 4 different questions"),
        ({"questions": [{"question": "Which?", "choices": list("abcde")}]}, "2 to 4 different choices"),
        ({"questions": [{"question": "Which?", "choices": ["one"]}]}, "2 to 4 different choices"),
        ({"questions": [{"question": "Which?", "choices": ["one", "one"]}]}, "2 to 4 different choices"),
        ({"form": {"properties": {"a": {"type": "object"}}}}, "the form's field 'a' must be a string"),
        ({"form": {"type": "array", "properties": {"a": {}}}}, "a form must be the JSON schema of an object"),
    ],
)
async def test_what_is_no_question_is_refused_in_a_sentence(run_asking, args, why):
    events = await run_asking([[asks(**args)], "done"])
    assert why in told(events)[0]
    assert not of_kind(events, QuestionRequest)


@pytest.mark.parametrize("headless", ["auto", "deny", "allow"])
async def test_where_nobody_is_there_the_model_reads_so_at_once(run_asking, headless):
    script = [[asks(questions=[DATABASE])], [cell("await agent.ask_user('Which?')")], "done"]
    events = await run_asking(script, headless=headless, mode="full")
    assert told(events)[0] == (
        "The user has given no answer (nobody is there to answer): decide yourself, and say what you assumed."
    )
    assert "RuntimeError: nobody is there to answer" in told(events)[1]


async def test_who_declines_and_who_is_late_is_told(run_asking):
    script = [[asks(questions=[DATABASE])], [asks(questions=[WHY])], "done"]
    events = await run_asking(script, lambda event: event.decline("ask later"), lambda _: None, approval_timeout_seconds=1)
    first, second = told(events)
    assert "(ask later)" in first
    assert "nobody has answered within 1 s" in second


SHIRT = """
import dataclasses, enum
class Size(str, enum.Enum):
    S = "s"
    L = "l"
@dataclasses.dataclass
class Shirt:
    size: Size
    count: int = 1
    note: str | None = None
print(await agent.ask_user(form=Shirt))
"""
CODE = {
    "a choice": ("print(repr(await agent.ask_user('Which?', ['a', 'b'])))", "b", "'b'"),
    "without await": ("print(repr(agent.ask_user('Which?', ['a', 'b'])))", "own words", "'own words'"),
    "several": ("print(await agent.ask_user([('Which?', ['a', 'b']), 'Why?']))", {"Which?": "a", "Why?": "so"}, "['a', 'so']"),
    "a form": (
        "print(await agent.ask_user(form={'properties': {'n': {'type': 'integer'}}, 'required': ['n']}))",
        {"n": 3},
        "{'n': 3}",
    ),
    "a dataclass": (
        SHIRT,
        {"size": "l"},
        "Shirt(size=<Size.L: 'l'>, count=1, note=None)",
    ),
    "a thread": ("import asyncio\nprint(await asyncio.to_thread(agent.ask_user, 'Which?'))", "x", "x"),
}  # fmt: skip


@pytest.mark.parametrize("name", CODE)
async def test_code_asks_and_goes_on_with_the_answer(run_asking, name):
    code, given, end = CODE[name]
    events = await run_asking([[cell(code)], "done"], answered(given), kernel=KernelConfig(cell_timeout_seconds=60))
    assert [event.text for event in of_kind(events, CodeExecutionOutput)] == [end]


async def test_two_children_ask_at_once_and_are_answered_in_any_order(tmp_path):
    def script(messages, info):
        del info
        prompt, last = first_prompt(messages), messages[-1].parts[-1]
        if "child" not in prompt and last.part_kind == "user-prompt":
            return [task("child one", description="one"), task("child two", description="two")]
        if last.part_kind == "user-prompt":
            return [asks(questions=[{"question": f"For {prompt.split()[-1]}?", "choices": ["x", "y"]}])]
        return str(last.content)

    async with Agent(Config(workspace=tmp_path, mode="full"), model=ScriptedModel(script)) as agent:
        run, open_now = agent.run("root"), []
        async for event in run:
            if isinstance(event, QuestionRequest):
                open_now.append(event)
                if len(open_now) == 2:
                    assert {one.path[-1].partition(" ")[2] for one in open_now} == {"(one)", "(two)"}
                    for number, one in enumerate(reversed(open_now)):
                        assert run.answer(one.request_id, Answer(values={one.prompt: f"answer {number}"}))
        result = await run.result()
    assert "answer 0" in result.output or "answer 1" in result.output
    assert result.status == "completed"


@pytest.mark.parametrize("how", ["the run", "the child", "the reader goes away"])
async def test_a_question_ends_with_whoever_asks(tmp_path, how):
    def script(messages, info):
        del info
        prompt, last = first_prompt(messages), messages[-1].parts[-1]
        if "child" not in prompt and last.part_kind == "user-prompt":
            return [task("child one", description="one")]
        return [asks(questions=[DATABASE])] if last.part_kind == "user-prompt" else str(last.content)

    async with Agent(Config(workspace=tmp_path, mode="full"), model=ScriptedModel(script)) as agent:
        run, seen = agent.run("root"), []

        async def read():
            async for event in run:
                seen.append(event)
                if isinstance(event, QuestionRequest):
                    if how == "the reader goes away":
                        break
                    assert agent.cancel(event.agent_id) if how == "the child" else run.cancel()
            await run.aclose() if how == "the reader goes away" else None

        await asyncio.wait_for(read(), WAIT_SECONDS)
        assert run.open_requests == ()
    (request,) = of_kind(seen, QuestionRequest)
    assert not request.answer("SQLite")
    if how != "the reader goes away":
        (end,) = of_kind(seen, QuestionAnswered)
        assert (end.request_id, end.answered) == (request.request_id, False)
