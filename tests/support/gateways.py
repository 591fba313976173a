"""Real Jupyter gateways and servers on loopback, and a proxy that can cut what goes through it."""

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from support.serving import serving

from freeact_sub.config.schema import GatewayConfig, KernelConfig

TOKEN = "token-of-the-gateway"
SETTINGS = (
    "--ZMQChannelsWebsocketConnection.limit_rate=False",
    "--AsyncIOLoopKernelRestarter.restart_limit=0",
    "--AsyncIOLoopKernelRestarter.time_to_dead=0.3",
)
"""As docs/gateway.md has them."""
COMMANDS = {
    "gateway": (
        "kernel_gateway",
        "--KernelGatewayApp.port={port}",
        f"--KernelGatewayApp.auth_token={TOKEN}",
        "--JupyterWebsocketPersonality.list_kernels=True",
    ),
    "server": (
        "jupyter_server",
        "--ServerApp.port=0",
        f"--IdentityProvider.token={TOKEN}",
        "--ServerApp.open_browser=False",
        "--allow-root",
    ),
}


WITH_THE_TESTS = """
import ctypes, runpy, signal, sys
sys.modules["rfc3987_syntax"] = None
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
"""Runs a module that ends with this process, however that ends; without the grammar that `tests/conftest.py` leaves out."""


class RunningServer:
    """A server, its address and its process."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self.process = process
        self.url = url

    def kill(self) -> None:
        """End it without a word; its kernels end by themselves."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def serve(kind: str, folder: Path, *settings: str, **environment: str) -> Iterator[RunningServer]:
    """Run one of `COMMANDS` on a free port until it answers, and end it with all its kernels."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "server.log"
    variables = {name: str(folder / name.lower()) for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR")}
    module, *options = COMMANDS[kind]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]  # a gateway takes the next one if somebody is quicker
    with log.open("wb") as file:
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                WITH_THE_TESTS,
                module,
                "--ip=127.0.0.1",
                *(option.format(port=port) for option in options),
                *settings,
            ],
            cwd=folder,
            env={**os.environ, **variables, **environment, "PYDEVD_DISABLE_FILE_VALIDATION": "1"},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        yield RunningServer(process, _address(process, log))
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Where it listens, as it says in its log: a Jupyter server says so before it does."""
    for _ in range(1200):
        found = re.search(r"https?://127\.0\.0\.1:([1-9]\d*)", log.read_text(errors="replace"))
        if found and _is_open(int(found[1])):
            return found[0]
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
            break
    raise AssertionError(f"no server came up: {log.read_text(errors='replace')[-2000:]}")


def _is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 60).close()
    except OSError:
        return False
    return True


def behind(*servers: "RunningServer | Proxy", **settings: Any) -> KernelConfig:
    """Settings for kernels of these servers."""
    gateway = GatewayConfig(url=tuple(server.url for server in servers), token=TOKEN, **settings)
    return KernelConfig(provider="gateway", gateway=gateway, start_timeout_seconds=240)


class Proxy:
    """Stands between us and a server: keeps what we send, and cuts connections."""

    def __init__(self, server: RunningServer, *, old_frames: bool = False) -> None:
        """Args: old_frames: the server is not told that we know its newer protocol."""
        self._old_frames = old_frames
        self._target = urlsplit(server.url)
        self._connections: set[asyncio.StreamWriter] = set()
        self.sent: list[bytearray] = []
        """What we have sent, by connection."""
        self.url = ""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Proxy"]:
        """Listen for the time of a test."""
        async with serving(self._serve) as server:
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield self

    def cut(self) -> None:
        """Drop all connections, on both sides, without a word."""
        for writer in self._connections:
            writer.transport.abort()

    def plain(self) -> bytes:
        """All that we have sent, as the server reads it: frames without their masks."""
        return b"".join(map(_unmasked, map(bytes, self.sent)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there = await asyncio.open_connection(self._target.hostname, self._target.port)
        sent = bytearray()
        self.sent.append(sent)
        self._connections |= {writer, there}
        try:
            if self._old_frames:
                head = await reader.readuntil(b"\r\n\r\n")
                there.write(re.sub(rb"(?i)sec-websocket-protocol:[^\r]*\r\n", b"", head))
            await asyncio.gather(_pass_on(reader, there, sent), _pass_on(there_reader, writer))
        finally:
            for end in (writer, there):
                self._connections.discard(end)
                end.transport.abort()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray | None = None) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            if kept is not None:
                kept += data
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


def _unmasked(data: bytes) -> bytes:
    """What a client sends on one connection: requests, and frames of a WebSocket (RFC 6455, section 5.2)."""
    head, end, rest = data.partition(b"\r\n\r\n")
    if b"upgrade: websocket" not in head.lower():
        return data
    plain = head + end
    while len(rest) >= 2:
        size, start = rest[1] & 127, 2
        if size > 125:
            length = 2 if size == 126 else 8
            size, start = int.from_bytes(rest[2 : 2 + length], "big"), 2 + length
        mask, body = rest[start : start + 4], rest[start + 4 : start + 4 + size]
        repeated = (mask * (len(body) // 4 + 1))[: len(body)]
        plain += (int.from_bytes(body, "big") ^ int.from_bytes(repeated, "big")).to_bytes(len(body), "big")
        rest = rest[start + 4 + size :]
    return plain
