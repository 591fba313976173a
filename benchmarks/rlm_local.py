"""A small local model as the reader of a recursive one, beside one plain call: `python -m benchmarks.rlm_local BASE_URL`.

How many of some questions ask for a place? The plain call reads all of them and answers with the number. The recursive one
has a script as its root, which has the local model label each question by itself and counts by code. Printed are the right
number and both answers, with the share of labels that are right.
"""

import argparse
import asyncio
import random
import re
import time
from typing import Any, Final

from freeact_sub import Agent, Budget, Config, TaskError
from freeact_sub.rlm import RLM
from freeact_sub.testing import ScriptedModel

TOPICS: Final = {
    "place": ("In which country is the town of {}?", "Where does the river {} rise?", "Near which city is Mount {}?"),
    "person": ("Who painted {}?", "Who was the first president of {}?", "Which inventor is called the father of {}?"),
    "number": ("How many people live in {}?", "In which year was {} founded?", "How high is the tower of {}?"),
}
WHAT: Final = "Does this question ask for a place, a person or a number? Answer with one of these three words.\n\n"
COUNT: Final = "How many of these questions ask for a place? Answer with the number alone.\n\n"
CODE: Final = f"""
import re
said = llm_query_batched([{WHAT!r} + line for line in context.splitlines()])
FINAL([re.search("place|person|number|$", answer.lower())[0] or "?" for answer in said])"""


async def run(base_url: str, number: int) -> None:
    """Ask in both ways, and print what comes."""
    chance = random.Random(number)
    kinds = [chance.choice([*TOPICS]) for _ in range(number)]
    names = ("Lima", "Oslo", "Ghana", "Delft", "Perth", "Quito", "Turin", "Malta")
    context = "\n".join(chance.choice(TOPICS[kind]).format(chance.choice(names)) for kind in kinds)
    config = Config(model="openai-chat:local", base_url=base_url, models={"max_concurrent": 1})
    print(f"{number} questions, {len(context):,} characters; {kinds.count('place')} ask for a place")
    began = time.perf_counter()
    async with Agent(config) as agent:
        said = (await agent.run_program(lambda: agent.ask(f"{COUNT}{context}")).result()).output
    print(f"one plain call: {said!r}, {time.perf_counter() - began:.0f} s")

    def root(messages: Any, info: Any) -> str:
        del messages, info
        return f"```repl{CODE}\n```"

    began = time.perf_counter()
    rlm = RLM(model=ScriptedModel(root), sub_model=config.model, config=config, budget=Budget(requests=number + 1))
    try:
        done = await rlm.acompletion(context, COUNT)
    except TaskError as error:
        raise SystemExit(f"recursive: {error}") from error
    labels = re.findall(r"'(\S+)'", done.response)
    right = sum(label == kind for label, kind in zip(labels, kinds, strict=True))
    seconds, found = time.perf_counter() - began, labels.count("place")
    print(f"recursive: {found}, {right} of {number} labels are right, {done.usage.turns} requests, {seconds:.0f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base_url")
    parser.add_argument("number", type=int, nargs="?", default=60, help="of questions")
    options = parser.parse_args()
    asyncio.run(run(options.base_url, options.number))
