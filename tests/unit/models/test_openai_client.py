"""What openai's client makes of requests and answers with most of its work spared: the same as ever."""

import copy
import json
import sys
from typing import get_args

import pytest
from openai import AsyncAzureOpenAI, AsyncOpenAI, _base_client, omit
from openai._models import construct_type
from openai._utils import PropertyInfo, _transform
from openai._utils._transform import get_type_hints
from openai.resources.chat import AsyncCompletions
from openai.resources.responses import AsyncResponses
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessage
from openai.types.chat import completion_create_params as chat
from openai.types.responses import response_create_params as responses
from pydantic import BaseModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from support.agents import read
from support.chat_server import ChatServer
from typing_extensions import is_typeddict

from freeact_sub import Agent, Config
from freeact_sub.models import build_model, make_traffic, usable_model
from freeact_sub.models.openai_client import spare_work
from freeact_sub.testing import FakeKernelProvider

REQUESTS = [f"{what}CreateParams{how}" for what in ("Completion", "Response") for how in ("Streaming", "NonStreaming")]
TYPES = [getattr(module, name) for module in (chat, responses) for name in REQUESTS if hasattr(module, name)]
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


def client_at(base_url):
    """The client of a model that the settings name."""
    return build_model(Config(model="openai-chat:local", base_url=base_url)).client


def own_client():
    return client_at("http://127.0.0.1:9/v1")


class Sent:
    """Catches what a client would send, instead of sending it."""

    def __init__(self, client):
        self.body = self.path = None
        client._client.send = self._send  # noqa: SLF001  # as late as can be: what is left is HTTP

    async def _send(self, request, **_):
        self.body, self.path = json.loads(request.content), request.url.path
        raise KeyboardInterrupt


CALL_MADE = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk=", "detail": "auto"}}
SOUND = {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}}
FILE = {"type": "file", "file": {"file_data": "data:application/pdf;base64,aGk=", "filename": "a.pdf"}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": True}}
CHAT = {
    "messages": [
        {"role": "system", "content": "you"},
        {"role": "user", "content": [{"type": "text", "text": "ü\u2028"}, PICTURE, SOUND, FILE]},
        {"role": "assistant", "content": None, "reasoning_content": "so", "tool_calls": [CALL_MADE]},
        {"role": "tool", "tool_call_id": "1", "content": "2"},
    ],
    "tools": [TOOL],
}
RESPONSES = {
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}, {"type": "input_file", "file_data": "aGk="}]},
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "so"}], "encrypted_content": "x"},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "2"}]},
    ],
    "tools": [{"type": "function", "name": "f", "parameters": SCHEMA, "strict": False}],
}
NOT_JSON = ChatCompletionMessage(role="assistant", content="hi")


@pytest.mark.parametrize(
    ("resource", "request_", "is_ready"),
    [
        ("chat", CHAT, True),
        ("chat", CHAT | {"extra_body": {"top_k": 1, "messages": []}}, True),
        ("chat", CHAT | {"tools": omit, "temperature": omit, "seed": 1, "extra_body": {}}, True),
        ("chat", {"messages": [NOT_JSON]}, False),
        ("chat", {"messages": iter(CHAT["messages"])}, False),
        ("responses", RESPONSES, True),
        ("responses", {"input": "hi", "extra_body": None}, True),
    ],
)
async def test_the_same_is_sent_as_ever(resource, request_, is_ready):
    bodies, counts = [], []
    own = own_client()
    for client in own, own.with_options(max_retries=0), AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="none"):
        sent, what = Sent(client), copy.copy(request_)
        if "messages" in what and not isinstance(what["messages"], list):
            what["messages"] = iter(CHAT["messages"])
        create = client.chat.completions.create if resource == "chat" else client.responses.create
        with Calls(WORK) as calls, pytest.raises(KeyboardInterrupt):
            await create(model="x", stream=True, **what)
        bodies.append(sent.body)
        counts.append(calls.count)
    assert bodies[0] == bodies[1] == bodies[2]
    assert max(counts[:2]) < 6 or not is_ready


async def test_azures_address_names_the_model():
    client = AsyncAzureOpenAI(api_key="none", api_version="1", azure_endpoint="http://127.0.0.1:9")
    spare_work(OpenAIChatModel("local", provider=OpenAIProvider(openai_client=client)))
    assert type(client) is not AsyncAzureOpenAI
    sent = Sent(client)
    with pytest.raises(KeyboardInterrupt):
        await client.chat.completions.create(model="x", **CHAT)
    assert sent.path.endswith("/deployments/x/chat/completions")
    assert sent.body == {"model": "x", **CHAT}


@pytest.mark.usefixtures("allow_model_requests")
async def test_work_for_a_request_does_not_grow_with_the_conversation(tmp_path):
    counts = []
    async with ChatServer(lambda _: ["Done."]) as server:
        config = Config(workspace=tmp_path, model="openai-chat:local", mode="full", base_url=server.base_url)
        async with Agent(config, kernel_provider=FakeKernelProvider()) as agent:
            for _ in range(3):
                with Calls(WORK) as calls:
                    await read(agent.run("go"))
                counts.append(calls.count)
    assert counts[0] == counts[2] < 10
    assert [message["role"] for message in server.requests[-1]["messages"]] == ["system", *["user", "assistant"] * 2, "user"]


def functions_of_openai():
    return [dict(vars(one)) for one in (_base_client, _transform, AsyncOpenAI, AsyncCompletions, AsyncResponses)]


def test_other_clients_stay_as_they_are():
    before = functions_of_openai()
    own = own_client()
    assert type(own) is not AsyncOpenAI
    assert isinstance(own, AsyncOpenAI)
    assert functions_of_openai() == before
    theirs = OpenAIChatModel("local", provider=OpenAIProvider(openai_client=AsyncOpenAI(api_key="none")))
    usable_model(Config(), make_traffic(Config()), theirs)
    assert type(theirs.client) is AsyncOpenAI


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
        ({"choices": [{"index": "0", "delta": {"content": "hi"}, "finish_reason": None}]}, False),
        ({"choices": None}, False),
        ({"created": None, "model": None}, False),
        ({"created": "1"}, False),
        ({"created": 1.0}, False),
        ({"created": True}, False),
        ({"service_tier": "on_demand"}, False),
    ],
)
def test_a_piece_of_an_answer_is_the_same_and_one_that_is_not_valid_is_read_too(changes, is_valid):
    read_piece = own_client().with_options(max_retries=0)._process_response_data  # noqa: SLF001  # each piece comes through it
    with Calls("construct") as calls:
        read_now = read_piece(data=CHUNK | changes, cast_to=ChatCompletionChunk, response=None)
    read_before = construct_type(value=CHUNK | changes, type_=ChatCompletionChunk)
    assert (calls.count == 0) is is_valid
    assert types_in(read_now) == types_in(read_before)
    assert read_now.model_dump(warnings=False) == read_before.model_dump(warnings=False)
    given = [one.model_dump(exclude_unset=True, warnings=False) for one in (read_now, read_before)]
    assert given[0] == given[1]


def types_in(value):
    """1, 1.0, True and "1" are not the same."""
    if isinstance(value, BaseModel):
        return type(value), types_in(vars(value) | (value.model_extra or {}))
    if isinstance(value, dict):
        return {name: types_in(one) for name, one in value.items()}
    return [types_in(one) for one in value] if isinstance(value, list) else type(value)
