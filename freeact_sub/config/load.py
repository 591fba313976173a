"""The one reader of settings files and environment variables, `load_config` (files, environment, arguments; later wins).

The files are the user's own `config.toml`, then `.freeact/config.toml` in the workspace; a variable is `FREEACT_` and the
setting's path in capitals with `__` between its parts (`FREEACT_KERNEL__CELL_TIMEOUT_SECONDS=60`). A wrong setting is a
`ConfigError` that names it and where it was found.

An MCP server may be set as other programs write it. Keys that narrow have their meaning here too. Keys of another program
alone are reported once, and none approves a call: a file that came with a project must not.
"""

import difflib
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from freeact_sub.config.hooks import HOOKS_FILE, scripts_of_type
from freeact_sub.config.parsing import SHOWN, check, parse_json, parse_jsonc, parse_toml, plain_json, text_of_file
from freeact_sub.config.project_texts import (
    COMMANDS,
    INSTRUCTION_FILES,
    MEMORY_FILE,
    OWN_SKILLS,
    PROJECT_SKILLS,
    nested_files,
)
from freeact_sub.config.schema import (
    AGENT_TYPES,
    CONFIG_FILE,
    INNER,
    MCP_FILE,
    PERMISSIONS_FILE,
    Config,
    McpServerConfig,
    OAuthConfig,
    is_server_name,
    user_folder,
)
from freeact_sub.config.section import words_of
from freeact_sub.config.trust import Trust, scripts_of_server
from freeact_sub.errors import ConfigError, UntrustedError
from freeact_sub.system.safe_files import files_in, full_path, is_file, is_folder, read_file

ENVIRONMENT_PREFIX = "FREEACT_"

_Model = TypeVar("_Model", bound=BaseModel)
_KNOWN = frozenset(McpServerConfig.model_fields) - INNER
_KNOWN_OAUTH = frozenset(OAuthConfig.model_fields)
_IS_THERE = {"permission_files": os.path.lexists, "hook_files": os.path.lexists, "instruction_files": is_file}
APPROVALS: Final = frozenset({"autoApprove", "alwaysAllow", "autoAllow", "trust"})
"""Keys by which other programs ask nobody."""
URLS: Final = ("httpUrl", "serverUrl")
LEFT_OUT: Final = ("disabledTools", "disabled_tools", "excludeTools")
ONLY: Final = ("enabledTools", "enabled_tools", "includeTools", "tools")
TRANSPORTS: Final = {
    "streamableHttp": "http",
    "streamable_http": "http",
    "streamable": "http",
    "remote": "http",
    "local": "stdio",
}
OAUTH: Final = {"clientId": "client_id", "clientSecret": "client_secret", "callbackPort": "callback_port"}
MILLISECONDS: Final = 10_000
"""The least `timeout` that is taken for milliseconds."""


def load_config(
    workspace: Path | str | None = None,
    *,
    arguments: Mapping[str, Any] | None = None,
    usual: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    mcp_file: Path | str | None = None,
    trust: Trust | None = None,
) -> Config:
    """Read the settings: the user's file, the workspace's, environment, arguments; a later value replaces an earlier one.

    A `base_url` belongs to the model that is set with it: where a later source names a model of another provider, it goes.
    `model` may be a name in `models`.

    Args:
        workspace: The folder to work in; its `.freeact/config.toml` is read where it exists. Default: this folder.
        arguments: Nested settings that win over all others; values of None are skipped.
        usual: Settings that count where none of these sources has one.
        environment: Variables to read instead of `os.environ`.
        mcp_file: An `mcp.json` to read. Default: the user's, and `.freeact/mcp.json`, else `mcp.json`, in the workspace.
        trust: The contents that a person has reviewed; other files of the workspace are not obeyed. None: all files are
            obeyed, which suits a program that reads its own folder.

    Raises:
        ConfigError: A setting is unknown or has a wrong value, or a file cannot be read.
        UntrustedError: A file of the workspace has content that no person has reviewed.
    """
    variables = os.environ if environment is None else environment
    folder = _full_path(workspace or Path.cwd())
    files = _SettingsFiles()
    own = user_folder(variables)
    settings: dict[str, Any] = dict(usual or {})
    sources = (
        _read_toml(files, own / CONFIG_FILE.name),
        _read_toml(files, folder / CONFIG_FILE),
        _from_environment(variables),
        _without_none(arguments or {}),
    )
    models: dict[str, Any] = {}
    for source in sources:
        _merge(models, {"models": source.get("models", {})})
    for source in sources:
        newer = _with_full_name(source, models["models"])
        if is_of_another_provider(newer.get("model"), settings.get("model")):
            settings.pop("base_url", None)
        _merge(settings, newer)
    settings.setdefault("workspace", folder)
    named = "instruction_files" in settings
    notes = folder / MEMORY_FILE
    memory = () if any(map(os.path.islink, (notes, notes.parent))) else (MEMORY_FILE,)  # no link is followed to the notes
    for name, paths in {
        "permission_files": (folder / PERMISSIONS_FILE, own / PERMISSIONS_FILE.name),
        "agent_folders": (folder / AGENT_TYPES, own / AGENT_TYPES.name),
        "instruction_files": tuple(folder / name for name in (*INSTRUCTION_FILES, *memory)),
        "command_folders": (folder / COMMANDS, own / COMMANDS.name),
        "skill_folders": (*(folder / name for name in PROJECT_SKILLS), own / OWN_SKILLS, Path.home() / PROJECT_SKILLS[0]),
        "hook_files": (folder / HOOKS_FILE, own / HOOKS_FILE.name),
    }.items():
        is_there = _IS_THERE.get(name, is_folder)
        settings.setdefault(name, tuple(filter(is_there, paths)))  # what is not a file is an error: its rules would be lost
    servers: dict[str, Any] = {}
    for path in (_expanded(mcp_file),) if mcp_file else mcp_files(folder, own):
        servers |= _mcp_servers(files.read(path), path, variables)
    if servers:
        settings["mcp_servers"] = servers | settings.get("mcp_servers", {})
    config = _validate(Config, settings)
    nested = () if named else nested_files(config.workspace)
    config = config.model_copy(update={"instruction_files": (*config.instruction_files, *nested)})
    config = config.choosing(_without_none(arguments or {}))
    if trust is not None:
        texts = _add_reviewed(files, config)
        untrusted = files.untrusted(trust, (folder, config.workspace), own)
        if untrusted:
            rest = _without(config, untrusted) if untrusted.keys() <= texts.keys() else None
            raise UntrustedError(untrusted, headless=config.headless is not None, rest=rest)
    return config


def _add_reviewed(files: "_SettingsFiles", config: Config) -> Mapping[Path, bytes]:
    """Add all that a person reviews besides the settings; return the texts among it, without which there are settings."""
    types = [path for place in config.agent_folders for path in files_in(place, ".md") if is_file(path)]
    for path in (*config.permission_files, *types):
        files.read(path)
    skills = {path: skill.listing for path, skill in config.skill_contents.items() if not skill.problem}
    for server in config.mcp_servers.values():
        if server.command is not None and not server.disabled:
            place = config.workspace / (server.cwd or ".")
            files.add(scripts_of_server(server.command, server.args, place, config.workspace))
    files.add(config.found_hooks.contents)
    for path in types:
        files.add(scripts_of_type(path, files.read(path), config.workspace))
    texts = config.command_contents | config.instruction_contents | skills
    files.add(texts)
    return texts


def mcp_files(workspace: Path, own: Path) -> tuple[Path, ...]:
    """Return the existing files with MCP servers: the user's, then one of the workspace, whose servers win."""
    usual = (path for path in (workspace / ".freeact" / MCP_FILE, workspace / MCP_FILE) if os.path.lexists(path))
    mine = (own / MCP_FILE,) if os.path.lexists(own / MCP_FILE) else ()
    return (*mine, *([found] if (found := next(usual, None)) else []))


def _without(config: Config, texts: Iterable[Path]) -> dict[str, Any]:
    """Return settings that name all instructions, commands and skills but these paths, folder by folder."""
    left_out = frozenset(texts)
    above = {folder for path in left_out for folder in path.parents}
    return {
        "instruction_files": [path for path in config.instruction_files if config.workspace / path not in left_out],
        "command_folders": [folder for folder in config.command_folders if folder not in above],
        "skill_folders": [folder for folder in config.skill_folders if folder not in above],
    }


def _with_full_name(source: dict[str, Any], models: Any) -> dict[str, Any]:
    """Return the settings of a source with the full name of a model that they name as `models` does."""
    name = source.get("model")
    full = models.get(name) if isinstance(models, Mapping) and isinstance(name, str) else None
    return {**source, "model": full} if isinstance(full, str) else source


def is_of_another_provider(model: Any, earlier: Any) -> bool:
    """Return whether a model has another provider than the one named before; False if either is None."""
    return bool(model and earlier) and str(model).partition(":")[0] != str(earlier).partition(":")[0]


def _full_path(path: Path | str) -> Path:
    try:
        return full_path(path)
    except OSError as error:
        raise ConfigError(f"there is no folder {str(path)!r}: {error.strerror}") from error


def _expanded(path: Path | str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"cannot read {path}: {error}") from error


class _SettingsFiles:
    """Reader of each file once, so that the judged content is the obeyed content."""

    def __init__(self) -> None:
        self._contents: dict[Path, bytes] = {}

    def read(self, path: Path) -> bytes:
        """Read a file.

        Raises:
            ConfigError: The file cannot be read.
        """
        try:
            content = self._contents[path] = read_file(path)
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from error
        return content

    def add(self, contents: Mapping[Path, bytes]) -> None:
        """Add files that another reader has read."""
        self._contents.update(contents)

    def untrusted(self, trust: Trust, workspaces: Iterable[Path], own: Path) -> dict[Path, bytes]:
        """Return the files in a workspace that no person has reviewed. Args: own: the user's folder, not reviewed."""

        def is_in(path: Path, folder: Path) -> bool:
            return path.absolute().is_relative_to(folder) or path.resolve().is_relative_to(folder)

        return {
            path: content
            for path, content in self._contents.items()
            if any(is_in(path, folder) for folder in workspaces) and not path.resolve().is_relative_to(own.resolve())
            if not trust.knows(path, content)
        }


def read_mcp_servers(path: Path | str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Read the `mcpServers` of a standard `mcp.json`; `${VAR}` and `${VAR:-default}` are filled in anywhere.

    Raises:
        ConfigError: The file cannot be read, is not such a file, or names a variable that is not set.
    """
    path = _expanded(path)
    return _mcp_servers(_SettingsFiles().read(path), path, os.environ if environment is None else environment)


def _mcp_servers(text: bytes, path: Path, variables: Mapping[str, str]) -> dict[str, Any]:
    try:
        content = parse_jsonc(text) if plain_json(text_of_file(text)).strip() else {}
    except ValueError as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    if content == {}:
        return {}
    servers = content.get("mcpServers") if isinstance(content, dict) else None
    if not isinstance(servers, dict):
        raise ConfigError(f'{path} has no object `mcpServers`: write {{"mcpServers": {{"name": {{"command": …}}}}}}')
    entries: dict[str, Any] = {}
    for name, server in servers.items():
        ours = _own_name(name, servers.keys() | entries.keys())
        entries[ours] = _entry(name, server, path, variables)
        if ours != name:
            called = f"MCP server {SHOWN.repr(name)} of {path} is called {ours!r} here"
            entries[ours] = {"notice": called, **entries[ours]}
    return entries


def _entry(name: str, server: Any, path: Path, variables: Mapping[str, str]) -> dict[str, Any]:
    """Return a server of a file. An unusable one is left out, with a notice: it must not cost the others."""
    try:
        read: dict[str, Any] = servers_in({name: server}, path, variables)[name]
    except ConfigError as error:
        is_off = isinstance(server, dict) and as_ours(server).get("disabled") is True
        notice = "" if is_off else f"MCP server {SHOWN.repr(name)} is left out: {error}"
        return {"disabled": True, **({"notice": notice} if notice else {})}
    return read


def _own_name(name: str, taken: Collection[str]) -> str:
    """Return the name of a server here: the file's, or a similar one of letters, digits, `-` and `_`."""
    if is_server_name(name):
        return name
    like = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_-") or "server"
    numbered = (like, *(f"{like}_{number}" for number in range(2, len(taken) + 3)))
    return next(each for each in numbered if each not in taken)


def servers_in(servers: dict[str, Any], path: Path, variables: Mapping[str, str]) -> dict[str, Any]:
    """Read MCP servers by name, as in the `mcpServers` of a standard `mcp.json`. Args: path: names the file in errors.

    Raises:
        ConfigError: A server is wrong, or names a variable that is not set.
    """
    filled: dict[str, Any] = fill_variables(servers, variables, path)
    for name, server in filled.items():
        if isinstance(server, dict):
            filled[name] = as_ours(server)
        _validate(McpServerConfig, filled[name], where=f"{path}, server {name!r}: ")
    return filled


def _read_toml(files: _SettingsFiles, path: Path) -> dict[str, Any]:
    if not os.path.lexists(path):
        return {}
    try:
        settings: dict[str, Any] = parse_toml(files.read(path))
    except ValueError as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    _validate(Config, settings, where=f"{path}: ")
    return settings


def _from_environment(variables: Mapping[str, str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for variable, text in variables.items():
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        *parents, name = variable.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
        section: dict[str, Any] = {}
        inner = section
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[name] = _parsed(text)
        try:
            check(section)
        except ValueError as error:
            raise ConfigError(f"environment variable {variable}: {error}") from error
        _validate(Config, section, where=f"environment variable {variable}: ")
        _merge(settings, section)
    return settings


def _parsed(text: str) -> Any:
    """Parse JSON tables and lists; other text stays text, which pydantic converts to the field's type."""
    if text[:1] in ("{", "["):
        try:
            return parse_json(text)
        except ValueError:
            pass
    return text


def _merge(settings: dict[str, Any], newer: Mapping[str, Any]) -> None:
    for name, value in newer.items():
        if isinstance(value, Mapping) and isinstance(settings.get(name), dict):
            _merge(settings[name], value)
        else:
            settings[name] = dict(value) if isinstance(value, Mapping) else value


def _without_none(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _without_none(value) if isinstance(value, Mapping) else value
        for name, value in arguments.items()
        if value is not None
    }


def _validate(model: type[_Model], settings: Mapping[str, Any], where: str = "") -> _Model:
    try:
        return model.model_validate(settings)
    except ValidationError as error:
        raise ConfigError(where + words_of(model, error)) from error


def fill_variables(value: Any, variables: Mapping[str, str], path: Path) -> Any:
    """Fill in `${VAR}` and `${VAR:-default}` in all texts of a value.

    Args:
        value: A JSON value.
        variables: The environment variables.
        path: The file of the value, for the error.

    Raises:
        ConfigError: A variable without a default is not set.
    """
    if isinstance(value, dict):
        return {name: fill_variables(item, variables, path) for name, item in value.items()}
    if isinstance(value, list):
        return [fill_variables(item, variables, path) for item in value]
    if not isinstance(value, str):
        return value

    def fill(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        if name in variables:
            return variables[name]
        if default is not None:
            return default
        raise ConfigError(f"{path} needs the environment variable {name}: set it, or write ${{{name}:-default}}")

    return re.sub(r"\$\{(?P<name>\w+)(?::-(?P<default>(?:[^}$]|\$(?!\{))*+))?\}", fill, value)


def as_ours(server: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file's settings of a server, by our names."""
    ours = {name: value for name, value in server.items() if name in _KNOWN}
    unread: list[str] = []
    for name, value in server.items():
        if name in _KNOWN:
            continue
        if (read := _READERS.get(name)) is None or not read(ours, value):
            unread.append(_about(name))
    kind = ours.get("type")
    if isinstance(kind, str) and kind in TRANSPORTS:
        ours["type"] = TRANSPORTS[kind]
    elif kind == "sse":
        del ours["type"]
        unread.append("`type` (sse is the older transport: the newer one is tried at its URL)")
    if isinstance(oauth := ours.get("oauth"), Mapping):
        ours["oauth"], more = _oauth(oauth)
        unread += more
    return ours | {"unread": [*ours.get("unread", ()), *unread]} if unread else ours


def _about(name: str) -> str:
    if name in APPROVALS:
        return f"`{name}` (a rule allows calls: docs/approvals.md)"
    near = difflib.get_close_matches(name, sorted(_KNOWN), n=1, cutoff=0.75)
    return f"`{name}` (did you mean `{near[0]}`?)" if near else f"`{name}`"


def _oauth(oauth: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    ours: dict[str, Any] = {}
    unread = []
    for name, value in oauth.items():
        if name == "scopes" and isinstance(value, list) and all(isinstance(scope, str) for scope in value):
            ours.setdefault("scope", " ".join(value))
        elif name == "scopes" and isinstance(value, str):
            ours.setdefault("scope", value)
        elif (by_our_name := OAUTH.get(name, name)) in _KNOWN_OAUTH:
            ours.setdefault(by_our_name, value)
        else:
            unread.append(f"`oauth.{name}`")
    return ours, unread


def _seconds(ours: dict[str, Any], value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        return False
    ours.setdefault("call_timeout_seconds", value / 1000 if value >= MILLISECONDS else value)
    return True


def _switch(ours: dict[str, Any], value: Any) -> bool:
    if isinstance(value, bool):
        ours["disabled"] = not value or ours.get("disabled", False)
    return isinstance(value, bool)


def _url(ours: dict[str, Any], value: Any) -> bool:
    ours.setdefault("url", value)
    return True


def _names(setting: str) -> Callable[[dict[str, Any], Any], bool]:
    def read(ours: dict[str, Any], value: Any) -> bool:
        if setting == "only_tools" and value == ["*"]:
            return True
        ours.setdefault(setting, value)  # a wrong value is refused: it would narrow
        return True

    return read


_READERS: Final[dict[str, Callable[[dict[str, Any], Any], bool]]] = {
    "timeout": _seconds,
    "enabled": _switch,
    "isActive": _switch,
    **dict.fromkeys(URLS, _url),
    **dict.fromkeys(LEFT_OUT, _names("without_tools")),
    **dict.fromkeys(ONLY, _names("only_tools")),
}
