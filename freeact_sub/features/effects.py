"""`EffectsFeature`: tries a cell while a person is asked whether it may run, and tells its effects (docs/effects.md).

`AgentTrials` run cells in copies of their agent's kernel that can change nothing. The kernel's side is
`kernels/guest/trial.py`, its wall `wall/of_trials.py` and `layer.seal`.

The copy is a branch with an own copy of the workspace, behind a wall of its own. It answers to `TrialHost`, never to a
person or to the agent's servers, and is ended with all that it has started: at the end of the cell, at the first action that
must not happen unasked, when its time is up, when the question is decided, and with its run.

A model may write several cells in one response. They are asked about at once, and run one after the other: the effects of a
later one are known when the earlier ones have run, or are denied. `CellTurns` is their order, so that a cell is tried in the
kernel that it would find.

`file_effects` compares the copy of the workspace with the workspace. The copy was written by code that nobody has approved:
it is reached folder by folder, without following a link.
"""

import asyncio
import contextlib
import json
import logging
import os
import stat
import time
import uuid
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, TypeVar

from freeact_sub.agents.feature import Asker, EndedCall, Feature, FeatureAgent, Proceed, RequestedCall, RunPart, UsedKernel
from freeact_sub.agents.life import TreeAgent, tree_agent
from freeact_sub.agents.requests import action_of
from freeact_sub.agents.results import RunResult
from freeact_sub.approvals import Policy
from freeact_sub.approvals.gate import Advice, Adviser
from freeact_sub.approvals.open_questions import CallTrial, Tried, TryOut
from freeact_sub.calls import Call, CodeAction, HarmlessCode, NetworkConnect
from freeact_sub.cells import CellError, CellOutput, ExecuteReply, ReplyStatus
from freeact_sub.config.schema import EffectsConfig
from freeact_sub.errors import ApprovalDeniedError, FreeactError, KernelError
from freeact_sub.events import Decision, Notice
from freeact_sub.events.answers import Effects, FileEffect, VariableChange
from freeact_sub.kernels import WALLED, CellClock, CellOutputBuffer, Kernel, TrialBounds, own_files_of
from freeact_sub.kernels.files import Changes, OwnFiles
from freeact_sub.kernels.files.places import around, opened_file, opened_workspace
from freeact_sub.kernels.handover import own_cell, read_whole
from freeact_sub.kernels.taking_over import FACTS, KeptTrial
from freeact_sub.kernels.variable_reports import REPORT_BYTES, compared, explained, parsed, told
from freeact_sub.kernels.wire.output import short_traceback
from freeact_sub.system.closing import carry_out
from freeact_sub.text import cut, diff_lines, duration, one_line, visible

SHOWN: Final = 100
"""Maximum paths to show; the last one tells how many more there are."""
TEXT_BYTES: Final = 256 << 10
"""Size limit of a shown file; a larger one is described by its size."""
DIFF_LINES: Final = 200
LINE_CHARS: Final = 400
TURN_SECONDS: Final = 30.0
"""Seconds that a trial waits for a running cell. It is tried again at each look of a person."""
NOT_DECIDED: Final = "the cell before it is not decided yet, and this one runs after it"
STILL_RUNS: Final = "the cell before it still runs"
WORDS: Final = {
    "ask": "ask a model",
    "ask_user": "ask you something",
    "children": "reach its children",
    "node": "make or use a node",
    "own_call": "call a function of the program",
    "own_tools": "call a function of the program",
    "progress": "show the progress of a strategy",
    "question": "read what you type",
    "shell": "run outside the sandbox",
    "skill": "load a skill",
    "task": "start a child",
}
"""Words for each request, by its method."""
NAMES: Final = ("command", "server", "tool", "description", "prompt", "name")
"""Parameters that tell more about a request."""
CHARS: Final = 120
LOOK_SECONDS: Final = 20.0
"""Seconds that looking at a trial's files may take."""
START_SECONDS: Final = 10.0
"""Seconds to start a trial. Past them there is none: the kernel computes, or the machine is busy."""
CLOSE_SECONDS: Final = 10.0
OWN_CELL_SECONDS: Final = 5.0
TRIAL: Final = "freeact_guest.trial"
"""The module of trials, made anew in the copy (`wall/of_trials.py`): code in the kernel may have changed the package."""
INTERRUPT_SECONDS: Final = 2.0
GRACE_SECONDS: Final = 3.0
"""Seconds after its time until a cell that does not end is killed with its kernel."""
GIB: Final = 1 << 30
REASON_CHARS: Final = 300
VARIABLES: Final = 200
"""Maximum changed variables to show."""

logger = logging.getLogger(__name__)
T = TypeVar("T")

UNASKED: Final = "it changes nothing"
NOT_RUN: Final = (
    "the cell was not asked about, because it changes nothing, and did not run after all: {reason}; send it again"
)
TAKEN_OVER: Final = "taken over from its trial, which took {time}"
TAKEN_SECONDS: Final = 3.0
"""Seconds of a trial above which a yes takes it over: a shorter one is as quick to run again."""
TRIALS_AT_ONCE: Final = 2
"""Maximum trials at once, of all agents of a root."""


def file_effects(own: OwnFiles, changes: Changes) -> tuple[FileEffect, ...]:
    """Return the changes, sorted by path. Blocks. Raises: OSError: The copy cannot be read any more."""
    effects = []
    with own.opened() as copy, opened_workspace(own.workspace) as workspace:
        for path in sorted(changes.paths)[:SHOWN]:
            old = None if path in changes.added else _Standing.at(workspace, path)
            new = None if path in changes.deleted else _Standing.at(copy, path)
            what: Literal["added", "deleted", "changed"]
            what = "added" if path in changes.added else "deleted" if path in changes.deleted else "changed"
            effects.append(FileEffect(path=path, what=what, diff=_diff(path, old, new), note=_note(old, new)))
        touched = changes.touched[: SHOWN - len(effects)]
        notes = {path: _note(_Standing.at(workspace, path), _Standing.at(copy, path)) for path in touched}
        effects += [FileEffect(path=path, what="changed", note=note) for path, note in notes.items() if note]
    if more := len(changes.paths) - SHOWN:
        note = f"and {more:,} more paths"
        effects += [FileEffect(path="…", what="changed", note=note)] if more > 0 else []
    return tuple(effects)


class _Standing:
    """A file, link or folder as it is."""

    def __init__(self, found: os.stat_result, text: str | None, attributes: Mapping[str, bytes]) -> None:
        self.mode, self.size, self.text, self.attributes = found.st_mode, found.st_size, text, attributes
        self.owner, self.modified = (found.st_uid, found.st_gid), found.st_mtime_ns

    @classmethod
    def at(cls, root: int, path: str) -> "_Standing | None":
        """Return the entry at a path. None: there is none that can be reached without a link."""
        try:
            with around(root, path.rstrip("/")) as (folder, name):
                found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISLNK(found.st_mode):
                    return cls(found, f"link to {os.readlink(name, dir_fd=folder)}\n", {})
                text, attributes = _content(folder, name) if stat.S_ISREG(found.st_mode) else (None, {})
                return cls(found, text, attributes)
        except OSError:
            return None


def _content(folder: int, name: str) -> tuple[str | None, dict[str, bytes]]:
    """Return a file's text, and its extended attributes. None: it is no text, too long, or cannot be read."""
    attributes: dict[str, bytes] = {}
    with contextlib.suppress(OSError, UnicodeDecodeError), opened_file(folder, name) as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            data, attributes = file.read(TEXT_BYTES + 1), _attributes(file.fileno())
            return None if b"\0" in data or len(data) > TEXT_BYTES else data.decode(), attributes
    return None, attributes


def _attributes(descriptor: int) -> dict[str, bytes]:
    """Return a file's extended attributes, without those of the copy's layer; none where the system has none."""
    try:
        names = [name for name in os.listxattr(descriptor) if "overlay" not in name]
        return {name: os.getxattr(descriptor, name) for name in names}
    except (OSError, AttributeError):
        return {}


def _diff(path: str, old: _Standing | None, new: _Standing | None) -> str:
    if any(entry is not None and entry.text is None for entry in (old, new)):
        return ""
    lines = diff_lines(path, *(None if entry is None else entry.text for entry in (old, new)))
    shown = [cut(line, LINE_CHARS) for line in lines[:DIFF_LINES]]
    if len(lines) > DIFF_LINES:
        shown.append(f"… {len(lines) - DIFF_LINES:,} more lines")
    return "\n".join(shown)


def _note(old: _Standing | None, new: _Standing | None) -> str:
    notes = []
    sized = [entry for entry in (old, new) if entry is not None and stat.S_ISREG(entry.mode)]
    if any(entry.text is None for entry in sized):
        notes.append(" -> ".join(f"{entry.size:,} bytes" for entry in sized))
    if old is not None and new is not None:
        notes += _other_notes(old, new)
    return ", ".join(notes)


def _other_notes(old: _Standing, new: _Standing) -> Iterator[str]:
    """Yield words for changes besides the content."""
    if stat.S_IMODE(old.mode ^ new.mode) and not stat.S_ISLNK(new.mode):
        yield f"mode {stat.S_IMODE(old.mode):o} -> {stat.S_IMODE(new.mode):o}"
    if old.owner != new.owner:
        yield f"owner {_owner(old)} -> {_owner(new)}"
    if old.attributes != new.attributes:
        yield "other extended attributes"
    if old.text == new.text and old.modified != new.modified and old.size == new.size:
        yield "another time of its last change"


def _owner(entry: _Standing) -> str:
    return ":".join(map(str, entry.owner))


@dataclass(eq=False)
class CellTurn:
    """The place of one cell."""

    code: str
    state: Literal["asked", "allowed", "runs"] = "asked"
    values: Mapping[str, Any] | None = None
    """The values of a harmless cell that runs unasked (`KeptTrial.plain_values`)."""


class CellTurns:
    """The cells of one agent that are asked about, are about to run, or run."""

    def __init__(self) -> None:
        self.ran = 0
        """Cells that have begun or ended. A trial made at another number does not hold."""
        self._turns: list[CellTurn] = []
        self._running = 0
        self._changed = asyncio.Event()

    def ask(self, code: str) -> CellTurn:
        """Note that a person is asked about a cell."""
        turn = CellTurn(code)
        self._turns.append(turn)
        return turn

    def decided(self, turn: CellTurn, decision: Decision) -> None:
        """Note the answer."""
        turn.state, turn.code = "allowed", turn.code if decision.code is None else decision.code
        if not decision.allowed:
            self.leave(turn)
        self._change()

    @contextmanager
    def running(self, code: str) -> Iterator[CellTurn | None]:
        """Note that a cell runs, asked about or not. Yield its turn, if it was asked about."""
        turn = next((turn for turn in self._turns if turn.state == "allowed" and turn.code == code), None)
        if turn is not None:
            turn.state = "runs"
            self.leave(turn)
        self._running += 1
        self.ran += 1
        try:
            yield turn
        finally:
            self._running -= 1
            self.ran += 1
            self._change()

    async def come(self, turn: CellTurn) -> str:
        """Wait until no cell comes before this one. Return why it does not come now; empty: it does."""
        try:
            async with asyncio.timeout(TURN_SECONDS):
                while before := self._before(turn):
                    if any(other.state == "asked" for other in before):
                        return NOT_DECIDED
                    self._changed.clear()
                    await self._changed.wait()
                while self._running:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            if self._running:
                return STILL_RUNS
            for other in self._before(turn):  # allowed, and never made: its budget was at its end
                self.leave(other)
        return ""

    def _before(self, turn: CellTurn) -> list[CellTurn]:
        return self._turns[: self._turns.index(turn)] if turn in self._turns else []

    def leave(self, turn: CellTurn) -> None:
        """Forget a cell that does not run."""
        if turn in self._turns:
            self._turns.remove(turn)

    def _change(self) -> None:
        self._changed.set()


class TrialHost:
    """Handler of the requests of one trial."""

    def __init__(self, agent: TreeAgent) -> None:
        """Args: agent: the cell's; its policy decides."""
        self._agent = agent
        self.folders: tuple[Path, ...] = ()
        self.stopped: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """The action that the trial must not do, once it wants to do one."""
        self.looked = asyncio.Event()
        """Set after the look at its files. Until then the code that was stopped gets no reply, so it waits."""

    async def reply(self, method: str, params: Mapping[str, Any], clock: CellClock | None) -> str | None:
        """Reply to a request that needs nobody; at any other request the trial ends."""
        del clock
        if method == "files":  # what a cell has used is counted when it runs for its agent
            return None
        wanted = await self._wanted(params) if method == "check" else _request(method, params)
        if not wanted or wanted == WALLED:
            return wanted or None
        if not self.stopped.done():
            self.stopped.set_result(wanted)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.looked.wait(), LOOK_SECONDS)
        raise asyncio.CancelledError  # where the code waits for the reply, it is interrupted

    async def _wanted(self, params: Mapping[str, Any]) -> str:
        """Return words for an action that must not happen. Empty: it may; `WALLED`: behind the wall of programs that read.

        Raises:
            ApprovalDeniedError: A rule denies it.
        """
        if params.get("kind") == "network":
            host = str(params.get("host") or "")
            return f"connect to {_in_line(host)}" if host else "use the network"
        call = action_of(params, self._agent.shared.config.workspace)
        self._agent.rights.check(call)
        if isinstance(call, NetworkConnect) or any(adviser.hears(call) for adviser in self._asker.advisers):
            return _in_line(call.summary)
        ruling = await self._agent.shared.gate.ruling(call, self._policy)
        if ruling.verdict == "deny":
            raise ApprovalDeniedError(ruling.reason)
        if ruling.verdict == "allow":
            return WALLED if ruling.walled else ""
        return _in_line(call.summary)

    @property
    def _asker(self) -> Asker:
        return Asker(agent=self._agent, by="code")

    @property
    def _policy(self) -> Policy:
        return self._agent.policy.with_scratch(self.folders)


def _request(method: str, params: Mapping[str, Any]) -> str:
    words = WORDS.get(method) or ("call an MCP server" if method.startswith("mcp_") else f"ask its host for {method}")
    more = ".".join(text for name in NAMES if isinstance(text := params.get(name), str) and text)
    return _in_line(f"{words}: {more}" if more else words)


def _in_line(text: str) -> str:
    return one_line(visible(text), CHARS)


class AgentTrials:
    """The trials of one agent."""

    def __init__(self, agent: TreeAgent, places: asyncio.Semaphore) -> None:
        """Args: agent: its policy decides. places: the right of a trial to run; more wait."""
        self._agent, self._places = agent, places
        self._running: set[asyncio.Task[Any]] = set()
        self._ending: set[asyncio.Task[Any]] = set()
        self._ahead: dict[int, TrialOfCell] = {}
        """Trials made before a person is asked about these cells."""
        self._kept: dict[CellTurn, KeptTrial] = {}
        """Trials that a yes takes over."""
        self._is_closed = False
        self.turns = CellTurns()

    @property
    def are_made(self) -> bool:
        """Whether cells are tried."""
        return self._agent.shared.config.effects.enabled and self._agent.policy.mode == "ask"

    def of(self, call: Call) -> TryOut | None:
        """Return the trial of a call, or why there is none. None: the call is no cell."""
        if not isinstance(call, CodeAction):
            return None
        reason = ""
        if not self._agent.shared.config.effects.enabled:
            reason = "trials are off (setting effects.enabled)"
        elif self._agent.policy.mode != "ask":
            reason = f"cells are tried in mode ask only, and this is {self._agent.policy.mode}"
        if reason:
            return Effects(status="refused", reason=reason, off=True)
        return self._ahead.pop(id(call), None) or TrialOfCell(self, call)

    async def advice(self, call: CodeAction) -> Advice | None:
        """Allow a cell that changes nothing, if a rule allows such cells."""
        ruled = HarmlessCode(code=call.code, description=call.description)
        gate, policy = self._agent.shared.gate, self._agent.policy
        if (await gate.ruling(ruled, policy)).verdict != "allow" or (await gate.ruling(call, policy)).verdict != "ask":
            return None
        if not isinstance(trial := self.of(call), TrialOfCell):
            return None
        harmless = await trial.is_harmless(call)
        self._ahead[id(call)] = trial  # the record of what was not asked is of this trial too, and decides it
        weakref.finalize(call, self._ahead.pop, id(call), None)
        return Advice(verdict="allow", reason=UNASKED) if harmless else None

    async def aclose(self) -> None:
        """End running trials, and make no more."""
        self._is_closed = True
        for turn in [*self._kept]:
            self.drop(turn)
        deadline = asyncio.get_running_loop().time() + CLOSE_SECONDS
        while tasks := {*self._running, *self._ending}:
            for task in self._running:
                task.cancel()
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
                self.drop(turn)
                tried = _refused("its agent is closed") if self._is_closed else await self._try_cell(call, turn)
                return replace(tried, is_outdated=lambda: self.turns.ran != ran)
        except Exception as error:  # border: a trial costs its agent nothing, whatever fails in it
            logger.warning("a trial failed", exc_info=True)
            return _refused(one_line(f"{type(error).__name__}: {error}", REASON_CHARS))
        finally:
            self._running.discard(task)

    def kept(self, turn: CellTurn) -> KeptTrial | None:
        """Return the trial that a run of this cell may take over."""
        return self._kept.get(turn)

    def forget(self, turn: CellTurn, loop: asyncio.AbstractEventLoop) -> None:
        """Forget a cell whose call is gone, in any thread; the event loop ends its trial if it has not run."""
        self.turns.leave(turn)
        if turn in self._kept and turn.state != "runs":
            with contextlib.suppress(RuntimeError):  # the loop has ended, and all trials with it
                loop.call_soon_threadsafe(self.drop, turn)

    def drop(self, turn: CellTurn) -> None:
        """End the trial that is kept for a cell."""
        if (trial := self._kept.pop(turn, None)) is not None:
            self._end(trial.kernel)

    def _end(self, kernel: Kernel) -> None:
        ending = asyncio.create_task(carry_out(kernel.aclose()), name="end of a trial")
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def taken_over(self, turn: CellTurn | None, call: CodeAction) -> KeptTrial | None:
        """Take over the trial of a cell that is about to run. None: the cell runs itself.

        Raises:
            ApprovalDeniedError: The cell was allowed for its trial alone, which cannot be taken over.
        """
        trial = None if turn is None else self._kept.get(turn)
        if turn is None or trial is None or not (turn.values is not None or trial.effects.can_be_taken_over):
            return None
        try:
            reason = await self._taken_by_kernel(trial, turn, call)
        except KernelError as error:
            reason = str(error)
        if reason and turn.values is not None:
            raise ApprovalDeniedError(NOT_RUN.format(reason=reason))
        if reason:
            logger.info("a trial is not taken over: %s", reason)
        return None if reason else trial

    async def _taken_by_kernel(self, trial: KeptTrial, turn: CellTurn, call: CodeAction) -> str:
        holder = self._agent.kernel
        if holder is None or holder.has_own_files or not self.are_made:
            return "its kernel is another one, or works in a copy of the workspace"
        if trial.code != call.code or trial.ran != self.turns.ran - 1:
            return "another cell has run since"
        if turn.values is None and (changed := await _outdated_by(trial.own)):  # an unasked cell has run: this was its run
            return f"changed since: {changed[0]}"
        return await trial.taken_by(await holder.get(), turn.values)

    async def let_go(self, trial: KeptTrial) -> None:
        """Have the kernel forget a trial that the cell has not taken over: it has not run."""
        if (holder := self._agent.kernel) is not None:
            with contextlib.suppress(KernelError):
                await trial.let_go(await holder.get())

    async def _try_cell(self, call: Call, turn: CellTurn) -> Tried:
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
            effects, own = Effects(**found, seconds=time.monotonic() - began), own_files_of(kernel)
            kept = trial.kept(effects)
            if kept is not None and not self._is_closed and (kept.is_harmless or trial.seconds > TAKEN_SECONDS):
                is_long = trial.seconds > TAKEN_SECONDS
                effects = replace(effects, can_be_taken_over=is_long, harmless=kept.is_harmless)
                self._kept[turn] = replace(kept, effects=effects, ran=self.turns.ran)
        except KernelError as error:
            return _refused(_short(str(error)))
        finally:
            if turn not in self._kept:
                self._end(kernel)  # its effects are read meanwhile
        return Tried(effects, None if own is None else partial(_outdated_by, own))


class TrialOfCell(CallTrial):
    """The trial of one cell that a person is asked about, or would be."""

    def __init__(self, trials: AgentTrials, cell: CodeAction) -> None:
        self._trials, self._turn = trials, trials.turns.ask(cell.code)
        self._code, self._ahead = cell.code, list[Tried]()
        loop = asyncio.get_running_loop()
        weakref.finalize(cell, trials.forget, self._turn, loop)  # it may be denied before anybody is asked

    async def __call__(self, call: Call) -> Tried:
        """Try the cell. A trial before the question holds, unless something has changed."""
        for tried in self._ahead:
            self._ahead.clear()
            if _code(call) == self._code and tried.holds and not (tried.outdated_by and await tried.outdated_by()):
                return tried
        return await self._trials.try_out(call, self._turn)

    async def is_harmless(self, call: Call) -> bool:
        """Try the cell before anybody is asked. Return whether it changes nothing, and its values are there without it."""
        tried = await self(call)
        kept = self._trials.kept(self._turn) if tried.effects.harmless else None
        if kept is not None:
            with contextlib.suppress(FreeactError):
                self._turn.values = await kept.plain_values()
        self._ahead[:] = [tried]
        return self._turn.values is not None

    def decided(self, decision: Decision) -> None:
        """Note the decision."""
        self._trials.turns.decided(self._turn, decision)
        if not decision.allowed or decision.code is not None:
            self._trials.drop(self._turn)


class CellTrial:
    """One cell in a kernel that is dropped afterwards."""

    def __init__(self, kernel: Kernel, host: TrialHost, settings: EffectsConfig, output_chars: int) -> None:
        self._kernel, self._host, self._seconds = kernel, host, settings.seconds
        self._bound = f"{settings.memory_bytes / GIB:.3g} GiB"
        self._raised: CellError | None = None
        self.seconds = 0.0
        """Seconds that the cell ran, without the start of its copy."""
        self._outputs: list[CellOutput] = []
        self._told: Mapping[str, Any] = {}
        self._changes: Changes | None = None
        self._code = ""
        self._buffer = CellOutputBuffer(model_chars=output_chars)
        own = own_files_of(kernel)
        host.folders = tuple(filter(None, (kernel.scratch, None if own is None else own.root)))

    async def run(self, code: str) -> dict[str, Any]:
        """Run the cell; return the fields of `Effects`."""
        self._code = code
        await own_cell(self._kernel, "freeact.before()", OWN_CELL_SECONDS, module=TRIAL)
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
        self._told = told
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
        began = time.monotonic()
        async with self._kernel.execute(code, self._buffer, CellClock(self._seconds)) as cell:
            async for output in cell:
                self._outputs.append(output)
                if isinstance(output, CellError):
                    self._raised = output
            reply = await cell.reply()
        self.seconds = time.monotonic() - began
        return reply

    def kept(self, effects: Effects) -> KeptTrial | None:
        """Return the trial as a run may take it over. None: it cannot be."""
        told, own = self._told, own_files_of(self._kernel)
        facts = told.get("taken")
        if own is None or self._changes is None or not isinstance(facts, dict) or not facts.keys() >= FACTS:
            return None
        before, after = (parsed(json.dumps(told[key]).encode()) for key in ("before", "after"))
        origin = (told.get("origin") or [0])[0]
        trial = KeptTrial(
            kernel=self._kernel,
            own=own,
            changes=self._changes,
            code=self._code,
            outputs=self._outputs,
            effects=effects,
            before=before,
            after=after,
            facts=facts,
            origin=origin,
        )
        return trial if trial.is_whole else None

    def _bound_met(self, told: Mapping[str, Any]) -> str:
        """Return words for the bound of the trial at which the cell failed. Empty: it failed by itself."""
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
        """Return the trial's report on variables, and on all else; nothing of it is trusted."""
        scratch, name = self._kernel.scratch, f"variables-{uuid.uuid4().hex}"
        if self._kernel.lost_reason is not None or scratch is None:
            return (), {}
        try:
            await own_cell(self._kernel, f"freeact.after({name!r})", OWN_CELL_SECONDS, module=TRIAL)
            found = json.loads(await asyncio.to_thread(read_whole, name, scratch, max_bytes=REPORT_BYTES))
            before, after = (parsed(json.dumps(found[key]).encode()) for key in ("before", "after"))
            changes = [*explained(compared(before, after), found.get("differences", {}))]
        except (KernelError, OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            # a cell can cause this; without a word it would seem that no variable has changed
            is_lost = self._kernel.lost_reason is not None
            return () if is_lost else (
                VariableChange(name="…", what="changed", before="variables", after="not compared"),
            ), {}
        return tuple(told(changes, VARIABLES)), found

    def _files(self) -> dict[str, Any]:
        own = own_files_of(self._kernel)
        if own is None:
            return {}
        try:
            changes = self._changes = own.look()
            return {"files": file_effects(own, changes), "left_out": changes.left_out}
        except (OSError, FreeactError) as error:
            # a cell can cause this; without a word it would seem that no file has changed
            note = f"what the cell does to files cannot be compared: {_short(str(error))}"
            return {"files": (FileEffect(path="…", what="changed", note=note),)}


async def _outdated_by(own: OwnFiles) -> tuple[str, ...]:
    try:
        return await asyncio.to_thread(own.outdated_by)
    except (OSError, FreeactError):  # it cannot be compared any more: a new trial tells why
        return (own.workspace.name,)


def _names(told: Any) -> str:
    return _short(", ".join(map(str, told[:5]))) if isinstance(told, list) else ""


def _refused(reason: str) -> Tried:
    return Tried(Effects(status="refused", reason=reason))


def _code(call: Call) -> str:
    return str(getattr(call, "code", ""))


def _short(text: str) -> str:
    return one_line(visible(text), REASON_CHARS)


class EffectsPart(RunPart):
    """The trials of one run."""

    closing_seconds: ClassVar[float] = 10.0

    def __init__(self, agent: TreeAgent, places: asyncio.Semaphore) -> None:
        self._agent, self._trials = agent, AgentTrials(agent, places)
        self._advisers = (TrialAdviser(self._trials),)

    def advisers(self, asker: Asker) -> Sequence[Adviser]:
        """Try the cells of the agent: not of its nodes, nor of a check, which runs in another kernel."""
        return self._advisers if asker.agent is self._agent and asker.by != "check" else ()

    async def call(self, call: RequestedCall, proceed: Proceed[T]) -> EndedCall[T]:
        """Note that a cell runs: a trial that was made before does not hold any more."""
        if not isinstance(call.call, CodeAction) or call.agent is not self._agent or call.by == "check":
            return await proceed()
        with self._trials.turns.running(call.call.code) as turn:
            try:
                trial = await self._trials.taken_over(turn, call.call)
                if trial is not None and turn is not None and turn.values is None:
                    words = TAKEN_OVER.format(time=duration(trial.effects.seconds))
                    call.emitter.put(Notice(content=words), tool_call_id=call.tool_call_id)
                elif trial is None and turn is not None:
                    self._trials.drop(turn)  # its memory is the cell's
                return await proceed()
            finally:
                kept = None if turn is None else self._trials.kept(turn)
                if turn is not None and kept is not None:
                    self._trials.drop(turn)
                    await carry_out(self._trials.let_go(kept))

    async def closing(self, ending: RunResult, kernel: UsedKernel) -> None:
        """End running trials: their copies must not outlive the kernel's agent."""
        del ending, kernel
        await self._trials.aclose()


class TrialAdviser(Adviser):
    """An adviser that shows the effects of a cell, and lets one that changes nothing run unasked where a rule says so."""

    source = "its trial"

    def __init__(self, trials: AgentTrials) -> None:
        self._trials = trials

    def hears(self, call: Call) -> bool:
        """Hear of cells that are asked about."""
        return isinstance(call, CodeAction) and self._trials.are_made

    async def before(self, call: Call) -> Advice | None:
        """Allow a cell that changes nothing, if a rule allows such cells."""
        return await self._trials.advice(call) if isinstance(call, CodeAction) else None

    def try_out(self, call: Call) -> TryOut | None:
        """Return the trial of a cell, or why it is not tried."""
        return self._trials.of(call)


class EffectsFeature(Feature):
    """Trials of the cells of a tree of agents, a few at once."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(TRIALS_AT_ONCE)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Make the objects of the event loop: the root may be opened in another one."""
        self._places = asyncio.Semaphore(TRIALS_AT_ONCE)
        yield

    def run(self, agent: FeatureAgent) -> RunPart:
        """Try the cells of the run."""
        return EffectsPart(tree_agent(agent), self._places)
