"""What the fork server builds before it forks is of no use with another IPython, and then in no kernel's way."""

import pytest
from support.elsewhere import CANNOT_FORK
from support.kernels import open_kernel, run_cell, spec

from freeact_sub.kernels.forkserver.fork_provider import ForkKernelProvider

pytestmark = [pytest.mark.kernel, pytest.mark.skipif(CANNOT_FORK, reason="kernels are forked on Linux only")]

VAIN = """
from IPython.core.formatters import PlainTextFormatter
format_any = PlainTextFormatter.__call__
def format(self, value):
    if value == 2:  # as is shown to nobody before the fork
        raise TypeError("of another IPython")
    return format_any(self, value)
PlainTextFormatter.__call__ = format
"""


async def test_what_was_built_before_the_fork_in_vain_is_in_no_kernels_way(tmp_path, caplog):
    (tmp_path / "vain.py").write_text(VAIN)
    provider = ForkKernelProvider(spares=0, preload=("vain",))
    environment = dict(spec(tmp_path).environment) | {"PYTHONPATH": str(tmp_path)}
    try:
        async with open_kernel(provider, tmp_path, environment=environment) as kernel:
            assert (await run_cell(kernel, "type(agent).__name__")).text == "'AgentProxy'\n"
    finally:
        await provider.aclose()
    assert "forked after imports only" in caplog.text
