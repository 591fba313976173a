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
    if process.returncode is None:
        await end_guarded(process, asyncio.create_task(process.wait()), timeout_seconds=END_SECONDS)
