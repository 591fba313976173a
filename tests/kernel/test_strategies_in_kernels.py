"""Strategies on real kernels: in a cell with its `agent`, and values of a program in a child's kernel."""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from pydantic_ai.messages import ToolCallPart, ToolReturnPart
from support.agents import cell, of_kind, read, root_text
from support.programs import ROOT
from support.thorough import sample
from support.waiting import eventually, is_running

from freeact_sub import Agent, Config
from freeact_sub.events import AgentStarted, StrategyProgress, ToolCallStarted
from freeact_sub.export import export_events
from freeact_sub.kernels.files import recover
from freeact_sub.strategies import LATS, agent_function, search
from freeact_sub.system.private_folders import sweep
from freeact_sub.testing import ScriptedModel, first_prompt

pytestmark = pytest.mark.kernel

IN_A_CELL = """
from freeact_sub.strategies import agent_function, debate, plan_and_execute, vote
import sys

@agent_function(agent)
async def largest(values: list[int]) -> int:
    "The largest of the values."

voted = await vote(agent, "How many?", 3, output=int)
debated = await debate(agent, "Why?", 2)
planned = await plan_and_execute(agent, "Count.")
print(voted.answer, voted.votes, debated.answer, planned.answer, await largest([3, 9, 4]))
print("pydantic_ai" in sys.modules)
"""


async def test_the_same_functions_work_in_a_cell(tmp_path):
    def script(messages, info):
        prompt = first_prompt(messages)
        returned = [part.content for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        if prompt == "root":
            return "done" if returned else cell(IN_A_CELL)
        if prompt.startswith("You are the body of a Python function"):
            return ToolCallPart("hand_over", {"value": int(returned[0])}) if returned else cell("print(max(values))")
        if info.output_tools and prompt == "How many?":
            return ToolCallPart("hand_over", {"value": 4})
        if info.output_tools:
            step = {"value": [{"task": "one step"}]} if len(messages) == 1 else {"answer": "counted", "steps": []}
            return ToolCallPart("hand_over", step)
        return "because" if len(messages) > 1 or prompt.startswith("one step") else "perhaps"

    # installed from a wheel the package is part of the Python that the wall shows; from the sources it is not
    config = Config(workspace=tmp_path, mode="auto", kernel={"readable": [ROOT]})
    async with Agent(config, model=ScriptedModel(script)) as agent:
        events, result = await read(agent.run("root"))
    assert result.status == "completed"
    assert "4 3 because counted 9\nFalse" in root_text(events)
    assert len([event for event in of_kind(events, AgentStarted) if event.depth == 1]) == 2


async def test_values_of_a_program_are_variables_in_the_childs_kernel(tmp_path):
    def script(messages, info):
        del info
        returned = [part.content for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        if not returned:
            assert "- values: list, length 3\n- limit = 2" in first_prompt(messages)
            return cell("print([index for index, value in enumerate(values) if value > limit])")
        return ToolCallPart("final_result", {"response": eval(returned[0])})

    config = Config(workspace=tmp_path, mode="auto")
    async with Agent(config, model=ScriptedModel(script)) as agent:

        @agent_function(agent)
        async def above(values: list[int], limit: int = 2) -> list[int]:
            """The positions of the values above the limit."""

        assert await above([1, 3, 9]) == [1, 2]


PLAY = """
from fractions import Fraction
import sqlite3
log = sqlite3.connect(":memory:")  # no copy of it can be made but by a branch of the kernel
log.execute("create table moves (move text)")
numbers = [Fraction(4), Fraction(5), Fraction(6), Fraction(10)]

def play(move):
    a, sign, b = move.split()
    numbers.remove(Fraction(a)), numbers.remove(Fraction(b))
    numbers.append(eval(f"Fraction('{a}') {sign} Fraction('{b}')"))
    numbers.sort()
    log.execute("insert into moves values (?)", (move,))
    print(*numbers, "|", log.execute("select count(*) from moves").fetchone()[0], "moves")
"""
MOVES = {"": ["6 - 5", "10 - 4", "4 * 5"], "5 6 6": ["5 * 6", "6 + 6", "6 - 5"], "6 30": ["30 - 6", "30 / 6", "6 + 30"]}


def play(messages, info):
    """Proposes moves and judges, as the model of a search of the game of 24."""
    prompt = first_prompt(messages)
    outputs = [line for line in prompt.splitlines() if line.endswith(" moves")]
    numbers = outputs[-1].partition(" |")[0] if outputs else ""
    if "different next cells" in prompt:
        return ToolCallPart("hand_over", {"value": [f"play({move!r})" for move in MOVES.get(numbers, [])]})
    if "How promising" in prompt:
        score = 10 if numbers == "24" else 8 if numbers in MOVES else 1
        return ToolCallPart("hand_over", {"score": score, "reason": "seen", "done": " " not in numbers})
    assert not info.output_tools
    assert prompt.startswith("Go on with this task, in this kernel")
    return "I see no way."


async def test_a_search_of_a_live_kernel_runs_no_cell_twice_and_leaves_it_as_it_was(tmp_path):
    config = Config(workspace=tmp_path, mode="auto")
    async with Agent(config, model=ScriptedModel(play)) as agent:

        async def program():
            async with await agent.branch("the table") as table:
                await table.execute(PLAY)
                result = await search(agent, "Reach 24.", tree=LATS(exploration=0.1), root=table, keep=True)
                async with result.best.state as solved:
                    won = await solved.execute("print(numbers, [move for (move,) in log.execute('select * from moves')])")
                before = await table.execute("print(*numbers, log.execute('select count(*) from moves').fetchone()[0])")
                return result, won.text.strip(), before.text.strip(), agent.debug.kernel_holders

        events, ended = await read(agent.run_program(program))
    result, won, before, left = ended.output
    assert result.answer == "24 | 3 moves"
    assert won == "[Fraction(24, 1)] ['10 - 4', '5 * 6', '30 - 6']"
    assert before == "4 5 6 10 0"
    assert len(left) == 2, "the root, and the table"
    cells = [event.args["code"] for event in of_kind(events, ToolCallStarted) if event.tool_name == "execute_ipython_cell"]
    assert len(cells) == len(result.nodes) + 3, "one for each state, and the three above"
    simulated = [event for event in of_kind(events, AgentStarted) if event.description.startswith("simulates ")]
    assert len(simulated) == 2
    assert [node.status for node in result.nodes] == ["ok"] * 9
    steps = of_kind(events, StrategyProgress)
    assert [event.step for event in steps] == [*range(12), 11], "none, nine evaluations, two simulations, the end"
    assert {event.node.node_id: event.node.visits for event in steps if event.node} == {
        node.name: 1 + (node.simulation is not None) for node in result.nodes
    }
    assert (steps[-2].best, steps[-1].done) == (result.best.name, True)


SEARCH = (
    PLAY
    + """
from freeact_sub.strategies import LATS, search
result = await search(agent, "Reach 24.", tree=LATS(exploration=0.1), own_files=True, keep=True)
await agent.adopt(result.best.state, ["numbers"])
await result.best.state.close()
print(result.answer, numbers, len(result.nodes), log.execute("select count(*) from moves").fetchone()[0], *result.warnings)
"""
)


async def test_code_in_a_cell_searches_over_copies_of_its_own_kernel(tmp_path):
    def script(messages, info):
        if first_prompt(messages) != "root":
            return play(messages, info)
        return "done" if any(isinstance(part, ToolReturnPart) for part in messages[-1].parts) else cell(SEARCH)

    config = Config(workspace=tmp_path, mode="auto", kernel={"readable": [ROOT]})
    async with Agent(config, model=ScriptedModel(script)) as agent:
        events, result = await read(agent.run("root"))
        [returned] = [part for message in agent.history for part in message.parts if isinstance(part, ToolReturnPart)]
    assert (result.status, result.error) == ("completed", "")
    assert str(returned.content).strip() == "24 | 3 moves [Fraction(24, 1)] 9 0"
    assert len([event for event in of_kind(events, AgentStarted) if event.description.startswith("simulates ")]) == 2
    steps = of_kind(events, StrategyProgress)
    assert [event.step for event in steps] == [*range(12), 11]
    assert len({event.tool_call_id for event in steps} - {None}) == 1, "that of the cell"
    assert export_events(events, "html").count("<rect") == 1 + 9, "a session's report has the tree"


WRITES = "open('won', 'w').write('{}'); os.remove('data'); count += 1; print(count)"


def writes(messages, info):
    """Proposes cells that change variables and files; a child that simulates changes more of them."""
    prompt = first_prompt(messages)
    if "different next cells" in prompt:
        return ToolCallPart("hand_over", {"value": [WRITES.format(number) for number in range(2)]})
    if "How promising" in prompt:
        return ToolCallPart("hand_over", {"score": 5, "reason": "seen"})
    began = any(isinstance(part, ToolReturnPart) for part in messages[-1].parts)
    return "I see no way." if began else cell("open('simulated', 'w').close(); count += 1")


async def test_a_search_that_is_cancelled_at_any_event_leaves_no_process_mount_or_folder_and_all_as_it_was(make, tmp_path):
    """Odd ones cancel the whole run, even ones only the task that searches."""
    (tmp_path / "data").write_text("as before")
    searches, at, seen = [], 0, 0

    async def program():
        searches.append(asyncio.create_task(search(agent, "?", tree=LATS(simulations=1, branching=2), own_files=True)))
        try:
            return await searches[-1]
        except asyncio.CancelledError:
            if at % 2:
                raise

    def cancel(event):
        nonlocal seen
        seen += 1
        if seen == at:
            _ = run.cancel() if at % 2 else searches[-1].cancel()

    def there():
        mounts = Path(f"/proc/{pid}/mounts").read_text().count("overlay")
        folders = sum(len(names) for _, names, _ in os.walk(tempfile.gettempdir()))  # some may go meanwhile
        return len(psutil.Process().children(recursive=True)), folders, mounts

    async with make(writes, mode="auto", kernel={"spares": 0}) as agent:
        begun, _ = await read(agent.run_cell("import os; count = 1; print(os.getpid())"))
        pid = int(root_text(begun))
        run = agent.run_program(program)
        before = there()
        events, whole = await read(run, on_event=cancel)
        assert [node.output for node in whole.output.nodes] == ["2", "2"]
        for at in sample(range(2, len(events)), 8):
            run, seen = agent.run_program(program), 0
            _, ended = await read(run, on_event=cancel)
            assert ended.status == ("cancelled" if at % 2 else "completed"), (at, ended.error)
            assert agent.debug.kernel_holders == (agent.agent_id,)
            await eventually(lambda: all(now <= then for now, then in zip(there(), before, strict=True)))
            assert sorted(path.name for path in tmp_path.iterdir() if path.name != ".freeact") == ["data"], at
        left, _ = await read(agent.run_cell("print(count, os.getpid(), open('data').read())"))
    assert root_text(left).strip() == f"1 {pid} as before"


HOST = """
import asyncio, sys
from pathlib import Path
from freeact_sub import Agent, Config
from freeact_sub.strategies import LATS, Evaluation, Simulation, search
from freeact_sub.testing import ScriptedModel

WRITES = '''
import os, pathlib, subprocess
for name in "one", "two":
    pathlib.Path(name).write_text("new")
os.remove("data")
pathlib.Path("/dev/shm/{name}").write_text("shared")
subprocess.Popen(["sleep", "1000"])
'''

class Player:
    async def propose(self, node, n):
        return [WRITES.format(name=f"{sys.argv[2]}-{node.name}-{number}") for number in range(n)] if node.depth == 0 else ["1"]

    async def evaluate(self, node):
        return Evaluation(score=5)

    async def simulate(self, node):
        return Simulation(score=0.5)

async def main():
    config = Config(workspace=Path(sys.argv[1]), mode="auto", kernel={"spares": 0})
    async with Agent(config, model=ScriptedModel({})) as agent:

        async def program():
            tree = LATS(simulations=2, branching=2)
            found = await search(agent, "?", tree=tree, player=Player(), own_files=True, keep=True)
            return await agent.promote(found.best.state)

        async for event in agent.run_program(program):
            print(type(event).__name__, flush=True)
    print("the end", flush=True)

asyncio.run(main())
"""


async def test_a_search_whose_program_is_killed_at_any_event_leaves_nothing_and_the_files_as_before_or_as_promoted(tmp_path):
    mark = f"mark-{os.getpid()}"
    before, after = {"data": "d", "one": "1"}, {"one": "new", "two": "new"}

    async def killed_at(event):
        """Kills the program after this many events; returns how many there were, and what the next one finds."""
        workspace, temporary = (tmp_path / f"{event} {name}" for name in ("workspace", "t"))
        workspace.mkdir()
        temporary.mkdir()
        for name, text in before.items():
            (workspace / name).write_text(text)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", HOST, str(workspace), mark), stdout=asyncio.subprocess.PIPE
        )
        events = 0
        while events < event and await asyncio.wait_for(process.stdout.readline(), 120) not in (b"the end\n", b""):
            events += 1
        pids = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
        process.kill()
        await process.wait()
        await eventually(lambda: not any(map(is_running, pids)))
        sweep()
        recover(workspace)
        await eventually(lambda: not any(path.name.startswith("fa-") for path in Path(tempfile.gettempdir()).iterdir()))
        found = {path.name: path.read_text() for path in workspace.iterdir() if path.name != ".freeact"}
        assert str(workspace) not in Path("/proc/self/mountinfo").read_text()
        assert not [path for path in Path("/dev/shm").iterdir() if path.name.startswith(mark)]
        return events, found

    events, found = await killed_at(1000)
    assert found == after, "it came to its end"
    for event in sample(range(1, events), 2):
        _, found = await killed_at(event)
        assert found in (before, after), event
