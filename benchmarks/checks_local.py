"""What `check=` makes of a small local model's work: `python -m benchmarks.checks_local BASE_URL`.

A program gives small tasks to children that a small model drives, each once without a check and once with one that a
parent could write: it does not know the answer, and looks whether it fits. Whether the answer is right is known by other
means. Counted are the wrong answers that come with a word of doubt, or as a failure, and those that come without one.
"""

import argparse
import asyncio
import json
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.live_tasks import SALES, STOCK, WORDS
from freeact_sub import Agent, Budget, Config, TaskError
from freeact_sub.agents import RunResult

WAYS: Final = ("without", "with")
NUMBER: Final = "import re\nsaid = int(re.findall(r'-?\\d+', answer.replace(',', ''))[-1])\n"
"""How a check begins: the last number of the answer."""
KINDS: Final = ("right", "right, doubted", "wrong, told", "wrong, untold")
SUMS: Final = "total = 0\nfor number in range(10):\n    total += number\nprint(total)\n"


@dataclass(frozen=True, kw_only=True)
class CheckedTask:
    """A task, its check, and the truth."""

    prompt: str
    check: str
    """Code of the parent, run in a copy of the child's kernel."""
    truth: Callable[[int | None, Path], bool]
    """Of the number in the answer, and the folder."""
    files: tuple[tuple[str, str], ...] = ()


def number(answer: str) -> int | None:
    """The last number of an answer."""
    return int(found[-1]) if (found := re.findall(r"-?\d+", answer.replace(",", ""))) else None


def _text(folder: Path, name: str) -> str:
    return (folder / name).read_text() if (folder / name).is_file() else ""


def _total(folder: Path) -> Any:
    scope: dict[str, Any] = {}
    try:
        exec(_text(folder, "total.py"), {"print": lambda *_: None}, scope)
    except Exception:  # noqa: BLE001  # whatever it raises, it is not repaired
        return None
    return scope.get("total")


TASKS: Final = {
    "equation": CheckedTask(
        prompt="Find the whole number x with x**3 + 2*x == 4947, with Python.",
        check="said**3 + 2*said == 4947",
        truth=lambda said, _: said == 17,
    ),
    "best day": CheckedTask(
        prompt="The file sales.csv has the columns day, item, amount. On which day is the amount largest?",
        files=(("sales.csv", SALES),),
        check="import csv\nall_days = {int(r['day']): int(r['amount']) for r in csv.DictReader(open('sales.csv'))}\n"
        "all_days[said] == max(all_days.values())",
        truth=lambda said, _: said in (17, 57),
    ),
    "cubes": CheckedTask(
        prompt="Write a file cubes.txt with the cubes of the numbers 1 to 10, one per line. Answer with how many.",
        check="written = [int(line) for line in open('cubes.txt')]\nassert written == [n**3 for n in range(1, 11)]\n"
        "len(written) == said",
        truth=lambda said, folder: said == 10 and _text(folder, "cubes.txt").split() == [str(n**3) for n in range(1, 11)],
    ),
    "words": CheckedTask(
        prompt="Write the distinct words of words.txt to sorted.txt in alphabetical order, one a line. Say how many.",
        files=(("words.txt", WORDS + "\n"),),
        check="found = open('sorted.txt').read().split()\nassert found == sorted(set(open('words.txt').read().split()))\n"
        "len(found) == said",
        truth=lambda said, folder: (
            said == len(set(WORDS.split())) and _text(folder, "sorted.txt").split() == sorted(set(WORDS.split()))
        ),
    ),
    "double": CheckedTask(
        prompt="stock.json maps names to counts. Write double.json, with each count doubled. Answer with the sum of these.",
        files=(("stock.json", json.dumps(STOCK)),),
        check="import json\nsum(json.load(open('double.json')).values()) == said",
        truth=lambda said, folder: (
            said == 2 * sum(STOCK.values())
            and _text(folder, "double.json") != ""
            and json.loads(_text(folder, "double.json")) == {name: 2 * count for name, count in STOCK.items()}
        ),
    ),
    "repair": CheckedTask(
        prompt="total.py should print the sum of 1 to 10, but prints 45. Correct the file. Answer with what it prints.",
        files=(("total.py", SUMS),),
        check="scope = {}\nexec(open('total.py').read(), scope)\nscope['total'] == said == 55",
        truth=lambda said, folder: said == _total(folder) == 55,
    ),
}


async def attempt(name: str, way: str, options: argparse.Namespace) -> dict[str, Any]:
    """One child, in a folder of its own; returns what is known of it."""
    task, started = TASKS[name], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="checks-") as folder:
        for file, content in task.files:
            (Path(folder) / file).write_text(content)
        config = Config(
            workspace=Path(folder),
            model=f"openai-chat:{options.model}",
            base_url=options.base_url,
            mode="auto",
            headless="auto",
            model_settings={"temperature": 0.2, "seed": options.seed, "max_tokens": 250},
        )
        async with Agent(config) as agent:
            budget, check = Budget(turns=5, seconds=options.seconds), NUMBER + task.check if way == "with" else None
            try:
                result: RunResult[str] = await agent.task(task.prompt, check=check, budget=budget)
            except TaskError as error:
                result = error.result
        right = result.status == "completed" and task.truth(number(result.output), Path(folder))
    told = result.status != "completed" or bool(result.doubts)
    kind = (KINDS[1] if told else KINDS[0]) if right else (KINDS[2] if told else KINDS[3])
    return {
        "task": name,
        "way": way,
        "kind": kind,
        "status": result.status,
        "answer": result.text[:80],
        "doubts": [*result.doubts],
        "requests": result.usage.turns,
        "tokens": result.usage.tokens,
        "seconds": round(time.monotonic() - started, 1),
    }


def show(rows: list[dict[str, Any]]) -> None:
    """The table: how many answers of each kind there are with a check and without one, and what they took."""
    table = Table(f"{len({row['task'] for row in rows})} tasks, once each", *(f"{way} check" for way in WAYS))
    by_way = [[row for row in rows if row["way"] == way] for way in WAYS]
    for kind in KINDS:
        table.add_row(kind, *(str(sum(row["kind"] == kind for row in of_way)) for of_way in by_way))
    for figure in ("requests", "tokens", "seconds"):
        table.add_row(figure, *(f"{sum(row[figure] for row in of_way):,.0f}" for of_way in by_way))
    Console(width=100).print(table)


async def run(options: argparse.Namespace) -> None:
    """All tasks both ways; each row is printed as it comes."""
    rows = []
    for name in options.task or TASKS:
        for way in WAYS:
            rows.append(await attempt(name, way, options))
            print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
    show(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checks_local", description=__doc__.partition("\n")[0])
    parser.add_argument("base_url")
    parser.add_argument("--model", default="local", help="the model's name at the server")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=400, help="that a child may take")
    parser.add_argument("--task", action="append", choices=[*TASKS], help="only this task")
    asyncio.run(run(parser.parse_args()))
