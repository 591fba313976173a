"""The notebook and its agents run in different kernels: a name that exists in both is told, and no value crosses."""

import pytest
from notebook_kernel import notebook_kernel
from support.chat_server import ChatCall, ChatServer, by_turn
from support.tables import each

from freeact_sub.kernels.variable_reports import About
from freeact_sub.notebook.user_names import NOTE_BYTES, about_copied, names_in

NAMES = {
    "df.groupby('b').a.sum()": {"df"},
    "df = read('x.csv')": {"df", "read"},
    "await work(df)\nx = [row for row in data]": {"work", "df", "x", "data"},
    "{k: v for k, v in pairs if k}, {s for s in [w for w in words]}": {"pairs", "words"},
    "total = sum(n * k for n in numbers)": {"total", "sum", "k", "numbers"},
    "def f(a):\n    b = 1\n    return a + b + y": {"f", "y"},
    "class A:\n    size = df2": {"A", "df2"},
    "key = lambda t: t + u": {"key", "u"},
    "import pandas as pd\nfrom a.b import c": {"pd", "c"},
    "for i in range(3):\n    print(i)": {"i", "range", "print"},
    "del df": {"df"},
    "text = '''\nnot a_name\n'''": {"text"},
    "if (n := len(rows)) > 1:\n    pass": {"n", "len", "rows"},
    "this is no code": set(),
    "": set(),
}


@each("code", NAMES)
def test_the_variables_of_a_cell(code):
    assert names_in(code) == NAMES[code]


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("%timeit -n 3 f(df)", {"df"}),
        ("!ls {folder}", {"folder"}),
        ("%%time\nx = df.size", {"df", "x"}),
        ("y = !ls $d", {"y"}),
    ],
)
def test_the_variables_of_magics_and_commands(code, names):
    assert names_in(code) >= names


MINE = """
%load_ext freeact_sub.notebook
import json, math as mathematics
from pathlib import Path
secret_value = "do not pass on"
df = [5, 5, 5]
def helper(): pass
_hidden = 1
"""


@pytest.mark.kernel
async def test_a_name_in_both_is_told_to_the_person_and_to_the_model(tmp_path):
    script = by_turn(
        [ChatCall("execute_ipython_cell", {"code": "df = [1, 2]\nprint(sum(df))"})],
        [ChatCall("execute_ipython_cell", {"code": "print(max(df)); other = 1; secret_value = 2"})],
        ["3"],
        ["again"],
        ["none"],
    )
    async with ChatServer(script) as server, notebook_kernel(tmp_path) as notebook:
        await notebook.run(MINE)
        options = f"--model openai-chat:local --base-url {server.base_url} --yes --sandbox off --here"
        first = await notebook.run(f"%%agent {options}\nSum df.")
        second = await notebook.run("%%agent\nAnd the mean?")
        await notebook.run("del df, helper, secret_value, json, mathematics, Path")
        third = await notebook.run("%%agent\nWhat now?")
        await notebook.run("%agent_close")
        prompts = [
            [message["content"] for message in request["messages"] if message["role"] == "user"]
            for request in (server.requests[0], server.requests[-1])
        ]
    assert "The agent does not see the variables of your notebook: `df`." in first.html
    assert first.html.count("own `df`: your notebook has a variable of that name too") == 1
    assert first.html.count("own `secret_value`: your notebook has a variable of that name too") == 1
    assert first.html.index("does not see") < first.html.index("own `df`") < first.html.index("print")
    assert "your notebook" not in second.html
    assert "your notebook" not in third.html
    (said,) = prompts[0]
    assert said.startswith("Sum df.\n\n[The user's notebook runs in another kernel than yours.")
    assert "which you do not see: `df`, `helper`, `secret_value`." in said
    assert "The prompt contains these names: `df`." in said
    assert "The prompt contains" not in prompts[1][1]
    assert prompts[1][2] == "What now?"
    assert "do not pass on" not in str(server.requests)


@pytest.mark.kernel
async def test_children_are_told_of_too_and_runs_that_a_person_made(tmp_path):
    setup = (
        MINE
        + """
from freeact_sub import Agent, Config
from freeact_sub.testing import ScriptedModel
from pydantic_ai.messages import ToolCallPart
def cell(code): return ToolCallPart("execute_ipython_cell", {"code": code})
script = {"go": [[ToolCallPart("task", {"prompt": "count"})], "done"], "count": [[cell("df = 1")], "counted"]}
counter = await Agent(Config(mode="full"), model=ScriptedModel(script)).open()
"""
    )
    async with notebook_kernel(tmp_path) as notebook:
        await notebook.run(setup)
        page = await notebook.run("outcome = await display_run(counter.run('go'))\nawait counter.aclose()")
        read = await notebook.run("print(counter.history[0].parts[0].content)")
    assert "own `df`: your notebook has a variable of that name too" in page.html
    assert read.text.startswith("go\n\n[The user's notebook runs in another kernel than yours.")
    assert "`counter`" not in read.text
    assert "`script`" in read.text


def test_what_a_model_reads_of_variables_is_short_and_begins_with_those_that_the_prompt_names():
    many = {f"v{number}": About(kind="int", text="1") for number in range(1000)}
    table = About(kind="pandas.DataFrame", shape="3 x 2", columns=("a", "b"))
    variables = {
        "df": table,
        "db_password": About(kind="str", text="'x'"),
        "np": About(kind="module", text="numpy", imported=True),
        **many,
    }
    said = about_copied("Use $df and v7.", variables)
    assert len(said.encode()) <= NOTE_BYTES
    lines = said.split("\n")[1:]
    assert lines[:3] == ["- v7: int = 1", "- df: pandas.DataFrame, 3 x 2, columns a, b", "- v999: int = 1"]
    assert lines[-1] == f"and {1001 - len(lines[:-1])} more]"
    assert "password" not in said
    assert "np" not in said
    assert about_copied("Hello", {"api_key": About(kind="str", text="'x'")}) == ""
