"""Walks through one state of the package: `python -P walk.py PART FILE [ARGUMENTS]`, with the package on PYTHONPATH.

`benchmarks.house` runs it. It writes to FILE, as JSON, what it has seen. It imports nothing of `benchmarks`.

`child`: the files of the package that run from a root's prompt to the first output of its child's first cell, on fake
kernels. `line`: runs the command line with ARGUMENTS, and notes the files that run because a cell has printed a line, from
the socket to the screen: those of the half second after it that did not run in the two seconds before, without output. The
cell writes when it printed, as `time.monotonic()`, into the file that the variable WALK_CLOCK names. `overrides`: private
methods and attributes of other libraries' classes that the package's own classes define again. `prompt`: the characters of
what a model with the default settings reads before its first prompt.
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
from pathlib import Path
from types import FrameType
from typing import Any, Final

import freeact_sub

PACKAGE: Final = str(Path(freeact_sub.__file__).parent) + "/"
WINDOW_SECONDS: Final = 0.5
"""After a line was printed: for so long what runs belongs to it."""
IDLE_SECONDS: Final = 2.0
"""Before it: what runs in this time, such as the drawing of the status each second, runs without a line as well."""

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
    """Notes when each file of the package was entered. Used as a profile function in all threads."""

    def __init__(self) -> None:
        self.entered: list[tuple[float, str]] = []
        self.functions: set[tuple[str, str]] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """See `sys.setprofile`."""
        if event == "call" and (name := frame.f_code.co_filename).startswith(PACKAGE):
            self.entered.append((time.monotonic(), name.removeprefix(PACKAGE)))
            self.functions.add((name, frame.f_code.co_qualname))

    def start(self) -> None:
        """From here on."""
        self.entered.clear()
        threading.setprofile(self)
        sys.setprofile(self)

    def stop(self) -> None:
        """Up to here."""
        sys.setprofile(None)
        threading.setprofile(None)

    def files(self, *, since: float = 0.0, until: float = float("inf")) -> list[str]:
        """The files that were entered in that time."""
        return sorted({name for moment, name in self.entered if since <= moment <= until})


async def child() -> dict[str, Any]:
    """A root whose cell starts a child, which runs a cell that prints."""
    from pydantic_ai.messages import ToolCallPart, UserPromptPart  # noqa: PLC0415  # after the package, as a program does

    from freeact_sub import Agent, Config  # noqa: PLC0415
    from freeact_sub.testing import FakeKernelProvider, ScriptedModel  # noqa: PLC0415

    def script(messages: Any, _: Any) -> Any:
        prompts = [str(part.content) for message in messages for part in message.parts if isinstance(part, UserPromptPart)]
        if len(messages) > 1:
            return "done"
        if "again" in prompts[0]:
            return ToolCallPart("task", {"prompt": "print"})
        return ToolCallPart("execute_ipython_cell", {"code": "print(1)"})

    watch = Watch()
    with tempfile.TemporaryDirectory(prefix="fa-walk-") as folder:
        config = Config(workspace=Path(folder), mode="full")
        async with Agent(config, model=ScriptedModel(script), kernel_provider=FakeKernelProvider()) as agent:
            root = ""
            for number in range(2):  # the first run imports what is imported when it is used
                agent.history.clear()
                watch.start()
                async for event in agent.stream("again"):
                    root = root or event.agent_id
                    if type(event).__name__ == "CodeExecutionOutputChunk" and event.agent_id != root and number:
                        watch.stop()
                watch.stop()
    return {"files": watch.files(), "functions": len(watch.functions)}


def line(arguments: list[str]) -> dict[str, Any]:
    """The command line in this terminal."""
    from freeact_sub.cli import main  # noqa: PLC0415

    watch = Watch()
    watch.start()
    with suppress(SystemExit):
        main(arguments)
    watch.stop()
    moment = float(Path(os.environ["WALK_CLOCK"]).read_text(encoding="ascii"))
    idle = watch.files(since=moment - IDLE_SECONDS, until=moment)
    return {"files": sorted({*watch.files(since=moment, until=moment + WINDOW_SECONDS)} - {*idle})}


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
        "child": lambda: asyncio.run(child()),
        "line": lambda: line(rest),
        "overrides": overrides,
        "prompt": lambda: asyncio.run(prompt()),
    }
    Path(result).write_text(json.dumps(walks[part]()), encoding="utf-8")
