"""Run by the Python of a workspace: an agent's code plants code of its own there, then everything is started again.

    python planted.py WORKSPACE MODE PROVIDER KERNEL_JSON SERVERS_JSON CODE       print what the agents' cells put out, as JSON

The code is run by a first agent in the mode; another agent in the same mode, and one in `full`, are started after it, with
their kernels and MCP servers.
"""

import asyncio
import json
import sys
from pathlib import Path

from support.agents import cell, of_kind, read

from freeact_sub import Agent, Config
from freeact_sub.config.schema import KernelConfig
from freeact_sub.events import CodeExecutionOutput, Decision, Notice
from freeact_sub.testing import ScriptedModel


async def ran(config: Config, code: str) -> dict[str, list[str]]:
    """What a cell of a new agent put out, and what people are told."""
    async with Agent(config, model=ScriptedModel([[cell(code)], "done"])) as agent:
        events, result = await read(agent.run("go"), lambda request: Decision(allowed=request.call.kind == "code"))
    texts = [f"{event.status}: {event.text}" for event in of_kind(events, CodeExecutionOutput)]
    return {"texts": texts, "notices": [result.error, *(event.content for event in of_kind(events, Notice))]}


async def main(workspace: Path, mode: str, provider: str, kernel: str, servers: str, code: str) -> None:
    settings = KernelConfig(provider=provider, spares=0, **json.loads(kernel))
    config = Config(workspace=workspace, mode=mode, kernel=settings, mcp_servers=json.loads(servers))
    found = [await ran(config, code)]
    found.append(await ran(config, "print(1)"))
    found.append(await ran(config.model_copy(update={"mode": "full"}), "print(1)"))
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
