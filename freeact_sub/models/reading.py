"""What a reply in text holds: words, fenced Python blocks, and tool calls that were written instead of made. Pure.

`read` cuts a reply into spans. Nothing is lost: the `raw` texts of the spans, put together, are the reply. Nothing is made
up: code and arguments stand in the span's own text (what `arguments` puts right included).

A call is read where it names a tool that is offered, in one of these places:

- in tags: `<tool_call>`, `<tools>`, `<tool>`, `<function_call>`; the closing tag may be missing at the end;
- as JSON: in a fenced block, or beginning a line;
- as Python: `task("...")`, `execute_ipython_cell(code="...")` beginning a line; or a fenced block of nothing but such calls.

What the JSON and the Python may look like is in `written`.

All else is words. Whether a block is run is for `steps` to say. Blocks of other languages are words, and nothing is read in
them but calls.
"""

import functools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from freeact_sub.models.arguments import Schemas, repaired_code
from freeact_sub.models.written import NAMESPACES, Call, calls_in, calls_of, loads, python_calls

PYTHON: Final = frozenset({"python", "py", "python3", "py3", "ipython", "ipython3"})
_TAGS: Final = "tool_call|tools|tool|function_call"


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
    said = position = 0
    for found in _find(text, tools):
        if all(isinstance(span, Words) for span in found.spans):
            continue
        if found.start > said:
            spans.append(Words(raw=text[said : found.start]))
        spans += found.spans
        said = position = found.end
    if position < len(text):
        spans.append(Words(raw=text[position:]))
    return tuple(spans)


def settled(text: str, tools: Schemas, *, blocks_may_run: bool) -> int:
    """How many characters from the start of a growing reply are words for certain, whatever follows.

    Args:
        text: The reply so far.
        tools: The tools that are offered.
        blocks_may_run: False: Python blocks are words as well.
    """
    for found in _find(text, tools):
        if any(isinstance(span, Call) for span in found.spans):
            return found.start
        if found.open and not _is_foreign(found):
            return found.start
        if blocks_may_run and any(isinstance(span, Block) for span in found.spans):
            return found.start
    tail = _beginning(tuple(tools)).search(text)
    return tail.start() if tail else len(text)


def _is_foreign(found: _Found) -> bool:
    """An open block of a language in which no call is written."""
    head = re.match(r"[`~]{3,}[ \t]*([\w+#.-]+)[^\n]*\n", found.spans[0].raw)
    return head is not None and head[1].lower() not in PYTHON | {"json", "tool_call", "tools", "xml", "text", "plaintext"}


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


def _find(text: str, tools: Schemas) -> Iterator[_Found]:
    opening, position = _opening(tuple(tools)), 0
    while match := opening.search(text, position):
        found = _read_at(text, match, tools)
        yield found
        position = max(found.end, match.end())


def _read_at(text: str, match: re.Match[str], tools: Schemas) -> _Found:
    if match["fence"]:
        return _fenced(text, match, tools)
    if match["tag"]:
        return _tagged(text, match, tools)
    return _json(text, match, tools) if match["json"] else _python(text, match, tools)


def _fenced(text: str, match: re.Match[str], tools: Schemas) -> _Found:
    closing = re.compile(rf"^[ \t]*{re.escape(match['fence'])}[`~]*[ \t]*$", re.MULTILINE).search(text, match.end())
    body = text[match.end() : closing.start() if closing else len(text)]
    end = closing.end() if closing else len(text)
    raw = text[match.start() : end]
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
    return _Found(start=match.start(), end=end, spans=spans, open=closing is None)


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
        value, end = loads(text[start:]), len(text)
    calls = [] if value is None else calls_of(value, tools)
    if calls:
        return _Found(start=start, end=end, spans=_with_raw(text[start:end], calls))
    if value is not None:
        return _Found(start=start, end=end, spans=(Words(raw=text[start:end]),))
    return _Found(start=start, end=match.end(), spans=(Words(raw=match["json"]),), open=True)


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
