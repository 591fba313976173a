"""The benchmarks run, in their smallest form; how fast is not a test's business."""

import json
import math
import os
import sys
from pathlib import Path

import pytest
from support.cli import chat
from support.elsewhere import CANNOT_FORK
from support.thorough import THOROUGH
from support.warm import forking, run_program

from benchmarks.rlm_local import TOPICS

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(CANNOT_FORK, reason="memory and CPU time are read from /proc"),
]


@pytest.fixture(autouse=True, scope="module")
def _warm():
    with forking():
        yield


def thorough(name, figures):
    return pytest.param(name, figures, marks=pytest.mark.skipif(not THOROUGH, reason="takes long; with THOROUGH=1"))


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        thorough("start", {"import pydantic_ai", "from freeact_sub import Agent", "--help", "prompt", "first request"}),
        thorough("before", {"agent.ask from a cell", "root turn with a cell", "event, kernel to reader"}),
        thorough("host", {"root turn with a cell", "ask, side by side", "child with a cell", "event", "pydantic_ai"}),
        ("kernels", {"first", "burst", "cpu", "uss", "shutdown", "cell", "prints arrived", "slow idle"}),
        ("branches", {"ready 1 MB", "uss 1 MB", "three 1 MB"}),
        ("effects", {"card to effects, 1 MB", "memory of a trial, 1 MB"}),
        thorough("terminal", {"20 children: draws", "20 children: key echo, median"}),
        ("tree", {"a node", "its own memory", "nodes", "random programs that write", "nodes that were changed by others"}),
        ("snapshots", {"pause, 1 MB", "until saved, 1 MB", "restore, 1 MB", "page faults of it, 1 MB"}),
        ("subagents", {"1 event", "1 output", "2 all result", "child uss", "event host", "channel"}),
        thorough("agents", {"memory", "processes", "host", "from SIGTERM to the end", "processes left"}),
        ("crowd", {"children", "at work at once", "rounds: tasks"}),
        ("values", {"frame"}),
        thorough("gateway", {"1+1", "first", "at once", "10 MB", "values", "host per child", "children"}),
        ("asking", {"open and read", "open, write a line, close", "open and write nothing, times stock"}),
        thorough("cache", {"tokens written", "tokens read", "price, in tokens of plain input"}),
        thorough(
            "sessions", {"a cell, wall time", "database, 1,000 events", "resume to the first request", "kills", "problems"}
        ),
        ("soak", {"kernels", "killed", "server memory", "processes at the end"}),
        thorough("rlm", {"2 asks at once, 0 ms: wall of one", "2 looping children, limit on tokens: overspent"}),
        thorough("rlm_costs", {"count, depth 1: exact", "16 looping children, limit on tokens: overspent"}),
        ("recursion", {"count, 32 KB, depth 1", "pairs, 32 KB, depth 3"}),
        (
            "house",
            {
                "lines",
                "class names that stand twice",
                "a child's first output: files",
                "description of task, tokens",
            },
        ),
        ("kills", {"rounds", "rounds with problems", "Ctrl-C to the host's end, at most"}),
    ],
)
def test_a_benchmark_runs_in_its_smallest_form(name, figures):
    command = [sys.executable, "-m", "benchmarks", name, "--small", "--json"]
    done = run_program(command, cwd=ROOT, env=os.environ, timeout=800)
    assert done.returncode == 0, done.stderr or done.stdout
    [result] = json.loads(done.stdout).values()
    assert figures <= {row["figure"] for row in result["rows"]}
    for row in result["rows"]:
        assert row["values"], row
        # Some figures are differences of two measured times: on a loaded machine they can be below nothing.
        assert all(value is None or math.isfinite(value) for value in row["values"].values()), row
    assert result["versions"]["ipykernel"]


def test_a_local_model_reads_for_a_recursive_one():
    def script(request):
        what, question = request["messages"][-1]["content"].split("\n\n", 1)
        if "alone" in what:
            return ["12"]
        kinds = {form.split("{}")[0]: kind for kind, forms in TOPICS.items() for form in forms}
        return [f"A {kind}." for begin, kind in kinds.items() if question.startswith(begin)]

    with chat(script) as server:
        command = [sys.executable, "-m", "benchmarks.rlm_local", server.server.base_url, "20"]
        done = run_program(command, cwd=ROOT, env=os.environ, timeout=800)
    assert "one plain call: '12'" in done.stdout, done.stderr
    assert "20 of 20 labels are right" in done.stdout


def test_a_wrong_answer_of_a_local_model_is_told_by_a_check_alone():
    with chat(lambda request: ["It was day 16."]) as server:
        command = [sys.executable, "-m", "benchmarks.checks_local", server.server.base_url, "--task", "best day"]
        done = run_program(command, cwd=ROOT, env=os.environ, timeout=800)
    without, checked = (json.loads(line) for line in done.stdout.splitlines()[:2])
    assert (without["kind"], checked["kind"]) == ("wrong, untold", "wrong, told"), done.stderr
    assert (without["requests"], checked["requests"]) == (1, 2)
