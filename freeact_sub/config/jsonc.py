"""JSON with comments and commas at the end of lists, as editors write it: reads it, and changes one member of an object.

Everything else of a file stays as it was written.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from freeact_sub.config.parsing import parse_json, text_of_file

_PIECES: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMAS: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|,(?=\s*[\]}])', re.DOTALL)
_DECODER: Final = json.JSONDecoder()


def plain_json(text: str) -> str:
    """The text as JSON, with blanks instead of comments and commas at the end; every other character keeps its place."""
    without = _PIECES.sub(lambda found: found[0] if found[0][0] == '"' else re.sub(r"[^\n]", " ", found[0]), text)
    return _LAST_COMMAS.sub(lambda found: " " if found[0] == "," else found[0], without)


@dataclass(frozen=True)
class JsonMember:
    """A member of an object: where its key begins, and its value begins and ends."""

    name: str
    start: int
    value: int
    end: int


def with_member(text: str, path: Sequence[str], name: str, value: Any) -> str:
    """The text with one more member at the end of an object. Args: path: leads to the object; what is missing is made.

    Raises:
        ValueError: The text is no JSON, or there is something else on the path.
    """
    plain = plain_json(text)
    at = _object(plain, 0)
    for index, key in enumerate(path):
        found = [member for member in _members(plain, at) if member.name == key]
        if not found:
            for missing in reversed(path[index + 1 :]):
                name, value = missing, {name: value}
            name, value = key, {name: value}
            break
        at = _object(plain, found[-1].value)
    return _inserted(text, plain, at, name, value)


def without_member(text: str, path: Sequence[str], name: str) -> str:
    """The text without a member of an object. Args: path: leads to the object.

    Raises:
        ValueError: The text is no JSON, or there is no such member.
    """
    found = True
    removed = 0
    while found:
        plain = plain_json(text)
        at = _object(plain, 0)
        for key in path:
            at = _object(plain, next(member.value for member in reversed([*_members(plain, at)]) if member.name == key))
        members = [*_members(plain, at)]
        index = next((index for index, member in enumerate(members) if member.name == name), None)
        found = index is not None
        if index is not None:
            text = _removed(text, plain, members, index)
            removed += 1
    if not removed:
        raise ValueError(f"it has no {name!r}")
    return text


def _inserted(text: str, plain: str, at: int, name: str, value: Any) -> str:
    members = [*_members(plain, at)]
    line_end = "\r\n" if "\r\n" in text else "\n"
    outer = _indent(text, at)
    inner = _indent(text, members[-1].start) if members and "\n" in text[at : members[-1].start] else outer + _step(text)
    written = json.dumps(value, indent=_step(text), ensure_ascii=False).replace("\n", f"{line_end}{inner}")
    member = f"{json.dumps(name, ensure_ascii=False)}: {written}"
    if not members:
        end = plain.index("}", at)
        comment = text[at + 1 : end].rstrip()
        return f"{text[: at + 1]}{comment}{line_end}{inner}{member}{line_end}{outer}{text[end:]}"
    end = members[-1].end
    rest = re.compile(r"[ \t]*(,?)").match(text, end)
    comma = rest is not None and rest[1] == ","
    after = rest.end() if comma and rest is not None else end
    newline = plain.find("\n", after)
    # a comment behind the last member stays behind it
    place = newline - (text[newline - 1] == "\r") if newline >= 0 and not plain[after:newline].strip() else after
    tail = "" if "\n" in plain[place : plain.index("}", after)] else f"{line_end}{outer}"
    new = f"{line_end}{inner}{member}{',' if comma else ''}{tail}"
    return f"{text[:end]},{text[after:place]}{new}{text[place:]}"


def _removed(text: str, plain: str, members: list[JsonMember], index: int) -> str:
    member = members[index]
    start, end = member.start, member.end
    if index + 1 < len(members) or re.match(r"\s*,", text[end:]):
        end = text.index(",", end) + 1
    elif index:
        comma = plain.rindex(",", members[index - 1].end, start)
        text, plain = (part[:comma] + " " + part[comma + 1 :] for part in (text, plain))
        if text[members[index - 1].end : comma].strip() == "":
            text = text[:comma] + text[comma + 1 :]
            plain = plain[:comma] + plain[comma + 1 :]
            start, end = start - 1, end - 1
    line_start, line_end = text.rfind("\n", 0, start) + 1, text.find("\n", end)
    if line_end >= 0 and not text[line_start:start].strip() and not text[end:line_end].strip():
        start, end = line_start, line_end + 1  # nothing else is on its lines
    return text[:start] + text[end:]


def _members(plain: str, at: int) -> Iterator[JsonMember]:
    """The members of the object that begins here."""
    at = _after_blanks(plain, at + 1)
    while plain[at : at + 1] == '"':
        start = at
        name, at = _DECODER.raw_decode(plain, at)
        value = _after_blanks(plain, _after_blanks(plain, at) + 1)
        _, at = _DECODER.raw_decode(plain, value)
        yield JsonMember(name, start, value, at)
        at = _after_blanks(plain, at)
        if plain[at : at + 1] == ",":
            at = _after_blanks(plain, at + 1)


def _object(plain: str, at: int) -> int:
    at = _after_blanks(plain, at)
    if plain[at : at + 1] != "{":
        raise ValueError("there is no object where one is expected")
    return at


def _after_blanks(plain: str, at: int) -> int:
    while at < len(plain) and plain[at] in " \t\r\n\ufeff":
        at += 1
    return at


def _indent(text: str, at: int) -> str:
    """The blanks at the beginning of a line."""
    line = text[text.rfind("\n", 0, at) + 1 :]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _step(text: str) -> str:
    """By how much a text indents: that of its first line that is indented."""
    found = re.search(r"\n([ \t]+)\S", text)
    return found[1] if found else "  "


def parse_jsonc(content: bytes | str) -> Any:
    """Reads JSON with comments. Raises: ValueError: See `parse_json`."""
    text = content if isinstance(content, str) else text_of_file(content)
    return parse_json(plain_json(text))
