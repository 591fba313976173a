"""A recursive language model counts over records that no prompt holds: code cuts them up, a model reads the parts.

Each record is a question that belongs to one of three topics, and only reading tells which. Scripts stand in for the two
models; `--model NAME --sub-model NAME` asks real ones.
"""

import argparse
import random
import re
from pathlib import Path

from pydantic_ai.messages import ModelMessage, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from freeact_sub import load_config
from freeact_sub.rlm import RLM
from freeact_sub.testing import ScriptedModel, Turn

TOPICS = {
    "a place": ("Where does the river {} rise?", "In which country is the town of {}?"),
    "a person": ("Who has painted {}?", "Which inventor was called {}?"),
    "a number": ("How many people live in {}?", "In which year was {} founded?"),
}
QUESTION = "How many of the records ask for a place?"

CODE = """
records = context.splitlines()
parts = [records[start:start + 50] for start in range(0, len(records), 50)]
prompts = ["Does each question ask for a place, a person or a number? One per line.\\n" + "\\n".join(part) for part in parts]
topics = [line for reply in llm_query_batched(prompts) for line in reply.splitlines()]
print(len(topics), "of", len(records), "records are labelled")
FINAL(topics.count("a place"))
"""


def records(number: int) -> tuple[str, int]:
    """Return records, one per line, and how many of them ask for a place."""
    chance = random.Random(7)
    topics = [chance.choice([*TOPICS]) for _ in range(number)]
    lines = [chance.choice(TOPICS[topic]).format(f"Name{chance.randrange(10_000)}") for topic in topics]
    return "\n".join(lines), topics.count("a place")


def root(messages: list[ModelMessage], info: AgentInfo) -> Turn:
    """Stands in for the model that acts by code."""
    del messages, info
    return f"I cut the records into parts and count by code.\n```repl{CODE}```"


def reader(messages: list[ModelMessage], info: AgentInfo) -> Turn:
    """Stands in for the model that reads the parts."""
    del info
    [text] = [part.content for part in messages[-1].parts if isinstance(part, UserPromptPart)]
    patterns = {topic: "|".join(re.escape(form).replace(r"\{\}", ".+") for form in forms) for topic, forms in TOPICS.items()}
    lines = str(text).splitlines()[1:]
    return "\n".join(next(topic for topic, pattern in patterns.items() if re.fullmatch(pattern, line)) for line in lines)


def main(model: str | None, sub_model: str | None) -> None:
    """Ask about 2,000 records; print the answer and what it has cost."""
    context, places = records(2_000)
    reads = sub_model or (None if model else ScriptedModel(reader))
    rlm = RLM(model=model or ScriptedModel(root), sub_model=reads, config=load_config(Path(__file__).parents[1]))
    completion = rlm.completion(context, QUESTION)
    print(f"{completion.response} of 2,000 records ask for a place; {places} do.")
    print(f"{completion.usage.turns} requests, {completion.usage.tokens:,} tokens for {len(context):,} characters")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", metavar="NAME", help="a real model that acts by code (default: a script)")
    parser.add_argument("--sub-model", metavar="NAME", help="a real model that reads parts (default: a script, or MODEL)")
    options = parser.parse_args()
    main(options.model, options.sub_model)
