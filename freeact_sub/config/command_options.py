"""Command-line options for settings, shared by `freeact-sub` and `%%agent`.

This module imports only the standard library and modules without dependencies, so that `--help` is fast.
"""

import argparse
from pathlib import Path
from typing import Any, Final, get_args

from freeact_sub.errors import ConfigError
from freeact_sub.modes import MODES, CodeActions, Headless, Profile

_SETTINGS: Final = ("model", "base_url", "code_actions", "profile", "mode", "headless")
"""Options named like their setting."""
_OTHERS: Final = ("yes", "max_turns", "sandbox", "workspace", "mcp")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to a parser whose default is `argparse.SUPPRESS`."""
    add_settings(parser)
    parser.add_argument(
        "--max-turns",
        metavar="N",
        type=_turns,
        help="the most model responses of the root agent in a run (default: no limit, but a run makes at most 1000 model "
        "requests and starts 200 children; settings budget.requests and budget.children)",
    )
    parser.add_argument(
        "--headless",
        choices=get_args(Headless),
        help="ask nobody: allow all calls, deny all calls, or (auto) allow them only in the modes auto and full",
    )
    parser.add_argument("--yes", action="store_true", help="the same as --headless allow")


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the options that also mean something to a command that runs no agent."""
    parser.add_argument(
        "--model", metavar="NAME", help="a pydantic-ai model name, anthropic:… or openai-chat:…, or a part of one"
    )
    parser.add_argument("--base-url", metavar="URL", help="the URL of an OpenAI-compatible server, for openai-chat:NAME")
    parser.add_argument(
        "--code-actions",
        choices=get_args(CodeActions),
        help="how the model runs code: by tool calls, by fenced blocks, or (auto, the default) by either",
    )
    parser.add_argument(
        "--profile",
        choices=get_args(Profile),
        help="small: short descriptions of tools (the default for a context of 16k tokens or less)",
    )
    add_place(parser)
    add_servers(parser)
    parser.add_argument("--mode", choices=MODES, help="which calls run without a question (default: ask)")
    parser.add_argument("--sandbox", choices=("off", "auto", "required"), help="the wall around kernels (default: auto)")


def add_place(parser: argparse.ArgumentParser) -> None:
    """Add the option for the place of work."""
    parser.add_argument("--workspace", metavar="DIR", type=Path, help="the folder to work in (default: this one)")


def add_servers(parser: argparse.ArgumentParser) -> None:
    """Add the option for a file with MCP servers."""
    parser.add_argument("--mcp", metavar="FILE", type=Path, help="an mcp.json with the MCP servers to use")


def given(options: argparse.Namespace) -> dict[str, Any]:
    """Return the given options, by name."""
    return {name: getattr(options, name) for name in (*_SETTINGS, *_OTHERS) if hasattr(options, name)}


def load_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments for `load_config`.

    Raises:
        ConfigError: The workspace is not a directory.
    """
    values = given(options)
    settings = {name: values.get(name) for name in _SETTINGS}
    settings["budget"] = {"turns": values.get("max_turns")}
    settings["kernel"] = {"sandbox": values.get("sandbox")}
    if values.get("yes"):
        settings["headless"] = "allow"
    workspace: Path | None = values.get("workspace")
    if workspace is not None and not workspace.expanduser().is_dir():
        raise ConfigError(f"--workspace: {workspace} is not a directory")
    return {
        "workspace": workspace,
        "arguments": settings,
        "mcp_file": values.get("mcp"),
        "usual": getattr(options, "usual", None),
    }


def _turns(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of turns: give 1 or more")
    return int(text)
