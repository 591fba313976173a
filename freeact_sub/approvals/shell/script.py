"""`read_script` takes a shell command apart into the programs that it starts and the files that it opens.

It reads a plain grammar: words, quotes, `$x`, `$(…)`, pipes, lists, groups, `if`, `for`, `while`, `case`, redirections
and here-documents. Forms of bash (`[[`, `&>`, `|&`, `<<<`, `<(…)`, `$'…'`) are read where another `sh` runs nothing more by
them. All else (functions, arrays, arithmetic) makes the script `opaque`: a person must decide. More may be found
than runs, both branches of an `if` for example, but all that runs is found (the tests run bash and another `sh` beside it).
A text that is not understood is also cut at every mark at which a command could begin, so that a denial holds there.

The value of a word is not always known: see `patterns.py` for `UNKNOWN` and `WILD`.
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, NoReturn

from freeact_sub.approvals.patterns import UNKNOWN, WILD
from freeact_sub.approvals.shell.wrappers import DECLARING, WRAPPERS, OpaqueError, inside, names

MAX_CHARS: Final = 20_000
MAX_PARTS: Final = 300
MAX_GUESSED: Final = 100
"""Parts of a text that is not understood to look at."""
MAX_DEPTH: Final = 30
"""Bound on nested groups, substitutions and scripts."""
MAX_FOLDERS: Final = 8
"""Bound on the directories that a command may start in."""

RESERVED: Final = names("if then else elif fi do done case esac while until for select in function { } ! ]] coproc")
ARITHMETIC_TESTS: Final = names("-eq -ne -lt -le -gt -ge -v -R")
"""Tests in which a shell may evaluate an operand, and so run commands."""
SINGLE: Final = re.compile(r'"[^"@]*"|\$[?#]')
"""Matches an expansion that is one word."""
INTEGERS: Final = names("BASHPID EUID HISTCMD OPTIND PPID RANDOM SECONDS SRANDOM UID")
"""Variables whose values bash evaluates as arithmetic when they are set, and so may run commands in them."""
INVISIBLE: Final = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f{UNKNOWN}{WILD}\ud800-\udfff]")
BLANKS: Final = re.compile(r"(?:[ \t]|(?<=[ \t\n])\\\n|\\\n(?=[ \t\n]))*(?:#[^\n]*)?")
"""White space and comments. A line that is continued elsewhere makes one mark of two."""
OPENING: Final = re.compile(r"(?:(if|do|\{)|then|elif|else|while|until|!)(?=[ \t\n])")
CLOSING: Final = re.compile(r"(?:fi|done|esac|\})(?=[ \t\n;&|)<>]|\Z)")
FOR: Final = re.compile(r"for[ \t]+([A-Za-z_]\w*)[ \t]+in(?=[ \t\n;])", re.ASCII)
MOVING: Final = names("cd chdir pushd popd")
LOOP: Final = re.compile(r"(?:for|while|until)\s")
MOVES: Final = re.compile(rf"\b(?:{'|'.join(MOVING)})\b")
CASE: Final = re.compile(r"case(?=[ \t])")
IN: Final = re.compile(r"in(?=[ \t\n])")
PATTERN: Final = re.compile(
    r"(?!esac\s)\(?[ \t]*{0}(?:[ \t]*\|[ \t]*{0})*[ \t]*\)".format(r"""(?:'[^']*'|"[^"$`\\]*"|[\w.*?+/:,@=%[\]!-])+""")
)
"""The patterns of one branch of a `case`."""
BRANCH_END: Final = re.compile(r";;&?|;&")
SEPARATOR: Final = re.compile(r"(&&|\|[|&]?)|(;;&?|;&)|&(?!>)|;|(?=\n)")
REDIRECTION: Final = re.compile(r"(?:[0-9]+(?=[<>]))?(<<<|<<-?|>>|>\||[<>]&|[<>](?!\()|&>>?)[ \t]*")
BOTH_OUTPUTS: Final = {"&>", "&>>"}
"""Redirections that end the command in a shell that does not know them: it runs words that follow as another command."""
TEST_GOES_ON: Final = re.compile(r"&&(?=[ \t])")
MARK: Final = re.compile(r"(['\"]?)(\w+)\1(?=[\s;&|<>)]|\Z)", re.ASCII)
ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)\+?=", re.ASCII)
EXPANSION: Final = re.compile(
    r"\$(?:[^\W\d]\w*|[0-9@*#?$!-]|\(\([0-9 \t+*/%<>=!&|^~-]*\)\)|"
    r"\{#?\w+(?::?[-+?][\w./:,@-]*|(?:%%?|##?)[\w./*?-]*|//?[\w.,:-]*/[\w.,:-]*)?\})"
)
"""Expansions with nothing inside that a shell expands, quotes or evaluates."""
ESCAPED: Final = re.compile(r"\$'(?:[^'\\]|\\[^'\n])*'")
"""Texts with escapes that end at the same quote in a shell that does not know them."""
BACKTICKS: Final = re.compile(r"`([^`\\]*)`")
PIECE: Final = re.compile(r"'([^']*)'|\\([^\n])|(\[[!^]?[\w.,-]+\]|[*?])|([^\s;&|<>()'\"\\$`])", re.ASCII)
"""The next piece of a word: quoted, a wildcard, or a letter."""


@dataclass(frozen=True, kw_only=True)
class SimpleCommand:
    """A program that the script may start."""

    words: tuple[str, ...]
    """The name and arguments, without quotes."""
    folders: tuple[str, ...]
    """Folders to start in, relative to the script's folder."""
    assigned: tuple[str, ...] = ()
    """Variables set for the command."""
    wraps: bool = False
    """Whether the command does nothing itself; the program that it starts is another command."""

    @property
    def text(self) -> str:
        """The words joined by spaces."""
        return " ".join(self.words)


@dataclass(frozen=True, kw_only=True)
class OpenedFile:
    """A file that the shell itself opens."""

    path: str
    folders: tuple[str, ...]
    writes: bool


@dataclass
class Script:
    """The actions of a shell command, as far as they are known before it runs."""

    commands: list[SimpleCommand] = field(default_factory=list)
    files: list[OpenedFile] = field(default_factory=list)
    assigned: list[str] = field(default_factory=list)
    """Shell variables that are set, exported or removed."""
    values: list[tuple[str, str]] = field(default_factory=list)
    """Variables with the values that they get."""
    opaque: str = ""
    """The reason why some actions are unknown; empty: all are known."""
    folders: list[str] = field(default_factory=lambda: [""])
    """Folders that the next command may start in."""
    traps: bool = False
    """Whether commands in it run at any later time."""
    depth: int = 0
    """The nested groups, substitutions and scripts."""

    def read(self, text: str) -> None:
        """Add the actions of a text.

        Raises:
            OpaqueError: The text is not understood; its possible commands and opened files are added.
        """
        depth = self.depth
        if len(text) > MAX_CHARS or INVISIBLE.search(text):
            raise OpaqueError(f"the command is longer than {MAX_CHARS:,} characters, or has invisible ones")
        try:
            _ScriptReader(self, text).commands("")
        except OpaqueError:
            unquoted = re.sub(r"[\"'\\]", "", re.sub(r"(?<![-=])([<>]+)(?!=|&[0-9-])&?", r" \1 ", text))
            for part in [*dict.fromkeys(re.split(r"[;&|\n(){}`]", unquoted))][:MAX_GUESSED]:
                self.depth = depth
                words = [re.sub(r"\$\S*", UNKNOWN, word) for word in part.split()]
                for mark, path in pairwise(words):
                    if mark in ("<", ">", ">>") and not path.isdigit() and len(self.files) < MAX_GUESSED:
                        self.files.append(OpenedFile(path=path, folders=tuple(self.folders), writes=mark != "<"))
                while words and (words[0] in RESERVED or ASSIGNMENT.match(words[0])):
                    words.pop(0)
                with suppress(OpaqueError):
                    self.add(tuple(words))
            raise

    def add(self, words: tuple[str, ...], assigned: tuple[str, ...] = ()) -> None:
        """Add a command with those that it starts.

        Raises:
            OpaqueError: The started commands are not known.
        """
        if re.search(rf"^$|[{UNKNOWN}{WILD}\s$]", "".join(words[:1])):
            raise OpaqueError("the program to start is known only at run time")
        if len(self.commands) >= MAX_PARTS or self.depth > MAX_DEPTH:
            raise OpaqueError("the command has too many parts")
        command = SimpleCommand(words=words, folders=tuple(self.folders), assigned=assigned)
        self.commands.append(command)
        content = inside(words)
        self.commands[-1] = replace(command, wraps=content.wraps)
        _check_settable((*assigned, *content.assigned))
        self.assign(content.changed)
        self.depth += 1
        for inner in content.commands:
            self.add(inner, assigned + content.assigned)
        self.traps |= words[0].rpartition("/")[2] == "trap" and content.scripts != ()
        for script in content.scripts:
            if UNKNOWN in script or WILD in script:
                raise OpaqueError(f"the command that {words[0]} runs is known only at run time")
            self.read(script)
        self.depth -= 1
        if words[0] in MOVING:
            self._change_folder(words)

    def assign(self, variables: Iterable[str]) -> None:
        """Add variables that it sets. Raises: OpaqueError: Commands in a value may run."""
        self.assigned += _check_settable(tuple(variables))

    def _change_folder(self, words: tuple[str, ...]) -> None:
        if self.traps:
            raise OpaqueError("in which folder a trap runs is known only at run time")
        to = words[1] if len(words) == 2 else "~" if words == ("cd",) else UNKNOWN
        if words[0] != "cd" or to.startswith("-") or UNKNOWN in to or WILD in to:
            to = UNKNOWN
        absolute = to[:1] in ("/", "~", UNKNOWN)
        new = [to] if absolute else [f"{folder}/{to}" if folder else to for folder in self.folders if folder != UNKNOWN]
        self.may_be_in(*new)

    def may_be_in(self, *folders: str) -> None:
        """Add folders that the next command may start in."""
        self.folders = list(dict.fromkeys((*self.folders, *folders)))
        if len(self.folders) > MAX_FOLDERS:
            self.folders = [UNKNOWN]


def _check_settable(variables: tuple[str, ...]) -> tuple[str, ...]:
    for name in INTEGERS.intersection(variables):
        raise OpaqueError(f"bash may run commands in the value of {name}")
    return variables


def read_script(text: str) -> Script:
    """Read a shell command. Never raises."""
    script = Script()
    try:
        script.read(text)
    except OpaqueError as error:
        script.opaque = str(error)
    return script


class _ScriptReader:
    """A reader of one text from left to right. Each method reads one form, from `_at` on."""

    def __init__(self, script: Script, text: str) -> None:
        self._script = script
        self._text = text
        self._at = 0
        self._open = 0
        """The number of `if`, `do` and `{` that are not closed yet."""
        self._documents: list[tuple[str, bool, bool]] = []
        """The here-documents that begin on the next line: their mark, whether it is quoted, whether tabs stand before it."""

    def _fail(self, form: str) -> NoReturn:
        part = " ".join((self._text[self._at :] or self._text).split())
        raise OpaqueError(f"{form} is not understood: {part[:60]}{'…' if part[60:] else ''}")

    def _takes(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return found

    def _next(self, length: int = 1) -> str:
        return self._text[self._at : self._at + length]

    def commands(self, closing: str) -> None:
        """Read commands up to the mark that closes a group or substitution, or to the end."""
        self._script.depth += 1
        if self._script.depth > MAX_DEPTH:
            raise OpaqueError("the command is nested too deep")
        opened, must_follow = self._open, False
        before = ""
        self._lines()
        while self._next() not in ("", closing):
            self._command(before)
            self._takes(BLANKS)
            separator = self._takes(SEPARATOR)
            if separator is None and self._next() not in ("", closing):
                self._fail("a part of the command")
            before = (separator and separator[1]) or ""
            must_follow = before != ""
            self._lines()
            if separator is not None and separator[2] is not None:
                self._branches()
        if must_follow or self._open != opened or self._next() != closing or self._documents:
            self._fail("the end of the command")
        self._at += len(closing)
        self._script.depth -= 1

    def _lines(self) -> None:
        """Read white space with the here-documents in it."""
        while self._takes(BLANKS) and self._next() == "\n":
            self._at += not self._documents
            for mark, quoted, strips in self._documents:
                self._at += 1
                found = self._takes(re.compile(rf"(?ms:(.*?)^{chr(9) + '*' if strips else ''}{mark}$)"))
                if found is None or (not quoted and re.search(r"\$[({\[]|`|\\\n", found[1])):
                    self._fail("a here-document")
            self._documents = []

    def _branches(self) -> None:
        """Read the patterns of a branch of a `case`, and the branches without commands before it."""
        while self._takes(PATTERN):
            self._lines()
            if not self._takes(BRANCH_END):
                break
            self._lines()

    def _command(self, before: str) -> None:
        """Read a command, or the words before or after the commands of a group. Args: before: the mark that joins it."""
        fails_alone = before in ("", "&&")
        while True:
            if LOOP.match(self._text, self._at) and MOVES.search(re.sub(r"[\"'\\]", "", self._text[self._at :])):
                self._script.may_be_in(UNKNOWN)
            if self._takes(CASE) and self._takes(BLANKS) and self._word() and self._takes(BLANKS):
                self._lines()
                self._takes(IN) or self._fail("a case")
                self._open += 1
                self._lines()
                self._branches()
                fails_alone = True
            elif opening := self._takes(OPENING):
                self._open += opening[1] is not None
                fails_alone = opening[0] != "!"
            else:
                break
            self._lines()
        if found := self._takes(FOR):
            self._script.assign([found[1]])
            while self._takes(BLANKS) and self._next() not in ("", ";", "\n"):
                self._script.values.append((found[1], self._word()))
        elif self._next() == "(" and self._next(2) != "((":
            self._at += 1
            self.commands(")")
            self._redirections()
        elif self._takes(CLOSING):
            self._open -= 1
            self._redirections()
        else:
            self._simple_command(fails_alone=fails_alone)

    def _simple_command(self, *, fails_alone: bool) -> None:
        """Read a program and its words. Args: fails_alone: what follows `&&` does not run where it fails."""
        words, raw, assigned = list[str](), list[str](), list[tuple[str, str]]()
        marks = self._redirections()
        while self._next() and self._next() not in ";&|()\n":
            if marks and (marks[-1].startswith("<<") or raw[:1] == ["["] or not BOTH_OUTPUTS.isdisjoint(marks)):
                self._fail("a word after a redirection")
            start = self._at
            word = self._word()
            source = self._text[start : self._at]
            if not words and (found := ASSIGNMENT.match(source)):
                assigned.append((found[1], word.partition("=")[2]))
            else:
                words.append(word)
                raw.append(source)
            marks += self._redirections()
            if raw[:1] == ["[["] and raw[-1] != "]]" and self._next(2) == "&&":
                # another sh ends here: it has no `[[`, so this fails, but `true || [[ a` and `! [[ a` do not
                (fails_alone and self._takes(TEST_GOES_ON)) or self._fail("a test")
                self._takes(BLANKS)
        if not words and not assigned and not marks:
            self._fail("a part of the command")
        if raw[:1] in (["["], ["[["]) and (raw[-1] != "]" * len(raw[0]) or not ARITHMETIC_TESTS.isdisjoint(words)):
            self._fail("a test")
        if words[:1] and (words[0] in ("test", "[") or words[0] in WRAPPERS):
            at = next((at for at, word in enumerate(words, start=1) if word in ("test", "[")), len(words))
            if _may_get_operators(words[at:], raw[at:]):
                self._fail("a test")
        self._add(tuple(words), raw, assigned)

    def _add(self, words: tuple[str, ...], raw: list[str], assigned: list[tuple[str, str]]) -> None:
        script, named = self._script, [name for name, _ in assigned]
        starts = raw if raw[:1] == ["time"] else raw[:1]
        if not RESERVED.isdisjoint(starts) or any(re.match(r"\w+\[", word) for word in starts):
            self._fail("a part of the command")
        if any(name.startswith("GIT_CONFIG") and "alias." in value.lower() for name, value in assigned):
            self._fail("an alias of git")
        script.values += assigned
        if not raw or raw[0] in ("[", "[["):
            script.assign(named)
        elif raw[0] in DECLARING:
            script.assign((*named, *inside(words).changed))
            script.values += [(word.partition("=")[0].removesuffix("+"), word.partition("=")[2]) for word in words[1:]]
        else:
            script.add(words, tuple(named))

    def _redirections(self) -> list[str]:
        """Read the redirections between two words; return their marks."""
        marks: list[str] = []
        while self._takes(BLANKS) and (found := self._takes(REDIRECTION)):
            marks.append(found[1])
            if found[1] in ("<<", "<<-"):
                mark = self._takes(MARK) or self._fail("a here-document")
                self._documents.append((mark[2], mark[1] != "", found[1] == "<<-"))
                continue
            path, folders = self._word(), tuple(self._script.folders)
            if found[1] in (">&", "<&"):
                if not re.fullmatch(r"[0-9]+-?|-", path):
                    self._fail("a redirection")
            elif found[1] != "<<<":
                self._script.files.append(OpenedFile(path=path, folders=folders, writes=found[1] != "<"))
        return marks

    def _word(self) -> str:
        """Read a word and the commands in it; return the word, expanded as far as known."""
        start, word = self._at, ""
        is_unknown = False
        while True:
            if self._next() in ("$", "`") or self._next(2) in ("<(", ">("):
                word += self._expansion(quoted=False)
            elif self._next() == '"':
                word += self._quoted()
            elif self._next() in ("[", "{", "}") and not PIECE.match(self._text, self._at)[3]:  # type: ignore[index]
                is_unknown = True
                self._at += 1
            elif found := self._takes(PIECE):
                word += WILD if found[3] else found[1] or found[2] or found[4] or ""
            else:
                break
        source = self._text[start : self._at]
        if not source or self._next() in ("(", "'") or (source[0] == "{" and self._next() in ("<", ">")):
            self._fail("a word")
        if self._next() == "\\" and BLANKS.match(self._text, self._at).end() == self._at:  # type: ignore[union-attr]
            self._fail("a line that goes on within a word")
        if self._documents and "\n" in source:
            self._fail("a line break after a here-document's mark")
        if source in ("[", "{", "}", "{}"):
            return source
        return UNKNOWN if is_unknown or re.match(r"~[^/]", source) else word

    def _quoted(self) -> str:
        self._at += 1
        word = ""
        while (char := self._next()) != '"':
            if char in ("$", "`"):
                word += self._expansion(quoted=True)
                continue
            if not char or (self._next(2) == "\\\n" and self._text[self._at - 1] not in " \t\n"):
                self._fail("a text in quotes")
            escaped = char == "\\" and self._next(2)[1:] in ("\n", "$", "`", '"', "\\")
            word += self._next(2)[1:].strip("\n") if escaped else char
            self._at += 1 + escaped
        self._at += 1
        return word

    def _expansion(self, *, quoted: bool) -> str:
        if self._takes(EXPANSION) or (not quoted and self._takes(ESCAPED)):
            return UNKNOWN
        if self._next(2) in ("$(", "<(", ">(") and self._next(3) != "$((":
            self._at += 2
            outside, self._documents = self._documents, []  # a line that ends inside does not begin those
            self.commands(")")
            self._documents = outside
            return UNKNOWN
        if (found := self._takes(BACKTICKS)) and not (quoted and '"' in found[1]):
            self._script.read(found[1])
            return UNKNOWN
        if found or self._next() == "`" or self._next(2) in ("$(", "${", "$[", *(() if quoted else ("$'", '$"'))):
            self._fail("an expansion")
        self._at += 1
        return "$"


def _may_get_operators(words: list[str], raw: list[str]) -> bool:
    """Whether unknown words of a `[` may be its operators when it runs. One is `-v`, which runs what its operand holds."""
    for word, source in zip(words, raw, strict=True):
        is_wild = WILD in word and not word.strip(f"{WILD}-vR")
        if is_wild or (UNKNOWN in word and not SINGLE.fullmatch(source)):
            return True
    operands = words[words[:1] == ["!"] : len(words) - (words[-1:] == ["]"])]
    may_be = operands[1:2] if len(operands) == 3 else operands[:-1]
    return any(UNKNOWN in word for word in may_be)
