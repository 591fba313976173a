"""One question about each row of a frame, with typed answers; a second call asks only the rows that failed.

It needs pandas in this Python. `--model NAME` asks a real model, `--kept-in FILE` keeps the answers for the next run.
"""

import argparse
import asyncio
import tempfile
from pathlib import Path
from typing import Literal

import pandas as pd
from pydantic import BaseModel
from pydantic_ai.messages import ModelMessage, ToolCallPart
from pydantic_ai.models.function import AgentInfo

from freeact_sub import Agent, load_config
from freeact_sub.testing import ScriptedModel, Turn, first_prompt

MESSAGES = ["Where is my parcel?", "Far too expensive!", "", "The parcel came late again!"]


class Label(BaseModel):
    """What is asked of each row."""

    topic: Literal["price", "delivery"]
    angry: bool


async def main(model: str | None, kept_in: Path) -> None:
    """Classify the messages twice."""
    frame = pd.DataFrame({"text": MESSAGES}, index=[101, 102, 103, 104])
    script = ScriptedModel(classify)
    async with Agent(load_config(), model=model or script) as agent:
        done = await agent.map(frame, "Classify this message: {text}", output=Label, kept_in=kept_in)
        print(done.drop(columns="error").to_string())
        print("failed:", *done.index[done.error.notna()])
        asked = script.requests
        await agent.map(frame, "Classify this message: {text}", output=Label, kept_in=kept_in)
    if done.error.notna().all():
        raise SystemExit(f"no row has an answer: {done.error.iloc[0]}")
    if model is None:
        print(f"{asked} requests, then {script.requests - asked}: the second call asked only the row that failed.")


def classify(messages: list[ModelMessage], info: AgentInfo) -> Turn:
    """Stands in for a model, which is unsure about an empty message."""
    text = first_prompt(messages).partition(": ")[2]
    if not text:
        return ToolCallPart(info.output_tools[0].name, {"topic": "unknown", "angry": False})
    topic = "delivery" if "parcel" in text else "price"
    return ToolCallPart(info.output_tools[0].name, {"topic": topic, "angry": text.endswith("!")})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", metavar="NAME", help="a real model, such as anthropic:NAME (default: a script)")
    parser.add_argument("--kept-in", metavar="FILE", type=Path, help="the file of answers (default: a temporary one)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(given.model, given.kept_in or Path(folder) / "answers.jsonl"))
