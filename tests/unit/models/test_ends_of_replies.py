"""A reply counts when its protocol's end was seen, in each protocol, over real HTTP; else it is asked for once more."""

import json

import pytest
from support.tables import each
from support.wire import CHAT, MESSAGE, MESSAGES, PROTOCOLS, RESPONSE, RESPONSES, answered, chunk, data, event

from freeact_sub.models.repairs import carried
from freeact_sub.models.wire import LONGEST_BYTES
from freeact_sub.models.wire import PROTOCOLS as SERVED

PATHS = {"chat": "/completions", "messages": "/messages", "responses": "/responses"}
pytestmark = pytest.mark.usefixtures("allow_model_requests")

CODE = json.dumps({"code": "print(41)"})
WORDS = ["The result is done: ", "finished ", "and complete."]
CUTS = {
    "within a text": lambda protocol: b"".join(protocol.texts(WORDS[:1])[:3]),
    "behind a text": lambda protocol: b"".join(protocol.texts(WORDS)),
    "within an event": lambda protocol: (b"".join(protocol.texts(WORDS)) + protocol.end)[:-160].rstrip(),
    "before any text": lambda protocol: protocol.texts([])[0],
    "within the arguments of a call": lambda protocol: b"".join(protocol.call([CODE[:12]])[:3]),
    "behind the arguments of a call": lambda protocol: b"".join(protocol.call([CODE])),
    "within a call, without a blank line": lambda protocol: b"".join(protocol.call([CODE[:5], CODE[5:9]])).rstrip(),
}


@pytest.fixture(autouse=True)
def keys(monkeypatch):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "x")


@each("cut", CUTS)
@each("name", PROTOCOLS)
@pytest.mark.slow
async def test_a_reply_without_its_end_is_asked_for_again_and_nothing_of_it_is_run(name, cut, tmp_path):
    protocol = PROTOCOLS[name]
    whole = b"".join(protocol.texts(WORDS)) + protocol.end
    result, server = await answered(tmp_path, CUTS[cut](protocol), whole, protocol=protocol)
    assert (result.status, result.output, len(server.requests)) == ("completed", "".join(WORDS), 2)
    assert "print(41)" not in json.dumps(server.requests[1])


@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.slow
async def test_a_server_that_never_ends_its_replies_is_given_up(name, tmp_path):
    cut = b"".join(PROTOCOLS[name].texts(WORDS))
    result, server = await answered(tmp_path, cut, protocol=PROTOCOLS[name], rate_limit_seconds=1)
    assert result.status == "failed"
    assert "it has no end" in result.error
    assert len(server.requests) >= 2


NOTHING = {
    "a reconnection time": b"retry: 3000\n\n",
    "a number": b"id: 7\n\n",
    "an event without data": b"event: ping\n\n",
    "an empty line of data": b"event: ping\ndata: \n\n",
    "two empty lines of data": b"data:\ndata:\n\n",
    "a comment": b": working\n\n",
    "a field that nobody knows": b"colour: blue\n\n",
    "a kind that nobody knows": event("new.kind", x=1, text="no", delta="no"),
    "data that is no object": data([]) + data("null") + data("7") + data('"text"'),
    "a ping": event("ping"),
}


@each("place", [0, 2, -1])
@each("name", PROTOCOLS)
async def test_events_that_carry_nothing_are_passed_over(name, place, tmp_path):
    protocol = PROTOCOLS[name]
    events = [*protocol.texts(WORDS), protocol.end]
    events[place:place] = NOTHING.values()
    result, server = await answered(tmp_path, b"".join(events), protocol=protocol)
    assert (result.status, result.output, len(server.requests)) == ("completed", "".join(WORDS), 1)


@each("done", [b"data: [DONE] \n\n", b"data:   [DONE]\n\n", b"data:[DONE]\r\n\r\n", b"data: [DONE]"])
async def test_done_is_the_end_with_blanks_around_it_too(done, tmp_path):
    result, server = await answered(tmp_path, b"".join(CHAT.texts(WORDS)) + done)
    assert (result.output, len(server.requests)) == ("".join(WORDS), 1)


START = {name: value for name, value in MESSAGE.items() if name in ("type", "role")}
BLOCK = event("content_block_start", index=0, content_block={"type": "text"})
TEXT = event("content_block_delta", index=0, delta={"type": "text_delta", "text": "It is 42."})
STOP = event("message_delta", delta={"stop_reason": "end_turn"}) + event("message_stop")
LOOSE = {
    "no usage": (MESSAGES, event("message_start", message=START) + BLOCK + TEXT + STOP),
    "no usage at the end": (
        MESSAGES,
        event("message_start", message={**MESSAGE, "usage": {"input_tokens": 5, "output_tokens": 1}}) + BLOCK + TEXT + STOP,
    ),
    "pieces of new kinds": (
        MESSAGES,
        event("message_start", message=MESSAGE)
        + BLOCK
        + event("content_block_delta", index=0, delta={"type": "new_delta", "text": "no"})
        + event("content_block_delta", index=0, delta={"type": "text_delta", "text": None})
        + event("content_block_delta", index=0, delta={})
        + event("content_block_delta", index=0)
        + TEXT
        + STOP,
    ),
    "no names of events": (
        MESSAGES,
        b"".join(
            data(json.loads(line[5:]))
            for line in (event("message_start", message=MESSAGE) + BLOCK + TEXT + STOP).splitlines()
            if line.startswith(b"data:")
        ),
    ),
    "the kind in the name alone": (
        MESSAGES,
        event("message_start", message=START)
        + b"event: content_block_delta\n"
        + data({"index": 0, "delta": {"type": "text_delta", "text": "It is 42."}})
        + STOP,
    ),
    "no message stop": (
        MESSAGES,
        event("message_start", message=START) + BLOCK + TEXT + event("message_delta", delta={"stop_reason": "end_turn"}),
    ),
    "a response without numbers and places": (
        RESPONSES,
        event("response.output_text.delta", delta="It is 42.") + event("response.completed", response=RESPONSE),
    ),
    "a response in lines": (
        RESPONSES,
        b"event: response.output_text.delta\n"
        + data(json.dumps({"delta": "It is 42."}, indent=1).replace("\n", "\ndata: "))
        + event("response.completed", response=RESPONSE),
    ),
    "usage of another kind": (CHAT, chunk({"content": "It is 42."}) + data({"choices": [], "usage": []}) + CHAT.end),
}


@each("loose", LOOSE)
async def test_what_a_loose_server_leaves_out_is_added_and_its_usage_estimated(loose, tmp_path):
    protocol, body = LOOSE[loose]
    result, server = await answered(tmp_path, body, protocol=protocol)
    assert (result.status, result.output, len(server.requests)) == ("completed", "It is 42.", 1)
    assert result.usage.estimated_requests == 1
    assert result.usage.input_tokens >= 5
    assert result.usage.output_tokens >= 2


@each("name", PROTOCOLS)
@each("piece_bytes", [1, 13])
@pytest.mark.slow
async def test_a_reply_does_not_depend_on_the_pieces_of_its_bytes(name, piece_bytes, tmp_path):
    protocol = PROTOCOLS[name]
    act = b"".join(protocol.call([CODE[:5], CODE[5:]])) + protocol.end_of_call
    answer = (b"".join(protocol.texts(["Zürich: ", "42 €"])) + protocol.end).replace(b"\n", b"\r\n")
    result, server = await answered(tmp_path, act, answer, protocol=protocol, piece_bytes=piece_bytes)
    assert (result.output, len(server.requests)) == ("Zürich: 42 €", 2)


@pytest.mark.parametrize("name", PROTOCOLS)
async def test_a_body_that_is_no_stream_is_told_with_the_address(name, tmp_path):
    page = (200, {"Content-Type": "text/html"}, b"<html>Welcome</html>")
    result, server = await answered(tmp_path, page, protocol=PROTOCOLS[name])
    assert result.status == "failed"
    assert f"{server.address}" in result.error
    assert "something else than a completion (text/html)" in result.error
    assert "`base_url`" in result.error


@each("begin", [b"data: ", b""])
@pytest.mark.slow
async def test_a_line_without_end_is_not_kept_for_ever(begin, tmp_path):
    endless = (200, {"Content-Type": "text/event-stream"}, begin + b"x" * (LONGEST_BYTES + 1))
    result, server = await answered(tmp_path, endless, protocol=CHAT)
    assert result.status == "failed"
    assert f"{server.address}/v1/chat/completions sent 32 MiB without the end of a line" in result.error


@pytest.mark.parametrize("name", ["chat", "responses"])
async def test_a_refusal_ends_with_its_words(name, tmp_path):
    words = "I cannot help with that."
    refused = {
        "chat": chunk({"refusal": words}) + CHAT.end,
        "responses": RESPONSES.texts([])[0]
        + event("response.refusal.delta", sequence_number=2, delta=words, item_id="i", output_index=0, content_index=0)
        + RESPONSES.end,
    }[name]
    result, server = await answered(tmp_path, refused, protocol=PROTOCOLS[name])
    assert (result.status, len(server.requests)) == ("failed", 1)
    assert words in result.error


@pytest.mark.parametrize("name", PROTOCOLS)
def test_events_of_a_plain_server_need_no_repair_and_pass_as_they_came(name):
    protocol, read = PROTOCOLS[name], next(one for one in SERVED if one.path.endswith(PATHS[name]))
    for body in (b"".join(protocol.texts(WORDS)) + protocol.end, b"".join(protocol.call([CODE])) + protocol.end_of_call):
        events = [json.loads(line[5:]) for line in body.splitlines() if line.startswith(b"data: {")]
        assert not [repair.name for event in events for repair in read.repairs if repair.when(event, carried(event))]
        served = read("http://m", "text/event-stream", "m")
        lines = [line for line in body.splitlines() if line.startswith(b"data")]
        assert [line for line in (served.read(body) + served.end()).splitlines() if line.startswith(b"data")] == lines


def test_each_repair_has_a_name():
    for read in SERVED:
        assert len({repair.name for repair in read.repairs}) == len(read.repairs) > 0
