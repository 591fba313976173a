"""An agent asks its user: its model by the tool `ask_user`, its code by `agent.ask_user`. `--model NAME` asks a real model.

In the terminal and in notebooks a person answers with keys or clicks. Here the program does, from the events.
"""

import argparse
import asyncio

from pydantic_ai.messages import ModelMessage, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo

from freeact_sub import Agent, load_config
from freeact_sub.events import ApprovalRequest, QuestionRequest
from freeact_sub.testing import ScriptedModel, Turn

PROMPT = "Plan a picnic. Ask me where it should be, and in one form for how many people and on which day."

CELL = """
import dataclasses
from typing import Literal

@dataclasses.dataclass
class Picnic:
    people: int
    day: Literal["Saturday", "Sunday"]

picnic = await agent.ask_user(form=Picnic)
print(f"{picnic.people} people on {picnic.day}")
"""

ANSWERS = {"Where should it be?": "by the river", "people": "six", "day": "Sunday"}


async def main(model: str | None) -> None:
    """Run the prompt, and answer what the agent asks."""
    async with Agent(load_config(), model=model or ScriptedModel(script)) as agent, agent.run(PROMPT) as run:
        async for event in run:
            if isinstance(event, QuestionRequest):
                answer(event)
            elif isinstance(event, ApprovalRequest):
                event.approve()
        result = await run.result()
    print(f"{result.status}: {result.text}")
    if result.status != "completed":
        raise SystemExit(result.error)


def answer(question: QuestionRequest) -> None:
    """Answer by the names of the fields; what is no answer is refused, and the question stays open."""
    values = {field.name: ANSWERS.get(field.name) or next(iter(field.rows), "6") for field in question.fields}
    for field in question.fields:
        print(f"asked for {field.name}: {' or '.join(field.rows) or field.kind}")
    try:
        question.answer(values)
    except ValueError as error:
        print(f"refused: {error}")
        question.answer(values | {"people": "6"})


def script(messages: list[ModelMessage], info: AgentInfo) -> Turn:
    """Stands in for a model: a question with choices, a cell that asks by a form, an answer."""
    del info
    done = [part.content for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    if not done:
        return ToolCallPart("ask_user", {"questions": [{"question": "Where should it be?", "choices": ["park", "beach"]}]})
    if len(done) == 1:
        return ToolCallPart("execute_ipython_cell", {"code": CELL})
    return f"A picnic {done[0]}: {done[1]}."


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", metavar="NAME", help="a real model, such as anthropic:NAME (default: a script)")
    asyncio.run(main(parser.parse_args().model))
