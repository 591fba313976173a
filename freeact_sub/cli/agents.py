"""`freeact-sub agents`: lists the named types of agents, and errors in their files."""

import argparse
import sys
from collections.abc import Callable

from freeact_sub.agents.types.files import AgentType, load_agent_types
from freeact_sub.cli.streams import print_line
from freeact_sub.config.schema import AGENT_TYPES, Config, user_folder
from freeact_sub.text import one_line, visible


def list_agents(_options: argparse.Namespace, settings: Callable[..., Config]) -> int:
    """Prints all types, and errors in files to standard error; returns the exit status: 1 if there is an error."""
    found = load_agent_types(settings(looking=True))
    for kind in found.types.values():
        print_line(f"{kind.name}: {one_line(kind.description, 200)}{_details(kind)}\n    {kind.file}")
    if not found.types and not found.problems:
        folders = f"{AGENT_TYPES} of the workspace, and {user_folder() / AGENT_TYPES.name}"
        print_line(f"no agent types: write NAME.md into {folders}")
    for problem in found.problems:
        sys.stderr.write(f"freeact-sub: {visible(problem)}\n")
    return 1 if found.problems else 0


def _details(kind: AgentType) -> str:
    """The settings that a type narrows."""
    tools = kind.tools
    parts = {
        "model": kind.model,
        "code_actions": kind.code_actions,
        "mode": kind.mode,
        "tools": None if tools.allow is None else " ".join(tools.allow) or "none",
        "not": " ".join(tools.deny) or None,
        "mcp": None if kind.mcp is None else " ".join(kind.mcp) or "none",
        "own servers": " ".join(kind.found_servers) or None,
        "skills": None if kind.skills is None else " ".join(kind.skills) or "none",
        "budget": str(kind.budget) or None,
    }
    known = [f"{name} {value}" for name, value in parts.items() if value is not None]
    return f" ({'; '.join(known)})" if known else ""
