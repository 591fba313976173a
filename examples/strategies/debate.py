"""A debate: three debaters answer a question, read each other's answers, and answer again; the majority counts.

One of them errs at first and lets the others convince it. Each answers in a conversation of its own, by plain requests
without tools; with `Member(acts=True)` it would be a child agent that runs code. `--model NAME` asks a real model.
"""

import argparse
import asyncio

from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo

from freeact_sub import Agent, load_config
from freeact_sub.strategies import Debate, Member, debate
from freeact_sub.testing import ScriptedModel, Turn, first_prompt

QUESTION = (
    "A snail climbs 3 m by day and slips 2 m by night. On which day is it at the top of a wall of 10 m? The number only."
)
DEBATERS = [Member(name=name, role=f"You are {name}.") for name in ("quick", "careful", "sceptical")]


async def main(model: str | None) -> None:
    """Have the debate, and show who has said what in each round."""
    async with Agent(load_config(), model=model or ScriptedModel(script)) as agent:
        result = await agent.run_program(lambda: debate(agent, QUESTION, DEBATERS, rounds=2)).result()
    if result.status != "completed":
        raise SystemExit(f"{result.status}: {result.error}")
    found: Debate = result.output
    for number, answers in enumerate(found.rounds, 1):
        said = ", ".join(f"{member.name}: {answer}" for member, answer in zip(DEBATERS, answers, strict=True))
        print(f"round {number}  {said}")
    print(f"{found.vote.votes} of {len(DEBATERS)} say: {found.answer}")


def script(messages: list[ModelMessage], info: AgentInfo) -> Turn:
    """Stands in for a model: it forgets at first, in one role, that the snail does not slip from the top."""
    del info
    has_answered = any(isinstance(message, ModelResponse) for message in messages)
    return "10" if "You are quick." in first_prompt(messages) and not has_answered else "8"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", metavar="NAME", help="a real model, such as anthropic:NAME (default: a script)")
    asyncio.run(main(parser.parse_args().model))
