"""Trials tell the truth, or a true reason why there is none: cells of one response, bounds, kernels that come back."""

import asyncio
import sys

import pytest
from support.agents import cell
from support.sandbox import NEEDS_A_WALL
from support.trials import ON, asking
from support.waiting import eventually_async

from freeact_sub import Agent, Config
from freeact_sub.calls import CodeAction
from freeact_sub.events import ApprovalRequest
from freeact_sub.testing import ScriptedModel

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(sys.platform != "linux", reason="kernels are branched on Linux only"),
    NEEDS_A_WALL,
]


async def both(workspace, decide):
    """Two cells in one response, the second after two others; `decide` gets both questions."""
    script = ["hello", [cell("zz = 7"), cell("print(zz + 1)")], "done"]
    async with Agent(Config(workspace=workspace, effects=ON), model=ScriptedModel(script)) as agent:
        await agent.run("first").result()
        run, open_ones, deciding = agent.run("second"), [], []
        async for event in run:
            if isinstance(event, ApprovalRequest) and isinstance(event.call, CodeAction):
                open_ones.append(event)
                if len(open_ones) == 2:
                    deciding.append(asyncio.create_task(decide(*open_ones)))
        await asyncio.gather(*deciding)
        assert (await run.result()).status == "completed"


async def test_a_cell_is_tried_after_the_cells_before_it(tmp_path):
    async def in_order(first, second):
        early = await asyncio.gather(first.effects_ready(), second.effects_ready())
        assert [each.status for each in early] == ["done", "refused"]
        assert early[1].reason == "the cell before it is not decided yet, and this one runs after it"
        first.approve()
        effects = await second.effects_ready()
        assert (effects.status, effects.cell, effects.output) == ("done", "ok", "8\n")
        assert await second.effects_ready() is effects
        second.approve()

    async def first_denied(first, second):
        first.deny()
        effects = await second.effects_ready()
        assert (effects.status, effects.cell) == ("done", "error")
        assert "NameError" in effects.output
        second.deny()

    async def first_changed(first, second):
        first.approve(code="zz = 8")
        assert (await second.effects_ready()).output == "9\n"
        second.deny()

    async def second_first(first, second):
        assert [change.name for change in (await first.effects_ready()).variables] == ["zz"]
        second.approve(code="zz = 7")  # the older trial of the first one is of another kernel from now on

        async def is_tried_anew():
            return not (await first.effects_ready()).variables

        await eventually_async(is_tried_anew)
        first.approve()

    for decide in (in_order, first_denied, first_changed, second_first):
        await both(tmp_path, decide)


async def test_a_bound_of_the_trial_is_no_error_of_the_cell(tmp_path):
    memory, size = "it needs more than 1 GiB of memory", "it writes a file of more than 1 GiB"
    cells = {
        "print('so far')\nx = bytearray(3 * 10**9)": (memory, "so far"),
        "import numpy as np\nx = np.ones(4 * 10**8)": (memory, ""),
        "try:\n    bytearray(3 * 10**9)\nexcept MemoryError:\n    raise ValueError('no room')": (memory, ""),
        "import mmap\nmmap.mmap(-1, 3 * 10**9, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)": (memory, ""),
        "open('large', 'wb').truncate(2**31)": (size, ""),
    }
    async with asking(tmp_path, *cells) as question:
        for code, (reason, output) in cells.items():
            request = await question()
            effects = await request.effects_ready()
            assert (effects.status, effects.reason, effects.cell) == ("stopped", reason, "interrupted"), code
            assert effects.output.strip() == output
            request.deny()
        assert await question() is None


async def test_a_kernel_whose_values_came_back_from_files_is_tried(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    workspace = tmp_path / "w"
    workspace.mkdir()
    config = Config(workspace=workspace, effects=ON)
    code, seen = "array[1] = 7; frame.loc[0, 'a'] = 8; print(array[:2], text[:2])", []

    async def tried(agent):
        async for event in agent.run("cell"):
            if isinstance(event, ApprovalRequest):
                if isinstance(event.call, CodeAction):
                    effects = await event.effects_ready()
                    seen.append((effects.status, effects.reason, effects.output))
                    event.deny()
                else:
                    event.approve()

    model = ScriptedModel([cell(code), "done"] * 4)
    async with Agent(config, model=model, session="new") as agent:
        kept = agent.session_id
        await agent.execute("import numpy as np, pandas as pd; array = np.arange(400_000)")
        await agent.execute("frame = pd.DataFrame({'a': np.arange(300_000)})")
        await agent.put(text=b"ab" * 200_000)
        await tried(agent)
        agent.mode = "plan"
        agent.mode = "ask"
        await tried(agent)
        await agent.branch(own_files=True)
        assert await agent.get("text") == b"ab" * 200_000
    other = ScriptedModel([cell(code), "done"] * 4)  # as `/model` does: another agent continues the session
    async with Agent(config, model=other, session=kept) as agent:
        await tried(agent)
        await tried(agent)
        assert (await agent.execute("print(array[1], int(frame.loc[0, 'a']))")).text.strip() == "1 0"
    assert seen == [("done", "", "[0 7] b'ab'\n")] * 4


THREADS = {
    "an event": ("e = threading.Event(); t = threading.Thread(target=e.wait, daemon=True); t.start()", True),
    "a queue": ("q = queue.Queue(); t = threading.Thread(target=lambda: q.get(), daemon=True); t.start()", True),
    "a simple queue": ("s = queue.SimpleQueue(); t = threading.Thread(target=lambda: s.get(), daemon=True); t.start()", True),
    "a pool": ("p = concurrent.futures.ThreadPoolExecutor(2); p.submit(int).result()", True),
    "a sleeper": ("t = threading.Thread(target=time.sleep, args=(600,), daemon=True); t.start()", True),
    "a timer": ("t = threading.Timer(600, print); t.start()", True),
    "one that computes": ("stop = []\ndef spin():\n    while not stop: pass\nt = threading.Thread(target=spin, name='spins'); t.start()", False),
}  # fmt: skip


async def test_threads_that_only_wait_do_not_refuse_trials(tmp_path):
    steps = ["import threading, queue, time, concurrent.futures"]
    steps += [step for code, _ in THREADS.values() for step in (code, "print('tried')")]
    async with asking(tmp_path, *steps, "stop.append(1)", "q.put(1); t = q.unfinished_tasks; q.join()") as question:
        (await question()).approve()
        for name, (_, is_tried) in THREADS.items():
            (await question()).approve()
            request = await question()
            effects = await request.effects_ready()
            if is_tried:
                assert (effects.status, effects.output) == ("done", "tried\n"), (name, effects)
            else:
                assert effects.status == "refused"
                assert effects.reason.endswith("in a branch: spins (of the cell In[8])"), effects.reason
            request.deny()
        (await question()).approve()
        (await question()).deny()
        assert await question() is None


TABLES = {
    "frame.loc[1, 'a'] = 9": ("a[1] = 2", "a[1] = 9"),
    "frame['c'] = 1": ("", "columns c"),
    "del frame['b']": ("columns b", ""),
    "frame.loc[0, 'b'] = 'w'": ("b[0] = x", "b[0] = w"),
    "frame.index = [5, 6, 7]": ("", "another index"),
    "frame = frame.sort_values('a', ascending=False, ignore_index=True)": (
        "a[0] = 1, b[0] = x, a[2] = 3",
        "a[0] = 3, b[0] = z, a[2] = 1 and 1 more",
    ),
    "array[0, 1] = 5": ("[0, 1] = 1.0", "[0, 1] = 5.0"),
    "series['k'] = -1": ("[k] = 1", "[k] = -1"),
    "large[3] = 1": ("", ""),
}


async def test_what_changes_in_a_small_frame_or_array_is_told(tmp_path):
    setup = (
        "import numpy as np, pandas as pd\nframe = pd.DataFrame({'a': [1, 2, 3], 'b': ['x', 'y', 'z']})\n"
        "array = np.arange(6.0).reshape(2, 3); array[1, 1] = np.nan; series = pd.Series([1], index=['k']); large = np.zeros(20_000)"
    )
    async with asking(tmp_path, setup, *TABLES) as question:
        (await question()).approve()
        for code, (before, after) in TABLES.items():
            request = await question()
            (change,) = (await request.effects_ready()).variables
            assert (change.before.endswith(before), change.after.endswith(after)) == (True, True), (code, change)

            request.deny()
        assert await question() is None
