"""A program that is asked about one cell, looks at its effects and answers; it tells each step in a line. To be killed.

card_program.py yes|no|at-once|resume [SESSION]
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from support.agents import cell

from freeact_sub import Agent, Config
from freeact_sub.events import ApprovalRequest
from freeact_sub.system.private_folders import sweep
from freeact_sub.testing import FakeKernelProvider, ScriptedModel, prompts

CELL = "import os, time; big = bytearray(10**7); time.sleep(0.05); os.rename('rows', 'done'); time.sleep(0.05);"
"""Its only change of the workspace happens at once or not at all."""


async def work(answer: str, session: str) -> None:
    def turn(messages: Any, info: Any) -> Any:
        del info
        told = len(prompts(messages))
        return f"{told} prompts" if answer == "resume" else [cell("x = 1"), cell(CELL), "done"][len(messages) // 2]

    config = Config(workspace=Path.cwd(), effects={"seconds": 60})
    kernels = None
    if answer == "resume":
        sweep()  # as the next start of kernels does
        kernels = FakeKernelProvider()
    async with Agent(config, model=ScriptedModel(turn), session=session, kernel_provider=kernels) as agent:
        tell("session", agent.session_id)
        run = agent.run("and?" if answer == "resume" else "go")
        async for event in run:
            if isinstance(event, ApprovalRequest) and event.call.code != CELL:
                event.approve()
            elif isinstance(event, ApprovalRequest):
                tell("card")
                if answer != "at-once":
                    tell("effects", (await event.effects_ready()).status)
                event.deny() if answer == "no" else event.approve()
                tell("answered")
        result = await run.result()
        tell("result", result.status, result.text)
    tell("closed")


def tell(*words: object) -> None:
    print(json.dumps(words), flush=True)


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], sys.argv[2] if sys.argv[2:] else "new"))
