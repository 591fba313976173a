"""Jupyter's own tests of a kernel, against the kernelspec that we install."""

import sys
from types import SimpleNamespace

import jupyter_kernel_test
import pytest

from freeact_sub.kernels.forkserver import provisioner
from freeact_sub.kernels.forkserver.kernelspec import NAME, install_kernelspec

pytestmark = [pytest.mark.kernel, pytest.mark.skipif(sys.platform != "linux", reason="forked kernels")]


@pytest.fixture(autouse=True, scope="class")
def kernelspec(tmp_path_factory):
    """The kernelspec. The fork server lasts as long as the program, which here ends with these tests."""
    ends = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provisioner, "atexit", SimpleNamespace(register=ends.append))
        folder = tmp_path_factory.mktemp("jupyter")
        install_kernelspec(folder, sys.executable, wall="none")
        patch.setenv("JUPYTER_PATH", str(folder))
        yield
    assert ends
    for end in ends:
        end()


class TestOurKernel(jupyter_kernel_test.KernelTests):
    kernel_name = NAME
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    completion_samples = [{"text": "zi", "matches": {"zip"}}, {"text": "isinst", "matches": {"isinstance"}}]
    complete_code_samples = ["1", "print('hello, world')", "def f(x):\n  return x*2\n\n\n"]
    incomplete_code_samples = ["print('''hello", "def f(x):\n  x*2"]
    invalid_code_samples = ["import = 7q"]
    code_page_something = "zip?"
    code_generate_error = "raise"
    code_execute_result = [{"code": "1+2+3", "result": "6"}, {"code": "[n*n for n in range(1, 4)]", "result": "[1, 4, 9]"}]
    code_display_data = [
        {"code": "from IPython.display import HTML, display; display(HTML('<b>test</b>'))", "mime": "text/html"},
        {"code": "from IPython.display import Math, display; display(Math('\\\\frac{1}{2}'))", "mime": "text/latex"},
    ]
    code_inspect_sample = "zip"
    code_clear_output = "from IPython.display import clear_output; clear_output()"
