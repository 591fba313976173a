"""What children did, whatever they say: receipts, facts and checks. `--model NAME` asks a real model.

One child works, one only says that it has, and one corrects its answer because a check of the program fails.
"""

import argparse
import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic_ai.messages import ToolCallPart

from freeact_sub import Agent, Config
from freeact_sub.agents import RunResult
from freeact_sub.testing import ScriptedModel

WORK = """
prices = [17, 19, 16]
with open("prices.csv", "w") as file:
    file.write("\\n".join(map(str, prices)))
print("mean", sum(prices) / len(prices))
"""
TASKS = {
    "works": "Write some prices to prices.csv, keep them as the list `prices`, and answer with their mean only.",
    "talks": "Run all tests, and write a summary of them to summary.md.",
    "counts": "How many lines has prices.csv? Answer with the number only.",
}
CHECKS = {
    "works": "abs(float(answer) - sum(prices) / len(prices)) < 0.01",  # runs in a copy of the child's kernel
    "counts": lambda answer: int(answer) == 3,  # runs here
}


async def main(model: str | None) -> None:
    """Give three children their tasks, and tell what is known of each."""
    with TemporaryDirectory() as folder:
        async with Agent(Config(workspace=Path(folder), mode="full"), model=model or ScriptedModel(SCRIPT)) as agent:
            for name, prompt in TASKS.items():
                tell(name, await agent.task(prompt, description=name, check=CHECKS.get(name)))


def tell(name: str, result: RunResult[str]) -> None:
    """Print an answer, and below it what speaks for it and against it."""
    print(f"{name} says: {result.output}")
    print(f"  receipts: {result.receipts}")
    if result.receipts is not None:
        for cell in result.receipts.cells:
            print(f"  {cell.status}: {cell.code} -> {cell.printed}")
        for file in result.receipts.files_written:
            print(f"  wrote {file.path}: {file.size} bytes, sha256 {file.sha256[:8]}...")
    for doubt in result.doubts:
        print(f"  {doubt}")
    if result.verified:
        print("  its answer has passed the check")


SCRIPT = {
    TASKS["works"]: [[ToolCallPart("execute_ipython_cell", {"code": WORK.strip()})], "17.33"],
    TASKS["talks"]: ["All 12 tests pass. The summary is in summary.md."] * 2,  # it is asked once more
    TASKS["counts"]: ["4", "3"],
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", metavar="NAME", help="a real model, such as anthropic:NAME (default: a script)")
    asyncio.run(main(parser.parse_args().model))
