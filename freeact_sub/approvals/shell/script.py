"""`read_script` parses a shell command into the programs that it starts and the files that it opens.

The parser is tree-sitter with its grammar of bash. A grammar for editors continues where it does not understand, and where
it is wrong it is wrong silently; so this walk knows a list of forms, and all else, a gap between two nodes that is not white
space included, makes the script `opaque`: a person must decide. What runs can be more than what is found here in no
case that is known (the tests run bash beside it), and less in many: both branches of an `if` are found.

What a word will be is not always known: see `patterns.py` for `UNKNOWN` and `WILD`.

A second look, by a lexer of its own, finds whether there is more in the text than the parser has given. The grammar guesses
at odd places (quotes and backticks in `${…}`, nested backticks, patterns), and it knows bash alone, while `sh` is another
shell on many machines. Both looks have to agree on where commands begin, or a person is asked. Where the lexer does not
understand a text, every mark counts that could begin a command anywhere in it.

The parser knows `export X` and `unset X`; as `command unset X` or `'export' X` they are commands like any other, whose
variables `change_of` finds. A name that is not plain is refused: `unset 'a[$(x)]'` runs `x`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Final

import tree_sitter
import tree_sitter_bash
from tree_sitter import Node

from freeact_sub.approvals.patterns import UNKNOWN, WILD
from freeact_sub.approvals.shell.words import OpaqueError, WordReader, bare, encoded, names, shown_part, text_of
from freeact_sub.approvals.shell.wrappers import inside

MAX_CHARS: Final = 20_000
MAX_PARTS: Final = 300
MAX_FOLDERS: Final = 8
"""Bound on the directories that a command may start in."""

GROUPS: Final = names(
    "program list pipeline negated_command compound_statement subshell do_group if_statement elif_clause else_clause "
    "while_statement for_statement case_statement redirected_statement command_substitution process_substitution"
)
MARKS: Final = names(
    "&& || ; & | |& ;; ;& ;;& ! { } ( ) do done if then elif else fi while until for in case esac $( ` <( >( function"
) | {"\n"}
READING: Final = frozenset({"<", "<&"})
WRITING: Final = frozenset({">", ">>", ">|", "&>", "&>>", ">&"})
RESERVED: Final = names("if then else elif fi do done case esac while until for select in function { } ! [[ ]] coproc let")


@dataclass(frozen=True, kw_only=True)
class SimpleCommand:
    """A program that the script may start."""

    words: tuple[str, ...]
    """The name and arguments, without quotes."""
    folders: tuple[str, ...]
    """Folders that it may start in, relative to the script's folder."""
    assigned: tuple[str, ...] = ()
    """Variables set for the command."""
    wraps: bool = False
    """True: it does nothing itself; the program that it starts is another command."""

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


@dataclass(frozen=True, kw_only=True)
class Script:
    """The actions of a shell command, as far as they are known before it runs."""

    commands: tuple[SimpleCommand, ...] = ()
    files: tuple[OpenedFile, ...] = ()
    assigned: tuple[str, ...] = ()
    """Shell variables that it sets, exports or removes."""
    values: tuple[tuple[str, str], ...] = ()
    """Variables and the values that it gives them."""
    functions: tuple[str, ...] = ()
    """Functions that it defines."""
    opaque: str = ""
    """Why some actions are unknown; empty: all are known."""
    bomb: bool = False
    """A function starts itself in the background (a fork bomb)."""


def read_script(text: str, *, posix: bool = False) -> Script:
    """Parses a shell command. Never raises. Args: posix: not bash may read it, but another shell under the name `sh`."""
    walk = _Walk()
    opaque = ""
    try:
        walk.script(text, posix=posix)
    except OpaqueError as error:
        opaque = str(error)
    return Script(
        commands=tuple(walk.commands),
        files=tuple(walk.files),
        assigned=tuple(walk.assigned),
        values=tuple(walk.values),
        functions=tuple(walk.functions),
        opaque=opaque,
        bomb=walk.bomb,
    )


@cache
def _language() -> tree_sitter.Language:
    return tree_sitter.Language(tree_sitter_bash.language())


@dataclass
class _FoundWords:
    """What the parser gives of one text, for the second look."""

    given: dict[int, int] = field(default_factory=dict)
    """The ends of substitutions by their starts."""
    bodies: list[tuple[int, int]] = field(default_factory=list)
    """Here-documents in which nothing is expanded."""


class _Walk(WordReader):
    def __init__(self) -> None:
        super().__init__()
        self.commands: list[SimpleCommand] = []
        self.files: list[OpenedFile] = []
        self.assigned: list[str] = []
        self.values: list[tuple[str, str]] = []
        self.functions: list[str] = []
        self.bomb = False
        self._folders = [""]
        self._found = _FoundWords()
        self._repeats = 0
        """The enclosing loops and functions, whose content may run more than once, or later."""

    def script(self, text: str, *, posix: bool = False) -> None:
        if len(text) > MAX_CHARS:
            raise OpaqueError(f"the command is longer than {MAX_CHARS:,} characters")
        if re.search(rf"[\x00-\x08\x0b-\x1f\x7f{UNKNOWN}{WILD}\ud800-\udfff]", text):
            raise OpaqueError("the command has invisible characters")
        if re.search(r"(?<!\$)\{\w+(\[[^\]]*\])?\}[<>]", text):
            raise OpaqueError("a redirection sets a variable")
        if posix and is_for_bash_only(text):
            raise OpaqueError("bash reads the command in one way, and `sh` may read it in another")
        content = encoded(text)
        around, self._found = self._found, _FoundWords()
        root = tree_sitter.Parser(_language()).parse(content).root_node  # a parser is one thread's
        self._statement(root)
        if root.has_error:  # also where nothing of it was looked at
            raise OpaqueError(f"the command is not understood: {shown_part(root)}")
        if has_unseen_command(content.decode("ascii"), self._found.given, self._found.bodies):
            raise OpaqueError("there may be a command in it that is not seen")
        self._found = around

    def substitution(self, node: Node) -> None:
        self.give(node)
        self._group(node)

    def give(self, node: Node) -> None:
        self._found.given[node.start_byte] = node.end_byte

    # Statements

    def _statement(self, node: Node) -> None:
        with self.deeper(node):
            if node.type in GROUPS:
                with self._repeating(node.type in ("while_statement", "for_statement")):
                    self._group(node)
            elif node.type == "command":
                self._command(node)
            elif node.type == "function_definition":
                self._function(node)
            elif node.type in ("variable_assignment", "variable_assignments", "declaration_command", "unset_command"):
                self._assignments(node)
            elif node.type == "case_item":
                self._case_item(node)
            elif node.type == "test_command":
                self.value(node)
            elif node.type in ("file_redirect", "heredoc_redirect", "herestring_redirect"):
                self._redirect(node)
            elif node.type != "comment":
                raise OpaqueError(f"a part of the command is not understood: {shown_part(node)}")

    def _group(self, node: Node) -> None:
        for index, child in enumerate(node.children):
            if child.is_named:
                field = node.field_name_for_child(index)
                if node.type in ("for_statement", "case_statement") and field in ("value", "variable"):
                    if field == "value":
                        value = self.word(child)
                        self.values += [(name, value) for name in self.assigned[-1:] if node.type == "for_statement"]
                    else:
                        self.assigned.append(text_of(child))
                else:
                    self._statement(child)
            elif child.type not in MARKS:
                raise OpaqueError(f"a part of the command is not understood: {shown_part(child)}")

    def _case_item(self, node: Node) -> None:
        for index, child in enumerate(node.children):
            if node.field_name_for_child(index) == "value":
                if re.search(r"[$`]", text_of(child)):
                    raise OpaqueError("the pattern of a case is not a plain text")
            elif child.is_named:
                self._statement(child)

    def _function(self, node: Node) -> None:
        name = node.child_by_field_name("name")
        before = len(self.commands)
        self.functions.append(text_of(name) if name is not None else UNKNOWN)
        with self._repeating(True):
            for child in node.named_children:
                if child != name:
                    self._statement(child)
        calls_itself = name is not None and any(command.words[0] == text_of(name) for command in self.commands[before:])
        if calls_itself and re.search(r"[|&]", text_of(node)):
            self.bomb = True

    def _assignments(self, node: Node) -> None:
        for child in node.children if node.type != "variable_assignment" else [node]:
            if child.type == "variable_assignment":
                self.assigned.append(self._assignment(child))
            elif child.type == "variable_name":
                self.assigned.append(text_of(child))
            elif child.type in ("export", "unset", "local", "readonly"):
                continue
            else:  # options such as `declare -f`, `unset -f`, or a name that is made up
                raise OpaqueError(f"a declaration is not understood: {shown_part(node)}")

    def _assignment(self, node: Node) -> str:
        name = node.child_by_field_name("name")
        if name is None or name.type != "variable_name":
            raise OpaqueError(f"an assignment is not understood: {shown_part(node)}")
        value = node.child_by_field_name("value")
        if value is not None:
            items = value.named_children if value.type == "array" else [value]
            self.values += [(text_of(name), self.word(item)) for item in items]
            if text_of(name).startswith("GIT_CONFIG") and re.search(r"(?i)\balias\.", text_of(value)):
                raise OpaqueError("the command behind a git alias is not known")
        return text_of(name)

    # Commands

    def _command(self, node: Node) -> None:
        words: list[str] = []
        assigned: list[str] = []
        for child in node.children:
            if child.type == "variable_assignment":
                assigned.append(self._assignment(child))
            elif child.type in ("file_redirect", "heredoc_redirect", "herestring_redirect"):
                self._redirect(child)
            elif child.type == "command_name":
                words.append(self._command_name(child))
            elif words:
                words.append(self.word(child))
            else:
                raise OpaqueError(f"a command is not understood: {shown_part(node)}")
        if not words:
            raise OpaqueError(f"a command is not understood: {shown_part(node)}")
        self._add(tuple(words), tuple(assigned))

    def _command_name(self, node: Node) -> str:
        child = node.children[0] if node.child_count else node
        name = self.word(child) if node.child_count else bare(text_of(node))
        if not name or re.search(rf"[{UNKNOWN}{WILD}\s]", name):
            raise OpaqueError(f"the program to start is known only at run time: {shown_part(node)}")
        if child.type == "word" and text_of(child) in RESERVED:
            raise OpaqueError(f"a command is not understood: {shown_part(node)}")
        return name

    def _add(self, words: tuple[str, ...], assigned: tuple[str, ...]) -> None:
        if len(self.commands) >= MAX_PARTS:
            raise OpaqueError(f"the command has more than {MAX_PARTS} parts")
        content = inside(words)
        change = change_of(words)
        self.assigned += change.variables
        self.commands.append(
            SimpleCommand(words=words, folders=tuple(self._folders), assigned=assigned, wraps=content.wraps)
        )
        if content.opaque or change.opaque:
            raise OpaqueError(content.opaque or change.opaque)
        with self.deeper(None):
            for command in content.commands:
                if not command or re.search(rf"[{UNKNOWN}{WILD}\s]|^$", command[0]):
                    raise OpaqueError(f"the program that {words[0]} starts is known only at run time")
                self._add(command, assigned + content.assigned)
            for script in content.scripts:
                if UNKNOWN in script or WILD in script:
                    raise OpaqueError(f"the command that {words[0]} runs is known only at run time")
                self.script(script, posix=content.posix)
        if words[0] in ("cd", "pushd", "popd"):
            self._change_folder(words)

    def _change_folder(self, words: tuple[str, ...]) -> None:
        to = words[1] if len(words) == 2 else "~" if words == ("cd",) else UNKNOWN
        if self._repeats or words[0] != "cd" or to.startswith("-") or UNKNOWN in to or WILD in to:
            to = UNKNOWN
        new = [to] if to[:1] in ("/", "~", UNKNOWN) else [f"{folder}/{to}" if folder else to for folder in self._folders]
        self._folders += [folder for folder in new if folder not in self._folders]
        if len(self._folders) > MAX_FOLDERS:
            self._folders = [UNKNOWN]

    # Redirections

    def _redirect(self, node: Node) -> None:
        with self.deeper(node):
            if node.type == "herestring_redirect":
                for child in node.named_children:
                    self.word(child)
            elif node.type == "heredoc_redirect":
                self._here_document(node)
            else:
                self._file_redirect(node)

    def _file_redirect(self, node: Node) -> None:
        operator = next((child.type for child in node.children if not child.is_named), "")
        if operator in (">&-", "<&-"):
            return
        targets = node.children_by_field_name("destination")
        if operator not in READING | WRITING or len(targets) != 1:
            raise OpaqueError(f"a redirection is not understood: {shown_part(node)}")
        path = self.word(targets[0])
        if not (operator.endswith("&") and re.fullmatch(r"\d+-?|-", path)):
            self.files.append(OpenedFile(path=path, folders=tuple(self._folders), writes=operator in WRITING))

    def _here_document(self, node: Node) -> None:
        start = next((text_of(child) for child in node.children if child.type == "heredoc_start"), "")
        if not re.fullmatch(r"\w+|'\w+'|\"\w+\"", start):
            raise OpaqueError("the mark of a here-document is not a plain word")
        for child in node.children:
            if child.type == "heredoc_body":
                self._body(child, start)
            elif child.type == "pipeline" and child.children and child.children[0].type in ("|", "|&"):
                for part in child.named_children:
                    self._statement(part)
            elif child.is_named and child.type not in ("heredoc_start", "heredoc_end", "file_descriptor"):
                if child.type not in GROUPS | {"command", "file_redirect"}:  # words of the command in front of it
                    raise OpaqueError("a command has words after a here-document")
                self._statement(child)

    def _body(self, node: Node, start: str) -> None:
        """Reads the text of a here-document. Args: start: the mark at its start, as it is written."""
        if start[0] not in "'\"":
            if re.search(r"\$[({\[]|`", text_of(node)):
                raise OpaqueError("a here-document has commands in it")
        elif re.search(rf"(?m:^\t*{start[1:-1]}$)", text_of(node)):
            raise OpaqueError("where a here-document ends is not clear")
        else:
            self._found.bodies.append((node.start_byte, node.end_byte))

    # Guards

    @contextmanager
    def _repeating(self, repeats: bool) -> Iterator[None]:
        self._repeats += repeats
        if repeats:
            self._folders = [UNKNOWN] if len(self._folders) > 1 else self._folders
        try:
            yield
        finally:
            self._repeats -= repeats


EXPANSION: Final = re.compile(r"\$\{[#]?\w+(?::?[-+?]\w*|(?:%%?|##?)[\w.*?-]*|(?:%%?|##?)/?\*?/)?\}")
"""Matches an expansion with nothing in it that a shell expands or quotes."""
OPENERS: Final = re.compile(r"\$\(|`|[<>]\(")
PIECES: Final = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|(?<![^\s;&|()])#[^\n]*|\\.|.", re.DOTALL)
BASH_ONLY: Final = re.compile(
    r"\[\[|\$['\"\[]|(?<!\$)\(\(|&>|>&(?!\s*[\d-])|\|&|<<<|[<>]\(|\w\+?=\(|;;?&|\$\{!|(?:^|[;&|(\n]\s*)(?:function|select|coproc)\s"
)
"""Matches what bash reads in one way, and another shell in another."""


UNCLEAR: Final = re.compile(r"(?<![^\s;&|()])#|<<(?!<)")
"""Matches the start of a comment or a here-document, in which quotes are text."""


class _UnclearError(Exception):
    """The lexer does not understand the text."""


def has_unseen_command(text: str, given: Mapping[int, int], bodies: Sequence[tuple[int, int]]) -> bool:
    """Whether something in a script may start a command that the parser has not given.

    Args:
        text: The script.
        given: The ends of the substitutions that the parser has given, by their starts.
        bodies: Starts and ends of here-documents in which nothing is expanded.
    """
    try:
        return _Lexer(text, given).read(0, "") != len(text)
    except _UnclearError:
        known = {*given, *(end - 1 for start, end in given.items() if text[start] == "`")}
        openers = (opener.start() for opener in OPENERS.finditer(text))
        return any(at not in known and not any(start <= at < end for start, end in bodies) for at in openers)


def is_for_bash_only(text: str) -> bool:
    """Whether another shell than bash may read a script in another way."""
    if re.search(r"<<(?!<)", text):  # quotes in a here-document are text
        return BASH_ONLY.search(text) is not None
    at = 0
    while at < len(text):
        if BASH_ONLY.match(text, at):
            return True
        piece = PIECES.match(text, at)
        word = piece[0] if piece else text[at]
        if word[0] == '"' and re.search(r"[$`]", word) and BASH_ONLY.search(word):
            return True
        at += len(word)
    return False


class _Lexer:
    """Reads a text from left to right, as long as every shell reads it in the same way."""

    def __init__(self, text: str, given: Mapping[int, int]) -> None:
        self._text = text
        self._given = given

    def read(self, at: int, closing: str) -> int:
        """Reads up to the mark that closes a substitution, or to the end. Returns where that is."""
        text, depth = self._text, 0
        while at < len(text):
            char = text[at]
            if char == closing and depth == 0:
                return at
            if char in "\\'\"":
                at = self._quoted(at)
            elif char in "$`" or text.startswith(("<(", ">("), at):
                at = self._expansion(at)
            elif UNCLEAR.match(text, at):
                raise _UnclearError
            else:
                depth += (char == "(") - (char == ")")
                at += 1 if not text.startswith("<<<", at) else 3
                if depth < 0:
                    raise _UnclearError
        if closing or depth:
            raise _UnclearError
        return len(text)

    def _quoted(self, at: int) -> int:
        """Reads what begins with a mark that quotes. Returns where it ends."""
        if self._text[at] == "\\":
            return at + 2
        if self._text[at] == "'":
            if self._text[at - 1 : at] == "$":
                raise _UnclearError
            return self._find("'", at + 1) + 1
        at += 1
        while (char := self._text[at : at + 1]) != '"':
            if not char:
                raise _UnclearError
            at = self._expansion(at) if char in "$`" else at + (2 if char == "\\" else 1)
        return at + 1

    def _expansion(self, at: int) -> int:
        """Reads what begins with `$`, a backtick, `<(` or `>(`. Returns where it ends."""
        text, end = self._text, self._given.get(at)
        if text.startswith("$((", at) and end is not None:
            return end  # the parser has found only numbers in it
        if text[at] == "`":
            closed = self._find("`", at + 1)
            if "\\" in text[at:closed] or self.read(at + 1, "`") != closed:
                raise _UnclearError
        elif text[at + 1 : at + 2] == "(":
            closed = self.read(at + 2, ")")
        elif text[at + 1 : at + 2] == "{":
            if (found := EXPANSION.match(text, at)) is None:
                raise _UnclearError
            return found.end()
        else:
            return at + 1
        if end != closed + 1:
            raise _UnclearError
        return end

    def _find(self, mark: str, at: int) -> int:
        found = self._text.find(mark, at)
        if found < 0:
            raise _UnclearError
        return found


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
