"""What comes for a cell that has ended is shown in the next one; what a reply shows is shown as well."""

import asyncio

import pytest
from pydantic_ai.messages import ToolCallPart
from support.agents import cell, read, task
from support.kernels import open_kernel, run_cell
from support.waiting import THERE, eventually

from freeact_sub import Agent, Config
from freeact_sub.cells import CellError, DisplayData, ExecuteResult, StreamText
from freeact_sub.events import AgentFinished, CodeExecutionOutput
from freeact_sub.kernels.wire.client import AMONG, BETWEEN, EXITS, HELD_CHARS, NEXT, EarlierOutput
from freeact_sub.kernels.wire.output import CellOutputBuffer
from freeact_sub.testing import ScriptedModel

pytestmark = [pytest.mark.kernel, pytest.mark.asyncio(loop_scope="module")]

START = f"{THERE}\nimport threading\nloop, steps = asyncio.get_running_loop(), asyncio.Queue()\nfrom pathlib import Path\nsaid = Path('said').touch\n"

LATE = "async def work():\n    await there('go'); print('late', flush=True)\nkept = asyncio.create_task(work())"
MAKERS = {
    "task": "async def work():\n    await steps.get(); {say}; said()\nkept = asyncio.create_task(work())",
    "timer": "def work():\n    if steps.empty(): loop.call_later(0.01, work)\n    else: {say}; said()\nkept = loop.call_later(0.01, work)",
    "callback of a task": "kept = asyncio.create_task(steps.get()); kept.add_done_callback(lambda _: [{say}, said()])",
    "thread": "go = threading.Event()\ndef work():\n    go.wait(); {say}; said()\nkept = threading.Thread(target=work); kept.start()",
    "executor": "go = threading.Event()\ndef work():\n    go.wait(); {say}; said()\nkept = loop.run_in_executor(None, work)",
}
SAYINGS = {
    "print('said')": "said",
    "display({'text/plain': 'shown'}, raw=True)": "shown",
    "__import__('sys').stderr.write('written')": "written",
    "__import__('logging').getLogger('x').warning('logged')": "logged",
}


@pytest.mark.parametrize("say", SAYINGS)
@pytest.mark.parametrize("maker", MAKERS)
async def test_output_of_what_an_earlier_cell_made_is_in_the_cell_that_runs(shared_provider, tmp_path, maker, say):
    async with open_kernel(shared_provider, tmp_path) as kernel:
        made = await run_cell(kernel, START + MAKERS[maker].format(say=say))
        assert SAYINGS[say] not in made.text
        release = "go.set()" if "go" in MAKERS[maker] else "steps.put_nowait(1)"
        ran = await run_cell(kernel, f"{release}\nprint('own')\nawait there('said')")
        assert (ran.status, SAYINGS[say] in ran.text, "own" in ran.text) == ("ok", True, True), ran.text


async def test_output_between_two_cells_waits_for_the_next_one(shared_provider, tmp_path):
    async with open_kernel(shared_provider, tmp_path) as kernel:
        await run_cell(kernel, START + LATE)
        (tmp_path / "go").touch()
        await eventually(lambda: "late" in kernel.unread)
        assert (await run_cell(kernel, "print('own')")).text == f"{BETWEEN}late\nown\n"
        assert (await run_cell(kernel, "print('own')")).text == "own\n"


@pytest.mark.parametrize(
    "holder",
    ["kept = {task}", "kept = [{task}]", "kept = {{'a': {task}}}", "kept = {{{task}}}", "kept = asyncio.gather({task})"],
)
async def test_the_error_of_a_task_that_a_variable_holds_is_told_once(shared_provider, tmp_path, holder):
    async with open_kernel(shared_provider, tmp_path) as kernel:
        task = "asyncio.ensure_future(fail())"
        await run_cell(kernel, f"{START}async def fail(): raise ValueError('in the task')\n" + holder.format(task=task))
        first = await run_cell(kernel, "await asyncio.to_thread(int)")
        assert ("ValueError: in the task" in first.text, first.status) == (True, "ok")
        assert (
            "in the task"
            not in (await run_cell(kernel, "import gc; del kept; _ = gc.collect(); await asyncio.to_thread(int)")).text
        )


async def test_text_that_c_has_buffered_comes_with_its_cell(shared_provider, tmp_path):
    async with open_kernel(shared_provider, tmp_path) as kernel:
        assert (await run_cell(kernel, "import ctypes; ctypes.CDLL(None).printf(b'from C'); None")).text == "from C"
        assert (await run_cell(kernel, "print('own')")).text == "own\n"


async def test_an_error_that_was_asked_for_is_not_told_again(shared_provider, tmp_path):
    async with open_kernel(shared_provider, tmp_path) as kernel:
        code = "async def fail(): raise ValueError('in the task')\nkept = asyncio.ensure_future(fail())\n"
        ran = await run_cell(kernel, f"{START}{code}try: await kept\nexcept ValueError: print('caught')")
        assert ran.text == "caught\n"


REPLIES = {
    "import json": "",
    "json.dumps?": "Serialize ``obj``",
    "json.dumps??": "def dumps",
    "%pdoc json.dumps": "Serialize ``obj``",
    "%psource json.dumps": "def dumps",
    "%pinfo json": "JSON",
    "%pfile json": "JSON (JavaScript Object Notation)",
    "%page json.dumps": "function dumps",
    "%load_ext nothing_of_that_name": "No module named",
    "%load proposed.py": f"{NEXT}# %load proposed.py\nproposed = 1\n",
    "%recall 1": f"{NEXT}import json\n",
    "get_ipython().set_next_input('x = 2')": f"{NEXT}x = 2\n",
    "%edit proposed.py": "there is none. The file is",
    "get_ipython().payload_manager.write_payload({'source': 'strange'})": "asks for `strange`",
}


async def test_what_a_reply_shows_is_shown(shared_provider, tmp_path):
    (tmp_path / "proposed.py").write_text("proposed = 1\n")
    async with open_kernel(shared_provider, tmp_path) as kernel:
        for code, text in REPLIES.items():
            ran = await run_cell(kernel, code)
            assert text in ran.text, code
            assert ran.text or not text


@pytest.mark.parametrize("code", ["exit()", "quit()", "exit", "print('first'); exit()\nprint('last')", "1 + 1; quit(); 1/0"])
async def test_a_cell_that_ends_its_kernel_says_so_itself(shared_provider, tmp_path, code):
    async with open_kernel(shared_provider, tmp_path) as kernel:
        ran = await run_cell(kernel, code)
        assert (ran.status, EXITS in ran.text) == ("kernel_lost", True)
        assert kernel.lost_reason is not None


@pytest.mark.parametrize("code", ["import sys; sys.exit()", "exit(keep_kernel=True)", "raise SystemExit(3)"])
async def test_a_cell_that_ends_itself_leaves_the_kernel(shared_provider, tmp_path, code):
    async with open_kernel(shared_provider, tmp_path) as kernel:
        await run_cell(kernel, code)
        for number in range(5):
            assert (await run_cell(kernel, f"import asyncio; await asyncio.to_thread(int); {number}")).text == f"{number}\n"


def handed(earlier):
    buffer = CellOutputBuffer()
    earlier.hand_over(buffer)
    return buffer.text


async def test_held_output_is_bounded_and_says_what_is_missing():
    earlier = EarlierOutput()
    handed(earlier)
    for _ in range(3):
        earlier.add(StreamText(name="stdout", text="x" * (HELD_CHARS // 2)), None)
    assert f"[{HELD_CHARS // 2:,} more characters were left out]" in handed(earlier)
    assert handed(earlier) == ""


async def test_errors_and_values_of_earlier_cells_are_not_those_of_the_cell_that_runs():
    earlier, buffer = EarlierOutput(), CellOutputBuffer()
    earlier.hand_over(buffer)
    earlier.add(CellError(ename="E", evalue="no", traceback=("E: no",)), buffer)
    earlier.add(ExecuteResult(data={"text/plain": "1"}), buffer)
    shown = [await buffer.get() for _ in range(2)]
    assert shown == [StreamText(name="stderr", text=f"{AMONG}E: no\n"), DisplayData(data={"text/plain": "1"})]


async def test_output_of_programs_belongs_to_the_cell_that_runs_whoever_reads_it(provider, tmp_path):
    """The thread that takes answers of the host flushes the streams as well, at any moment."""
    async with open_kernel(provider, tmp_path) as kernel:
        for number in range(30):
            code = f"import os\nfor _ in range(5): _ = os.system('echo {number}')"
            async with asyncio.TaskGroup() as group:
                ran = group.create_task(run_cell(kernel, code))
                while not ran.done():
                    kernel.ask_about((("tool", f"{number}"),))
                    kernel.ask_about(())
                    await asyncio.wait({ran}, timeout=0.001)
            assert ran.result().text == f"{number}\n" * 5


ENDS = {
    "the agent goes on": [],
    "the kernel is reset": [ToolCallPart("reset_kernel", {})],
    "the kernel dies": [cell("import os; os._exit(1)")],
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("depth", [0, 1])
async def test_output_after_the_last_cell_is_told_at_the_end_of_the_run(tmp_path, depth, end):
    said, tasks = asyncio.Event(), set()

    async def wait(agent_id):
        kernel = await agent.debug.agents[agent_id].kernel.get()
        await eventually(lambda: "late" in kernel.unread)
        said.set()

    def on_event(event):
        if isinstance(event, CodeExecutionOutput) and not tasks:
            (tmp_path / "go").touch()
            tasks.add(asyncio.create_task(wait(event.agent_id)))

    turns = [[cell(START + LATE)], [said, *ENDS[end]], "done"] if ENDS[end] else [[cell(START + LATE)], [said, "done"]]
    script = {"child": turns, "root": [[task("child")], "done"] if depth else turns}
    async with Agent(Config(workspace=tmp_path), model=ScriptedModel(script)) as agent:
        events, _ = await read(agent.run("root"), on_event=on_event)
        if end == "the agent goes on" and not depth:
            result = await agent.run("again: nothing is said twice").result()
            assert result.warnings == ()
    [ended] = [event for event in events if isinstance(event, AgentFinished) and event.depth == depth]
    told = [warning for warning in ended.warnings if "late" in warning]
    in_cells = "".join(event.text for event in events if isinstance(event, CodeExecutionOutput))
    assert (len(told), "late" in in_cells) == ((0, True) if end == "the kernel dies" else (1, False))
