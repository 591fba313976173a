"""A program for tests: the scripted conversation, with a clock that stands still and more that its model can do."""

import os
import sys
import time

NOW = 1_700_000_000.0
if "CLOCK_RUNS" not in os.environ:
    time.time = lambda: NOW  # the screens show how long things take

import scripted_conversation as conversation  # noqa: E402
from pydantic_ai.messages import ToolCallPart  # noqa: E402
from scripted_conversation import cell, child, when  # noqa: E402

from freeact_sub.config.schema import EffectsConfig  # noqa: E402

ANSWER = """\
# Stations

Each file has **one row a day**; `harbour.csv` has a gap:

| station | days | mean °C |
| --- | ---: | ---: |
| harbour | 366 | 10.4 |
| 山頂 🏔 | 359 | 4.0 |

- harbour: nothing missing
"""
LONG = (
    "# count rows per file\n"
    + "\n".join(f"rows_{number} = {number}" for number in range(40))
    + """
for number in range(3000):
    print(f"{number:>5} rows in file {number}")"""
)
WIDE = f"""\
| {" | ".join(f"column {number}" for number in range(40))} |
|{" --- |" * 40}
| {" | ".join(f"cell {number}" for number in range(40))} |

That was wide.
"""
conversation.EFFECTS = EffectsConfig(enabled=False)  # the card does not change while one looks

conversation.TURNS |= {
    "wide": lambda _: [cell("for row in range(180):\n    print(f'row {row}', *(f'name {n}' for n in range(60)))"), WIDE],
    "answer": lambda names: [[ANSWER, *([when(names[0])] if names else []), "- 山頂: seven days without a row\n"]],
    "long": lambda _: [cell(LONG), "That was long."],
    "plan": lambda names: [[plan(1)], ["I begin.\n\n", when(names[0]), plan(4)], "Both agree."],
    "stay": lambda names: [[when(names[0]), cell(f"# write {names[0]}.csv\nprint('{names[0]}')")], f"{names[0]} is clean"],
    "stations": lambda names: [[stay(name) for name in names], "all are clean"],
}


def plan(done: int) -> ToolCallPart:
    """Tell a plan of which so many steps are done."""
    steps = ["Read harbour.csv and ridge.csv", "Join both tables by day", "Compare the means", "Write report.md"]
    states = ["completed"] * done + ["in_progress"] + ["pending"] * len(steps)
    told = [{"step": step, "status": state} for step, state in zip(steps, states, strict=False)]
    return ToolCallPart("update_plan", {"plan": told})


def stay(name: str) -> object:
    """Start a child that waits for the file of its name."""
    call = child(name)
    call.args = {"prompt": f"stay {name}", "description": f"clean {name}.csv"}
    return call


if __name__ == "__main__":
    sys.exit(conversation.main())
