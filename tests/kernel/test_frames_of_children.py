"""A frame, a series or an array that code asks a child for comes back by value; nothing of it is unpickled on the way."""

import pytest
from pydantic_ai.messages import ToolCallPart
from support.agents import cell, hand_over, read, root_text

pytestmark = pytest.mark.kernel


def variable(name):
    return hand_over({"variable": name}, wrapped=False)


@pytest.mark.parametrize("mode", ["full", "auto"])
async def test_each_kind_comes_back_as_it_is_and_is_the_parents_own(make, mode):
    ask = """
import numpy as np, pandas as pd
df = (await agent.task("frame", output=pd.DataFrame, inputs={"base": pd.DataFrame({"n": [1, 2, 3]})})).output
print(type(df).__name__, df.to_dict("list"), [*df.index])
df.loc["a", "n"] = 7
print(df.n.sum())
series, array = await asyncio.gather(agent.task("series", output=pd.Series), agent.task("array", output=np.ndarray))
print(type(series.output).__name__, series.output.tolist(), array.output.shape, array.output.sum(), array.text)
def plainly():
    return agent.task("array", output=np.ndarray).output.dtype
print(plainly())
"""
    script = {
        "go": [[cell(f"import asyncio{ask}")], "done"],
        "frame": [[cell("out = base[base.n > 1].set_axis(['a', 'b'])")], variable("out")],
        "series": [[cell("import pandas; s = pandas.Series(['x', None])")], variable("s")],
        "array": [[cell("import numpy; a = numpy.ones((2, 3))")], variable("a")],
    }
    async with make(script, mode=mode) as agent:
        events, result = await read(agent.run("go"))
    assert result.status == "completed"
    lines = root_text(events).splitlines()
    assert lines[:2] == ["DataFrame {'n': [2, 3]} ['a', 'b']", "10"]
    assert lines[2].startswith("Series ['x', ")
    assert lines[2].endswith("(2, 3) 6.0 [[1. 1. 1.]")
    assert lines[-1] == "float64"


async def test_a_hundred_megabytes_come_back(make):
    ask = "import numpy as np; a = (await agent.task('large', output=np.ndarray)).output; print(a.nbytes, a[-1])"
    large = "import numpy; a = numpy.arange(12_500_000)"
    script = {"go": [[cell(ask)], "done"], "large": [[cell(large)], variable("a")]}
    async with make(script, mode="full") as agent:
        events, _ = await read(agent.run("go"))
    assert root_text(events).strip() == "100000000 12499999"


async def test_a_wrong_variable_goes_back_to_the_child_and_a_refusal_is_a_fact(make):
    ask = """
import pandas as pd
print((await agent.task("mends", output=pd.DataFrame)).output.shape)
for prompt in ("cannot", "never"):
    try: await agent.task(prompt, output=pd.DataFrame)
    except agent.TaskError as error: print(error.result.status, error.result.refused, error.result.error)
"""
    made = "import pandas, os; n = 3; odd = pandas.DataFrame({'a': [os]}); out = pandas.DataFrame({'a': [1]})"
    script = {
        "go": [[cell(ask)], "done"],
        "mends": [[cell(made)], variable("missing"), variable("n"), variable("odd"), variable("out")],
        "cannot": [ToolCallPart("cannot_answer", {"reason": "there is no data"})],
        "never": [[cell(made)]] + [variable("odd")] * 10,
    }
    async with make(script, mode="full") as agent:
        events, result = await read(agent.run("go"))
    assert result.status == "completed"
    lines = root_text(events).splitlines()
    assert lines[0] == "(1, 1)"
    assert lines[1].startswith("failed there is no data it cannot give the answer")
    assert lines[2].startswith("failed ")
    assert "holds a module as an object" in lines[2]


async def test_a_pickle_of_a_childs_kernel_runs_in_no_other(make, tmp_path):
    evil = f"""
import numpy, pandas
class Evil(pandas.DataFrame):
    def __reduce__(self): return (open, ({str(tmp_path / "ran")!r}, "w"))
out = Evil({{"a": [1, 2]}})
"""
    ask = "import pandas as pd; print(type((await agent.task('evil', output=pd.DataFrame)).output) is pd.DataFrame)"
    script = {"go": [[cell(ask)], "done"], "evil": [[cell(evil)], variable("out")]}
    async with make(script, mode="full") as agent:
        events, _ = await read(agent.run("go"))
    assert root_text(events).strip() == "True"
    assert not (tmp_path / "ran").exists()
