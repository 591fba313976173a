"""What a streamed reply costs the event loop, which all agents of a root share: work linear in its length.

Work is counted, not timed: the characters that our functions hold when they return. A function that looks at all that has
come with each new piece holds it then.
"""

import itertools
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic_ai.messages import ThinkingPart
from pydantic_ai.models import Model, StreamedResponse
from support.agents import cell, of_kind, read
from support.thorough import sample

import freeact_sub
from freeact_sub import Agent, Config
from freeact_sub.events import Response, ResponseChunk
from freeact_sub.testing import FakeKernelProvider

pytestmark = pytest.mark.slow

PACKAGE = str(Path(freeact_sub.__file__).parent)

REPLIES = {
    "prose": lambda size: "The sum is 5, see `x` and {y}; a line follows.\n" * (size // 47),
    "one line": lambda size: "word " * (size // 5),
    "fence": lambda size: "So:\n```python\n" + "print(sum(range(10)))\n" * (size // 22) + "```\n",
    "other fence": lambda size: "So:\n```text\n" + "print(sum(range(10)))\n" * (size // 22) + "```\n",
    "JSON": lambda size: '{"rows": [' + '{"name": "Ann", "age": 3}, ' * (size // 27) + "{}]}",
    "call as text": lambda size: '{"name": "task", "arguments": {"prompt": "' + "count the words " * (size // 16) + '"}}',
    "backticks": lambda size: "`" * size,
}


class Held:
    """Counts the characters in the variables of our functions, each time that one of them returns or yields."""

    def __init__(self):
        self.chars = 0

    def __enter__(self):
        sys.setprofile(self._look)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)

    def _look(self, frame, event, _):
        if event == "return" and frame.f_code.co_filename.startswith(PACKAGE):
            self.chars += sum(len(value) for value in frame.f_locals.values() if isinstance(value, str))


async def work_of(make, turns, **config):
    """The characters that are looked at in one run."""
    async with make(turns, config={"budget": {"turns": 3}, "mode": "full", **config}, chunk_chars=4) as agent:
        with Held() as held:
            await read(agent.run("go"))
        return held.chars


async def ratio_of(make, turns_of, size, **config):
    """How much more work a reply of twice the size is."""
    return await work_of(make, turns_of(2 * size), **config) / await work_of(make, turns_of(size), **config)


def test_who_looks_at_all_that_came_is_found():
    names = {}
    code = "def look(text):\n    return len(text)\n"
    exec(compile(code, f"{PACKAGE}/made_up.py", "exec"), names)

    def chars_of(size):
        with Held() as held:
            for end in range(0, size, 4):
                names["look"]("x" * end)
        return held.chars

    assert chars_of(4_000) / chars_of(2_000) > 3.9


@pytest.mark.parametrize(("kind", "code_actions"), sample([*itertools.product(REPLIES, ["tool", "block"])], 5))
async def test_text_is_work_in_proportion_to_its_length(make, kind, code_actions):
    assert await ratio_of(make, lambda size: [REPLIES[kind](size), "Done."], 2_000, code_actions=code_actions) < 2.5


async def test_the_check_for_small_models_is_linear_too(make):
    config = {"profile": "small", "code_actions": "tool"}
    assert await ratio_of(make, lambda size: [REPLIES["JSON"](size), "Done."], 2_000, **config) < 2.5


PARTS = {
    "one call": lambda size: [cell("x = 1\n" * (size // 6))],
    "several calls": lambda size: [cell("x = 1\n" * (size // 18))] * 3,
    "thinking": lambda size: [ThinkingPart("I count the words. " * (size // 19)), "So."],
    "thoughts, words and a call": lambda size: [
        ThinkingPart("x " * (size // 6)),
        "y " * (size // 6),
        cell("# " * (size // 6)),
    ],
}


@pytest.mark.parametrize(("kind", "code_actions"), sample([*itertools.product(PARTS, ["tool", "block"])], 3))
async def test_other_parts_are_work_in_proportion_to_their_length(make, kind, code_actions):
    assert await ratio_of(make, lambda size: [PARTS[kind](size), "Done."], 2_000, code_actions=code_actions) < 2.5


@dataclass(kw_only=True)
class OwnStream(StreamedResponse):
    text: str
    model_name = "own"
    provider_name = provider_url = None
    timestamp = datetime(2026, 1, 1, tzinfo=UTC)

    async def _get_event_iterator(self):
        for letter in self.text:
            for event in self._parts_manager.handle_text_delta(vendor_part_id=0, content=letter):
                yield event


class OwnModel(Model):
    """Of a person who has written one without any class of ours: sends single characters."""

    model_name = "own"
    system = "own"

    def __init__(self, text):
        super().__init__()
        self.text = text

    async def request(self, *_):
        raise NotImplementedError

    @asynccontextmanager
    async def request_stream(self, _messages, _settings, parameters, _context=None):
        yield OwnStream(model_request_parameters=parameters, text=self.text)


OWN = [*itertools.product(["prose", "one line", "other fence", "JSON"], ["tool", "block"])]


@pytest.mark.parametrize(("kind", "code_actions"), sample(OWN, 3))
async def test_single_characters_of_a_model_of_ones_own_are_too(tmp_path, kind, code_actions):
    chars = []
    for size in (1_000, 2_000):
        text = REPLIES[kind](size)
        config = Config(workspace=tmp_path, mode="full", code_actions=code_actions)
        async with Agent(config, model=OwnModel(text), kernel_provider=FakeKernelProvider()) as agent:
            with Held() as held:
                events, _ = await read(agent.run("go"))
        chars.append(held.chars)
        assert "".join(event.content for event in of_kind(events, ResponseChunk)) == text
        assert [event.content for event in of_kind(events, Response)] == [text]
    assert chars[1] / chars[0] < 2.5
