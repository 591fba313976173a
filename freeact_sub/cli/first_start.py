"""The first start: no settings name a model. Models found here are proposed once, and the choice is saved for all folders.

Nothing that takes time is imported at module level.
"""

import importlib
import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from freeact_sub.cli.streams import asking_terminal, can_draw, tell
from freeact_sub.errors import ConfigError
from freeact_sub.text import fitted, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freeact_sub.config.schema import Config
    from freeact_sub.models.build import FoundModel

HEAD: Final = "No model is set yet. Which one do you want to use? (Saved for all folders.)"
NAMED: Final = 4
"""Models that a sentence names, at most."""


def with_model(config: "Config") -> "Config":
    """Return the settings with a model: a person chooses among the found ones, or the only one counts.

    Raises:
        ConfigError: No model is found, none is chosen, or nobody is there to choose among several.
    """
    if config.model:
        return config
    from freeact_sub.models.build import find_models, require_model  # noqa: PLC0415

    if config.base_url is not None:  # one that is found elsewhere cannot be meant
        raise ConfigError(
            "no model is set, but `base_url` is: pass --model openai-chat:NAME, with the server's NAME of the model"
        )
    found = find_models(os.environ)
    if not found:
        require_model(config)
    model = _the_only(found) if config.headless is not None or asking_terminal() is None else _chosen(found)
    new = {"model": model.model, "base_url": model.base_url}
    return config.model_copy(update=new).choosing(config.model_fields_set)


def with_package(config: "Config") -> "Config":
    """Return the settings, once the package of their model is installed, for which a person is asked.

    Raises:
        ConfigError: The package is missing, and nobody is there to ask, or the answer is no, or it cannot be installed.
    """
    from freeact_sub.models.build import missing_extra  # noqa: PLC0415

    name = str(config.model)
    extra = missing_extra(name)
    if extra is None:
        return config
    from freeact_sub.extras import install_command, provider_requirement  # noqa: PLC0415

    command = install_command(provider_requirement(extra))
    what = f"the model {visible(name)} needs a package that is not installed"
    terminal = asking_terminal()
    if config.headless is not None or terminal is None:
        raise ConfigError(f"{what}: run `{shlex.join(command)}`")
    from freeact_sub.terminal.asking import agrees  # noqa: PLC0415

    question = f"{what[0].upper()}{what[1:]}. This would install it:\n    {shlex.join(command)}\nInstall it now?"
    if not agrees(question, terminal):
        raise ConfigError(f"{what}: run `{shlex.join(command)}`")
    status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal, check=False).returncode
    importlib.invalidate_caches()
    if status or missing_extra(name):
        raise ConfigError(f"the package was not installed (exit status {status}): run `{shlex.join(command)}`")
    return config


def _the_only(found: "Sequence[FoundModel]") -> "FoundModel":
    """Return the model, if there is one alone. Nothing is saved: nobody has been asked."""
    first, *others = found
    if others:
        listed = [f"{_option(model)} ({model.because})" for model in found[:NAMED]]
        more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
        raise ConfigError(f"no model is set, and several are found: pass one of {', '.join(listed)}{more}")
    tell(f"note: no model is set: using {visible(first.model)}, as {first.because} (--model names another)")
    return first


def _option(model: "FoundModel") -> str:
    return f"--model {visible(model.model)}" + (f" --base-url {model.base_url}" if model.base_url else "")


def _chosen(found: "Sequence[FoundModel]") -> "FoundModel":
    from freeact_sub.terminal.listing import Chooser, Row, choose  # noqa: PLC0415

    terminal = asking_terminal()
    if terminal is None:
        raise ConfigError("nobody is there to choose a model: pass --model PROVIDER:NAME")
    rows = [Row(value=str(at), text=model.model, note=model.because) for at, model in enumerate(found)]
    chooser = Chooser("model: ", lambda: rows, takes="takes it", none="none is found")
    index = choose(chooser, terminal, draws=can_draw(terminal), head=HEAD)
    if index is None:
        raise ConfigError("no model was chosen: pass --model PROVIDER:NAME, or start again")
    model = found[int(index)]
    try:
        file = save_own({"model": model.model, "base_url": model.base_url})
        print(fitted(f"model {visible(model.model)}, saved in {file}", terminal), file=terminal)
    except ConfigError as error:
        tell(f"note: not saved: {error}; next time pass {_option(model)}")
    return model


def save_own(settings: Mapping[str, str | None]) -> Path:
    """Save settings of the top level for all workspaces; return the file. Args: settings: None removes one.

    Raises:
        ConfigError: The file cannot be read or written.
    """
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415

    from freeact_sub.config.schema import CONFIG_FILE, user_folder  # noqa: PLC0415
    from freeact_sub.system.safe_files import locked_folder, read_file, replace_file  # noqa: PLC0415

    file = user_folder() / CONFIG_FILE.name
    try:
        with locked_folder(file.parent):
            content = read_file(file) if os.path.lexists(file) else b""
            replace_file(file, changed(content, settings), mode=0o600)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}") from error
    except (ValueError, TOMLKitError) as error:
        raise ConfigError(f"cannot read {file}: {error}") from error
    return file


def changed(content: bytes, settings: Mapping[str, str | None]) -> bytes:
    """Return the content of a TOML file with other settings at its top level; comments and order stay.

    Raises:
        ValueError: The content is no text.
        TOMLKitError: It is no TOML.
    """
    import tomlkit  # noqa: PLC0415

    from freeact_sub.config.parsing import text_of_file  # noqa: PLC0415

    document = tomlkit.parse(text_of_file(content))
    for name, value in settings.items():
        if value is None:
            document.pop(name, None)
        else:
            document[name] = value
    return tomlkit.dumps(document).encode()
