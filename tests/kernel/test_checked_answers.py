"""`check=` and `verify`: answers are checked in a copy of the child's kernel before they are accepted."""

import asyncio
import sys
from dataclasses import dataclass

import pytest
from pydantic import BaseModel
from pydantic_ai.messages import ToolCallPart
from support.agents import cell, finished, hand_over, read, root_text

from freeact_sub import Agent, ChildRequest, Config
from freeact_sub.errors import InvalidRequestError
from freeact_sub.events import Decision
from freeact_sub.testing import ScriptedModel

pytestmark = pytest.mark.kernel
FULL = {"mode": "full"}


def make(tmp_path, script, **config):
    return Agent(Config(workspace=tmp_path, **{**FULL, **config}), model=ScriptedModel(script))


CELLS = """
r = agent.task("mends", description="mends", check="rows == 3\\nint(answer) == len(rows)")
print("mends", r.verified, repr(r.unverified), r.output, r.receipts.cells_run)
r = agent.task("lies", description="lies", check="seen = rows\\nassert answer == '3', 'count again'")
print("lies", r.status, r.verified, r.unverified)
for code in ("1 +", "", "x" * 30_000):
    try:
        agent.task("never", check=code)
    except ValueError as error:
        print(str(error)[:39])
from dataclasses import dataclass
@dataclass
class Total:
    n: int
    def verify(self):
        assert self.n == 6, "it is not the sum"
r = agent.task("total", description="total", output=Total)
print("total", r.output, r.verified)
r = agent.task("waits", description="waits", check="agent.ask('x')")
print("waits", "a check has no 'ask'" in r.unverified)
"""


async def test_code_of_a_parent_checks_in_a_copy_of_the_childs_kernel(tmp_path):
    script = {
        "root": [[cell(CELLS)], "done"],
        "mends": [[cell("rows = [1, 2, 3]")], "2", "3"],
        "lies": [[cell("rows = [1, 2, 3]")], "2", [cell("print('seen' in dir())")], "2 of course"],
        "total": [[hand_over({"n": 5}, wrapped=False)], [hand_over({"n": 6}, wrapped=False)]],
        "waits": ["yes", "yes"],
    }
    async with make(tmp_path, script) as agent:
        events, _ = await read(agent.run("root"))
    assert root_text(events).splitlines() == [
        "mends True '' 3 1",
        "lies completed False the check of the answer has failed again: AssertionError: count again",
        "check: it is not Python that can be run",
        "check: it is not Python that can be run",
        "check: it has more than 20,000 characte",
        "total Total(n=6) True",
        "waits True",
    ]
    ends = finished(events)
    assert ends["lies"].receipts.cells[-1].printed == "False", "what the check assigns, the child does not have"
    assert ends["lies"].doubts[0].startswith("unverified: the check of the answer has failed again: ")
    assert ends["mends"].usage.turns == 3


async def test_a_person_is_asked_about_the_check_of_a_model_and_about_what_it_does(tmp_path):
    look = """
r = agent.task("child", check="answer == 'ok'")
print(r.verified, r.unverified)
r = agent.task("child", check="import subprocess\\nsubprocess.run(['touch', 'made']).returncode == 0")
print(r.verified, r.unverified[-40:])
"""
    asked = []

    def rule(event):
        asked.append(event.call.kind + ": " + event.call.text.splitlines()[0])
        is_check = event.call.kind == "code" and event.call.text.startswith("answer ==")
        return Decision(allowed=not (is_check or event.call.kind == "shell"), reason="not this")

    async with make(tmp_path, {"root": [[cell(look)], "done"], "child": ["ok"] * 4}, mode="ask") as agent:
        events, _ = await read(agent.run("root"), rule)
    assert root_text(events).startswith("False its check could not run: ")
    assert "not this" in root_text(events)
    assert [text for text in asked if not text.startswith("spawn")][1:] == [
        "code: answer == 'ok'",
        "code: import subprocess",
        "shell: touch made",
        "code: import subprocess",
        "shell: touch made",
    ]
    assert not (tmp_path / "made").exists()


@dataclass
class Report:
    n: int

    def verify(self):
        return self.n == 6


class Strict(BaseModel):
    n: int

    async def verify(self):
        raise ValueError("never right")


def given(n):
    return ToolCallPart("final_result", {"n": n})


async def test_a_program_checks_by_functions_and_code_of_its_own(tmp_path):
    (tmp_path / "there.txt").touch()
    script = {
        "code": ["3"],
        "report": [[given(5)], [given(6)]],
        "strict": [[given(5)], [given(6)]],
        "root": [[given(5)], [given(6)]],
        "function": ["a", "b"],
        "async": ["a"],
        "limit": ["a"],
    }

    async def is_a(answer):
        assert answer == "a"

    async with make(tmp_path, script, mode="ask") as agent:
        results = {}
        for prompt, options in {
            "code": {"check": "import pathlib\npathlib.Path('there.txt').exists() and int(answer) == 3"},
            "report": {"output": Report},
            "strict": {"output": Strict},
            "function": {"check": lambda answer: answer == "c"},
            "async": {"check": is_a},
            "limit": {"check": lambda answer: answer == "c", "max_turns": 1},
        }.items():
            results[prompt] = await agent.task(prompt, **options)
        root = await agent.run("root", output=Report).result()
        with pytest.raises(InvalidRequestError, match="check: it is code or a function, not 3"):
            await agent.task("never", check=3)
    assert {prompt: (result.value, result.verified) for prompt, result in results.items()} == {
        "code": ("3", True),
        "report": (Report(6), True),
        "strict": (Strict(n=6), False),
        "function": ("b", False),
        "async": ("a", True),
        "limit": ("a", False),
    }
    assert (root.output, root.verified, root.receipts.nothing_was_run) == (Report(6), True, True)
    assert results["strict"].unverified == "the check of the answer has failed again: ValueError: never right"
    assert results["function"].unverified == "the check of the answer has failed again: it gave False"
    assert results["limit"].unverified == "the check of the answer has failed: it gave False"
    assert results["code"].files_read == (), "what a check reads, its child has not read"


async def test_a_check_that_hangs_has_not_run_and_ends_with_its_run(tmp_path):
    async def hangs(_):
        began.set()
        await asyncio.Event().wait()

    began = asyncio.Event()
    script = {"code": ["yes", "no"], "function": ["yes", "no"], "cancelled": ["yes", "no"]}
    async with make(tmp_path, script, kernel={"cell_timeout_seconds": 0.5}) as agent:
        results = [await agent.task("code", check="while True: pass"), await agent.task("function", check=hangs)]
        began.clear()
        child = await agent.spawn(ChildRequest(prompt="cancelled", check=hangs))
        await began.wait()
        child.cancel()
        results.append(await child.result())
    assert [(result.text, result.unverified) for result in results] == [
        ("yes", "its check could not run: it took too long"),
        ("yes", "its check could not run: it took too long"),
        ("yes", ""),
    ]
    assert results[-1].status == "cancelled"


class Unshowable:
    def __bool__(self):
        return False

    def __repr__(self):
        raise ValueError("no text")


def stops(_):
    raise StopIteration


async def test_whatever_a_function_does_is_a_verdict(tmp_path):
    checks = {"exits": lambda _: sys.exit(3), "stops": stops, "unshowable": lambda _: Unshowable()}
    async with make(tmp_path, {name: ["a", "b"] for name in checks}) as agent:
        results = {name: await agent.task(name, check=check) for name, check in checks.items()}
    assert {
        name: (result.status, result.text, result.unverified.split("again: ")[-1]) for name, result in results.items()
    } == {
        "exits": ("completed", "b", "SystemExit: 3"),
        "stops": ("completed", "b", "StopIteration:"),
        "unshowable": ("completed", "b", "ValueError: no text"),
    }


async def test_a_check_asks_as_much_as_the_kernel_in_which_it_runs(tmp_path):
    """A kernel that was kept from mode `ask` has no wall, on which `auto` relies."""
    outside = tmp_path / "outside"
    check = f"import subprocess\nsubprocess.run(['touch', {str(outside)!r}]).returncode == 0"
    again = f"print(agent.task('more', resume=kept, check={check!r}).unverified)"
    script = {
        "root": [[cell("kept = agent.task('child', keep=True).agent_id")], "done", [cell(again)], "done"],
        "child": [[cell("x = 1")], "ok"],
        "more": ["ok", "ok"],
    }
    asked = []

    def rule(event):
        asked.append(event.call.kind)
        return Decision(allowed=event.call.kind != "shell")

    (tmp_path / "w").mkdir()
    async with make(tmp_path / "w", script, mode="ask") as agent:
        await read(agent.run("root"), rule)
        agent.mode = "auto"
        asked.clear()
        events, _ = await read(agent.run("root"), rule)
    assert "shell" in asked, root_text(events)
    assert not outside.exists(), root_text(events)
