"""A test that starts a program has a mark that says so: `make test-fast` starts none."""

import os
import subprocess
from collections.abc import Callable

import pytest


@pytest.mark.parametrize("start", [lambda: subprocess.run(["true"], check=True), os.fork, lambda: os.system("true")])
def test_a_test_without_a_mark_cannot_start_a_program(start: Callable[[], object]) -> None:
    with pytest.raises(RuntimeError, match="mark it `process`"):
        start()
