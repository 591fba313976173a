"""The kernel of `freeact-sub kernelspec install`: a person's own notebook, in which the lines of docs/notebook.md work."""

import os
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest
from jupyter_client import AsyncKernelManager
from notebook_kernel import LIMIT_SECONDS, NotebookKernel
from support.chat_server import ChatCall, ChatServer, by_turn
from support.sandbox import NEEDS_A_WALL

from freeact_sub.kernels.forkserver import provisioner

TRIED = """
def tried(action):
    try:
        return action() and "done"
    except OSError as error:
        return type(error).__name__
import socket
print("own", tried(lambda: open({outside!r}, "a")), tried(lambda: socket.create_connection(("127.0.0.1", {port}), 5)))
"""


@pytest.mark.kernel
@NEEDS_A_WALL
async def test_the_installed_kernel_is_a_persons_own_and_agents_work_in_it(tmp_path, monkeypatch):
    command = (sys.executable, "-m", "freeact_sub", "kernelspec", "install", "--prefix", str(tmp_path))
    subprocess.run(command, check=True, capture_output=True)
    ends, work = [], tmp_path / "work"
    work.mkdir()
    monkeypatch.setattr(provisioner, "atexit", SimpleNamespace(register=ends.append))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share/jupyter"))
    listening = socket.create_server(("127.0.0.1", 0))
    code = TRIED.format(outside=str(tmp_path / "outside"), port=listening.getsockname()[1])
    async with ChatServer(by_turn([ChatCall("execute_ipython_cell", {"code": code})], ["done"])) as server:
        manager = AsyncKernelManager(kernel_name="freeact")
        with open(tmp_path / "kernel.log", "wb") as log:
            await manager.start_kernel(stdout=log, stderr=log, cwd=str(work), env=dict(os.environ))
        client = manager.client()
        client.start_channels()
        try:
            await client.wait_for_ready(timeout=LIMIT_SECONDS)
            notebook = NotebookKernel(manager, client)
            own = await notebook.run(f"%load_ext freeact_sub.notebook\n{code}")
            agents = await notebook.run(f"%%agent --mode auto --model openai-chat:a --base-url {server.base_url}\nTry.")
            await notebook.run("%agent_close")
        finally:
            client.stop_channels()
            await manager.shutdown_kernel(now=True)
            for end in ends:
                await end.__self__.aclose()
            listening.close()
    assert "own done done" in own.text
    assert agents.reply["status"] == "ok", agents.text
    assert "own done" not in agents.html
    assert "own " in agents.html
    assert "Error" in agents.html.split("own ")[-1]
