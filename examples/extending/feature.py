"""A feature of your own: after three failed cells in a row a person is asked what to do. `--model NAME` asks a real model.

`AskAfterFailures` lives as long as the agent, `FailuresOfRun` as long as one run of it or of a child.
"""

import argparse
import asyncio
from typing import TypeVar

from pydantic_ai.messages import ModelMessage, ToolCallPart
from pydantic_ai.models.function import AgentInfo

from freeact_sub import (
    Agent,
    CodeAction,
    EndedCall,
    Feature,
    FeatureAgent,
    PersonQuestion,
    Proceed,
    QuestionRequest,
    RequestedCall,
    RunPart,
    default_features,
    load_config,
)
from freeact_sub.testing import ScriptedModel, Turn

T = TypeVar("T")

PROMPT = "Print the sum of the numbers in the variable that the user names."


class AskAfterFailures(Feature):
    """Asks a person when an agent does not get on."""

    def __init__(self, failures: int = 3) -> None:
        """Args: failures: failed cells in a row."""
        self.failures = failures

    def run(self, agent: FeatureAgent) -> RunPart:
        """Count in each run anew."""
        del agent
        return FailuresOfRun(self.failures)


class FailuresOfRun(RunPart):
    """Counts the failed cells of one run."""

    def __init__(self, bound: int) -> None:
        self.bound, self.failures = bound, 0

    async def call(self, call: RequestedCall, proceed: Proceed[T]) -> EndedCall[T]:
        """Run a call; after too many failed cells, add the answer of a person to what the model reads."""
        ended = await proceed()
        if not isinstance(call.call, CodeAction):
            return ended
        self.failures = self.failures + 1 if ended.outcome == "failed" else 0
        if self.failures < self.bound:
            return ended
        self.failures = 0
        question = PersonQuestion(prompt=f"{self.bound} cells have failed. What should {call.agent.name} do?")
        answer = await call.agent.ask_person(question, tool_call_id=call.tool_call_id, clock=call.clock)
        return ended.noted(f"[The user says: {answer.text}]") if answer.text else ended


async def main(model: str | None) -> None:
    """Run one prompt in mode `full`, and answer the question of the feature."""
    config, features = load_config(arguments={"mode": "full"}), [*default_features(), AskAfterFailures()]
    async with Agent(config, model=model or ScriptedModel(script), features=features) as agent, agent.run(PROMPT) as run:
        async for event in run:
            if isinstance(event, QuestionRequest):
                print(event.prompt)
                event.answer("Define `numbers = [20, 22]` first.")
        result = await run.result()
    print(result.output)
    if result.status != "completed":
        raise SystemExit(f"{result.status}: {result.error}")


def script(messages: list[ModelMessage], info: AgentInfo) -> Turn:
    """What the scripted model does: it guesses names, until it reads the answer."""
    del info
    told = "[The user says: Define `numbers" in str(messages[-1].parts)
    names = ["data", "values", "xs"]
    turn = sum(message.kind == "response" for message in messages)
    if turn < len(names):
        return ToolCallPart("execute_ipython_cell", {"code": f"print(sum({names[turn]}))"})
    if told:
        return ToolCallPart("execute_ipython_cell", {"code": "numbers = [20, 22]\nprint(sum(numbers))"})
    return "The sum is 42." if "42" in str(messages[-1].parts) else "I do not know."


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", metavar="NAME", help="a real model, such as anthropic:NAME (default: a script)")
    asyncio.run(main(parser.parse_args().model))
