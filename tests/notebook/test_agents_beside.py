"""The agents of `%%agent` cells are in a process beside the kernel, and the user's cells do not wait for them."""

import asyncio
import os
import time
from pathlib import Path

import pytest
from notebook_kernel import LIMIT_SECONDS, NotebookCell, notebook_kernel, until_it_is_a_persons_cell
from support.chat_server import ChatCall, ChatServer, by_turn
from support.waiting import LOADED_MACHINE_SECONDS, eventually, is_running, until_there

pytestmark = pytest.mark.kernel

MINE = """
%load_ext freeact_sub.notebook
import asyncio, os, subprocess
import pandas as pd
df, x, y = pd.DataFrame({"a": [1]}), 1, 1
def host():
    command = ["ps", "--ppid", str(os.getpid()), "-o", "pid=,args="]
    children = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    return " ".join(child.split()[0] for child in children if "freeact_sub.notebook.host" in child)
"""
SLOW = f"""
import time
begun = time.time()
print("working")
{until_there("go")}
df["c"] = 1
x = y = 5
"""
SEARCH = """
import os
first, rest = "{first}"[::-1].encode(), "{rest}"
found = 0
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
    for line in maps.read().splitlines():
        start, end = (int(number, 16) for number in line.split()[0].split("-"))
        if "rw" not in line.split()[1] or end - start > 1 << 28:
            continue
        try:
            memory.seek(start)
            data = memory.read(end - start)
        except OSError:
            continue
        at = data.find(first)
        while at >= 0:
            after = data[at + len(first) : at + len(first) + len(rest)]
            found += after[::-1] == rest.encode()
            at = data.find(first, at + 1)
        del data
print("FOUND", found, os.environ.get("OPENAI_API_KEY"))
"""
KEY = ("sk-a0b1c2d3e4f5g6h7", "i8j9k0l1m2n3o4p5")


def cell(code):
    return [ChatCall("execute_ipython_cell", {"code": code})]


def threads_of(pid):
    """The threads of a process besides its first one: while there are any, its parent does not hear of its end."""
    try:
        return os.listdir(f"/proc/{pid}/task")[1:]
    except FileNotFoundError:
        return []


async def interrupted_wait(notebook):
    """Interrupts a cell that waits for the agent, which goes on."""
    waiting = notebook.send("print('waits')\n%agent_wait")
    page = NotebookCell()
    reading = asyncio.create_task(notebook.ended(waiting, cell=page))
    await page.wait_for(lambda page: "waits" in page.text)
    await notebook.interrupt()
    return await reading


async def test_the_users_cells_do_not_wait_for_the_agent(tmp_path):
    script = by_turn(cell(SLOW), ["done"], cell(SLOW), cell(SLOW), ["not reached"])
    async with ChatServer(script) as server, notebook_kernel(tmp_path) as notebook:
        await notebook.run(MINE)
        options = f"--model openai-chat:local --base-url {server.base_url} --yes"
        async with notebook.running(f"%%agent {options}\nWork.", cell_id="first") as page:
            await page.wait_for(lambda page: "working" in page.html)
            await until_it_is_a_persons_cell()
            mine = notebook.send("x = 'mine'\nprint(list(df.columns), x)")
        mine = await notebook.ended(mine)
        assert "done" not in page.html
        assert "%agent_wait waits for it, %agent_stop stops it" in page.text
        Path(tmp_path, "go").touch()
        waited = await notebook.run("%agent_wait")
        all_of_it = await notebook.run("%agent_adopt --yes")
        mixed = await notebook.run("print(list(df.columns), x, y)")
        named = await notebook.run("%agent_adopt x --yes\nprint(x)")
        Path(tmp_path, "go").unlink()
        async with notebook.running("%%agent\nAgain.", cell_id="second") as second:
            await second.wait_for(lambda page: "working" in page.html)
            await until_it_is_a_persons_cell()
            after = notebook.send("1 + 1")
        await notebook.ended(after)
        interrupted = await interrupted_wait(notebook)
        stopped = await notebook.run("%agent_stop\nprint('stopped')")
        idle = await notebook.run("%agent_stop")
        async with notebook.running("%%agent\nA third time.", cell_id="third") as third:
            await third.wait_for(lambda page: page.html.count("working") > 1)  # in the code, and below it
            await notebook.interrupt()
            interrupted_at = time.monotonic()
        seconds = time.monotonic() - interrupted_at
        await notebook.run("%agent_wait")
    assert page.reply["status"] == waited.reply["status"] == stopped.reply["status"] == "ok"
    assert "goes on beside your cells" not in page.text
    assert mine.text.strip() == "['a'] mine"
    assert "df</td><td>pandas.DataFrame 1 x 1</td><td>pandas.DataFrame 1 x 2" in page.html
    assert "Not taken over, for you have changed it as well since: x (%agent_adopt x takes the agent's)" in all_of_it.text
    assert mixed.text.strip() == "['a', 'c'] mine 5"
    assert named.text.strip().endswith("5")
    assert "cancelled" in second.html
    assert "No agent is at work" in idle.text
    assert interrupted.reply["status"] == "error"
    assert third.outputs[-1]["traceback"] == ["interrupted: the run was cancelled"]
    assert third.html.index("the run was cancelled") < third.html.index("<td>begun</td>")
    assert seconds < LOADED_MACHINE_SECONDS


async def test_no_key_is_in_a_copy_and_the_process_ends_with_the_kernel(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "".join(KEY))
    monkeypatch.setenv("FREEACT_MODEL", "openai-chat:local")
    first = by_turn(cell(SEARCH.format(first=KEY[0][::-1], rest=KEY[1][::-1])), ["done"])
    second = by_turn(cell("import os; print('PID', os.getpid())"), ["done"])

    def script(request):
        return (second if "Anew." in str(request["messages"]) else first)(request)

    async with ChatServer(script) as server, notebook_kernel(tmp_path) as notebook:
        await notebook.run(MINE)
        options = f"--base-url {server.base_url} --yes --sandbox off"
        host = int((await notebook.run("print(host())")).text)
        await eventually(lambda: "jiter" in Path(f"/proc/{host}/maps").read_text())  # it has loaded the model's client
        found = await notebook.run(f"%%agent {options}\nSearch.")
        assert server.headers[0]["authorization"] == f"Bearer {''.join(KEY)}"
        os.kill(host, 9)
        await eventually(lambda: not is_running(host) and not threads_of(host))
        lost = await notebook.run(f"%%agent {options}\nAnew.")
        anew = int((await notebook.run("print(host())")).text)
        copy = int(lost.html.split("PID ")[1].split("\n")[0].split("<")[0])
        assert is_running(copy)
        os.kill(notebook.manager.provisioner.pid, 9)
        await eventually(lambda: not is_running(anew) and not is_running(copy))
    assert "FOUND 0 None" in found.html, found.html[-2000:]
    assert "The process of the agents has ended" in lost.text
    assert anew != host


async def test_a_question_in_a_line_of_text_waits_for_a_cell_that_waits_for_the_agent(tmp_path):
    script = by_turn(cell(SLOW), cell("print('second', 6 * 7)"), ["done"])
    async with ChatServer(script) as server, notebook_kernel(tmp_path) as notebook:
        await notebook.run(MINE)
        options = f"--model openai-chat:local --base-url {server.base_url} --mode ask --sandbox off --questions input"
        async with notebook.running(f"%%agent {options}\nWork.", answer=lambda _: "y", cell_id="first") as page:
            await page.wait_for(lambda page: "working" in page.html)
            await until_it_is_a_persons_cell()
            mine = notebook.send("x = 'mine'")
        await notebook.ended(mine)
        Path(tmp_path, "go").touch()
        async with asyncio.timeout(LIMIT_SECONDS):
            while len(server.requests) < 2:  # and its answer is the cell that is asked about
                await notebook.run("None", answer=False)
        asked = len(notebook.asked)
        waited = await notebook.run("%agent_wait", answer=lambda _: "y")
    assert asked == 1
    assert waited.reply["status"] == "ok"
    assert "second" in notebook.asked[-1]
    assert len(notebook.asked) == 2
    for shown in (page, waited):  # a page that was loaded again has only the cell that waits
        assert "second 42" in shown.html
        assert "done" in shown.html
