"""`compare_models`: several models continue a session side by side, each in a fork with its own copy of the workspace."""

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from freeact_sub.agent import Agent
from freeact_sub.config.budget import Usage
from freeact_sub.config.schema import Config
from freeact_sub.errors import FreeactError, SessionError
from freeact_sub.features.sessions.forking import SessionFork, fork_session
from freeact_sub.sessions import session_store
from freeact_sub.system.closing import carry_out
from freeact_sub.text import counted, duration, one_line, visible

AT_ONCE: Final = 4
"""Continuations that work side by side."""
CLOSE_SECONDS: Final = 60.0
ANSWER_CHARS: Final = 80
HEADINGS: Final = ("model", "status", "cost", "time", "files")

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Continuation:
    """A model that continues a fork of a session."""

    model: str
    fork: SessionFork
    """The session, which `Agent.resume(continuation.fork.session_id)` continues in its copy of the workspace."""
    status: str = "waiting"
    """`waiting`, then how the run ended, a `RunStatus`."""
    error: str = ""
    unattended: bool = False
    """Whether all its actions were denied, because no person could be asked."""
    answer: str = ""
    usage: Usage = Usage()
    """The spending of the model and its children here."""
    seconds: float = 0.0
    files: tuple[tuple[str, tuple[int, int] | None], ...] = ()
    """The files that differ since the prompt, each with its lines that came and went. None: it is not text."""
    files_problem: str = ""
    """The reason why the files are not known."""

    @property
    def succeeded(self) -> bool:
        """Whether the run has an answer, and could act."""
        return self.status == "completed" and not self.unattended


async def compare_models(
    session_id: str,
    models: Sequence[str],
    *,
    at: int | None = None,
    prompt: str | None = None,
    config: Config | None = None,
) -> list[Continuation]:
    """Let models continue a session, each in a fork of its own; return the continuations in the order of the models.

    At most four work at once. Nobody is asked: `config.headless` answers, by default as `config.mode` allows. The original
    session and its workspace stay as they are. The forks stay until they are removed; a cancel removes the unfinished ones.

    Args:
        session_id: The session, by its id or an unambiguous beginning of it.
        models: Their names.
        at: The prompt after which they continue, see `fork_session`.
        prompt: Their prompt. None: the one that followed in the original.
        config: All settings. Default: `Config(mode="auto")`.

    Raises:
        SessionError: The session cannot be forked there, or no prompt followed.
    """
    config = config or Config(mode="auto")
    subagents = config.subagents.model_copy(update={"detach": False})  # each agent is closed after its answer
    config = config.model_copy(update={"headless": config.headless or "auto", "subagents": subagents})
    store, continuations, slots = session_store(config.sessions), list[Continuation](), asyncio.Semaphore(AT_ONCE)
    try:
        for model in models:
            fork = await fork_session(session_id, at, store=store)
            continuations.append(Continuation(model=model, fork=fork))
            asked = _asked(session_id, fork, prompt)
        async with asyncio.TaskGroup() as group:
            for each in continuations:
                group.create_task(_continue(each, asked, config, slots))
    except BaseException:
        for each in continuations:
            if each.status == "waiting":
                await carry_out(asyncio.to_thread(store.remove, each.fork.session_id), timeout_seconds=CLOSE_SECONDS)
        raise
    return continuations


def _asked(session_id: str, fork: SessionFork, prompt: str | None) -> str:
    if not (asked := fork.next_prompt if prompt is None else prompt):
        raise SessionError(
            f"no prompt followed prompt {fork.at} of the session {session_id}: give one, or an earlier number"
        )
    return asked


async def _continue(continuation: Continuation, prompt: str, config: Config, slots: asyncio.Semaphore) -> None:
    async with slots:
        began, session_id = time.monotonic(), continuation.fork.session_id
        try:
            async with await asyncio.to_thread(lambda: Agent(config, session=session_id, model=continuation.model)) as agent:
                agent.keep_undo()
                result = await agent.run(prompt).result()
                try:
                    continuation.files = tuple(await agent.line_changes())
                except FreeactError as error:
                    continuation.files_problem = str(error)
        except Exception as error:  # border: one that fails in any way must not take the others' answers with it
            if not isinstance(error, FreeactError):
                logger.exception("a continuation of a session has failed")
            continuation.status, continuation.error = "failed", str(error) or type(error).__name__
            continuation.files_problem = "it could not be asked"
        else:
            continuation.status, continuation.error = result.status, result.error
            continuation.answer, continuation.usage = result.text, result.tree_usage
            continuation.unattended = result.unattended
        continuation.seconds = time.monotonic() - began


def comparison_table(continuations: Sequence[Continuation]) -> str:
    """Return a table with a row for each, and below it the first line of its answer and its session."""
    rows = [HEADINGS, *([*map(visible, _cells(each))] for each in continuations)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    table = [f"   {lines[0]}"]
    for number, (each, line) in enumerate(zip(continuations, lines[1:], strict=True), 1):
        said = one_line(each.error or next(iter(each.answer.strip().splitlines()), ""), ANSWER_CHARS)
        table += [f"{number:<3}{line}", *(f"   {visible(text)}" for text in (said, each.fork.session_id) if text)]
    return "\n".join(table)


def _cells(continuation: Continuation) -> Iterator[str]:
    usage, files = continuation.usage, continuation.files
    yield continuation.model
    yield "all denied" if continuation.unattended else continuation.status
    yield usage.cost_text or (f"{usage.tokens_text} tokens" if usage.tokens else "")
    yield duration(continuation.seconds)
    lines = [lines for _, lines in files if lines is not None]
    changed = f"{counted(len(files), 'file')} +{sum(came for came, _ in lines)} -{sum(went for _, went in lines)}"
    yield "unknown" if continuation.files_problem else changed if files else "none"
