"""The event loop of this thread, and the one that opened an agent, where its kernel, connections and tasks live."""

import asyncio

from freeact_sub.errors import FreeactError


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread. None: none does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def check_event_loop(home: asyncio.AbstractEventLoop | None) -> None:
    """Refuse a call from an event loop other than the agent's.

    Args:
        home: The agent's loop. None: the agent is not open.

    Raises:
        FreeactError: Another loop is running here.
    """
    if home is None or running_loop() in (None, home):
        return
    if home.is_closed():
        raise FreeactError(
            "the event loop in which the agent was opened has ended, and the agent's kernel with it: make a new Agent, "
            "and open, use and close it in one event loop"
        )
    raise FreeactError("the agent was opened in another event loop: use and close it there, or make a new Agent here")
