"""`Snapshots`: how the host has a live kernel save its variables, and a new one read them.

The kernel writes into a folder in its scratch folder, which is all that it may write; the host moves the files into a folder
of its own (`files.py`). The kernel forks for it between two cells (`guest/saved/snapshots.py`), and runs its next cell while
the fork works.
"""

import asyncio
import contextlib
import threading
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from freeact_sub.errors import KernelError, KernelSnapshotError
from freeact_sub.kernels.handover import own_cell
from freeact_sub.kernels.snapshot_reports import LeftOut, LostVariable, RestoreReport, SnapshotReport, Variable
from freeact_sub.kernels.snapshots import files
from freeact_sub.kernels.snapshots.rights import KernelRights, more_than
from freeact_sub.kernels.wire.client import KernelClient
from freeact_sub.system.closing import carry_out
from freeact_sub.system.removal import remove

MAX_BYTES: Final = 4 * 2**30
SAVE_SECONDS: Final = 60.0
"""After this time what is not saved yet is left out. Large arrays come last."""
END_SECONDS: Final = 10.0
"""Further seconds until the kernel's fork is killed without a snapshot, because code of a type hangs."""
IN_KERNEL: Final = {"seconds": 0.2, "bytes": 8 * 2**20}
"""The bounds where the kernel itself has to save, and stands still meanwhile."""
BEGIN_SECONDS: Final = 20.0
GIVE_UP_SECONDS: Final = 3.0
RESTORE_SECONDS: Final = 300.0
"""It imports what the variables are of."""
RESULT: Final = "restored.json"
ERROR_CHARS: Final = 1000

_Value = TypeVar("_Value")


class Snapshots:
    """The snapshots of one kernel, one at a time."""

    def __init__(self, client: KernelClient) -> None:
        """Args: client: of the kernel, whose owner passes the replies on to `receive`."""
        self._client = client
        self._replies: dict[str, asyncio.Queue[dict[str, Any]]] = {}
        self._one_at_a_time = asyncio.Lock()

    def receive(self, content: dict[str, Any]) -> None:
        """Receives a reply of the kernel; one without a waiting caller is dropped."""
        replies = self._replies.get(str(content.get("id")))
        if replies is not None:
            replies.put_nowait(content)

    def lose(self, reason: str) -> None:
        """Notes that the kernel has ended, or is being closed."""
        for replies in self._replies.values():
            replies.put_nowait({"state": "lost", "reason": reason})

    async def save(self, scratch: Path, store: files.Store) -> SnapshotReport:
        """See `BranchingKernel.snapshot`. Args: scratch: of the kernel."""
        async with self._one_at_a_time, _new_folder(scratch) as folder:
            known = await _in_thread(lambda _: files.known_files(store.folder))
            begun = await self._saved(folder, known, store.max_bytes)
            manifest, written = await _in_thread(lambda given_up: files.take(folder, store, given_up))
        return SnapshotReport(
            kept=manifest.kept,
            lost=manifest.not_kept,
            size_bytes=sum(manifest.files.values()),
            written_bytes=written,
            pause_seconds=float(begun.get("pause", 0.0)),
            not_forked=str(begun.get("reason", "")),
        )

    async def restore(self, scratch: Path, store: Path, rights: KernelRights | None) -> RestoreReport:
        """See `BranchingKernel.restore`. Args: scratch: of the kernel. rights: the kernel's; None: they do not matter."""
        async with self._one_at_a_time, _new_folder(scratch) as folder:
            parts, others = await _in_thread(lambda given_up: files.place(store, folder, rights, given_up))
            try:
                await own_cell(
                    self._client, f"freeact.saved.files.restore({str(folder)!r}, get_ipython().user_ns)", RESTORE_SECONDS
                )
            except KernelError as error:
                raise KernelSnapshotError(f"the variables could not be read: {error}") from error
            result = await _in_thread(lambda _: files.result(folder, RESULT))
        types = {variable.name: variable.type for part in parts for variable in part.written.kept}
        unread = [
            LostVariable(name=name, type=types.get(name, ""), reason=reason, cell=None)
            for name, reason in result.lost.items()
        ]
        return RestoreReport(
            restored=tuple(Variable(name=name, line=line) for name, line in result.restored.items()),
            lost=(*(lost for part in (*parts, *(part for part, _ in others)) for lost in part.written.not_kept), *unread),
            left_out=tuple(
                LeftOut(
                    variables=kept,
                    saved_in=part.rights.name,
                    more=more,
                    continue_in=part.rights.name if rights is None or more_than(rights, part.rights) else "mode auto",
                )
                for part, more in others
                if (kept := part.written.kept)
            ),
        )

    async def _saved(self, folder: Path, known: list[str], max_bytes: int) -> dict[str, Any]:
        """Has the kernel write into a folder, and returns how that began."""
        snapshot_id = uuid.uuid4().hex
        replies = self._replies[snapshot_id] = asyncio.Queue()
        request = {"folder": str(folder), "known": known, "seconds": SAVE_SECONDS, "bytes": max_bytes, "here": IN_KERNEL}
        try:
            async with self._client.between_cells():
                self._client.send_control("freeact_snapshot", {"id": snapshot_id, "op": "begin", **request})
                begun = await _next(replies, BEGIN_SECONDS, "begun")
            ended = await _next(replies, SAVE_SECONDS + END_SECONDS, "ended")
        except BaseException:
            await carry_out(self._give_up(snapshot_id, replies))
            raise
        finally:
            del self._replies[snapshot_id]
        if ended.get("problem"):
            raise KernelSnapshotError(f"the variables are not saved: {str(ended['problem'])[:ERROR_CHARS]}")
        return begun

    async def _give_up(self, snapshot_id: str, replies: asyncio.Queue[dict[str, Any]]) -> None:
        """Has the kernel end what saves, and waits for it a little: a kernel that has ended has ended it, too."""
        if self._client.lost_reason is not None:
            return
        self._client.send_control("freeact_snapshot", {"id": snapshot_id, "op": "end"})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GIVE_UP_SECONDS):
                while (await replies.get()).get("state") not in ("ended", "lost"):
                    pass


async def _next(replies: asyncio.Queue[dict[str, Any]], seconds: float, expected: str) -> dict[str, Any]:
    try:
        async with asyncio.timeout(seconds):
            reply = await replies.get()
    except TimeoutError as error:
        raise KernelSnapshotError(f"the variables are not saved: that took more than {seconds:g} s") from error
    if reply.get("state") != expected:
        raise KernelSnapshotError(f"the variables are not saved: the kernel has ended: {reply.get('reason')}")
    return reply


async def _in_thread(work: Callable[[threading.Event], _Value]) -> _Value:
    """Do work on files in a thread. A cancel stops the work and waits for it."""
    given_up = threading.Event()
    task = asyncio.ensure_future(asyncio.to_thread(work, given_up))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        given_up.set()
        await carry_out(_ended(task))
        raise
    except OSError as error:
        raise KernelSnapshotError(f"files of variables: {error}") from error
    except ValidationError as error:
        raise KernelSnapshotError(f"the kernel has written no snapshot: {error.errors()[0]['msg']}") from error


async def _ended(task: "asyncio.Future[Any]") -> None:
    await asyncio.wait({task})


@contextlib.asynccontextmanager
async def _new_folder(scratch: Path) -> AsyncIterator[Path]:
    folder = await _in_thread(lambda _: files.new_folder(scratch, f"saved-{uuid.uuid4().hex}"))
    try:
        yield folder
    finally:
        await carry_out(_removed(folder))


async def _removed(folder: Path) -> None:
    await asyncio.to_thread(remove, str(folder))
