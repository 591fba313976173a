"""Writes into the user's own `config.toml`: one setting is changed, everything else stays as it was written."""

import os
from collections.abc import Mapping
from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError

from freeact_sub.config.parsing import text_of_file
from freeact_sub.config.schema import CONFIG_FILE, user_folder
from freeact_sub.errors import ConfigError
from freeact_sub.system.safe_files import locked_folder, read_file, replace_file


def save_own(settings: Mapping[str, str | None]) -> Path:
    """Save settings of the top level for all workspaces; returns the file. Args: settings: None removes one.

    Raises:
        ConfigError: The file cannot be read or written.
    """
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
    """The content of a TOML file with other settings at its top level; comments and order stay.

    Raises:
        ValueError: The content is no text.
        TOMLKitError: It is no TOML.
    """
    document = tomlkit.parse(text_of_file(content))
    for name, value in settings.items():
        if value is None:
            document.pop(name, None)
        else:
            document[name] = value
    return tomlkit.dumps(document).encode()
