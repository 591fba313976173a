"""`%kernel_undo` in kernels of our kernelspec: the kernel goes back to before a cell, at the same addresses."""

import os
import signal
import sys
from contextlib import asynccontextmanager
from types import SimpleNamespace

import psutil
import pytest
from jupyter_client import AsyncKernelManager
from support.chat_server import ChatCall, ChatServer, by_turn
from support.sandbox import NEEDS_A_WALL
from support.waiting import LOADED_MACHINE_SECONDS, WORKS_ON, eventually

from freeact_sub.kernels.forkserver import pasts, provisioner
from freeact_sub.kernels.forkserver.kernelspec import NAME, install_kernelspec

pytestmark = [pytest.mark.kernel, pytest.mark.skipif(sys.platform != "linux", reason="forked kernels")]
PAGE_BYTES = 4096


class FrontEnd:
    """What a page does with a kernel."""

    def __init__(self, manager):
        self.manager = manager
        self.client = manager.client()

    async def run(self, code):
        """The text and the status of a cell; the next one may be sent at once."""
        request, text = self.client.execute(code), ""
        while True:
            message = await self.client.get_iopub_msg(timeout=LOADED_MACHINE_SECONDS)
            content = message["content"]
            if message["parent_header"].get("msg_id") != request:
                continue
            text += content.get("text", "") + content.get("evalue", "") + content.get("data", {}).get("text/plain", "")
            if content.get("execution_state") == "idle":
                break
        return text.strip(), await self.reply(request)

    async def text(self, code):
        return (await self.run(code))[0]

    async def reply(self, request):
        return (await self.replies([request]))[0]

    async def replies(self, requests):
        found = {}
        while not found.keys() >= set(requests):
            message = await self.client.get_shell_msg(timeout=LOADED_MACHINE_SECONDS)
            found[message["parent_header"].get("msg_id")] = message["content"].get("status")
        return [found[request] for request in requests]

    async def typed(self, code, line):
        """The status of a cell that asks for a line."""
        request = self.client.execute(code)
        await self.client.get_stdin_msg(timeout=LOADED_MACHINE_SECONDS)
        self.client.input(line)
        return await self.reply(request)


@asynccontextmanager
async def front_end(folder, monkeypatch, wall):
    ends = []
    monkeypatch.setattr(provisioner, "atexit", SimpleNamespace(register=ends.append))
    install_kernelspec(folder, sys.executable, wall=wall)
    monkeypatch.setenv("JUPYTER_PATH", str(folder))
    manager = AsyncKernelManager(kernel_name=NAME)
    with open(folder / "kernel.log", "wb") as log:
        await manager.start_kernel(stdout=log, stderr=log)
    page = FrontEnd(manager)
    page.client.start_channels()
    try:
        await page.client.wait_for_ready(timeout=LOADED_MACHINE_SECONDS)
        yield page
    finally:
        page.client.stop_channels()
        await manager.shutdown_kernel(now=True)
        for end in ends:
            await end.__self__.aclose()


def below(pid):
    return {child.pid for child in psutil.Process(pid).children(recursive=True)}


@pytest.mark.parametrize("wall", ["none", pytest.param("auto", marks=NEEDS_A_WALL)])
async def test_a_kernel_goes_back_to_before_a_cell(tmp_path, monkeypatch, wall):
    async with front_end(tmp_path, monkeypatch, wall) as page:
        await page.run("import os, random, time; x, it = [1], iter(range(9)); random.seed(3); next(it); print('kept')")
        first = page.manager.provisioner.pid
        drawn = await page.text("x.append(2); [next(it), random.random()]")
        assert await page.run("x.clear()") == ("", "ok")
        assert await page.run("%kernel_undo 2") == ("The kernel goes back to before cell 2.", "ok")
        # at once, as a program does
        assert await page.text("x, len(In), [next(it), random.random()] ") == f"([1], 3, {drawn})"
        assert page.manager.provisioner.pid != first
        assert await page.manager.is_alive()
        assert not psutil.pid_exists(first)

        assert await page.run("%kernel_undo") == ("The kernel goes back to before cell 2.", "ok")
        assert await page.text("x, next(it)") == "([1], 1)"
        assert await page.run("%kernel_undo 2") == ("The kernel goes back to before cell 1.", "ok")
        assert await page.text("'x' in globals()") == "False"

        assert await page.typed("line = input()", "hello") == "ok"
        assert await page.text("line") == "'hello'"
        waiting = page.client.execute(f"print(1); {WORKS_ON}")
        while (await page.client.get_iopub_msg(timeout=LOADED_MACHINE_SECONDS))["msg_type"] != "stream":
            pass
        await page.manager.interrupt_kernel()
        assert await page.reply(waiting) == "error"
        assert page.client.hb_channel.is_beating()

        await page.run("None")  # what is sent right behind an error is aborted
        sent = [page.client.execute(code) for code in ("y = input()", "%kernel_undo", "y = 6")]
        await page.client.get_stdin_msg(timeout=LOADED_MACHINE_SECONDS)
        page.client.input("5")
        assert await page.replies(sent) == ["ok", "ok", "aborted"]
        assert await page.text("'y' in globals()") == "False"


async def test_what_cannot_be_undone_is_refused_by_name_and_nothing_stays(tmp_path, monkeypatch):
    async with front_end(tmp_path, monkeypatch, "none") as page:
        server = psutil.Process(page.manager.provisioner.pid).ppid()
        wrong = {
            "%kernel_undo": "there are 0 cells to go back",
            "%kernel_undo 2": "there are 1 cells to go back",
            "%kernel_undo x": "x is not a number of cells",
        }
        for line, why in wrong.items():
            text, status = await page.run(line)
            assert (why in text, status) == (True, "error")
        await page.run("import threading; over = threading.Event(); mine = threading.Thread(target=over.wait, name='mine')")
        await page.run("mine.start()")
        await page.run("1")
        text, status = await page.run("%kernel_undo")
        assert (status, "before cell 6" in text, text.endswith("in a branch: mine")) == ("error", True, True)
        # a pipe that is closed here is closed: a past holds none
        code = "import subprocess; over.set(); mine.join(); cat = subprocess.Popen(['cat'], stdin=subprocess.PIPE)"
        assert await page.run(code) == ("", "ok")
        assert await page.text("cat.stdin.close(); cat.wait()") == "0"
        for _ in range(pasts.MOST + 3):
            await page.run("None")
        listed = (await page.text("%kernel_undo ?")).splitlines()
        assert len(listed) == pasts.MOST
        assert all(line.endswith(" MB") for line in listed)
        number = listed[-3].split()[2].rstrip(":")  # the list is made by a cell too
        assert await page.run("%kernel_undo 4") == (f"The kernel goes back to before cell {number}.", "ok")
        kernel, kept = page.manager.provisioner.pid, pasts.MOST - 4
        await eventually(lambda: len(below(server)) == 1 + kept)
        await page.manager.restart_kernel(now=True)
        await page.client.wait_for_ready(timeout=LOADED_MACHINE_SECONDS)
        await eventually(lambda: below(server) == {page.manager.provisioner.pid})
        await page.run("x = 1")
        await page.run("%kernel_undo")
        os.kill(page.manager.provisioner.pid, signal.SIGKILL)
        await eventually(lambda: not below(server))
        assert kernel not in below(os.getpid())


async def test_a_notebook_with_agents_goes_back_as_well(tmp_path, monkeypatch):
    async with front_end(tmp_path, monkeypatch, "none") as page:
        await page.run("%load_ext freeact_sub.notebook")
        server, hosts = psutil.Process(page.manager.provisioner.pid).ppid(), below(page.manager.provisioner.pid)
        await page.run("x = 1")
        undo = page.client.execute("%kernel_undo")
        while (await page.client.get_iopub_msg(timeout=LOADED_MACHINE_SECONDS))["msg_type"] != "stream":
            pass
        after = page.client.execute("None")  # while the agents end
        undone, answered = await page.replies([undo, after])
        assert undone == "ok"
        assert answered in ("aborted", "ok")
        assert hosts
        assert not hosts & below(server)
        code = "from freeact_sub.notebook import magic; magic._loaded[get_ipython()]._host().is_lost, 'x' in globals()"
        assert await page.text(code) == "(False, False)"


MINE = """
%load_ext freeact_sub.notebook
import contextvars, os, socket, sqlite3, threading
whose, own, heard = contextvars.ContextVar("whose"), (os.open, socket.getaddrinfo, get_ipython().db), []
whose.set("mine")
numbers, rows, home, folder, kernel = iter(range(9)), [1], os.environ.get("HOME"), os.getcwd(), os.getpid()
next(numbers)
"""
WORK = """
rows.append(next(numbers)); made = (n for n in "abc"); next(made)
log = open("log.txt", "w+"); log.write("begun"); connection = sqlite3.connect(":memory:"); lock = threading.Lock(); lock.acquire()
def mine(): return rows
whose.set("the agent's"); get_ipython().events.register("post_execute", lambda: heard.append(1))
"""
STUCK = "import builtins; del builtins.agent, sys.modules['freeact_guest.halves']"


async def test_the_whole_copy_becomes_the_kernel_and_that_can_be_undone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    works = by_turn([ChatCall("execute_ipython_cell", {"code": WORK})], ["done"])
    sticks = by_turn([ChatCall("execute_ipython_cell", {"code": f"import sys; {STUCK}"})], ["done"])

    def script(request):
        return (sticks if "Stick." in str(request["messages"]) else works)(request)

    async with ChatServer(script) as model, front_end(tmp_path, monkeypatch, "none") as page:
        await page.run(MINE)
        first = page.manager.provisioner.pid
        server, options = psutil.Process(first).ppid(), f"--model openai-chat:local --base-url {model.base_url} --yes"
        await page.run(f"%%agent {options} --name walled\nWork.")
        text, status = await page.run("%agent_adopt --whole --yes")
        assert ("which no process can leave" in text, status) == (True, "error")
        await page.run(f"%%agent {options} --sandbox off\nWork.")
        await page.run("other = 1")
        text, status = await page.run("%agent_adopt --whole --yes")
        assert ("you have changed other since" in text, status) == (True, "error")
        await page.run("del other")
        await page.run("%agent_close walled")
        # one that cannot be the kernel costs nothing
        await page.run(f"%%agent {options} --sandbox off --name stuck\nStick.")
        text, status = await page.run("%agent_adopt --whole --yes --name stuck")
        assert ("cannot leave what it had" in text, status) == (True, "error")
        assert await page.text("rows") == "[1]"
        await page.run("%agent_close stuck")
        said = await page.run("%agent_adopt --whole --yes")
        assert said == ("The copy becomes this kernel; %kernel_undo goes back to before.", "ok")
        # nothing was pickled
        seen = "rows, next(made), next(numbers), lock.locked(), mine() is rows, log.write('!'), [*connection.execute('select 1')]"
        assert await page.text(seen) == "([1, 1], 'b', 2, True, True, 1, [(1,)])"
        # and nothing of an agent's kernel is left
        left = "'agent' in dir(__builtins__), os.environ.get('HOME') == home, os.getcwd() == folder, os.getpid() == kernel"
        taken = "own == (os.open, socket.getaddrinfo, get_ipython().db), whose.get(), len(heard) > 1"
        assert await page.text(f"{left}, {taken}") == '(False, True, True, False, True, "the agent\'s", True)'
        assert await page.text("1/0") == "division by zero"
        await page.run("None")  # what is sent right behind an error is aborted
        assert await page.typed("line = input()", "hello") == "ok"
        waiting = page.client.execute(f"print(1); {WORKS_ON}")
        while (await page.client.get_iopub_msg(timeout=LOADED_MACHINE_SECONDS))["msg_type"] != "stream":
            pass
        await page.manager.interrupt_kernel()
        assert await page.reply(waiting) == "error"
        await page.run("None")
        await page.run(f"%%agent {options}\nWork.")  # the next agent has a copy of this one
        assert await page.text("line, rows") == "('hello', [1, 1])"
        await page.run("%kernel_undo 10")
        assert await page.text("rows, 'made' in globals(), os.getpid() == kernel") == "([1], False, False)"
        await page.run(f"%%agent {options} --sandbox off\nWork.")
        await page.run("%agent_adopt --whole --yes")
        await page.run("%kernel_undo ?")
        os.kill(page.manager.provisioner.pid, signal.SIGKILL)
        await eventually(lambda: not below(server))
