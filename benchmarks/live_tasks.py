"""Ten small tasks for a real model, each with a check that a program can make; none of them is about wording."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from freeact_sub.events import AgentStarted, Event

WORDS = "the cat and the dog saw the bird near the old mill while the rain fell"
SALES = "day,item,amount\n" + "".join(f"{day},{'tea' if day % 3 else 'coffee'},{day * 7 % 40 + 1}\n" for day in range(1, 61))
STOCK = {"bolts": 412, "nuts": 388, "washers": 951, "screws": 77}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a conversation left behind."""

    answers: Sequence[str]
    """The answer to each prompt."""
    workspace: Path
    events: Sequence[Event]

    def says(self, number: float, answer: int = -1) -> bool:
        """Whether an answer holds the number, however its digits are grouped."""
        text = re.sub(r"(?<=\d)[,_ ](?=\d{3})", "", self.answers[answer])
        return any(float(found.rstrip(".")) == number for found in re.findall(r"-?\d+\.?\d*", text))


@dataclass(frozen=True, kw_only=True)
class LiveTask:
    """A conversation with a check of how it ended."""

    name: str
    prompts: tuple[str, ...]
    check: Callable[[Outcome], bool]
    files: tuple[tuple[str, str], ...] = ()
    """Names and contents of what is in the workspace before."""


def _children(outcome: Outcome) -> int:
    return sum(isinstance(event, AgentStarted) and event.depth > 0 for event in outcome.events)


def _prints(path: Path, expected: str) -> bool:
    if not path.is_file():
        return False
    ran = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=30, check=False)
    return ran.stdout.strip() == expected


TASKS = (
    LiveTask(
        name="sum of squares",
        prompts=("Compute the sum of the squares of the whole numbers from 1 to 100 with Python and tell me the result.",),
        check=lambda done: done.says(338350),
    ),
    LiveTask(
        name="primes",
        prompts=("How many prime numbers are there below 2000? Run Python code to count them.",),
        check=lambda done: done.says(303),
    ),
    LiveTask(
        name="read a table",
        prompts=("The file sales.csv has the columns day, item, amount. What is the total amount for the item coffee?",),
        files=(("sales.csv", SALES),),
        check=lambda done: done.says(
            sum(int(line.split(",")[2]) for line in SALES.splitlines()[1:] if line.split(",")[1] == "coffee")
        ),
    ),
    LiveTask(
        name="count words",
        prompts=("How often does the word 'the' occur in the file words.txt?",),
        files=(("words.txt", WORDS + "\n"),),
        check=lambda done: done.says(WORDS.split().count("the")),
    ),
    LiveTask(
        name="write a file",
        prompts=("Write a file cubes.txt that holds the cubes of the numbers 1 to 10, one number per line.",),
        check=lambda done: (
            (done.workspace / "cubes.txt").is_file()
            and (done.workspace / "cubes.txt").read_text().split() == [str(number**3) for number in range(1, 11)]
        ),
    ),
    LiveTask(
        name="read JSON",
        prompts=("The file stock.json maps names to counts. Which name has the highest count?",),
        files=(("stock.json", json.dumps(STOCK)),),
        check=lambda done: "washers" in done.answers[-1].lower(),
    ),
    LiveTask(
        name="repair a script",
        prompts=("The script total.py should print the sum of the numbers 1 to 10, but prints 45. Correct the file.",),
        files=(("total.py", "total = 0\nfor number in range(10):\n    total += number\nprint(total)\n"),),
        check=lambda done: _prints(done.workspace / "total.py", "55"),
    ),
    LiveTask(
        name="two prompts, a variable",
        prompts=(
            "In Python, make a list `numbers` of the multiples of 7 below 500 and tell me how many there are.",
            "Now compute the sum of the list `numbers` and tell me the result.",
        ),
        check=lambda done: done.says(sum(range(0, 500, 7))),
    ),
    LiveTask(
        name="two prompts, a file",
        prompts=(
            "Write a file log.txt with exactly one line: start",
            "Append a second line to log.txt: end",
        ),
        check=lambda done: (
            (done.workspace / "log.txt").is_file() and (done.workspace / "log.txt").read_text().split() == ["start", "end"]
        ),
    ),
    LiveTask(
        name="delegate",
        prompts=("Use the task tool: let a child agent compute 17 to the power of 5 with Python. Then tell me its result.",),
        check=lambda done: done.says(17**5) and _children(done) > 0,
    ),
)
