"""`KernelClient`: speaks Jupyter's messages with one kernel and yields `cells.*` values.

One task reads iopub at all times and never waits for a consumer: iopub drops messages when it is not read, the idle status
included. A cell is over at its `execute_reply` *and* the idle status of the same request; the reply usually comes first and
output may still follow, so it alone says nothing. Once the reply is there, idle has a deadline: should it be lost all the
same, the cell ends late instead of never.

What code in the kernel asks of its host comes on iopub as well (`freeact_request`) and is answered on the control channel
(`freeact_reply`), which has a thread of its own in the kernel: answers arrive while a cell blocks.
"""

import asyncio
import hmac
import json
import logging
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from jupyter_client.session import DELIM, Session

from freeact_sub.cells import (
    CellError,
    CellOutput,
    ClearOutput,
    DisplayData,
    ExecuteReply,
    ExecuteResult,
    ReplyStatus,
    StreamText,
)
from freeact_sub.closing import carry_out, end_task
from freeact_sub.errors import KernelLostError, KernelStartError
from freeact_sub.kernels.output import CellClock, CellOutputBuffer

DELIMITER: Final[bytes] = DELIM
IDLE_DEADLINE_SECONDS: Final = 5.0
"""How long output may follow the reply before the cell counts as over without its idle status."""
INTERRUPT_GRACE_SECONDS: Final = 2.0
"""How long a cell may take to end when its time is up, before its kernel is killed."""
CANCEL_GRACE_SECONDS: Final = 0.8
"""The same for a cell that nobody waits for any more: a cancel has to take effect within a second."""
READY_RETRY_SECONDS: Final = 0.05
"""How long iopub may be silent after a kernel's answer: it drops what is published before our subscription has arrived."""
MESSAGES_PER_TURN: Final = 50
"""Messages read in a row before other tasks get their turn."""

logger = logging.getLogger(__name__)


class KernelConnection(Protocol):
    """How to reach a kernel, and the power over its process. Implemented by each provider, used by the client."""

    session: Session

    def connect(self, channel: str) -> Any:
        """An asyncio zmq socket connected to `shell`, `iopub` or `control`."""
        ...

    async def send_interrupt(self) -> None:
        """Deliver an interrupt to the running cell."""
        ...

    async def kill(self, reason: str) -> None:
        """End the kernel at once."""
        ...


@dataclass(eq=False)
class _Cell:
    """The request that is under way."""

    request_id: str
    buffer: CellOutputBuffer
    clock: CellClock
    changed: asyncio.Event
    reply: dict[str, Any] | None = None
    idle: bool = False
    interrupted: bool = False
    abandoned: bool = False


class KernelClient:
    """Runs cells in one kernel, one at a time."""

    def __init__(
        self, connection: KernelConnection, *, on_request: Callable[[dict[str, Any], CellClock | None], None]
    ) -> None:
        """Args: on_request: called with the content of each `freeact_request` and the clock of the cell it comes from."""
        self._connection = connection
        self._session: Any = connection.session  # jupyter_client is typed in part only
        self._on_request = on_request
        self.on_branch: Callable[[dict[str, Any]], None] = lambda content: None  # noqa: ARG005  # nobody has asked for one
        """Called with the content of each `freeact_branch`, the answers to `tell_branch`."""
        self._sockets: dict[str, Any] = {}
        self._readers: list[asyncio.Task[None]] = []
        self._cell: _Cell | None = None
        self._one_at_a_time = asyncio.Lock()
        self._probes: set[str] = set()
        self._answered = asyncio.Event()
        """A probe's reply has come on shell."""
        self._subscribed = asyncio.Event()
        """Something has come on iopub: all that follows will."""
        self._lost = asyncio.Event()
        self.lost_reason: str | None = None

    async def open(self) -> None:
        """Connect, and wait until the kernel answers on shell and iopub.

        Raises:
            KernelStartError: The kernel ended before it was ready.
        """
        self._sockets = {channel: self._connection.connect(channel) for channel in ("iopub", "shell", "control")}
        self._readers = [
            asyncio.create_task(self._read(channel, self._sockets[channel]), name=f"kernel {channel}")
            for channel in ("iopub", "shell", "control")
        ]
        while self.lost_reason is None and not self._subscribed.is_set():
            # the request waits in its socket for a kernel that is not there yet; only its answer can come to nothing
            self._probes.add(self._send("shell", "kernel_info_request", {}))
            await self._wait_any(self._answered)
            self._answered.clear()
            await self._wait_any(self._subscribed, timeout_seconds=READY_RETRY_SECONDS)
        self._probes.clear()
        if self.lost_reason is not None:
            raise KernelStartError(f"the kernel ended while it started: {self.lost_reason}")

    async def aclose(self) -> None:
        """Stop reading and close the sockets; the kernel itself is the provider's business."""
        readers, self._readers = self._readers, []
        for reader in readers:
            await end_task(reader)
        for socket in self._sockets.values():
            socket.close(linger=0)
        self._sockets = {}

    async def wait_lost(self) -> str:
        """Wait until the kernel's process has ended; the reason."""
        await self._lost.wait()
        return self.lost_reason or ""

    def lose(self, reason: str) -> None:
        """The kernel's process has ended: the running cell ends now, later ones at once."""
        if self.lost_reason is None:
            self.lost_reason = reason
            self._lost.set()
            if self._cell is not None:
                self._cell.changed.set()

    async def execute(
        self, code: str, buffer: CellOutputBuffer, clock: CellClock, *, silent: bool = False
    ) -> AsyncGenerator[CellOutput | ExecuteReply, None]:
        """Run a cell; see `Kernel.execute`."""
        async with self._one_at_a_time:
            if self.lost_reason is not None:
                yield ExecuteReply(status="kernel_lost")
                return
            content = {
                "code": code,
                "silent": silent,
                "store_history": not silent,
                "user_expressions": {},
                "allow_stdin": False,
                "stop_on_error": True,
            }
            request_id = self._send("shell", "execute_request", content)
            cell = self._cell = _Cell(request_id, buffer, clock, asyncio.Event())
            clock.start(cell.changed)
            supervisor = asyncio.create_task(self._supervise(cell), name="kernel cell")
            try:
                while True:
                    output = await buffer.get()
                    yield output
                    if isinstance(output, ExecuteReply):
                        break
            finally:
                await carry_out(self._leave(cell, supervisor))

    def interrupt(self) -> None:
        """Interrupt the running cell, if any."""
        if self._cell is not None and not self._cell.interrupted:
            self._cell.interrupted = True
            self._cell.changed.set()

    def reply(self, content: dict[str, Any]) -> None:
        """Answer a `freeact_request`."""
        if self._sockets:
            self._send("control", "freeact_reply", content)

    def tell_branch(self, content: dict[str, Any]) -> None:
        """Ask the kernel for a branch, or tell it what becomes of one."""
        if self._sockets:
            self._send("control", "freeact_branch", content)

    async def _leave(self, cell: _Cell, supervisor: asyncio.Task[None]) -> None:
        """The reader of a cell has gone, at its end or early; early means interrupt."""
        if not supervisor.done():
            cell.interrupted = cell.abandoned = True
            cell.changed.set()
        await asyncio.wait({supervisor})
        cell.clock.stop()
        self._cell = None

    async def _supervise(self, cell: _Cell) -> None:
        """Wait until the cell is over, in one way or another, and end its buffer with the true status."""
        status: ReplyStatus | None = None
        try:
            # an interrupt that comes as the code ends may cost the reply; idle then says that the cell is over
            while not (cell.idle and (cell.reply is not None or status is not None)):
                if self.lost_reason is not None:
                    status = status or "kernel_lost"
                    return
                if status is None and (cell.clock.expired or cell.interrupted):
                    status = "timeout" if cell.clock.expired else "interrupted"
                    await self._connection.send_interrupt()
                    grace = CANCEL_GRACE_SECONDS if cell.abandoned else INTERRUPT_GRACE_SECONDS
                    deadline: float | None = asyncio.get_running_loop().time() + grace
                elif status is None:
                    deadline = asyncio.get_running_loop().time() + IDLE_DEADLINE_SECONDS if cell.reply else None
                if not await self._changed_before(cell, deadline):
                    if status is None:
                        logger.warning("a cell's idle status did not arrive; its output may be incomplete")
                        return
                    await self._connection.kill("a cell did not end when it was interrupted")
        finally:
            reply = cell.reply or {}
            cell.buffer.end(
                ExecuteReply(
                    status=status or reply.get("status", "error"),
                    execution_count=reply.get("execution_count"),
                    left_out_chars=cell.buffer.left_out_chars,
                )
            )

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
        """Wait for the event or the kernel's end, or until the time is up; None: for ever."""
        tasks = {asyncio.ensure_future(event.wait()), asyncio.ensure_future(self._lost.wait())}
        try:
            await asyncio.wait(tasks, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    def _send(self, channel: str, message_type: str, content: dict[str, Any]) -> str:
        socket = self._sockets.get(channel)
        if socket is None:
            raise KernelLostError("the kernel is closed")
        message = self._session.msg(message_type, content)
        # Not `session.send`: it writes past the asyncio socket, which may swallow the one wake-up that tells of a message
        # to be read (zmq's descriptor is edge-triggered), and the reader then sleeps for ever.
        sent = socket.send_multipart(self._session.serialize(message))
        sent.add_done_callback(_retrieved)
        request_id: str = message["header"]["msg_id"]
        return request_id

    async def _read(self, channel: str, socket: Any) -> None:
        """Read one channel for ever; a message that cannot be read is logged and passed over."""
        handle: Callable[[dict[str, Any]], None] = self._on_iopub if channel == "iopub" else self._on_shell
        count = 0
        while True:
            frames = await socket.recv_multipart()
            try:
                message = self._message(frames)
            except (ValueError, TypeError, KeyError) as error:
                logger.warning("unreadable message on a kernel's %s channel: %s", channel, error)
                continue
            try:
                handle(message)
            except Exception:
                # border: a message that we do not understand must not end the reading
                logger.exception("a message on a kernel's %s channel could not be handled", channel)
            count += 1
            if count % MESSAGES_PER_TURN == 0:
                await asyncio.sleep(0)

    def _message(self, frames: list[bytes]) -> dict[str, Any]:
        """Check and read a message.

        As `Session.deserialize` does, but for the dates: parsing two in each message takes longer than all the rest.

        Raises:
            ValueError: It is no Jupyter message, or is not signed with the kernel's key.
        """
        start = frames.index(DELIMITER) + 1
        signature, *parts = frames[start : start + 5]
        if not hmac.compare_digest(self._session.sign(parts), signature):
            raise ValueError("its signature is wrong")
        header, parent, metadata, content = map(json.loads, parts)
        return {
            "header": header,
            "msg_type": header["msg_type"],
            "parent_header": parent,
            "metadata": metadata,
            "content": content,
        }

    def _on_shell(self, message: dict[str, Any]) -> None:
        cell, parent = self._cell, message["parent_header"].get("msg_id")
        if parent in self._probes:
            self._answered.set()
        elif cell is not None and parent == cell.request_id:
            cell.reply = message["content"]
            cell.changed.set()

    def _on_iopub(self, message: dict[str, Any]) -> None:
        parent, kind, content = message["parent_header"].get("msg_id"), message["msg_type"], message["content"]
        if kind == "iopub_welcome" or parent in self._probes:
            self._subscribed.set()
            return
        cell = self._cell if self._cell is not None and parent == self._cell.request_id else None
        if kind == "freeact_request":
            self._on_request(content, cell.clock if cell is not None else None)
        elif kind == "freeact_branch":
            self.on_branch(content)
        elif cell is None:
            return
        elif kind == "status":
            if content["execution_state"] == "idle":
                cell.idle = True
                cell.changed.set()
        elif (output := _output(kind, content)) is not None:
            cell.buffer.add(output)


def _retrieved(sent: asyncio.Future[Any]) -> None:
    if not sent.cancelled() and sent.exception() is not None:
        logger.warning("a message to a kernel could not be sent: %s", sent.exception())


def _output(kind: str, content: dict[str, Any]) -> CellOutput | None:
    match kind:
        case "stream":
            return StreamText(name=content["name"], text=content["text"])
        case "display_data" | "update_display_data":
            return DisplayData(
                data=content["data"],
                metadata=content.get("metadata", {}),
                display_id=content.get("transient", {}).get("display_id"),
                update=kind == "update_display_data",
            )
        case "execute_result":
            return ExecuteResult(
                data=content["data"],
                metadata=content.get("metadata", {}),
                execution_count=content["execution_count"],
            )
        case "error":
            return CellError(ename=content["ename"], evalue=content["evalue"], traceback=tuple(content.get("traceback", ())))
        case "clear_output":
            return ClearOutput(wait=bool(content.get("wait", False)))
    return None
