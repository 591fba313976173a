"""Servers that keep to OpenAI's chat protocol loosely, over real HTTP: what they send is read, or told in one sentence."""

import codecs
import gzip
import json
from contextlib import asynccontextmanager

import pytest
from support.agents import of_kind, read
from support.serving import serving
from support.tables import each
from support.waiting import turns

from freeact_sub import Agent, Config
from freeact_sub.events import CodeExecutionOutput
from freeact_sub.models.wire import Chunks, MessageEvents, ResponseEvents
from freeact_sub.testing import FakeKernelProvider

pytestmark = pytest.mark.usefixtures("allow_model_requests")

HEAD = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
CODE = {"code": "print(42)"}


def data(value):
    return f"data: {value if isinstance(value, str) else json.dumps(value)}\n\n".encode()


def chunk(delta, finish=None):
    return data({**HEAD, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def call(arguments, name=None, index=0):
    return chunk({"tool_calls": [{"index": index, "id": name and "a", "function": {"name": name, "arguments": arguments}}]})


def completion(message, finish="stop"):
    return {**HEAD, "object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": finish}]}


DONE = data("[DONE]")
ANSWER = chunk({"content": "It is "}), chunk({"content": "42."}), chunk({}, "stop"), DONE


@asynccontextmanager
async def server_of(*bodies, kind="text/event-stream", headers="", piece_bytes=None):
    """A server whose n-th answer has the n-th body. Yields its address."""
    waiting = list(bodies)

    async def serve(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET"):  # how large is the context of the model?
            writer.write(b"HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            writer.close()
            await writer.wait_closed()
            return
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
        body = waiting.pop(0)
        head = (
            f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{headers}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode())
        for start in range(0, len(body), piece_bytes or len(body) or 1):
            writer.write(body[start : start + (piece_bytes or len(body))])
            await writer.drain()
            await turns()
        writer.close()
        await writer.wait_closed()

    async with serving(serve) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


async def result_of(tmp_path, *bodies, **wire):
    """The result of a run that such a server answers, and what its cells put out."""
    async with server_of(*bodies, **wire) as address:
        config = Config(
            workspace=tmp_path,
            model="openai-chat:m",
            base_url=address,
            mode="full",
            code_actions="tool",
            rate_limit_seconds=1,
        )
        kernels = FakeKernelProvider()
        async with Agent(config, kernel_provider=kernels) as agent:
            events, result = await read(agent.run("go"))
    return result, [event.text for event in of_kind(events, CodeExecutionOutput)], address


@each(
    "pieces",
    [
        [call("", "execute_ipython_cell"), call(CODE)],
        [call(None, "execute_ipython_cell"), call(CODE)],
        [call({}, "execute_ipython_cell"), call('{"code"'), call(': "print(42)"}')],
        [call([], "execute_ipython_cell"), call(CODE), call("")],
        [call("{}", "execute_ipython_cell"), call(CODE)],
        [call(CODE, "execute_ipython_cell"), call(json.dumps(CODE))],
        [call(json.dumps(CODE), "execute_ipython_cell"), call(CODE)],
    ],
)
async def test_arguments_that_are_texts_and_objects_are_read(pieces, tmp_path):
    turn = b"".join([*pieces, chunk({}, "tool_calls"), DONE])
    result, outputs, _ = await result_of(tmp_path, turn, b"".join(ANSWER))
    assert (result.status, result.output, outputs) == ("completed", "It is 42.", ["42"])


@each(
    "odd",
    [
        data("null"),
        data("[]"),
        data("7"),
        data('"text"'),
        data({}),
        data({**HEAD, "choices": None}),
        data({**HEAD, "choices": [{"index": 0}]}),
        chunk(None),
        b"event: message\n" + data("null"),
        b": ping\n\n",
    ],
)
@each("place", [0, 1, 3])
@pytest.mark.slow
async def test_chunks_that_are_no_objects_carry_nothing(odd, place, tmp_path):
    body = b"".join([*ANSWER[:place], odd, *ANSWER[place:]])
    result, _, _ = await result_of(tmp_path, body)
    assert (result.status, result.output) == ("completed", "It is 42.")


@each("start", [b"", codecs.BOM_UTF8, codecs.BOM_UTF8 + b"\r\n\r\n", b"proxy 1.0 is here\n\n", b"\n\n"])
@each("ending", [b"\n", b"\r\n", b"\r"])
@each("piece_bytes", [None, 1, 7])
@pytest.mark.slow
async def test_no_chunk_is_lost_whatever_comes_before_the_first(start, ending, piece_bytes, tmp_path):
    body = start + b"".join(ANSWER).replace(b"\n", ending)
    result, _, _ = await result_of(tmp_path, body, piece_bytes=piece_bytes)
    assert (result.status, result.output) == ("completed", "It is 42.")


@each("kind", ["application/json", "application/json; charset=utf-8", "text/event-stream", "text/plain"])
@each("start", [b"", codecs.BOM_UTF8, b"\n "])
@each("indent", [None, 2])
@pytest.mark.slow
async def test_a_completion_in_one_body_is_the_reply(kind, start, indent, tmp_path):
    calls = [{"id": "a", "type": "function", "function": {"name": "execute_ipython_cell", "arguments": json.dumps(CODE)}}]
    turn = completion({"role": "assistant", "content": None, "tool_calls": calls}, "tool_calls")
    answer = {
        **completion({"role": "assistant", "content": "It is 42."}),
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }
    bodies = [start + json.dumps(body, indent=indent).encode() for body in (turn, answer)]
    result, outputs, _ = await result_of(tmp_path, *bodies, kind=kind)
    assert (result.status, result.output, outputs) == ("completed", "It is 42.", ["42"])
    assert result.usage.input_tokens >= 7


async def test_a_completion_that_is_a_chunk_is_read_unless_it_repeats_the_chunks_before(tmp_path):
    whole = data(completion({"role": "assistant", "content": "It is 42."}))
    for body in (whole + DONE, whole, b"".join([*ANSWER[:2], whole, DONE])):
        result, _, _ = await result_of(tmp_path, body)
        assert (result.status, result.output) == ("completed", "It is 42.")


async def test_a_compressed_body_is_read(tmp_path):
    body = gzip.compress(codecs.BOM_UTF8 + b"".join(ANSWER))
    result, _, _ = await result_of(tmp_path, body, headers="Content-Encoding: gzip\r\n", piece_bytes=9)
    assert (result.status, result.output) == ("completed", "It is 42.")


@each(
    ("kind", "body", "quoted"),
    [
        ("text/html", "<!doctype html><title>Sign in</title>" + "<p>x</p>" * 999, "<title>Sign in</title>"),
        ("text/event-stream", "<html>busy</html>", "<html>busy</html>"),
        ("text/plain", "nobody\nis here", "nobody is here"),
        ("application/json", '{"status": "ok"}', '{"status": "ok"}'),
        ("application/json", "[]", "[]"),
        ("application/json", "null", "null"),
        ("application/json", '{"choices": [', '{"choices": ['),
    ],
)
async def test_a_body_that_is_no_answer_is_told_in_one_sentence(kind, body, quoted, tmp_path):
    result, _, address = await result_of(tmp_path, body.encode(), kind=kind)
    assert result.status == "failed"
    assert f"{address}/chat/completions" in result.error
    assert f"({kind})" in result.error
    assert quoted in result.error
    assert "\n" not in result.error
    assert len(result.error) < 400


async def test_the_error_in_one_body_is_told_in_the_words_of_the_server(tmp_path):
    result, _, _ = await result_of(tmp_path, b'{"error": {"message": "no such model"}}', kind="application/json")
    assert (result.status, "no such model" in result.error) == ("failed", True)


USAGES = [[], "12", {"prompt_tokens": 3, "completion_tokens": 1, "completion_tokens_details": "none"}, {"prompt_tokens": -1}]
WITH_CODE = {
    "tool_calls": [{"index": 0, "id": "a", "function": {"name": "execute_ipython_cell", "arguments": json.dumps(CODE)}}]
}


@each(
    "pieces",
    [
        *([chunk(WITH_CODE, "tool_calls"), data({**HEAD, "choices": [], "usage": usage})] for usage in USAGES),
        [chunk(WITH_CODE)[:-1], chunk({}, "tool_calls")[:-1]],
        [call('{"code": ', "execute_ipython_cell"), call('"print(42)"}'), chunk(WITH_CODE, "tool_calls")],
    ],
)
async def test_a_call_is_made_once_whatever_stands_around_it(pieces, tmp_path):
    result, outputs, _ = await result_of(tmp_path, b"".join([*pieces, DONE]), b"".join(ANSWER))
    assert (result.status, result.output, outputs) == ("completed", "It is 42.", ["42"])


@pytest.mark.parametrize(
    ("piece", "text"),
    [
        (chunk({"content": 42}), "42"),
        (chunk({"content": "caf?"}).replace(b"?", b"\xe9"), "caf\ufffd"),
    ],
)
async def test_content_of_another_form_is_not_lost(piece, text, tmp_path):
    result, _, _ = await result_of(tmp_path, piece + chunk({}, "stop") + DONE)
    assert (result.status, result.output) == ("completed", text)


HALF = chunk({"content": "It is "})


@each("end", [b"", chunk({"content": "42."})[:30], chunk({}, "error") + DONE, chunk({}, "abort") + DONE])
@pytest.mark.slow
async def test_an_answer_that_broke_off_is_asked_for_again(end, tmp_path):
    result, _, _ = await result_of(tmp_path, HALF + end, b"".join(ANSWER))
    assert (result.status, result.output) == ("completed", "It is 42.")
    result, _, _ = await result_of(tmp_path, *[HALF + end] * 3)
    assert (result.status, "broke off its answer" in result.error) == ("failed", True)


COUNTS = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}


@pytest.mark.parametrize(
    "end",
    [
        data({**HEAD, "choices": [], "usage": COUNTS}),
        data({**HEAD, "choices": [], "usage": {**COUNTS, "cost": 10**400}}),
    ],
)
async def test_an_answer_ends_with_its_usage_too(end, tmp_path):
    result, _, _ = await result_of(tmp_path, HALF + end)
    assert (result.status, result.output) == ("completed", "It is ")
    nothing = data({**HEAD, "choices": [], "usage": None})  # as before the first words of some servers
    result, _, _ = await result_of(tmp_path, nothing + HALF, nothing + HALF + end)
    assert (result.status, result.output) == ("completed", "It is ")


@pytest.mark.parametrize("error", [b'{"message": "no memory"}', b"no memory"])
async def test_an_event_that_is_an_error_fails_the_run(error, tmp_path):
    result, _, _ = await result_of(tmp_path, HALF + b"event: error\ndata: " + error + b"\n\n" + DONE)
    assert (result.status, "no memory" in result.error) == ("failed", True)


def nested(depth):
    return json.loads('{"a":' * depth + "1" + "}" * depth)


@each("tool_calls", [1, ["text"], [None], [[]]])
async def test_calls_of_another_form_in_a_whole_message_are_told_in_one_sentence(tool_calls, tmp_path):
    result, _, address = await result_of(tmp_path, data(completion({"content": "x", "tool_calls": tool_calls})))
    assert result.status == "failed"
    assert f"{address}/chat/completions sent an event of another form" in result.error


@each(
    ("protocol", "event"),
    [
        (MessageEvents, {"type": "message_delta", "choices": [{"delta": {"x": 1}}], "delta": None}),
        (MessageEvents, {"type": "content_block_start", "choices": [{"delta": {"x": 1}}]}),
        (ResponseEvents, {"type": {}}),
        (ResponseEvents, {"type": []}),
    ],
)
def test_an_event_of_another_form_becomes_an_error(protocol, event):
    assert b"sent an event of another form" in protocol("http://host/v1", "text/event-stream", "m").read(data(event))


def test_usage_that_is_nested_deep_is_none_or_an_error():
    read = Chunks("http://host/v1", "text/event-stream", "m").read(data({"choices": [], "usage": nested(600)}))
    assert b"sent an event of another form" in read or b'"usage": null' in read, "how deep a walk may go is up to Python"
