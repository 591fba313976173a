"""Walks through one state of the package: `python -P walk.py PART FILE [ARGUMENTS]`, with the package on PYTHONPATH.

`benchmarks.house` runs it. It writes to FILE, as JSON, what it has seen. It imports nothing of `benchmarks`.

`cell`: the files, classes and functions of the package that run while an agent runs a cell which a person approves, on a
fake kernel, and how often the way goes from one file to another. `child`: the same, from a root's prompt to the first output
of its child's first cell, with real kernels and a session. Both are walked twice, and the second walk counts: the first
imports modules. `line`: runs the command line with ARGUMENTS, and notes the files that run in the half second after a cell
has printed a line, from the socket to the screen. The cell writes when it printed, as `time.monotonic()`, into the file that
the variable WALK_CLOCK names. Nothing is subtracted from these three. `overrides`: private methods and attributes of other
libraries' classes that the package's own classes define again. `prompt`: the characters that a model with the default
settings reads before its first prompt.
"""

import asyncio
import importlib
import json
import os
import pkgutil
import sys
import tempfile
import threading
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, Final

import freeact_sub

PACKAGE: Final = str(Path(freeact_sub.__file__).parent) + "/"
WINDOW_SECONDS: Final = 0.5
"""After a line was printed: for so long what runs belongs to it."""
GENERATED: Final = frozenset(
    [
        "_abc_impl",
        "_is_protocol",
        "_is_runtime_protocol",
        "_traits",
        "_descriptors",
        "_instance_inits",
        "_trait_default_generators",
        "_all_trait_default_generators",
        "_static_immutable_initial_values",
    ]
)
"""Names that abc, typing and traitlets put into each class."""


class Watch:
    """Notes each function of the package that is entered. Used as a profile function in all threads."""

    def __init__(self) -> None:
        self.entered: list[tuple[float, str, str]] = []
        """Time, file and qualified name."""

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call. See `sys.setprofile`."""
        if event == "call" and (name := frame.f_code.co_filename).startswith(PACKAGE):
            self.entered.append((time.monotonic(), name.removeprefix(PACKAGE), frame.f_code.co_qualname))

    def start(self) -> None:
        """Begin anew."""
        self.entered.clear()
        threading.setprofile(self)
        sys.setprofile(self)

    def stop(self) -> None:
        """End."""
        sys.setprofile(None)
        threading.setprofile(None)

    def counts(self) -> dict[str, int]:
        """The numbers of files, classes and functions on the way, and of moves from one file to another."""
        files = [file for _, file, _ in self.entered]
        functions = {(file, name) for _, file, name in self.entered}
        methods = {(file, name.split(".<locals>")[0]) for file, name in functions}
        return {
            "files": len({*files}),
            "classes": len({(file, name.rpartition(".")[0]) for file, name in methods if "." in name}),
            "functions": len(functions),
            "moves": sum(one != other for one, other in pairwise(files)),
        }


def script(messages: Any, _: Any) -> Any:
    """A model that starts a child if its prompt says so, runs one cell, and is done."""
    from pydantic_ai.messages import ToolCallPart, UserPromptPart  # noqa: PLC0415  # after the package, as a program does

    if any(type(part).__name__ == "ToolReturnPart" for part in messages[-1].parts):
        return "done"
    asked = [str(part.content) for message in messages for part in message.parts if isinstance(part, UserPromptPart)][-1]
    if "start a child" in asked:
        return ToolCallPart("task", {"prompt": "work"})
    return ToolCallPart("execute_ipython_cell", {"code": "print(1)"})


async def cell() -> dict[str, Any]:
    """An agent that runs a cell which a person approves."""
    from freeact_sub import Agent, ApprovalRequest, Config  # noqa: PLC0415
    from freeact_sub.testing import FakeKernelProvider, ScriptedModel  # noqa: PLC0415

    watch = Watch()
    with tempfile.TemporaryDirectory(prefix="fa-walk-") as folder:
        config = Config(workspace=Path(folder), mode="ask")
        async with Agent(config, model=ScriptedModel(script), kernel_provider=FakeKernelProvider()) as agent:
            for _ in range(2):
                agent.history.clear()
                watch.start()
                async with agent.run("work") as run:
                    async for event in run:
                        if isinstance(event, ApprovalRequest):
                            event.approve()
                watch.stop()
    return watch.counts()


async def child() -> dict[str, Any]:
    """A root that starts a child, which runs a cell that prints."""
    from freeact_sub import Agent, Config  # noqa: PLC0415
    from freeact_sub.testing import ScriptedModel  # noqa: PLC0415

    watch = Watch()
    with tempfile.TemporaryDirectory(prefix="fa-walk-") as folder:
        config = Config(workspace=Path(folder), mode="full")
        async with Agent(config, model=ScriptedModel(script), session="new") as agent:
            for _ in range(2):
                root = ""
                watch.start()
                async with agent.run("start a child") as run:
                    async for event in run:
                        root = root or event.agent_id
                        if type(event).__name__ == "CodeExecutionOutputChunk" and event.agent_id != root:
                            watch.stop()
                watch.stop()
    return watch.counts()


def line(arguments: list[str]) -> dict[str, Any]:
    """The command line in this terminal."""
    from freeact_sub.cli import main  # noqa: PLC0415

    watch = Watch()
    watch.start()
    with suppress(SystemExit):
        main(arguments)
    watch.stop()
    moment = float(Path(os.environ["WALK_CLOCK"]).read_text(encoding="ascii"))
    files = {file for entered, file, _ in watch.entered if moment <= entered <= moment + WINDOW_SECONDS}
    return {"files": sorted(files)}


async def prompt() -> dict[str, Any]:
    """What stands in front of a prompt, and of it the description of the tool `task` with those of its arguments."""
    from freeact_sub import Agent, Config  # noqa: PLC0415
    from freeact_sub.testing import FakeKernelProvider, ScriptedModel  # noqa: PLC0415

    seen: list[Any] = []

    def script(messages: Any, info: Any) -> str:
        seen.append((info.instructions or messages[0].instructions, info.function_tools))
        return "done"

    with tempfile.TemporaryDirectory(prefix="fa-walk-") as folder:
        config = Config(workspace=Path(folder))
        async with Agent(config, model=ScriptedModel(script), kernel_provider=FakeKernelProvider()) as agent:
            async for _ in agent.stream("go"):
                pass
    instructions, tools = seen[0]
    sent = [{"name": tool.name, "description": tool.description, "schema": tool.parameters_json_schema} for tool in tools]
    task = next(tool for tool in tools if tool.name == "task")
    told = [task.description, *(item["description"] for item in task.parameters_json_schema["properties"].values())]
    return {"system prompt": len(instructions), "tools": len(json.dumps(sent)), "task": sum(map(len, told))}


def overrides() -> dict[str, Any]:
    """By class: its private names that a class of another library, which it extends, has too."""
    found: dict[str, list[str]] = {}
    for info in pkgutil.walk_packages(freeact_sub.__path__, "freeact_sub."):
        if info.name.endswith("__main__"):
            continue
        with suppress(Exception):  # an extra that is not installed
            module = importlib.import_module(info.name)
            for made in vars(module).values():
                if isinstance(made, type) and made.__module__ == info.name and (names := _overridden(made)):
                    found[f"{info.name}.{made.__qualname__}"] = names
    return {"overrides": found}


def _overridden(made: type) -> list[str]:
    foreign = [base for base in made.__mro__ if not base.__module__.startswith(("freeact_sub", "builtins", "typing", "abc"))]
    own = [name for name in vars(made) if name.startswith("_") and not name.startswith("__")]
    return [name for name in own if name not in GENERATED and any(name in vars(base) for base in foreign)]


if __name__ == "__main__":
    part, result, *rest = sys.argv[1:]
    walks = {
        "cell": lambda: asyncio.run(cell()),
        "child": lambda: asyncio.run(child()),
        "line": lambda: line(rest),
        "overrides": overrides,
        "prompt": lambda: asyncio.run(prompt()),
    }
    Path(result).write_text(json.dumps(walks[part]()), encoding="utf-8")
