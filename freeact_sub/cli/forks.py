"""`freeact-sub sessions fork ID --at N --model A,B`: a session goes on from an earlier prompt; models are compared on it."""

import argparse
import asyncio
import contextlib
import shlex
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from freeact_sub.cli.streams import can_draw, is_terminal, print_line, tell
from freeact_sub.errors import ConfigError

if TYPE_CHECKING:
    from freeact_sub.cli.commands import Settings
    from freeact_sub.config.schema import Config
    from freeact_sub.strategies.comparing import Comparison, Continuation

OPTIONS: Final = ("at", "models", "prompt", "mode")
REFRESH_SECONDS: Final = 0.25
PIPE_COLUMNS: Final = 200
"""The width of the table in a pipe or a file."""


def is_of_the_past(options: argparse.Namespace) -> bool:
    """Whether `sessions fork` has options that make more of it than a copy of now."""
    return any(hasattr(options, name) for name in OPTIONS)


def fork(options: argparse.Namespace, settings: "Settings") -> int:
    """Make the fork; let models continue it if some are named, or a prompt is given. Returns the exit status."""
    models = [name.strip() for name in getattr(options, "models", "").split(",") if name.strip()]
    prompt: str | None = getattr(options, "prompt", None)
    at: int | None = getattr(options, "at", None)
    if not models and prompt is None:
        if hasattr(options, "mode"):
            raise ConfigError("--mode is for models that continue the fork: name them by --model")
        return asyncio.run(_fork_alone(options.session_id, at, settings(looking=True)))
    config = _config(options, settings)
    if not models:
        models = [_own_model(options.session_id, config)]
    from freeact_sub.models.names import check_name  # noqa: PLC0415  # slow to import, as those below

    for model in models:
        check_name(config.model_copy(update={"model": model}))
    from freeact_sub.strategies.comparing import Comparison  # noqa: PLC0415

    comparing = _ShownComparison(Comparison(config))
    return asyncio.run(comparing.run(options.session_id, models, at=at, prompt=prompt))


def _config(options: argparse.Namespace, settings: "Settings") -> "Config":
    from freeact_sub.cli.project_python import with_project_python  # noqa: PLC0415

    config = settings(headless="auto")
    has_wall = sys.platform == "linux" and config.kernel.sandbox != "off"
    if "mode" not in config.model_fields_set and has_wall:
        config = config.model_copy(update={"mode": "auto"})
    return with_project_python(config, options)


def _own_model(session_id: str, config: "Config") -> str:
    from freeact_sub.sessions import session_store  # noqa: PLC0415

    stored = session_store(config.sessions).find(session_id)
    if not stored.model:
        raise ConfigError(f"the session {stored.session_id} used a model object of a program: name models by --model")
    return stored.model


async def _fork_alone(session_id: str, at: int | None, config: "Config") -> int:
    from freeact_sub.agents import fork_session  # noqa: PLC0415
    from freeact_sub.sessions import session_store  # noqa: PLC0415

    made = await fork_session(session_id, at, store=session_store(config.sessions))
    print_line(made.session_id)
    if made.missing:
        tell(made.missing)
    tell(f"it works in {made.workspace}; freeact-sub --resume {made.session_id} continues it")
    return 0


class _ShownComparison:
    """A comparison, with its progress on standard error and its table on standard output."""

    def __init__(self, comparison: "Comparison") -> None:
        self._comparison = comparison
        self._interrupted = False
        self._is_prepared = False
        self._main: asyncio.Task[Any] | None = None

    async def run(self, session_id: str, models: Sequence[str], *, at: int | None, prompt: str | None) -> int:
        from freeact_sub.terminal.interrupts import INTERRUPTED, Interrupts  # noqa: PLC0415

        comparison, self._main = self._comparison, asyncio.current_task()
        comparison.on_end = self._tell_end
        with Interrupts(self._interrupt):
            try:
                async with self._progress():
                    await comparison.prepare(session_id, models, at=at, prompt=prompt)
                    self._is_prepared = True
                    await comparison.run()
            except BaseException as error:
                if self._main is not None and self._interrupted:
                    self._main.uncancel()
                await comparison.remove()
                if isinstance(error, asyncio.CancelledError) and self._interrupted:
                    return INTERRUPTED
                raise
            for continuation in [each for each in comparison.continuations if each.status == "waiting"]:
                await comparison.remove(continuation)
        workspace = comparison.store.find(session_id).workspace
        self._print(comparison.continuations, workspace)
        if self._interrupted:
            return INTERRUPTED
        return 0 if all(each.succeeded for each in comparison.continuations) else 1

    def _interrupt(self, must_end: bool) -> None:
        del must_end
        self._interrupted = True
        if self._is_prepared:
            self._comparison.cancel()
        elif self._main is not None:
            self._main.cancel()

    def _tell_end(self, continuation: "Continuation") -> None:
        from freeact_sub.terminal.drawing.continuations import facts_of  # noqa: PLC0415

        if not can_draw(sys.stderr):
            tell(f"{continuation.model}: {' · '.join(filter(None, facts_of(continuation)))}")

    @contextlib.asynccontextmanager
    async def _progress(self) -> AsyncIterator[None]:
        """Draw what each does in place, while the block runs; nothing where that cannot be drawn."""
        if not can_draw(sys.stderr):
            yield
            return
        from rich.live import Live  # noqa: PLC0415

        from freeact_sub.terminal.drawing.continuations import progress_lines  # noqa: PLC0415
        from freeact_sub.terminal.drawing.parts import make_console  # noqa: PLC0415

        comparison = self._comparison
        with Live(console=make_console(sys.stderr), auto_refresh=False, transient=True, redirect_stdout=False) as live:

            async def draw() -> None:
                while True:
                    comparison.observe_agents()
                    live.update(progress_lines(comparison.continuations), refresh=True)
                    await asyncio.sleep(REFRESH_SECONDS)

            drawing = asyncio.create_task(draw(), name="draws the progress")
            try:
                yield
            finally:
                drawing.cancel()
                await asyncio.wait({drawing})

    def _print(self, continuations: Sequence["Continuation"], workspace: Path) -> None:
        from freeact_sub.strategies.comparing import PATCH  # noqa: PLC0415
        from freeact_sub.terminal.drawing.continuations import result_lines  # noqa: PLC0415
        from freeact_sub.terminal.drawing.parts import make_console  # noqa: PLC0415

        if not continuations:
            return
        console = make_console(sys.stdout)
        if not is_terminal(sys.stdout):
            console.width = PIPE_COLUMNS
        console.print(result_lines(continuations))
        for missing in dict.fromkeys(each.fork.missing for each in continuations):
            if missing:
                tell(missing)
        first = continuations[0].fork
        container = str(first.workspace.parent.parent / "ID").replace(str(Path.home()), "~", 1)
        top, below = place_to_apply(workspace)
        command = " ".join(["git", "-C", shlex.quote(str(top)), "apply", *below])
        has_patch = any(each.patch is not None for each in continuations)
        apply = f"take them over     {command} {container}/{PATCH}\n" if has_patch else ""
        print_line(
            f"\ncontinue one       freeact-sub --resume ID\n"
            f"look at its files  ls {container}/{shlex.quote(first.workspace.name)}\n"
            f"{apply}remove one         freeact-sub sessions rm ID"
        )


def place_to_apply(workspace: Path) -> tuple[Path, list[str]]:
    """Where `git apply` changes a workspace, and its options: in a folder of a repository it reads paths from the root."""
    top = next((folder for folder in (workspace, *workspace.parents) if (folder / ".git").exists()), workspace)
    return top, [] if top == workspace else [f"--directory={shlex.quote(str(workspace.relative_to(top)))}"]
