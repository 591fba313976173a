"""`KernelClient`: speaks Jupyter's messages with one kernel and yields `cells.*` values.

Each message is handled as soon as it is there, and never waits for a consumer: iopub drops messages when it is not read, the
idle status included. A cell is over at its `execute_reply` *and* the idle status of the same request; the reply usually
comes first and output may still follow, so it alone says nothing. Once the reply is there, idle has a deadline: should it
be lost all the same, the cell ends late instead of never.

Requests of code to its host come on iopub as well (`freeact_request`) and are answered on the control channel
(`freeact_reply`), which has its own thread in the kernel: answers arrive while a cell blocks.

Tasks, timers and threads continue after their cell has ended, and their output still has that cell's id. It is shown in the
cell that runs when it arrives, or in the next one, with a note that it belongs to an earlier cell.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

from freeact_sub.cells import (
    CellError,
    CellOutput,
    ClearOutput,
    DisplayData,
    ExecuteReply,
    ExecuteResult,
    ReplyStatus,
    StreamText,
    text_of,
)
from freeact_sub.errors import KernelLostError, KernelStartError
from freeact_sub.kernels.wire.channels import (
    ChannelName,
    KernelChannels,
    Message,
    MessageError,
    RefusedMessageError,
    output_of,
    read_message,
    reply_of,
)
from freeact_sub.kernels.wire.output import CellClock, CellOutputBuffer, CellRun
from freeact_sub.system.closing import carry_out, end_task
from freeact_sub.system.process import WINDOW

IDLE_DEADLINE_SECONDS: Final = 5.0
"""Seconds that output may follow the reply before the cell counts as ended without its idle status."""
LATEST_SECONDS: Final = 300.0
"""Seconds that output may follow the reply if it keeps coming."""
INTERRUPT_GRACE_SECONDS: Final = 5.0
"""Seconds that a cell may take to end after an interrupt, before its kernel is killed with all variables. Code of Python
ends within two seconds, whatever it catches (`guest/interrupts.py`)."""
CANCEL_GRACE_SECONDS: Final = 0.8
"""Seconds that a cancelled caller waits for its cell's end, for a cancel must take effect within a second; then the next
cell waits."""
READY_RETRY_SECONDS: Final = 0.05
"""Seconds that iopub may be silent after a kernel's reply: it drops messages until our subscription has arrived."""
EXIT_SECONDS: Final = 5.0
"""Seconds that a kernel may take to end by itself after a cell has called `exit()`."""
MAX_REFUSED: Final = 100
"""Messages of one cell that cannot be used; after them only messages that end the cell or ask its host are read."""
FLOODED: Final = "[more of what the cell put out cannot be read: the rest of its output is left out]\n"

logger = logging.getLogger(__name__)


class KernelOwner(Protocol):
    """The owner of a client's kernel: it controls the process and answers the kernel's requests."""

    async def send_interrupt(self) -> None:
        """Delivers an interrupt to the running cell."""
        ...

    async def kill(self, reason: str) -> None:
        """Ends the kernel at once."""
        ...

    def on_request(self, content: dict[str, Any], clock: CellClock | None) -> None:
        """Called with the content of each `freeact_request` and the clock of the cell it comes from; must not wait."""
        ...

    def on_branch(self, content: dict[str, Any]) -> None:
        """Called with the content of each `freeact_branch`; must not wait."""
        ...

    def on_snapshot(self, content: dict[str, Any]) -> None:
        """Called with the content of each `freeact_snapshot`; must not wait."""
        ...


@dataclass(eq=False)
class _Cell:
    """The request that is under way."""

    request_id: str
    buffer: CellOutputBuffer
    clock: CellClock
    changed: asyncio.Event
    silent: bool
    """Whether the request is our own: nobody reads its output."""
    reply: dict[str, Any] | None = None
    idle: bool = False
    interrupted: bool = False
    abandoned: bool = False
    came: int = 0
    """The number of messages that belong to it."""
    replied_at: float = 0.0
    """The time of its reply, by the clock of the loop."""
    refused: int = 0
    """The number of messages that could not be used."""

    @property
    def is_late(self) -> bool:
        """Whether output still comes too long after the reply, as of a thread that never ends."""
        return asyncio.get_running_loop().time() > self.replied_at + LATEST_SECONDS


class KernelClient:
    """The client of one kernel, which runs cells one at a time."""

    def __init__(self, owner: KernelOwner) -> None:
        self._owner = owner
        self._channels: KernelChannels | None = None
        """The open channels, if any."""
        self._cell: _Cell | None = None
        self._earlier = EarlierOutput()
        self._came = 0
        self._unhandled = self._passed_over = 0
        self._ending: asyncio.Task[None] | None = None
        """The task that waits for the end of a cell that is no longer read."""
        self._one_at_a_time = asyncio.Lock()
        self._probes: dict[str, asyncio.Event] = {}
        """The event to set at the reply to each probe."""
        self._subscribed = asyncio.Event()
        """An event that is set once the greeting, or a probe's message, has come on iopub: all that follows will."""
        self._lost = asyncio.Event()
        self.lost_reason: str | None = None

    async def open(self, channels: KernelChannels, *, greets: bool = False) -> None:
        """Starts reading, and waits until the kernel is ready for a cell.

        Args:
            channels: The channels to the kernel; the client closes them.
            greets: The kernel greets a subscriber to iopub, and not before it is ready. False: it is asked on every
                channel, which takes as long as a cell.

        Raises:
            KernelStartError: The kernel ended before it was ready.
        """
        self._channels = channels
        channels.listen(self._hear)
        await (self._wait_any(self._subscribed) if greets else self._ask(channels))
        if self.lost_reason is not None:
            raise KernelStartError(f"the kernel ended while it started: {self.lost_reason}")

    async def _ask(self, channels: KernelChannels) -> None:
        """Waits until the kernel has answered on every channel, or has ended."""
        on_shell, on_control = asyncio.Event(), asyncio.Event()
        self._probes[channels.send("control", "kernel_info_request", {})] = on_control
        while self.lost_reason is None and not self._subscribed.is_set():
            # the request waits in its channel for a kernel that is not there yet; only its reply can come to nothing
            self._probes[channels.send("shell", "kernel_info_request", {})] = on_shell
            await self._wait_any(on_shell)
            on_shell.clear()
            await self._wait_any(self._subscribed, timeout_seconds=READY_RETRY_SECONDS)
        await self._wait_any(on_control)
        self._probes.clear()

    async def aclose(self) -> None:
        """Closes the channels, but not the kernel, which its provider closes."""
        if self._ending is not None:
            await end_task(self._ending)
        channels, self._channels = self._channels, None
        if channels is not None:
            channels.close()

    @property
    def unread(self) -> str:
        """The output of earlier cells since the last cell ended."""
        return self._earlier.text

    async def wait_lost(self) -> str:
        """Waits until the kernel's process has ended, and returns the reason."""
        await self._lost.wait()
        return self.lost_reason or ""

    def lose(self, reason: str) -> None:
        """Notes that the kernel's process has ended: the running cell ends now, later ones at once."""
        if self.lost_reason is None:
            self.lost_reason = reason
            self._lost.set()
            if self._cell is not None:
                self._cell.changed.set()

    @asynccontextmanager
    async def execute(
        self, code: str, buffer: CellOutputBuffer, clock: CellClock, *, silent: bool = False, given: Any = None
    ) -> AsyncIterator[CellRun]:
        """Runs a cell; see `Kernel.execute`. The request's content has `given` (JSON), for the code to read.

        A kernel goes through the code itself several times in Python, to look for magics and to name the cell.
        """
        async with self._one_at_a_time:
            if self._ending is not None:
                await asyncio.wait({self._ending})
            if self.lost_reason is not None:
                buffer.end(ExecuteReply(status="kernel_lost"))
                yield CellRun(buffer)
                return
            content = {
                "code": code,
                "silent": silent,
                "store_history": not silent,
                "user_expressions": {},
                "allow_stdin": False,
                "stop_on_error": True,
                **({} if given is None else {"given": given}),
                **({"columns": columns} if not silent and (columns := WINDOW.columns()) > 0 else {}),
            }
            if self._channels is None:
                raise KernelLostError("the kernel is closed")
            request_id = self._channels.send("shell", "execute_request", content)
            cell = self._cell = _Cell(request_id, buffer, clock, asyncio.Event(), silent)
            if not silent:
                self._earlier.hand_over(buffer)
            clock.start(cell.changed)
            supervisor = asyncio.create_task(self._supervise(cell), name="kernel cell")
            try:
                yield CellRun(buffer)
            finally:
                await carry_out(self._leave(cell, supervisor))

    def interrupt(self) -> None:
        """Interrupts the running cell, if any."""
        if self._cell is not None and not self._cell.interrupted:
            self._cell.interrupted = True
            self._cell.changed.set()

    def reply(self, content: dict[str, Any]) -> None:
        """Sends the reply to a `freeact_request`."""
        self.send_control("freeact_reply", content)

    def send_control(self, kind: str, content: dict[str, Any]) -> None:
        """Sends the guest a message on the control channel; its reply comes to the owner."""
        if self._channels is not None:
            self._channels.send("control", kind, content)

    @asynccontextmanager
    async def between_cells(self) -> AsyncIterator[None]:
        """Lets no cell run for the time of the context."""
        async with self._one_at_a_time:
            if self._ending is not None:
                await asyncio.wait({self._ending})
            yield

    async def _leave(self, cell: _Cell, supervisor: asyncio.Task[None]) -> None:
        """Handles a reader that left its cell; if it left early, the cell is interrupted."""
        if not supervisor.done():
            cell.interrupted = cell.abandoned = True
            cell.changed.set()
        self._ending = supervisor
        await asyncio.wait({supervisor}, timeout=CANCEL_GRACE_SECONDS)

    async def _supervise(self, cell: _Cell) -> None:
        """Waits until the cell is over, in one way or another, and ends its buffer with the true status."""
        status: ReplyStatus | None = None
        grace_ends: float | None = None
        try:
            # an interrupt that comes as the code ends may cost the reply; idle then says that the cell is over
            while not (cell.idle and (cell.reply is not None or status is not None)):
                if self.lost_reason is not None:
                    status = status or "kernel_lost"
                    if not cell.abandoned:
                        await last_messages(lambda: self._came)
                    return
                if status is None and (cell.clock.expired or cell.interrupted):
                    status = "timeout" if cell.clock.expired else "interrupted"
                    grace_ends = await self._interrupt(cell)
                if cell.reply is not None:
                    if not await self._output_comes(cell):
                        return
                elif not await self._changed_before(cell, grace_ends):
                    await self._owner.kill("a cell did not end when it was interrupted")
            if cell.reply is not None and ends_kernel(cell.reply["payload"]):
                status = await self._end_kernel()
        finally:
            cell.clock.stop()
            self._cell = None
            reply = cell.reply or {}
            for output in outputs_of(reply.get("payload", ())):
                cell.buffer.add(output)
            cell.buffer.end(
                ExecuteReply(
                    status=status or reply.get("status", "error"),
                    execution_count=reply.get("execution_count"),
                    left_out_chars=cell.buffer.left_out_chars,
                )
            )

    async def _interrupt(self, cell: _Cell) -> float:
        """Interrupts a cell; returns the time of the loop at which it must have ended."""
        await self._owner.send_interrupt()
        # one signal may reach the cell before it has begun, or be caught by its code
        self.send_control("freeact_interrupt", {"request": cell.request_id, "seconds": INTERRUPT_GRACE_SECONDS})
        return asyncio.get_running_loop().time() + INTERRUPT_GRACE_SECONDS

    async def _output_comes(self, cell: _Cell) -> bool:
        """Waits for output after the reply of a cell. Returns False if it is not to be waited for any longer."""
        came = cell.came
        if await self._changed_before(cell, asyncio.get_running_loop().time() + IDLE_DEADLINE_SECONDS):
            return True
        if cell.came > came and not cell.is_late:  # much output takes longer
            return True
        logger.warning("a cell's idle status did not arrive; its output may be incomplete")
        return False

    async def _end_kernel(self) -> ReplyStatus:
        """Waits for the exit of a kernel after `exit()`, or kills the kernel: the next cell would be lost with it."""
        await self._wait_any(self._lost, timeout_seconds=EXIT_SECONDS)
        if self.lost_reason is None:
            await self._owner.kill("a cell called `exit()` or `quit()`")
            await self._wait_any(self._lost, timeout_seconds=EXIT_SECONDS)
        return "kernel_lost"

    async def _changed_before(self, cell: _Cell, deadline: float | None) -> bool:
        cell.changed.clear()
        stopped = cell.interrupted or cell.clock.expired
        if (cell.idle and (cell.reply is not None or stopped)) or self.lost_reason is not None:
            return True
        remaining = None if deadline is None else deadline - asyncio.get_running_loop().time()
        if remaining is not None and remaining <= 0:
            return False
        try:
            async with asyncio.timeout(remaining):
                await cell.changed.wait()
        except TimeoutError:
            return False
        return True

    async def _wait_any(self, event: asyncio.Event, *, timeout_seconds: float | None = None) -> None:
        """Waits for the event or the kernel's end, or until the time is up; None: for ever."""
        tasks = {asyncio.ensure_future(event.wait()), asyncio.ensure_future(self._lost.wait())}
        try:
            await asyncio.wait(tasks, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    def _hear(self, channel: ChannelName, came: list[bytes] | Exception) -> None:
        """Reads a channel's messages. It skips unusable ones and reports this to the reader that would miss them."""
        if self._channels is None:
            return
        self._came += 1
        try:
            if isinstance(came, MessageError):
                self._pass_over(channel, came)
            elif isinstance(came, KernelLostError):
                self.lose(str(came))
            elif isinstance(came, Exception):
                # a connection can fail in any way, and a kernel that nobody hears any more is lost
                logger.error("a kernel's %s channel has failed", channel, exc_info=came)
                self.lose(f"its {channel} channel has failed ({type(came).__name__}: {came})")
            elif channel == "shell" or self._is_wanted(came):
                self._handle(channel, came)
        except Exception:
            # border: code in the kernel can send anything, and no message must end the reading
            self._count_refused()
            self._unhandled += 1
            if self._unhandled.bit_count() == 1:
                logger.exception("message %d on a kernel's %s channel could not be handled", self._unhandled, channel)

    def _pass_over(self, channel: ChannelName, error: MessageError) -> None:
        self._passed_over += 1
        if self._passed_over.bit_count() == 1:  # the first, the second, the fourth: code can send a million
            logger.warning("unusable message %d of a kernel was passed over (%s): %s", self._passed_over, channel, error)
        if channel == "shell" and isinstance(error, RefusedMessageError):
            self._replied_too_much(error)
        if channel == "iopub":
            self._count_refused()
            if isinstance(error, RefusedMessageError):
                self._report_refused(error)

    def _handle(self, channel: ChannelName, parts: list[bytes]) -> None:
        try:
            message = read_message(parts)
            if channel == "iopub":
                self._on_iopub(message)
            else:
                self._on_shell(message)
        except MessageError as error:
            self._pass_over(channel, error)

    def _replied_too_much(self, error: RefusedMessageError) -> None:
        """Ends the cell although its reply is refused: nobody sends another one."""
        cell = self._cell
        if cell is not None and error.kind == "execute_reply" and error.parent_id == cell.request_id:
            cell.buffer.add_note(f"[how the cell ended is not known: its reply is left out: {error}]\n")
            cell.reply = {"status": "error", "execution_count": None, "payload": []}
            cell.replied_at = asyncio.get_running_loop().time()
            cell.changed.set()

    def _report_refused(self, error: RefusedMessageError) -> None:
        """Says in the output of the cell, and to the code that waits for a reply, that a message was skipped."""
        if self._cell is not None and self._cell.refused <= MAX_REFUSED:
            self._cell.buffer.add_note(f"[something that the cell put out is left out: {error}]\n")
        if error.request_id is not None:
            self._owner.on_request({"id": error.request_id, "refused": f"the request cannot be read: {error}"}, None)

    def _is_wanted(self, parts: list[bytes]) -> bool:
        """Returns whether to read output of a cell; False after too many unusable messages, which take time to check."""
        return self._cell is None or self._cell.refused <= MAX_REFUSED or is_needed(parts)

    def _count_refused(self) -> None:
        if self._cell is not None:
            self._cell.refused += 1
            if self._cell.refused == MAX_REFUSED + 1:
                self._cell.buffer.add_note(FLOODED)

    def _on_shell(self, message: Message) -> None:
        cell = self._cell
        if message.parent_id in self._probes:
            self._probes[message.parent_id].set()
        elif cell is not None and message.parent_id == cell.request_id:
            cell.reply, cell.replied_at = reply_of(message), asyncio.get_running_loop().time()
            cell.changed.set()

    def _on_iopub(self, message: Message) -> None:
        parent, kind, content = message.parent_id, message.kind, message.content
        if kind == "iopub_welcome" or parent in self._probes:
            self._subscribed.set()
            return
        cell = self._cell if self._cell is not None and parent == self._cell.request_id else None
        if cell is not None:
            cell.came += 1
        if kind == "freeact_request":
            self._owner.on_request(content, cell.clock if cell is not None else None)
        elif kind == "freeact_branch":
            self._owner.on_branch(content)
        elif kind == "freeact_snapshot":
            self._owner.on_snapshot(content)
        elif kind == "status":
            if cell is not None and content.get("execution_state") == "idle":
                cell.idle = True
                cell.changed.set()
        elif (output := output_of(message)) is not None:
            if cell is not None:
                cell.buffer.add(output)
            else:
                self._earlier.add(output, self._cell.buffer if self._cell is not None and not self._cell.silent else None)


MAX_NEEDED_BYTES: Final = 65_536
NEEDED: Final = (b'"status"', b'"freeact_')
"""Marks in the headers of messages that end a cell or ask its host."""
QUIET_SECONDS: Final = 0.3
"""Seconds without a message after which an ended kernel has sent nothing more."""
LAST_SECONDS: Final = 5.0
"""Maximum seconds for its last messages."""

HELD_CHARS: Final = 1_000_000
"""The number of characters of output that wait for the next cell."""
BETWEEN: Final = "[output of an earlier cell, which came after its end:]\n"
AMONG: Final = "[an earlier cell's code still runs; its output appears here as well:]\n"
NEXT: Final = "[The cell asks for this code as the next cell. It was not run:]\n"
EXITS: Final = "[The cell called `exit()` or `quit()`, so its kernel ends.]\n"


class EarlierOutput:
    """The output of ended cells."""

    def __init__(self) -> None:
        self._held: deque[CellOutput] = deque()
        self._held_chars = self._left_out_chars = 0
        self._has_cells = False
        """Whether a cell has run. Before, only the start of the kernel has put something out; that is in its log."""
        self._noted: CellOutputBuffer | None = None
        """The buffer of the cell whose reader knows that there is such output."""

    def add(self, output: CellOutput, running: CellOutputBuffer | None) -> None:
        """Takes output. Args: running: the buffer of the cell that runs, if any."""
        if isinstance(output, ClearOutput):
            return  # the output to clear was handed on
        if isinstance(output, CellError | ExecuteResult):
            output = _not_of_this_cell(output)
        if running is not None:
            if self._noted is not running:
                self._noted = running
                running.add_note(AMONG)
            running.add(output, stays=True)
            return
        if not self._has_cells:
            return
        size = len(output.text if isinstance(output, StreamText) else str(output))
        if self._held_chars + size > HELD_CHARS:
            self._left_out_chars += size
            return
        self._held_chars += size
        self._held.append(output)

    @property
    def text(self) -> str:
        """The output that waits for the next cell."""
        more = f"\n[{self._left_out_chars:,} more characters were left out]" if self._left_out_chars else ""
        return "".join(map(text_of, self._held)) + more

    def hand_over(self, buffer: CellOutputBuffer) -> None:
        """Adds the waiting output to the next cell."""
        self._has_cells = True
        if not self._held and not self._left_out_chars:
            return
        buffer.add_note(BETWEEN)
        last = "\n"
        while self._held:
            output = self._held.popleft()
            buffer.add(output, stays=True)
            last = text_of(output)[-1:] or last
        if self._left_out_chars:
            buffer.add_note(f"\n[{self._left_out_chars:,} more characters were left out]")
        if last != "\n" or self._left_out_chars:
            buffer.add_note("\n")
        self._held_chars = self._left_out_chars = 0


def _not_of_this_cell(output: CellError | ExecuteResult) -> CellOutput:
    """Turns errors and values into text, so that they do not pass for those of another cell."""
    if isinstance(output, CellError):
        return StreamText(name="stderr", text=text_of(output))
    return DisplayData(data=output.data, metadata=output.metadata)


def outputs_of(payloads: Sequence[dict[str, Any]]) -> list[CellOutput]:
    """Returns the text of a reply's payloads: pages of help, code for the next cell, and requests that are not supported."""
    return [output for payload in payloads if (output := _shown(payload)) is not None]


def _shown(payload: dict[str, Any]) -> CellOutput | None:
    match payload:
        case {"source": "page", "data": dict(data)}:
            return DisplayData(data=data)
        case {"source": "set_next_input", "text": str(text)}:
            return StreamText(name="stdout", text=f"{NEXT}{text}\n")
        case {"source": "edit_magic", "filename": str(name)}:
            return StreamText(name="stderr", text=f"[The cell asks for an editor, and there is none. The file is {name}.]\n")
        case {"source": "ask_exit", "keepkernel": True}:
            return None
        case {"source": "ask_exit"}:
            return StreamText(name="stderr", text=EXITS)
        case {"source": str(source)}:
            return StreamText(name="stderr", text=f"[The cell asks for `{source}`, which is not available here.]\n")
    return None


def ends_kernel(payloads: Sequence[dict[str, Any]]) -> bool:
    """Returns whether the cell has ended its kernel, which stops a moment after the reply."""
    return any(payload.get("source") == "ask_exit" and not payload.get("keepkernel") for payload in payloads)


async def last_messages(count: Callable[[], int]) -> None:
    """Waits until nothing has come for a moment: messages of an ended kernel may still be on their way.

    No event tells that: the end of a process is heard before its last messages when this program was busy.

    Args:
        count: The number of the kernel's messages so far.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(LAST_SECONDS):
            before = -1
            while before != count():
                before = count()
                await asyncio.sleep(QUIET_SECONDS)


def is_needed(parts: Sequence[bytes]) -> bool:
    """Returns whether a message ends a cell or asks its host."""
    return sum(map(len, parts)) <= MAX_NEEDED_BYTES and any(kind in parts[0] for kind in NEEDED)
