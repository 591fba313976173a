"""`Pattern`: `KIND` or `KIND:GLOB`, as it stands in a rule file; globs over commands, paths, hosts and names.

A shell command is not always known before it runs: `$(…)` and `$x` stand in its words as `UNKNOWN`, a file-name wildcard as
`WILD`. So a glob is held against a text in two ways. `covers`: the glob matches whatever the unknown words become; only this
allows. `may_match`: it could be something that the glob matches; a rule that denies must not be got round by hiding a word.

The matcher walks the text once with the set of places in the glob where it could be. A regular expression with several
stars takes a time that an adversary chooses.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from string import ascii_letters, ascii_lowercase, ascii_uppercase
from typing import Final, TypeAlias

from freeact_sub.calls import CALLS, HARMLESS, KINDS

Kind: TypeAlias = str
"""A kind of call, one of `KINDS`."""

UNKNOWN: Final = "\ue000"
"""The mark of text in a command that is known only when the command runs."""
WILD: Final = "\ue001"
"""The mark of a wildcard in a command that the shell expands to parts of file names."""

MAX_REPEATED: Final = 3
"""Stars of a glob that its regular expression keeps, so that the glob's writer cannot choose how long matching takes."""

_Token: TypeAlias = tuple[str, str]
"""A kind of token and its character or characters: one, set, not, any, star, deep, folders, inside."""


_SMALL: Final = str.maketrans(ascii_uppercase, ascii_lowercase)


class _Glob(tuple[_Token, ...]):  # noqa: SLOT001  # it caches its plain parts
    """A glob as tokens, with plain parts for quick tests of a text."""

    @cached_property
    def begin(self) -> str:
        """The plain characters at the start."""
        return next(self._plain())

    @cached_property
    def end(self) -> str:
        """The plain characters at the end."""
        return list(self._plain())[-1]

    @cached_property
    def inner(self) -> str:
        """The longest run of plain characters."""
        return max(self._plain(), key=len)

    @cached_property
    def small(self) -> "_Glob":
        """The glob in small letters: it matches a text in small letters if this glob matches the text in any case."""
        return _Glob(
            (
                kind,
                "".join(char for char in value if char not in ascii_letters) if kind == "not" else value.translate(_SMALL),
            )
            for kind, value in self
        )

    def _plain(self) -> Iterator[str]:
        run = ""
        for kind, value in self:
            if kind == "one":
                run += value
            else:
                yield run
                run = ""
        yield run


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """A kind of call and a glob; a rule gives its verdict on calls that match."""

    kind: Kind
    glob: str = ""
    """The glob. Empty: all calls of the kind."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.glob}" if self.glob else self.kind

    def covers(self, text: str, workspace: Path) -> bool:
        """Return whether the pattern matches the text whatever its unknown parts are."""
        return not self.glob or any(_matches(glob, text, certain=True) for glob in self._globs(workspace))

    def may_match(self, text: str, workspace: Path) -> bool:
        """Return whether the pattern could match the text; paths in any case, since some disks do not distinguish it."""
        globs = self._globs(workspace)
        if self.kind in ("file", "write"):
            globs, text = tuple(glob.small for glob in globs), text.translate(_SMALL)
        return not self.glob or any(_matches(glob, text, certain=False) for glob in globs)

    def places(self, workspace: Path) -> Sequence[tuple[str, str]]:
        """Return, for a pattern over paths, pairs of regular expressions: a folder with its last `/`, and a name in it.

        For quick tests: the pairs match all paths that the pattern matches, and perhaps more.
        """
        return _places(self.kind, self.glob, str(workspace), self._home) if self.glob else ((".*", ".*"),)

    def _globs(self, workspace: Path) -> "tuple[_Glob, ...]":
        return _globs(self.kind, self.glob, str(workspace), self._home)

    @property
    def _home(self) -> str:
        """The home folder, which is slow to look up, if the glob has `~`."""
        return os.environ.get("HOME", "") if self.glob.startswith("~") else ""


def parse_pattern(text: str) -> Pattern:
    """Read a pattern in the form of rule files.

    Raises:
        ValueError: The text is no pattern; says why.
    """
    kind, _, glob = text.partition(":")
    if kind not in KINDS:
        raise ValueError(f"{text!r} does not begin with a kind: write KIND or KIND:GLOB, with a kind of {', '.join(KINDS)}")
    if glob != glob.strip() or (":" in text and not glob):
        raise ValueError(f"{text!r} has an empty glob, or spaces around it: write {kind} for all, or {kind}:GLOB")
    if glob and kind in CALLS and CALLS[kind].whole and text != HARMLESS:
        raise ValueError(f"{text!r}: {kind} takes no glob: write {kind}{f' or {HARMLESS}' if kind == 'code' else ''}")
    if UNKNOWN in glob or WILD in glob or "\0" in glob:
        raise ValueError(f"{text!r} contains a character that globs cannot contain")
    return Pattern(kind=kind, glob=glob)


def escaped(text: str) -> str:
    """Return a glob that matches just this text."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in text)


@lru_cache(maxsize=4096)
def _globs(kind: Kind, glob: str, workspace: str, _home: str) -> "tuple[_Glob, ...]":
    """Return the globs of a pattern. Args: _home: the folder that `~` stands for, a part of the cache's key."""
    match kind:
        case "shell":
            end = next((end for end in (" **", " *") if glob.endswith(end)), "")
            return (_tokens(glob, ""), *([_tokens(glob.removesuffix(end), "")] if end else []))
        case "file" | "write":
            glob = _absolute(glob, workspace)
            all_in = glob.endswith("/**")  # a folder whose content is closed may not be moved away either
            return (_tokens(glob, "/"), *([_tokens(glob.removesuffix("/**"), "/")] if all_in else []))
        case "connect":
            has_port = ":" in glob.rpartition("]")[2]
            return (_tokens((glob if has_port else f"{glob}:*").lower(), ""),)
        case _:
            return (_tokens(glob, ""),)


@lru_cache(maxsize=1024)
def _places(kind: Kind, glob: str, workspace: str, home: str) -> tuple[tuple[str, str], ...]:
    """Return `Pattern.places`, cached, since each agent needs all rules'."""
    return tuple(_place(one) for one in _globs(kind, glob, workspace, home))


def _place(glob: "_Glob") -> tuple[str, str]:
    tokens = [_LOOSE if _crosses(token) else token for token in glob]
    ends = [index for index, token in enumerate(tokens) if token == ("one", "/") or token[0] == "inside"]
    start = ends[-1] + 1 if ends else 0
    loose = [index for index in range(start, len(tokens)) if tokens[index] == _LOOSE]
    if loose:
        folder, name = f"{_expression(tokens[:start])}.*", f".*{_expression(tokens[loose[-1] + 1 :])}"
    else:
        folder, name = _expression(tokens[:start]), _expression(tokens[start:])
    return f"(?ai:{folder})", f"(?ai:{name})"


def _absolute(glob: str, workspace: str) -> str:
    if glob.endswith("/"):
        glob += "**"
    if glob.startswith("~/") or glob == "~":
        return escaped(str(Path.home())) + glob[1:]
    if glob.startswith("**/"):
        return f"/{glob}"
    if glob.startswith("/"):
        return glob
    folder = escaped(workspace).rstrip("/")
    while glob.startswith("./"):
        glob = glob[2:]
    while glob.startswith("../"):
        glob, folder = glob[3:], os.path.dirname(folder).rstrip("/")  # noqa: PTH120  (a glob, no path)
    return f"{folder}/{glob}"


@lru_cache(maxsize=4096)
def _tokens(glob: str, separator: str) -> "_Glob":
    """Cut a glob into tokens. With a separator, `*` and `?` do not cross it and `**/` stands for any folders, or none."""
    tokens: list[_Token] = []
    at = 0
    while at < len(glob):
        if separator and glob.startswith("**/", at) and (at == 0 or glob[at - 1] == "/"):
            tokens += [("folders", ""), ("inside", "")]
            at += 3
        elif glob.startswith("**", at):
            tokens.append(("deep", ""))
            at += 2
        elif glob[at] in "*?":
            tokens.append(("star" if glob[at] == "*" else "any", separator))
            at += 1
        elif glob[at] == "[" and (end := glob.find("]", at + 2)) > 0:
            inside = glob[at + 1 : end]
            tokens.append(("not", _members(inside[1:])) if inside[0] in "!^" and inside[1:] else ("set", _members(inside)))
            at = end + 1
        else:
            tokens.append(("one", glob[at]))
            at += 1
    return _Glob(tokens)


def _members(inside: str) -> str:
    """Return the characters of a `[…]`, ranges written out."""
    members, at = "", 0
    while at < len(inside):
        if at + 2 < len(inside) and inside[at + 1] == "-":
            first, last = ord(inside[at]), min(ord(inside[at + 2]), ord(inside[at]) + 0xFFFF)
            members += "".join(map(chr, range(first, last + 1)))
            at += 3
        else:
            members += inside[at]
            at += 1
    return members


_LOOSE: Final[_Token] = ("deep", "")


def _crosses(token: _Token) -> bool:
    """Return whether a token may match a `/` besides other characters."""
    kind, value = token
    return kind == "not" or (kind == "set" and "/" in value)


def _expression(tokens: Iterable[_Token]) -> str:
    pieces: list[str] = []
    repeated = 0
    for kind, value in tokens:
        repeated += kind in ("star", "deep", "folders")
        if repeated > MAX_REPEATED:
            return "".join(pieces) + ".*"
        match kind:
            case "one":
                pieces.append(re.escape(value))
            case "set":
                pieces.append(f"[{re.escape(value)}]" if value else "(?!)")
            case "any" | "star":
                pieces.append("[^/]*" if kind == "star" else "[^/]")
            case "folders":
                pieces.append("(?:.*/)?")
            case "deep":
                pieces.append(".*")
    return "".join(pieces)


def _differs(glob: "_Glob", text: str) -> bool:
    """Test quickly whether the known characters of a text rule the glob out."""
    known, tail = text.partition(UNKNOWN)[0].partition(WILD)[0], text
    if len(known) < len(text):
        tail = text.rpartition(UNKNOWN)[2].rpartition(WILD)[2]
    elif glob.inner not in text:
        return True
    begin, end = glob.begin, glob.end
    return known[: len(begin)] != begin[: len(known)] or not (tail.endswith(end) or end.endswith(tail))


def _matches(tokens: "_Glob", text: str, *, certain: bool) -> bool:
    if _differs(tokens, text):
        return False
    places = _closed({0}, tokens)
    for index, char in enumerate(text):
        if char in (UNKNOWN, WILD):
            at_start = index == 0 or text[index - 1] == "/"
            step = (
                _step_certain(places, tokens, char) if certain else _step_possible(places, tokens, char, at_start=at_start)
            )
        else:
            step = {place for old in places if old < len(tokens) for place in _next(old, tokens[old], char)}
        places = _closed(step, tokens)
        if not places:
            return False
    return len(tokens) in places


def _closed(places: AbstractSet[int], tokens: tuple[_Token, ...]) -> set[int]:
    """Return the positions, and those reached from them without a character."""
    closed = set(places)
    todo = list(places)
    while todo:
        place = todo.pop()
        kind = tokens[place][0] if place < len(tokens) else ""
        further = place + 1 if kind in ("star", "deep") else place + 2 if kind == "folders" else place
        if further not in closed:
            closed.add(further)
            todo.append(further)
    return closed


def _next(place: int, token: _Token, char: str) -> tuple[int, ...]:
    kind, value = token
    match kind:
        case "one":
            return (place + 1,) if char == value else ()
        case "set":
            return (place + 1,) if char in value else ()
        case "not":
            return (place + 1,) if char not in value else ()
        case "any":
            return (place + 1,) if char != value else ()
        case "star":
            return (place,) if char != value else ()
        case "folders":
            return (place,) if char == "/" else (place + 1,)
        case "inside":
            return (place - 1,) if char == "/" else (place,)
        case _:
            return (place,)


def _step_certain(places: AbstractSet[int], tokens: tuple[_Token, ...], char: str) -> set[int]:
    """Step for `covers`: only `**` takes unknown text; `*` takes a wildcard as well, which expands to a name."""
    kinds = ("deep", "star") if char == WILD else ("deep",)
    return {place for place in places if place < len(tokens) and tokens[place][0] in kinds}


def _step_possible(places: AbstractSet[int], tokens: tuple[_Token, ...], char: str, *, at_start: bool) -> set[int]:
    """Step for `may_match`: unknown text takes any token; a wildcard stands for neither `/` nor a leading dot."""
    if char == UNKNOWN:
        return set(range(min(places), len(tokens) + 1)) if places else set()
    reached: set[int] = set()
    for place in places:
        for further in range(place, len(tokens) + 1):
            token = tokens[further] if further < len(tokens) else ("end", "")
            reached.add(further + (token[0] == "folders"))
            leading_dot = at_start and further == place and token == ("one", ".")
            if leading_dot or token[0] in ("folders", "inside") or token == ("one", "/"):
                break
    return reached
