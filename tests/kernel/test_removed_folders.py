"""A cell may remove the folder in which it works, and the one for temporary files."""

import shutil

import pytest
from support.elsewhere import CANNOT_FORK
from support.kernels import no_host, open_kernel, run_cell, spec

from freeact_sub.kernels.kernel import AuditSettings

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(CANNOT_FORK, reason="a removed working directory has no name elsewhere"),
    pytest.mark.asyncio(loop_scope="module"),
]

LEAVE = "import os, subprocess, tempfile\nd = tempfile.mkdtemp(); os.chdir(d); os.rmdir(d)"
CELLS = {
    "print('shown')": "shown\n",
    "6 * 7": "42\n",
    "!echo bang": "bang\n",
    "subprocess.run(['echo', 'x'], capture_output=True).stdout": "b'x\\n'\n",
    "os.system('echo s')": "s\n",
    "%%bash\necho b": "b\n",
    "from IPython.display import HTML; display(HTML('<b>h</b>'))": "<IPython.core.display.HTML object>\n",
    "def f(): 'What it does.'\nf?": "What it does.",
    "import json, decimal; json.dumps(1)": "'1'\n",
    "pid = os.fork()\nif pid: print(os.waitpid(pid, 0)[1])": "0\n",
    "open('here', 'w')": "No such file or directory: 'here'",
    "open('../beside_it', 'w').close(); os.remove('../beside_it'); 'beside'": "'beside'\n",
    "os.chdir('/'); os.getcwd()": "'/'\n",
}


async def test_a_kernel_works_in_a_folder_that_is_gone(shared_provider, tmp_path):
    async with open_kernel(shared_provider, tmp_path) as kernel:
        await run_cell(kernel, LEAVE)
        for code, text in CELLS.items():
            assert text in (await run_cell(kernel, code)).text, code


async def test_a_kernel_whose_workspace_was_removed_works(shared_provider, tmp_path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with open_kernel(shared_provider, workspace) as kernel:
        await run_cell(kernel, "1")
        shutil.rmtree(workspace)
        assert (await run_cell(kernel, "import subprocess; subprocess.run(['echo', 'x'], capture_output=True).stdout")).text
        assert "bang\n" in (await run_cell(kernel, "!echo bang")).text


async def test_a_branch_of_a_kernel_in_a_folder_that_is_gone_works(provider, tmp_path):
    async with open_kernel(provider, tmp_path) as kernel:
        await run_cell(kernel, LEAVE + "; kept = 1")
        branch = await kernel.branch(spec(tmp_path), no_host)
        try:
            assert (await run_cell(branch, "kept")).text == "1\n"
            assert "bang\n" in (await run_cell(branch, "!echo bang")).text
        finally:
            await branch.aclose()


async def test_the_folder_for_temporary_files_is_there_again(shared_provider, tmp_path):
    async with open_kernel(shared_provider, tmp_path, audit=AuditSettings(writable=(tmp_path,), asked=())) as kernel:
        code = "import os, shutil, tempfile\nshutil.rmtree(os.environ['TMPDIR'], ignore_errors=True)"
        await run_cell(kernel, code)
        assert (await run_cell(kernel, "tempfile.TemporaryFile().close(); 'there'")).text == "'there'\n"
