"""`Config`, all settings of an agent as a frozen value. `load.py` reads it from file, environment and arguments."""

import functools
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from pydantic import ConfigDict, Field, field_validator, model_validator

from freeact_sub.config.budget import Budget
from freeact_sub.config.entry_points import KERNEL_PROVIDERS, SESSION_STORES
from freeact_sub.config.gateway import GatewayConfig, check_url
from freeact_sub.config.git_environment import git_environment
from freeact_sub.config.instruction_files import read_commands, read_files
from freeact_sub.config.section import Section
from freeact_sub.modes import CodeActions, Headless, Mode, NoAnswer, Profile
from freeact_sub.system.safe_files import full_path, is_folder

if TYPE_CHECKING:
    from freeact_sub.config.given import ConfigValues, KernelValues, McpServerValues, SubagentsValues

SETTINGS_FOLDER = Path(".freeact")
"""The program's own folder in a workspace."""
CONFIG_FILE = SETTINGS_FOLDER / "config.toml"
"""The settings of a workspace."""
AGENT_TYPES = Path(".agents") / "agents"
"""The agent types of a workspace."""

PERMISSIONS_FILE = SETTINGS_FOLDER / "permissions.toml"
"""The rules of a workspace."""

PROTECTED = (".freeact", ".agents", "mcp.json", ".git", ".gitmodules")
"""Paths in the workspace that the host, or its user's git, runs or obeys later. No walled kernel writes there."""

INHERITED_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ")
"""The only variables of the host that a kernel gets: keys, tokens and passwords stay in the host."""

LARGEST = 2**60
"""The largest bound that the system can hold."""


def _check_names(variables: dict[str, str]) -> dict[str, str]:
    """Raise ValueError unless all can be names of environment variables."""
    for name in variables:
        if not name or "=" in name:
            raise ValueError(f"{name!r} is not the name of an environment variable")
    return variables


class KernelConfig(Section):
    """How kernels are started and how cells run."""

    if TYPE_CHECKING:  # what may be given is more than what is kept

        def __init__(self, **values: Unpack[KernelValues]) -> None: ...

    provider: str = "fork"
    """`fork`: forked from a warm process, where that is safe (Linux); `local`: a new process for each kernel; `gateway`: on
    another machine; or the name of another provider that is installed."""
    gateway: GatewayConfig = GatewayConfig()
    options: dict[str, Any] = Field(default_factory=dict)
    """Settings of a provider of another package, which reads and checks them."""
    preload: tuple[str, ...] = ()
    """Modules that every forked kernel finds imported; `["data"]` stands for numpy, pandas and matplotlib."""
    spares: int = Field(default=1, ge=0, le=20)
    """Forked kernels that are kept ready ahead of demand."""
    python: str = sys.executable
    """The Python that runs the kernel; it needs ipykernel."""
    start_timeout_seconds: float = Field(default=60, gt=0)
    cell_timeout_seconds: float | None = Field(default=300, gt=0)
    """A cell that works longer is interrupted, and one that takes ten times as long with all the children and requests that
    it waits for; waiting for approval counts for neither. None: no limit."""
    output_chars: int = Field(default=10_000, ge=200)
    """Characters of a cell's output, or of any tool's result, that the model reads: head and tail; a file has all of it."""
    show_images_to_model: bool = True
    """False for models that cannot read pictures; people see them all the same."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables for kernels, besides the few that are inherited."""
    max_live: int = Field(default=50, ge=1)
    """Live kernels of one root, all its children and nodes; a child that needs one more waits in order."""
    sandbox: Literal["off", "auto", "required"] = "auto"
    """The wall around kernels. `required`: no kernel is started where a piece of it is missing; `auto`: what is missing is
    told once; `off`: there is none."""
    readable: tuple[Path, ...] = ()
    """Folders that walled kernels (modes `plan` and `auto`) may read, besides the system, Python and the workspace."""
    writable: tuple[Path, ...] = ()
    """Folders that kernels in mode `auto` may write, and those in `plan` read, besides the workspace."""
    network: bool = False
    """Kernels in mode `auto` have the network."""
    memory_bytes: int | None = Field(default=None, gt=0, le=LARGEST)
    """Bound on each process of a kernel with a sandbox. None: the machine's memory."""
    max_processes: int | None = Field(default=None, ge=0, le=LARGEST)
    """Bound on the threads and processes of a kernel with a sandbox. None: 1024, except for root, to whom no such bound
    applies; a notice names a bound that cannot be set. 0: none."""
    max_file_bytes: int = Field(default=16 * 2**30, ge=0, le=LARGEST)
    """Bound on each file that a kernel with a sandbox writes. 0: none."""
    cpu_seconds: int = Field(default=0, ge=0, le=LARGEST)
    """Bound on the processor time of each process of a kernel with a sandbox. 0: none."""

    _names_of_variables = field_validator("env")(_check_names)

    @field_validator("python", mode="before")
    @classmethod
    def _is_a_path(cls, python: Any) -> Any:
        return str(python) if isinstance(python, Path) else python

    @field_validator("provider")
    @classmethod
    def _is_installed(cls, name: str) -> str:
        return KERNEL_PROVIDERS.check(name)

    def environment(self) -> dict[str, str]:
        """The whole environment of a kernel's process. `python`, `pip` and the like are those of its Python."""
        inherited = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
        variables = {**inherited, "PYTHONUNBUFFERED": "1", **git_environment(), **self.env}
        python = shutil.which(self.python, path=variables.get("PATH"))
        if python is None:  # the start of the kernel says so
            return variables
        folder = Path(python).absolute().parent  # the link is not followed: it is what makes a virtual environment
        paths = variables.get("PATH", os.defpath).split(os.pathsep)
        variables["PATH"] = os.pathsep.join([str(folder), *(path for path in paths if path != str(folder))])
        if (folder.parent / "pyvenv.cfg").is_file():
            variables.setdefault("VIRTUAL_ENV", str(folder.parent))
        return variables


class _Defaults(Budget):
    @model_validator(mode="before")
    @classmethod
    def _of_a_budget(cls, value: Any) -> Any:
        """Takes the bounds that a `Budget` names; the defaults of the others stay."""
        return value.model_dump(exclude_unset=True) if isinstance(value, Budget) and not isinstance(value, cls) else value


class RootBudget(_Defaults):
    """The default budget of a run of the root. Honest work does not reach it, a loop does."""

    requests: int | None = Field(default=1_000, ge=0)
    children: int | None = Field(default=200, ge=0)


class ChildBudget(_Defaults):
    """The default budget of a child."""

    turns: int | None = Field(default=10, ge=0)
    seconds: float | None = Field(default=3_600, ge=0, allow_inf_nan=False)


class SubagentsConfig(Section):
    """Bounds on child agents."""

    if TYPE_CHECKING:  # what may be given is more than what is kept

        def __init__(self, **values: Unpack[SubagentsValues]) -> None: ...

    enabled: bool = True
    """False: no agent is offered the `task` tool."""
    max_concurrent: int = Field(default=5, ge=1, le=100)
    """The number of children of one root that work at the same time; more wait in order."""
    budget: ChildBudget = ChildBudget()
    """The budget of a child whose parent names no bound; never more than its parent has left."""
    salvage: bool = True
    """At a limit an agent gets one last request, without tools, to report what it has."""
    max_depth: int = Field(default=1, ge=0, le=10)
    """The depth to which agents may nest: 1 means that the root may start children and they may not."""
    allow_agents: tuple[str, ...] | None = None
    """The named types that may be started; a type may narrow it further for its own agents. None: all."""
    detach: bool = True
    """Background children outlive the run of their parent: until they end, or the root agent is closed."""
    question_seconds: float = Field(default=300, gt=0)
    """Seconds that a background child waits for its parent's answer to a question."""
    cache: bool = False
    """A child with the same task as an earlier one of the session takes over its answer (docs/agents.md)."""


class ContextConfig(Section):
    """When conversations are shortened."""

    window_tokens: int | None = Field(default=None, ge=1_000)
    """Size of the models' context windows. None: what the server at `base_url`, or pydantic-ai, says of each; where neither
    knows it, no conversation is shortened by itself."""
    compact_at: float | None = Field(default=0.8, gt=0, le=1)
    """A conversation that would fill the window further than to this share is shortened: old outputs become notes, then a
    summary replaces all but the first prompt and the newest turns. None: never by itself."""


class SessionsConfig(Section):
    """Which sessions are kept, and how long (docs/sessions.md)."""

    archive_after_days: float | None = Field(default=90, ge=0, allow_inf_nan=False)
    """A session that nobody has used for so long loses its variables and long outputs; the conversation stays. None: none
    does."""
    max_bytes: int | None = Field(default=5_000_000_000, ge=0)
    """Bytes that all sessions may take on disk; the oldest are removed. None: no limit."""
    store: str = "sqlite"
    """Where they are kept: an entry point of `freeact_sub.session_stores`."""

    @field_validator("store")
    @classmethod
    def _is_installed(cls, name: str) -> str:
        return SESSION_STORES.check(name)


class TerminalConfig(Section):
    """How the terminal shows things and calls for attention (docs/terminal.md)."""

    notify: Literal["auto", "bell", "osc9", "off"] = "auto"
    """How a person who looks elsewhere is called when a question opens or a long run ends. `auto`: by a notification (OSC 9)
    where the terminal is known to make one, else by its bell."""
    pictures: Literal["auto", "kitty", "iterm2", "sixel", "blocks", "off"] = "auto"
    """How pictures are drawn. `auto`: by what the terminal is known to draw, else not at all; `blocks`: of half blocks,
    which any terminal with colours can. The path is shown all the same."""


class McpServerConfig(Section):
    """One server of `mcp.json`: either `command` (stdio) or `url` (streamable HTTP)."""

    if TYPE_CHECKING:  # what may be given is more than what is kept

        def __init__(self, **values: Unpack[McpServerValues]) -> None: ...

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
    max_answer_bytes: int = Field(default=10_000_000, ge=1_000)
    """A larger message of the server is refused: the call that it answers fails."""

    _names_of_variables = field_validator("env")(_check_names)

    @model_validator(mode="after")
    def _one_transport(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("needs either `command` or `url`")
        if self.url is not None:
            check_url(self.url, "http://127.0.0.1:8000/mcp")
        return self


class ModelsConfig(Section):
    """Models besides the root's own, each by a name of one's own: `{"small": "openai-chat:NAME"}`; and a bound for all."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Any] = Field(init=False)

    max_concurrent: int = Field(default=16, ge=1)
    """Model requests of one root that are in flight at the same time, those of its children and of `ask` included; more
    wait in order."""

    @property
    def names(self) -> dict[str, Any]:
        """The models by name."""
        return dict(self.__pydantic_extra__)

    @model_validator(mode="after")
    def _names_or_models(self) -> Self:
        # whoever has a Model has imported this; we need not, which takes a second
        kind = getattr(sys.modules.get("pydantic_ai.models"), "Model", ())
        for name, model in self.names.items():
            if not isinstance(model, str) and not isinstance(model, kind):
                kind_of_it = type(model).__name__
                raise ValueError(f"{name!r} must be `PROVIDER:NAME` or a Model of pydantic-ai, not a {kind_of_it}")  # noqa: TRY004
        return self


class Config(Section):
    """All settings of an agent and its children."""

    if TYPE_CHECKING:  # what may be given is more than what is kept

        def __init__(self, **values: Unpack[ConfigValues]) -> None: ...

    workspace: Path = Field(default_factory=Path.cwd)
    """The folder that agents work in: the kernels' working directory."""
    model: str | None = None
    """A pydantic-ai model name such as `anthropic:claude-sonnet-5-5` or `openai-chat:NAME`."""
    base_url: str | None = None
    """Base URL of an OpenAI-compatible server, for `openai-chat:` models."""
    models: ModelsConfig = ModelsConfig()
    """Other models that agents may be given or may ask, by a name of your own: `{"small": "openai-chat:NAME"}`. In Python a
    value may also be a `Model` of pydantic-ai, with a server and settings of its own."""
    fallback_models: tuple[str, ...] = ()
    """Models that are asked, in this order, where one fails or its provider is busy; for children and `ask` as well. Names
    of `models`, or `PROVIDER:NAME`."""
    model_settings: dict[str, Any] = Field(default_factory=dict)
    """Passed to every model request: `temperature`, `max_tokens`, `thinking` and so on."""
    code_actions: CodeActions = "auto"
    """How a model says which code to run. `tool`: by tool calls, and text is never run; `block`: by a fenced block that is
    marked as Python, for models that know no tool calls; `auto`: `block` with the small profile and where a server refuses
    tools, else `tool`."""
    answer_check: NoAnswer | None = None
    """Which text that ends a run is no answer, so that the model is asked once for another. `empty`: only an empty one;
    `small`: what weak models write besides (docs/models.md). None: `small` with the small profile, else `empty`."""
    profile: Profile | None = None
    """`small`: models are told less of each tool. None: that is so for a context of 16k tokens or less, where the server at
    `base_url` tells it."""
    first_event_timeout_seconds: float = Field(default=600, gt=0)
    """A model that is silent for longer has failed. Small machines read a long prompt for minutes."""
    stall_seconds: float = Field(default=120, gt=0)
    """A model that is silent for longer in the middle of an answer is asked once more, then it has failed."""
    rate_limit_seconds: float = Field(default=300, ge=0)
    """For how long in all one request waits while its provider is busy (429, 503, 529)."""
    instructions: str = ""
    """Added to every agent's system prompt."""
    instruction_files: tuple[Path, ...] = ()
    """Files whose text is added to every agent's system prompt, of 20,000 characters in all; relative to the workspace.
    `load_config` adds the workspace's AGENTS.md and CLAUDE.md where they exist."""
    budget: RootBudget = RootBudget()
    """The budget of a run of the root with all its children."""
    max_repeats: int | None = Field(default=4, ge=3)
    """A run that makes the same call with the same result so many times in a row ends as `limit`; its model is told one time
    before. A call that waits does not count. None: no run ends for that."""
    context: ContextConfig = ContextConfig()
    event_buffer: int = Field(default=64, ge=1)
    """Events that may wait for a slow reader before the agents wait for it."""
    mode: Mode = "ask"
    """Which calls run without a question: `plan`, `ask`, `auto` or `full`."""
    headless: Headless | None = None
    """Nobody is asked: what would be asked is answered with `allow` or `deny`, or by `auto`: yes in the modes `auto` and
    `full`, else no. None: whoever reads the events answers, and where nobody does, `auto` counts."""
    approval_timeout_seconds: float | None = Field(default=None, gt=0)
    """A question that nobody has answered by then counts as denied. None: it waits; where a program reads the events and no
    front end shows the question, the log tells of it after 30 s."""
    permission_files: tuple[Path, ...] = ()
    """Files with rules, the most specific first. `load_config` adds the workspace's and the user's where they exist."""
    on_denial: Literal["continue", "end"] = "continue"
    """`continue`: the model reads a denial and continues; `end`: the run of the agent that was denied ends as `rejected`."""
    kernel: KernelConfig = KernelConfig()
    subagents: SubagentsConfig = SubagentsConfig()
    sessions: SessionsConfig = SessionsConfig()
    terminal: TerminalConfig = TerminalConfig()
    agent_folders: tuple[Path, ...] = ()
    """Folders with named types of agents, the most specific first. `load_config` adds the workspace's and the user's where
    they exist."""
    command_folders: tuple[Path, ...] = ()
    """Folders with commands of one's own for the terminal, the most specific first. `load_config` adds the workspace's and
    the user's where they exist."""
    mcp_servers: dict[str, McpServerConfig] = Field(default_factory=dict)
    """MCP servers by name; usually read from `mcp.json` or `.freeact/mcp.json`."""

    def choosing(self, names: Iterable[str]) -> Self:
        """The same settings, of which somebody has chosen these: only they replace what a session has kept."""
        fields = type(self).model_fields
        made = self.model_construct(set(names) & fields.keys(), **{name: getattr(self, name) for name in fields})
        vars(made).update(vars(self))  # files count as they were when they were read
        return made

    @functools.cached_property
    def instruction_contents(self) -> dict[Path, bytes]:
        """The texts of `instruction_files` as they were at the first read: later changes do not count.

        Raises:
            ConfigError: One cannot be read.
        """
        return read_files(self.instruction_files, self.workspace)

    @functools.cached_property
    def command_contents(self) -> dict[Path, bytes]:
        """The commands of `command_folders` as they were at the first read: later changes do not count."""
        return read_commands(self.command_folders)

    @field_validator("workspace")
    @classmethod
    def _existing_directory(cls, value: Path) -> Path:
        try:
            path = full_path(value)
        except OSError as error:
            raise ValueError(f"there is no folder {str(value)!r}: {error.strerror}") from error
        if not is_folder(path):
            raise ValueError(f"{path} is not a directory")
        return path

    @field_validator("mcp_servers")
    @classmethod
    def _server_names(cls, servers: dict[str, McpServerConfig]) -> dict[str, McpServerConfig]:
        for name in servers:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
                raise ValueError(f"{name!r} is not a name of letters, digits, `-` and `_`")
        return servers


def user_folder(environment: Mapping[str, str] | None = None) -> Path:
    """The folder of the user's own settings, in `$XDG_CONFIG_HOME` or `~/.config`."""
    folder = (os.environ if environment is None else environment).get("XDG_CONFIG_HOME", "")
    return (Path(folder) if folder.startswith("/") else Path.home() / ".config") / "freeact"
