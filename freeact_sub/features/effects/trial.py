"""`AgentTrials`: run cells in copies of their agent's kernel that can change nothing, and tell what they did there.

The copy is a branch with an own copy of the workspace, behind a wall of its own (`wall/of_trials.py`). It answers to
`TrialHost`, never to a person or to the agent's servers, and is ended with all that it has started: at the end of the cell,
at the first thing that must not happen unasked, when its time is up, and when the question is decided.
"""

import asyncio
import json
import logging
import time
import uuid
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from freeact_sub.agents.tree_agent import TreeAgent
from freeact_sub.approvals.open_questions import CallTrial, Tried, TryOut
from freeact_sub.calls import Call, CodeAction
from freeact_sub.cells import CellError, ExecuteReply, ReplyStatus
from freeact_sub.config.schema import EffectsConfig
from freeact_sub.errors import FreeactError, KernelError
from freeact_sub.events import Decision
from freeact_sub.events.effects import Effects, FileEffect, VariableChange
from freeact_sub.features.effects.diffs import file_effects
from freeact_sub.features.effects.trial_host import TrialHost
from freeact_sub.features.effects.turns import CellTurn, CellTurns
from freeact_sub.kernels import CellClock, CellOutputBuffer, Kernel, TrialBounds, own_files_of
from freeact_sub.kernels.handover import read_whole
from freeact_sub.kernels.variable_reports import REPORT_BYTES, compared, parsed, told
from freeact_sub.kernels.wire.screen_text import short_traceback
from freeact_sub.kernels.workspaces import OwnFiles
from freeact_sub.system.closing import carry_out
from freeact_sub.text import one_line, visible

START_SECONDS: Final = 10.0
"""Past it there is no trial: the kernel computes, or the machine is busy."""
CLOSE_SECONDS: Final = 10.0
OWN_CELL_SECONDS: Final = 5.0
INTERRUPT_SECONDS: Final = 2.0
GRACE_SECONDS: Final = 3.0
"""After its time is up, a cell that does not end is killed with its kernel within this time."""
GIB: Final = 1 << 30
REASON_CHARS: Final = 300
VARIABLES: Final = 200
"""Changed variables that are shown."""

logger = logging.getLogger(__name__)


class AgentTrials:
    """The trials of one agent."""

    def __init__(self, agent: TreeAgent, places: asyncio.Semaphore) -> None:
        """There is none yet. Args: agent: its policy decides. places: the right of a trial to run; more wait."""
        self._agent, self._places = agent, places
        self._running: set[asyncio.Task[Any]] = set()
        self._is_closed = False
        self.turns = CellTurns()

    def of(self, call: Call) -> TryOut | None:
        """Return the trial of a call, or why there is none. None: it is no cell."""
        if not isinstance(call, CodeAction):
            return None
        reason = ""
        if not self._agent.shared.config.effects.enabled:
            reason = "trials are off (setting effects.enabled)"
        elif self._agent.policy.mode != "ask":
            reason = f"cells are tried in mode ask only, and this is {self._agent.policy.mode}"
        return Effects(status="refused", reason=reason, off=True) if reason else TrialOfCell(self, call)

    async def aclose(self) -> None:
        """End those that run, and try nothing any more."""
        self._is_closed = True
        deadline = asyncio.get_running_loop().time() + CLOSE_SECONDS
        while tasks := {*self._running}:
            for task in tasks:
                task.cancel()  # what ends a kernel ends it nevertheless
            if not (await asyncio.wait(tasks, timeout=deadline - asyncio.get_running_loop().time()))[0]:
                break

    async def try_out(self, call: Call, turn: CellTurn) -> Tried:
        """Try a cell when its turn comes."""
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            if reason := await self.turns.come(turn):
                return _refused(reason)
            async with self._places:
                ran = self.turns.ran
                tried = _refused("its agent is closed") if self._is_closed else await self._try_cell(call)
                return replace(tried, is_outdated=lambda: self.turns.ran != ran)
        except Exception as error:  # border: a trial costs its agent nothing, whatever fails in it
            logger.warning("a trial failed", exc_info=True)
            return _refused(one_line(f"{type(error).__name__}: {error}", REASON_CHARS))
        finally:
            self._running.discard(task)

    async def _try_cell(self, call: Call) -> Tried:
        config, began = self._agent.shared.config, time.monotonic()
        settings, host = config.effects, TrialHost(self._agent)
        try:
            if (origin := self._agent.kernel) is None:
                return _refused("its agent is closed")
            bounds = TrialBounds(memory_bytes=settings.memory_bytes)
            kernel = await origin.copy(
                host.reply, lambda spec: replace(spec, own_files=True, trial=bounds, start_timeout_seconds=START_SECONDS)
            )
        except (KernelError, TimeoutError) as error:
            return _refused(_short(str(error)))
        try:
            trial = CellTrial(kernel, host, settings, config.kernel.output_chars)
            found = await trial.run(_code(call))
        except KernelError as error:
            return _refused(_short(str(error)))
        finally:
            ending = asyncio.create_task(carry_out(kernel.aclose()), name="end of a trial")
            self._running.add(ending)  # its effects are read meanwhile
            ending.add_done_callback(self._running.discard)
        effects, own = Effects(**found, seconds=time.monotonic() - began), own_files_of(kernel)
        return Tried(effects, None if own is None else partial(_outdated_by, own))


class TrialOfCell(CallTrial):
    """The trial of one cell that a person is asked about."""

    def __init__(self, trials: AgentTrials, cell: CodeAction) -> None:
        self._trials, self._turn = trials, trials.turns.ask(cell.code)

    def __call__(self, call: Call) -> Coroutine[None, None, Tried]:
        """See `CallTrial`."""
        return self._trials.try_out(call, self._turn)

    def decided(self, decision: Decision) -> None:
        """See `CallTrial`."""
        self._trials.turns.decided(self._turn, decision)


class CellTrial:
    """One cell in a kernel that is dropped afterwards."""

    def __init__(self, kernel: Kernel, host: TrialHost, settings: EffectsConfig, output_chars: int) -> None:
        self._kernel, self._host, self._seconds = kernel, host, settings.seconds
        self._bound = f"{settings.memory_bytes / GIB:.3g} GiB"
        self._raised: CellError | None = None
        self._buffer = CellOutputBuffer(model_chars=output_chars)
        own = own_files_of(kernel)
        host.folders = tuple(filter(None, (kernel.scratch, None if own is None else own.root)))

    async def run(self, code: str) -> dict[str, Any]:
        """Run the cell; the fields of `Effects`."""
        await self._own_cell("before()")
        running = asyncio.create_task(self._cell(code), name="cell in a trial")
        try:
            async with asyncio.timeout(self._seconds + GRACE_SECONDS):
                either: set[asyncio.Future[Any]] = {running, self._host.stopped}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            pass
        output, displays = self._buffer.text, self._buffer.displays  # without the error of the interruption
        files = await asyncio.to_thread(self._files) if self._host.stopped.done() else None
        self._host.looked.set()
        if self._host.stopped.done():
            await asyncio.wait({running}, timeout=INTERRUPT_SECONDS)
        if not running.done():
            await self._kernel.interrupt()
            await asyncio.wait({running}, timeout=INTERRUPT_SECONDS)
        ended = running.done()
        running.cancel()
        cell = running.result().status if ended else None
        if self._host.stopped.done():
            cell = None
        elif cell is None:
            cell = "timeout"
        reason = self._stopped_by(cell)
        variables, told = await self._variables() if ended else ((), {})
        if cell == "error" and (met := self._bound_met(told)):
            # an error that only the trial has is none of the cell's
            reason, cell, output = met, "interrupted", self._without_error(output)
        if cell == "timeout" and (threads := _names(told.get("threads"))):
            reason += f"; a copy has no threads, and its kernel has some that wait for work: {threads}"
        if told.get("programs") is True and not reason:
            reason = "it leaves a program running"
        return {
            "status": "stopped" if reason else "done",
            "reason": reason,
            "cell": cell,
            "output": output,
            "displays": displays,
            "variables": variables,
            **(await asyncio.to_thread(self._files) if files is None else files),
        }

    async def _cell(self, code: str) -> ExecuteReply:
        async with self._kernel.execute(code, self._buffer, CellClock(self._seconds)) as cell:
            async for output in cell:
                if isinstance(output, CellError):
                    self._raised = output
            return await cell.reply()

    def _bound_met(self, told: Mapping[str, Any]) -> str:
        """Words for the bound of the trial at which the cell failed. Empty: it failed by itself."""
        met = told.get("bound")
        if met == "file":
            return f"it writes a file of more than {self._bound}"
        by_name = self._raised is not None and self._raised.ename.endswith("MemoryError")
        return f"it needs more than {self._bound} of memory" if met == "memory" or by_name else ""

    def _without_error(self, output: str) -> str:
        return output if self._raised is None else output.rstrip().removesuffix(short_traceback(self._raised).rstrip())

    def _stopped_by(self, cell: ReplyStatus | None) -> str:
        if self._host.stopped.done():
            return f"it wanted to {self._host.stopped.result()}"
        if cell == "timeout":
            return f"it takes longer than {self._seconds:g} s"
        if self._kernel.lost_reason is not None:
            return f"its process is gone: {_short(self._kernel.lost_reason)}"
        return ""

    async def _variables(self) -> tuple[tuple[VariableChange, ...], Mapping[str, Any]]:
        """The report of the trial: on its variables, and on all else; nothing of it is trusted."""
        scratch, name = self._kernel.scratch, f"variables-{uuid.uuid4().hex}"
        if self._kernel.lost_reason is not None or scratch is None:
            return (), {}
        try:
            await self._own_cell(f"after({name!r})")
            found = json.loads(await asyncio.to_thread(read_whole, name, scratch, max_bytes=REPORT_BYTES))
            before, after = (parsed(json.dumps(found[key]).encode()) for key in ("before", "after"))
        except (KernelError, OSError, ValueError, LookupError, TypeError, RecursionError):
            return (), {}
        return tuple(told(compared(before, after), VARIABLES)), found

    def _files(self) -> dict[str, Any]:
        own = own_files_of(self._kernel)
        if own is None:
            return {}
        try:
            changes = own.look()
            return {"files": file_effects(own, changes), "left_out": changes.left_out}
        except (OSError, FreeactError) as error:
            # a cell can cause this; without a word it would seem that no file has changed
            note = f"what the cell does to files cannot be compared: {_short(str(error))}"
            return {"files": (FileEffect(path="…", what="changed", note=note),)}

    async def _own_cell(self, call: str) -> None:
        buffer, code = CellOutputBuffer(), f"__import__('sys').modules['freeact_guest.trial'].{call}"
        async with self._kernel.execute(code, buffer, CellClock(OWN_CELL_SECONDS), silent=True) as cell:
            reply = await cell.reply()
        if reply.status != "ok":
            raise KernelError(_short(buffer.text or reply.status))


async def _outdated_by(own: OwnFiles) -> tuple[str, ...]:
    try:
        return await asyncio.to_thread(own.outdated_by)
    except (OSError, FreeactError):  # it cannot be compared any more: a new trial tells why
        return (own.workspace.name,)


def _names(told: Any) -> str:
    """Names that a trial has told of."""
    return _short(", ".join(map(str, told[:5]))) if isinstance(told, list) else ""


def _refused(reason: str) -> Tried:
    return Tried(Effects(status="refused", reason=reason))


def _code(call: Call) -> str:
    return str(getattr(call, "code", ""))


def _short(text: str) -> str:
    return one_line(visible(text), REASON_CHARS)
