"""A model sees the pictures that come with a prompt, where it can see pictures."""

from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import BinaryContent
from pydantic_ai.messages import ModelMessage

from freeact_sub import Agent, Config
from freeact_sub.testing import FakeKernelProvider, ScriptedModel

PICTURE = BinaryContent(b"\x89PNG picture", media_type="image/png")


@pytest.mark.parametrize("shows", [True, False])
async def test_a_picture_goes_along_with_its_prompt_and_stays_in_the_conversation(tmp_path: Path, shows: bool) -> None:
    seen: list[Any] = []

    def script(messages: list[ModelMessage], _info: Any) -> str:
        seen.append([part.content for message in messages for part in message.parts if part.part_kind == "user-prompt"])
        return "a picture"

    config = Config(workspace=tmp_path, kernel={"show_images_to_model": shows})
    async with Agent(config, model=ScriptedModel(script), kernel_provider=FakeKernelProvider()) as agent:
        first = await agent.run("what is it?", pictures=[PICTURE]).result()
        second = await agent.run("and now?").result()
    assert (first.status, second.status) == ("completed", "completed")
    prompt = ["what is it?", PICTURE] if shows else "what is it?"
    assert seen == [[prompt], [prompt, "and now?"]]
