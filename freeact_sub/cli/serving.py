"""Commands that serve agents to other programs over their protocols: `freeact-sub acp` and `freeact-sub mcp-server`."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from freeact_sub.cli.streams import is_terminal
from freeact_sub.config.command_options import load_arguments
from freeact_sub.errors import ConfigError

if TYPE_CHECKING:
    from freeact_sub.cli.commands import Settings
    from freeact_sub.config.schema import Config

EXTRA = "acp"


def serve_acp(options: argparse.Namespace, _settings: "Settings") -> int:
    """Serve an editor or a notebook by the Agent Client Protocol, until it closes standard input (`freeact-sub acp`)."""
    from freeact_sub.extras import require_extra  # noqa: PLC0415

    require_extra("acp", extra=EXTRA, needed_by="freeact-sub acp")
    if is_terminal(sys.stdin):
        raise ConfigError("an editor or a notebook starts `freeact-sub acp` and speaks to it: docs/acp.md says how")
    import asyncio  # noqa: PLC0415  # slow to import, as the next ones
    import gc  # noqa: PLC0415

    from freeact_sub.acp.connection import serve  # noqa: PLC0415
    from freeact_sub.acp.methods import Methods  # noqa: PLC0415

    gc.freeze()
    gc.enable()
    asyncio.run(serve(lambda client: Methods(client, lambda folder: settings_in(folder, options))))
    return 0


def settings_in(folder: Path, options: argparse.Namespace) -> "Config":
    """Return the settings of a session in a folder, without asking and without untrusted files. Blocks.

    Raises:
        ConfigError: The settings are wrong.
        UntrustedError: A file in the folder has settings that nobody has trusted.
    """
    from freeact_sub.cli.project_python import with_project_python  # noqa: PLC0415  # slow, as the next ones
    from freeact_sub.cli.settings import trusted_settings  # noqa: PLC0415
    from freeact_sub.models.build import check_name  # noqa: PLC0415

    arguments = {**load_arguments(options), "workspace": folder}
    config = trusted_settings(arguments)
    if sys.platform != "linux" or config.kernel.sandbox == "off":  # no wall
        config = trusted_settings({**arguments, "usual": None})
    if not config.model:
        config = with_found_model(config)
    if config.model:
        check_name(config)
    return with_project_python(config, options)


def with_found_model(config: "Config") -> "Config":
    """Return the settings with the first model that is found; without one if none is."""
    import os  # noqa: PLC0415

    from freeact_sub.models.build import find_models  # noqa: PLC0415  # slow to import

    found = find_models(os.environ) if config.base_url is None else []
    if not found:
        return config
    return config.model_copy(update={"model": found[0].model, "base_url": found[0].base_url}).choosing(
        config.model_fields_set
    )


def serve_mcp(options: argparse.Namespace, settings: "Settings") -> int:
    """Serve agents and kernels to MCP clients, until the client has left (`freeact-sub mcp-server`)."""
    config = settings()
    config = config.model_copy(update={"subagents": config.subagents.model_copy(update={"detach": False})})
    import asyncio  # noqa: PLC0415  # slow to import, as the next one

    from freeact_sub.mcp_server import serve_http, serve_stdio  # noqa: PLC0415

    port: int | None = getattr(options, "http", None)
    asyncio.run(serve_stdio(config) if port is None else serve_http(config, port))
    return 0
