"""`run_command`: runs the command of a hook in a shell, in the workspace and with the rights of the person.

The process guard starts it: when the command ends, its time is up, its run is cancelled or the host ends, it and all that
it has started end. What it prints is read while it runs, and only the beginning is kept.
"""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from freeact_sub.config.hooks import PROJECT_VARIABLE, CommandHook
from freeact_sub.hooks.answer import HookAnswer, failed, read_exit
from freeact_sub.system.closing import carry_out, end_guarded
from freeact_sub.system.guard import GUARD_COMMAND

MAX_OUTPUT_BYTES: Final = 1_000_000
"""Of each stream; the rest is read and dropped."""
CHUNK_BYTES: Final = 65_536
END_SECONDS: Final = 3.0


async def run_command(hook: CommandHook, data: bytes, workspace: Path) -> HookAnswer:
    """Runs a command to its end. Args: data: what it reads on standard input."""
    if changed := await asyncio.to_thread(hook.changed_scripts):
        return failed(f"{changed[0]} has changed since it was reviewed: start again to review it")
    async with _started(hook.command, workspace) as process:
        output, errors, _ = await asyncio.gather(_read(process.stdout), _read(process.stderr), _write(process.stdin, data))
        code = await process.wait()
    if len(output) > MAX_OUTPUT_BYTES and output.lstrip().startswith(b"{"):
        return failed(f"it printed more than {MAX_OUTPUT_BYTES:,} bytes")
    texts = (stream.decode(errors="replace") for stream in (output, errors))
    return read_exit(hook.event, code, *texts)


@asynccontextmanager
async def _started(command: str, workspace: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    shell = shutil.which("bash") or "/bin/sh"
    process = await asyncio.create_subprocess_exec(
        *GUARD_COMMAND,
        str(os.getpid()),
        shell,
        "-c",
        command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=workspace,
        env={**os.environ, PROJECT_VARIABLE: str(workspace)},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        await carry_out(_end(process))


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        await end_guarded(process, asyncio.create_task(process.wait()), timeout_seconds=END_SECONDS)


async def _read(stream: asyncio.StreamReader | None) -> bytes:
    kept = bytearray()
    while stream is not None and (data := await stream.read(CHUNK_BYTES)):
        kept += data[: max(0, MAX_OUTPUT_BYTES + 1 - len(kept))]
    return bytes(kept)


async def _write(stream: asyncio.StreamWriter | None, data: bytes) -> None:
    if stream is None:
        return
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it need not read
        stream.write(data)
        await stream.drain()
    stream.close()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        await stream.wait_closed()
