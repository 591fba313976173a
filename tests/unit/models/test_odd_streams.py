"""Streams of servers that keep to their protocol loosely: each call comes out whole, as a part of its own."""

import copy
import json
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from support.tables import each
from support.thorough import examples
from support.wire import client_of

from freeact_sub import Config
from freeact_sub.models import make_traffic
from freeact_sub.models.borrowed_stream import ADDED
from freeact_sub.models.code_actions import USUAL_TAGS, CodeActionsModel
from freeact_sub.models.repairs import OddReply, in_order

pytestmark = pytest.mark.usefixtures("allow_model_requests")

PLAIN: Any = {"previous_part_kind": None, "canonical_system": None}
"""Facts that pydantic-ai adds to an event when it passes."""


def openai(*pieces: bytes) -> Model:
    client = AsyncOpenAI(api_key="k", base_url="http://m/v1", http_client=client_of(*pieces), max_retries=0)
    return OpenAIChatModel("m", provider=OpenAIProvider(openai_client=client))


def anthropic(*pieces: bytes) -> Model:
    client = AsyncAnthropic(api_key="k", base_url="http://m", http_client=client_of(*pieces), max_retries=0)
    return AnthropicModel("m", provider=AnthropicProvider(anthropic_client=client))


def chunk(*calls: dict[str, Any], finish: str | None = None, text: str | None = None) -> bytes:
    delta: dict[str, Any] = {"tool_calls": [{"type": "function", **call} for call in calls]} if calls else {}
    if text is not None:
        delta["content"] = text
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return f"data: {json.dumps({**head, 'choices': [choice]})}\n\n".encode()


END = chunk(finish="tool_calls") + b"data: [DONE]\n\n"


def piece(arguments: Any, *, index: int = 0, call_id: str | None = None, name: str | None = None) -> dict[str, Any]:
    return {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}


async def answer_of(model: Model) -> ModelResponse:
    """The answer, after a look whether its events tell of the same calls."""
    lane = make_traffic(Config()).lane(model, stands_in=False)
    acting = CodeActionsModel(model, lane=lane, patience_seconds=0, stall_seconds=60, code_actions="tool")
    told: dict[int, list[Any]] = {}
    spoken: dict[int, str] = {}
    async with acting.request_stream([ModelRequest.user_text_prompt("go")], None, ModelRequestParameters()) as stream:
        async for event in stream:
            match event:
                case PartStartEvent(index=index, part=ToolCallPart() as part):
                    assert index not in told
                    told[index] = [part.tool_name, part.args or "", part.tool_call_id]
                case PartStartEvent(index=index, part=TextPart(content=text)):
                    spoken[index] = text
                case PartDeltaEvent(index=index, delta=TextPartDelta(content_delta=text)):
                    spoken[index] += text
                case PartDeltaEvent(index=index, delta=ToolCallPartDelta() as delta):
                    told[index][0] += delta.tool_name_delta or ""
                    told[index][1] += delta.args_delta or ""
                    told[index][2] = delta.tool_call_id or told[index][2]
        response = stream.get()
    assert {
        index: [part.tool_name, part.args or "", part.tool_call_id]
        for index, part in enumerate(response.parts)
        if isinstance(part, ToolCallPart)
    } == told
    assert {n: part.content for n, part in enumerate(response.parts) if isinstance(part, TextPart)} == spoken
    return response


async def calls_of(*pieces: bytes) -> list[tuple[str | None, str, Any]]:
    """Id, name and arguments of each call; None for an id that the server has not given."""
    response = await answer_of(openai(*pieces))
    calls = [part for part in response.parts if isinstance(part, ToolCallPart)]
    assert len({call.tool_call_id for call in calls}) == len(calls)
    return [
        (None if call.tool_call_id.startswith("pyd_ai_") else call.tool_call_id, call.tool_name, call.args) for call in calls
    ]


TWO = [("a", "f", '{"x": 1}'), ("b", "f", '{"x": 2}')]
WITHOUT_ID = [(None, *call[1:]) for call in TWO]


@each(
    ("pieces", "calls"),
    [
        ([piece('{"x": 1}', call_id="a", name="f"), piece('{"x": 2}', call_id="b", name="f")], TWO),
        ([piece('{"x"', call_id="a", name="f"), piece(": 1}"), piece('{"x": 2}', call_id="b", name="f")], TWO),
        ([piece('{"x"', call_id="a", name="f"), piece(": 1}", call_id="a", name="f")], TWO[:1]),
        ([piece('{"x"', call_id="a", name="f"), piece(": 1}", name="f")], TWO[:1]),
        ([piece('{"x": 1}', name="f"), piece('{"x": 2}', name="f")], WITHOUT_ID),
        ([piece('{"x": 1}', call_id="a", name="f"), piece('{"x": 2}', index=1, call_id="b", name="f")], TWO),
        ([piece("", call_id="a", name="f"), piece('{"x": 1}')], TWO[:1]),
        # each piece has an id of its own, or the id comes late
        ([piece('{"x"', call_id="a", name="f"), piece(": 1}", call_id="other")], TWO[:1]),
        ([piece('{"x"', name="f"), piece(": 1}", call_id="a")], TWO[:1]),
        # the last piece tells all but the arguments once more
        ([piece('{"x": 1}', call_id="a", name="f"), piece("", call_id="a", name="f")], TWO[:1]),
        ([piece('{"x": 1}', name="f"), piece("", name="f")], WITHOUT_ID[:1]),
        (
            [piece('{"x": 1}', call_id=7, name="f"), piece('{"x": 2}', call_id=8, name="f")],
            [("7", *TWO[0][1:]), ("8", *TWO[1][1:])],
        ),  # type: ignore[arg-type]
        # two calls have one id
        ([piece('{"x": 1}', call_id="a", name="f"), piece('{"x": 2}', call_id="a", name="f")], [TWO[0], WITHOUT_ID[1]]),
        (
            [piece('{"x": 1}', call_id="a", name="f"), piece('{"x": 2}', index=1, call_id="a", name="f")],
            [TWO[0], WITHOUT_ID[1]],
        ),
        # the arguments are an object, or none
        ([piece({"x": 1}, call_id="a", name="f")], TWO[:1]),
        ([piece({"x": 1}, name="f"), piece({"x": 2}, name="f")], WITHOUT_ID),
        ([piece(None, call_id="a", name="f"), piece(None, call_id="b", name="g")], [("a", "f", None), ("b", "g", None)]),
    ],
)
async def test_calls_come_out_whole(pieces: list[dict[str, Any]], calls: list[Any]) -> None:
    assert await calls_of(*map(chunk, pieces), END) == calls


async def test_text_between_calls_that_were_joined_stays_where_it_was() -> None:
    first, second = piece('{"x": 1}', call_id="a", name="f"), piece('{"x": 2}', call_id="b", name="f")
    response = await answer_of(openai(chunk(text="one"), chunk(first), chunk(second), END))
    assert [getattr(part, "content", None) or part.args for part in response.parts] == ["one", '{"x": 1}', '{"x": 2}']


@each(
    ("texts", "whole"),
    [
        (["a", "\ud83d", "\ude00b"], "a\U0001f600b"),
        (["a\ud83d", "", "\ude00", "b"], "a\U0001f600b"),
        (["a\ud83d"], "a\\ud83d"),
        (["\ud83d", "b"], "\\ud83db"),
        (["\ude00", "b"], "\\ude00b"),
        (["\ud83d", "\ud83d", "\ude00"], "\\ud83d\U0001f600"),
        (["é", "\U0001f600"], "é\U0001f600"),
    ],
)
async def test_characters_come_out_whole(texts: list[str], whole: str) -> None:
    response = await answer_of(openai(*(chunk(text=text) for text in texts), chunk(finish="stop") + b"data: [DONE]\n\n"))
    assert [part.content for part in response.parts if isinstance(part, TextPart)] == [whole]
    pieces = [piece(f'{{"x": "{text}' if number == 0 else text, call_id="a", name="f") for number, text in enumerate(texts)]
    [(_, _, args)] = await calls_of(*map(chunk, pieces), chunk(piece('"}')), END)
    assert args == f'{{"x": "{whole}"}}'
    args.encode()


@each("make", [openai, anthropic])
@each("body", [b"", b": ping\n\n", b"\xef\xbb\xbf\r\n"])
async def test_a_stream_in_which_nothing_was_is_an_empty_answer(make: Any, body: bytes) -> None:
    response = await answer_of(make(body))
    assert (list(response.parts), response.model_name, response.finish_reason) == ([], "m", "stop")


async def test_a_stream_that_breaks_before_its_first_piece_is_no_empty_answer() -> None:
    async def broken(_messages: Any, _info: Any) -> AsyncIterator[str]:
        raise UnexpectedModelBehavior("what came is no answer")
        yield ""

    with pytest.raises(UnexpectedModelBehavior, match="what came is no answer"):
        await answer_of(FunctionModel(stream_function=broken))


async def test_random_calls_in_random_pieces_come_out_whole() -> None:
    for number in range(examples(10_000)):
        source = random.Random(number)
        calls = [
            (f"id{place}", source.choice("fg"), json.dumps({"x": source.randrange(999), "é": "ü🙂"}, ensure_ascii=False))
            for place in range(source.randrange(1, 4))
        ]
        all_at_zero, repeats_name, repeats_id = (source.random() < 0.5 for _ in range(3))
        chunks = [chunk()]
        for place, (call_id, name, arguments) in enumerate(calls):
            cuts = sorted(source.sample(range(len(arguments)), 2))
            for start, end in zip([0, *cuts], [*cuts, len(arguments)], strict=True):
                begins = start == 0
                chunks.append(
                    chunk(
                        piece(
                            arguments[start:end],
                            index=0 if all_at_zero else place,
                            call_id=call_id if begins or repeats_id else None,
                            name=name if begins or repeats_name else None,
                        )
                    )
                )
        body = b"".join([*chunks, END])
        if source.random() < 0.5:
            body = b": keep alive\r\n\r\n" + body.replace(b"\n", b"\r\n")
        wire_cuts = sorted(source.sample(range(len(body)), 9))
        wire = [body[start:end] for start, end in zip([0, *wire_cuts], [*wire_cuts, len(body)], strict=True)]
        assert await calls_of(*wire) == calls, number
    print(f"{examples(10_000):,} streams of a provider")


@dataclass(kw_only=True)
class RandomStream(StreamedResponse):
    """Any pieces in any order, as pydantic-ai reads them."""

    source: random.Random
    events: list[ModelResponseStreamEvent] = field(default_factory=list)
    model_name = "random"
    provider_name = provider_url = None
    timestamp = datetime(2026, 1, 1, tzinfo=UTC)

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        source, parts = self.source, self._parts_manager
        texts = ["a", "é ", "<thi", "nk>", "</think>", " \n", "", "\ud83d", "\ude00"][: source.choice([2, 3, 9])]
        ids, args = [None, "i", "j"], [None, '{"x": 1}', '{"x"', ": 1}", "\ud83d", {"x": "é"}]
        kinds = source.choice(["words", "words thoughts", "calls", "words thoughts calls"]).split()
        for _ in range(source.randrange(1, 9)):
            place = source.choice([None, 0, 1])
            try:
                match source.choice(kinds):
                    case "words":
                        made = [*parts.handle_text_delta(vendor_part_id=place, content=source.choice(texts))]
                    case "thoughts":
                        made = [*parts.handle_thinking_delta(vendor_part_id=place, content=source.choice(texts))]
                    case _:
                        is_new = place is None or parts.get_part_by_vendor_id(place) is None
                        call = {"tool_name": "f" if is_new else source.choice([None, "f"])}
                        call |= {"tool_call_id": source.choice(ids), "args": source.choice(args)}
                        made = [*parts.handle_tool_call_delta_events(vendor_part_id=place, **call)]
            except (UnexpectedModelBehavior, ValueError):
                continue
            self.events += [copy.deepcopy(event) for event in made]
            for event in made:
                yield event

    async def close_stream(self) -> None:
        """Nothing."""


async def test_repairs_that_begin_in_the_middle_of_a_reply_are_those_of_a_reply_that_was_repaired_from_its_beginning() -> (
    None
):
    lane, streams = make_traffic(Config()).lane(FunctionModel(lambda *_: ModelResponse(parts=[]))), list[RandomStream]()
    odd = 0

    class RandomModel(FunctionModel):
        @asynccontextmanager
        async def request_stream(self, _messages: Any, _settings: Any, parameters: Any, _context: Any = None) -> Any:
            streams.append(RandomStream(model_request_parameters=parameters, source=random.Random(len(streams))))
            yield streams[-1]

    model = RandomModel(lambda *_: ModelResponse(parts=[]))
    acting = CodeActionsModel(model, lane=lane, patience_seconds=0, stall_seconds=60, code_actions="tool")
    for number in range(examples(20_000)):
        async with acting.request_stream([], None, ModelRequestParameters()) as stream:
            told = [replace(event, **PLAIN) if isinstance(event, PartStartEvent) else event async for event in stream]
            told, answer = [event for event in told if not isinstance(event, ADDED)], stream.get()
        whole = OddReply([], USUAL_TAGS, drops_blanks=False)
        expected = [passed for event in streams[-1].events for passed in whole.passed(event)] + whole.rest()
        odd += expected != streams[-1].events
        response = replace(whole.whole(streams[-1].get()), timestamp=answer.timestamp)
        assert (without_made_ids(told), without_made_ids(answer.parts)) == (
            without_made_ids(expected),
            without_made_ids(response.parts),
        ), number
    assert 0.1 < odd / len(streams) < 0.9


def without_made_ids(value: Any) -> str:
    """The value as a text, in which ids that were made at random are numbered."""
    made: dict[str, str] = {}
    return re.sub(r"pyd_ai_\w+", lambda found: made.setdefault(found[0], f"made {len(made)}"), repr(value))


def test_an_answer_that_is_not_streamed_comes_out_whole() -> None:
    parts = [
        TextPart("a\ud83d"),
        ToolCallPart("f", {"x": "\ud83d"}, "a"),
        ToolCallPart("f", {"x": 1}, "a"),
        TextPart("\ud83d\ude00"),
    ]
    response = in_order(ModelResponse(parts=parts))
    text, first, second, emoji = response.parts
    assert isinstance(first, ToolCallPart)
    assert isinstance(second, ToolCallPart)
    assert (text, first.args, second.args, emoji) == (
        TextPart("a\\ud83d"),
        {"x": "\\ud83d"},
        {"x": 1},
        TextPart("\U0001f600"),
    )
    assert first.tool_call_id == "a" != second.tool_call_id
