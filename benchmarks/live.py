"""`python -m benchmarks.live --base-url URL`: how many small tasks a real model solves, by way of acting.

Each task is run from an empty workspace, behind the wall of mode `auto`, with nobody to ask. A run counts as

- solved: the check holds, and the run ended as `completed`;
- wrong: the check does not hold;
- wrong status: `completed` without an answer, or the check holds and the status is another one;
- crashed: the agent raised an exception;
- hung: it did not end within its time, budget included.

Every task needs something to be run, so a run that is `completed` with nothing run has made its answer up. `auto` is one of
the other two ways, chosen for the model.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.live_tasks import TASKS, LiveTask, Outcome
from freeact_sub import Agent, Budget, Config
from freeact_sub.agents.answers import is_empty
from freeact_sub.events import Event, ToolOutput
from freeact_sub.modes import CodeActions

WAYS: Final[tuple[CodeActions, ...]] = ("tool", "block", "auto")
KINDS: Final = ("solved", "wrong", "wrong status", "crashed", "hung")
MAX_TURNS: Final = 8


async def converse(task: LiveTask, config: Config, seconds: float) -> dict[str, Any]:
    """Run a task once; returns what is known of it."""
    events: list[Event] = []
    answers: list[str] = []
    statuses: list[str] = []
    row: dict[str, Any] = {"task": task.name, "way": config.code_actions}
    started = time.monotonic()
    try:
        async with asyncio.timeout(seconds), Agent(config) as agent:
            for prompt in task.prompts:
                run = agent.run(prompt)
                events += [event async for event in run]
                result = await run.result()
                answers.append(result.text)
                statuses.append(result.status)
                row["error"] = result.error
            row["turns"] = agent.usage.turns
    except TimeoutError:
        row["kind"] = "hung"
    except Exception as error:  # noqa: BLE001  # border: whatever is raised here is what the benchmark counts
        row |= {"kind": "crashed", "error": f"{type(error).__name__}: {error}"}
    row |= {"seconds": round(time.monotonic() - started, 1), "statuses": statuses, "answers": answers}
    row["calls"] = sum(isinstance(event, ToolOutput) for event in events)
    if "kind" not in row:
        holds = task.check(Outcome(answers=answers, workspace=config.workspace, events=events))
        row["kind"] = kind_of(holds=holds, statuses=statuses, answers=answers)
    return row


def kind_of(*, holds: bool, statuses: list[str], answers: list[str]) -> str:
    """How a run that ended is counted."""
    hollow = any(status == "completed" and is_empty(text) for status, text in zip(statuses, answers, strict=True))
    if hollow or (holds and set(statuses) != {"completed"}):
        return "wrong status"
    return "solved" if holds else "wrong"


async def run(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """All tasks, in all ways, as often as asked; each row is printed as it comes."""
    rows = []
    for attempt in range(arguments.tries):
        for task in TASKS:
            if arguments.task and task.name not in arguments.task:
                continue
            for way in arguments.way or WAYS:
                with tempfile.TemporaryDirectory(prefix="live-") as folder:
                    for name, content in task.files:
                        (Path(folder) / name).write_text(content)
                    config = Config(
                        workspace=Path(folder),
                        model=f"openai-chat:{arguments.model}",
                        base_url=arguments.base_url,
                        mode="auto",
                        headless="auto",
                        code_actions=way,
                        budget=Budget(turns=MAX_TURNS),
                        model_settings={"temperature": 0.2, "seed": attempt, "max_tokens": 700},
                    )
                    row = {"attempt": attempt, **await converse(task, config, arguments.seconds)}
                rows.append(row)
                print(json.dumps(row, ensure_ascii=False), flush=True)
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    """The table: for each way of acting how many runs ended how, and how many of each task were solved."""
    console = Console(file=sys.stderr)
    ways = list(dict.fromkeys(row["way"] for row in rows))
    table = Table("ended as", *ways)
    counts = {way: Counter(row["kind"] for row in rows if row["way"] == way) for way in ways}
    for kind in KINDS:
        table.add_row(kind, *(str(counts[way][kind]) for way in ways))
    made_up = {way: [_is_made_up(row) for row in rows if row["way"] == way] for way in ways}
    table.add_row("completed with nothing run", *(str(sum(made_up[way])) for way in ways))
    table.add_section()
    for name in dict.fromkeys(row["task"] for row in rows):
        runs = {way: [row["kind"] == "solved" for row in rows if (row["task"], row["way"]) == (name, way)] for way in ways}
        table.add_row(name, *(f"{sum(runs[way])} of {len(runs[way])}" for way in ways))
    console.print(table)


def _is_made_up(row: dict[str, Any]) -> bool:
    return not row["calls"] and set(row["statuses"]) == {"completed"}


def main() -> int:
    """Exit status 1 if a run crashed, hung, or had a wrong status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live", description=__doc__.partition("\n")[0])
    parser.add_argument("--base-url", required=True, help="of an OpenAI-compatible server")
    parser.add_argument("--model", default="local", help="the model's name at the server")
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=600, help="after which a run counts as hung")
    parser.add_argument("--task", action="append", help="only this task")
    parser.add_argument("--way", action="append", choices=WAYS, help="only this way of acting")
    rows = asyncio.run(run(parser.parse_args()))
    show(rows)
    return int(any(row["kind"] in KINDS[2:] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
