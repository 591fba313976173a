"""What code in a cell reads from the keyboard is asked of a person, or the cell says that nobody can answer."""

import asyncio
from itertools import chain

import pytest
from support.agents import cell, of_kind
from support.elsewhere import CANNOT_FORK
from support.gateways import behind
from support.waiting import outlast

from freeact_sub import Agent, Callbacks, Config, dispatch
from freeact_sub.config.schema import KernelConfig
from freeact_sub.events import Answer, CodeExecutionOutput, QuestionAnswered, QuestionRequest
from freeact_sub.testing import ScriptedModel

pytestmark = [pytest.mark.kernel, pytest.mark.skipif(CANNOT_FORK, reason="forked kernels")]


@pytest.fixture
def ask(tmp_path):
    """Run cells of an agent; each question gets the next answer. None: it is declined."""

    async def run_cells(*cells, answers=(), script=None, **config):
        model = ScriptedModel(script or [*([cell(code)] for code in cells), "done"])
        left, events = list(answers), []
        async with Agent(Config(workspace=tmp_path, **{"mode": "full", **config}), model=model) as agent:
            run = agent.run("root")
            async for event in run:
                events.append(event)
                if isinstance(event, QuestionRequest) and not event.headless:
                    assert run.open_requests == (event,)
                    answer = left.pop(0)
                    assert event.decline("no wish") if answer is None else event.answer(answer)
                    assert not event.answer("too late")
            assert (await run.result()).status == "completed"
        assert not left
        return events, [end.text for end in of_kind(events, CodeExecutionOutput)]

    return run_cells


READS = {
    "input": ("print(input('Name? '))", ["Ada"], ["Name? "], "Ada"),
    "an empty answer": ("print(repr(input()))", [""], [""], "''"),
    "several lines": ("print(repr(input('Text? ')))", ["a\nb"], ["Text? "], r"'a\nb'"),
    "two in a row": ("print(input('a? ') + input('b? '))", ["1", "2"], ["a? ", "b? "], "12"),
    "a prompt that is no text": ("print(input(7))", ["x"], ["7"], "x"),
    "getpass": ("import getpass\nprint(len(getpass.getpass('Key: ')))", ["secret"], ["Key: "], "6"),
    "from getpass": ("from getpass import getpass\nprint(len(getpass()))", ["secret"], ["Password: "], "6"),
    "a thread": ("import threading\nt = threading.Thread(target=lambda: print(input('t? ')))\nt.start(); t.join()", ["x"], ["t? "], "x"),
    "a coroutine": ("import asyncio\nasync def f(): return input('c? ')\nprint(await f())", ["x"], ["c? "], "x"),
    "another thread of asyncio": ("import asyncio\nprint(await asyncio.to_thread(input, 'c? '))", ["x"], ["c? "], "x"),
    "pdb": ("x = 5\nimport pdb; pdb.set_trace()\nprint('on')", ["p x + 1", "c"], ["ipdb> ", "ipdb> "], "on"),
    "breakpoint": ("breakpoint()\nprint('on')", ["c"], ["ipdb> "], "on"),
    "stdin": ("import sys\nprint(repr(sys.stdin.readline()))", ["x"], [""], r"'x\n'"),
    "lines of stdin": ("import sys\nprint([line for line in sys.stdin])", ["x", "y", None], ["", "", ""], r"['x\n', 'y\n']"),
    "all of stdin": ("import sys\nprint(repr(sys.stdin.read()))", ["x\ny"], [""], r"'x\ny\n'"),
    "a text in its place": ("import io, sys\nold, sys.stdin = sys.stdin, io.StringIO('given')\nprint(input())\nsys.stdin = old", [], [], "given"),
    "a program": ("import subprocess\nprint(subprocess.run(['cat'], stdin=__import__('sys').stdin).returncode)", [], [], "0"),
}  # fmt: skip


@pytest.mark.parametrize("provider", ["fork", "local"])
async def test_a_person_is_asked_and_the_code_goes_on_with_the_answer(ask, provider):
    code, answers, prompts, ends = ([*column] for column in zip(*READS.values(), strict=True))
    events, texts = await ask(*code, answers=chain(*answers), kernel=KernelConfig(provider=provider))
    assert [event.prompt for event in of_kind(events, QuestionRequest)] == [*chain(*prompts)]
    for name, text, end in zip(READS, texts, ends, strict=True):
        assert text.endswith(end), (name, text)


async def test_a_secret_is_recorded_nowhere(ask):
    code = "import getpass\nkey = getpass.getpass()\nprint(len(key), input('and? '))"
    events, texts = await ask(code, answers=["hunter2", "open"])
    assert texts == ["7 open"]
    assert [(event.answered, event.text) for event in of_kind(events, QuestionAnswered)] == [(True, ""), (True, "open")]
    assert [event.secret for event in of_kind(events, QuestionRequest)] == [True, False]
    assert "hunter2" not in "".join(event.to_json() for event in events)


ERRORS = {
    "input": "input('Name? ')",
    "getpass": "import getpass; getpass.getpass()",
    "in a function": "def f():\n    return input()\nf()",
    "breakpoint": "breakpoint()",
    "a thread pool": "import asyncio; await asyncio.to_thread(input)",
    "a fork": "import os\nif os.fork() == 0:\n    try: input()\n    except Exception as error: print(error)\n    os._exit(0)\nos.wait();",
}  # fmt: skip


@pytest.mark.parametrize("headless", ["auto", "deny", "allow"])
async def test_where_nobody_is_there_the_cell_says_so_at_once_in_one_sentence(ask, headless):
    events, texts = await ask(*ERRORS.values(), headless=headless)
    for name, text in zip(ERRORS, texts, strict=True):
        assert text.rstrip().endswith("put the value into the code, or ask for it in your reply"), (name, text)
        assert text.count("gets no answer (") == 1
    assert len(texts[0].splitlines()) <= 3
    asked = of_kind(events, QuestionRequest)
    assert all(event.headless for event in asked)
    assert [event.request_id for event in of_kind(events, QuestionAnswered)] == [event.request_id for event in asked]


async def test_who_declines_is_quoted(ask):
    _, texts = await ask("input('Name? ')", "print('next')", answers=[None])
    assert "input() gets no answer (the person does not answer: no wish)" in texts[0]
    assert texts[1] == "next"


@pytest.mark.parametrize("way", ["result", "no callback", "a callback that fails", "abandoned"])
async def test_a_reader_that_answers_nothing_is_nobody(tmp_path, way):
    def fail(_):
        raise ValueError

    async with Agent(Config(workspace=tmp_path, mode="full"), model=ScriptedModel([[cell("input()")], "done"])) as agent:
        run, events = agent.run("root"), []
        match way:
            case "result":
                result = await run.result()
            case "no callback":
                await dispatch(run, Callbacks())
                result = await run.result()
            case "a callback that fails":
                await dispatch(run, Callbacks(on_question=fail))
                result = await run.result()
            case _:
                async with run:
                    async for event in run:
                        events.append(event)
                        if isinstance(event, QuestionRequest):
                            break
                assert agent.agents()[0].status == "cancelled"
                return
    assert result.status == "completed"


async def test_a_callback_and_the_run_answer_by_id_and_from_another_thread(tmp_path):
    script = [[cell("print(input('a'), input('b'), input('c'))")], "done"]
    async with Agent(Config(workspace=tmp_path, mode="full"), model=ScriptedModel(script)) as agent:
        run, texts = agent.run("root"), []
        async for event in run:
            if isinstance(event, QuestionRequest) and event.prompt == "a":
                assert run.answer(event.request_id, "1")
            elif isinstance(event, QuestionRequest) and event.prompt == "b":
                assert run.answer(event.request_id, Answer(text="2"))
                assert not run.answer("question-unknown", "2")
            elif isinstance(event, QuestionRequest):
                await asyncio.to_thread(event.answer, "3")
            elif isinstance(event, CodeExecutionOutput):
                texts.append(event.text)
    assert texts == ["1 2 3"]


async def test_the_time_of_a_person_is_not_the_cells(tmp_path):
    config = Config(workspace=tmp_path, mode="full", kernel=KernelConfig(cell_timeout_seconds=4))
    async with Agent(config, model=ScriptedModel([[cell("print(input())")], "done"])) as agent:
        ends = []
        async for event in agent.run("root"):
            if isinstance(event, QuestionRequest):
                await outlast(4)
                event.answer("late")
            elif isinstance(event, CodeExecutionOutput):
                ends.append((event.status, event.text))
    assert ends == [("ok", "late")]


async def test_a_cancel_ends_a_question_and_the_kernel_lives_on(tmp_path):
    script = [[cell("kept = 5")], [cell("input()")], [cell("print(kept)")], "done"]
    async with Agent(Config(workspace=tmp_path, mode="full"), model=ScriptedModel(script)) as agent:
        run, events = agent.run("root"), []
        async for event in run:
            events.append(event)
            if isinstance(event, QuestionRequest):
                run.cancel()
        (answered,) = of_kind(events, QuestionAnswered)
        assert (answered.answered, (await run.result()).status) == (False, "cancelled")
        assert run.open_requests == ()
        events = [event async for event in agent.run("again")]
    assert [end.text for end in of_kind(events, CodeExecutionOutput)] == ["5"]


@pytest.mark.slow
async def test_a_kernel_of_a_gateway_asks_in_the_same_way(ask, gateways):
    _, texts = await ask("print(input('far? '))", answers=["near"], kernel=behind(gateways[0]))
    assert texts == ["near"]


async def test_a_branch_asks_its_own_host(ask):
    code = "r = await agent.task('branch', branch=True)\nprint(r.text)"
    script = {
        "root": [[cell("name = input('one? ')")], [cell(code)], "done"],
        "branch": [[cell("print(name, input('two? '))")], "done"],
    }
    events, texts = await ask(script=script, answers=["1", "2"])
    assert "1 2" in texts
    assert [event.depth for event in of_kind(events, QuestionRequest)] == [0, 1]
