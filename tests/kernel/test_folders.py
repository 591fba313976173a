"""What is left when everything was killed at once, and the sweep that removes it, and only that."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from support.elsewhere import CANNOT_FORK
from support.waiting import is_running, wait_until

from freeact_sub.system.private_folders import end_processes_of, make_folder, sweep

pytestmark = [pytest.mark.kernel, pytest.mark.skipif(CANNOT_FORK, reason="reads /proc")]

HOST = """
import asyncio, sys
from pathlib import Path
from freeact_sub.config.schema import KernelConfig
from freeact_sub.kernels import CellClock, CellOutputBuffer, KernelSpec
from freeact_sub.kernels.provider import make_provider

async def main():
    settings = KernelConfig(provider=sys.argv[1], spares=0)
    provider = make_provider(settings)
    spec = KernelSpec(owner_id="agent-1", python=sys.executable, workspace=Path.cwd(), environment=settings.environment())
    kernel = await provider.start(spec, None)
    code = "import subprocess; print(subprocess.Popen(['setsid', 'sleep', '1000']).pid)"
    async with kernel.execute(code, buffer := CellOutputBuffer(), CellClock(None)) as cell:
        await cell.reply()
    print(buffer.text, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("provider", ["local", "fork"])
def test_what_survives_a_kill_of_everything_is_swept_at_the_next_start(provider):
    before = set(Path(tempfile.gettempdir()).glob("fa-*"))
    with subprocess.Popen([sys.executable, "-c", HOST, provider], stdout=subprocess.PIPE, text=True) as host:
        daemon = int(host.stdout.readline())
        below = psutil.Process(host.pid).children(recursive=True)
        # the guard first, so that it cannot do its work
        for process in [*below, psutil.Process(host.pid)]:
            if process.pid != daemon:
                os.kill(process.pid, signal.SIGKILL)
        host.wait(120)
    wait_until(lambda: not any(is_running(process.pid) for process in below if process.pid != daemon))
    assert is_running(daemon)
    left = set(Path(tempfile.gettempdir()).glob("fa-*")) - before
    assert left
    assert set(sweep()) >= left
    wait_until(lambda: not is_running(daemon))
    assert not any(folder.exists() for folder in left)


def test_the_sweep_leaves_alone_what_is_in_use_or_not_ours(tmp_path):
    mine = make_folder()
    foreign = Path(tempfile.mkdtemp(prefix="fa-"))
    (foreign / "owner").write_text("not a number")
    empty = Path(tempfile.mkdtemp(prefix="fa-"))
    link = Path(tempfile.gettempdir()) / "fa-link"
    link.symlink_to(tmp_path)
    (tmp_path / "owner").write_text("999999999 1")
    try:
        assert sweep() == []
        assert all(folder.is_dir() for folder in (mine, foreign, empty, tmp_path))
    finally:
        link.unlink()
        for folder in (mine, foreign, empty):
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()


def test_a_process_number_that_is_used_again_is_not_mistaken():
    folder = make_folder()
    (folder / "owner").write_text(f"{os.getpid()} 1")
    assert sweep() == [folder]


async def test_only_processes_of_the_folder_itself_are_ended(tmp_path):
    mark = {"FA_FOLDER": f"{tmp_path}/fa-a"}
    other = {"FA_FOLDER": f"{tmp_path}/fa-ab"}
    processes = [await asyncio.create_subprocess_exec("sleep", "1000", env=os.environ | env) for env in (mark, other)]
    end_processes_of(tmp_path / "fa-a")
    assert await asyncio.wait_for(processes[0].wait(), 120) == -signal.SIGKILL
    assert processes[1].returncode is None
    processes[1].kill()
    await processes[1].wait()
