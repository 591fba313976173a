"""`HookRunner`: runs all hooks that match, side by side, each within its time.

`run_command` runs the command of a hook in a shell, in the workspace and with the rights of the person. The process guard
starts it: when the command ends, its time is up, its run is cancelled or the host ends, it and all that it has started end.
What it prints is read while it runs, and only the beginning is kept.
"""

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio

from freeact_sub.config.hooks import PROJECT_VARIABLE, CommandHook, HookEvent, first_matched
from freeact_sub.config.schema import cache_folder
from freeact_sub.config.trust import CACHE_VARIABLE, SAFE_VARIABLE
from freeact_sub.hooks.answer import HookAnswer, failed, read_exit, together
from freeact_sub.hooks.hook import Hook, call_hook
from freeact_sub.system.guarded_shell import guarded_shell
from freeact_sub.text import one_line

MAX_OUTPUT_BYTES: Final = 1_000_000
"""Of each stream; the rest is read and dropped."""
CHUNK_BYTES: Final = 65_536

AnyHook: TypeAlias = CommandHook | Hook
AT_ONCE: Final = 20
"""Hooks of one root that run at the same time; more wait."""
SLOW_SECONDS: Final = 5.0
"""People are told of a hook that takes longer."""
MAX_TOLD: Final = 20
"""Different sentences about one hook that people are told."""
LABEL_CHARS: Final = 80

logger = logging.getLogger(__name__)


class HookRunner:
    """Runs hooks for the agents of one root."""

    def __init__(self, hooks: Iterable[AnyHook], workspace: Path) -> None:
        """Args: hooks: those of all agents."""
        self.hooks = tuple(hooks)
        self._workspace = workspace
        self._told: dict[str, set[str]] = {}
        """What people have been told of each hook."""
        self.renew()

    def renew(self) -> None:
        """Renew what belongs to an event loop."""
        self._places = anyio.Semaphore(AT_ONCE, fast_acquire=True)

    async def run(
        self,
        hooks: Sequence[AnyHook],
        event: HookEvent,
        names: Sequence[str],
        data: Callable[[str], Mapping[str, Any]],
        on_notice: Callable[[str], None],
    ) -> HookAnswer | None:
        """Run the hooks of an event that match.

        Args:
            hooks: Those that may match.
            event: What happens.
            names: What a matcher may name.
            data: Makes what a hook reads from the name that its matcher named.
            on_notice: Tells people of a hook that fails, and what a hook has for them.

        Returns:
            What they say together. None: no hook matches.
        """
        matching = [(hook, name) for hook in hooks if (name := matched(hook, event, names)) is not None]
        if not matching:
            return None
        answers = await asyncio.gather(*(self._run(hook, data(name), on_notice) for hook, name in matching))
        answer = together(answers)
        if answer.notice:
            on_notice(f"a hook says: {answer.notice}")
        return answer

    async def _run(self, hook: AnyHook, data: Mapping[str, Any], on_notice: Callable[[str], None]) -> HookAnswer:
        name = f"the hook `{one_line(hook.label, LABEL_CHARS)}` ({hook.event})"
        waits = f"{name} is still running; it may take {hook.timeout_seconds:g} s"
        async with self._places:
            slow = asyncio.get_running_loop().call_later(SLOW_SECONDS, self._tell, hook, waits, on_notice)
            try:
                answer = await self._in_time(hook, data)
            finally:
                slow.cancel()
        if not answer.failure:
            return answer
        problem = f"{name} failed: {answer.failure}"
        logger.info("%s", problem)  # people read the notice
        self._tell(hook, problem, on_notice)
        return HookAnswer(verdict="deny", reason=f"{problem}, and it is required") if hook.required else HookAnswer()

    def _tell(self, hook: AnyHook, text: str, on_notice: Callable[[str], None]) -> None:
        told = self._told.setdefault(hook.label, set())
        if text not in told and len(told) < MAX_TOLD:
            told.add(text)
            on_notice(text)

    async def _in_time(self, hook: AnyHook, data: Mapping[str, Any]) -> HookAnswer:
        try:
            with anyio.move_on_after(hook.timeout_seconds):
                if isinstance(hook, Hook):
                    return await call_hook(hook, data)
                return await run_command(hook, _wire(data), self._workspace)
        except Exception as error:  # border: whatever a hook raises is its failure
            logger.info("a hook failed", exc_info=True)
            return failed(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
        return failed(f"it took longer than {hook.timeout_seconds:g} s")


def matched(hook: AnyHook, event: HookEvent, names: Sequence[str]) -> str | None:
    """The name that a hook's matcher names at an event. None: it does not match."""
    return first_matched(hook.matcher, names) if hook.event == event else None


def _wire(data: Mapping[str, Any]) -> bytes:
    """One object of JSON; what JSON does not know becomes text."""
    return json.dumps(data, default=str).encode("ascii") + b"\n"


async def run_command(hook: CommandHook, data: bytes, workspace: Path) -> HookAnswer:
    """Runs a command to its end. Args: data: what it reads on standard input."""
    if changed := await asyncio.to_thread(hook.changed_scripts):
        return failed(f"{changed[0]} has changed since it was reviewed: start again to review it")
    environment, pipe = {**os.environ, PROJECT_VARIABLE: str(workspace)}, asyncio.subprocess.PIPE
    if hook.scripts or hook.safe_path:
        environment[CACHE_VARIABLE] = str(cache_folder())  # what is compiled beside a script is not looked at
    if hook.safe_path:
        environment[SAFE_VARIABLE] = "1"
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
