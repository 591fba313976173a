"""Sessions on the command line (`freeact-sub sessions`, `--continue`, `--resume`): list, read, export, remove, fork.

A fork (`sessions fork ID --at N --model A,B`) goes on from an earlier prompt; models are compared on it.
"""

import argparse
import asyncio
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from freeact_sub.cli.streams import can_draw, is_terminal, print_line, tell, write_out
from freeact_sub.config.schema import Config
from freeact_sub.errors import ConfigError
from freeact_sub.events import AgentStarted
from freeact_sub.sessions import SessionReader, SessionStore, newest, session_store
from freeact_sub.sessions.store import INTERRUPTED
from freeact_sub.show.wording import session_line

if TYPE_CHECKING:
    from freeact_sub.cli.commands import Settings

OPTIONS: Final = ("at", "models", "prompt", "mode")


def run_way(options: argparse.Namespace, settings: Callable[..., Config]) -> int:
    """Run the subcommand; return the exit status."""
    if options.way == "fork" and is_of_the_past(options):
        return fork(options, settings)
    config = settings(looking=True)
    store = session_store(config.sessions)
    match options.way:
        case "list":
            return _list(store, None if options.everywhere else config.workspace)
        case "show":
            return _show(store, options.session_id, options.agent)
        case "export":
            return _export(store, options.session_id, options.to, options.out)
        case "fork":
            print_line(store.fork(options.session_id))
            return 0
        case "rm":
            return _remove(store, options.session_id)
        case _:
            return _prune(store, config)


def chosen(choice: str, config: Config) -> str:
    """Return the id of the session that an option names. Args: choice: `.`: the newest. Empty: ask.

    Raises:
        SessionError: There is no such session.
        ConfigError: No person can choose.
    """
    store = session_store(config.sessions)
    if choice == ".":
        return newest(store, config.workspace).session_id
    if choice:
        return store.find(choice).session_id
    from freeact_sub.terminal.listing import choose  # noqa: PLC0415  # slow to import
    from freeact_sub.terminal.present import session_chooser  # noqa: PLC0415

    draws = is_terminal(sys.stdin) and can_draw(sys.stdout)
    picked = choose(session_chooser(store, config.workspace), sys.stdout if draws else sys.stderr, draws=draws)
    if picked is None:
        raise ConfigError("no session was chosen: name one by --resume ID, or start without --resume")
    return picked


def _list(store: SessionStore, workspace: Path | None) -> int:
    from freeact_sub.cli.attach import STATES  # noqa: PLC0415
    from freeact_sub.detached.sockets import live_hosts  # noqa: PLC0415

    sessions = [session for session in store.sessions(workspace) if session.title]
    states = {host.session: STATES[host.state] for host in live_hosts()}
    for session in sessions:
        state = states.get(session.session_id, "")
        if not state and store.is_open(session.session_id):
            state = STATES["done"]  # of a program without a host, or of a host that does not answer
        elif not state and not session.status:
            state = INTERRUPTED  # its program was killed
        print_line(session_line(session, folder=workspace is None, state=state))
    if not sessions:
        print_line("no sessions" if workspace is None else f"no sessions in {workspace} (--all lists those of all folders)")
    return 0


def _show(store: SessionStore, session_id: str, agent: str | None) -> int:
    from freeact_sub.show.agent_story import Stories  # noqa: PLC0415  # slow to import
    from freeact_sub.show.replay import with_ends  # noqa: PLC0415  # slow to import
    from freeact_sub.terminal.plain_lines import PlainLines  # noqa: PLC0415  # slow to import

    session = store.find(session_id)
    views = Stories()
    lines = PlainLines(views)
    with store.reader(session.session_id) as reader:
        wanted = None if agent is None else reader.agent(agent).agent_id
        print_line(session_line(session, folder=True))
        numbers = _numbers(reader)
        for event in with_ends(reader.events(), goes_on=store.is_open(session.session_id)):
            if number := next(numbers, "") if isinstance(event, AgentStarted) and event.parent_id is None else "":
                print_line(f"\n{number}")
            views.observe(event)
            if wanted in (None, event.agent_id):
                write_out(lines.write(event))
    return 0


def _numbers(reader: SessionReader) -> Iterator[str]:
    """Yield the number of each prompt of the root, as `fork --at` counts; empty for other runs."""
    from freeact_sub.features.sessions.variables import prompts_of  # noqa: PLC0415  # slow to import

    root = next((agent for agent in reader.agents() if agent.parent_id is None), None)
    if root is None:
        return
    numbers = {run.number: number for number, run in enumerate(prompts_of(reader, root.agent_id), 1)}
    for run in reader.runs(root.agent_id):
        yield f"[prompt {numbers[run.number]}]" if run.number in numbers else ""


def _export(store: SessionStore, session_id: str, to: Any, file: Path | None) -> int:
    from freeact_sub.export import export_session  # noqa: PLC0415  # slow to import

    text = export_session(session_id, to, store=store, file=file)
    if file is None:
        write_out(text)
    else:
        print_line(f"written: {file}")
    return 0


def _remove(store: SessionStore, session_id: str) -> int:
    session = store.find(session_id)
    store.remove(session.session_id)
    print_line(f"removed: {session_line(session, folder=True)}")
    return 0


def _prune(store: SessionStore, config: Config) -> int:
    settings = config.sessions
    swept = store.sweep(
        config.workspace,
        archive_after_days=settings.archive_after_days,
        max_bytes=settings.max_bytes,
        stop=threading.Event(),
    )
    print_line(f"archived: {', '.join(swept.archived) or 'none'}; removed: {', '.join(swept.removed) or 'none'}")
    return 0


def is_of_the_past(options: argparse.Namespace) -> bool:
    """Return whether `sessions fork` has options that make more than a copy of now."""
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
    from freeact_sub.models.build import check_name, model_meant  # noqa: PLC0415  # slow to import, as those below

    meant = [model_meant(config, model, os.environ) for model in models]
    if elsewhere := next((model for model in meant if model.base_url not in (None, config.base_url)), None):
        raise ConfigError(f"the model {elsewhere}: give its address, by --base-url {elsewhere.base_url}")
    models = [model.model for model in meant]
    for model in models:
        check_name(config.model_copy(update={"model": model}))
    from freeact_sub.strategies.comparing import compare_models, comparison_table  # noqa: PLC0415

    compared = asyncio.run(compare_models(options.session_id, models, at=at, prompt=prompt, config=config))
    print_line(comparison_table(compared))
    for missing in dict.fromkeys(each.fork.missing for each in compared if each.fork.missing):
        tell(missing)
    return 0 if all(each.succeeded for each in compared) else 1


def _config(options: argparse.Namespace, settings: "Settings") -> "Config":
    from freeact_sub.cli.first_start import with_project_python  # noqa: PLC0415
    from freeact_sub.kernels.wall.sandbox import has_wall  # noqa: PLC0415

    config = settings(headless="auto")
    if "mode" not in config.model_fields_set and has_wall(config.kernel):
        config = config.model_copy(update={"mode": "auto"})
    return with_project_python(config, options)


def _own_model(session_id: str, config: "Config") -> str:
    from freeact_sub.sessions import session_store  # noqa: PLC0415

    stored = session_store(config.sessions).find(session_id)
    if not stored.model:
        raise ConfigError(f"the session {stored.session_id} used a model object of a program: name models by --model")
    return stored.model


async def _fork_alone(session_id: str, at: int | None, config: "Config") -> int:
    from freeact_sub.features.sessions.forking import fork_session  # noqa: PLC0415
    from freeact_sub.sessions import session_store  # noqa: PLC0415

    made = await fork_session(session_id, at, store=session_store(config.sessions))
    print_line(made.session_id)
    if made.missing:
        tell(made.missing)
    tell(f"it works in {made.workspace}; freeact-sub --resume {made.session_id} continues it")
    return 0
