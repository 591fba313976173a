"""Repairs for odd servers: a list of small ones, each with a name, off unless a server needs it.

For one event, before the provider's client reads it (`wire`), each protocol has a list: `CHAT`, `MESSAGES`, `RESPONSES`. A
repair tells `when` it is needed; an event that needs none passes as it came.

For the whole reply, in the events that pydantic-ai makes of it, for every provider: `OddReply`, from the first event on that
needs one (`is_well_formed`). Most replies need none.

- Some servers send each parallel call at index 0, where pydantic-ai joins them to one: a new call begins with a name and
  another id, or with a name after whole arguments.
- Some repeat the name of a call in each piece, where it would be joined to itself, or give each piece another id; some
  send a call that has come in pieces once more as a whole, with its id.
- Some give two calls one id, by which their results could not be told apart.
- Some cut a character in two halves, each in a piece of its own, or send one half only, which UTF-8 cannot hold.

`TaggedThoughts` takes the thoughts out of texts that a model began with `<think>`, however the stream is cut. pydantic-ai
knows a tag only where it is a piece of its own, so that the answer of a run would depend on how a server cuts its stream;
its own search is switched off (`without_tags`). Thoughts stand at the beginning of a text, before its first word. A tag
anywhere else is a word like any other: an answer may be about such tags, and code may look for them.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self, TypeAlias, get_args

from pydantic_ai.messages import (
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.models import CompletedStreamedResponse, ModelRequestParameters

from freeact_sub.models.borrowed_stream import keep
from freeact_sub.text import whole_text, whole_value

if TYPE_CHECKING:
    from freeact_sub.models.wire import ServedEvents

Event: TypeAlias = dict[str, Any]


class Repair(NamedTuple):
    """A repair of one event of a server."""

    name: str
    """A name for the odd thing that such a server sends."""
    when: Callable[[Event, Event], bool]
    """Tells whether the repair is needed, by the event and the object that carries its content (`carried`)."""
    make: "Callable[[Event, ServedEvents], Event | None]"
    """Returns the event as it was meant. None: it carries nothing."""


def _nothing(event: Event, events: "ServedEvents") -> None:
    del event, events


def _told(fields: Any) -> Event:
    """Return the fields that hold something."""
    return {name: value for name, value in fields.items() if value is not None} if isinstance(fields, dict) else {}


def choice_of(event: Event) -> Event:
    """Return the first choice of a chunk."""
    choices = event.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    return choice if isinstance(choice, dict) else {}


def _delta_of(event: Event) -> Event:
    delta = choice_of(event).get("delta")
    return delta if isinstance(delta, dict) else {}


def _with_delta(event: Event, delta: Event) -> Event:
    return {**event, "choices": [{**choice_of(event), "delta": delta}]}


def _arguments_of(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    return function.get("arguments") if isinstance(function, dict) else None


def _as_pieces(event: Event, events: "ServedEvents") -> Event:
    """Return a whole message as the only piece of a stream, whose calls are told apart by numbers; it may repeat others."""
    message = {} if events.has_begun else choice_of(event)["message"]
    calls = [{**call, "index": number} for number, call in enumerate(message.get("tool_calls") or ())]
    return _with_delta(event, {**message, "tool_calls": calls or None})


def _with_texts(event: Event, _: "ServedEvents") -> Event:
    calls = _delta_of(event)["tool_calls"]
    written = [
        {**call, "function": {**call["function"], "arguments": json.dumps(args) if args else ""}}
        if isinstance(args := _arguments_of(call), dict | list)
        else call
        for call in calls
    ]
    return _with_delta(event, {**_delta_of(event), "tool_calls": written})


_MOST: Final = 2**53
"""Largest number that counts; larger ones, infinity and NaN count nothing."""


def _numbers(counts: Any) -> Event | None:
    """Return the numbers of a usage. None: it has no tokens of the prompt, so all is estimated."""
    found = {name: value for name, count in counts.items() if (value := _count(count)) is not None}
    return found if "prompt_tokens" in found else None


def _count(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: count for name, inner in value.items() if (count := _count(inner)) is not None}
    return value if isinstance(value, int | float) and 0 <= value <= _MOST else None


def _with_usage(event: Event, _: "ServedEvents") -> Event:
    return {**event, "usage": _numbers(event["usage"]) if isinstance(event["usage"], dict) else None}


def _is_odd_usage(usage: Any) -> bool:
    return not isinstance(usage, dict) or _numbers(usage) != usage


def _has_objects(calls: Any) -> bool:
    return isinstance(calls, list) and any(isinstance(_arguments_of(call), dict | list) for call in calls)


CHAT: Final = (
    Repair(
        "an error in an event of that name",
        lambda event, _: event.get("type") == "error" and "error" not in event,
        lambda event, _: {"error": event},
    ),
    Repair(
        "a whole message in place of pieces",
        lambda event, delta: not delta and isinstance(choice_of(event).get("message"), dict),
        _as_pieces,
    ),
    Repair(
        "content that is a number",
        lambda _, delta: isinstance(delta.get("content"), int | float),
        lambda event, _: _with_delta(event, {**_delta_of(event), "content": json.dumps(_delta_of(event)["content"])}),
    ),
    Repair(
        "arguments that are an object",
        lambda _, delta: "tool_calls" in delta and _has_objects(delta["tool_calls"]),
        _with_texts,
    ),
    Repair(
        "usage that is not of numbers",
        lambda event, _: event.get("usage") is not None and _is_odd_usage(event["usage"]),
        _with_usage,
    ),
)

_OF_MESSAGES: Final = {
    "message_start": "message",
    "content_block_start": "content_block",
    "content_block_delta": "delta",
    "content_block_stop": None,
    "message_delta": "delta",
    "message_stop": None,
    "error": None,
}
"""Events of the Messages protocol, with the object that each carries."""
_PIECES: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
    "citations_delta": "citation",
    "compaction_delta": "type",  # its content may be left out
}
"""Pieces of content in the Messages protocol, with the field that each carries."""
_BLOCKS: Final[dict[str, Event]] = {
    "text": {"text": ""},
    "thinking": {"thinking": "", "signature": ""},
    "tool_use": {"input": {}},
}
"""Fields of a block of content that servers leave out."""


def _is_new_in_messages(event: Event, carried: Event) -> bool:
    kind = event.get("type")
    if _OF_MESSAGES.get(str(kind), "") is not None and not carried:
        return True
    return kind == "content_block_delta" and carried.get(_PIECES.get(str(carried.get("type")), "")) is None


def _with_fields(event: Event, model: str = "") -> Event:
    match event["type"]:
        case "message_start":
            usage = {"input_tokens": 0, "output_tokens": 0, **_told(event["message"].get("usage"))}
            return {**event, "message": {"id": "", "model": model, **event["message"], "usage": usage}}
        case "message_delta":
            return {**event, "usage": {"output_tokens": 0, **_told(event.get("usage"))}}
        case "content_block_start":
            block = event["content_block"]
            return {**event, "content_block": _BLOCKS.get(str(block.get("type")), {}) | _told(block)}
    return event


MESSAGES: Final = (
    Repair(
        "an error of another form",
        lambda event, _: (event.get("type") == "error") != bool(event.get("error")),
        lambda event, _: {"type": "error", "error": _as_error(event)},
    ),
    Repair("an event or a piece of a new kind", _is_new_in_messages, _nothing),
    Repair(
        "fields that are left out",
        lambda event, _: _with_fields(event) != event,
        lambda event, events: _with_fields(event, events.model),
    ),
)


def _as_error(event: Event) -> Event:
    inner = event.get("error", event)
    error = _told(inner) if isinstance(inner, dict) else {"message": str(inner)}
    return {"message": "the server tells no reason", **error}


LAST: Final = ("response.completed", "response.failed", "response.incomplete")
"""Events that end a stream of Responses."""
_PLACE: Final = {"output_index": 0, "content_index": 0, "item_id": "item"}


def of_error(error: Any, events: "ServedEvents") -> Event:
    """Return an error as an event of Responses."""
    known = error if isinstance(error, dict) else {"message": str(error)}
    code = known.get("code") or (known.get("type") if known.get("type") != "error" else None)
    message = str(known.get("message") or json.dumps(error))
    told = {"type": "error", "message": message, "param": None, "sequence_number": events.count}
    return {**told, "code": None if code is None else str(code)}


@cache
def _known_events() -> frozenset[str]:
    """Return the kinds of events of Responses that openai's client knows: it would take others for one of them."""
    from openai.types.responses import ResponseStreamEvent  # noqa: PLC0415  # slow, and loaded already where this is used

    return frozenset(_kinds_in(ResponseStreamEvent))


def _kinds_in(union: Any) -> list[str]:
    fields = getattr(union, "model_fields", None)
    if fields is not None:
        return [str(kind) for kind in get_args(fields["type"].annotation)]
    return [kind for inner in get_args(union) for kind in _kinds_in(inner)]


RESPONSES: Final = (
    Repair(
        "an error of another form",
        lambda event, _: event.get("type") == "error" or bool(event.get("error") and event.get("type") not in LAST),
        lambda event, events: of_error(event.get("error") or event, events),
    ),
    Repair("an event of a new kind", lambda event, _: event.get("type") not in _known_events(), _nothing),
    Repair(
        "fields that are left out",
        lambda event, _: event.get("sequence_number") is None,
        lambda event, events: {**_PLACE, **event, "sequence_number": events.count},
    ),
)


def carried(event: Event) -> Event:
    """Return the object in an event that carries its content: a chunk's delta, for Messages the one of its type."""
    if "choices" in event:
        return _delta_of(event)
    inner = event.get(_OF_MESSAGES.get(str(event.get("type"))) or "")
    return inner if isinstance(inner, dict) else {}


GENERATED: Final = "pyd_ai_"
"""Prefix of the ids that pydantic-ai gives to calls without one."""

_HALVES: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_FIRST_HALVES: Final = ("\ud800", "\udbff")
Tags: TypeAlias = Sequence[tuple[str, str]]
"""Pairs of tags that a model may write."""
_Kind: TypeAlias = Literal["thought", "text"]


@dataclass(kw_only=True)
class _Call:
    name: str
    call_id: str
    pieces: list[Any]

    @classmethod
    def begun(cls, part: ToolCallPart) -> Self:
        return cls(name=part.tool_name, call_id=part.tool_call_id, pieces=[] if part.args is None else [part.args])

    @property
    def value(self) -> Any:
        """The arguments. None: they are not whole."""
        if any(isinstance(piece, dict) for piece in self.pieces):
            return {name: value for piece in self.pieces if isinstance(piece, dict) for name, value in piece.items()}
        is_end = bool(self.pieces) and self.pieces[-1].rstrip().endswith("}")  # spares most readings of a thousand pieces
        return _read("".join(self.pieces)) if is_end else None


class PartsInOrder:
    """The parts of one answer. A call that the stream has joined to the one before it is a part of its own."""

    def __init__(self) -> None:
        self._following = 0
        """Index of the next new part."""
        self._newest: dict[int, int] = {}
        """The index of each outgoing part, by the stream's index; for joined calls, the newest one's."""
        self._calls: dict[int, _Call] = {}
        """The calls by their outgoing index."""
        self._ids: dict[int, str] = {}
        """The newest id of each part of the stream. pydantic-ai gives it to the pieces that have none."""
        self._halves: dict[int, str] = {}
        """The first half of a character at the end of the pieces of a part, whose second half may follow."""
        self._thoughts: set[int] = set()
        """Indexes of parts that are thoughts."""

    def passed(self, event: ModelResponseStreamEvent) -> ModelResponseStreamEvent:
        """Return the event to pass on."""
        match event:
            case PartStartEvent(index=source, part=part):
                index = self._newest[source] if source in self._newest else self._begun(source)
                if isinstance(part, ToolCallPart):
                    self._calls.pop(index, None)
                    self._ids[source] = whole_text(str(part.tool_call_id))
                    part = self._call(index, part)
                elif isinstance(part, TextPart | ThinkingPart):
                    if isinstance(part, ThinkingPart):
                        self._thoughts.add(index)
                    part = replace(part, content=self._whole(index, part.content))
                return event if (index, part) == (source, event.part) else replace(event, index=index, part=part)
            case PartDeltaEvent(index=source, delta=delta):
                index = self._newest.get(source, source)
                if isinstance(delta, ToolCallPartDelta) and index in self._calls:
                    return self._piece(event, index, delta)
                if isinstance(delta, TextPartDelta | ThinkingPartDelta) and delta.content_delta:
                    content = self._whole(index, delta.content_delta)
                    if content != delta.content_delta:
                        return replace(event, index=index, delta=replace(delta, content_delta=content))
                return event if index == source else replace(event, index=index)
        return event

    def rest(self) -> Iterator[ModelResponseStreamEvent]:
        """Yield the rest when the stream has ended: halves whose other half never came."""
        for index, half in self._halves.items():
            text = whole_text(half)
            delta: ToolCallPartDelta | ThinkingPartDelta | TextPartDelta = TextPartDelta(text)
            if index in self._calls:
                delta = ToolCallPartDelta(args_delta=text)
            elif index in self._thoughts:
                delta = ThinkingPartDelta(content_delta=text)
            yield PartDeltaEvent(index=index, delta=delta)

    def _whole(self, index: int, new: Any) -> Any:
        """Return new text, with the half of a character that was held back, and without the one that is held now."""
        if not isinstance(new, str):
            return whole_value(new)
        if new.isascii() and index not in self._halves:
            return new
        text = self._halves.pop(index, "") + new
        if text and _FIRST_HALVES[0] <= text[-1] <= _FIRST_HALVES[1]:
            self._halves[index], text = text[-1], text[:-1]
        return whole_text(_HALVES.sub(lambda both: both[0].encode("utf-16", "surrogatepass").decode("utf-16"), text))

    def _begun(self, source: int) -> int:
        self._newest[source] = self._following
        self._following += 1
        return self._newest[source]

    def _call(self, index: int, part: ToolCallPart) -> ToolCallPart:
        """Return a call that begins, with whole texts and an id of its own."""
        name, call_id = whole_text(part.tool_name), whole_text(str(part.tool_call_id))  # some servers send numbers
        if any(call.call_id == call_id for call in self._calls.values()):
            call_id = ToolCallPart(name).tool_call_id
        part = replace(part, tool_name=name, tool_call_id=call_id, args=self._whole(index, part.args))
        self._calls[index] = _Call.begun(part)
        return part

    def _piece(self, event: PartDeltaEvent, index: int, delta: ToolCallPartDelta) -> ModelResponseStreamEvent:
        call, source, args = self._calls[index], event.index, delta.args_delta
        name = whole_text(delta.tool_name_delta or "")
        call_id = None if delta.tool_call_id is None else whole_text(str(delta.tool_call_id))
        if call_id == self._ids[source]:
            if call_id and name == call.name and _read(args) == call.value is not None:  # the call once more
                return replace(event, index=index, delta=ToolCallPartDelta(tool_call_id=call.call_id))
            call_id = None
        elif call_id:
            self._ids[source] = call_id
        is_known = not call.call_id.startswith(GENERATED)
        has_arguments = bool(args.strip() if isinstance(args, str) else args)
        is_next = (is_known and call_id) or ((has_arguments or name != call.name) and call.value is not None)
        if name and is_next:
            made: ToolCallPart = ToolCallPart(name, args)  # with an id of pydantic-ai's
            index = self._begun(source)
            return PartStartEvent(
                index=index, part=self._call(index, replace(made, tool_call_id=call_id or made.tool_call_id))
            )
        name = "" if name == call.name else name
        call.name += name
        if call_id and not is_known and all(other.call_id != call_id for other in self._calls.values()):
            call.call_id = call_id
        if args is not None:
            delta = replace(delta, args_delta=self._whole(index, args))
            call.pieces.append(delta.args_delta)
        passed = replace(delta, tool_name_delta=name or None, tool_call_id=call.call_id)
        return event if (index, passed) == (source, event.delta) else replace(event, index=index, delta=passed)


def _read(args: str | dict[str, Any] | None) -> Any:
    """Return the arguments of a call, if they are JSON."""
    if not isinstance(args, str):
        return args
    try:
        return json.loads(args)
    except (ValueError, RecursionError):
        return None


def in_order(response: ModelResponse) -> ModelResponse:
    """Return an answer that was not streamed, with the same repairs."""
    reply = OddReply((PartStartEvent(index=n, part=part) for n, part in enumerate(response.parts)), (), drops_blanks=False)
    reply.rest()
    return reply.whole(response)


@dataclass(kw_only=True)
class _Text:
    """One text as far as it has come."""

    part: TextPart
    """The part as it began."""
    tags: Tags
    drops_blanks: bool
    """Whether blanks before the first word are dropped."""
    has_thoughts: bool = False
    closing: str = ""
    """The tag that ends the present thought. Empty: there is none."""
    in_words: bool = False
    """Whether the first word has come, so that all that follows is text."""
    held: str = ""
    """Text that may be the beginning of a tag, or blanks before one."""

    def add(self, new: str) -> Iterator[tuple[_Kind, str]]:
        """Add new text; yield what is certain now."""
        self.held += new
        while self.held and not self.in_words:
            if self.closing:
                inside, found, after = self.held.partition(self.closing)
                cut = len(inside) - (0 if found else _beginning_at_end(inside, self.closing))
                yield from self._told("thought", inside[:cut])
                self.held = after if found else inside[cut:]
                if not found:
                    return
                self.closing, self.drops_blanks = "", True
                continue
            start = self.held.lstrip()
            opened = next((tags for tags in self.tags if start.startswith(tags[0])), None)
            if opened is not None:
                self.held, self.closing = start.removeprefix(opened[0]), opened[1]
                if self.has_thoughts:
                    yield from self._told("thought", "\n")
                continue
            if self.drops_blanks:
                self.held = start
            if any(opening.startswith(start) for opening, _ in self.tags):
                return
            self.in_words = True
        yield from self.rest() if self.in_words else ()

    def rest(self) -> Iterator[tuple[_Kind, str]]:
        """Yield the held text, where nothing follows."""
        new, self.held = self.held, ""
        yield from self._told("thought" if self.closing else "text", new)

    def _told(self, kind: _Kind, new: str) -> Iterator[tuple[_Kind, str]]:
        if new:
            self.has_thoughts = self.has_thoughts or kind == "thought"
            yield kind, new


class TaggedThoughts:
    """The parts of one answer, in which each text has become a thought and a text, or one of them."""

    def __init__(self, tags: Tags, *, drops_blanks: bool) -> None:
        self._tags = tags
        self._drops_blanks = drops_blanks
        self._texts: dict[int, _Text] = {}
        """The texts by their index in the stream."""
        self._places: dict[tuple[int, _Kind | None], int] = {}
        """The outgoing index of a part, by its index in the stream and its kind. Kind None: it is no text."""

    def passed(self, event: ModelResponseStreamEvent) -> Iterator[ModelResponseStreamEvent]:
        """Yield the events to pass on for this one."""
        match event:
            case PartStartEvent(index=source, part=part):
                yield from self.rest(but=source)
                if isinstance(part, TextPart):
                    self._texts[source] = _Text(part=part, tags=self._tags, drops_blanks=self._drops_blanks)
                    yield from self._events(source, self._texts[source].add(part.content))
                else:
                    yield self._at(event, self._places.setdefault((source, None), len(self._places)))
            case PartDeltaEvent(index=source, delta=TextPartDelta() as delta) if source in self._texts:
                text = self._texts[source]
                if text.in_words and (source, "text") in self._places:
                    yield self._at(event, self._places[source, "text"])
                else:
                    yield from self._events(source, text.add(delta.content_delta))
            case PartDeltaEvent(index=source):
                yield self._at(event, self._places.get((source, None), source))
            case _:
                yield event

    def rest(self, but: int | None = None) -> Iterator[ModelResponseStreamEvent]:
        """Yield the held text of all texts but one, which another part follows."""
        for source, text in self._texts.items():
            if source != but and text.held:
                yield from self._events(source, text.rest())

    def _events(self, source: int, told: Iterator[tuple[_Kind, str]]) -> Iterator[ModelResponseStreamEvent]:
        for kind, new in told:
            index = self._places.get((source, kind))
            if index is None:
                index = self._places[source, kind] = len(self._places)
                # the id of thoughts that go back to the model in tags
                thought = ThinkingPart(new, id="content")
                part = thought if kind == "thought" else replace(self._texts[source].part, content=new)
                yield PartStartEvent(index=index, part=part)
            else:
                delta = ThinkingPartDelta(content_delta=new) if kind == "thought" else TextPartDelta(new)
                yield PartDeltaEvent(index=index, delta=delta)

    @staticmethod
    def _at(event: PartStartEvent | PartDeltaEvent, index: int) -> ModelResponseStreamEvent:
        return event if event.index == index else replace(event, index=index)


def _beginning_at_end(text: str, tag: str) -> int:
    """Return the number of characters at the end of a text that a tag may begin with."""
    return next((length for length in range(min(len(tag) - 1, len(text)), 0, -1) if tag.startswith(text[-length:])), 0)


class OddReply:
    """Repairs of one reply. Made when a piece needs one, with the events before it, which needed none."""

    def __init__(self, before: Iterable[ModelResponseStreamEvent], tags: Tags, *, drops_blanks: bool) -> None:
        """Args: tags: of the model's thoughts. drops_blanks: blanks before the first word of a text are dropped."""
        self._thoughts = TaggedThoughts(tags, drops_blanks=drops_blanks)
        self._parts = PartsInOrder()
        self._record = CompletedStreamedResponse(
            ModelResponse(parts=[]), model_request_parameters=ModelRequestParameters(), replay_events=[]
        )
        """Record of the parts that the passed events make."""
        for event in before:
            self.passed(event)

    def passed(self, event: ModelResponseStreamEvent) -> list[ModelResponseStreamEvent]:
        """Return the events to pass on for this one."""
        return [keep(self._record, self._parts.passed(part)) for part in self._thoughts.passed(event)]

    def rest(self) -> list[ModelResponseStreamEvent]:
        """Return the rest when the stream has ended."""
        rest = [keep(self._record, self._parts.passed(part)) for part in self._thoughts.rest()]
        return rest + [keep(self._record, event) for event in self._parts.rest()]

    def whole(self, response: ModelResponse) -> ModelResponse:
        """Return the answer with the parts that were passed on. Args: response: as the stream has it."""
        return replace(response, parts=self._record.get().parts)
