"""A process that a cell forks ends where the cell ends, and does not answer for the kernel."""

import pytest
import pytest_asyncio
from support.elsewhere import CANNOT_FORK
from support.kernels import open_kernel, run_cell

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(CANNOT_FORK, reason="forked kernels"),
    pytest.mark.asyncio(loop_scope="module"),
]

HELPERS = """
import asyncio, ctypes, multiprocessing, os, subprocess, sys, threading
async def turn():
    await asyncio.sleep(0)
def code_of(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
def fork_and_note(into):
    pid = os.fork()
    if pid:
        into.append(code_of(pid))
    else:
        print("half")
"""

FORKS = {
    "falls off the end": ("if pid == 0: print('half')", "half", 0),
    "raises": ("if pid == 0: raise ValueError('in the half')", "ValueError: in the half", 1),
    "exits": ("if pid == 0: sys.exit(7)", "", 7),
    "exits with a text": ("if pid == 0: sys.exit('why it ends')", "why it ends", 1),
    "calls exit()": ("if pid == 0: exit()", "", 0),
    "shows": ("if pid == 0: display('shown')", "'shown'", 0),
    "writes in C": ("if pid == 0: ctypes.CDLL(None).printf(b'from C')", "from C", 0),
    "ends an awaiting cell": ("if pid == 0: print('half')\nelse: await turn()", "half", 0),
    "awaits": ("if pid == 0: await asyncio.Event().wait()", "Error", 1),
    "forks again": (
        "if pid == 0:\n    if os.fork() == 0: print('a quarter')\n    else: os.wait(); print('half')",
        "half",
        0,
    ),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kernel(shared_provider, tmp_path_factory):
    folder = tmp_path_factory.mktemp("work")
    async with open_kernel(shared_provider, folder) as kernel:
        await run_cell(kernel, HELPERS)
        yield kernel


@pytest.mark.parametrize("name", FORKS)
async def test_a_half_ends_with_its_cell_and_the_cell_goes_on(kernel, name):
    code, text, exit_code = FORKS[name]
    first, rest = ("await turn()\n", code) if "await" in code else ("", code)
    ran = await run_cell(kernel, f"{first}pid = os.fork()\n{rest}\nif pid: print('exit code', code_of(pid))\nNone")
    assert ran.status == "ok", ran.text
    assert f"exit code {exit_code}" in ran.text
    assert text in ran.text
    assert (await run_cell(kernel, "'next'")).text == "'next'\n"


async def test_the_value_of_a_cell_is_that_of_the_kernel(kernel):
    ran = await run_cell(kernel, "pid = os.fork()\nif pid: os.waitpid(pid, 0)\npid == 0")
    assert [output.data["text/plain"] for output in ran.outputs if hasattr(output, "execution_count")] == ["False"]
    assert "True" in ran.text


@pytest.mark.parametrize(
    "code",
    [
        "thread = threading.Thread(target=fork_and_note, args=(codes,)); thread.start(); thread.join()",
        "asyncio.get_running_loop().call_later(0.01, fork_and_note, codes)\nwhile not codes: await turn()",
        "async def task(): fork_and_note(codes)\nawait asyncio.create_task(task())",
        (
            "process = multiprocessing.get_context('fork').Process(target=print, args=('half',), kwargs={'flush': True})\n"
            "process.start(); process.join(); codes.append(process.exitcode)"
        ),
        (
            "async def main(): print('half', flush=True)\n"
            "process = multiprocessing.get_context('fork').Process(target=lambda: asyncio.run(main()))\n"
            "process.start(); process.join(); codes.append(process.exitcode)"
        ),
    ],
    ids=["thread", "timer", "task", "multiprocessing", "a loop of its own"],
)
async def test_processes_that_other_code_forks_end_as_well(kernel, code):
    ran = await run_cell(kernel, f"codes = []\n{code}\ncodes")
    assert (ran.status, sorted(ran.text.replace("[", " [").split())) == ("ok", ["[0]", "half"])


async def test_the_error_of_a_task_is_told_by_a_half_that_has_forked_itself(kernel):
    task = (
        "async def task():\n    pid = os.fork()\n    if pid: return code_of(pid)\n"
        "    if (pid := os.fork()) == 0: os._exit(0)\n    os.waitpid(pid, 0)\n    raise ValueError('in the half')\n"
        "print('exit code', await asyncio.create_task(task()))"
    )
    ran = await run_cell(kernel, task)
    assert (ran.status, "ValueError: in the half" in ran.text, "exit code 1" in ran.text) == ("ok", True, True), ran.text


async def test_text_that_waited_when_a_cell_forked_comes_once(kernel):
    ran = await run_cell(kernel, "print('before')\nctypes.CDLL(None).printf(b'C before')\nfork_and_note([])")
    assert (ran.text.count("before"), ran.text.count("half")) == (2, 1)


async def test_newer_pythons_do_not_warn_of_the_threads_of_the_kernel(kernel):
    ran = await run_cell(kernel, "codes = []; fork_and_note(codes); codes")
    assert "multi-threaded" not in ran.text
