"""Code that cannot change what the wall keeps reads what to do instead."""

import pytest
from support.kernels import open_kernel, run_cell
from support.sandbox import NEEDS_A_WALL, PROVIDERS, sandboxed

from freeact_sub.kernels import AuditSettings
from freeact_sub.kernels.kernel import ADVICE

pytestmark = [pytest.mark.kernel, NEEDS_A_WALL]

TOLD = {
    "a package": "open('.venv/lib/python3.11/site-packages/new.py', 'w')",
    "a change": "open('.venv/pyvenv.cfg', 'a')",
    "a folder": "import os; os.mkdir('.venv/new')",
    "a move": "import os; os.rename('.venv', 'old')",
    "a tree": "import shutil; shutil.rmtree('.venv')",
    "a repository": "open('.git/config', 'a')",
    "a thread": "import threading\nt = threading.Thread(target=lambda: open('.venv/new', 'w')); t.start(); t.join()",
    "a cause": "try: open('.venv/new', 'w')\nexcept OSError as error: raise ValueError('no') from error",
    "!": "!pip install --no-index nothing",
    "! of a module": "!python -m pip install --no-index nothing",
    "%pip": "%pip install --no-index nothing",
    "%%bash": "%%bash\ntrue && pip install --no-index nothing || true",
    "subprocess": "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'pip', 'install', '--no-index', 'nothing'], capture_output=True)",
    "os.system": "import os; os.system('uv add nothing >/dev/null 2>&1')",
}
NOT_TOLD = {
    "an ordinary change": "open('new', 'w').close()",
    "an error": "open('nothing/new', 'w')",
    "a list": "!pip list",
    "another place": "!pip install --no-index --target libs nothing",
    "a word": "!echo pip",
    "nothing": "1",
}


async def tried(kind, mode, workspace, cells):
    (workspace / ".venv/lib/python3.11/site-packages").mkdir(parents=True)
    (workspace / ".venv/pyvenv.cfg").touch()
    (workspace / ".git").mkdir()
    (workspace / ".git/config").touch()
    provider, found = PROVIDERS[kind](), {}

    async def allow(method, params, clock):
        return {"allowed": True}

    try:
        async with open_kernel(
            provider, workspace, allow, audit=AuditSettings(writable=(workspace,)), **sandboxed(mode, workspace)
        ) as kernel:
            for name, code in cells.items():
                found[name] = (await run_cell(kernel, code)).text.count(ADVICE)
    finally:
        await provider.aclose()
    return found


@pytest.mark.parametrize("kind", PROVIDERS)
async def test_errors_and_failed_installs_say_what_to_do(kind, tmp_path):
    found = await tried(kind, "auto", tmp_path, TOLD | NOT_TOLD)
    assert {name: found[name] > 0 for name in TOLD} == dict.fromkeys(TOLD, True)
    assert {name: found[name] for name in NOT_TOLD} == dict.fromkeys(NOT_TOLD, 0)


async def test_a_kernel_without_a_wall_does_not_speak_of_one(tmp_path):
    cells = {
        "error": "import errno, os\nraise OSError(errno.EROFS, 'read-only')",
        "install": "!pip install --no-index nothing",
    }
    assert await tried("fork", "full", tmp_path, cells) == {"error": 0, "install": 0}


async def test_a_pool_that_the_wall_stops_says_which_start_method_works(tmp_path):
    provider = PROVIDERS["fork"]()
    try:
        async with open_kernel(provider, tmp_path, **sandboxed("auto", tmp_path)) as kernel:
            method = (
                "import multiprocessing\nwith multiprocessing.get_context({!r}).Pool(1) as pool: print(pool.map(abs, [-7]))"
            )
            told = (await run_cell(kernel, method.format("forkserver"))).text
            assert 'call multiprocessing.set_start_method("fork", force=True) first' in told
            assert (await run_cell(kernel, method.format("fork"))).text.strip() == "[7]"
    finally:
        await provider.aclose()
