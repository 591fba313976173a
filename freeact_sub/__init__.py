"""An agent that acts by running code in its own Jupyter kernel, and hands work to child agents.

The names below are the SDK. They are imported when they are first used: `import freeact_sub` itself costs nothing, which
is what lets `freeact-sub --help` answer at once.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from freeact_sub.agents import (
        Agent,
        AgentFactory,
        AgentInfo,
        AgentStatus,
        Child,
        ChildAgent,
        ExecutionContext,
        Run,
        RunResult,
    )
    from freeact_sub.budget import Budget, Usage
    from freeact_sub.callbacks import Callbacks, dispatch
    from freeact_sub.config import Config, KernelConfig, McpServerConfig, SubagentsConfig, load_config
    from freeact_sub.errors import ConfigError, FreeactError, SpawnForbiddenError
    from freeact_sub.events import AgentEvent, ApprovalRequest, Decision, Event
    from freeact_sub.tools import SpawnRequest

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AgentEvent",
    "AgentFactory",
    "AgentInfo",
    "AgentStatus",
    "ApprovalRequest",
    "Budget",
    "Callbacks",
    "Child",
    "ChildAgent",
    "Config",
    "ConfigError",
    "Decision",
    "Event",
    "ExecutionContext",
    "FreeactError",
    "KernelConfig",
    "McpServerConfig",
    "Run",
    "RunResult",
    "SpawnForbiddenError",
    "SpawnRequest",
    "SubagentsConfig",
    "Usage",
    "dispatch",
    "load_config",
]

_HOMES = {
    "freeact_sub.agents": (
        "Agent",
        "AgentFactory",
        "AgentInfo",
        "AgentStatus",
        "Child",
        "ChildAgent",
        "ExecutionContext",
        "Run",
        "RunResult",
    ),
    "freeact_sub.budget": ("Budget", "Usage"),
    "freeact_sub.callbacks": ("Callbacks", "dispatch"),
    "freeact_sub.config": ("Config", "KernelConfig", "McpServerConfig", "SubagentsConfig", "load_config"),
    "freeact_sub.errors": ("ConfigError", "FreeactError", "SpawnForbiddenError"),
    "freeact_sub.events": ("AgentEvent", "ApprovalRequest", "Decision", "Event"),
    "freeact_sub.tools": ("SpawnRequest",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'freeact_sub' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
