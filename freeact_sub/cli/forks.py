"""`freeact-sub sessions fork ID --at N --model A,B`: a session goes on from an earlier prompt; models are compared on it."""

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING, Final

from freeact_sub.cli.streams import print_line, tell
from freeact_sub.errors import ConfigError

if TYPE_CHECKING:
    from freeact_sub.cli.commands import Settings
    from freeact_sub.config.schema import Config

OPTIONS: Final = ("at", "models", "prompt", "mode")


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
    from freeact_sub.strategies.comparing import compare_models, comparison_table  # noqa: PLC0415

    compared = asyncio.run(compare_models(options.session_id, models, at=at, prompt=prompt, config=config))
    print_line(comparison_table(compared))
    for missing in dict.fromkeys(each.fork.missing for each in compared if each.fork.missing):
        tell(missing)
    return 0 if all(each.succeeded for each in compared) else 1


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
