"""Standard output whose reader has left, as `head` does."""

import os
import select
import sys
from typing import Final

PIPE_CLOSED: Final = 141
"""The exit status of a command whose output nobody reads any more, as a shell reports it for other programs."""


def is_left() -> bool:
    """Whether nobody reads standard output any more. What is still to be written is dropped then."""
    try:
        stdout = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):  # there is none, it is closed, or it is no file
        return False
    poll = select.poll()
    poll.register(stdout, 0)
    if not any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0)):
        return False
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stdout)  # else Python complains when it writes the rest at its end
    os.close(null)
    return True
