"""Commands for gateways (`freeact-sub gateway check`), and for kernels of notebooks (`freeact-sub kernelspec install`)."""

import argparse
import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

from freeact_sub.cli.streams import print_line
from freeact_sub.config.schema import Config, GatewayConfig
from freeact_sub.extras import require_extra
from freeact_sub.kernels.forkserver.kernelspec import WITHOUT_WALL, install_kernelspec


def check(options: argparse.Namespace, settings: Callable[..., Config]) -> int:
    """Print what a gateway lacks, and the lines that fix it. Return the exit status: 0 if it lacks nothing, else 1."""
    require_extra("websockets", extra="gateway", needed_by="`freeact-sub gateway check`")
    from freeact_sub.kernels.gateway.check import check_gateway  # noqa: PLC0415  # needs an extra

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
