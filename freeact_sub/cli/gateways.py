"""`freeact-sub gateway check` and `freeact-sub kernelspec install`: commands for people who run a gateway."""

import asyncio
import sys
from pathlib import Path

from freeact_sub.cli.streams import print_line
from freeact_sub.config.gateway import GatewayConfig
from freeact_sub.extras import require_extra
from freeact_sub.kernels.forkserver.kernelspec import install_kernelspec


def check(settings: GatewayConfig) -> int:
    """Prints what a gateway lacks, and the lines that mend it. Returns the exit status: 0 if it lacks nothing, else 1."""
    require_extra("websockets", extra="gateway", needed_by="`freeact-sub gateway check`")
    from freeact_sub.kernels.gateway.check import check_gateway  # noqa: PLC0415  # needs an extra

    checked = asyncio.run(check_gateway(settings))
    death = "-" if checked.death_seconds is None else f"{checked.death_seconds:.1f} s"
    text = f"a kernel was ready after {checked.start_seconds:.1f} s, its death was noticed after {death}"
    print_line(f"{checked.url}: {text}")
    for finding in checked.findings:
        print_line(f"- {finding.text}")
    if checked.findings:
        lines = dict.fromkeys(f"  {finding.line}" for finding in checked.findings)
        print_line("\n".join(["Start it with:", *lines]))
    return 1 if checked.findings else 0


def install(*, prefix: Path | None, user: bool, name: str, wall: str, network: bool) -> int:
    """Puts our kernelspec on this machine. Returns the exit status."""
    from jupyter_core.paths import jupyter_data_dir  # noqa: PLC0415  # takes time

    folder = Path(jupyter_data_dir()) if user else (prefix or Path(sys.prefix)) / "share" / "jupyter"
    path = install_kernelspec(folder, sys.executable, name=name, wall=wall, network=network)
    print_line(f"{path}\nAgents use it with kernel.gateway.kernel = {name!r}.")
    return 0
