"""Kills a program at any step of what it does: for programs that tests start, with `tests/` on their path."""

import os
import signal
from collections.abc import Callable, Sequence
from typing import Any


def killed_at(step: int, function: Callable[[], Any], calls: Sequence[str]) -> bool:
    """Run a function in a child that is killed before the call with this number; return whether it was.

    Args:
        step: The number, from 0 on.
        function: The function.
        calls: The names of the functions of `os` that count.
    """
    pid = os.fork()
    if pid == 0:
        left = [step]

        def counted(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1
                return real(*arguments, **options)

            return call

        for name in calls:
            setattr(os, name, counted(getattr(os, name)))
        function()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
