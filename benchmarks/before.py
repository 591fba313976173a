"""What the host takes, in milliseconds, before and now: commit 8d2179c, built as its wheel, and this state, in turns.

`before` and `now` are the processor time of the host (of prints: with the kernel's), of one item; `wall` is by the clock.
Both states run in processes of their own, with the packages that are installed here. The ratio holds on any machine; goals
are about `now`.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.common import Goal, OtherLoad, Row, Series, clean_environment, files_of, main, report
from benchmarks.start import conversation, import_time

COMMIT: Final = "8d2179c"
ROOT: Final = Path(__file__).parents[1]
LIMIT_SECONDS: Final = 1800
GOALS: Final[dict[str, dict[str, float]]] = {
    "from freeact_sub import Agent": {"now": 800},
    "prompt that takes keys": {"now, wall": 300},
    "first request": {"now": 1000},
    "agent.ask from a cell": {"now": 3},
    "agent.task without a cell": {"now": 12},
    "agent.task with a cell": {"now": 18},
    "root turn with a cell": {"now": 7},
    "event, kernel to reader": {"now": 0.07, "now, wall": 0.2},
    "delta of a streamed answer of 4,240 characters": {"now": 0.03},
    "forked kernel up to its first cell": {"now": 20},
    "memory of 10 agents in one program": {"now": 180},
    "1000 children": {"now, wall": 60_000},
}
"""By figure and contender, at most."""
REASONS: Final = {
    "from freeact_sub import Agent": "pydantic_ai, whose modules need each other, is imported whole",
    "first request": "pydantic_ai, imported whole, and openai are half of it",
    "agent.task without a cell": "as a root's turn, with a kernel that is taken, connected and ended besides",
    "agent.task with a cell": "as a root's turn, with a kernel that is taken, connected and ended besides",
    "root turn with a cell": "two requests and a tool call through pydantic-ai's graph alone take as long as the goal",
    "event, kernel to reader": "how many events wake the host is up to the kernel's threads, which take turns",
    "delta of a streamed answer of 4,240 characters": "half is the model's own stream, and each delta is an event",
    "forked kernel up to its first cell": "a third is copies of pages; sockets, threads and loops are made behind the fork",
    "memory of 10 agents in one program": "each kernel's own pages: what Python writes to behind the fork",
    "1000 children": "the host's time for a child, above, a thousand times",
}
"""Why a line misses its goal, where it does."""


@dataclass(frozen=True, kw_only=True)
class _Sizes:
    rounds: int
    parts: dict[str, int]
    """By part of `one_state`."""
    once: dict[str, int]
    """Those that are long."""
    starts: bool = True


FULL: Final = _Sizes(
    rounds=3,
    parts={"host": 20, "streamed": 4240, "children": 20, "kernel": 5, "prints": 100},
    once={"agents": 10, "crowd": 1000},
)
SMALL: Final = _Sizes(rounds=1, parts={"host": 1}, once={}, starts=False)


def run(*, small: bool = False) -> dict[str, Any]:
    """All figures of both states; small: one turn, child, question and event each."""
    sizes, load, series = SMALL if small else FULL, OtherLoad(), Series()
    notes = []
    with _before() as before:
        states = {"now": ROOT} if before is None else {"before": before, "now": ROOT}
        if before is None:
            notes.append(f"nothing stands beside it: commit {COMMIT} is not in this clone, or could not be built")
        for number in range(sizes.rounds):
            for part, size in (sizes.parts | (sizes.once if not number else {})).items():
                for name, folder in states.items():
                    _note(name, _figures(folder, part, size), series)
            for name, folder in states.items() if sizes.starts else ():
                _note(name, _starts(folder), series)
    rows = [row for figure in series.values if (row := _row(figure, series))]
    missed = [f"{row.figure}: {REASONS[row.figure]}" for row in rows if row.as_dict()["missed"] and row.figure in REASONS]
    return report("before", rows, load, [*notes, *missed])


def _note(state: str, figures: dict[str, dict[str, float]], series: Series) -> None:
    for figure, kinds in figures.items():
        for kind, value in kinds.items():
            series.add(figure, f"{state}, wall" if kind == "wall" else state, value)


def _row(figure: str, series: Series) -> Row | None:
    goals = [Goal(of=name, at_most=most) for name, most in GOALS.get(figure, {}).items()]
    row = series.row(figure, "MB" if figure.startswith("memory") else "ms", *goals)
    if row is not None and (row.values.get("before") and row.values.get("now")):
        row.values["times less"] = (row.values["before"] or 0) / (row.values["now"] or 1)
    return row


def _figures(folder: Path, part: str, size: int) -> dict[str, dict[str, float]]:
    command = [sys.executable, "-P", str(ROOT / "benchmarks" / "one_state.py"), part, str(size)]
    done = subprocess.run(
        command,
        env=clean_environment(folder),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )
    if done.returncode:
        raise RuntimeError(f"{part} of {folder}: {done.stderr[-2000:]}")
    figures: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return {
        figure: {"" if kind != "wall" else kind: value for kind, value in kinds.items()} for figure, kinds in figures.items()
    }


def _starts(folder: Path) -> dict[str, dict[str, float]]:
    environment = clean_environment(folder)
    cpu, wall, _ = import_time("from freeact_sub import Agent", environment)
    found = {"from freeact_sub import Agent": (cpu, wall)}
    # an input line that takes keys has switched bracketed paste on, in any state
    shown = conversation([sys.executable, "-P", "-m", "freeact_sub"], environment, shown=b"\x1b[?2004h")
    found |= {"prompt that takes keys": shown["prompt"], "first request": shown["first request"]}
    return {figure: {"": used, "wall": by_clock} for figure, (used, by_clock) in found.items()}


@contextmanager
def _before() -> Iterator[Path | None]:
    """A folder with the package of the commit, from its wheel. None: there is none."""
    with files_of(COMMIT) as source, tempfile.TemporaryDirectory(prefix="fa-bench-") as site:
        if source is None:
            yield None
            return
        pip = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--no-build-isolation",
        ]
        built = subprocess.run([*pip, "--target", site, str(source)], capture_output=True, check=False)
        if built.returncode:
            yield None
            return
        subprocess.run([sys.executable, "-m", "compileall", "-q", site], check=False)
        yield Path(site)


if __name__ == "__main__":
    main(run)
