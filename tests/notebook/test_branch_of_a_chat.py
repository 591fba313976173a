"""`/branch` in a chat: the agent works on a copy of the kernel of a notebook that is open, and can be stopped."""

import asyncio
import os
import signal

import pytest
from jupyter_client import AsyncKernelClient, AsyncKernelManager
from support.chat_server import ChatCall, ChatServer
from support.waiting import LOADED_MACHINE_SECONDS, WORKS_ON, eventually, turns, until_there

from freeact_sub.acp.notebooks import NotebookTask, Outputs
from freeact_sub.errors import FreeactError

pytestmark = pytest.mark.kernel


def script(request):
    last = request["messages"][-1]
    if last["role"] == "tool":
        return ["It is ", str(last["content"])]
    code = (
        f"open('begun', 'w').close(); {WORKS_ON}" if "Wait" in str(last["content"]) else "rows.append(2); print(sum(rows))"
    )
    return [ChatCall("execute_ipython_cell", {"code": code})]


async def lost(task):
    with pytest.raises(FreeactError, match="kernel has ended"):
        await task.run("auto", "openai-chat:local")


async def test_a_chat_neither_stops_nor_aborts_the_cells_of_the_user(tmp_path):
    manager = AsyncKernelManager()
    await manager.start_kernel(cwd=str(tmp_path))
    page, chat = manager.client(), AsyncKernelClient(connection_file=manager.connection_file)
    chat.load_connection_file()
    try:
        for client in (page, chat):
            client.start_channels()
            await client.wait_for_ready(timeout=LOADED_MACHINE_SECONDS)
        mine = asyncio.create_task(Outputs(page).of(f"open('begun', 'w').close()\n{until_there('go')}\nprint('mine')"))
        await eventually((tmp_path / "begun").exists)
        queued = Outputs(chat)
        fails = asyncio.create_task(queued.of("1/0"))
        await turns()
        queued.interrupt()  # it is not its turn
        (tmp_path / "go").touch()
        assert "mine" in await mine
        behind = await Outputs(page).of("print('behind')")
        assert "ZeroDivisionError" in await fails
        assert "behind" in behind
    finally:
        for client in (page, chat):
            client.stop_channels()
        await manager.shutdown_kernel(now=True)


async def test_a_chat_works_on_a_copy_of_the_notebooks_kernel(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    (tmp_path / "runtime").mkdir()
    with pytest.raises(FreeactError, match=r"which notebook"):
        NotebookTask(tmp_path, "Sum the rows.")
    with pytest.raises(FreeactError, match=r"no kernel of n\.ipynb runs here"):
        await NotebookTask(tmp_path, "n.ipynb Sum").run("auto", "openai-chat:local")
    async with ChatServer(script) as server:
        more = {"JPY_SESSION_NAME": str(tmp_path / "n.ipynb"), "FREEACT_BASE_URL": server.base_url}
        manager = AsyncKernelManager(connection_file=str(tmp_path / "runtime" / "kernel-1.json"))
        await manager.start_kernel(env=os.environ | more, cwd=str(tmp_path))
        page = manager.client()
        page.start_channels()
        try:
            await page.wait_for_ready(timeout=LOADED_MACHINE_SECONDS)
            await Outputs(page).of("rows = [1, 3]")
            told = await NotebookTask(tmp_path, "n.ipynb Sum the\n$rows.").run("auto", "openai-chat:local")
            mine = await Outputs(page).of("print(rows)")
            taken = await Outputs(page).of("%agent_adopt rows --name chat --yes\nprint(rows)")
            waits = NotebookTask(tmp_path, "n.ipynb Wait.")
            waiting = asyncio.create_task(waits.run("auto", "openai-chat:local"))
            await eventually((tmp_path / "begun").exists)
            waits.cancel()
            stopped = await waiting
            (tmp_path / "begun").unlink()
            async with asyncio.TaskGroup() as group:
                group.create_task(lost(NotebookTask(tmp_path, "n.ipynb Wait.")))
                await eventually((tmp_path / "begun").exists)
                os.kill(manager.provisioner.pid, signal.SIGKILL)
        finally:
            page.stop_channels()
            await manager.shutdown_kernel()
    assert "It is 6" in told
    assert "rows: list 2 [1, 3] -> list 3 [1, 3, 2]\n%agent_adopt rows --name chat takes it over" in told, told
    assert mine.strip() == "[1, 3]"
    assert "[1, 3, 2]" in taken
    assert "cancelled" in stopped
