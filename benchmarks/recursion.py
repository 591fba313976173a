"""Recursive language models on records whose answers a program knows: are the answers exact, and what do they cost?

Scripts stand in for the models. The one for plain sub-calls knows the kind of each record, so a wrong answer is a fault of
what lies between: the names in the kernel, the copies of kernels, the values that go in and come back. `prompt` is what the
first model reads before it acts. Tokens are estimates by the scripted models' count.
"""

import random
import re
import time
from collections.abc import Iterator
from typing import Any, Final

from pydantic_ai.messages import ModelMessage, UserPromptPart

from benchmarks.common import Goal, OtherLoad, Row, Series, main, report
from freeact_sub.rlm import RLM
from freeact_sub.testing import ScriptedModel, first_prompt

KINDS: Final = ("river", "painter", "year")
SIZES: Final = {"32 KB": 32_000, "131 KB": 131_000, "1 MB": 1_000_000}
LINES: Final = 100
"""Records of one plain sub-call."""
DEPTHS: Final = (1, 2, 3)
LABELS: Final = f"""
lines = context.splitlines()
parts = ["\\n".join(lines[start:start + {LINES}]) for start in range(0, len(lines), {LINES})]
kinds = [kind for text in llm_query_batched(parts) for kind in text.split()]
"""
HALVES: Final = """
lines = context.splitlines()
halves = ["\\n".join(lines[:len(lines) // 2]), "\\n".join(lines[len(lines) // 2:])]
"""
FOUND: Final = {
    "count": "found = [kinds.count('river')]",
    "pairs": "found = [kinds.count('river'), kinds.count('painter')]",
}
"""What the last level finds, by question."""
JOINED: Final = "import json\nfound = [sum(each) for each in zip(*map(json.loads, found))]"
"""What the levels above make of it."""
QUESTIONS: Final = {
    "count": "How many records ask for a river?",
    "pairs": "How many pairs of a river and a painter are there?",
}


def records(size: int) -> tuple[str, list[str]]:
    """Return lines of about so many characters in all, and the kind of each, which only the number of its name tells."""
    chance, lines, kinds, length = random.Random(size), [], [], 0
    while length < size:
        kind = chance.randrange(len(KINDS))
        number = len(KINDS) * chance.randrange(100_000) + kind
        lines.append(f"{chance.choice(('Where', 'Who', 'When'))} was it with N{number}?")
        kinds.append(KINDS[kind])
        length += len(lines[-1]) + 1
    return "\n".join(lines), kinds


def expected(question: str, kinds: list[str]) -> str:
    """Return the right answer."""
    rivers, painters = kinds.count("river"), kinds.count("painter")
    return str(rivers if question == "count" else rivers * painters)


def reader() -> ScriptedModel:
    """Make the model that reads parts: it knows the kind of each line."""

    def script(messages: list[ModelMessage], info: Any) -> str:
        del info
        prompt = "\n".join(str(part.content) for part in messages[-1].parts if isinstance(part, UserPromptPart))
        return " ".join(KINDS[int(number) % len(KINDS)] for number in re.findall(r"N(\d+)\?", prompt))

    return ScriptedModel(script, chunk_chars=10_000)


def actor(question: str, depth: int) -> ScriptedModel:
    """Make the model that acts by code: it halves the context up to the last level, and asks about each part there."""

    def script(messages: list[ModelMessage], info: Any) -> str:
        del info
        prompt = first_prompt(messages)
        level = prompt.count("half of ") + 1
        end = "import math\nFINAL(math.prod(found))" if level == 1 else "FINAL(found)"
        if level == depth:
            return f"```repl\n{LABELS}{FOUND[question]}\n{end}\n```"
        prompts = [f"{name} half of {'half of ' * (level - 1)}the records" for name in ("first", "second")]
        return f"```repl\n{HALVES}found = rlm_query_batched({prompts!r}, halves)\n{JOINED}\n{end}\n```"

    return ScriptedModel(script)


def run(*, small: bool = False) -> dict[str, Any]:
    """All figures; small: 32 KB alone."""
    load, series = OtherLoad(), Series()
    for name, question, size, depth in _cases(small=small):
        context, kinds = records(size)
        rlm = RLM(model=actor(question, depth), sub_model=reader(), max_depth=depth)
        began = time.perf_counter()
        completion = rlm.completion(context, QUESTIONS[question])
        series.add(name, "exact", float(completion.response == expected(question, kinds)))
        series.add(name, "requests", completion.usage.turns)
        series.add(name, "tokens", completion.usage.tokens)
        series.add(name, "ms", (time.perf_counter() - began) * 1000)
    rows: list[Row | None] = [series.row(name, "", Goal(of="exact", at_least=1.0)) for name in series.values]
    return report("recursion", rows, load)


def _cases(*, small: bool) -> Iterator[tuple[str, str, int, int]]:
    for label, size in SIZES.items():
        for question in QUESTIONS:
            for depth in DEPTHS:
                if not small or label == "32 KB":
                    yield f"{question}, {label}, depth {depth}", question, size, depth


if __name__ == "__main__":
    main(run)
