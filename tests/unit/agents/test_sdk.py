"""The names that the package promises, and its way in without `async`."""

import ast
import asyncio
import inspect
import subprocess
import sys
import tomllib
import typing
from importlib import import_module
from pathlib import Path

import pytest

import freeact_sub
from freeact_sub import FreeactError

OPENAI_AGENT = """
from freeact_sub import Agent, Config
Agent(Config(model="openai-chat:any", base_url="http://localhost:1/v1"))
"""


def test_every_promised_name_is_there_and_is_the_one_of_its_module():
    names = freeact_sub.__all__
    assert sorted(names) == names == dir(freeact_sub)
    stub = ast.parse(Path(freeact_sub.__file__).with_suffix(".pyi").read_text())
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    for name, home in [(name.name, node.module) for node in imports for name in node.names if name.name != "*"]:
        assert name in names
        assert getattr(freeact_sub, name) is getattr(import_module(home), name)
    assert [node.module for node in imports if node.names[0].name == "*"] == ["freeact_sub.events"]
    assert all(getattr(freeact_sub, name) is not None for name in names)


def test_type_checkers_know_the_names_of_events_by_the_star_of_the_stub():
    """A star in a stub takes what the module defines, and what it imports with `as`."""
    from freeact_sub import events

    seen = set()
    for node in ast.parse(inspect.getsource(events)).body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                seen.add(name)
            case ast.ImportFrom(names=names):
                seen |= {name.asname for name in names if name.asname}
    assert {name for name in seen if not name.startswith("_")} == set(dir(events))


def test_all_events_and_all_errors_are_among_them():
    from freeact_sub import errors, events

    every_event = {kind.__name__ for kind in typing.get_args(events.Event)}
    every_error = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert every_event | every_error <= set(freeact_sub.__all__)


def test_the_fakes_export_exactly_their_definitions():
    from freeact_sub import testing

    own = {name for name, value in vars(testing).items() if getattr(value, "__module__", "") == testing.__name__}
    assert own - {"__annotate__"} <= set(testing.__all__)  # Python 3.14 makes it
    assert all(hasattr(testing, name) for name in testing.__all__)


@pytest.mark.parametrize("name", ["run", "run_program"])
def test_a_signature_can_be_read_in_help(name):
    assert "budget: freeact_sub.config.budget.Budget = Budget()" in str(inspect.signature(getattr(freeact_sub.Agent, name)))
    assert repr(freeact_sub.Budget(turns=3)) == "Budget(turns=3)"


def test_agent_is_one_class_and_help_has_each_of_its_methods():
    agent = freeact_sub.Agent
    assert agent.__bases__ == (typing.Generic,)
    members = {name: member for name, member in vars(agent).items() if not name.startswith("_")}
    assert {"run", "ask", "put", "get", "undo", "undoable", "compact"} <= set(members)
    assert all((inspect.getdoc(member) or "See").split()[0] != "See" for member in members.values())
    assert str(inspect.signature(agent.get)).startswith("(self, name: str, *, output: Any = None, trust: bool = False)")


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(freeact_sub, "Agnet")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import freeact_sub", ("pydantic", "zmq", "rich", "pydantic_ai", "asyncio")),
        (
            "from freeact_sub import Agent",
            (
                "anthropic",
                "genai_prices.data",
                "IPython",
                "ipykernel",
                "jsonschema",
                "jupyter_client",
                "mcp",
                "openai",
                "prompt_toolkit",
                "rich",
                "yaml",
                "zmq",
                "freeact_sub.features.sessions.forking",
                "freeact_sub.kernels.wall.sandbox",
                "freeact_sub.mcp.servers",
            ),
        ),
        (
            OPENAI_AGENT,
            ("anthropic",),
        ),
    ],
)
def test_an_import_imports_nothing_heavy_that_it_does_not_need(code, heavy):
    code = f"{code}\nimport gc, sys; print([name for name in {heavy} if name in sys.modules], gc.isenabled())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout.strip() == "[] True"


def test_the_version_is_the_one_of_the_project():
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))
    assert freeact_sub.__version__ == project["project"]["version"]


def test_statuses_are_the_ones_that_the_design_names():
    from freeact_sub.events.ending import RunStatus

    assert set(typing.get_args(RunStatus)) == {
        "completed",
        "failed",
        "timeout",
        "limit",
        "cancelled",
        "rejected",
        "kernel_lost",
    }


async def test_run_sync_refuses_an_agent_that_is_open(make):
    async with make(["done"]) as agent:
        with pytest.raises(FreeactError, match="this agent is already open: use `agent.run`"):
            await asyncio.to_thread(agent.run_sync, "go")
        assert (await agent.run("go").result()).output == "done"
