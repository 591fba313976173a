"""Repairs streams of servers that follow their protocol loosely, in the events that pydantic-ai makes of them.

- Some send each parallel call at index 0, where pydantic-ai joins them to one: a new call begins with a name and another
  id, or with a name after whole arguments.
- Some repeat the name of a call in each piece, where it would be joined to itself, or give each piece another id; some
  send a call that has come in pieces once more as a whole, with its id.
- Some give two calls one id, which their results could not be told apart by.
- Some cut a character in two halves, each in a piece of its own, or send one half only, which UTF-8 cannot hold.
- Some end a stream in which nothing was: that is an empty answer, about which the model is asked once more.
"""

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Self, cast

from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import (
    ModelResponse,
    ModelResponsePart,
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
from pydantic_ai.models import Model, StreamedResponse

from freeact_sub.text import whole_text, whole_value

NOTHING_CAME: Final = "Streamed response ended without content"
"""How the message of pydantic-ai's error for an empty stream begins, whoever the provider is."""
GENERATED: Final = "pyd_ai_"
"""How an id begins that pydantic-ai gives a call because the server has sent none."""

_HALVES: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_FIRST_HALVES: Final = ("\ud800", "\udbff")


@dataclass(kw_only=True)
class _Call:
    """A call as far as it has come."""

    name: str
    call_id: str
    pieces: list[Any] = field(default_factory=list)
    """Of its arguments, texts or objects."""

    @classmethod
    def begun(cls, part: ToolCallPart) -> Self:
        """A call of which this part has come."""
        return cls(name=part.tool_name, call_id=part.tool_call_id, pieces=[] if part.args is None else [part.args])

    @property
    def args(self) -> str | dict[str, Any] | None:
        if any(isinstance(piece, dict) for piece in self.pieces):
            return {name: value for piece in self.pieces if isinstance(piece, dict) for name, value in piece.items()}
        return "".join(self.pieces) if self.pieces else None

    @property
    def is_whole(self) -> bool:
        last = self.pieces[-1] if self.pieces else ""
        if isinstance(last, dict):
            return True
        if not last.rstrip().endswith("}"):  # spares most readings of arguments that come in a thousand pieces
            return False
        return _read("".join(self.pieces)) is not None

    def is_repeated(self, name: str, args: str | dict[str, Any] | None) -> bool:
        """Whether these are the name and the arguments of this call once more."""
        return name == self.name and self.is_whole and _read(args) == _read(self.args) is not None


class PartsInOrder:
    """The parts of one answer. A call that the stream has joined to the one before it is a part of its own."""

    def __init__(self) -> None:
        self._sources: list[int] = []
        """The index in the stream of each part that is passed on."""
        self._newest: dict[int, int] = {}
        """The index that a part of the stream is passed on with; of calls that were joined, that of the newest."""
        self._calls: dict[int, _Call] = {}
        """By the index that they are passed on with."""
        self._ids: dict[int, str] = {}
        """The newest id of each part of the stream. pydantic-ai gives it to the pieces that have none."""
        self._halves: dict[int, str] = {}
        """The first half of a character at the end of the pieces of a part, whose second half may follow."""
        self._thoughts: set[int] = set()
        """The indexes of parts that are thoughts."""
        self._is_mended = False

    def passed(self, event: ModelResponseStreamEvent) -> ModelResponseStreamEvent:
        """The event as it is passed on."""
        match event:
            case PartStartEvent(index=source, part=part):
                index = self._newest.get(source)
                if index is None:
                    index = self._begun(source)
                if isinstance(part, ToolCallPart):
                    self._calls.pop(index, None)
                    self._ids[source] = whole_text(str(part.tool_call_id))
                    part = self._with_id_of_its_own(self._with_whole_args(index, part))
                    self._calls[index] = _Call.begun(part)
                elif isinstance(part, TextPart | ThinkingPart):
                    if isinstance(part, ThinkingPart):
                        self._thoughts.add(index)
                    content = self._whole(index, part.content)
                    part = part if content == part.content else replace(part, content=content)
                return event if (index, part) == (source, event.part) else replace(event, index=index, part=part)
            case PartDeltaEvent(index=source, delta=delta):
                index = self._newest.get(source, source)
                if isinstance(delta, ToolCallPartDelta) and index in self._calls:
                    return self._piece(event, self._calls[index], delta)
                if isinstance(delta, TextPartDelta | ThinkingPartDelta) and delta.content_delta:
                    content = self._whole(index, delta.content_delta)
                    if content != delta.content_delta:
                        return replace(event, index=index, delta=replace(delta, content_delta=content))
                return event if index == source else replace(event, index=index)
        return event

    def whole(self, response: ModelResponse) -> ModelResponse:
        """The answer with the parts that were passed on. Args: response: as the stream has it."""
        sources = sorted(self._newest)
        if not self._is_mended or len(sources) != len(response.parts):
            return response
        parts = dict(zip(sources, response.parts, strict=True))
        mended: list[ModelResponsePart] = []
        for index, source in enumerate(self._sources):
            part, call = parts[source], self._calls.get(index)
            if isinstance(part, ToolCallPart) and call is not None:
                known: dict[str, Any] = {"tool_name": call.name, "args": call.args, "tool_call_id": call.call_id}
                part = replace(part, **known)
            elif isinstance(part, TextPart | ThinkingPart):
                part = replace(part, content=_joined(part.content))
            mended.append(part)
        return replace(response, parts=mended)

    def rest(self) -> list[ModelResponseStreamEvent]:
        """What is left when the stream has ended: halves whose other half never came."""
        events: list[ModelResponseStreamEvent] = []
        for index, half in self._halves.items():
            text = whole_text(half)
            delta: ToolCallPartDelta | ThinkingPartDelta | TextPartDelta = TextPartDelta(text)
            if index in self._calls:
                self._calls[index].pieces.append(text)
                delta = ToolCallPartDelta(args_delta=text)
            elif index in self._thoughts:
                delta = ThinkingPartDelta(content_delta=text)
            events.append(PartDeltaEvent(index=index, delta=delta))
        return events

    def _whole(self, index: int, new: str) -> str:
        """New text of a part, with the half of a character that was held back, and without the one that is held now."""
        if new.isascii() and index not in self._halves:
            return new
        text = self._halves.pop(index, "") + new
        if text and _FIRST_HALVES[0] <= text[-1] <= _FIRST_HALVES[1]:
            self._halves[index], text = text[-1], text[:-1]
        whole = _joined(text)
        self._is_mended = self._is_mended or whole != new
        return whole

    def _begun(self, source: int) -> int:
        self._sources.append(source)
        self._newest[source] = len(self._sources) - 1
        return self._newest[source]

    def _with_whole_args(self, index: int, part: ToolCallPart) -> ToolCallPart:
        args = self._whole_args(index, part.args)
        return part if args == part.args else replace(part, args=args)

    def _whole_args(self, index: int, args: str | dict[str, Any] | None) -> str | dict[str, Any] | None:
        if isinstance(args, dict) and (whole := whole_value(args)) != args:
            self._is_mended = True
            return cast("dict[str, Any]", whole)
        return self._whole(index, args) if isinstance(args, str) else args

    def _with_id_of_its_own(self, part: ToolCallPart) -> ToolCallPart:
        name, call_id = whole_text(part.tool_name), whole_text(str(part.tool_call_id))  # some servers send numbers
        if (name, call_id) != (part.tool_name, part.tool_call_id):
            self._is_mended = True
            part = replace(part, tool_name=name, tool_call_id=call_id)
        if all(call.call_id != part.tool_call_id for call in self._calls.values()):
            return part
        self._is_mended = True
        return replace(part, tool_call_id=ToolCallPart(part.tool_name).tool_call_id)

    def _piece(self, event: PartDeltaEvent, call: _Call, delta: ToolCallPartDelta) -> ModelResponseStreamEvent:
        name, call_id, index = delta.tool_name_delta or "", delta.tool_call_id, self._newest[event.index]
        name, call_id = whole_text(name), None if call_id is None else whole_text(str(call_id))
        if call_id and call_id == self._ids[event.index] and call.is_repeated(name, delta.args_delta):
            self._is_mended = True
            return replace(event, index=index, delta=ToolCallPartDelta(tool_call_id=call.call_id))
        if call_id == self._ids[event.index]:
            call_id = None
        elif call_id:
            self._ids[event.index] = call_id
        is_known = not call.call_id.startswith(GENERATED)
        if name and ((is_known and call_id) or (call.is_whole and (_has_arguments(delta) or name != call.name))):
            return self._next_call(event.index, name, call_id, delta.args_delta)
        if name and name == call.name:
            self._is_mended, name = True, ""
        call.name += name
        if call_id and not is_known and all(other.call_id != call_id for other in self._calls.values()):
            call.call_id = call_id
        elif call_id:
            self._is_mended = True
        if delta.args_delta is not None:
            delta = replace(delta, args_delta=self._whole_args(index, delta.args_delta))
            call.pieces.append(delta.args_delta)
        passed = replace(delta, tool_name_delta=name or None, tool_call_id=call.call_id)
        return event if (index, passed) == (event.index, event.delta) else replace(event, index=index, delta=passed)

    def _next_call(self, source: int, name: str, call_id: str | None, args: str | dict[str, Any] | None) -> PartStartEvent:
        """A call that begins in a piece of the one before it."""
        self._is_mended = True
        part: ToolCallPart = ToolCallPart(name, args)  # with an id of pydantic-ai's
        index = self._begun(source)
        part = self._with_id_of_its_own(replace(part, tool_call_id=call_id or part.tool_call_id))
        part = self._with_whole_args(index, part)
        self._calls[index] = _Call.begun(part)
        return PartStartEvent(index=index, part=part)


def _read(args: str | dict[str, Any] | None) -> Any:
    """The arguments of a call. None: they are no JSON."""
    if not isinstance(args, str):
        return args
    try:
        return json.loads(args)
    except (ValueError, RecursionError):
        return None


def _joined(text: str) -> str:
    """The text with characters whose halves were apart, and half characters written out."""
    return whole_text(_HALVES.sub(lambda halves: halves[0].encode("utf-16", "surrogatepass").decode("utf-16"), text))


def _has_arguments(delta: ToolCallPartDelta) -> bool:
    return bool(delta.args_delta.strip() if isinstance(delta.args_delta, str) else delta.args_delta)


def in_order(response: ModelResponse) -> ModelResponse:
    """An answer that was not streamed, with the same mended."""
    parts = PartsInOrder()
    for index, part in enumerate(response.parts):
        parts.passed(PartStartEvent(index=index, part=part))
    parts.rest()
    return parts.whole(response)


def has_nothing(error: Exception) -> bool:
    """Whether the stream of an answer has ended, and nothing was in it."""
    return isinstance(error, UnexpectedModelBehavior) and error.message.startswith(NOTHING_CAME)


@dataclass(kw_only=True)
class EmptyStream(StreamedResponse):
    """A stream in which nothing was."""

    model: Model
    began: datetime

    def __post_init__(self) -> None:
        self.finish_reason = "stop"

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        return
        yield

    async def close_stream(self) -> None:
        """Nothing: it has ended."""

    @property
    def model_name(self) -> str:
        """See pydantic-ai."""
        return self.model.model_name

    @property
    def provider_name(self) -> str | None:
        """See pydantic-ai."""
        return self.model.system

    @property
    def provider_url(self) -> str | None:
        """See pydantic-ai."""
        return self.model.base_url

    @property
    def timestamp(self) -> datetime:
        """See pydantic-ai."""
        return self.began
