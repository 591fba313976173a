"""Trials tell the truth, or a true reason why there is none: cells of one response, bounds, kernels that come back."""

import asyncio

import pytest
from support.agents import cell
from support.elsewhere import CANNOT_FORK
from support.sandbox import NEEDS_A_WALL
from support.trials import ON, asking
from support.waiting import eventually_async

from freeact_sub import Agent, Config
from freeact_sub.calls import CodeAction
from freeact_sub.events import ApprovalRequest
from freeact_sub.show.effect_lines import change_lines
from freeact_sub.testing import ScriptedModel

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(CANNOT_FORK, reason="kernels are branched on Linux only"),
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


async def test_a_cell_that_hinders_the_comparison_does_not_seem_to_change_nothing(tmp_path):
    stops = "import os, signal\nfor p in open(f'/proc/self/task/{os.getpid()}/children').read().split(): os.kill(int(p), 19)"
    no_files = "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (9, 9))"
    cells = {
        "v = {'a': 1}": "v: dict 1 {'a': 1}",
        f"v['a'] = 2\n{stops}": "v: dict 1 {'a': 1} -> dict 1 {'a': 2}",
        f"v['a'] = 2\n{no_files}": "…: variables -> not compared",
    }
    async with asking(tmp_path, *cells) as question:
        for code, line in cells.items():
            request = await question()
            effects = await request.effects_ready()
            assert line in [found.text for found in change_lines(effects)], code
            (request.approve if code.startswith("v =") else request.deny)()


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


CHANGES = {
    "frame.loc[1, 'a'] = 9; frame['c'] = 1": ["frame: column 'c' new; 1 cell changed in 1 column: a[1] 2 to 9"],
    "frame = pd.concat([frame, frame]); large[3] = 1": [
        "frame: 3 rows more (3 to 6)",
        "large: 1 of 20,000 elements changed, by at most 1: [3] 0.0 to 1.0",
    ],
    "series['k'] = -1; names['b'].append(3); point.x = 2": [
        "names: key 'b' [1, 2] to [1, 2, 3]",
        "point: field x 1 to 2",
        "series: 1 value changed: ['k'] 1 to -1",
    ],
    "huge = huge + 1": ["huge: too large to compare: 5,000,000 elements"],
    "import os\ntry: os.wait()\nexcept ChildProcessError: names['none'] = 0": ["names: key 'none' new"],
    "import os, signal\nos.kill(int(open('/proc/thread-self/children').read()), 9); names['c'] = 1": [
        "names: dict 2 {'a': 1, 'b': [1, 2]} -> dict 3 {'a': 1, 'b': [1, 2], 'c': 1}"
    ],
}


async def test_what_differs_in_a_value_is_told_in_a_sentence(tmp_path):
    setup = (
        "import numpy as np, pandas as pd, types\nframe = pd.DataFrame({'a': [1, 2, 3], 'b': ['x', 'y', 'z']})\n"
        "series = pd.Series([1], index=['k']); large, huge = np.zeros(20_000), np.zeros(5_000_000); names = {'a': 1, 'b': [1, 2]}\n"
        "class Point: pass\npoint = Point(); point.x = 1"
    )
    async with asking(tmp_path, setup, *CHANGES) as question:
        (await question()).approve()
        for code, told in CHANGES.items():
            request = await question()
            effects = await request.effects_ready()
            assert [line.text for line in change_lines(effects)] == told, (code, effects)
            request.deny()
        assert await question() is None
