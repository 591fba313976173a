"""Thoughts in tags are taken out of a text in the same way, however a server cuts its stream."""

import itertools
import random

import pytest
from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, ThinkingPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from support.tables import each
from support.thorough import examples, sample
from support.wire import CHAT, PROTOCOLS, answered, chunk, client_of

from freeact_sub import Config
from freeact_sub.models import make_traffic
from freeact_sub.models.code_actions import CodeActionsModel

pytestmark = pytest.mark.usefixtures("allow_model_requests")

TEXTS = [
    ("<think>\nhm\n</think>\n\nThe answer is 5.", "\nhm\n", "The answer is 5."),
    ("\n <think>hm</think>5", "hm", "5"),
    ("<think></think>5", "", "5"),
    ("<think>a<b</th></think>\n<think>c</think> 5 < 6", "a<b</th>\nc", "5 < 6"),
    ("<think>never closed </thin", "never closed </thin", ""),
    ("<thinker> is no tag", "", "<thinker> is no tag"),
    ("<thi", "", "<thi"),
    ("Models write <think> and </think>.", "", "Models write <think> and </think>."),
    ("```python\nre.sub('<think>.*</think>', '', s)\n```", "", "```python\nre.sub('<think>.*</think>', '', s)\n```"),
    ("\n\n  indented", "", "\n\n  indented"),
    ("<think>in words: </think> Zürich 🙂", "in words: ", "Zürich 🙂"),
]


def model_of(name, *pieces):
    """A model whose server sends this text in these pieces."""
    body = [*PROTOCOLS[name].texts(pieces), PROTOCOLS[name].end]
    client = client_of(*body)
    if name == "messages":
        return AnthropicModel("m", provider=AnthropicProvider(api_key="k", base_url="http://m", http_client=client))
    provider = OpenAIProvider(api_key="k", base_url="http://m/v1", http_client=client)
    return (OpenAIChatModel if name == "chat" else OpenAIResponsesModel)("m", provider=provider)


async def read(model):
    """The thoughts and the text of an answer, after a look whether its events tell the same."""
    lane = make_traffic(Config()).lane(model)
    acting = CodeActionsModel(model, lane=lane, patience_seconds=0, stall_seconds=60, code_actions="tool")
    told = {}
    async with acting.request_stream([], None, ModelRequestParameters()) as stream:
        async for event in stream:
            match event:
                case PartStartEvent(index=index, part=part):
                    assert index not in told
                    told[index] = [type(part), part.content]
                case PartDeltaEvent(index=index, delta=delta):
                    told[index][1] += delta.content_delta
        response = stream.get()
    parts = [[type(part), part.content] for part in response.parts]
    assert parts == [told[index] for index in sorted(told)]
    assert [kind for kind, content in parts if content] in ([], [ThinkingPart], [TextPart], [ThinkingPart, TextPart])
    return tuple("".join(content for kind, content in parts if kind is wanted) for wanted in (ThinkingPart, TextPart))


@each("name", PROTOCOLS)
@each(("text", "thoughts", "words"), TEXTS)
@pytest.mark.slow
async def test_each_way_to_cut_a_text_gives_the_same_parts(name, text, thoughts, words):
    ways = [[text], list(text), *([text[:place], text[place:]] for place in sample(range(1, len(text)), 8))]
    for number in sample(range(20), 4):
        source = random.Random(number)
        places = sorted(source.sample(range(len(text) + 1), min(len(text), source.randrange(2, 6))))
        ways.append([text[start:end] for start, end in itertools.pairwise([0, *places, len(text)])])
    for pieces in ways:
        assert await read(model_of(name, *pieces)) == (thoughts, words), pieces


async def test_all_ways_to_cut_a_short_text_give_the_same_parts():
    text = "<think>a</think> b"
    gaps = [place for place in range(1, len(text)) if text[place - 1] in "<k>/a b" or text[place] in "<>/"]
    ways = itertools.chain.from_iterable(itertools.combinations(gaps, size) for size in range(len(gaps) + 1))
    for places in itertools.islice(ways, examples(1 << len(gaps))):
        pieces = [text[start:end] for start, end in itertools.pairwise([0, *places, len(text)])]
        assert await read(model_of("chat", *pieces)) == ("a", "b"), pieces


async def test_a_thought_is_not_the_answer_and_goes_back_as_a_thought(tmp_path):
    call = CHAT.call(['{"code": "print(41)"}'])
    act = b"".join([*CHAT.texts(["<think>\nI run", " it.</think>\n\nI look."]), *call]) + CHAT.end_of_call
    answer = b"".join(CHAT.texts(["<think>done</think>It is 41."])) + CHAT.end
    result, server = await answered(tmp_path, act, answer)
    assert result.output == "It is 41."
    sent = [message for message in server.requests[1]["messages"] if message["role"] == "assistant"]
    assert "<think>\n\nI run it.\n</think>" in sent[0]["content"]


async def test_a_reply_that_is_asked_for_again_has_its_thoughts_taken_out_too(tmp_path):
    broken = b"".join(CHAT.texts(["The result"]))
    answer = b"".join(CHAT.texts(["<think>", "hm", "</think>", "It is 5."])) + CHAT.end
    result, server = await answered(tmp_path, broken, answer)
    assert (result.status, result.output, len(server.requests)) == ("completed", "It is 5.", 2)


async def test_a_reply_of_thoughts_alone_is_no_answer(tmp_path):
    thoughts = b"".join(CHAT.texts(["<think>hm, I ", "do not know</think>\n"])) + CHAT.end
    answer = b"".join([chunk({"content": piece}) for piece in ("<thi", "nk>now</think", ">\n", "It is 5.")]) + CHAT.end
    result, server = await answered(tmp_path, thoughts, answer)
    assert (result.output, len(server.requests)) == ("It is 5.", 2)
