"""Private names of ipykernel and `threading` that a notebook needs. There are no public ones.

Where a library has another name, a notebook goes on with less: a cell that fails may hang (`forget_last_error`), nobody is
asked for a line (`front_end_address`), closing begins when no thread can be started any more (`before_threads_end`).
"""

import atexit
import threading
from collections.abc import Callable
from typing import Any


def forget_last_error(shell: Any) -> None:
    """Make ipykernel answer a cell that fails without a traceback.

    ipykernel (7.4.0, for example) puts the traceback of the last error into its reply. It sets these two attributes in
    `run_cell`, which a cell with a top-level `await` does not go through. If only such cells have run, and the first error
    prints no traceback, as a `UsageError` does, it raises AttributeError instead of replying: the cell never ends, and
    nbclient waits for ever. After other cells the reply has the traceback of an earlier error, or fails without one.
    """
    if getattr(shell, "kernel", None) is not None:
        shell._last_traceback = None
        shell._last_traceback_during_displayhook = False


def front_end_address(kernel: Any) -> Any:
    """Return the address of the front end that runs this cell, which ipykernel keeps for others. None: it is not told."""
    return getattr(kernel, "_parent_ident", {}).get("shell")


def before_threads_end(function: Callable[[], None]) -> None:
    """Call a function when the program ends, while threads still take work. `atexit` comes too late for that."""
    register: Callable[[Callable[[], None]], Any] = getattr(threading, "_register_atexit", atexit.register)
    register(function)


def hear_cells(kernel: Any, hear: Callable[[], None]) -> bool:
    """Call a function, in the main thread, when a front end sends a cell, also while another one waits.

    ipykernel takes messages from the thread of its shell channel by one callback, which may be set again.
    """
    try:
        manager, take, session = kernel.shell_channel_thread.manager, kernel.shell_main, kernel.session
        set_callback = manager.set_on_recv_callback
    except AttributeError:
        return False

    async def receive(subshell_id: str | None, message: Any) -> None:
        if subshell_id is None and kind_of(session, message) == "execute_request":
            hear()
        await take(subshell_id, message)

    set_callback(receive)
    return True


def kind_of(session: Any, message: Any) -> str:
    """Return the kind of a front end's message."""
    try:
        frames = session.feed_identities(message, copy=False)[1]
        return str(session.deserialize(frames, content=False, copy=False)["header"]["msg_type"])
    except Exception:  # noqa: BLE001  # border: whatever was sent; ipykernel says so itself
        return ""
