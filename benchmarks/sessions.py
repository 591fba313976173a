"""Sessions: what they add to a cell, what they take on disk, how soon they go on; and `kill -9` at random moments.

In each round of kills a program with 13 agents at 3 levels (`killed_agents.py`) is killed, up to three times, and goes on to
its end.
No child and no ask that the session knows as completed may be paid again, no cell may run again unless its end is unknown,
the variables at the end must be right, and the database whole.
"""

import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from pydantic_ai.messages import ModelRequest, ToolCallPart, ToolReturnPart

from benchmarks.common import Goal, OtherLoad, Series, clock, main, report
from benchmarks.killed_agents import EXPECTED
from freeact_sub import Agent, Config
from freeact_sub.sessions import SessionStore
from freeact_sub.sessions.database import NAME
from freeact_sub.testing import FakeKernelProvider, ScriptedModel

ROUNDS = 20
KILLS, SMALL_KILLS = 3, 1
"""At most in a round; then it goes on to its end."""
LIMIT_SECONDS = 300
CELLS = 200
RESUME_MS, CELL_MS = 1500, 1.0


def run(*, small: bool = False, rounds: int | None = None) -> dict[str, Any]:
    """All figures; small: few rounds, little data. Args: rounds: of kills."""
    load, series = OtherLoad(), Series()
    kept = os.environ.get("XDG_STATE_HOME")
    with tempfile.TemporaryDirectory(prefix="fa-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        try:
            for number in range(1 if small else 5):
                os.environ["XDG_STATE_HOME"] = str(folder / f"cells-{number}")
                asyncio.run(_cells(series, folder, 20 if small else CELLS))
                os.environ["XDG_STATE_HOME"] = str(folder / f"resume-{number}")
                asyncio.run(_resume(series, folder, 1 if small else 100))
        finally:
            os.environ.pop("XDG_STATE_HOME")
            if kept is not None:
                os.environ["XDG_STATE_HOME"] = kept
        problems = _kills(series, folder, rounds or (1 if small else ROUNDS), SMALL_KILLS if small else KILLS)
    goals = {
        "a cell, wall time": Goal(of="added", at_most=CELL_MS),
        "resume to the first request": Goal(of="ms", at_most=RESUME_MS),
    }
    units = {
        "a cell, wall time": "ms",
        "a cell, CPU time of the host": "ms",
        "a cell, CPU time of the writer": "ms",
        "database, 1,000 events": "kB",
    }
    rows = [series.row(figure, units.get(figure, ""), *filter(None, [goals.get(figure)])) for figure in series.values]
    return report("sessions", rows, load, problems[:20]) | {"failed": problems}


async def _cells(series: Series, folder: Path, cells: int) -> None:
    """The same conversation with and without a session; kernels are fakes, so all of the time is the host's."""
    wall: dict[str, float] = {}
    cpu: dict[str, float] = {}
    for name, session in (("none", None), ("session", "new")):
        turns = [[ToolCallPart("execute_ipython_cell", {"code": f"print({number})"})] for number in range(cells)]
        model = ScriptedModel([*turns, "done"])
        config = Config(workspace=folder, mode="full", max_repeats=None)
        async with Agent(config, model=model, kernel_provider=FakeKernelProvider(), session=session) as agent:
            started, used = clock(), time.process_time()
            await agent.run("go").result()
            wall[name] = (clock() - started) / cells * 1000
            cpu[name] = (time.process_time() - used) / cells * 1000
            for thread in threading.enumerate():
                if thread.name == f"writes session {agent.session_id}":
                    writer = time.clock_gettime(time.pthread_getcpuclockid(thread.ident or 0))
                    series.add("a cell, CPU time of the writer", "session", writer / cells * 1000)
    for figure, values in (("a cell, wall time", wall), ("a cell, CPU time of the host", cpu)):
        for name in ("none", "session"):
            series.add(figure, name, values[name])
        series.add(figure, "added", values["session"] - values["none"])
    store = SessionStore(Path(os.environ["XDG_STATE_HOME"]) / "freeact")
    with store.reader(agent.session_id or "") as reader:
        events = sum(1 for _ in reader.events())
    series.add("database, 1,000 events", "kB", store.database_bytes / events)  # bytes by events: kB by 1,000


async def _resume(series: Series, folder: Path, megabytes: int) -> None:
    """From the begin of a program that goes on, its imports left out, to the first request of its model."""
    config = Config(workspace=folder, mode="full", kernel={"sandbox": "off"})
    code = f"data = bytearray(b'x') * {megabytes * 10**6}"
    turns = [[ToolCallPart("execute_ipython_cell", {"code": code})], "done"]
    async with Agent(config, model=ScriptedModel(turns), session="new") as agent:
        await agent.run("make").result()
    asked: list[float] = []

    def script(messages: Any, info: Any) -> str:
        del messages, info
        asked.append(clock())
        return "done"

    started = clock()
    async with Agent(config, model=ScriptedModel(script), session=agent.session_id) as again:
        await again.run("go on").result()
    series.add("resume to the first request", "ms", (asked[0] - started) * 1000)


def _kills(series: Series, folder: Path, rounds: int, most: int) -> list[str]:
    """Rounds of kills; what went wrong."""
    problems: list[str] = []
    kills = 0
    dice = random.Random(time.time_ns())  # moments
    seconds = 8.0
    for number in range(rounds):
        place = folder / f"round-{number}"
        place.mkdir()
        found, killed, took = _round(place, dice, seconds, most)
        seconds = took if not killed else seconds
        kills += killed
        problems += [f"round {number + 1}: {problem}" for problem in found]
    series.add("rounds", "number", rounds)
    series.add("kills", "number", kills)
    series.add("problems", "number", len(problems))
    return problems


def _round(place: Path, dice: random.Random, seconds: float, most: int) -> tuple[list[str], int, float]:
    """One program, killed up to some times, to its end: problems, kills, seconds of an undisturbed run."""
    session, problems, kills, known, started = "new", [], 0, Counter[str](), clock()
    environment = {**os.environ, "XDG_STATE_HOME": str(place / "state")}
    store = SessionStore(place / "state" / "freeact")
    while True:
        before = len(_lines(place / "requests"))
        command = [sys.executable, "-m", "benchmarks.killed_agents", str(place), session]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        last = kills >= most
        first = (process.stdout.readline() if process.stdout else "").strip()
        session = first or session
        try:
            rest, _ = process.communicate(timeout=LIMIT_SECONDS if last else dice.uniform(0, seconds))
            killed = False
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            rest, _ = process.communicate()
            killed = not last
            if last:
                problems.append(f"it did not end within {LIMIT_SECONDS} s")
        paid = Counter(json.loads(line) for line in _lines(place / "requests")[before:])
        problems += [f"{prompt!r} was paid again" for prompt in known if paid[prompt] and prompt in paid and known[prompt]]
        kills += killed
        if not killed:
            break
        if _has_session(store, session):
            # killed after the root has completed its run: what is asked from then on is asked anew
            known = Counter() if store.find(session).status == "completed" else _completed(store, session)
            problems += _database(store)
        else:
            session, known = "new", Counter()
    if "completed all done" not in rest:
        problems.append(f"it ended with {rest.strip()[-300:]!r}")
    end = place / "end"
    if not end.exists() or end.read_text(encoding="utf-8") != EXPECTED:
        problems.append(f"its variables are {end.read_text(encoding='utf-8') if end.exists() else 'gone'}, not {EXPECTED}")
    if _has_session(store, session):
        problems += _repeated(store, session, place)
    return problems, kills, clock() - started


def _has_session(store: SessionStore, session: str) -> bool:
    return any(found.session_id == session and found.title for found in store.sessions())


def _completed(store: SessionStore, session: str) -> Counter[str]:
    """The prompts of children and asks that the session knows as completed."""
    with store.reader(session) as reader:
        root = reader.agents()[0].agent_id
        children = [run.prompt for run in reader.runs() if run.agent_id != root and run.status == "completed"]
        asks = [call.args["prompt"] for call in reader.calls() if call.name == "ask" and call.outcome == "success"]
    return Counter([*children, *asks])


def _repeated(store: SessionStore, session: str, place: Path) -> list[str]:
    """Stages that ran again though the model was not told that their end is unknown, or that variables are gone."""
    with store.reader(session) as reader:
        messages = reader.messages(reader.agents()[0].agent_id)
    told = 0
    for message in messages:
        if isinstance(message, ModelRequest):
            text = str(message.parts)
            told += sum("[UNKNOWN]" in str(part.content) for part in message.parts if isinstance(part, ToolReturnPart))
            told += "Your kernel is new" in text
    most = max(Counter(_lines(place / "effects")).values(), default=0)
    return [] if most <= 1 + told else [f"a cell ran {most} times, and the model was told {told} times"]


def _database(store: SessionStore) -> list[str]:
    connection = sqlite3.connect(store.folder / NAME)
    try:
        found = connection.execute("PRAGMA integrity_check").fetchone()[0]
    finally:
        connection.close()
    return [] if found == "ok" else [f"the database: {found}"]


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


if __name__ == "__main__":
    main(run)
