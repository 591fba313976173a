"""Settings of a command line, and the question whether to trust files in the workspace.

Nothing that takes time is imported at module level.
"""

import argparse
import contextlib
import functools
import os
import signal
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from freeact_sub.cli.streams import asking_terminal, tell
from freeact_sub.config.command_options import load_arguments
from freeact_sub.errors import ConfigError, UntrustedError

if TYPE_CHECKING:
    from pathlib import Path

    from freeact_sub.config.schema import Config
    from freeact_sub.config.trust import Trust

INTERRUPTED: Final = 130
"""The exit status after Ctrl-C."""


def read_settings(options: argparse.Namespace, *, headless: str | None = None, looking: bool = False) -> "Config":
    """Return the settings.

    Args:
        options: The command line.
        headless: The value of `headless` if no setting and no option has one.
        looking: The settings are only shown, so untrusted files are read too, with a note.
    """
    with _ctrl_c_leaves():
        from freeact_sub.config.load import load_config  # noqa: PLC0415
        from freeact_sub.config.schema import user_folder  # noqa: PLC0415
        from freeact_sub.config.trust import Trust  # noqa: PLC0415

    trust = Trust(user_folder())
    load = functools.partial(load_config, **load_arguments(options))
    try:
        config = load(trust=trust)
    except UntrustedError as error:
        if looking and not hasattr(options, "trust"):
            tell(f"note: {error}")
            config = load()
        else:
            if trusted := _trusted(options, error):
                try:
                    trust.add(trusted)
                except ConfigError as problem:
                    tell(f"note: {problem}")
            config = _without_the_rest(load, trust)
    config = _with_model_meant(config)
    return config if config.headless is not None or headless is None else config.model_copy(update={"headless": headless})


def _with_model_meant(config: "Config") -> "Config":
    """Return the settings with the full name of their model, where they have a short one.

    Raises:
        ConfigError: The short name could be several models.
    """
    from freeact_sub.models.build import model_meant  # noqa: PLC0415

    named = config.models.names.get(config.model or "", config.model)
    if not isinstance(named, str) or (named == config.model and config.base_url is not None):
        return config
    meant = model_meant(config, str(config.model), os.environ)
    if meant.model == config.model:
        return config
    if config.model not in config.models.names:
        tell(f"note: model {config.model}: using {meant}")
    new = {"model": meant.model, **({"base_url": meant.base_url} if meant.base_url is not None else {})}
    chosen = config.model_fields_set
    return config.model_copy(update=new).choosing({*chosen, *(new if "model" in chosen else ())})


def trusted_settings(arguments: Mapping[str, Any]) -> "Config":
    """Return the settings where nobody can be asked to trust files. Args: arguments: those of `load_config`.

    Raises:
        UntrustedError: Files that nobody has trusted say more than texts.
        ConfigError: The model's short name could be several models.
    """
    from freeact_sub.config.load import load_config  # noqa: PLC0415
    from freeact_sub.config.schema import user_folder  # noqa: PLC0415
    from freeact_sub.config.trust import Trust  # noqa: PLC0415

    return _with_model_meant(_without_the_rest(functools.partial(load_config, **arguments), Trust(user_folder())))


@contextlib.contextmanager
def _ctrl_c_leaves() -> Iterator[None]:
    """Make Ctrl-C end the program at once: `KeyboardInterrupt` in an extension's import can become any error."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _without_the_rest(load: "functools.partial[Config]", trust: "Trust") -> "Config":
    try:
        return load(trust=trust)
    except UntrustedError as error:
        if error.rest is None:
            raise
        tell(f"note: not read: {error}")
        load.keywords["arguments"] |= error.rest
        return load(trust=trust)


def _trusted(options: argparse.Namespace, error: UntrustedError) -> "Mapping[Path, bytes]":
    """Return the files that a person has trusted, or trusts now."""
    if hasattr(options, "trust"):
        return error.files
    terminal = asking_terminal()
    if terminal is None or error.headless:
        return {}
    from freeact_sub.terminal.asking import trusted  # noqa: PLC0415

    if_not = "the program does not start" if error.rest is None else "they are not read"
    return trusted(error.files, terminal, if_not=if_not, all_needed=error.rest is None)
