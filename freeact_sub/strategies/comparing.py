"""`compare_models`: several models continue a session side by side, each in a fork with its own copy of the workspace."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from freeact_sub.agent import Agent
from freeact_sub.agents.runs.run import Run
from freeact_sub.agents.sessions.forking import SessionFork, fork_session
from freeact_sub.config.budget import Usage
from freeact_sub.config.schema import Config
from freeact_sub.errors import FreeactError, SessionError
from freeact_sub.events import ApprovalRequest, Event, QuestionRequest, UsageUpdated
from freeact_sub.kernels.files.states.diffs import line_counts
from freeact_sub.kernels.files.states.git import ShadowError
from freeact_sub.kernels.files.states.shadow_files import ShadowFiles
from freeact_sub.sessions import FILES, SessionStore, session_store
from freeact_sub.system.closing import carry_out

AT_ONCE: Final = 4
"""Continuations that work side by side."""
PATCH: Final = "changes.patch"
WAITING: Final = "waiting"
WORKING: Final = "working"
CLOSE_SECONDS: Final = 60.0

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Continuation:
    """A model that continues a fork of a session."""

    model: str
    fork: SessionFork
    """Its session, with its copy of the workspace: `Agent.resume(continuation.fork.session_id)` continues it."""
    status: str = WAITING
    """`waiting`, `working`, then how the run ended, a `RunStatus`."""
    error: str = ""
    unattended: bool = False
    """All its actions were denied, because no person could be asked."""
    answer: str = ""
    usage: Usage = Usage()
    """What it and its children have spent here."""
    seconds: float = 0.0
    action: str = ""
    """What it does now, in one line."""
    files: tuple[tuple[str, tuple[int, int] | None], ...] = ()
    """The files that differ since the prompt, each with its lines that came and went. None: it is not text."""
    files_problem: str = ""
    """Why the files are not known. Empty: they are."""
    patch: Path | None = None
    """The changes, for `git apply`. None: there are none."""

    @property
    def succeeded(self) -> bool:
        """Whether it has an answer, and could act."""
        return self.status == "completed" and not self.unattended


async def compare_models(
    session_id: str,
    models: Sequence[str],
    *,
    at: int | None = None,
    prompt: str | None = None,
    config: Config | None = None,
) -> list[Continuation]:
    """Let models continue a session, each in a fork of its own, and return what became of it, in the order of the models.

    At most four work at once. Nobody is asked: `config.headless` answers, by default what `config.mode` allows. The original
    session and its workspace stay as they are. The forks stay until they are removed; a cancel removes them.

    Args:
        session_id: The session, by its id or an unambiguous beginning of it.
        models: Their names.
        at: After which prompt they continue, see `fork_session`.
        prompt: What they are asked. None: the prompt that followed in the original.
        config: All settings. Default: `Config(mode="auto")`.

    Raises:
        SessionError: The session cannot be forked there, or no prompt followed.
    """
    comparison = Comparison(config or Config(mode="auto"))
    try:
        await comparison.prepare(session_id, models, at=at, prompt=prompt)
        await comparison.run()
    except BaseException:
        await comparison.remove()
        raise
    return comparison.continuations


class Comparison:
    """The continuations, and their work: for front ends, which show its progress and end it."""

    def __init__(self, config: Config) -> None:
        """Args: config: all settings; the workspace and the model are those of each continuation."""
        subagents = config.subagents.model_copy(update={"detach": False})  # each agent is closed after its answer
        self._config = config.model_copy(update={"headless": config.headless or "auto", "subagents": subagents})
        self.store: SessionStore = session_store(config.sessions)
        self.continuations: list[Continuation] = []
        self.on_end: Callable[[Continuation], None] = lambda _: None
        """Called when one has ended."""
        self._agents: dict[int, Agent[Any]] = {}
        self._runs: list[Run[Any]] = []
        self._prompt = ""
        self._is_cancelled = False

    async def prepare(self, session_id: str, models: Sequence[str], *, at: int | None, prompt: str | None) -> None:
        """Make the forks, one after the other. Arguments and errors: see `compare_models`."""
        for model in models:
            fork = await fork_session(session_id, at, store=self.store)
            self.continuations.append(Continuation(model=model, fork=fork))
            self._prompt = fork.next_prompt if prompt is None else prompt
            if not self._prompt:
                raise SessionError(
                    f"no prompt followed prompt {fork.at} of the session {session_id}: give one, or an earlier number"
                )

    async def run(self) -> None:
        """Let all work, until each has ended."""
        slots = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for continuation in self.continuations:
                group.create_task(self._continue(continuation, slots), name=f"continues with {continuation.model}")

    def cancel(self) -> None:
        """End all; what they have done so far stays. Those that have not begun do not begin."""
        self._is_cancelled = True
        for run in self._runs:
            run.cancel()

    async def remove(self, continuation: Continuation | None = None) -> None:
        """Remove the session and the copy of a continuation. Args: continuation: None: those of all."""
        removed = [*self.continuations] if continuation is None else [continuation]
        for each in removed:
            work = asyncio.to_thread(self.store.remove, each.fork.session_id)
            await carry_out(work, timeout_seconds=CLOSE_SECONDS)
            self.continuations.remove(each)

    def observe_agents(self) -> None:
        """Note what each does now."""
        for continuation in self.continuations:
            if (agent := self._agents.get(id(continuation))) is not None:
                continuation.action = agent.agents()[0].action

    async def _continue(self, continuation: Continuation, slots: asyncio.Semaphore) -> None:
        async with slots:
            if self._is_cancelled:
                return
            began, continuation.status = time.monotonic(), WORKING
            try:
                await self._ask(continuation)
            except Exception as error:  # border: one that fails in any way must not take the others' answers with it
                if not isinstance(error, FreeactError):
                    logger.exception("a continuation of a session has failed")
                continuation.status, continuation.error = "failed", str(error) or type(error).__name__
            finally:
                self._agents.pop(id(continuation), None)
            continuation.seconds, continuation.action = time.monotonic() - began, ""
            await self._compare_files(continuation)
        self.on_end(continuation)

    async def _ask(self, continuation: Continuation) -> None:
        session_id = continuation.fork.session_id
        agent = await asyncio.to_thread(lambda: Agent(self._config, session=session_id, model=continuation.model))
        async with agent:
            agent.keep_undo()
            self._agents[id(continuation)] = agent
            async with agent.run(self._prompt) as run:
                self._runs.append(run)
                if self._is_cancelled:
                    run.cancel()
                async for event in run:
                    _observe(event, continuation)
                result = await run.result()
        continuation.status, continuation.error = result.status, result.error
        continuation.answer, continuation.usage = result.text, result.tree_usage
        continuation.unattended = result.unattended

    async def _compare_files(self, continuation: Continuation) -> None:
        """Find out what has changed in the copy since before the prompt."""
        fork = continuation.fork
        files = ShadowFiles(fork.workspace, self.store.folder_of(fork.session_id) / FILES)
        try:
            before = await asyncio.to_thread(_files_before, self.store, fork.session_id)
            after = await files.record()
            changed = await files.changed(before, after)
            continuation.files = tuple((file.path, line_counts(file)) for file in changed)
            if changed:
                continuation.patch = fork.workspace.parent / PATCH
                continuation.patch.write_bytes(await files.patch(before, after))
        except (FreeactError, OSError) as error:
            continuation.files_problem = str(error)
        finally:
            await files.aclose()


def _observe(event: Event, continuation: Continuation) -> None:
    if isinstance(event, ApprovalRequest):
        event.decide(event.if_nobody)
    elif isinstance(event, QuestionRequest):
        event.skip()
    elif isinstance(event, UsageUpdated):
        continuation.usage = event.tree_usage


def _files_before(store: SessionStore, session_id: str) -> str:
    with store.reader(session_id) as reader:
        root = reader.agents()[0]
        runs = reader.runs(root.agent_id)
    state = runs[-1].files if runs else None
    if not state:
        raise ShadowError("the files before the prompt were not kept")
    return state
