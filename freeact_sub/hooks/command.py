"""`run_command`: runs the command of a hook in a shell, in the workspace and with the rights of the person.

The process guard starts it: when the command ends, its time is up, its run is cancelled or the host ends, it and all that
it has started end. What it prints is read while it runs, and only the beginning is kept.
"""

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Final

from freeact_sub.config.hooks import PROJECT_VARIABLE, CommandHook
from freeact_sub.hooks.answer import HookAnswer, failed, read_exit
from freeact_sub.system.guarded_shell import guarded_shell

MAX_OUTPUT_BYTES: Final = 1_000_000
"""Of each stream; the rest is read and dropped."""
CHUNK_BYTES: Final = 65_536


async def run_command(hook: CommandHook, data: bytes, workspace: Path) -> HookAnswer:
    """Runs a command to its end. Args: data: what it reads on standard input."""
    if changed := await asyncio.to_thread(hook.changed_scripts):
        return failed(f"{changed[0]} has changed since it was reviewed: start again to review it")
    environment, pipe = {**os.environ, PROJECT_VARIABLE: str(workspace)}, asyncio.subprocess.PIPE
    async with guarded_shell(hook.command, workspace, environment, stdin=pipe, stderr=pipe) as process:
        output, errors, _ = await asyncio.gather(_read(process.stdout), _read(process.stderr), _write(process.stdin, data))
        code = await process.wait()
    if len(output) > MAX_OUTPUT_BYTES and output.lstrip().startswith(b"{"):
        return failed(f"it printed more than {MAX_OUTPUT_BYTES:,} bytes")
    texts = (stream.decode(errors="replace") for stream in (output, errors))
    return read_exit(hook.event, code, *texts)


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
