"""`change_of` finds the variables that a shell builtin sets, exports or removes when it runs as a command.

The parser knows `export X` and `unset X`; as `command unset X` or `'export' X` they are commands like any other. A name that
is not plain is refused: `unset 'a[$(x)]'` runs `x`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from freeact_sub.approvals.rules.patterns import UNKNOWN, WILD

DECLARING: Final = frozenset({"export", "unset", "local", "readonly", "declare", "typeset"})
READ_FLAGS: Final = "ers"
READ_VALUES: Final = "adinNptu"


@dataclass(frozen=True, kw_only=True)
class Change:
    """The variables that a command changes."""

    variables: tuple[str, ...] = ()
    opaque: str = ""
    """Why they are unknown; empty: they are known."""


def change_of(words: tuple[str, ...]) -> Change:
    """The variables that a command changes. Args: words: the command's name and arguments."""
    name, rest = words[0], list(words[1:])
    if name in ("test", "[") and any(word in ("-v", "-R") or UNKNOWN in word for word in rest[:-1]):
        return Change(opaque=f"what {name} evaluates cannot be told from the command")
    found = _named(name, rest)
    if found is None:
        return Change(opaque=f"which variables {name} changes cannot be told from the command")
    variables = tuple(word.partition("=")[0].removesuffix("+") for word in found)
    if not all(re.fullmatch(r"[A-Za-z_]\w*", variable) for variable in variables):
        return Change(opaque=f"which variables {name} changes cannot be told from the command")
    return Change(variables=variables)


def _named(name: str, rest: list[str]) -> list[str] | None:
    """The names as written. None: an option is not known."""
    if name in DECLARING:
        return None if any(word.startswith(("-", "+")) for word in rest) else rest
    if name == "read":
        return _read(rest)
    if name == "getopts":
        return rest[1:2]
    if name == "printf" and rest and rest[0].startswith(("-v", UNKNOWN, WILD)):
        return rest[1:2] if rest[0] == "-v" else None if not rest[0].startswith("-v") else [rest[0][2:]]
    if name == "wait" and any(word.startswith(("-", UNKNOWN)) for word in rest):
        return None if any(word not in ("-n", "-f") and not re.fullmatch(r"\d+", word) for word in rest) else []
    return []


def _read(rest: list[str]) -> list[str] | None:
    named: list[str] = []
    words: Iterator[str] = iter(rest)
    for word in words:
        if not word.startswith("-") or word == "-":
            return [*named, word, *words]
        if word == "--":
            return [*named, *words]
        flags = word[1:].lstrip(READ_FLAGS)
        if flags and flags[0] not in READ_VALUES:
            return None
        value = (flags[1:] or next(words, UNKNOWN)) if flags else ""
        if flags[:1] == "a":
            named.append(value)
    return named
