"""A program with 13 agents at 3 levels that keeps a session, to be killed: `python -m benchmarks.killed_agents FOLDER [ID]`.

Its model is scripted and notes each request in the file `requests`; its cells note what they do in the file `effects`. After
a kill it goes on with what it reads: a cell that is unknown or was not run is run again, as a model would that has looked.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart

from freeact_sub import Agent, Config
from freeact_sub.config.schema import KernelConfig, SubagentsConfig
from freeact_sub.testing import ScriptedModel, first_prompt

STAGES = (
    "rows = [[1, 2], [3]]\nshared = {'rows': rows, 'n': 41}",
    "import asyncio\nanswers = await asyncio.gather(*(agent.ask(f'ask {i}') for i in range(3)))",
    "children = await asyncio.gather(*(agent.task(f'child {i}') for i in range(3)))",
    "shared['n'] += 1\nopen('end', 'w').write(repr((shared['n'], shared['rows'] is rows, len(answers), len(children))))",
)
EXPECTED = repr((42, True, 3, 3))


def root_turn(messages: list[ModelMessage]) -> ToolCallPart | str:
    """The first stage that no cell has ended; stages whose variables did not come back are made again."""
    done: set[int] = set()
    for message in messages:
        if not isinstance(message, ModelRequest):
            continue
        for part in message.parts:
            if isinstance(part, ToolReturnPart) and "stage " in str(part.content):
                done |= {number for number in range(len(STAGES)) if f"stage {number} ended" in str(part.content)}
        # after the results: those of before the kill stand in the same message as the prompt of after it
        if "Your kernel is new" in str(message.parts) and "- rows: " not in str(message.parts):
            done.clear()  # what the variables are made from was lost
        if "was saved: what it changed" in str(message.parts):
            done.clear()
    left = [number for number in range(len(STAGES)) if number not in done]
    return cell(left[0], STAGES[left[0]]) if left else "all done"


def cell(number: int, code: str) -> ToolCallPart:
    """Runs a stage; notes that it has begun."""
    note = f"open('effects', 'a').write('{number}\\n')"
    return ToolCallPart("execute_ipython_cell", {"code": f"{note}\n{code}\nprint('stage {number} ended')"})


def script(folder: Path) -> Any:
    """What each agent says, by its prompt."""
    requests = os.open(folder / "requests", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def turn(messages: list[ModelMessage], info: Any) -> ToolCallPart | str:
        del info
        prompt = first_prompt(messages)
        os.write(requests, (json.dumps(prompt) + "\n").encode())
        if prompt == "root":
            return root_turn(messages)
        if prompt.startswith("child") and not any(isinstance(message, ModelResponse) for message in messages):
            code = (
                f"import asyncio\nfound = await asyncio.gather(*(agent.task(f'leaf {{i}} of {prompt}') for i in range(3)))"
            )
            return ToolCallPart("execute_ipython_cell", {"code": code})
        return f"answer to {prompt}"

    return turn


async def work(folder: Path, session: str) -> None:
    """Run, or go on, to the end."""
    config = Config(
        workspace=folder,
        mode="full",
        kernel=KernelConfig(sandbox="off", spares=2),
        subagents=SubagentsConfig(max_depth=2),
    )
    async with Agent(config, model=ScriptedModel(script(folder)), session=session) as agent:
        print(agent.session_id, flush=True)
        result = await agent.run("root" if session == "new" else "go on").result()
        print(result.status, result.output, flush=True)


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "new"))
