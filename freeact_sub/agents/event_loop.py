"""The event loop in which an agent was opened: its kernel, its connections and its tasks live there and nowhere else."""

import asyncio

from freeact_sub.errors import FreeactError


def in_event_loop() -> bool:
    """Whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def check_event_loop(home: asyncio.AbstractEventLoop | None) -> None:
    """Refuse what is asked for in another loop than the agent's.

    Args:
        home: The agent's. None: it is not open.

    Raises:
        FreeactError: Another loop runs here.
    """
    if home is None or not in_event_loop() or asyncio.get_running_loop() is home:
        return
    if home.is_closed():
        raise FreeactError(
            "the agent was opened in an event loop that has ended, and its kernel with it: make a new Agent, and open, use "
            "and close it in one event loop"
        )
    raise FreeactError("the agent was opened in another event loop: use and close it there, or make a new Agent here")
