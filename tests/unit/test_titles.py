"""Titles: the model's words in one safe line, else the first line that tells what the code does."""

import pytest
from support.sample_events import request
from support.tables import each

from freeact_sub.agents.feature import RequestedCall
from freeact_sub.calls import CodeAction, ShellCommand
from freeact_sub.events import ToolCallStarted
from freeact_sub.show.heads import Head, head_of, head_of_call, head_of_tool
from freeact_sub.text import TITLE_CHARS, code_title, prompt_title
from freeact_sub.tools.execute import ExecuteArguments, ExecuteIPythonCell

CODE = {
    "a statement after imports": (
        "import os\nfrom csv import reader\n\nrows = [*reader(open('a'))]\nrows",
        "rows = [*reader(open('a'))]",
    ),
    "an import of several lines": ("from x import (\n    a,\n    b,  # )\n)\na(b)", "a(b)"),
    "an import that goes on": ("from x import a, \\\n    b\na(b)", "a(b)"),
    "behind an import": ("import time; time.sleep(3)", "time.sleep(3)"),
    "imports alone": ("import os\nimport sys", "import os"),
    "a comment": ("\n# count the rows\nlen(rows)", "count the rows"),
    "a comment below imports": ("import os\n## Count the rows ##\nlen(rows)", "Count the rows"),
    "a line drawn with signs": ("# ------\n# Load\n# ------\nx", "Load"),
    "a marked cell": ("# %% Load the data\nx", "Load the data"),
    "comments for programs": ("#!/usr/bin/python\n# -*- coding: utf-8 -*-\n# noqa: E501\n# In[3]:\nx = 1", "x = 1"),
    "a docstring": ('"""Count the rows."""\nlen(rows)', "Count the rows."),
    "a statement of several lines": ("total = add(\n    1,\n    2,\n)", "total = add(1, 2,)"),
    "a decorated function": ("@cache\ndef area(r):\n    return r", "def area(r):"),
    "what may fail": ("try:\n    import torch\nexcept ImportError:\n    torch = None", "torch = None"),
    "a name like a keyword": ("important = 1", "important = 1"),
    "a script": ("%%bash\nset -euo pipefail\ncd /tmp\n\ngit log | head\nls", "git log | head"),
    "a script by its path": ("%%script /bin/bash\nmake all", "make all"),
    "a script of preparations": ("%%bash\ncd /tmp", "cd /tmp"),
    "a timed cell": ("%%time\nimport os\nos.listdir()", "os.listdir()"),
    "a written file": ("%%writefile a.py\nx = 1", "%%writefile a.py"),
    "settings of the notebook": ("%matplotlib inline\nplot(x)", "plot(x)"),
    "a command": ("!git log", "!git log"),
    "nothing": ("\n  \n", ""),
}


@each(("code", "title"), CODE.values(), ids=CODE)
def test_code_without_a_title_is_named_by_the_first_line_that_tells_what_it_does(code, title):
    assert code_title(code) == title
    assert CodeAction(code=code).title == title
    started = ToolCallStarted(tool_name="execute_ipython_cell", args={"code": code})
    assert head_of_tool(started) == head_of_call(CodeAction(code=code))
    assert head_of_tool(started).words == (title if "\n" in code.strip("\n") else code.strip())


def test_the_models_title_counts_before_its_code_and_the_code_stands_below():
    call = CodeAction(code="# a comment\nx = 1", description="Set x")
    assert head_of_call(call) == Head(kind="Python", words="Set x", code=call.code, is_title=True)
    assert head_of_call(CodeAction(code="x = 1", description="Set x")).code == "x = 1"
    assert head_of_call(CodeAction(code="x = 1")) == Head(kind="Python", words="x = 1")
    assert head_of_call(CodeAction(code="x = 1\nx")) == Head(kind="Python", words="x = 1", code="x"), "each line once"
    assert head_of_call(CodeAction(code="# set x\nx = 1\nx")).code == "x = 1\nx", "the comment is the title"
    assert head_of_call(CodeAction(code="import os\nx = 1\nx")).code == "import os\nx = 1\nx"


@each(
    "hostile",
    ["Read\nApprove? y", "Read \x1b[2K\x1b[1Athe \x07file", "\u202eread", "\x9b31mred\u2028line", "a" * 5_000, "\x00"],
)
def test_a_title_is_one_bounded_line_without_controls_and_never_costs_a_try(hostile):
    arguments = ExecuteArguments.model_validate({"code": "x = 1", "description": hostile})
    call = ExecuteIPythonCell().call(arguments)
    for title in (call.description, call.title, CodeAction(code="x", description=hostile).title, code_title(f"# {hostile}")):
        assert len(title) <= TITLE_CHARS
        assert title.isprintable(), "one line, and no control character"
    assert RequestedCall(agent=None, by="model", name="c", args={}, call=call, tool_call_id=None).label == call.description


@pytest.mark.parametrize("given", [None, 3, ["a"]])
def test_a_title_that_is_no_text_is_none(given):
    assert ExecuteArguments.model_validate({"code": "x", "description": given}).description == ""


def test_nobody_approves_by_a_title():
    call = CodeAction(code="import os\nos.remove('a')", description="Read the file")
    assert "Read" not in call.text + call.summary + call.subject
    assert call.text == call.code
    assert call.question == "asks to run this cell (Read the file)"
    assert head_of(request("r", call)) == "Python  os.remove('a')"


def test_a_script_in_a_command_is_named_by_its_first_command_and_a_child_by_its_prompt():
    assert head_of_call(ShellCommand(command="set -e\ncd x\nmake all")).words == "make all"
    assert head_of_call(ShellCommand(command="cd x && make all")).words == "cd x && make all"
    assert prompt_title("\n## Count the rows\nof a.csv") == "Count the rows"
    assert prompt_title("---\n") == ""
