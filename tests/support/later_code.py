"""Run by the Python of an environment in a workspace: a kernel in that workspace tries to change what runs later.

python later_code.py WORKSPACE KIND SETTINGS_JSON CODE      print what the cell printed, and the notices, as JSON
"""

import asyncio
import json
import sys
from pathlib import Path

from support.kernels import open_kernel, run_cell

from freeact_sub.config.schema import KernelConfig, McpServerConfig
from freeact_sub.errors import KernelStartError
from freeact_sub.kernels.forkserver.fork_provider import ForkKernelProvider
from freeact_sub.kernels.local import LocalKernelProvider
from freeact_sub.kernels.wall.sandbox import policy_for, with_programs


async def main(workspace: Path, kind: str, settings: dict, code: str) -> None:
    notices: list[str] = []
    servers = {name: McpServerConfig(**server) for name, server in settings.pop("servers", {}).items()}
    config = KernelConfig(**settings)
    policy = with_programs(policy_for("auto", config, workspace), servers)
    provider = (
        ForkKernelProvider(spares=0, on_notice=notices.append)
        if kind == "fork"
        else LocalKernelProvider(on_notice=notices.append)
    )
    try:
        async with open_kernel(provider, workspace, sandbox=policy, python=config.python) as kernel:
            ran = await run_cell(kernel, code)
        print(json.dumps({"status": ran.status, "text": ran.text, "notices": notices}))
    except KernelStartError as error:
        print(json.dumps({"status": "refused", "text": str(error), "notices": notices}))
    finally:
        await provider.aclose()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]), sys.argv[4]))
