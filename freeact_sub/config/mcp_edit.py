"""Adds and removes one server of an `mcp.json`; everything else in the file stays as it was written."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from freeact_sub.config.jsonc import parse_jsonc, with_member, without_member
from freeact_sub.errors import ConfigError
from freeact_sub.system.safe_files import locked_folder, read_file, replace_file

SERVERS: Final = "mcpServers"
MARK: Final = "\ufeff"
"""With which some editors begin a file."""


def add_server(path: Path, name: str, server: Mapping[str, Any], *, mode: int) -> tuple[bytes | None, bytes]:
    """Add a server to a file; a missing file is made, with this mode. Returns its content before and after.

    Raises:
        ConfigError: The file has the server already, or cannot be read or written.
    """

    def add(text: str, servers: Mapping[str, Any]) -> str:
        if name in servers:
            raise ConfigError(f"{path} has a server {name!r} already: remove it first")
        return with_member(text, (SERVERS,), name, dict(server))

    return _change(path, add, lambda servers: servers | {name: dict(server)}, mode)


def remove_server(path: Path, name: str) -> tuple[bytes | None, bytes]:
    """Remove a server from a file. Returns the file's content before and after.

    Raises:
        ConfigError: The file does not have it, or cannot be read or written.
    """

    def remove(text: str, servers: Mapping[str, Any]) -> str:
        if name not in servers:
            raise ConfigError(f"{path} has no server {name!r}: `freeact-sub mcp list` names them")
        return without_member(text, (SERVERS,), name)

    return _change(path, remove, lambda servers: {key: value for key, value in servers.items() if key != name}, 0o644)


def _change(
    path: Path,
    change: Callable[[str, Mapping[str, Any]], str],
    expect: Callable[[dict[str, Any]], dict[str, Any]],
    mode: int,
) -> tuple[bytes | None, bytes]:
    try:
        with locked_folder(path.parent):
            before = read_file(path) if os.path.lexists(path) else None
            after = _changed(path, before, change, expect)
            replace_file(path, after, mode=mode)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error
    return before, after


def _changed(
    path: Path,
    before: bytes | None,
    change: Callable[[str, Mapping[str, Any]], str],
    expect: Callable[[dict[str, Any]], dict[str, Any]],
) -> bytes:
    try:
        content = parse_jsonc(before) if before is not None and before.strip() else {}
        # parsed already, so it is UTF-8; its line ends and its mark stay
        text = before.decode() if before is not None and before.strip() else "{}\n"
        servers = content.get(SERVERS, {}) if isinstance(content, dict) else None
        if not isinstance(servers, dict):
            raise ConfigError(f"cannot change {path}: it has no object `{SERVERS}`")
        mark = MARK if text.startswith(MARK) else ""
        after = change(text.removeprefix(mark), servers)
        is_right = parse_jsonc(after) == content | {SERVERS: expect(servers)}
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"cannot change {path}: {error}") from error
    if not is_right:
        raise ConfigError(f"cannot change {path}: its layout is too unusual to edit automatically: edit the file yourself")
    return f"{mark}{after}".encode()
