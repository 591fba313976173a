"""Jupyter's own tests of a kernel, against the kernelspec that we install."""

import sys
from types import SimpleNamespace

import pytest
from support import kernel_samples
from support.elsewhere import CANNOT_FORK

from freeact_sub.cli.serving import NAME, install_kernelspec
from freeact_sub.kernels.forkserver import provisioner

pytestmark = [pytest.mark.kernel, pytest.mark.skipif(CANNOT_FORK, reason="forked kernels")]


@pytest.fixture(autouse=True, scope="class")
def kernelspec(tmp_path_factory):
    """The kernelspec. The fork server lasts as long as the program, which here ends with these tests."""
    ends = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provisioner, "atexit", SimpleNamespace(register=ends.append))
        folder = tmp_path_factory.mktemp("jupyter")
        install_kernelspec(folder, sys.executable)
        patch.setenv("JUPYTER_PATH", str(folder))
        yield
    assert ends
    for end in ends:
        end()


class TestOurKernel(kernel_samples.PythonKernel):
    kernel_name = NAME
    completion_samples = [{"text": "zi", "matches": {"zip"}}, {"text": "isinst", "matches": {"isinstance"}}]
    code_execute_result = [{"code": "1+2+3", "result": "6"}, {"code": "[n*n for n in range(1, 4)]", "result": "[1, 4, 9]"}]
