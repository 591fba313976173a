"""`Config`: all settings of an agent, frozen, read once from file, environment and arguments (later wins).

This module is the only reader of settings files and environment variables. The file is `.freeact/config.toml` in the
workspace; a variable is `FREEACT_` and the setting's path in capitals with `__` between its parts
(`FREEACT_KERNEL__CELL_TIMEOUT_SECONDS=60`). A wrong setting is a `ConfigError` that names it and where it was found.
"""

import difflib
import json
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from freeact_sub.budget import Budget
from freeact_sub.errors import ConfigError, UntrustedError
from freeact_sub.files import read_file
from freeact_sub.modes import CodeActions, Headless, Mode, Profile
from freeact_sub.trust import Trust
from freeact_sub.variables import fill_variables

SETTINGS_FOLDER = Path(".freeact")
"""What is the program's own in a workspace."""
CONFIG_FILE = SETTINGS_FOLDER / "config.toml"
"""Where a workspace keeps its settings."""
AGENT_TYPES = Path(".agents") / "agents"
"""Where a workspace keeps its agent types."""

PERMISSIONS_FILE = SETTINGS_FOLDER / "permissions.toml"
"""Where a workspace keeps its rules."""

PROTECTED = (".freeact", ".agents", "mcp.json", ".git/hooks", ".git/config")
"""In the workspace: what the host, or its user's git, would run or obey the next time. No walled kernel writes there."""

ENVIRONMENT_PREFIX = "FREEACT_"

_Model = TypeVar("_Model", bound=BaseModel)

INHERITED_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "VIRTUAL_ENV")
"""All that a kernel gets of the host's environment: no key, token or password of the host is visible in a kernel."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class KernelConfig(_Section):
    """How kernels are started and how cells run."""

    provider: Literal["fork", "local"] = "fork"
    """`fork`: forked from a warm process, where that is safe (Linux); `local`: a new process for each kernel."""
    preload: tuple[str, ...] = ()
    """Modules that every forked kernel finds imported; `["data"]` stands for numpy, pandas and matplotlib."""
    spares: int = Field(default=1, ge=0, le=20)
    """Forked kernels that are kept ready ahead of demand."""
    python: str = sys.executable
    """The Python that runs the kernel; it needs ipykernel."""
    start_timeout_seconds: float = Field(default=60, gt=0)
    cell_timeout_seconds: float | None = Field(default=300, gt=0)
    """A cell that runs longer is interrupted; waiting for approval does not count. None: no limit."""
    output_chars: int = Field(default=10_000, ge=200)
    """How many characters of a cell's output the model reads: the head and the tail; the file has all of it."""
    show_images_to_model: bool = True
    """False for models that cannot read pictures; people see them all the same."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables for kernels, besides the few that are inherited."""
    max_live: int = Field(default=50, ge=1)
    """Live kernels of one root and all its children; a child that needs one more waits in order."""
    sandbox: Literal["off", "auto", "required"] = "auto"
    """The wall around kernels. `required`: no kernel is started where a piece of it is missing; `auto`: what is missing is
    told once; `off`: there is none."""
    readable: tuple[Path, ...] = ()
    """What walled kernels (modes `plan` and `auto`) may read, besides the system, Python and the workspace."""
    writable: tuple[Path, ...] = ()
    """What kernels in mode `auto` may write, and those in `plan` read, besides the workspace."""
    network: bool = False
    """Kernels in mode `auto` have the network."""
    memory_bytes: int | None = Field(default=None, gt=0)
    """Bound on each process of a kernel with a sandbox. None: the machine's memory."""
    max_processes: int | None = Field(default=None, ge=0)
    """Bound on the threads and processes of a kernel with a sandbox. None: 1024, except for root, to whom no such bound
    applies; a number that cannot be held is told. 0: none."""
    max_file_bytes: int = Field(default=16 * 2**30, ge=0)
    """Bound on each file that a kernel with a sandbox writes. 0: none."""
    cpu_seconds: int = Field(default=0, ge=0)
    """Bound on the processor time of each process of a kernel with a sandbox. 0: none."""

    def environment(self) -> dict[str, str]:
        """The whole environment of a kernel's process."""
        inherited = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
        return {**inherited, "PYTHONUNBUFFERED": "1", **self.env}


class ChildBudget(Budget):
    """The budget of a child, as far as its parent names none."""

    turns: int | None = Field(default=10, ge=0)


class SubagentsConfig(_Section):
    """Bounds on child agents."""

    enabled: bool = True
    """False: no agent is offered the `task` tool."""
    max_concurrent: int = Field(default=5, ge=1, le=100)
    """How many children of one root work at the same time; more wait in order."""
    budget: ChildBudget = ChildBudget()
    """What a child may spend whose parent names no bound; never more than its parent has left."""
    salvage: bool = True
    """At a limit an agent gets one last request, without tools, to report what it has."""
    max_depth: int = Field(default=1, ge=0, le=10)
    """How deep agents may nest: 1 means that the root may start children and they may not."""
    allow_agents: tuple[str, ...] | None = None
    """The named types that may be started; a type may narrow it further for its own agents. None: all."""
    detach: bool = False
    """Background children outlive the run of their parent: until they end, or the root agent is closed."""
    question_seconds: float = Field(default=300, gt=0)
    """How long a background child waits for its parent's answer to a question."""
    cache: bool = False
    """A child that is asked for what an earlier one of the session has answered takes that answer (docs/agents.md)."""


class McpServerConfig(_Section):
    """One server of `mcp.json`: either `command` (stdio) or `url` (streamable HTTP)."""

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    type: Literal["stdio", "http", "streamable-http"] | None = None
    """Accepted because other programs write it; the transport follows from `command` or `url`."""
    disabled: bool = False
    init_timeout_seconds: float = Field(default=30, gt=0)
    call_timeout_seconds: float = Field(default=300, gt=0)

    @model_validator(mode="after")
    def _one_transport(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("needs either `command` or `url`")
        return self


class Config(_Section):
    """All settings of an agent and its children."""

    workspace: Path = Field(default_factory=Path.cwd)
    """The folder that agents work in: the kernels' working directory."""
    model: str | None = None
    """A pydantic-ai model name such as `anthropic:claude-sonnet-5-5` or `openai-chat:NAME`."""
    base_url: str | None = None
    """Base URL of an OpenAI-compatible server, for `openai-chat:` models."""
    models: dict[str, str] = Field(default_factory=dict)
    """Other models that agents may be given or may ask, by a name of your own: `{"small": "openai-chat:NAME"}`."""
    model_settings: dict[str, Any] = Field(default_factory=dict)
    """Passed to every model request: `temperature`, `max_tokens`, `thinking` and so on."""
    code_actions: CodeActions = "auto"
    """How a model says which code to run. `tool`: by tool calls; `block`: by a fenced Python block in its text, for models
    that know no tool calls; `auto`: by tool calls, and where a reply has none, by what it writes (docs/models.md)."""
    profile: Profile | None = None
    """`small`: models are told less of each tool. None: that is so for a context of 16k tokens or less, where the server at
    `base_url` tells it."""
    first_event_timeout_seconds: float = Field(default=600, gt=0)
    """A model that is silent for longer has failed. Small machines read a long prompt for minutes."""
    instructions: str = ""
    """Added to every agent's system prompt."""
    budget: Budget = Budget()
    """What a run of the root may spend, with all its children."""
    event_buffer: int = Field(default=64, ge=1)
    """Events that may wait for a slow reader before the agents wait for it."""
    mode: Mode = "ask"
    """How much runs without a question: `plan`, `ask`, `auto` or `full`."""
    headless: Headless | None = None
    """Nobody is asked: what would be asked is answered with `allow` or `deny`, or by `auto`: yes in the modes `auto` and
    `full`, else no. None: whoever reads the events answers, and where nobody does, `auto` counts."""
    permission_files: tuple[Path, ...] = ()
    """Files with rules, the most specific first. `load_config` adds the workspace's and the user's where they exist."""
    on_denial: Literal["continue", "end"] = "continue"
    """`continue`: the model reads a denial and goes on; `end`: the run of the agent that was denied ends as `rejected`."""
    kernel: KernelConfig = KernelConfig()
    subagents: SubagentsConfig = SubagentsConfig()
    agent_folders: tuple[Path, ...] = ()
    """Folders with named types of agents, the most specific first. `load_config` adds the workspace's and the user's where
    they exist."""
    mcp_servers: dict[str, McpServerConfig] = Field(default_factory=dict)
    """MCP servers by name; usually read from `mcp.json` or `.freeact/mcp.json`."""

    @field_validator("workspace")
    @classmethod
    def _existing_directory(cls, value: Path) -> Path:
        path = value.expanduser().resolve()
        if not path.is_dir():
            raise ValueError(f"{path} is not a directory")
        return path

    @field_validator("mcp_servers")
    @classmethod
    def _server_names(cls, servers: dict[str, McpServerConfig]) -> dict[str, McpServerConfig]:
        for name in servers:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
                raise ValueError(f"{name!r} is not a name of letters, digits, `-` and `_`")
        return servers


def load_config(
    workspace: Path | None = None,
    *,
    arguments: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    mcp_file: Path | None = None,
    trust: Trust | None = None,
) -> Config:
    """Read the settings: file, then environment, then arguments; a later value replaces an earlier one.

    Args:
        workspace: The folder to work in; its `.freeact/config.toml` is read where it exists. Default: this folder.
        arguments: Nested settings that win over all others; values of None are passed over.
        environment: Variables to read instead of `os.environ`.
        mcp_file: An `mcp.json` to read. Default: `.freeact/mcp.json`, else `mcp.json`, in the workspace, if there.
        trust: What somebody has looked at; the files of the workspace count only with that content. None: they count as
            they are. A program that reads the settings of its own folder may do that: who can change them can change it.

    Raises:
        ConfigError: A setting is unknown or has a wrong value, or a file cannot be read.
        UntrustedError: Nobody has looked at the content of a file of the workspace.
    """
    variables = os.environ if environment is None else environment
    folder = (workspace or Path.cwd()).expanduser().resolve()
    files = _Files()
    settings = _read_toml(files, folder / CONFIG_FILE)
    _merge(settings, _from_environment(variables))
    _merge(settings, _without_none(arguments or {}))
    settings.setdefault("workspace", folder)
    if "permission_files" not in settings:
        rules = (folder / PERMISSIONS_FILE, user_folder(variables) / PERMISSIONS_FILE.name)
        settings["permission_files"] = tuple(path for path in rules if path.is_file())
    if "agent_folders" not in settings:
        folders = (folder / AGENT_TYPES, user_folder(variables) / AGENT_TYPES.name)
        settings["agent_folders"] = tuple(path for path in folders if path.is_dir())
    found = mcp_file or next((path for path in (folder / ".freeact/mcp.json", folder / "mcp.json") if path.is_file()), None)
    if found is not None:
        servers = _mcp_servers(files.read(found), found, variables)
        settings["mcp_servers"] = servers | settings.get("mcp_servers", {})
    config = _validate(Config, settings)
    if trust is not None:
        types = (path for place in config.agent_folders for path in sorted(place.glob("*.md")) if path.is_file())
        for path in (*config.permission_files, *types):
            files.read(path)
        untrusted = files.untrusted(trust, (folder, config.workspace), user_folder(variables))
        if untrusted:
            raise UntrustedError(untrusted, headless=config.headless is not None)
    return config


class _Files:
    """What was read, so that what is judged is what counts."""

    def __init__(self) -> None:
        self._contents: dict[Path, bytes] = {}

    def read(self, path: Path) -> bytes:
        """The content of a file.

        Raises:
            ConfigError: It cannot be read.
        """
        try:
            content = self._contents[path] = read_file(path)
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from error
        return content

    def untrusted(self, trust: Trust, workspaces: Iterable[Path], own: Path) -> dict[Path, bytes]:
        """Those that stand in a workspace, and that nobody has looked at; `own` is the user's folder."""

        def is_in(path: Path, folder: Path) -> bool:
            return path.absolute().is_relative_to(folder) or path.resolve().is_relative_to(folder)

        return {
            path: content
            for path, content in self._contents.items()
            if any(is_in(path, folder) for folder in workspaces) and not path.resolve().is_relative_to(own.resolve())
            if not trust.knows(path, content)
        }


def user_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Where the user's own settings stand: in `$XDG_CONFIG_HOME`, else in `~/.config`."""
    folder = (os.environ if environment is None else environment).get("XDG_CONFIG_HOME", "")
    return (Path(folder) if folder.startswith("/") else Path.home() / ".config") / "freeact"


def read_mcp_servers(path: Path, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Read the `mcpServers` of a standard `mcp.json`; `${VAR}` and `${VAR:-default}` are filled in anywhere.

    Raises:
        ConfigError: The file cannot be read, is not such a file, or names a variable that is not set.
    """
    return _mcp_servers(_Files().read(path), path, os.environ if environment is None else environment)


def _mcp_servers(text: bytes, path: Path, variables: Mapping[str, str]) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    servers = content.get("mcpServers") if isinstance(content, dict) else None
    if not isinstance(servers, dict):
        raise ConfigError(f'{path} has no object `mcpServers`: write {{"mcpServers": {{"name": {{"command": …}}}}}}')
    filled: dict[str, Any] = fill_variables(servers, variables, path)
    for name, server in filled.items():
        _validate(McpServerConfig, server, where=f"{path}, server {name!r}: ")
    return filled


def _read_toml(files: _Files, path: Path) -> dict[str, Any]:
    if not os.path.lexists(path):
        return {}
    try:
        settings = tomllib.loads(files.read(path).decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
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
        _validate(Config, section, where=f"environment variable {variable}: ")
        _merge(settings, section)
    return settings


def _parsed(text: str) -> Any:
    """JSON for tables and lists; all else stays text, which pydantic turns into the field's type."""
    if text[:1] in ("{", "["):
        try:
            return json.loads(text)
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
        raise ConfigError(where + "; ".join(_problems(model, error))) from error


def _problems(model: type[BaseModel], error: ValidationError) -> Iterator[str]:
    for problem in error.errors():
        name = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            known = _known_names(model, problem["loc"][:-1])
            near = difflib.get_close_matches(str(problem["loc"][-1]), known, n=1, cutoff=0)
            yield f"unknown setting `{name}`: did you mean `{'.'.join([*map(str, problem['loc'][:-1]), *near])}`?"
        elif name:
            yield f"setting `{name}`: {problem['msg'].removeprefix('Value error, ')} (got {problem['input']!r})"
        else:
            yield problem["msg"].removeprefix("Value error, ")


def _known_names(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    for part in path:
        field = model.model_fields.get(str(part))
        inner = field.annotation if field is not None else McpServerConfig
        model = inner if isinstance(inner, type) and issubclass(inner, BaseModel) else McpServerConfig
    return list(model.model_fields)
