"""What a reply in text holds: words, fenced Python blocks, and tool calls that were written instead of made. Pure.

`read` cuts a reply into spans. Nothing is lost: the `raw` texts of the spans, put together, are the reply. Nothing is made
up: code and arguments stand in the span's own text (what `arguments` puts right included).

A call is read where it names a tool that is offered, in one of these places:

- in tags: `<tool_call>`, `<tools>`, `<tool>`, `<function_call>`; the closing tag may be missing at the end;
- as JSON: in a fenced block, or beginning a line;
- as Python: `task("...")`, `execute_ipython_cell(code="...")` beginning a line; or a fenced block of nothing but such calls.

What the JSON and the Python may look like is in `written`.

All else is words. Whether a block is run is for `steps` to say. Blocks of other languages are words, and nothing is read in
them.
"""

import functools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from freeact_sub.models.arguments import Schemas, repaired_code
from freeact_sub.models.written import NAMESPACES, Call, calls_in, calls_of, python_calls

PYTHON: Final = frozenset({"python", "py", "python3", "py3", "ipython", "ipython3"})
CALL_LANGUAGES: Final = frozenset({"json", "jsonc", "json5", "tool_call", "tools", "tool_code", "xml", "text", "plaintext"})
"""Of fenced blocks, besides Python and none, in which calls are read."""
_TAGS: Final = "tool_call|tools|tool|function_call"

OPENING_CHARS: Final = 4_096
"""More than the beginning of a call has, white space included."""


@dataclass(frozen=True, kw_only=True)
class Words:
    """Text for people."""

    raw: str


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block that is, or may be, Python."""

    raw: str
    code: str
    language: str
    """As written behind the fence, in lower case; empty: none was written."""
    closed: bool = True
    """False: the reply ended inside the block."""


Span: TypeAlias = Words | Block | Call


@dataclass(frozen=True, kw_only=True)
class _Found:
    start: int
    end: int
    spans: tuple[Span, ...]
    open: bool = False
    """The text ends before this does."""


def read(text: str, tools: Schemas) -> tuple[Span, ...]:
    """Cut a whole reply into spans.

    Args:
        text: What the model wrote.
        tools: The tools that are offered.
    """
    spans: list[Span] = []
    position = 0
    for found in _find(text, tools):
        if all(isinstance(span, Words) for span in found.spans):
            continue
        if found.start > position:
            spans.append(Words(raw=text[position : found.start]))
        spans += found.spans
        position = found.end
    if position < len(text):
        spans.append(Words(raw=text[position:]))
    return tuple(spans)


class GrowingReply:
    """A reply that is still being written: how much of it is words for certain, whatever follows."""

    def __init__(self, tools: Schemas, *, blocks_may_run: bool) -> None:
        """Args: tools: the tools that are offered. blocks_may_run: False: Python blocks are words as well."""
        self.text = ""
        """What has come."""
        self.passed = 0
        """How much of it was given out."""
        self._tools = tools
        self._blocks_may_run = blocks_may_run
        self._done = 0
        """What stands before this place is not looked at again."""

    def add(self, text: str) -> str:
        """More has come. Returns what is words for certain, and was not given out yet."""
        self.text += text
        return self._given_out(max(self.passed, self._settled()))

    def rest(self) -> str:
        """What was not given out yet."""
        return self._given_out(len(self.text))

    def _given_out(self, end: int) -> str:
        given, self.passed = self.text[self.passed : end], end
        return given

    def _settled(self) -> int:
        for found in _find(self.text, self._tools, start=self._done, growing=True):
            if found.open:
                if _is_foreign(found.spans[0].raw):
                    return len(self.text)
                return found.start
            if any(isinstance(span, Call) or (self._blocks_may_run and isinstance(span, Block)) for span in found.spans):
                return found.start
            self._done = found.end
        # what has not become an opening by now, and is further back than any opening is long, will be none
        self._done = max(self._done, len(self.text) - OPENING_CHARS)
        tail = _beginning(tuple(self._tools)).search(self.text, self._done)
        return tail.start() if tail else len(self.text)


def _is_foreign(raw: str) -> bool:
    """The text begins a fenced block of a language in which nothing is read."""
    head = re.match(r"[`~]{3,}[ \t]*([^\s`]+)[^\n]*\n", raw)
    return head is not None and head[1].lower() not in PYTHON | CALL_LANGUAGES


@functools.lru_cache(maxsize=64)
def _opening(names: tuple[str, ...]) -> re.Pattern[str]:
    called = "|".join(map(re.escape, names)) or r"(?!)"
    return re.compile(
        rf"(?P<fence>`{{3,}}|~{{3,}})[ \t]*(?P<info>[^\n`]*)(?:\n|\Z)"
        rf"|<(?P<tag>{_TAGS})>"
        rf"|^[ \t]*(?P<json>(?:\[\s*)?\{{)"
        rf"|^[ \t]*(?:(?:{'|'.join(NAMESPACES)})\.)?(?P<call>{called})\(",
        re.MULTILINE,
    )


@functools.lru_cache(maxsize=64)
def _beginning(names: tuple[str, ...]) -> re.Pattern[str]:
    """The end of a growing text that may become an opening."""
    tags = "|".join(_prefixes(f"<{tag}>") for tag in _TAGS.split("|"))
    spaces = [_prefixes(f"{space}.{name}(") for name in names for space in sorted(NAMESPACES)]
    called = "|".join([*(_prefixes(f"{name}(") for name in names), *spaces]) or r"(?!)"
    return re.compile(rf"(?:`+|~+|{tags}|^[ \t]*(?:\[\s*|{called}))\Z|^[ \t]+\Z", re.MULTILINE)


def _prefixes(text: str) -> str:
    """A pattern for each proper prefix of a text, longest first."""
    return "|".join(re.escape(text[:end]) for end in range(len(text) - 1, 0, -1))


def _find(text: str, tools: Schemas, *, start: int = 0, growing: bool = False) -> Iterator[_Found]:
    """Args: growing: what has no end yet is not read, since its end may still come."""
    opening, position = _opening(tuple(tools)), start
    while match := opening.search(text, position):
        found = _read_at(text, match, {} if growing and _is_open(text, match) else tools)
        yield found
        position = max(found.end, match.end())


def _is_open(text: str, match: re.Match[str]) -> bool:
    if match["fence"]:
        return _closing_fence(text, match) is None
    return bool(match["tag"]) and f"</{match['tag']}>" not in text[match.end() :]


def _closing_fence(text: str, match: re.Match[str]) -> re.Match[str] | None:
    return re.compile(rf"^[ \t]*{re.escape(match['fence'])}[`~]*[ \t]*$", re.MULTILINE).search(text, match.end())


def _read_at(text: str, match: re.Match[str], tools: Schemas) -> _Found:
    if match["fence"]:
        return _fenced(text, match, tools)
    if match["tag"]:
        return _tagged(text, match, tools)
    return _json(text, match, tools) if match["json"] else _python(text, match, tools)


def _fenced(text: str, match: re.Match[str], tools: Schemas) -> _Found:
    closing = _closing_fence(text, match)
    body = text[match.end() : closing.start() if closing else len(text)]
    end = closing.end() if closing else len(text)
    raw = text[match.start() : end]
    if _is_foreign(raw):
        return _Found(start=match.start(), end=end, spans=(Words(raw=raw),), open=end == len(text))
    language = (match["info"].split() or [""])[0].lower()
    inner = re.fullmatch(rf"\s*<({_TAGS})>(.*?)(?:</\1>)?\s*", body, re.DOTALL)
    calls = calls_in(inner[2] if inner else body, tools)
    spans: tuple[Span, ...]
    if calls:
        spans = _with_raw(raw, calls)
    elif (language in PYTHON or not language) and body.strip() and not inner:
        code = repaired_code(body.removesuffix("\n"))
        spans = (Block(raw=raw, code=code, language=language, closed=closing is not None),)
    else:
        spans = (Words(raw=raw),)
    # what stands at the very end may still turn out to be no closing fence
    return _Found(start=match.start(), end=end, spans=spans, open=end == len(text))


def _tagged(text: str, match: re.Match[str], tools: Schemas) -> _Found:
    closing = text.find(f"</{match['tag']}>", match.end())
    end = len(text) if closing < 0 else closing + len(match["tag"]) + 3
    calls = calls_in(text[match.end() : closing if closing >= 0 else len(text)], tools)
    if not calls:  # what stands behind the tag may still be something
        raw = text[match.start() : match.end()]
        return _Found(start=match.start(), end=match.end(), spans=(Words(raw=raw),), open=closing < 0)
    return _Found(start=match.start(), end=end, spans=_with_raw(text[match.start() : end], calls), open=closing < 0)


def _json(text: str, match: re.Match[str], tools: Schemas) -> _Found:
    start = match.start("json")
    try:
        value, end = json.JSONDecoder(strict=False).raw_decode(text, start)
    except (ValueError, RecursionError):
        # no JSON, or not whole: then it must be all that is left
        calls = calls_in(text[start:], tools)
        if calls:
            return _Found(start=start, end=len(text), spans=_with_raw(text[start:], calls))
        return _Found(start=start, end=match.end(), spans=(Words(raw=match["json"]),), open=True)
    calls = calls_of(value, tools)
    return _Found(start=start, end=end, spans=_with_raw(text[start:end], calls) or (Words(raw=text[start:end]),))


def _python(text: str, match: re.Match[str], tools: Schemas) -> _Found:
    """A call that begins a line: it ends where, at the end of some line, the text so far is Python."""
    start = match.start() + len(match[0]) - len(match[0].lstrip())
    for line_end in re.finditer(r"\)[ \t;]*(?:\n|\Z)", text[start:]):
        end = start + line_end.start() + 1
        calls = python_calls(text[start:end], tools)
        if calls:
            return _Found(start=start, end=end, spans=_with_raw(text[start:end], calls))
    return _Found(start=start, end=match.end(), spans=(Words(raw=text[start : match.end()]),), open=True)


def _with_raw(raw: str, calls: Sequence[Call]) -> tuple[Call, ...]:
    return tuple(Call(raw="" if index else raw, tool=call.tool, args=call.args) for index, call in enumerate(calls))
