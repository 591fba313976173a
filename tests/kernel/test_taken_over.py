"""A yes to a long trial takes it over, as if the cell had run once; a cell that changes nothing may run unasked."""

import asyncio
import sys
import threading

import pytest
from support.agents import cell, of_kind
from support.sandbox import NEEDS_A_WALL
from support.trials import ON, asking, tree
from support.waiting import eventually

from freeact_sub import Agent, ApprovalDeniedError, Config, Decision, Hook
from freeact_sub.calls import HARMLESS
from freeact_sub.events import AgentFinished, ApprovalRequest, CodeExecutionOutput, CodeExecutionOutputChunk, Notice
from freeact_sub.features import effects
from freeact_sub.kernels import taking_over
from freeact_sub.testing import ScriptedModel

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(sys.platform != "linux", reason="kernels are branched on Linux only"),
    NEEDS_A_WALL,
]
SIDE = "open('runs', 'a').write('r')\n"
LONG = f"threading.Event().wait(3)\n{SIDE}"
SETUP = (
    "import os, random, time, decimal, threading, pathlib, signal, sys, xml, numpy as np, pandas as pd\n"
    "x = [1]; twin = {'x': x}; gone = 1; a = np.arange(4)\nx"
)


def taken(events):
    """How often a trial was taken over."""
    return sum("taken over from its trial, which took" in notice.content for notice in of_kind(events, Notice))


async def test_a_long_trial_is_the_run_of_its_cell(tmp_path):
    (tmp_path / "old").write_text("o")
    code = (
        f"{LONG}class C: n = 0\nnew = [C(), [2]]; twice = [new[1]]; del gone; a = a[1:] * 3; b = a[1:]\n"
        "d = np.random.normal(); e = random.random(); os.remove('old'); os.mkdir('k')\n"
        "print('out'); import colorsys; display({'text/html': '<b>h</b>', 'text/plain': 'h'}, raw=True); random.gauss(0, 1)\nx"
    )
    show = (
        "print(x, twin['x'] is x, twice[0] is new[1], type(new[0]) is C, 'gone' in dir(), b, np.shares_memory(a, b), _ is x, Out[1] is x,\n"
        "      sorted(Out), len(In), In[2][:10], 'colorsys' in dir(), d != np.random.normal(), e != random.random())"
    )
    async with asking(tmp_path, SETUP, code, show) as question:
        (await question()).approve()
        request = await question()
        effects = await request.effects_ready()
        assert (effects.can_be_taken_over, effects.harmless) == (True, False)
        before = tree(tmp_path)
        assert (tmp_path / "old").exists()
        request.approve()
        (await question()).approve()
        assert await question() is None
    assert taken(question.events) == 1
    assert before.keys() - tree(tmp_path).keys() == {"old"}
    assert (tmp_path / "runs").read_text() == "r"
    assert (tmp_path / "k").is_dir()
    _, ran, shown = of_kind(question.events, CodeExecutionOutput)
    assert (ran.text, ran.status, ran.seconds < effects.seconds) == ("out\nh\n[1]", "ok", True)
    kinds = [type(chunk.output).__name__ for chunk in of_kind(question.events, CodeExecutionOutputChunk)]
    assert kinds == ["ExecuteResult", "StreamText", "DisplayData", "ExecuteResult", "StreamText"]
    same = "True True True False [6 9] True True True [1, 2] 4 threading. True True True"
    assert shown.text == f"[1] {same}"
    ended = of_kind(question.events, AgentFinished)[0]
    assert (ended.files_written, ended.files_removed) == (("runs",), ("old",))
    assert [receipt.status for receipt in ended.receipts.cells] == ["ok", "ok", "ok"]


UNLIKE_A_RUN = {
    "an error": "1 / 0",
    "a program, which finds no network": "get_ipython().system('ls')",
    "a thread": "threading.Thread(target=threading.Event().wait, daemon=True).start()",
    "the environment": "os.environ['A'] = '1'",
    "the working folder": "os.chdir('..')",
    "an option of a library": "pd.set_option('display.max_rows', 7)",
    "one in a context": "decimal.getcontext().prec = 3",
    "a patched module": "random.shuffle = 3",
    "a class of a cell": "C.n += 1",
    "a closure": "count()",
    "an open file": "np.kept = open('there')",
    "a temporary file": "import tempfile; tempfile.mkstemp()",
    "a list that a module holds": "held.append(1)",
    "a value that others hold": "a[2] = 9",
    "a value that was put out": "Out[2].append(1)",
    "a new name of a module": "pd.new = 1",
    "a new name of a library's class": "pathlib.Path.new = 1",
    "a new name of a class": "C.new = 1",
    "something deep in a class": "C.deep['a']['b']['c'] = 1",
    "the mask of files": "os.umask(0o077)",
    "a signal handler": "signal.signal(signal.SIGUSR1, print)",
    "the limit of recursion": "sys.setrecursionlimit(5000)",
    "an array of a module of the workspace": "helper.values[0] = 5",
    "a generator of one": "next(helper.numbers)",
    "something deep in one": "helper.deep['a']['b']['c'] = 1",
    "a class of one": "helper.C.items.append(1)",
    "a closure of one": "helper.count()",
    "a default of one": "helper.adds()",
    "what a cached function of one has returned": "helper.loaded().append(1)",
    "what a cached function has returned": "loaded().append(1)",
    "what a cached method has returned": "C.loaded().append(1)",
    "what a cached function in a dictionary has returned": "by_name['loaded']().append(1)",
    "a default of a method": "helper.made.keep()",
    "a default of a class method": "helper.C.keep_all()",
    "a closure in a closure": "outer()",
    "a closure in a dictionary": "by_name['count']()",
    "the priority": "os.nice(1)",
    "the processors": "os.sched_setaffinity(0, {0})",
    "a logger": "logging.getLogger('mine').propagate = False",
    "a task": "asyncio.get_running_loop().create_task(asyncio.wait([asyncio.Future()], timeout=900)); None",
    "a timer": "signal.alarm(900)",
    "a mask of signals": "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})",
    "a setting of a module in C": "csv.field_size_limit(10**9)",
    "the tracing of threads": "threading.settrace(print)",
    "a name of two underscores": "__hidden = 1",
    "the form of tracebacks": "%xmode Plain",
    "the form of outputs": "%pprint",
    "another form of a type": "get_ipython().display_formatter.formatters['text/plain'].for_type(int, lambda *_: 1)",
}
HELPER = """import functools, numpy
values, numbers, deep = numpy.zeros(2), iter([1, 2]), {'a': {'b': {'c': 0}}}
class C:
    items = []
    def keep(self, to=[]): to.append(1)
    @classmethod
    def keep_all(cls, to=[]): to.append(1)
made = C()
def counter():
    n = 0
    def count():
        nonlocal n
        n += 1
    return count
count = counter()
def adds(to=[]): to.append(1)
@functools.cache
def loaded(): return [1]
"""
CACHED = "@functools.cache\ndef loaded(): return []"


async def test_a_trial_that_does_more_than_it_can_show_is_not_harmless(tmp_path):
    (tmp_path / "there").touch()
    (tmp_path / "helper.py").write_text(HELPER)
    setup = (
        f"{SETUP}\nimport asyncio, csv, functools, helper, logging\n{CACHED}\n"
        "class C: n, deep, loaded = 0, {'a': {'b': {}}}, functools.cache(lambda: [])\n"
        "def counter():\n    k = [0]\n    def count(): k[0] += 1\n    return count\n"
        "def outside(inner):\n    return lambda: inner()\n"
        "count, outer, by_name = counter(), outside(counter()), {'count': counter(), 'loaded': functools.cache(lambda: [])}; pd.held = held = []"
    )
    async with asking(tmp_path, setup, "[1]", "1") as question:
        (await question()).approve()
        (await question()).approve()
        request = await question()
        assert (await request.effects_ready("np.random.normal(), random.random()")).harmless
        wrong = []
        for name, code in UNLIKE_A_RUN.items():
            effects = await request.effects_ready(code)
            if (effects.status, effects.harmless) != ("done", False):
                wrong.append((name, effects))
        request.approve()
        assert await question() is None
    assert not wrong


RUNS_AGAIN = {
    "too fast": SIDE,
    "an option of a library": f"{LONG}pd.set_option('display.max_rows', 7)",
    "a value that cannot be pickled": f"{LONG}lock = threading.Lock()",
    "a value changed in place, which others may hold": f"{LONG}a[1] = 9",
    "a new value with a part of another": f"{LONG}more = [x]",
    "an output with a part of another": f"{LONG}[x]",
}


async def test_a_trial_that_cannot_be_taken_over_runs_again(tmp_path):
    async with asking(tmp_path, SETUP, *RUNS_AGAIN.values()) as question:
        (await question()).approve()
        while (request := await question()) is not None:
            assert (await request.effects_ready()).status == "done"
            request.approve()
    assert taken(question.events) == 0
    assert (tmp_path / "runs").read_text() == "r" * len(RUNS_AGAIN)


async def test_what_changes_after_the_trial_has_the_cell_run(tmp_path):
    setup = "import threading\nx = [1]"
    async with asking(tmp_path, setup, LONG, LONG, LONG, "x") as question:
        (await question()).approve()
        edited = await question()
        await edited.effects_ready()
        await edited.effects_ready(f"{LONG}x.append(3)")
        edited.approve(code=f"{LONG}x.append(3)")
        late = await question()
        await late.effects_ready()
        (tmp_path / "other").write_text("another agent's")
        late.approve()
        whole = await question()
        await whole.effects_ready()
        whole.approve()
        (await question()).approve()
        assert await question() is None
    assert taken(question.events) == 1
    assert (tmp_path / "runs").read_text() == "rrr"
    assert of_kind(question.events, CodeExecutionOutput)[-1].text == "[1, 3]"


async def test_a_trial_is_not_taken_over_where_what_it_may_have_changed_cannot_be_compared(tmp_path):
    (tmp_path / "helper.py").write_text("numbers = (n for n in range(9))")
    (tmp_path / "odd.py").write_text("class Odd:\n    @property\n    def __class__(self): raise RuntimeError\nodd = Odd()")
    code = f"{LONG}next(helper.numbers); None"
    async with asking(tmp_path, "import helper, odd, threading", code, "next(helper.numbers)") as question:
        (await question()).approve()
        request = await question()
        effects = await request.effects_ready()
        assert (effects.status, effects.can_be_taken_over) == ("done", False)
        request.approve()
        (await question()).approve()
        assert await question() is None
    assert taken(question.events) == 0
    assert of_kind(question.events, CodeExecutionOutput)[-1].text == "1"


async def test_a_run_that_is_cancelled_while_files_are_taken_over_ends_after_that(tmp_path, monkeypatch):
    ended, was_ended = threading.Event(), []
    real = taking_over.promote

    def promote(*args):
        loop.call_soon_threadsafe(run.cancel)
        was_ended.append(ended.wait(1))
        return real(*args)

    monkeypatch.setattr(taking_over, "promote", promote)
    loop = asyncio.get_running_loop()
    model = ScriptedModel([cell("import threading"), cell(LONG), "done"])
    async with Agent(Config(workspace=tmp_path, effects=ON), model=model) as agent:
        run = agent.run("root")
        async for event in run:
            if isinstance(event, ApprovalRequest):
                await event.effects_ready()
                event.approve()
            if isinstance(event, AgentFinished):
                ended.set()
                assert (tmp_path / "runs").exists()
    assert was_ended == [False]


UNASKED = {
    "a look": "df.head()",
    "a new variable": "total = int(df.a.sum()); some = df[df.a > 97]; print(total)",
    "their use": "print(total, list(some.a), _.shape, len(In), time.time() > 0)",
}
ASKED = {
    "a file": SIDE,
    "a variable in place": "x.append(2)",
    "another value": "gone = 2",
    "a program": "!ls",
    "a function, which is no data": "f = lambda: 1",
    "a part of another variable": "part = twin['x']",
    "a module that was not there": "import colorsys; del colorsys",
    "another object of the same value": "same = str(1000)",
}


async def test_cells_that_change_nothing_run_unasked_once_a_person_has_said_so(tmp_path):
    setup = f"{SETUP}\nsame = str(1000); df = pd.DataFrame({{'a': range(100)}}); df"
    codes = [setup, "df.head()", *UNASKED.values(), *ASKED.values(), "df.shape"]
    async with asking(tmp_path, *codes) as question:
        (await question()).approve()
        first = await question()
        assert (await first.effects_ready()).harmless, first.effects
        first.decide(Decision(allowed=True, remember="session", pattern=HARMLESS))
        for name, code in {**UNASKED, **ASKED, "at the end": "df.shape"}.items():
            request = await question()
            assert request.call.code == code, name
            assert request.headless == (code not in ASKED.values()), (name, request.effects)
            if not request.headless:
                request.approve()
        assert await question() is None
    outputs = [output.text for output in of_kind(question.events, CodeExecutionOutput)]
    assert outputs[3:5] == ["4950", "4950 [98, 99] (5, 1) 6 True"]
    assert outputs[-1] == "(100, 1)"
    assert (tmp_path / "runs").read_text() == "r"


async def test_an_unasked_cell_waits_for_no_earlier_one_that_has_run(tmp_path, monkeypatch):
    monkeypatch.setattr(effects, "TURN_SECONDS", 600)
    async with asyncio.timeout(120), asking(tmp_path, "x = [1]", "x", "len(x)", "x * 2", "x * 3") as question:
        (await question()).approve()
        (await question()).decide(Decision(allowed=True, remember="session", pattern=HARMLESS))
        while (request := await question()) is not None:
            assert request.headless
    assert [output.text for output in of_kind(question.events, CodeExecutionOutput)][2:] == ["1", "[1, 1]", "[1, 1, 1]"]


async def test_the_trial_of_an_unasked_cell_that_a_hook_denies_ends_with_its_call(tmp_path, monkeypatch):
    def denies(call):
        if call["tool_input"]["code"] == "len(x)":
            raise ApprovalDeniedError("never")

    tried = []
    real = effects.AgentTrials.try_out

    async def tries(trials, call, turn):
        tried.append((trials, turn))
        return await real(trials, call, turn)

    monkeypatch.setattr(effects.AgentTrials, "try_out", tries)
    model = ScriptedModel([cell("x = [1]"), cell("x"), cell("len(x)"), cell(SIDE), "done"])
    hook = Hook("PreToolUse", denies, "execute_ipython_cell")
    async with Agent(Config(workspace=tmp_path, effects=ON), model=model, hooks=[hook]) as agent:
        async for event in agent.run("root"):
            if isinstance(event, ApprovalRequest):
                if event.call.code == SIDE:
                    assert len(tried) == 3, "the cell of the hook was tried, too"
                    await eventually(lambda: not any(trials.kept(turn) for trials, turn in tried))
                event.decide(Decision(allowed=True, remember="session", pattern=HARMLESS))


FORGES = """t = sys.modules['freeact_guest.taken']
def made_up(*args, told=t.facts): return told(*args) | {}
t.facts = made_up"""
MADE_UP = {
    "imported from the workspace": "{'modules': ['of_workspace.part']}",
}


async def test_what_a_cell_that_nobody_has_seen_makes_up_runs_nothing_in_the_kernel(tmp_path):
    (tmp_path / "of_workspace").mkdir()
    (tmp_path / "of_workspace" / "__init__.py").write_text("import sys; sys.pwned = True")
    codes = [f"exec({FORGES.format(facts)!r}, {{'sys': sys}})" for facts in MADE_UP.values()]
    show = "print(hasattr(sys, 'pwned'), 'unittest.__main__' in sys.modules, np.random.rand() < 1)"
    async with asking(tmp_path, f"{SETUP}; import unittest", "1", *codes, show) as question:
        (await question()).approve()
        first = await question()
        await first.effects_ready()
        first.decide(Decision(allowed=True, remember="session", pattern=HARMLESS))
        while (request := await question()) is not None:
            assert request.headless, request.effects
    outputs = [output.text for output in of_kind(question.events, CodeExecutionOutput)]
    assert outputs[-1] == "False False True"
    assert of_kind(question.events, AgentFinished)[-1].status == "completed"
