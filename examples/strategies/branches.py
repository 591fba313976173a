"""A search over live state: each step is tried in a copy of the kernel, and to go back to a state nothing is run again.

A database in memory is loaded once; it can be copied in no other way than with its kernel. The model proposes steps that
clean it and says how good each outcome is; `search` goes on with the best. Each state also has a copy of the workspace of
its own, in which it writes what was done; the file of the best state is taken over in the end.
The workspace is a temporary folder.
`--model NAME` asks a real model.
"""

import argparse
import asyncio
import re
import tempfile
from pathlib import Path

import rich
from pydantic_ai.messages import ModelMessage, ToolCallPart
from pydantic_ai.models.function import AgentInfo

from freeact_sub import Agent, load_config
from freeact_sub.strategies import BestFirst, SearchResult, search
from freeact_sub.testing import ScriptedApprover, ScriptedModel, Turn, first_prompt

TASK = "Clean the table `days` (a year of temperatures in °C) in `db` with few rows lost. End each cell with `look()`."

LOAD = """
import random, sqlite3
random.seed(7)
db = sqlite3.connect(":memory:")
db.execute("create table days (day integer, temp real)")
for day in range(365):
    temp = random.gauss(9, 5)
    temp = -999 if random.random() < 0.05 else temp * 1.8 + 32 if day >= 300 else temp  # no value; °F since October
    db.execute("insert into days values (?, ?)", (day, temp))

def look():
    rows, wrong = db.execute("select count(*), coalesce(sum(temp not between -25 and 35), 0) from days").fetchone()
    with open("cleaning.txt", "a") as log:
        print(f"{rows} rows, {wrong} implausible", file=log)
    print(f"{rows} rows, {wrong} implausible")
"""

STEPS = (
    "db.execute('delete from days where temp = -999')\nlook()",
    "db.execute('update days set temp = (temp - 32) / 1.8 where day >= 300 and temp > -999')\nlook()",
    "db.execute('delete from days where temp not between -25 and 35')\nlook()",
)


async def main(folder: Path, model: str | None) -> None:
    """Search; show the tree, the best way, and that the state in which all began is as it was."""
    async with Agent(load_config(folder), model=model or ScriptedModel(script)) as agent:

        async def program() -> tuple[SearchResult, str]:
            async with await agent.branch("loaded", own_files=True) as loaded:
                await loaded.execute(LOAD.strip())
                tree = BestFirst(expansions=4)
                found = await search(agent, TASK, tree=tree, root=loaded, own_files=True, keep=True)
                async with found.best.state as best:
                    await agent.promote(best)  # its files; `agent.adopt(best)` would take over its variables
                return found, (await loaded.execute("look()")).text.strip()

        ended = await ScriptedApprover().drive(agent.run_program(program))
    if ended.status != "completed":
        raise SystemExit(f"{ended.status}: {ended.error}")
    result, before = ended.output
    rich.print(result)
    print(f"\n{len(result.nodes)} states, {len(result.nodes) + 2} cells\nbegan with: {before}")
    for node in result.best.path:
        print(f"{node.output.strip():>26}  after  {node.action.splitlines()[0]}")
    print(f"cleaning.txt, of the best state alone:\n{(folder / 'cleaning.txt').read_text(encoding='utf-8')}")


def script(messages: list[ModelMessage], info: AgentInfo) -> Turn:
    """Stands in for a model: proposes the steps that were not taken yet, and judges by what a cell has printed."""
    prompt = first_prompt(messages)
    seen = re.findall(r"^(\d+) rows, (\d+) implausible", prompt, re.MULTILINE)
    if "different next cells" in prompt:
        return ToolCallPart(info.output_tools[0].name, {"value": [step for step in STEPS if step not in prompt]})
    rows, wrong = map(int, seen[-1])
    score = max(0, 10 - wrong // 8 - (365 - rows) // 8)
    reason = f"{wrong} are still implausible" if wrong else f"{365 - rows} rows are lost"
    done = not wrong and rows > 330
    return ToolCallPart(info.output_tools[0].name, {"score": 10 if done else min(score, 9), "reason": reason, "done": done})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", metavar="NAME", help="a real model, such as anthropic:NAME (default: a script)")
    with tempfile.TemporaryDirectory() as workspace:
        asyncio.run(main(Path(workspace), parser.parse_args().model))
