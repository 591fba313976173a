"""The demo: an agent hands three files to three children, and makes a report and a picture. Offline, without a key.

Only the model is a script (`demo_script.py`). The kernels, the children, the MCP server, the approvals, the files and the
picture are real. With `--model NAME` a real model gets the same prompt.
"""

import argparse
import asyncio
import importlib.util
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

INSTALL = 'run `make demo`, or in the project\'s folder: python -m pip install ".[demo]"'

try:
    # first, as pydantic_ai, which `demo_script` imports too, is imported faster this way
    from freeact_sub import Agent, Config, FreeactError, KernelConfig, McpServerConfig, TerminalConfig  # noqa: I001
    from demo_script import MODEL_NAME, PROMPT, demo_model
    from freeact_sub.events import (
        AgentEvent,
        AgentFinished,
        AgentStarted,
        ApprovalDecided,
        CodeExecutionOutput,
        ToolOutput,
    )
    from freeact_sub.terminal.asking import Approver, LineApprover
    from freeact_sub.terminal.conversation import converse
    from freeact_sub.terminal.pictures import Pictures, cell_size, way_of
    from freeact_sub.terminal.run_once import run_once
except ModuleNotFoundError as error:
    sys.exit(f"demo: {error.name} is missing: {INSTALL}")

EXAMPLES = Path(__file__).resolve().parents[1]
MADE = ("report.md", "weather.png")
FAILED, USAGE, INTERRUPTED = 1, 2, 130


def main() -> int:
    """Run the demo; returns the exit status: 0 if all that it is to show has happened."""
    options = _options()
    if importlib.util.find_spec("matplotlib") is None:
        return _complain(f"matplotlib is missing: {INSTALL}", USAGE)
    demo = Demo(
        out=options.out.resolve(),
        model=options.model,
        base_url=options.base_url,
        mode=options.mode,
        approve_all=options.yes or not sys.stdin.isatty(),
    )
    try:
        demo.prepare()
        status = asyncio.run(_run(demo))
    except (FreeactError, OSError) as error:
        return _complain(str(error), USAGE)
    except KeyboardInterrupt:
        status = INTERRUPTED
    if status == INTERRUPTED:
        return _complain("interrupted", INTERRUPTED)
    picture = asyncio.run(_drawn(demo.out / "weather.png"))
    print(*demo.summary(), sep="\n")
    sys.stdout.write(f"\n{picture}")
    print(*next_steps(), sep="\n")
    return FAILED if any(demo.problems()) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="An agent hands three files to three children and makes a report of them.")
    parser.add_argument(
        "--mode", choices=("ask", "auto"), default="auto", help="auto: unasked, behind a wall (default); ask: you are asked"
    )
    parser.add_argument("--yes", action="store_true", help="approve everything without asking")
    parser.add_argument(
        "--out", metavar="DIR", type=Path, default=Path("out"), help="where files are written (default: out)"
    )
    parser.add_argument("--model", metavar="NAME", help="a real model instead of the script, such as anthropic:NAME")
    parser.add_argument("--base-url", metavar="URL", help="of an OpenAI-compatible server, with --model openai-chat:NAME")
    return parser.parse_args()


async def _run(demo: "Demo") -> int:
    """Run in the front end that fits: a terminal asks; without one, or with `--yes`, all is approved."""
    print(f"model: {demo.model or MODEL_NAME}\nfiles: {demo.out}\n", flush=True)
    if sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return await converse(demo.agent, config=demo.config, prompt=demo.prompt)
    approver = Approver() if demo.approve_all else LineApprover(sys.stderr)
    return await run_once(demo.agent, demo.prompt, output="plain", approver=approver)


async def _drawn(picture: Path) -> str:
    """What draws the picture here, at least of half blocks; empty where nothing can."""
    if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb" or os.environ.get("NO_COLOR"):
        return ""
    way = way_of("auto", os.environ)
    columns, rows = os.get_terminal_size(sys.stdout.fileno())
    cell = cell_size(sys.stdout.fileno())
    return await Pictures("blocks" if way == "off" else way).drawn(picture, columns, rows, cell)


def next_steps() -> Iterator[str]:
    """What a person can do now: commands that work in this folder as they stand here."""
    program = Path(sys.executable).with_name("freeact-sub")
    command = str(program) if program.is_file() else f"{sys.executable} -m freeact_sub"
    command = command.removeprefix(f"{Path.cwd()}/")
    yield "Next: set a key, such as ANTHROPIC_API_KEY, or start a local server, such as Ollama, and have a conversation:"
    yield f"    {command}    # lists the models that it finds"


def _complain(text: str, status: int) -> int:
    print(f"demo: {text}", file=sys.stderr)
    return status


@dataclass
class Demo:
    """One demo: what is asked, what happened, what was made."""

    out: Path
    model: str | None = None
    """A model's name. None: the script."""
    base_url: str | None = None
    mode: Literal["ask", "auto"] = "auto"
    approve_all: bool = False
    """Ask nobody."""
    events: list[AgentEvent] = field(default_factory=list)

    @property
    def prompt(self) -> str:
        """What the root agent is asked to do."""
        return PROMPT.format(data=EXAMPLES / "data")

    @property
    def stations(self) -> list[str]:
        """The files that are there to be cleaned."""
        return sorted(path.name for path in (EXAMPLES / "data").glob("*.csv"))

    def prepare(self) -> None:
        """Make the folder, and remove what an earlier demo has written."""
        self.out.mkdir(parents=True, exist_ok=True)
        for name in (*self.stations, *MADE):
            (self.out / name).unlink(missing_ok=True)

    @property
    def config(self) -> Config:
        """The settings of the root agent."""
        units = McpServerConfig(command=sys.executable, args=(str(EXAMPLES / "extending/units_server.py"),))
        config = Config(
            workspace=self.out,
            model=self.model,
            base_url=self.base_url,
            mode=self.mode,
            kernel=KernelConfig(readable=(EXAMPLES / "data",), preload=("matplotlib.pyplot",)),
            mcp_servers={"units": units},
            terminal=TerminalConfig(pictures="off"),  # it is drawn at the end
        )
        if self.approve_all:
            config = config.model_copy(update={"headless": "allow"})
        return config

    def agent(self) -> Agent:
        """The root agent."""
        return Agent(self.config, model=None if self.model else demo_model(), taps=[self.events.append])

    def problems(self) -> Iterator[str]:
        """What was to happen and did not."""
        for ending in self._of(AgentFinished):
            if ending.status != "completed":
                yield f"{ending.agent_id} ended as {ending.status}: {ending.error}"
        if self._most_at_work() < len(self.stations):
            yield f"{len(self.stations)} children were to work at the same time: there were {self._most_at_work()}"
        if not self._mcp_answers():
            yield "the MCP server was not asked, or did not answer"
        for name in (*self.stations, *MADE):
            if not (self.out / name).is_file():
                yield f"{name} was not written"

    def summary(self) -> Iterator[str]:
        """What was made, by whom, and where it is."""
        problems = list(self.problems())
        yield "\nThe demo is not complete:" if problems else "\nThe demo is complete."
        yield from (f"- {problem}" for problem in problems)
        children, cells = len(self._of(AgentStarted)) - 1, self._of(CodeExecutionOutput)
        approvals = self._of(ApprovalDecided)
        yield f"  agents     {children + 1}: a root and {children} children, {self._most_at_work()} of them at the same time"
        yield f"  cells      {len(cells)}, in {len({cell.agent_id for cell in cells})} kernels"
        yield f"  MCP calls  {len(self._mcp_answers())} answered by the server `units`"
        yield f"  approvals  {len(approvals)}, {sum(not answer.allowed for answer in approvals)} denied"
        yield f"  seconds    {self.events[-1].time - self.events[0].time:.1f}" if self.events else "  nothing was started"
        for name in (*self.stations, *MADE[::-1]):
            if (self.out / name).is_file():
                yield f"  {(self.out / name).stat().st_size:>9,} bytes  {self.out / name}"

    def _of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def _mcp_answers(self) -> list[ToolOutput]:
        """From code the tool is called `units.NAME`, by the model `units_NAME`."""
        outputs = self._of(ToolOutput)
        return [item for item in outputs if item.tool_name.startswith(("units.", "units_")) and item.outcome == "success"]

    def _most_at_work(self) -> int:
        """How many children were at work at one time."""
        most = now = 0
        for event in self.events:
            if event.depth:
                now += isinstance(event, AgentStarted) - isinstance(event, AgentFinished)
                most = max(most, now)
        return most


if __name__ == "__main__":
    sys.exit(main())
