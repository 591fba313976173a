"""Settings of an agent as one frozen value (`Config`), with its sections, and the user's own folders.

`load.py` reads them from file, environment and arguments.
"""

import functools
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import AnyHttpUrl, ConfigDict, Field, TypeAdapter, ValidationError, field_validator, model_validator

from freeact_sub.config.budget import Budget, ChildBudget, RootBudget
from freeact_sub.config.entry_points import KERNEL_PROVIDERS, SESSION_STORES
from freeact_sub.config.hooks import FoundHooks, read_hook_files
from freeact_sub.config.project_texts import SkillFolder, read_commands, read_files, read_skill_folders
from freeact_sub.config.section import Given, Paths, Section, Table, Texts, default
from freeact_sub.modes import INHERIT, CodeActions, Headless, Mode, NoAnswer, Profile
from freeact_sub.system.process import state_folder
from freeact_sub.system.safe_files import full_path, is_folder

GIT_SETTINGS = (
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.pager", "cat"),
    ("core.editor", "false"),
    ("sequence.editor", "false"),
    ("core.askPass", "false"),
    ("core.sshCommand", "ssh"),
    ("core.alternateRefsCommand", "true"),
    ("credential.helper", ""),
    ("gpg.program", "false"),
    ("gpg.ssh.program", "false"),
    ("gpg.x509.program", "false"),
    ("interactive.diffFilter", "cat"),
    ("log.showSignature", "false"),
    ("diff.submodule", "short"),
    ("safe.bareRepository", "explicit"),
)
"""Settings that switch off the programs that git starts because of a folder's settings. Filters, textconv and external diff
have names of their own and stay: commands that start them need approval."""
SETTINGS_FOLDER = Path(".freeact")
"""The program's own folder in a workspace."""
CONFIG_FILE = SETTINGS_FOLDER / "config.toml"
"""The settings of a workspace."""
MCP_FILE = "mcp.json"
"""The MCP servers, in the workspace, in its settings folder, or in the user's folder."""
AGENT_TYPES = Path(".agents") / "agents"
"""The agent types of a workspace."""

PERMISSIONS_FILE = SETTINGS_FOLDER / "permissions.toml"
"""The rules of a workspace."""

PROTECTED = (".freeact", ".agents", ".claude", "mcp.json", ".git", ".gitmodules")
"""Paths in the workspace that the host or the user's git later runs or obeys. No walled kernel may write them."""

INHERITED_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ")
"""The host's variables that a kernel inherits. Keys, tokens and passwords stay in the host."""

ON_THIS_MACHINE = ("fork", "local")
"""The kernel providers to which `kernel.python` means something."""

LARGEST = 2**60
"""The largest bound that the system can hold."""


class EffectsConfig(Section):
    """Settings of the trial of a cell while a person is asked about it (docs/effects.md)."""

    enabled: bool = True
    """`true`: in mode `ask`, a terminal or an editor shows below a cell what it would do: output, variables, files; so does
    a notebook, but not for an agent in a copy of its kernel, as `%%agent` without `--here`. The cell runs in a copy of the
    agent's kernel for that. `false`: it runs only when you allow it."""
    seconds: float = Field(default=10, gt=0, le=600)
    """A trial that takes longer ends."""
    memory_bytes: int = Field(default=2**30, gt=0, le=2**60)
    """The memory that each process of a trial may take besides the kernel's, and the size of each file that it writes."""


class TerminalConfig(Section):
    """Settings of the terminal: how it shows things and calls for attention (docs/terminal.md)."""

    notify: Literal["auto", "bell", "osc9", "off"] = "auto"
    """The signal when a question opens or a long run ends: `bell`, `osc9` (a notification), `off`; `auto`: what the
    terminal is known to support."""
    pictures: Literal["auto", "kitty", "iterm2", "sixel", "blocks", "off"] = "auto"
    """The form in which the terminal (docs/terminal.md) draws pictures: `kitty`, `iterm2`, `sixel`, `blocks` (half blocks,
    in any terminal with colours), `off`; `auto`: what it is known to draw, otherwise only their paths."""
    keys: Literal["emacs", "vi"] = "emacs"
    """The keys of the input line: those of Emacs, as in most shells, or those of vi (docs/terminal.md)."""
    plain: bool = False
    """`true`: a conversation in plain lines, without colours and without rows that change, for those who hear what a
    terminal prints (docs/terminal.md); where `TERM` is `dumb` it is always held so."""


def check_url(url: str, example: str) -> None:
    """Raise ValueError unless it is a whole URL of HTTP."""
    try:
        TypeAdapter(AnyHttpUrl).validate_python(url)
    except ValidationError as error:
        raise ValueError(f"`url` is not a URL such as {example}: {error.errors()[0]['msg']}") from None


class GatewayConfig(Section):
    """Kernels of Jupyter gateways: of other machines (docs/gateway.md)."""

    url: Given[tuple[str, ...], str | Sequence[str]] = default(())
    """The URL of a Jupyter gateway or server, or a list of them: each kernel starts at the one with the fewest kernels."""
    token: str = Field(default="", repr=False)
    """The token of the gateway; best set by `FREEACT_KERNEL__GATEWAY__TOKEN`."""
    headers: dict[str, str] = Field(default_factory=dict, repr=False)
    """Headers sent with each request, for proxies that require more than a token."""
    ca_file: Given[Path | None, Path | str | None] = default(None)
    """Certificates of authorities for `https` gateways, in addition to the system's."""
    certificate_file: Given[Path | None, Path | str | None] = default(None)
    """The certificate and key of this client, for a gateway that requires them."""
    kernel: str = ""
    """Name of the kernelspec there; empty: the gateway's usual one."""
    workspace: Literal["none", "shared"] = "none"
    """`shared`: the workspace exists there under the same path; `none`: it does not, and the model knows that."""
    trusted: bool = False
    """`true`: kernels there may run code without approval (modes `plan` and `auto`), although they have no wall."""
    retry: bool = False
    """`true`: an agent that loses its gateway continues with a new, empty kernel at another one; otherwise its run ends as
    `kernel_lost`."""
    lease_seconds: float = Field(default=60, ge=2)
    """A kernel that does not hear from this program for this long ends itself."""

    @field_validator("url", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("url")
    @classmethod
    def _are_urls(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            check_url(url, "http://127.0.0.1:8888")
        return urls


def check_names(variables: dict[str, str]) -> dict[str, str]:
    """Return the variables. Raises ValueError unless all can be names of environment variables."""
    for name in variables:
        if not name or "=" in name:
            shown = name.partition("=")[0]  # behind it stands what may be secret
            raise ValueError(f"{shown!r} is not the name of an environment variable: it must be text without `=`")
    return variables


class OAuthConfig(Section):
    """Settings for signing in to an HTTP server (docs/mcp.md); most servers need none."""

    client_id: str | None = None
    """The id of a client that you have registered with the server's provider. By default the program registers itself."""
    client_secret: str | None = None
    """The client's secret, if it has one: `${VAR}` takes it from the environment."""
    scope: str | None = None
    """The rights to ask for, with blanks between them. By default those that the server names."""
    callback_port: int | None = Field(default=None, ge=1, le=65535)
    """The port of `http://localhost:PORT/callback`, to which the browser returns. By default any free one."""


class McpServerConfig(Section):
    """One server of `mcp.json`: either `command` (stdio) or `url` (streamable HTTP)."""

    command: str | None = None
    """The program of a stdio server."""
    args: Texts = default(())
    """The arguments of the program."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables; only a few others are passed on."""
    cwd: str | None = None
    """The working directory of the program."""
    url: str | None = None
    """The address of a streamable HTTP server, instead of `command`."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers that are sent with every request to the URL."""
    oauth: Given[OAuthConfig, OAuthConfig | Table] = default(OAuthConfig())
    type: str | None = None
    """The transport's name, as other programs write it: `stdio`, `http` or `streamable-http`."""
    disabled: bool = False
    """`true`: the server is left out, and needs neither of the others."""
    shared: bool = False
    """`true`: all agents use the root's connection, and what the server keeps for it. By default each has its own."""
    init_timeout_seconds: float = Field(default=30, gt=0)
    """The time that the server may take to start."""
    call_timeout_seconds: float = Field(default=300, gt=0)
    """The time that a call may take. It begins anew when the server tells of its progress, up to 12 times in all."""
    max_message_bytes: int = Field(default=10_000_000, ge=1_000)
    """A larger message from the server is refused, and its call fails."""
    only_tools: Given[tuple[str, ...] | None, Sequence[str] | None] = default(None)
    """The tools to offer, by the server's names. By default all."""
    without_tools: Texts = default(())
    """Tools that are not offered."""
    unread: Texts = default(())
    """Keys of its file that mean nothing here: a notice names them at the start."""
    notice: str = ""
    """A sentence for the start of a session: its entry cannot be used, or its name is another one here."""

    def offers(self, tool: str) -> bool:
        """Return whether agents may see a tool of the server."""
        return tool not in self.without_tools and (self.only_tools is None or tool in self.only_tools)

    _names_of_variables = field_validator("env")(check_names)

    @model_validator(mode="after")
    def _one_transport(self) -> Self:
        if self.disabled and self.command is None and self.url is None:
            return self
        if (self.command is None) == (self.url is None):
            raise ValueError("needs either `command` or `url`")
        if self.url is not None:
            check_url(self.url, "http://127.0.0.1:8000/mcp")
        return self


INNER: Final = frozenset({"unread", "notice"})
"""Keys noted by the reader of a file, which no file sets."""


def is_server_name(name: str) -> bool:
    """Return whether a server may have this name."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name) is not None


def notices_on(servers: Mapping[str, McpServerConfig]) -> tuple[str, ...]:
    """Return notices on servers for the start: `McpServerConfig.notice`, and keys that mean nothing here."""
    return (*(server.notice for server in servers.values() if server.notice), *unread_keys(servers))


def unread_keys(servers: Mapping[str, McpServerConfig]) -> tuple[str, ...]:
    """Return one sentence on the keys of files with servers that mean nothing here; none if all do."""
    found = [f"{', '.join(server.unread)} of {name!r}" for name, server in servers.items() if server.unread]
    return (f"keys of MCP servers that mean nothing here are not used: {'; '.join(found)}",) if found else ()


def git_environment() -> dict[str, str]:
    """Return the variables that make git obey `GIT_SETTINGS` instead of a folder's settings."""
    keys = {f"GIT_CONFIG_KEY_{number}": key for number, (key, _) in enumerate(GIT_SETTINGS)}
    values = {f"GIT_CONFIG_VALUE_{number}": value for number, (_, value) in enumerate(GIT_SETTINGS)}
    return {
        **keys,
        **values,
        "GIT_CONFIG_COUNT": str(len(GIT_SETTINGS)),
        "GIT_PAGER": "cat",
        "GIT_EDITOR": "false",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
    }


class KernelConfig(Section):
    """Settings of kernels and cells."""

    provider: str = "fork"
    """`fork`: forked from a warm process if that is safe (Linux); `local`: a new process for each; `gateway`: on other
    machines (docs/gateway.md); or one that another package registers."""
    gateway: Given[GatewayConfig, GatewayConfig | Table] = default(GatewayConfig())
    options: dict[str, Any] = Field(default_factory=dict)
    """Settings for a kernel provider of another package, which reads and checks them."""
    preload: Texts = default(())
    """Modules that every forked kernel has already imported; `["data"]`: numpy, pandas and matplotlib; `skills.NAME`: the
    functions of a skill (docs/skills.md)."""
    spares: int = Field(default=1, ge=0, le=20)
    """The least number of spare forked kernels; up to 20 after many were in use at once. `0`: no spares."""
    python: Given[str, Path | str] = default(sys.executable)
    """The Python that runs kernels, 3.11 or newer. In the terminal, the project's if none is set (docs/kernels.md).
    One without `ipykernel` is lent ours if that works; `!pip` and `!python` in a cell are its own."""
    start_timeout_seconds: float = Field(default=60, gt=0)
    """The time that a kernel may take to start."""
    cell_timeout_seconds: float | None = Field(default=300, gt=0)
    """A cell that runs longer is interrupted, unless a person who is there gives it more time. With the children and `ask`s
    that it waits for it may take ten times as long. Waiting for approval does not count."""
    output_chars: int = Field(default=10_000, ge=200)
    """The number of characters of a cell's output or a tool's result that the model reads, as head and tail. A file has
    the whole output."""
    show_images_to_model: bool = True
    """`false` for models that cannot read pictures."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables for kernels, in addition to the few that they inherit."""
    max_live: int = Field(default=50, ge=1)
    """The number of live kernels of one root, its children and their nodes (docs/branches.md). A child that needs one more
    waits."""
    sandbox: Literal["off", "auto", "required"] = "auto"
    """The wall around kernels. `auto`: as much as this machine can enforce, with a notice of the rest; `required`; `off`."""
    readable: Paths = default(())
    """Paths that kernels in `plan` and `auto` may read, in addition to the system, Python and the workspace."""
    writable: Paths = default(())
    """Paths that kernels in `auto` may write, and those in `plan` read, in addition to the workspace."""
    network: bool = False
    """`true`: kernels in `auto` have network access."""
    memory_bytes: int | None = Field(default=None, gt=0, le=LARGEST)
    """Bound on the memory of each process of a kernel. None: the machine's memory."""
    max_processes: int | None = Field(default=None, ge=0, le=LARGEST)
    """Bound on the threads and processes of a kernel. None: 1024, or no bound if run as root. `0`: no bound."""
    max_file_bytes: int = Field(default=16 * 2**30, ge=0, le=LARGEST)
    """Bound on each file that a kernel writes. `0`: no bound."""
    cpu_seconds: int = Field(default=0, ge=0, le=LARGEST)
    """Bound on the processor time of each process of a kernel. `0`: no bound."""

    _names_of_variables = field_validator("env")(check_names)

    @field_validator("python", mode="before")
    @classmethod
    def _is_a_path(cls, python: Any) -> Any:
        return str(python) if isinstance(python, Path) else python

    @field_validator("provider")
    @classmethod
    def _is_installed(cls, name: str) -> str:
        return KERNEL_PROVIDERS.check(name)

    def environment(self) -> dict[str, str]:
        """Return the whole environment of a kernel's process. `python` and `pip` are those of its Python."""
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
        elif (folder.parent / "conda-meta").is_dir():
            variables.setdefault("CONDA_PREFIX", str(folder.parent))
        return variables


class SubagentsConfig(Section):
    """Bounds on child agents."""

    enabled: bool = True
    """`false`: no agent may start children."""
    max_concurrent: int = Field(default=5, ge=1, le=100)
    """The number of children that work at the same time; others wait."""
    model: str | None = Field(default=None, min_length=1)
    """The model of all children for which neither their parent nor their type names another: a name in `models`, or
    `PROVIDER:NAME`. None: that of the agent that starts them."""
    budget: Given[ChildBudget, Budget | Table] = default(ChildBudget())
    """The budget of a child, unless its parent names other bounds; never more than the parent has left."""
    salvage: bool = True
    """`true`: an agent at its limit gets one last request, without tools, for a report."""
    max_depth: int = Field(default=1, ge=0, le=10)
    """The depth to which agents may nest. `1`: the root may start children, and they may not."""
    allow_agents: Given[tuple[str, ...] | None, Sequence[str] | None] = default(None)
    """The named types (docs/agents.md) that may be started. None: all."""
    detach: bool = True
    """Background children outlive the prompt, until the root agent is closed; with one prompt (`run`, `-p`) always
    `false`."""
    question_seconds: float = Field(default=300, gt=0)
    """The time that a background child waits for its parent's answer to a question."""


class ContextConfig(Section):
    """Settings for shortening conversations."""

    window_tokens: int | None = Field(default=None, ge=1_000)
    """The size of the models' context windows. None: as reported by the server or pydantic-ai; if neither knows it,
    conversations are not shortened automatically."""
    mcp_tools: float = Field(default=0.1, ge=0, le=1)
    """The share of the window for the descriptions of MCP tools. Servers for whose tools there is no room are listed by
    name, and `search_tools` describes them (docs/mcp.md)."""
    compact_at: float | None = Field(default=0.8, gt=0, le=1)
    """The share of the window at which a conversation is shortened (docs/models.md). None: never automatically."""


class SessionsConfig(Section):
    """Settings for keeping sessions (docs/sessions.md)."""

    archive_after_days: float | None = Field(default=90, ge=0, allow_inf_nan=False)
    """A session (docs/sessions.md) unused for this long loses its variables and long outputs but keeps its conversation.
    None: never."""
    max_bytes: int | None = Field(default=5_000_000_000, ge=0)
    """The disk space of all sessions; the oldest are removed. None: no bound."""
    store: str = "sqlite"
    """The store of sessions: SQLite in your state folder, or the store of another package."""

    @field_validator("store")
    @classmethod
    def _is_installed(cls, name: str) -> str:
        return SESSION_STORES.check(name)


class ModelsConfig(Section):
    """Other models by names of your own: `{"small": "openai-chat:NAME"}`; and a bound for all of them."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Any] = Field(init=False)

    max_concurrent: int = Field(default=16, ge=1)
    """Model requests in flight at once, those of children and `ask` included; every other key of `models` names a model that
    agents may use or ask: `models.small = "openai-chat:NAME"`; in Python also a `Model`."""
    quote_above: int = Field(default=10, ge=3)
    """Lists of more requests or children than this are quoted when three have ended (docs/maps.md)."""

    @functools.cached_property
    def names(self) -> Mapping[str, Any]:
        """The models by name."""
        return dict(self.__pydantic_extra__)

    def with_names(self, models: Mapping[str, Any]) -> Self:
        """Return these settings with other models by name. Raises: ConfigError: One is neither a name nor a Model."""
        return type(self)(**{**self.model_dump(exclude=set(self.names)), **self.names, **models})

    @model_validator(mode="after")
    def _names_or_models(self) -> Self:
        # whoever has a Model has imported this; we need not, which takes a second
        kind = getattr(sys.modules.get("pydantic_ai.models"), "Model", ())
        if INHERIT in self.names:
            raise ValueError(f"{INHERIT!r} stands for the model of the agent that starts a child: choose another name")
        for name, model in self.names.items():
            if not isinstance(model, str) and not isinstance(model, kind):
                kind_of_it = type(model).__name__
                raise ValueError(f"{name!r} must be `PROVIDER:NAME` or a Model of pydantic-ai, not a {kind_of_it}")  # noqa: TRY004
        return self


class Config(Section):
    """All settings of an agent and its children.

    All have defaults, and sections may be given as dicts::

        Config(model="anthropic:claude-sonnet-5-5", mode="auto", budget={"cost_usd": 2}, kernel={"preload": ["data"]})

    The most used:

    - `model`: the name of a model; `base_url`: the server of one that you host; `models`: others, by names of your own.
    - `workspace`: the folder to work in. Default: the present one.
    - `mode`: how much runs unasked: `plan`, `ask` (default), `auto`, `full`; `headless`: who answers where nobody is there.
    - `budget`: bounds of a prompt, children included: `cost_usd`, `tokens`, `requests`, `seconds`, `turns`, `children`.
    - `kernel`: where code runs: `python`, `preload`, `cell_timeout_seconds`, `writable`, `network`.
    - `mcp_servers`: by name, as in `mcp.json`.

    A Config reads no files; `load_config()` reads those of the workspace and yours. docs/settings.md lists all settings.
    """

    workspace: Given[Path, Path | str] = default(Field(default_factory=Path.cwd))
    """The folder to work in; the kernels' working directory."""
    model: str | None = None
    """A model's name, such as `anthropic:claude-sonnet-5-5` or `openai-chat:NAME` (docs/models.md)."""
    base_url: str | None = None
    """The URL of an OpenAI-compatible server, for models of the provider in `model`."""
    models: Given[ModelsConfig, ModelsConfig | Table] = default(ModelsConfig())
    """Other models that agents may be given or may ask, by a name of your own: `{"small": "openai-chat:NAME"}`. In Python a
    value may also be a `Model` of pydantic-ai, with a server and settings of its own."""
    fallback_models: Texts = default(())
    """Models to use instead, in this order, if one fails or its provider is busy: names in `models`, or `PROVIDER:NAME`."""
    model_settings: dict[str, Any] = Field(default_factory=dict)
    """Settings sent with every model request: `temperature`, `max_tokens`, `thinking` and so on."""
    code_actions: CodeActions = "auto"
    """The form in which a model submits code: `tool`, `block`, or `auto`, which chooses one of them (docs/models.md)."""
    answer_check: NoAnswer | None = None
    """The final texts that do not count as an answer; the model gets one more request. `empty`: empty texts;
    `small`: also others, for weak models (docs/models.md). None: `small` with the small profile, otherwise `empty`."""
    profile: Profile | None = None
    """`small`: shorter descriptions of tools; `full`. None: `small` if the server reports 16k tokens or less."""
    first_event_timeout_seconds: float = Field(default=600, gt=0)
    """A model request fails if nothing arrives for this long."""
    stall_seconds: float = Field(default=120, gt=0)
    """A model request is repeated once if nothing arrives for this long in the middle of an answer, then fails."""
    rate_limit_seconds: float = Field(default=300, ge=0)
    """The total time that one request waits while its provider is busy (429, 503, 529)."""
    instructions: str = ""
    """A text added to every agent's system prompt."""
    instruction_files: Paths = default(())
    """Files whose text is added to every agent's system prompt, up to 20,000 characters in total, relative to the workspace;
    `load_config()` adds `AGENTS.md` and `CLAUDE.md` of the workspace and of its folders, and the notes `.freeact/memory.md`.
    One in a folder is read by an agent that uses a file there (docs/terminal.md)."""
    budget: Given[RootBudget, Budget | Table] = default(RootBudget())
    """The budget of a run of the root with all its children."""
    max_repeats: int | None = Field(default=4, ge=3)
    """The number of times in a row that the same call may have the same result before the run ends; calls that wait do
    not count. None: no bound."""
    context: Given[ContextConfig, ContextConfig | Table] = default(ContextConfig())
    event_buffer: int = Field(default=64, ge=1)
    """Events that may wait for a slow reader before the agents wait for it."""
    mode: Mode = "ask"
    """The mode of approval: `plan`, `ask`, `auto` or `full` (docs/approvals.md)."""
    headless: Headless | None = None
    """Ask no person, and decide every approval by `allow`, `deny` or `auto`: yes in the modes `auto` and `full`, otherwise
    no. None: the reader of the events decides."""
    approval_timeout_seconds: float | None = Field(default=None, gt=0)
    """The time after which an open question is denied. None: it waits; the log names a question that no front end has
    shown for 30 s."""
    permission_files: Paths = default(())
    """Rule files, the most specific first; `load_config()` adds the project's and yours if they exist."""
    on_denial: Literal["continue", "end"] = "continue"
    """`continue`: the model reads the denial; `end`: the agent's run ends as `rejected`."""
    effects: Given[EffectsConfig, EffectsConfig | Table] = default(EffectsConfig())
    kernel: Given[KernelConfig, KernelConfig | Table] = default(KernelConfig())
    subagents: Given[SubagentsConfig, SubagentsConfig | Table] = default(SubagentsConfig())
    sessions: Given[SessionsConfig, SessionsConfig | Table] = default(SessionsConfig())
    terminal: Given[TerminalConfig, TerminalConfig | Table] = default(TerminalConfig())
    agent_folders: Paths = default(())
    """Folders with named types of agents (docs/agents.md); those of the workspace and the user are added if they exist."""
    command_folders: Paths = default(())
    """Folders with your own commands (docs/terminal.md) for the terminal; those of the workspace and the user are added if
    they exist."""
    skill_folders: Paths = default(())
    """Folders with skills (docs/skills.md), a folder each; those of the workspace and the user are added if they exist."""
    hook_files: Paths = default(())
    """Files with hooks (docs/hooks.md); `load_config()` adds the project's and yours if they exist."""
    mcp_servers: Given[dict[str, McpServerConfig], Mapping[str, McpServerConfig | Table]] = default(
        Field(default_factory=dict)
    )
    """MCP servers by name; usually in `mcp.json` (docs/mcp.md)."""

    def choosing(self, names: Iterable[str]) -> Self:
        """Return the same settings with a note of the chosen ones: only these replace a session's stored settings."""
        fields = type(self).model_fields
        made = self.model_construct(set(names) & fields.keys(), **{name: getattr(self, name) for name in fields})
        vars(made).update(vars(self))  # files count as they were when they were read
        return made

    @functools.cached_property
    def instruction_contents(self) -> dict[Path, bytes]:
        """The texts of `instruction_files`, as first read; later changes are ignored.

        Raises:
            ConfigError: A file cannot be read.
        """
        return read_files(self.instruction_files, self.workspace)

    @functools.cached_property
    def command_contents(self) -> dict[Path, bytes]:
        """The commands of `command_folders`, as first read; later changes are ignored."""
        return read_commands(self.command_folders)

    @functools.cached_property
    def skill_contents(self) -> dict[Path, SkillFolder]:
        """The skills of `skill_folders`, as first read; later changes are ignored."""
        return read_skill_folders(self.skill_folders)

    @functools.cached_property
    def found_hooks(self) -> FoundHooks:
        """The hooks of `hook_files`, as first read; later changes are ignored.

        Raises:
            ConfigError: A file cannot be read, or is wrong.
        """
        return read_hook_files(self.hook_files, self.workspace)

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
            if not is_server_name(name):
                raise ValueError(f"{name!r} is not a name of letters, digits, `-` and `_`")
        return servers


def user_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder of the user's own settings, in `$XDG_CONFIG_HOME` or `~/.config`."""
    folder = (os.environ if environment is None else environment).get("XDG_CONFIG_HOME", "")
    return (Path(folder) if folder.startswith("/") else Path.home().absolute() / ".config") / "freeact"


def own_folders() -> tuple[Path, ...]:
    """Return all own folders, without links."""
    return (user_folder().resolve(), state_folder().resolve())


def cache_folder() -> Path:
    """Return the folder for the compiled scripts of hooks and servers. No kernel behind a wall writes it."""
    return state_folder() / "compiled"


def token_folder() -> Path:
    """Return the folder of the sign-ins to MCP servers, which no kernel sees."""
    return user_folder() / "mcp-tokens"
