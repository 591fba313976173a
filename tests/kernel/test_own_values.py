"""Values of a program go into the root's kernel and come out of it, as data."""

import asyncio
import datetime as dt
import gc
import sys
import weakref
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from pydantic import BaseModel
from pydantic_ai.messages import ToolCallPart
from support.agents import cell, hand_over, of_kind
from support.waiting import WORKS_ON, eventually

from freeact_sub import Agent, Budget, Config, InvalidRequestError, KernelError, KernelLostError, KernelValueError, NoModel
from freeact_sub.events import ApprovalRequest, CodeExecutionOutput
from freeact_sub.models.code_actions import NO_MODEL
from freeact_sub.testing import ScriptedModel, first_prompt

pytestmark = pytest.mark.kernel


class Report(BaseModel):
    rows: int
    when: dt.date
    names: list[str] = []


@dataclass
class Point:
    x: float
    label: str = ""


@pytest.fixture
def frame():
    return pd.DataFrame({"n": [1, 2, 3], "name": ["a", None, "c"], "when": pd.date_range("2020-01-01", periods=3)})


async def test_a_program_puts_values_in_runs_its_own_code_and_takes_values_out(make, frame):
    events = []
    async with make([], taps=[events.append]) as agent:  # mode `ask`: nobody is asked about the program's own code
        await agent.put(df=frame, limit=2)
        done = await agent.execute("small = df[df.n <= limit]\ntotal = int(small.n.sum())\nprint(len(small))")
        assert (done.status, done.text) == ("ok", "2")
        pd.testing.assert_frame_equal(await agent.get("small"), frame.iloc[:2])
        assert await agent.get("total") == 3
        assert (await agent.execute("1 / 0")).status == "error"
        await agent.put()
        described = {"limit": "limit = 2", "small": "small: pandas.DataFrame, shape (2, 3)", "total": "total = 3"}
        assert (await agent.variables()).items() >= described.items()
        async with await agent.branch() as node:
            assert (await node.variables()).items() >= described.items()
    assert not of_kind(events, ApprovalRequest)
    assert len(of_kind(events, CodeExecutionOutput)) == 2


async def test_each_kind_of_value_comes_out_as_it_is_or_as_its_type(make):
    code = """
import numpy as np, pandas as pd, datetime as dt, dataclasses, decimal, enum
array = np.arange(6.0).reshape(2, 3)
texts = np.array(['ab', 'c'])
many = {'train': pd.DataFrame({'a': [1]}), 'parts': [np.arange(2), 'x', None]}
series = pd.Series([1.5, None], index=['p', 'q'], name='s')
raw = bytes(range(256))
when = dt.datetime(2020, 1, 2, 3, 4, tzinfo=dt.timezone.utc)
some = {3, 1}
by_number = {1: 'one'}
nothing = float('nan')
half = chr(0xd83d)
@dataclasses.dataclass
class P:
    x: float
    label: str = 'l'
point = P(2)
points = [P(1), P(2, 'm')]
report = {'rows': np.int64(3), 'when': dt.date(2020, 1, 1), 'names': ('a',)}
"""
    async with make([]) as agent:
        assert (await agent.execute(code)).status == "ok"
        array = await agent.get("array", output=np.ndarray)
        assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
        array[0, 0] = 7  # it is this program's own
        assert (await agent.get("texts")).tolist() == ["ab", "c"]
        many = await agent.get("many")
        assert many["train"].a.tolist() == [1]
        assert [*many["parts"][0]] == [0, 1]
        assert many["parts"][1:] == ["x", None]
        assert (await agent.get("series")).to_dict()["p"] == 1.5
        assert await agent.get("raw") == bytes(range(256))
        assert await agent.get("raw", output=bytes) == bytes(range(256))
        assert await agent.get("when", output=dt.datetime) == dt.datetime(2020, 1, 2, 3, 4, tzinfo=dt.UTC)
        assert await agent.get("some", output=set[int]) == {1, 3}
        assert sorted(await agent.get("some")) == [1, 3]
        assert await agent.get("by_number", output=dict[int, str]) == {1: "one"}
        assert str(await agent.get("nothing")) == "nan"
        assert await agent.get("half") == "\ud83d"
        assert await agent.get("point") == {"x": 2, "label": "l"}
        assert await agent.get("points", output=list[Point]) == [Point(1, "l"), Point(2, "m")]
        assert await agent.get("report", output=Report) == Report(rows=3, when=dt.date(2020, 1, 1), names=["a"])
        assert await agent.get("array", output=list[list[float]]) == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("code", "name", "options", "what"),
    [
        ("x = 1", "y", {}, "name 'y' is not defined"),
        ("x = 'text'", "x", {"output": int}, "does not have the requested type: Input should be a valid integer"),
        ("x = 1", "x", {"output": pd.DataFrame}, "a pandas.DataFrame, not a int"),
        ("import numpy\nx = numpy.zeros(2)", "x", {"output": pd.DataFrame}, "a pandas.DataFrame, not a ndarray"),
        ("x = object()", "x", {}, "x holds a object"),
        ("x = lambda: 1", "x", {}, "x holds a function"),
        ("x = []; x.append(x)", "x", {}, "ircular"),
        ("import numpy\nx = numpy.array([object()])", "x", {}, "an array of object"),
        ("import pandas\nx = pandas.Series([object()])", "x", {}, "x holds a object as an object"),
        ("import numpy\nx = numpy.ma.array([1], mask=[True])", "x", {}, "with a mask"),
        ("def x(): yield 1\nx = x()", "x", {}, "x holds a generator"),
        ("x = 1", "x; y", {}, "not defined"),
    ],
)
async def test_what_cannot_be_taken_is_one_error_that_says_why(make, code, name, options, what):
    async with make([]) as agent:
        await agent.execute(code)
        with pytest.raises(KernelValueError, match=what.replace("(", r"\(")) as caught:
            await agent.get(name, **options)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 1500
        await agent.put(still=1)
        assert await agent.get("still") == 1


async def test_a_type_that_is_none_of_values_is_refused_before_anything_is_read(make):
    async with make([]) as agent:
        await agent.put(x=1)
        with pytest.raises(InvalidRequestError, match="not a type of plain values"):
            await agent.get("x", output=object())


async def test_put_refuses_names_and_values_that_no_kernel_can_have(make):
    async with make([]) as agent:
        for values, what in [
            ({"agent": 1}, "'agent' is reserved"),
            ({"a b": 1}, "not the name of a variable"),
            ({"class": 1}, "not the name of a variable"),
        ]:
            with pytest.raises(InvalidRequestError, match=what):
                await agent.put(**values)
        with pytest.raises(InvalidRequestError, match="'lock' .* cannot be handed over"):
            await agent.put(lock=asyncio.get_running_loop())


async def test_classes_of_the_programs_own_modules_go_along(make, tmp_path, monkeypatch):
    """The kernel's Python does not find them: what is not installed is known to this program alone."""
    folder = tmp_path / "lib"
    folder.mkdir()
    (folder / "own_shapes.py").write_text(
        "from dataclasses import dataclass\nfrom pydantic import BaseModel\n@dataclass\nclass Square:\n    side: int\n    def area(self): return self.side ** 2\n"
        "class Note(BaseModel):\n    text: str\n    by: 'Square'\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    import own_shapes

    async with make([]) as agent:
        await agent.put(square=own_shapes.Square(3), note=own_shapes.Note(text="t", by=own_shapes.Square(2)))
        done = await agent.execute("print(square.area(), note.by.area(), note.model_dump()['text'])")
        assert done.text == "9 4 t"
        assert await agent.get("note", output=own_shapes.Note) == own_shapes.Note(text="t", by=own_shapes.Square(2))
    del sys.modules["own_shapes"]


async def test_the_model_reads_of_inputs_and_hands_over_a_frame_by_its_name(make, frame):
    prompts = []

    def script(messages, info):
        prompts.append(first_prompt(messages))
        tool = info.output_tools[0]
        assert (tool.name, [*tool.parameters_json_schema["properties"]]) == ("hand_over", ["variable"])
        assert "pandas.DataFrame" in tool.description
        step = sum(1 for message in messages if message.kind == "response")
        return [
            cell("big = df[df.n > least]"),
            hand_over({"variable": "no_such"}, wrapped=False),
            hand_over({"variable": "big"}, wrapped=False),
        ][step]

    async with make(script, mode="full") as agent:
        result = await agent.run("take the large ones", inputs={"df": frame, "least": 1}, output=pd.DataFrame).result()
        assert (result.status, result.error) == ("completed", "")
        pd.testing.assert_frame_equal(result.output, frame.iloc[1:])
        assert "DataFrame" not in str(result.output)
    assert "- df: pandas.DataFrame, shape (3, 3)" in prompts[0]
    assert "- least = 1" in prompts[0]


async def test_types_of_one_run_are_those_that_it_asks_for(make):
    def script(messages, info):
        if not info.output_tools:
            return "a text"
        tool = info.output_tools[0]
        if tool.name == "hand_over":
            made = any(
                part.part_kind == "tool-return" and part.tool_name == "execute_ipython_cell" for part in messages[-1].parts
            )
            return hand_over({"variable": "a"}, wrapped=False) if made else cell("import numpy\na = numpy.arange(3)")
        is_report = "rows" in tool.parameters_json_schema["properties"]
        return ToolCallPart(tool.name, {"rows": 1, "when": "2020-01-01"} if is_report else {"response": 5})

    async with make(script, mode="full") as agent:
        assert (await agent.run("p").result()).output == "a text"
        assert (await agent.run("p", output=Report).result()).output == Report(rows=1, when=dt.date(2020, 1, 1))
        assert (await agent.run("p", output=int).result()).output == 5
        assert (await agent.run("p", output=np.ndarray).result()).output.tolist() == [0, 1, 2]
        child = await agent.task("p", output=np.ndarray)
        assert child.output.tolist() == [0, 1, 2]


async def test_own_code_is_behind_the_same_wall_and_what_it_does_is_asked_about(make, tmp_path):
    asked, outside = [], tmp_path.parent / "outside-of-the-workspace"

    def hear(event):
        if isinstance(event, ApprovalRequest):
            asked.append(event.call.kind)

    async with make([], mode="ask", taps=[hear]) as agent:
        done = await agent.execute(f"open('in', 'w')\nopen({str(outside)!r}, 'w')")
        assert (done.status, "PermissionError" in done.text) == ("error", True)
    assert asked == ["write"]
    assert [outside.exists(), (tmp_path / "in").exists()] == [False, True]


async def test_the_budget_counts_own_code_and_a_lost_kernel_is_said(make):
    async with make([], budget=Budget(tool_calls=1)) as agent:
        with pytest.raises(KernelLostError):
            await agent.execute("import os; os._exit(3)")
        with pytest.raises(KernelError):
            await agent.get("x")


async def test_a_kernel_that_writes_something_else_is_one_error_and_the_next_value_comes(make, tmp_path):
    """Code in the kernel has replaced what writes values; nothing that it writes runs here."""
    mark = tmp_path / "ran-in-the-program"
    replace = """
import os, pickle, sys, time
portable = sys.modules["freeact_guest.portable"]
scratch = sys.modules["freeact_guest.values"].scratch()
kept = kept if "kept" in globals() else portable.write_variable
class Bad:
    def __reduce__(self):
        return os.mkdir, (MARK,)
def write(name, variable, namespace):
    path = os.path.join(scratch, name)
    {how}
portable.write_variable = write
"""
    ways = {
        "a pickle": "open(path, 'wb').write(pickle.dumps(Bad()))",
        "nothing": "pass",
        "a link": "os.symlink('/etc/passwd', path)",
        "a pipe": "os.mkfifo(path)",
        "a folder": "os.mkdir(path)",
        "too much": "os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 2 ** 31)",
        "an endless value": WORKS_ON,
        "much text": "raise ValueError('x' * 10 ** 6)",
    }
    async with make([], mode="full", kernel={"cell_timeout_seconds": 3}) as agent:
        await agent.put(x=1, MARK=str(mark))
        for way, how in ways.items():
            done = await agent.execute(replace.replace("{how}", how))
            assert done.status == "ok", done.text
            with pytest.raises(KernelValueError) as caught:
                await agent.get("x")
            assert len(str(caught.value)) < 1500, way
            assert "root:" not in str(caught.value)
        await agent.execute("portable.write_variable = kept")
        assert await agent.get("x") == 1
        assert not mark.exists()
        await agent.execute("bad = Bad()")
        await agent.get("bad", trust=True)  # and this is what trust means
        assert mark.is_dir()


async def test_values_of_a_program_are_there_when_the_session_goes_on(make, tmp_path, monkeypatch, frame):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    config = Config(workspace=tmp_path, mode="full")
    async with Agent(config, model=ScriptedModel(["first"]), session="new") as agent:
        await agent.run("go", inputs={"df": frame}).result()
        await agent.put(later=[1, 2])
        session = agent.session_id
    async with Agent.resume(session, config, model=ScriptedModel(["second"])) as agent:
        pd.testing.assert_frame_equal(await agent.get("df"), frame)
        assert await agent.get("later") == [1, 2]


async def test_an_agent_without_a_model_has_a_kernel_and_a_session_of_it(tmp_path):
    config = Config(workspace=tmp_path, mode="auto")
    async with Agent(config, model=NoModel(), session="new") as agent:
        await agent.execute("kept = 42")
        result = await agent.run("hello").result()
    assert (result.status, result.error) == ("failed", NO_MODEL)
    async with Agent(config, model=NoModel(), session=agent.session_id) as again:
        assert (await again.execute("kept")).text == "42"


async def test_what_a_program_gave_a_run_is_free_when_the_run_has_ended(make):
    async with make(["done"]) as agent:
        frame, point = pd.DataFrame({"n": [1]}), Point(1.0)
        given = [weakref.ref(frame), weakref.ref(point)]

        async def program(point=point):
            return str(point.x)

        await agent.run("go", inputs={"df": frame}).result()
        del frame
        await eventually(lambda: gc.collect() >= 0 and given[0]() is None)  # a thread may still end its work on it
        await agent.run_program(program).result()
        del point, program
        await eventually(lambda: gc.collect() >= 0 and given[1]() is None)


async def test_a_long_error_of_a_value_keeps_what_it_is_about_and_the_way_out(make):
    async with make([]) as agent:
        raises = "def __reduce__(self): raise ValueError('what is wrong\\n' + 'and where\\n' * 900)"
        await agent.execute(f"class Bad:\n    {raises}\nbad = Bad()")
        with pytest.raises(KernelValueError) as raised:
            await agent.get("bad", trust=True)
    assert "'bad' (Bad) cannot be handed over: what is wrong" in str(raised.value)
    assert "write it to a file in the workspace" in str(raised.value)
    assert len(str(raised.value)) < 1_200
