"""The types that a program may pass for each setting, for type checkers: wider than the stored types (text for a path).

Those for `Budget` and `GatewayConfig` are beside these classes. A test compares the names with the fields.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict

from freeact_sub.config.budget import Budget
from freeact_sub.config.effects import EffectsConfig
from freeact_sub.config.gateway import GatewayConfig
from freeact_sub.config.mcp_server import McpServerConfig, OAuthConfig
from freeact_sub.config.schema import (
    ContextConfig,
    KernelConfig,
    ModelsConfig,
    SessionsConfig,
    SubagentsConfig,
)
from freeact_sub.config.terminal import TerminalConfig
from freeact_sub.modes import CodeActions, Headless, Mode, NoAnswer, Profile

Table: TypeAlias = Mapping[str, Any]
"""A section as a dict of its settings, as in a file."""


class KernelValues(TypedDict, total=False):
    """The settings of `KernelConfig`."""

    provider: str
    gateway: GatewayConfig | Table
    options: Table
    preload: Sequence[str]
    spares: int
    python: Path | str
    start_timeout_seconds: float
    cell_timeout_seconds: float | None
    output_chars: int
    show_images_to_model: bool
    env: Mapping[str, str]
    max_live: int
    sandbox: Literal["off", "auto", "required"]
    readable: Sequence[Path | str]
    writable: Sequence[Path | str]
    network: bool
    memory_bytes: int | None
    max_processes: int | None
    max_file_bytes: int
    cpu_seconds: int


class SubagentsValues(TypedDict, total=False):
    """The settings of `SubagentsConfig`."""

    enabled: bool
    max_concurrent: int
    model: str | None
    budget: Budget | Table
    salvage: bool
    max_depth: int
    allow_agents: Sequence[str] | None
    detach: bool
    question_seconds: float


class McpServerValues(TypedDict, total=False):
    """The settings of `McpServerConfig`."""

    command: str | None
    args: Sequence[str]
    env: Mapping[str, str]
    cwd: str | None
    url: str | None
    headers: Mapping[str, str]
    oauth: OAuthConfig | Table
    type: str | None
    disabled: bool
    shared: bool
    init_timeout_seconds: float
    call_timeout_seconds: float
    max_message_bytes: int
    only_tools: Sequence[str] | None
    without_tools: Sequence[str]
    unread: Sequence[str]
    notice: str


class ConfigValues(TypedDict, total=False):
    """The settings of `Config`."""

    workspace: Path | str
    model: str | None
    base_url: str | None
    models: ModelsConfig | Table
    fallback_models: Sequence[str]
    model_settings: Table
    code_actions: CodeActions
    answer_check: NoAnswer | None
    profile: Profile | None
    first_event_timeout_seconds: float
    stall_seconds: float
    rate_limit_seconds: float
    instructions: str
    instruction_files: Sequence[Path | str]
    budget: Budget | Table
    max_repeats: int | None
    context: ContextConfig | Table
    event_buffer: int
    mode: Mode
    headless: Headless | None
    approval_timeout_seconds: float | None
    permission_files: Sequence[Path | str]
    on_denial: Literal["continue", "end"]
    effects: EffectsConfig | Table
    kernel: KernelConfig | Table
    subagents: SubagentsConfig | Table
    sessions: SessionsConfig | Table
    terminal: TerminalConfig | Table
    agent_folders: Sequence[Path | str]
    command_folders: Sequence[Path | str]
    skill_folders: Sequence[Path | str]
    hook_files: Sequence[Path | str]
    mcp_servers: Mapping[str, McpServerConfig | Table]
