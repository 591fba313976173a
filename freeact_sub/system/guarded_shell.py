"""`guarded_shell`: a command in a shell under the process guard, which ends with all that it has started."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from freeact_sub.system.closing import carry_out, end_guarded
from freeact_sub.system.guard import GUARD_COMMAND

END_SECONDS: Final = 3.0
CHUNK_BYTES: Final = 65_536


@asynccontextmanager
async def guarded_shell(
    command: str, folder: Path, environment: Mapping[str, str], *, stdin: int, stderr: int
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a shell that runs a command; leaving the block ends it and all its descendants.

    Args:
        command: For bash, or for `/bin/sh` where the environment has no bash.
        folder: Where it runs.
        environment: All its variables.
        stdin: As in `subprocess`. Standard output is always a pipe.
        stderr: As in `subprocess`.
    """
    process = await asyncio.create_subprocess_exec(
        *GUARD_COMMAND,
        str(os.getpid()),
        shutil.which("bash", path=environment.get("PATH")) or "/bin/sh",
        "-c",
        command,
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
        cwd=folder,
        env=dict(environment),
        start_new_session=True,
    )
    try:
        yield process
    finally:
        await carry_out(_end(process))


async def _end(process: asyncio.subprocess.Process) -> None:
    streams = [stream for stream in (process.stdout, process.stderr) if stream is not None]
    # asyncio notices the end of a process only once all that it has written is read
    reading = [asyncio.create_task(_read_to_end(stream)) for stream in streams]
    if process.returncode is None:
        await end_guarded(process, asyncio.create_task(process.wait()), timeout_seconds=END_SECONDS)
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)


async def _read_to_end(stream: asyncio.StreamReader) -> None:
    while await stream.read(CHUNK_BYTES):
        pass
