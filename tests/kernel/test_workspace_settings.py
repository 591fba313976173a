"""What the next start would obey cannot be written by a walled kernel, also where it did not exist before."""

import pytest
from support.kernels import PROVIDERS, open_kernel, run_cell

from freeact_sub.config.schema import KernelConfig
from freeact_sub.kernels.wall.sandbox import policy_for, support

pytestmark = [pytest.mark.kernel, pytest.mark.skipif(not support().view, reason="no mount namespaces here")]

TRY = """
import os
def tried(work):
    try:
        work()
    except OSError as error:
        return type(error).__name__
for work in (
    lambda: open('.freeact/permissions.toml', 'w'),
    lambda: os.rmdir('.freeact'),
    lambda: os.rename('.freeact', 'away'),
    lambda: open('own/freeact/trusted.json', 'w'),
    lambda: os.rename('own/freeact', 'own/away'),
):
    assert tried(work)
open('data', 'w').close()
"""


@pytest.mark.parametrize("kind", PROVIDERS)
async def test_a_new_workspace_has_its_settings_folder_before_the_first_kernel(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))  # in the workspace, as where a home folder is one
    (tmp_path / "own" / "freeact").mkdir(parents=True)
    provider = PROVIDERS[kind]()
    try:
        async with open_kernel(provider, tmp_path, sandbox=policy_for("auto", KernelConfig(), tmp_path)) as kernel:
            ran = await run_cell(kernel, TRY)
            assert (ran.status, ran.text) == ("ok", "")
    finally:
        await provider.aclose()
    assert [item.name for item in (tmp_path / ".freeact").iterdir()] == [".gitignore"]
    assert (tmp_path / ".freeact").stat().st_mode & 0o777 == 0o755
