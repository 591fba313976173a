"""`UndoFeature`: restores conversation, variables and files as they were before a prompt.

Prompts form a row with states between them: the conversation, the kernel, and the files of the workspace, which git stores.
The agent is in one of the states. Moving to another keeps the present state, with its kernel, and restores the other. A new
prompt forgets the states after it.

A state has a branch of the kernel, made before the prompt. Each is a process with its own modified memory, so only the last
few states have one. The variables of the others, and of kernels that cannot be branched, are saved into files. Because it
costs a branch of the kernel before each prompt, undo is off until `keep_undo`.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic_ai.messages import ModelMessage

from freeact_sub.agents.feature import Feature, FeatureAgent, RunPart
from freeact_sub.agents.kernel import News
from freeact_sub.agents.loop import AgentLoop
from freeact_sub.agents.root import Root, whole_root
from freeact_sub.errors import AgentBusyError, FreeactError, KernelError, KernelSnapshotError
from freeact_sub.events.answers import Effects, FileEffect, VariableChange
from freeact_sub.features.sessions.journal import EarlierPrompt, Journal
from freeact_sub.kernels import Kernel, branching
from freeact_sub.kernels.files.states import ChangedFile, ShadowError, ShadowFiles, line_counts, unified
from freeact_sub.kernels.snapshot_reports import LostVariable
from freeact_sub.kernels.variable_reports import compared, differences, reported, told
from freeact_sub.modes import Mode
from freeact_sub.system.closing import carry_out, end_task
from freeact_sub.system.private_folders import make_folder, remove_soon
from freeact_sub.text import counted
from freeact_sub.tools import KernelAccess

SHOWN: Final = 200
DIFF_LINES: Final = 200
MAX_STATES: Final = 50
MAX_KERNELS: Final = 3
MAX_SAVED_BYTES: Final = 4 * 2**30
"""Size limit of variables in files, for all states."""
MOVE_SECONDS: Final = 600.0
CLOSE_SECONDS: Final = 30.0
NOT_KEPT: Final = "no earlier states of the files are kept"
STARTED_AGAIN: Final = "the program was started again since then"
OTHER_VARIABLES: Final = "[What came after this was undone, but your variables are not as they were here: {reason}.]"
__all__ = ["UndoFeature", "UndoReport"]

NOTHING_KEPT: Final = "nothing is kept of earlier prompts: call agent.keep_undo() before the first one"


async def effects_since(
    before: Kernel | None, present: KernelAccess, files: Sequence[ChangedFile], problem: str, *, known: bool
) -> Effects:
    """Return the differences.

    Args:
        before: The kernel as it was. None: there were no variables, or they are not known.
        present: The kernel.
        files: The files that differ.
        problem: Why files cannot be compared. Empty: they can.
        known: The variables of before are known.
    """
    problems, variables = [f"files: {problem}"] if problem else [], list[VariableChange]()
    try:
        earlier = {} if before is None else await reported(before)
        now = await reported(await present.get())
        changes = [*compared(earlier, now)] if known else []
        if before is not None:
            changes = await differences(changes, before, await present.get())
        variables = [*told(changes, SHOWN)]
    except KernelError as error:
        problems.append(f"variables: {error}")
    if not known:
        problems.append("variables: only those of the last prompts are kept in a kernel")
    effects = await asyncio.to_thread(lambda: tuple(map(_effect, files[:SHOWN])))
    if (more := len(files) - SHOWN) > 0:
        effects += (FileEffect(path="…", what="changed", note=f"and {counted(more, 'more path')}: /diff"),)
    return Effects(status="done", variables=tuple(variables), files=effects, reason="; ".join(problems))


def _effect(file: ChangedFile) -> FileEffect:
    lines = unified(file).removesuffix("\n").split("\n")
    more = [f"… {len(lines) - DIFF_LINES:,} more lines: /diff"] if len(lines) > DIFF_LINES else []
    diff = "\n".join([*lines[:DIFF_LINES], *more])
    return FileEffect(
        path=file.path,
        what="added" if file.before is None else "deleted" if file.after is None else "changed",
        diff=diff,
    )


@dataclass(frozen=True, kw_only=True)
class UndoReport:
    """The outcome of undo or redo."""

    prompts: tuple[str, ...]
    """Prompts that were undone or redone, in order."""
    files: tuple[str, ...]
    """Paths in the workspace that were written or removed."""
    files_problem: str = ""
    """The reason why files were not restored. Empty: they were, except those that `.gitignore` names."""
    variables_problem: str = ""
    """The reason why variables were not restored. Empty: they were, except `lost`."""
    lost: tuple[LostVariable, ...] = ()


@dataclass(kw_only=True, eq=False)
class _BetweenPrompts:
    """The state between two prompts."""

    history: list[ModelMessage]
    due: News | None = None
    untold: str = ""
    """The untold past of the kernel, for it or for the model (`KernelPast`)."""
    mode: Mode = "ask"
    """The mode whose wall the kernel has."""
    tree: str = ""
    """The tree of the files. Empty: they are not stored."""
    files_problem: str = ""
    is_new: bool = False
    """Whether nothing has run in the kernel."""
    kernel: Kernel | None = None
    saved: Path | None = None
    """Files with the variables."""
    saved_bytes: int = 0
    variables_problem: str = NOT_KEPT


@dataclass(kw_only=True, eq=False)
class _Restored:
    files: list[str] = field(default_factory=list)
    files_problem: str = ""
    variables_problem: str = ""
    lost: tuple[LostVariable, ...] = ()


class Undo:
    """The states of one root agent while it is open."""

    def __init__(self, loop: AgentLoop, workspace: Path, journal: Journal) -> None:
        """Args: loop: the agent's. journal: records undone runs."""
        history, earlier = loop.agent.run.record.history, journal.earlier[-MAX_STATES:]
        self._loop, self._journal = loop, journal
        self._files = ShadowFiles(workspace, journal.files, originals=journal.originals)
        self._files.begin()
        self._folder = make_folder()
        self._prompts = [each.prompt for each in earlier]
        self._runs = [each.run for each in earlier]
        """The number of each prompt's run, as the session counts them."""
        self._states: list[_BetweenPrompts | None] = [*(_of_earlier(each, history) for each in earlier), None]
        """States around the prompts, one more than these; None marks the agent's present state."""
        self._one_at_a_time = asyncio.Lock()
        self._saving: asyncio.Task[None] | None = None
        self._saves = 0

    @property
    def _position(self) -> int:
        return self._states.index(None)

    @property
    def undoable(self) -> tuple[str, ...]:
        """The prompts that can be undone, oldest first."""
        return tuple(self._prompts[: self._position])

    @property
    def redoable(self) -> tuple[str, ...]:
        """The prompts that can be redone, the next one first."""
        return tuple(self._prompts[self._position :])

    async def keep(self, prompt: str) -> None:
        """Keep the present state, before a prompt."""
        async with self._one_at_a_time:
            await self._keep(prompt)

    async def _keep(self, prompt: str) -> None:
        await self._settle()
        state = await self._present()
        try:
            await self._keep_variables(state)
        except BaseException:
            await carry_out(self._drop(state), timeout_seconds=CLOSE_SECONDS)
            raise
        here = self._position
        dropped = [each for each in self._states[here + 1 :] if each is not None]
        self._states[here:], self._prompts[here:] = [state, None], [prompt]
        journal, agent_id = self._journal, self._loop.agent.agent_id
        self._runs[here:] = [journal.recorded.runs[agent_id]]
        journal.can_be_undone(agent_id, state.tree)
        await journal.keep_variables(agent_id)
        while len(self._states) > MAX_STATES:
            first = self._states.pop(0)
            self._prompts.pop(0)
            self._runs.pop(0)
            dropped += [first] if first is not None else []
        for each in dropped:
            await self._drop(each)
        await self._thin_out()

    async def move(self, steps: int) -> UndoReport:
        """Move to another state. Args: steps: prompts to redo; negative: to undo.

        Raises:
            FreeactError: There are fewer prompts.
        """
        async with self._one_at_a_time:
            return await self._moved(steps)

    async def _moved(self, steps: int) -> UndoReport:
        here = self._position
        there = here + steps
        if steps == 0 or not 0 <= there < len(self._states):
            what, count = ("done again", len(self.redoable)) if steps > 0 else ("undone", len(self.undoable))
            raise FreeactError(f"{counted(abs(steps), 'prompt')} cannot be {what}: at most {count} can")
        outcome = _Restored()
        await carry_out(self._move(there, outcome), timeout_seconds=MOVE_SECONDS)
        await self._thin_out()
        return UndoReport(
            prompts=tuple(self._prompts[min(here, there) : max(here, there)]),
            files=tuple(outcome.files),
            files_problem=outcome.files_problem,
            variables_problem=outcome.variables_problem,
            lost=outcome.lost,
        )

    async def previews(self, most: int) -> list[UndoReport]:
        """Return what undoing the last prompt would restore, the last two, and so on."""
        async with self._one_at_a_time:
            here, present = self._position, await self._present()
            return [await self._preview(here - count, present) for count in range(1, min(most, here) + 1)]

    async def _preview(self, there: int, present: _BetweenPrompts) -> UndoReport:
        target = self._states[there]
        if target is None:
            raise ValueError(f"the agent is at {there} already")
        files, problem = [], target.files_problem or present.files_problem
        if not problem:
            try:
                files = await self._files.changed_paths(target.tree, present.tree)
            except ShadowError as error:
                problem = str(error)
        is_kept = target.is_new or target.kernel is not None or target.saved is not None
        return UndoReport(
            prompts=tuple(self._prompts[there : self._position]),
            files=tuple(files),
            files_problem=problem,
            variables_problem="" if is_kept else target.variables_problem,
        )

    async def diff(self, prompts: int) -> str:
        """Return a unified diff of the files since before the last few prompts.

        Raises:
            FreeactError: There are fewer prompts, or the files cannot be compared.
        """
        changed = await self._changed(prompts)
        return "".join(await asyncio.to_thread(lambda: [unified(file) for file in changed]))

    async def line_changes(self) -> list[tuple[str, tuple[int, int] | None]]:
        """Return the files changed since the last prompt, and their numbers of added and removed lines.

        Raises:
            FreeactError: The files cannot be compared.
        """
        changed = await self._changed(1)
        return await asyncio.to_thread(lambda: [(file.path, line_counts(file)) for file in changed])

    async def effects(self, prompts: int) -> Effects:
        """Return the changes since before the last few prompts.

        Raises:
            FreeactError: There are fewer prompts.
        """
        try:
            files, problem = await self._changed(prompts), ""
        except ShadowError as error:
            files, problem = [], str(error)
        async with self._one_at_a_time:
            state = self._states[self._position - prompts]
            known = state is not None and (state.is_new or state.kernel is not None)
            before = state.kernel if state is not None else None
            return await effects_since(before, self._loop.kernel, files, problem, known=known)

    async def _changed(self, prompts: int) -> list[ChangedFile]:
        async with self._one_at_a_time:
            here = self._position
            if not 0 < prompts <= here:
                raise FreeactError(f"{counted(prompts, 'prompt')} cannot be shown: at most {here} can")
            before = self._states[here - prompts]
            if before is None or before.files_problem:
                raise ShadowError(before.files_problem if before is not None else "no files are kept")
            return await self._files.changed(before.tree, await self._files.record())

    async def aclose(self) -> None:
        """Drop all states."""
        if self._saving is not None:
            await end_task(self._saving)
        for state in self._states:
            if state is not None:
                await self._drop(state)
        self._states, self._prompts, self._runs = [None], [], []
        await self._files.aclose()
        remove_soon(self._folder)

    async def _move(self, there: int, outcome: _Restored) -> None:
        target = self._states[there]
        if target is None:
            return
        await self._settle()
        present = await self._present()
        await self._restore_files(present, target, outcome)
        await self._restore_variables(present, target, outcome)
        agent = self._loop.agent
        agent.run.keep_history(target.history)
        past = self._loop.kernel.past
        if not outcome.variables_problem:
            past.due, past.untold = target.due, target.untold
        elif past.due is None:
            past.tell(OTHER_VARIABLES.format(reason=outcome.variables_problem))
        self._journal.messages(agent.agent_id, agent.run.record.history)
        here = self._position
        moved = self._runs[min(here, there) : max(here, there)]
        self._journal.undone(agent.agent_id, moved, undone=there < here)
        past.changed()
        self._states[here] = present
        self._states[there] = None
        target.kernel = None  # it belongs to the agent now
        await self._drop(target)

    async def _present(self) -> _BetweenPrompts:
        """Return the present state, without the kernel."""
        kernel = self._loop.kernel
        state = _BetweenPrompts(
            history=list(self._loop.agent.run.record.history),
            due=kernel.past.due,
            untold=kernel.past.untold,
            is_new=not kernel.is_used,
            mode=kernel.mode,
        )
        try:
            state.tree = await self._files.record()
        except ShadowError as error:
            state.files_problem = str(error)
        return state

    async def _restore_files(self, present: _BetweenPrompts, target: _BetweenPrompts, outcome: _Restored) -> None:
        outcome.files_problem = target.files_problem or present.files_problem
        if outcome.files_problem:
            return
        try:
            outcome.files, failed = await self._files.restore(present.tree, target.tree)
        except ShadowError as error:
            outcome.files_problem = str(error)
        else:
            if failed:
                outcome.files_problem = f"these could not be written: {', '.join(failed[:10])}"

    async def _restore_variables(self, present: _BetweenPrompts, target: _BetweenPrompts, outcome: _Restored) -> None:
        kernels = self._loop.kernel
        if target.kernel is not None and target.kernel.lost_reason is None:
            present.kernel = await kernels.exchange(target.kernel, target.mode)
        elif target.is_new:
            present.kernel = await kernels.exchange(None)
        elif target.saved is not None:
            present.kernel = await kernels.exchange(None)
            try:
                report = await branching(await kernels.get(), KernelSnapshotError).restore(target.saved)
                outcome.lost = (*report.lost, *(lost for each in report.left_out for lost in each.lost))
            except KernelError as error:
                outcome.variables_problem = str(error)
        else:
            outcome.variables_problem = target.variables_problem
            await self._keep_variables(present)  # these kernels live on and may change from now

    async def _keep_variables(self, state: _BetweenPrompts) -> None:
        """Keep the kernel's variables, as a branch or in files."""
        if state.is_new:
            return
        try:
            state.kernel = await self._loop.kernel.copy()
        except KernelError:
            try:
                await self._save(state, await self._loop.kernel.get())
            except KernelError as error:
                state.variables_problem = str(error)

    async def _save(self, state: _BetweenPrompts, kernel: Kernel) -> None:
        self._saves += 1
        folder = self._folder / str(self._saves)
        state.saved_bytes = (await branching(kernel, KernelSnapshotError).snapshot(folder)).size_bytes
        state.saved = folder

    async def _thin_out(self) -> None:
        """Keep the kernels of the nearest states, and save the variables of the others in the background."""
        await self._settle()
        here = self._position
        with_kernel = [state for state in self._by_distance(here) if state.kernel is not None]
        if with_kernel[MAX_KERNELS:]:
            work = self._save_all(with_kernel[MAX_KERNELS:])
            self._saving = asyncio.create_task(work, name="variables of earlier prompts")

    def _by_distance(self, here: int) -> list[_BetweenPrompts]:
        order = sorted(range(len(self._states)), key=lambda number: abs(number - here))
        return [state for number in order if (state := self._states[number]) is not None]

    async def _save_all(self, states: list[_BetweenPrompts]) -> None:
        for state in states:
            kernel = state.kernel
            if kernel is None:
                continue
            try:
                await self._save(state, kernel)
            except KernelError as error:
                state.variables_problem = str(error)
            finally:
                state.kernel = None
                await carry_out(kernel.aclose(), timeout_seconds=CLOSE_SECONDS)
        used = 0
        for state in self._by_distance(self._position):
            used += state.saved_bytes
            if used > MAX_SAVED_BYTES:
                self._forget_saved(state)

    async def _settle(self) -> None:
        if self._saving is not None:
            await asyncio.wait({self._saving})
            self._saving = None

    async def _drop(self, state: _BetweenPrompts) -> None:
        kernel, state.kernel = state.kernel, None
        self._forget_saved(state)
        if kernel is not None:
            await kernel.aclose()

    def _forget_saved(self, state: _BetweenPrompts) -> None:
        if state.saved is not None:
            remove_soon(state.saved)
        state.saved, state.saved_bytes, state.variables_problem = None, 0, NOT_KEPT


def _of_earlier(prompt: EarlierPrompt, history: Sequence[ModelMessage]) -> _BetweenPrompts:
    problem = "" if prompt.files else NOT_KEPT
    state = _BetweenPrompts(history=list(history[: prompt.messages]), tree=prompt.files, files_problem=problem)
    state.variables_problem = STARTED_AGAIN
    return state


class UndoPart(RunPart):
    """The keeper of the state before the prompt of one run."""

    def __init__(self, feature: "UndoFeature") -> None:
        self._feature = feature

    async def opening(self, said: str, *, is_prompt: bool) -> str:
        """Keep the present state: the work of hooks and the session before the prompt stays when it is undone."""
        if is_prompt:
            await self._feature.keep(said)
        return ""


class UndoFeature(Feature):
    """Prompts of a root that can be undone and redone, once `keep_undo` was called."""

    name = "undo"

    def __init__(self) -> None:
        self._undo: Undo | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Forget all states with the root."""
        try:
            yield
        finally:
            undo, self._undo = self._undo, None
            if undo is not None:
                await undo.aclose()

    def run(self, agent: FeatureAgent) -> RunPart | None:
        """Keep the state before each prompt of the root."""
        return UndoPart(self) if agent.parent_id is None else None

    @property
    def _whole_root(self) -> Root:
        return whole_root(self.root)

    async def keep(self, prompt: str) -> None:
        """Keep the present state, once `keep_undo` was called."""
        if self._undo is not None:
            await self._undo.keep(prompt)

    def keep_undo(self) -> None:
        """Make each prompt of `run` undoable, from now on until the agent is closed. Further calls do nothing.

        Before each prompt, git stores the files of the workspace in its own repository, and the kernel is branched. A
        state that is not stored cannot be undone, redone or compared: such a call raises FreeactError.
        """
        if self._undo is None:
            loop = self._whole_root.opened
            features = loop.agent.shared.features
            journal = features.named("sessions").journal if features.has("sessions") else Journal()
            self._undo = Undo(loop, self.root.agent.config.workspace, journal)

    @property
    def undoable(self) -> tuple[str, ...]:
        """The prompts that can be undone, oldest first."""
        return self._undo.undoable if self._undo is not None else ()

    @property
    def redoable(self) -> tuple[str, ...]:
        """The prompts that can be redone, the next one first; a new prompt forgets them."""
        return self._undo.redoable if self._undo is not None else ()

    async def undo(self, prompts: int = 1) -> UndoReport:
        """Restore conversation, variables and files as they were before the last prompt, or the last few.

        This covers the files in the workspace that `.gitignore` does not name, including children's changes. Effects
        elsewhere and spending stay. The report says what could not be restored, and why. Raises AgentBusyError if a run is
        live.
        """
        return await (await self._at_rest()).move(-prompts)

    async def redo(self, prompts: int = 1) -> UndoReport:
        """Go forward again, to the state before `undo`. Nothing runs, and no model is asked."""
        return await (await self._at_rest()).move(prompts)

    async def undo_previews(self, most: int = 10) -> list[UndoReport]:
        """Return what `undo` would restore, for the last prompt, for the last two, and so on up to `most` prompts."""
        return await self._kept().previews(most)

    async def diff(self, prompts: int = 1) -> str:
        """Return a unified diff of the workspace's files since before the last prompt, or the last few.

        It includes changes by any program, and a run may be live. Files that `.gitignore` names are left out.
        """
        return await self._kept().diff(prompts)

    async def line_changes(self) -> list[tuple[str, tuple[int, int] | None]]:
        """Return the files that `diff` shows, each with its numbers of added and removed lines. None: it is not text."""
        return await self._kept().line_changes()

    async def effects(self, prompts: int = 1) -> Effects:
        """Return the changes since before the last prompt, or the last few: variables and files, as a trial tells them.

        `reason` says what could not be compared. Raises AgentBusyError if a run is live.
        """
        return await (await self._at_rest()).effects(prompts)

    def _kept(self) -> Undo:
        """Return the states. Raises: FreeactError: `keep_undo` was not called."""
        if self._undo is None:
            raise FreeactError(NOTHING_KEPT)
        return self._undo

    async def _at_rest(self) -> Undo:
        """Return the states. Raises: AgentBusyError: A run is live."""
        loop = self._whole_root.opened
        if await self._whole_root.is_busy() or loop.agent.run.is_live:
            raise AgentBusyError("the agent is at work: wait for its run to end, or cancel it, then undo")
        return self._kept()
