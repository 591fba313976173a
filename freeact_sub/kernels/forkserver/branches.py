"""`Branches`: makes a live kernel fork itself, and the fork server adopt the fork.

The kernel forks itself (`brancher.py` says how); the host only tells it when, and tells the server to expect the branch. A
kernel's messages are not trusted: the server adopts a process only if it is two generations below that kernel, so that a lie
costs the kernel at most one of its own processes.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Mapping
from typing import Any, Final

from jupyter_client.manager import AsyncKernelManager, KernelManager

from freeact_sub.errors import KernelBranchError, KernelStartError
from freeact_sub.kernels.forkserver.process import ForkServer
from freeact_sub.kernels.kernel import KernelSpec
from freeact_sub.kernels.wire.client import KernelClient
from freeact_sub.system.closing import carry_out

PORTS: Final = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
ABANDON_SECONDS: Final = 2.0
"""Seconds that the kernel may take to drop a branch. One that is busy in code that does not let go of the interpreter drops
it later: the message stays in its queue."""
END_SECONDS: Final = 3.0


class Branches:
    """The branches of one kernel that are being made."""

    def __init__(self, client: KernelClient) -> None:
        """Args: client: the kernel's; its owner passes the replies on to `receive`."""
        self._client = client
        self._replies: dict[str, asyncio.Queue[dict[str, Any]]] = {}
        self._lost = False

    def _send(self, content: dict[str, Any]) -> None:
        self._client.send_control("freeact_branch", content)

    def receive(self, content: dict[str, Any]) -> None:
        """Receives a reply of the kernel; one without a waiting caller is dropped."""
        replies = self._replies.get(str(content.get("id")))
        if replies is not None:
            replies.put_nowait(content)

    def lose(self, reason: str) -> None:
        """Notes that the kernel has ended, or is being closed."""
        self._lost = True
        for replies in self._replies.values():
            replies.put_nowait({"state": "lost", "reason": f"it ended: {reason}"})

    async def make(self, server: ForkServer, origin: int, request: Mapping[str, Any]) -> tuple[int, asyncio.Future[int]]:
        """Makes the kernel fork itself; cancelling leaves nothing behind.

        Args:
            server: The fork server that the kernel came from.
            origin: The kernel's process id.
            request: The settings with which the branch opens as a kernel.

        Returns:
            The process id of the branch and a future with its exit code, as `ForkServer.start`.

        Raises:
            KernelBranchError: It cannot be forked; the message says why.
        """
        branch_id, adopted = uuid.uuid4().hex, None
        replies = self._replies[branch_id] = asyncio.Queue()
        try:
            self._send({"id": branch_id, "op": "fork", **request})
            pid = _process(await _next(replies, "forked"))
            adopted = pid, await _adopted(server, pid, origin)
            self._send({"id": branch_id, "op": "seat"})
            await _next(replies, "seated")
        except BaseException:
            await carry_out(self._abandon(branch_id, replies, server, adopted))
            raise
        finally:
            del self._replies[branch_id]
        return adopted

    async def _abandon(
        self,
        branch_id: str,
        replies: asyncio.Queue[dict[str, Any]],
        server: ForkServer,
        adopted: tuple[int, asyncio.Future[int]] | None,
    ) -> None:
        self._send({"id": branch_id, "op": "abandon"})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ABANDON_SECONDS):
                while not self._lost and (await replies.get()).get("state") != "abandoned":
                    pass
        if adopted is not None:  # perhaps it belongs to the server by now
            pid, ended = adopted
            server.end(pid)
            await asyncio.wait({ended}, timeout=END_SECONDS)


def check_branch(spec: KernelSpec, origin: KernelSpec) -> None:
    """Refuses a branch that differs from its kernel in a setting that a fork cannot change.

    Raises:
        KernelBranchError: The branch differs; the message names the setting.
    """
    for name in ("python", "mode", "workspace", "environment", "sandbox"):
        if getattr(spec, name) != getattr(origin, name):
            raise KernelBranchError(f"a branch must have the same {name} as the kernel that it copies")


def choose_connection(manager: AsyncKernelManager) -> dict[str, Any]:
    """Numbers the sockets of a kernel in a new folder, and returns its connection information as JSON can carry it."""
    for number, name in enumerate(PORTS, 1):
        setattr(manager, name, number)
    return connection_of(manager)


def connection_of(manager: KernelManager) -> dict[str, Any]:
    """Returns the connection information of a kernel as JSON can carry it."""
    info = manager.get_connection_info()
    return {**info, "key": info["key"].decode()}


async def _next(replies: asyncio.Queue[dict[str, Any]], expected: str) -> dict[str, Any]:
    reply = await replies.get()
    if reply.get("state") != expected:
        raise KernelBranchError(f"the kernel cannot be branched: {reply.get('reason')}")
    return reply


def _process(reply: dict[str, Any]) -> int:
    pid = reply.get("pid")
    if not isinstance(pid, int):
        raise KernelBranchError("the kernel cannot be branched: its reply names no process")
    return pid


async def _adopted(server: ForkServer, pid: int, origin: int) -> asyncio.Future[int]:
    """Makes the server expect the branch, and returns a future with its exit code."""
    try:
        return await server.adopt(pid, origin)
    except KernelStartError as error:
        raise KernelBranchError(f"the kernel cannot be branched: {error}") from error
