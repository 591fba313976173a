"""A program with 13 agents at 3 levels that keeps a session, to be killed.

Its model is scripted and notes each request in the file `requests`; its cells note what they do in the file `effects`. After
a kill it goes on with what it reads: a cell that is unknown or was not run is run again, as a model would that has looked.

The root's variables vouch for themselves: each cell leaves a `stamp`, a digest of all of them with what they share, and the
next one holds it against what it finds. What cannot be saved must be named to the model. Whatever is not so is written into
the file `wrong`.
"""

import asyncio
import json
import os
from pathlib import Path
from typing import Any, Final

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart

from freeact_sub import Agent, Config
from freeact_sub.config.schema import KernelConfig, SubagentsConfig
from freeact_sub.testing import ScriptedModel, first_prompt

STAGES: Final = (
    "rows = [[1, 2], [3]]\nshared = {'rows': rows, 'n': 41}",
    """class Point:
    def __init__(self, x): self.x = x
def double(value): return value * 2
point = Point(rows)
import asyncio
answers = await asyncio.gather(*(agent.ask(f'ask {i}') for i in range(3)))""",
    "children = await asyncio.gather(*(agent.task(f'child {i}') for i in range(3)))",
    """shared['n'] += 1
assert point.x is rows and double(21) == 42
open('end', 'w').write(repr((shared['n'], shared['rows'] is rows, len(answers), len(children))))""",
)
EXPECTED: Final = repr((42, True, 3, 3))
UNSAVED: Final = "gate"
"""A variable of each cell that cannot be saved."""

DIGEST: Final = """
def stamp_of(names):
    import hashlib
    seen = []
    def shape(value):
        if isinstance(value, (list, dict)) or hasattr(value, '__dict__'):
            for place, other in enumerate(seen):
                if other is value:
                    return ['same as', place]
            seen.append(value)
        if isinstance(value, list):
            return [shape(item) for item in value]
        if isinstance(value, dict):
            return [[key, shape(item)] for key, item in value.items()]
        if callable(value):
            return ['calls', value.__name__, value.__code__.co_code.hex() if hasattr(value, '__code__') else '']
        return [type(value).__name__, shape(vars(value))] if hasattr(value, '__dict__') else repr(value)
    kept = ('rows', 'shared', 'answers', 'children', 'point', 'double', 'Point')
    found = {name: names[name] for name in kept if name in names}
    return hashlib.sha256(repr(shape(found)).encode()).hexdigest()
"""
CHECK: Final = (
    "if 'stamp' in globals() and stamp != stamp_of(globals()): open('wrong', 'a').write('variables of before cell {}\\n')"
)


def root_turn(messages: list[ModelMessage], folder: Path) -> ToolCallPart | str:
    """The first stage that no cell has ended; stages whose variables did not come back are made again."""
    done: set[int] = set()
    for message in messages:
        if not isinstance(message, ModelRequest):
            continue
        for part in message.parts:
            if isinstance(part, ToolReturnPart) and "stage " in str(part.content):
                done |= {number for number in range(len(STAGES)) if f"stage {number} ended" in str(part.content)}
        # after the results: those of before the kill stand in the same message as the prompt of after it
        text = str(message.parts)
        if "Your kernel is new" in text and "- rows: " not in text:
            done.clear()  # what the variables are made from was lost
        elif "Your kernel is new" in text and f"- {UNSAVED} (" not in text:
            with (folder / "wrong").open("a") as file:
                file.write(f"{UNSAVED} is not named as lost\n")
        if "what it changed in the variables is not in them" in text:
            done.clear()
    left = [number for number in range(len(STAGES)) if number not in done]
    return cell(left[0], STAGES[left[0]]) if left else "all done"


def cell(number: int, code: str) -> ToolCallPart:
    """Runs a stage; notes that it has begun."""
    note = f"open('effects', 'a').write('{number}\\n')"
    lock = f"import threading\n{UNSAVED} = threading.Lock()"
    parts = (note, DIGEST, CHECK.format(number), lock, code, "stamp = stamp_of(globals())", f"print('stage {number} ended')")
    return ToolCallPart("execute_ipython_cell", {"code": "\n".join(parts)})


def script(folder: Path) -> Any:
    """What each agent says, by its prompt."""
    requests = os.open(folder / "requests", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def turn(messages: list[ModelMessage], info: Any) -> ToolCallPart | str:
        del info
        prompt = first_prompt(messages)
        os.write(requests, (json.dumps(prompt) + "\n").encode())
        if prompt == "root":
            return root_turn(messages, folder)
        if prompt.startswith("child") and not any(isinstance(message, ModelResponse) for message in messages):
            code = (
                f"import asyncio\nfound = await asyncio.gather(*(agent.task(f'leaf {{i}} of {prompt}') for i in range(3)))"
            )
            return ToolCallPart("execute_ipython_cell", {"code": code})
        return f"answer to {prompt}"

    return turn


async def work(folder: Path, session: str) -> None:
    """Run, or go on, to the end; the session and the result are written into files."""
    config = Config(
        workspace=folder,
        mode="full",
        kernel=KernelConfig(sandbox="off", spares=2),
        subagents=SubagentsConfig(max_depth=2),
    )
    async with Agent(config, model=ScriptedModel(script(folder)), session=session) as agent:
        (folder / "session").write_text(agent.session_id or "")
        result = await agent.run("root" if session == "new" else "go on").result()
        (folder / "result").write_text(f"{result.status} {result.text} {result.error}")


def begin(folder: Path, session: str) -> None:
    """The whole program, in a process of its own."""
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    asyncio.run(work(folder, session))
