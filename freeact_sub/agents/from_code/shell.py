"""Answers `shell`: one command outside the sandbox, if a person grants it (`await agent.shell(command, reason=...)`).

The host runs it in the workspace, with the environment of kernels, which holds no key of the host. The process guard ends it
and all its descendants when the command ends, the cell is interrupted or the host ends.
"""

import asyncio
import codecs
import itertools
import os
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from freeact_sub.agents.from_code.base import CodeCalls
from freeact_sub.calls import ShellCommand
from freeact_sub.cells import ExecuteReply, StreamText
from freeact_sub.errors import FreeactError
from freeact_sub.kernels import CellClock, CellOutputBuffer
from freeact_sub.system.closing import carry_out, end_guarded
from freeact_sub.system.guard import GUARD_COMMAND

MAX_COMMAND_CHARS: Final = 100_000
MAX_PURPOSE_CHARS: Final = 2_000
OUTPUT_CHARS: Final = 1_000_000
"""Characters of output that the cell shows live and returns as head and tail; a file has all of it."""
CHUNK_BYTES: Final = 65_536
END_SECONDS: Final = 3.0

_numbers = itertools.count(1)


class ShellRequests:
    """Answers `shell`."""

    def __init__(self, calls: CodeCalls, output_folder: Path) -> None:
        self._calls = calls
        self._output_folder = output_folder
        self.handlers = {"shell": self._shell}

    async def _shell(self, params: Mapping[str, Any], clock: CellClock | None) -> AsyncIterator[Any]:
        command, purpose = params.get("command"), params.get("reason")
        if not isinstance(command, str) or not isinstance(purpose, str):
            raise FreeactError("agent.shell needs a command and a reason, both as text")
        if "\0" in command or not 0 < len(command) <= MAX_COMMAND_CHARS:
            raise FreeactError(f"a command has 1 to {MAX_COMMAND_CHARS:,} characters, none of them zero")
        call = ShellCommand(command=command, outside=True, purpose=purpose[:MAX_PURPOSE_CHARS])
        await self._calls.check(call, clock)
        return self._run(command)

    async def _run(self, command: str) -> AsyncIterator[Any]:
        """Run the command; yield its output as it comes, and finally how it ended."""
        config = self._calls.agent.shared.config
        environment = config.kernel.environment()
        file = self._output_folder / f"shell-{next(_numbers):04}.txt"
        buffer = CellOutputBuffer(model_chars=OUTPUT_CHARS, file=file, root=config.workspace)
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        shown = 0
        async with _guarded(command, config.workspace, environment) as process:
            if process.stdout is None:
                raise FreeactError("the command has no output to read")
            try:
                while data := await process.stdout.read(CHUNK_BYTES):
                    text = decoder.decode(data)
                    buffer.add(StreamText(name="stdout", text=text))
                    if text and shown < OUTPUT_CHARS:
                        yield text
                        shown += len(text)
                exit_code = await process.wait()
            finally:
                buffer.end(ExecuteReply(status="ok"))
        if shown < buffer.total_chars:
            yield f"\n[… {buffer.total_chars - shown:,} more characters of output: {buffer.file} …]\n"
        yield {"exit_code": exit_code, "output": buffer.text}


@asynccontextmanager
async def _guarded(
    command: str, workspace: Path, environment: Mapping[str, str]
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a shell that runs the command; leaving the block ends it and all its descendants."""
    shell = shutil.which("bash", path=environment.get("PATH")) or "/bin/sh"
    process = await asyncio.create_subprocess_exec(
        *GUARD_COMMAND,
        str(os.getpid()),
        shell,
        "-c",
        command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=workspace,
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
