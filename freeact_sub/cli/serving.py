"""Commands that serve other programs: `freeact-sub acp`, `mcp-server`, `gateway check` and `kernelspec install`."""

import argparse
import asyncio
import gc
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

from freeact_sub.cli.streams import is_terminal, print_line
from freeact_sub.config.command_options import load_arguments
from freeact_sub.config.schema import Config, GatewayConfig
from freeact_sub.errors import ConfigError
from freeact_sub.extras import require_extra
from freeact_sub.modes import Mode

if TYPE_CHECKING:
    from freeact_sub.cli.commands import Settings

NAME: Final = "freeact"
PROVISIONER: Final = "freeact-fork"
WITHOUT_WALL: Final = "none"
WALLS: Final = (WITHOUT_WALL, *get_args(Mode))
EXTRA = "acp"


def install_kernelspec(
    folder: Path, python: str, *, name: str = NAME, wall: str = WITHOUT_WALL, network: bool = False
) -> Path:
    """Writes `kernel.json`.

    Args:
        folder: The parent of Jupyter's `kernels`, such as the prefix's `share/jupyter`.
        python: The kernels' Python; it needs this package.
        name: The name of the kernelspec.
        wall: The mode whose wall is around each kernel, for agents at a gateway. `none`: there is none, for the notebooks
            of a person.
        network: Kernels in `auto` have the network.

    Returns:
        The file.

    Raises:
        ConfigError: It cannot be written.
    """
    config: dict[str, Any] = {} if wall == WITHOUT_WALL else {"wall": {"mode": wall, "network": network}}
    content = {
        "argv": [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "Python (freeact-sub)" if wall == WITHOUT_WALL else f"Python (freeact-sub, walled: {wall})",
        "language": "python",
        "metadata": {"kernel_provisioner": {"provisioner_name": PROVISIONER, "config": config}},
    }
    path = folder / "kernels" / name / "kernel.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"the kernelspec cannot be written to {path} ({error.strerror}): see --prefix, --user") from error
    return path


def serve_acp(options: argparse.Namespace, _settings: "Settings") -> int:
    """Serve an editor or a notebook by the Agent Client Protocol, until it closes standard input (`freeact-sub acp`)."""
    require_extra("acp", extra=EXTRA, needed_by="freeact-sub acp")
    if is_terminal(sys.stdin):
        raise ConfigError("an editor or a notebook starts `freeact-sub acp` and speaks to it: docs/acp.md says how")
    from freeact_sub.acp.connection import serve  # noqa: PLC0415  # slow to import, as the next one
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
    from freeact_sub.cli.first_start import with_project_python  # noqa: PLC0415  # slow, as the next ones
    from freeact_sub.cli.settings import trusted_settings  # noqa: PLC0415
    from freeact_sub.kernels.wall.sandbox import has_wall  # noqa: PLC0415
    from freeact_sub.models.build import check_name  # noqa: PLC0415

    arguments = {**load_arguments(options), "workspace": folder}
    config = trusted_settings(arguments)
    if not has_wall(config.kernel):
        config = trusted_settings({**arguments, "usual": None})
    if not config.model:
        config = with_found_model(config)
    if config.model:
        check_name(config)
    return with_project_python(config, options)


def with_found_model(config: "Config") -> "Config":
    """Return the settings with the first model that is found; without one if none is."""
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
    from freeact_sub.mcp_server import serve_http, serve_stdio  # noqa: PLC0415

    port: int | None = getattr(options, "http", None)
    asyncio.run(serve_stdio(config) if port is None else serve_http(config, port))
    return 0


def check(options: argparse.Namespace, settings: Callable[..., Config]) -> int:
    """Print what a gateway lacks, and the lines that fix it. Return the exit status: 0 if it lacks nothing, else 1."""
    require_extra("websockets", extra="gateway", needed_by="`freeact-sub gateway check`")
    from freeact_sub.kernels.gateway.kernel import check_gateway  # noqa: PLC0415  # needs an extra

    gateway = settings(looking=True).kernel.gateway
    checked = asyncio.run(check_gateway(GatewayConfig(**{**gateway.model_dump(), "url": options.url})))
    death = "-" if checked.death_seconds is None else f"{checked.death_seconds:.1f} s"
    text = f"a kernel was ready after {checked.start_seconds:.1f} s, its death was noticed after {death}"
    print_line(f"{checked.url}: {text}")
    for lack in checked.lacks:
        print_line(f"- {lack.text}")
    if checked.lacks:
        lines = dict.fromkeys(f"  {lack.line}" for lack in checked.lacks)
        print_line("\n".join(["Start it with:", *lines]))
    return 1 if checked.lacks else 0


def install(options: argparse.Namespace, _settings: Callable[..., Config]) -> int:
    """Put our kernelspec on this machine. Return the exit status."""
    from jupyter_core.paths import jupyter_data_dir  # noqa: PLC0415  # takes time

    folder = Path(jupyter_data_dir()) if options.user else (options.prefix or Path(sys.prefix)) / "share" / "jupyter"
    path = install_kernelspec(folder, sys.executable, name=options.name, wall=options.wall, network=options.network)
    if options.wall == WITHOUT_WALL:
        use = "For your own notebooks: your cells have no wall. On a gateway's machine, choose a --wall for agents."
    else:
        use = f"Agents use it with kernel.gateway.kernel = {options.name!r}."
    print_line(f"{path}\n{use}")
    return 0
