"""What openai's client makes of requests and answers with most of its work spared: the same as ever."""

import sys
from importlib import import_module
from typing import get_args

import pytest
from openai import omit
from openai._models import construct_type
from openai._utils import PropertyInfo, async_maybe_transform
from openai._utils._transform import get_type_hints
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessage
from openai.types.chat import completion_create_params as chat
from openai.types.responses import response_create_params as responses
from support.agents import read
from support.chat_server import ChatServer
from typing_extensions import is_typeddict

from freeact_sub import Agent, Config
from freeact_sub.models.openai_client import REQUESTS, spare_work
from freeact_sub.testing import FakeKernelProvider

TYPES = [getattr(module, name) for module in (chat, responses) for name in sorted(REQUESTS) if hasattr(module, name)]
WORK = "_async_transform_recursive"


class Calls:
    """Counts the calls of a function by its name."""

    def __init__(self, name):
        self.count, self._name = 0, name

    def __enter__(self):
        sys.setprofile(self._look)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)

    def _look(self, frame, event, _):
        self.count += event == "call" and frame.f_code.co_name == self._name


def fields_with_another_form(kind):
    """Of a type of requests, and all types in it."""
    seen, found = set(), []

    def look(hint, path):
        found.extend(path for one in getattr(hint, "__metadata__", ()) if isinstance(one, PropertyInfo) and one.alias)
        if is_typeddict(hint) and hint not in seen:
            seen.add(hint)
            for name, inner in get_type_hints(hint, include_extras=True).items():
                look(inner, f"{path}.{name}")
        for inner in get_args(hint):
            look(inner, path)

    look(kind, kind.__name__)
    assert len(seen) > 20
    return found


@pytest.mark.parametrize("kind", TYPES)
def test_no_field_of_a_request_has_another_name_in_json(kind):
    assert len(TYPES) == 4
    assert fields_with_another_form(kind) == []


@pytest.mark.usefixtures("allow_model_requests")
async def test_a_conversation_is_sent_as_it_is(tmp_path):
    config = Config(workspace=tmp_path, model="openai-chat:local", mode="full")
    async with ChatServer(lambda _: ["Done."]) as server:
        config = config.model_copy(update={"base_url": server.base_url})
        async with Agent(config, kernel_provider=FakeKernelProvider()) as agent:
            for _ in range(3):
                with Calls(WORK) as calls:
                    await read(agent.run("go"))
    assert calls.count == 0
    assert [message["role"] for message in server.requests[-1]["messages"]] == ["system", *["user", "assistant"] * 2, "user"]


@pytest.mark.parametrize("kind", TYPES)
async def test_what_was_not_given_is_left_out_and_what_is_not_json_is_made_so(kind):
    spare_work()
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    plain = {"model": "x", "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [call]}]}
    with Calls(WORK) as calls:
        assert await async_maybe_transform({**plain, "temperature": omit}, kind) == plain
    assert calls.count == 0
    answer = ChatCompletionMessage(role="assistant", content="hi")
    messages = [{"role": "assistant", "content": "hi"}]
    assert await async_maybe_transform({"messages": [answer], "seed": omit}, chat.CompletionCreateParamsStreaming) == {
        "messages": messages
    }
    assert await async_maybe_transform({"messages": iter(messages)}, chat.CompletionCreateParamsStreaming) == {
        "messages": messages
    }


CHUNK = {
    "id": "1",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "x",
    "choices": [{"index": 0, "delta": {"content": "hi", "reasoning": "so", "role": None}, "finish_reason": None, "x": [1]}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3, "cost": 0.5},
    "timings": {"predicted_n": 2},
}
CALL = {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{"}}]}


@pytest.mark.parametrize(
    ("changes", "is_valid"),
    [
        ({}, True),
        ({"usage": None}, True),
        ({"choices": []}, True),
        ({"choices": [{"index": 0, "delta": CALL, "finish_reason": "tool_calls"}]}, True),
        ({"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "eos"}]}, False),
        ({"choices": [{"delta": {"role": "narrator"}}]}, False),
        ({"created": None, "model": None}, False),
    ],
)
def test_a_piece_of_an_answer_is_the_same_and_one_that_is_not_valid_is_read_too(changes, is_valid):
    module = import_module("openai._base_client")
    spare_work()
    with Calls("construct") as calls:
        read_now = module.construct_type(value=CHUNK | changes, type_=ChatCompletionChunk)
    read_before = construct_type(value=CHUNK | changes, type_=ChatCompletionChunk)
    assert (calls.count == 0) is is_valid
    assert read_now == read_before
    for one in (read_now, read_before):
        assert type(one) is ChatCompletionChunk
    assert read_now.model_dump(warnings=False) == read_before.model_dump(warnings=False)
    given = [one.model_dump(exclude_unset=True, warnings=False) for one in (read_now, read_before)]
    assert given[0] == given[1]


def test_its_functions_are_replaced_once():
    modules = import_module("openai._utils._transform"), import_module("openai._base_client")
    spare_work()
    first = modules[0].async_transform, modules[1].construct_type
    spare_work()
    assert (modules[0].async_transform, modules[1].construct_type) == first
