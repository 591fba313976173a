"""A program for tests: runs a command in a terminal that is far away: what is typed and what is shown comes 200 ms later."""

import contextlib
import fcntl
import os
import pty
import select
import sys
import termios
import time
import tty
from collections import deque

DELAY_SECONDS = 0.2


def main() -> int:
    """Arguments: the command. Returns its exit status."""
    pid, far = pty.fork()
    if not pid:
        os.execv(sys.argv[1], sys.argv[1:])
    size = fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8))
    fcntl.ioctl(far, termios.TIOCSWINSZ, size)
    tty.setraw(0)
    ways = {0: far, far: 1}
    """Where what is read from a descriptor goes."""
    under_way: dict[int, deque[tuple[float, bytes]]] = {number: deque() for number in ways}
    is_open = True
    while is_open or any(under_way.values()):
        due = min((queue[0][0] for queue in under_way.values() if queue), default=None)
        wait = None if due is None else max(0.0, due - time.monotonic())
        for number in select.select(list(ways) if is_open else [], [], [], wait)[0]:
            content = b""
            with contextlib.suppress(OSError):  # the command has ended
                content = os.read(number, 65536)
            is_open = is_open and bool(content)
            under_way[number].append((time.monotonic() + DELAY_SECONDS, content))
        for number, queue in under_way.items():
            while queue and queue[0][0] <= time.monotonic():
                rest = queue.popleft()[1]
                while rest:
                    rest = rest[os.write(ways[number], rest) :]
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    sys.exit(main())
