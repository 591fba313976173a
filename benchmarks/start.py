"""What starting costs: imports, `--help`, the prompt of a conversation, and its first request to a model.

Each start is a process of its own, and all take turns. Counted is the processor time of that process, of all its threads;
wall-clock time stands beside it. Byte code is compiled before, as it is in an installed package. The last row is the size on
the disk, byte code included, without extras.
"""

import compileall
import json
import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import freeact_sub
from benchmarks.common import Goal, OtherLoad, Row, Series, clean_environment, clock, cpu_ms, main, report, serving

PROGRAM: Final = str(Path(sys.executable).with_name("freeact-sub"))
IMPORTS: Final = ("import pydantic_ai", "import freeact_sub", "from freeact_sub import Agent")
STAGES: Final = {
    "Python": "pass",
    "the command line": "import freeact_sub.cli",
    "pydantic": "import pydantic; pydantic.BaseModel, pydantic.TypeAdapter",
    "settings": "import freeact_sub.config.load, freeact_sub.config.trust",
    "asyncio, rich, prompt_toolkit": "import asyncio, rich.console, prompt_toolkit",
    "the conversation; here the prompt is shown": "import freeact_sub.terminal.conversation",
    "pydantic_ai": "import pydantic_ai",
    "zmq, jupyter_client": "import zmq.asyncio, jupyter_client",
    "`freeact_sub.agents`": "import freeact_sub.agents",
    "openai": "import openai",
    "pydantic_ai's model and provider for it": "import pydantic_ai.models.openai, pydantic_ai.providers.openai",
}
"""What the program imports up to a first request, in this order in one process, as it does it."""
STAGES_CODE: Final = """
import gc, json, sys, time
gc.disable()
stages, found, began = json.loads(sys.argv[1]), {}, 0
for name, code in stages.items():
    exec(code)
    now = time.process_time()
    found[name], began = ((now - began) * 1000, len(sys.modules)), now
print(json.dumps(found))
"""
BARE: Final = """
import sys
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
Agent(OpenAIChatModel("measured", provider=OpenAIProvider(base_url=sys.argv[1], api_key="none"))).run_sync("hi")
"""
"""A program of pydantic-ai alone that sends a prompt by the same class of model."""
CALLS: Final = {"--help": 0, "--version": 0, "--modle x": 2}
"""Options by exit status."""
AGAINST: Final = IMPORTS[0]
REQUEST: Final = "first request"
BARE_REQUEST: Final = "first request of a bare program"
GOALS: Final = {
    "from freeact_sub import Agent": Goal(of="of pydantic_ai", at_most=1.35),
    "prompt": Goal(of="wall ms", at_most=300),
    REQUEST: Goal(of="of a bare program", at_most=1.25),
}
LIMIT_SECONDS: Final = 60
PROMPT: Final = b"starting"
"""The line below the prompt says so; both are drawn at once."""


def run(*, small: bool = False) -> dict[str, Any]:
    """All starts; small: once."""
    compileall.compile_dir(Path(freeact_sub.__file__).parent, quiet=1)
    load, series, modules = OtherLoad(), Series(), {}
    for number in range(1 if small else 6):
        times: dict[str, tuple[float, float]] = {}
        for code in IMPORTS:
            *times[code], modules[code] = import_time(code, clean_environment())
        times |= {name: _call(name.split(), status) for name, status in CALLS.items()}
        stages = _stages()
        times |= conversation([PROGRAM], clean_environment(), shown=PROMPT)
        times[BARE_REQUEST] = _bare_request(clean_environment())
        if small or number:  # the first round warms the file cache
            for name, (cpu, wall) in times.items():
                series.add(name, "CPU ms", cpu)
                series.add(name, "wall ms", wall)
            for name, (cpu, modules[f"stage: {name}"]) in stages.items():
                series.add(f"stage: {name}", "CPU ms", cpu)
    rows = [row for name in series.values if (row := series.row(name, "", *([GOALS[name]] if name in GOALS else [])))]
    of_figure = {row.figure: row for row in rows}
    reference, request = of_figure[AGAINST].values["CPU ms"], of_figure[REQUEST].values
    request["of a bare program"] = (request["CPU ms"] or 0) / (of_figure[BARE_REQUEST].values["CPU ms"] or 1)
    for row in rows:
        row.values["of pydantic_ai"] = (row.values["CPU ms"] or 0) / (reference or 1)
        row.values["modules"] = modules.get(row.figure)
    rows.append(Row(figure="installed, with byte code", unit="MB", values={**_installed()}))
    return report("start", rows, load)


def _installed() -> dict[str, float]:
    """MB (10^6 bytes) on the disk: of the package, of the package with all that it needs, of pydantic-ai with all that."""
    package = Path(freeact_sub.__file__).parent
    own = sum(path.stat().st_size for path in package.rglob("*") if path.is_file())
    needed = {name: _needed(name) for name in ("freeact-sub", "pydantic-ai-slim")}
    sizes = {name: sum(map(_size, found - {"freeact-sub"})) for name, found in needed.items()}
    return {
        "package": own / 1e6,
        "with dependencies": (own + sizes["freeact-sub"]) / 1e6,
        "pydantic-ai-slim": sizes["pydantic-ai-slim"] / 1e6,
    }


def _needed(name: str) -> set[str]:
    """A distribution and those that it needs, as they are installed. Args: name: with extras, as in a requirement."""
    seen: set[tuple[str, str]] = set()
    waiting = [Requirement(name)]
    while waiting:
        requirement = waiting.pop()
        with suppress(PackageNotFoundError):
            for extra in {"", *requirement.extras}:
                if (key := (canonicalize_name(requirement.name), extra)) not in seen:
                    needs = [Requirement(text) for text in distribution(requirement.name).requires or ()]
                    seen.add(key)
                    waiting += [each for each in needs if each.marker is None or each.marker.evaluate({"extra": extra})]
    return {found for found, _ in seen}


def _size(name: str) -> int:
    """Bytes of an installed distribution, its byte code included."""
    files = {Path(str(file.locate())) for file in distribution(name).files or ()}
    files |= {Path(cache_from_source(str(file))) for file in files if file.suffix == ".py"}
    return sum(file.stat().st_size for file in files if file.is_file())


def import_time(code: str, environment: dict[str, str]) -> tuple[float, float, int]:
    """CPU and wall-clock time in ms, and how many modules there are then."""
    count = "import sys; print(len(sys.modules))"
    process = subprocess.Popen([sys.executable, "-P", "-c", f"{code}\n{count}"], stdout=subprocess.PIPE, env=environment)
    cpu, wall, status, output = _measure(process)
    assert status == 0
    return cpu, wall, int(output)


def _stages() -> dict[str, tuple[float, int]]:
    """CPU time in ms of each, and how many modules there are then."""
    command = [sys.executable, "-P", "-c", STAGES_CODE, json.dumps(STAGES)]
    done = subprocess.run(
        command, env=clean_environment(), stdout=subprocess.PIPE, text=True, check=True, timeout=LIMIT_SECONDS
    )
    found: dict[str, tuple[float, int]] = json.loads(done.stdout)
    return found


def _call(options: list[str], expected: int) -> tuple[float, float]:
    process = subprocess.Popen(
        [PROGRAM, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        env=clean_environment(),
    )
    cpu, wall, status, _ = _measure(process)
    assert status == expected
    return cpu, wall


def _measure(process: subprocess.Popen[bytes]) -> tuple[float, float, int, bytes]:
    """Wait for the end: CPU and wall-clock time in ms, exit status, output."""
    began = clock()
    with process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        wall = (clock() - began) * 1000
        process.returncode = os.waitstatus_to_exitcode(status)
    return (used.ru_utime + used.ru_stime) * 1000, wall, process.returncode, output


def conversation(program: list[str], environment: dict[str, str], *, shown: bytes) -> dict[str, tuple[float, float]]:
    """A conversation in a terminal, of which the first prompt is sent as soon as the input line is there.

    Args:
        program: The command, without options.
        environment: Its environment.
        shown: What the terminal has received when the input line is there.

    Returns:
        CPU and wall-clock time in ms, up to the prompt and up to the first request.
    """
    with tempfile.TemporaryDirectory() as folder, _model() as (base_url, requested):
        options = ["--workspace", folder, "--model", "openai-chat:measured", "--base-url", base_url]
        began = clock()
        pid, terminal = pty.fork()
        if not pid:
            os.execve(program[0], [*program, *options], environment | {"TERM": "xterm-256color", "XDG_CONFIG_HOME": folder})
        try:
            _read_until(terminal, shown)
            prompt = cpu_ms([pid]), (clock() - began) * 1000
            os.write(terminal, b"hi\r")
            while not requested.wait(0.001) and clock() - began < LIMIT_SECONDS:
                _read(terminal)
            sent = cpu_ms([pid]), (clock() - began) * 1000
        finally:
            _end(pid, terminal)
    assert requested.is_set()
    return {"prompt": prompt, REQUEST: sent}


def _bare_request(environment: dict[str, str]) -> tuple[float, float]:
    """CPU and wall-clock time in ms up to the first request of a program of pydantic-ai alone."""
    with _model() as (base_url, requested):
        began = clock()
        with subprocess.Popen([sys.executable, "-P", "-c", BARE, base_url], env=environment) as process:
            try:
                assert requested.wait(LIMIT_SECONDS)
                return cpu_ms([process.pid]), (clock() - began) * 1000
            finally:
                process.kill()


def _end(pid: int, terminal: int) -> None:
    """Has the program close what it has open, so that nothing of it is left."""
    os.kill(pid, signal.SIGTERM)
    deadline = clock() + LIMIT_SECONDS
    while not os.waitpid(pid, os.WNOHANG)[0]:
        if clock() > deadline:
            os.kill(pid, signal.SIGKILL)
        with suppress(OSError):  # it has closed the terminal
            _read(terminal, 0.1)
    os.close(terminal)


def _read_until(terminal: int, text: bytes) -> None:
    seen, deadline = b"", clock() + LIMIT_SECONDS
    while text not in seen:
        assert clock() < deadline, seen[-200:]
        seen += _read(terminal, 0.1)


def _read(terminal: int, seconds: float = 0) -> bytes:
    return os.read(terminal, 65536) if select.select([terminal], [], [], seconds)[0] else b""


@contextmanager
def _model() -> Iterator[tuple[str, threading.Event]]:
    """A server that answers no request for a completion; its address, and whether there was one."""
    requested, over = threading.Event(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = json.dumps({"data": []}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            requested.set()
            over.wait(LIMIT_SECONDS)

        def log_message(self, *_: Any) -> None:
            pass

    with serving(Handler) as base_url:
        try:
            yield base_url, requested
        finally:
            over.set()


if __name__ == "__main__":
    main(run)
