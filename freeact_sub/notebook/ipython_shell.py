"""The shell that runs a notebook's code: its kernel, its displays, and its questions for a line.

`input()` of ipykernel blocks the event loop, and with it every agent. So `ask_line` sends the same `input_request` message
itself and awaits the reply. Its limits are the protocol's: one question at a time, and a question cannot be taken back from
the screen. An answer to one that was withdrawn is dropped where the front end names its question (JupyterLab does) or where
it comes before the next question is asked.

A cell waits while an agent works, asks for lines, and ends as soon as the user runs another cell (`user_goes_on`).
"""

import asyncio
import contextlib
import contextvars
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from typing import Any, Final, TypeAlias

from freeact_sub.cells import MimeBundle
from freeact_sub.errors import FreeactError
from freeact_sub.notebook.borrowed_ipykernel import front_end_address, hear_cells

NOTHING: Final[MimeBundle] = {"text/html": "", "text/plain": ""}
"""A display that shows nothing, and can be updated later."""
AskLine: TypeAlias = Callable[..., Coroutine[Any, Any, str]]
"""A function such as `ask_line`."""
WAKE_SECONDS: Final = 0.05
QUEUED_SECONDS: Final = 1.0
"""Seconds after a cell in which others count as queued with it ("run all"): they wait for the agent."""


class NobodyToAskError(FreeactError):
    """No person can answer a question here."""


def running_shell() -> Any | None:
    """Returns the IPython shell of this process, if any."""
    if "IPython" not in sys.modules:
        return None
    from IPython.core.getipython import get_ipython  # noqa: PLC0415  # not imported only to learn that it is not in use

    return get_ipython()


def running_kernel() -> Any | None:
    """Returns the Jupyter kernel of this process; None in plain IPython and elsewhere."""
    return getattr(running_shell(), "kernel", None)


def stdin_allowed() -> bool:
    """Returns whether the front end of this cell answers input requests; nbclient and papermill, for example, do not."""
    kernel = running_kernel()
    if kernel is None:
        return sys.stdin is not None and sys.stdin.isatty()
    return bool(kernel.get_parent("shell").get("content", {}).get("allow_stdin"))


def from_notebook() -> bool:
    """Returns whether a notebook's front end runs this cell: it sends the cell's id, which consoles do not have."""
    kernel = running_kernel()
    return kernel is not None and bool(kernel.get_parent("shell").get("metadata", {}).get("cellId"))


_publisher: ContextVar[Any] = ContextVar("_publisher", default=None)


@contextlib.contextmanager
def shown_by(publisher: Any) -> Iterator[None]:
    """Makes new `CellDisplay` objects show by this publisher inside, also while the shell's is captured."""
    token = _publisher.set(publisher)
    try:
        yield
    finally:
        _publisher.reset(token)


class CellDisplay:
    """The output of the cell in whose task it is used; in plain IPython, the console."""

    def __init__(self) -> None:
        self._publisher = _publisher.get()
        self.live = running_kernel() is not None
        """Whether a display can be updated in place."""

    def publish(self, display_id: str, data: MimeBundle, *, update: bool) -> None:
        """Shows a display under a new id, or replaces the one that has the id."""
        from IPython.display import display, update_display  # noqa: PLC0415  # slow; not needed to import the package

        if not self.live:
            print(data["text/plain"])  # noqa: T201  # a console shows nothing else of a display
        elif self._publisher is not None:
            self._publisher.publish(data, {}, transient={"display_id": display_id}, update=update)
        elif update:
            update_display(data, display_id=display_id, raw=True)
        else:
            display(data, display_id=display_id, raw=True)


async def ask_line(prompt: str, *, secret: bool = False) -> str:
    """Asks for a line without blocking the event loop. A cancel withdraws the question as far as the protocol allows.

    Args: prompt: stands before the line. secret: typed text is hidden.

    Raises:
        NobodyToAskError: Input is not allowed here, or has ended.
    """
    if not stdin_allowed():
        raise NobodyToAskError(
            'nobody can answer: this notebook runs without input (Config(headless="allow") runs without asking)'
        )
    kernel = running_kernel()
    try:
        return await (
            _ask_console(prompt, secret=secret) if kernel is None else _ask_front_end(kernel, prompt, secret=secret)
        )
    except EOFError as error:
        raise NobodyToAskError("nobody answered: the input has ended") from error


async def _ask_console(prompt: str, *, secret: bool) -> str:
    from prompt_toolkit import PromptSession  # noqa: PLC0415  # only plain IPython needs it
    from prompt_toolkit.patch_stdout import patch_stdout  # noqa: PLC0415  # as above

    session: PromptSession[str] = PromptSession()
    try:
        with patch_stdout():
            return await session.prompt_async(prompt, handle_sigint=False, is_password=secret)
    except KeyboardInterrupt:  # raised in a background task it would end the event loop, but only the cell is interrupted
        signal.raise_signal(signal.SIGINT)
        await asyncio.Event().wait()  # until the cell withdraws the question
        raise


async def _ask_front_end(kernel: Any, prompt: str, *, secret: bool) -> str:
    sys.stdout.flush()
    sys.stderr.flush()
    session, socket = kernel.session, kernel.stdin_socket
    _receive_all(session, socket)  # answers to questions that were withdrawn
    address = front_end_address(kernel)
    if address is None:
        raise EOFError
    content = {"prompt": prompt, "password": secret}
    request = session.send(socket, "input_request", content, parent=kernel.get_parent("shell"), ident=address)
    while True:
        for reply in await _readable(socket, lambda: _receive_all(session, socket)):
            answered = reply["parent_header"].get("msg_id")
            if reply["msg_type"] == "input_reply" and answered in (None, request["header"]["msg_id"]):
                value = str(reply["content"].get("value", ""))
                if value == "\x04":
                    raise EOFError
                return value


async def _readable(socket: Any, receive: Callable[[], list[Any]]) -> list[Any]:
    """Waits until there are messages. A zmq descriptor tells of changes only, so earlier messages are read first."""
    loop, changed = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(socket.FD, changed.set)
    try:
        while not (messages := receive()):
            await changed.wait()
            changed.clear()
        return messages
    finally:
        loop.remove_reader(socket.FD)


def _receive_all(session: Any, socket: Any) -> list[Any]:
    messages = []
    while socket.poll(0):
        with contextlib.suppress(ValueError):  # not signed by our front end, or sent twice
            messages.append(session.recv(socket)[1])
    return messages


async def wait_awake(first: "set[asyncio.Task[Any]]") -> None:
    """Waits until one of these has ended. An interrupt cancels the waiting task, but does not wake a loop that sleeps."""
    while not (await asyncio.wait(first, timeout=WAKE_SECONDS, return_when=asyncio.FIRST_COMPLETED))[0]:
        pass


class CellsOfUser:
    """News of cells that the user runs while another one waits. In the main thread."""

    def __init__(self) -> None:
        self._heard = asyncio.Event()
        self._last = 0.0
        kernel = running_kernel()
        self.are_heard = kernel is not None and hear_cells(kernel, self._hear)
        """Whether this front end and ipykernel tell of cells; if not, a cell waits for its agent."""

    async def next(self, begun: float) -> None:
        """Waits until the user runs a cell that was not queued with this one. Args: begun: when this one began."""
        while self._last < begun + QUEUED_SECONDS:
            self._heard.clear()
            await self._heard.wait()

    def _hear(self) -> None:
        self._last = time.monotonic()
        self._heard.set()


class LineAsker:
    """Questions for lines in the cell that waits for the agent; while none does, a question waits."""

    def __init__(self, main: asyncio.AbstractEventLoop) -> None:
        """Args: main: the loop in which cells run."""
        self._main = main
        self._home: asyncio.AbstractEventLoop | None = None
        self._cell: contextvars.Context | None = None
        self._may_ask = asyncio.Event()
        self.is_free = asyncio.Event()
        """An event that is set while no question is open. In the loop of the cells."""
        self.is_free.set()

    async def ask(self, prompt: str, *, secret: bool = False) -> str:
        """Asks for a line as `ask_line` does. In the thread that draws."""
        self._home = asyncio.get_running_loop()
        if self._cell is None:
            self._may_ask.clear()
            await self._may_ask.wait()
        assert self._cell is not None  # `wait_in_cell` comes first
        asked = self._cell.copy().run(asyncio.run_coroutine_threadsafe, self._ask_here(prompt, secret), self._main)
        return await asyncio.wrap_future(asked)

    def wait_in_cell(self) -> None:
        """Makes this cell the one that asks."""
        self._cell = contextvars.copy_context()
        if self._home is not None:
            self._home.call_soon_threadsafe(self._may_ask.set)

    def leave_cell(self) -> None:
        """Lets questions wait: no cell waits for the agent any more."""
        self._cell = None

    async def _ask_here(self, prompt: str, secret: bool) -> str:
        self.is_free.clear()
        try:
            return await ask_line(prompt, secret=secret)
        finally:
            self.is_free.set()


async def user_goes_on(cells: CellsOfUser, asker: LineAsker, begun: float) -> None:
    """Waits until the user runs another cell, and no question is open in this one. Args: begun: see `CellsOfUser.next`."""
    if not cells.are_heard:
        await asyncio.Event().wait()
    await cells.next(begun)
    await asker.is_free.wait()
