"""`TaggedThoughts` takes the thoughts out of texts that a model began with `<think>`, however the stream is cut.

pydantic-ai knows a tag only where it is a piece of its own, so that the answer of a run would depend on how a server cuts
its stream; its own search is switched off (`without_tags`). Thoughts stand at the beginning of a text, before its first
word. A tag anywhere else is a word like any other: an answer may be about such tags, and code may look for them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

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
)

Tags: TypeAlias = Sequence[tuple[str, str]]
"""The pairs of tags that a model may write."""
USUAL: Final[Tags] = (("<think>", "</think>"),)
_Kind: TypeAlias = Literal["thought", "text"]


@dataclass(kw_only=True)
class _Text:
    """One text as far as it has come."""

    part: TextPart
    """As it began."""
    tags: Tags
    drops_blanks: bool
    """Blanks before the first word are dropped."""
    thoughts: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    closing: str = ""
    """The tag that ends the present thought. Empty: there is none."""
    in_words: bool = False
    """The first word has come, so that all that follows is text."""
    held: str = ""
    """What may be the beginning of a tag, or blanks before one."""

    def add(self, new: str) -> Iterator[tuple[_Kind, str]]:
        """Add new text; return what is certain now."""
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
                if self.thoughts:
                    yield from self._told("thought", "\n")
                continue
            if self.drops_blanks:
                self.held = start
            if any(opening.startswith(start) for opening, _ in self.tags):
                return
            self.in_words = True
        yield from self.rest() if self.in_words else ()

    def rest(self) -> Iterator[tuple[_Kind, str]]:
        """What was held back, where nothing follows."""
        new, self.held = self.held, ""
        yield from self._told("thought" if self.closing else "text", new)

    def _told(self, kind: _Kind, new: str) -> Iterator[tuple[_Kind, str]]:
        if new:
            (self.thoughts if kind == "thought" else self.words).append(new)
            yield kind, new


class TaggedThoughts:
    """The parts of one answer, in which each text has become a thought and a text, or one of them."""

    def __init__(self, tags: Tags = USUAL, *, drops_blanks: bool = False) -> None:
        self._tags = tags
        self._drops_blanks = drops_blanks
        self._texts: dict[int, _Text] = {}
        """By their index in the stream."""
        self._places: dict[tuple[int, _Kind | None], int] = {}
        """The index with which a part is passed on, by its index in the stream. A kind of None: it is no text."""

    def passed(self, event: ModelResponseStreamEvent) -> Iterator[ModelResponseStreamEvent]:
        """The events that this one becomes."""
        match event:
            case PartStartEvent(index=source, part=TextPart() as part):
                yield from self._held(but=source)
                self._texts[source] = _Text(part=part, tags=self._tags, drops_blanks=self._drops_blanks)
                yield from self._added(source, part.content)
            case PartStartEvent(index=source):
                yield from self._held(but=source)
                yield self._at(event, self._places.setdefault((source, None), len(self._places)))
            case PartDeltaEvent(index=source, delta=TextPartDelta() as delta) if source in self._texts:
                text = self._texts[source]
                if text.in_words and (source, "text") in self._places:
                    text.words.append(delta.content_delta)
                    yield self._at(event, self._places[source, "text"])
                else:
                    yield from self._added(source, delta.content_delta)
            case PartDeltaEvent(index=source):
                yield self._at(event, self._places.get((source, None), source))
            case _:
                yield event

    def rest(self) -> Iterator[ModelResponseStreamEvent]:
        """What is left when the stream has ended."""
        yield from self._held()

    def whole(self, response: ModelResponse) -> ModelResponse:
        """The answer with the parts that were passed on. Args: response: as the stream has it."""
        sources = sorted({source for source, _ in self._places} | self._texts.keys())
        if len(sources) != len(response.parts):
            return response
        parts = dict(zip(sources, response.parts, strict=True))
        ordered: list[ModelResponsePart] = []
        for source, kind in self._places:  # in the order in which they were passed on
            part, text = parts[source], self._texts.get(source)
            if text is not None and kind == "thought":
                part = self._thought("".join(text.thoughts))
            elif text is not None and isinstance(part, TextPart) and part.content != (words := "".join(text.words)):
                part = replace(part, content=words)
            ordered.append(part)
        return response if ordered == list(response.parts) else replace(response, parts=ordered)

    def _held(self, but: int | None = None) -> Iterator[ModelResponseStreamEvent]:
        """What was held back of all texts but one, which another part follows."""
        for source, text in self._texts.items():
            if source != but and text.held:
                yield from self._events(source, text.rest())

    def _added(self, source: int, new: str) -> Iterator[ModelResponseStreamEvent]:
        yield from self._events(source, self._texts[source].add(new))

    def _events(self, source: int, told: Iterator[tuple[_Kind, str]]) -> Iterator[ModelResponseStreamEvent]:
        text = self._texts[source]
        for kind, new in told:
            if (source, kind) not in self._places:
                index = self._places[source, kind] = len(self._places)
                part = self._thought(new) if kind == "thought" else replace(text.part, content=new)
                yield PartStartEvent(index=index, part=part)
            elif kind == "thought":
                yield PartDeltaEvent(index=self._places[source, kind], delta=ThinkingPartDelta(content_delta=new))
            else:
                yield PartDeltaEvent(index=self._places[source, kind], delta=TextPartDelta(new))

    @staticmethod
    def _thought(content: str) -> ThinkingPart:
        return ThinkingPart(content, id="content")  # the id of thoughts that go back to the model in tags

    @staticmethod
    def _at(event: PartStartEvent | PartDeltaEvent, index: int) -> ModelResponseStreamEvent:
        return event if event.index == index else replace(event, index=index)


def _beginning_at_end(text: str, tag: str) -> int:
    """The number of characters at the end of a text that a tag may begin with."""
    return next((length for length in range(min(len(tag) - 1, len(text)), 0, -1) if tag.startswith(text[-length:])), 0)
