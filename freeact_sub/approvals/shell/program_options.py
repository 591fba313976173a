"""`read_options` finds the first word of a command that is not known to be harmless, for programs allowed as shipped.

A program that reads can write, start others or read lists of files by one of its options, and its next version has more of
them. So the harmless options are listed (`programs.toml`); a command with another one is left to the mode.
"""

import re
import tomllib
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from freeact_sub.approvals.rules.patterns import UNKNOWN, WILD

SUBCOMMANDS: Final = frozenset({"git"})
"""Programs with subcommands."""
TAKES: Final = {":": "value", "=": "value", "?": "attached"}


@dataclass(frozen=True, kw_only=True)
class Program:
    """The harmless options of a program; see `programs.toml`."""

    short: dict[str, str] = field(default_factory=dict)
    """Letters, and whether they take a value: `value`, `attached`, or nothing."""
    long: dict[str, str] = field(default_factory=dict)
    numbers: bool = False
    words: frozenset[str] = frozenset()
    takes: frozenset[str] = frozenset()
    operands: str = r"(?s:.*)"
    script: str = ""
    """An expression for the first operand; empty: it is like the others."""
    first: bool = False
    needs: tuple[frozenset[str], ...] = ()
    guarded: frozenset[str] = frozenset()
    guards: frozenset[str] = frozenset()
    wild: bool = False
    any: bool = False
    folders: bool = False
    hidden: bool = True
    recursive: frozenset[str] = frozenset()
    most: int | None = None
    settings: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The words of a command as its program reads them."""

    doubt: str = ""
    """The first word that is not known to be harmless; empty: all are."""
    operands: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    """The values of options."""
    walks: bool = False
    """True: the program reads all files of the named folders."""
    hidden: bool = True
    """True: including files with a leading dot."""
    settings: frozenset[str] = frozenset()
    """It is harmless only where settings of git in these sections name no program."""


def read_options(words: tuple[str, ...]) -> Reading:
    """Checks a command against the table. Args: words: the program's name without a folder, and its arguments."""
    name, rest = words[0], list(words[1:])
    if name in SUBCOMMANDS and rest:
        name = f"{name} {rest.pop(0)}"
    program = programs().get(name)
    if program is None:
        return Reading(doubt=name)
    if program.any:
        return Reading(operands=tuple(rest))
    unclear = next((word for word in rest if UNKNOWN in word or (word.startswith(WILD) and not program.wild)), "")
    if unclear:
        return Reading(doubt=unclear)
    reader = _OptionReader(program)
    reading = reader.read(rest)
    missing = "" if reading.doubt else reader.missing()
    if program.settings and (missing or not (program.needs or program.guarded)):
        return replace(reading, settings=program.settings)
    return replace(reading, doubt=f"{name} without {missing}") if missing else reading


@cache
def programs() -> dict[str, Program]:
    """The table by program; git's subcommands as `git NAME`."""
    table = tomllib.loads(Path(__file__).with_name("programs.toml").read_text())
    entries = {name: entry for name, entry in table.items() if name not in SUBCOMMANDS}
    for name in SUBCOMMANDS & table.keys():
        entries |= {f"{name} {inner}": entry for inner, entry in table[name].items()}
    return {
        name: _program(entries[entry.get("like", name)], pager=name.partition(" ")[0] in SUBCOMMANDS)
        for name, entry in entries.items()
    }


def _program(entry: dict[str, Any], *, pager: bool) -> Program:
    """Args: pager: its `--help` starts one."""
    short = {letter: TAKES.get(mark, "") for letter, mark in re.findall(r"([^:?])([:?]?)", entry.get("short", ""))}
    long = {name: TAKES.get(mark, "") for name, mark in re.findall(r"([\w-]+)([=?]?)", entry.get("long", ""))}
    if long and not pager:
        long |= {"help": "", "version": ""}
    fields: dict[str, Any] = {key: value for key, value in entry.items() if key not in ("short", "long")}
    fields |= {
        key: frozenset(fields[key].split())
        for key in ("words", "takes", "guarded", "guards", "recursive", "settings")
        if key in fields
    }
    fields["needs"] = tuple(frozenset(group.split()) for group in fields.get("needs", ()))
    return Program(short=short, long=long, **fields)


class _OptionReader:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._rest: list[str] = []
        self._operands: list[str] = []
        self._values: list[str] = []
        self._seen: set[str] = set()

    def read(self, words: list[str]) -> Reading:
        self._rest = list(words)
        while self._rest:
            word = self._rest.pop(0)
            if word == "--" and not self._program.words:
                self._operands += self._rest
                break
            if not self._is_known(word):
                return Reading(doubt=word)
            if self._program.first and self._operands:
                self._operands += self._rest
                break
        wrong = next((word for word in self._operands if not re.fullmatch(self._program.operands, word)), "")
        if self._program.most is not None and len(self._operands) > self._program.most:
            wrong = self._operands[-1]
        if self._program.script and not wrong:
            script = self._operands.pop(0) if self._operands else ""
            wrong = "" if re.fullmatch(self._program.script, script) else script or "no script"
        walks = self._program.folders or bool(self._seen & self._program.recursive)
        return Reading(
            doubt=wrong, operands=tuple(self._operands), values=tuple(self._values), walks=walks, hidden=self._program.hidden
        )

    def missing(self) -> str:
        """Options that are missing for the command to be harmless; empty: none."""
        program = self._program
        if self._seen & program.guarded and not program.guards <= self._seen:
            return " ".join(sorted(program.guards))
        if program.needs and not any(group <= self._seen for group in program.needs):
            return " ".join(sorted(program.needs[-1]))
        return ""

    def _is_known(self, word: str) -> bool:
        program = self._program
        if word in program.words:
            return True
        if word in program.takes:
            return self._take()
        if not word.startswith("-") or word == "-":
            self._operands.append(word)
            return True
        if program.numbers and re.fullmatch(r"-\d+", word):
            return True
        return self._is_long(word) if word.startswith("--") else self._is_short(word)

    def _take(self) -> bool:
        """Takes the next word as an option's value."""
        if not self._rest or self._rest[0].startswith(WILD):
            return False  # what a wildcard finds may be several words, of which one is the value
        self._values.append(self._rest.pop(0))
        return True

    def _is_long(self, word: str) -> bool:
        name, has_value, value = word[2:].partition("=")
        takes = self._program.long.get(name)
        if takes is None or (has_value and not takes):
            return False
        self._seen.add(f"--{name}")
        if has_value:
            self._values.append(value)
        return bool(has_value) or takes != "value" or self._take()

    def _is_short(self, word: str) -> bool:
        for index, letter in enumerate(word[1:], start=1):
            takes = self._program.short.get(letter)
            if takes is None:
                return False
            self._seen.add(f"-{letter}")
            if takes:
                value = word[index + 1 :]
                if value:
                    self._values.append(value)
                return bool(value) or takes == "attached" or self._take()
        return True
