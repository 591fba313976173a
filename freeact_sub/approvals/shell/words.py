"""`WordReader` expands the words of a shell command as far as they are known, and finds the commands in them.

`script.py` reads statements. A `$(…)` in a word is a statement too, so its reader extends this one.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

from tree_sitter import Node

from freeact_sub.approvals.patterns import UNKNOWN, WILD

MAX_DEPTH: Final = 60
"""Bound on nested nodes and scripts."""


def names(text: str) -> frozenset[str]:
    """The words of a text as a set."""
    return frozenset(text.split())


VALUE_OPERATORS: Final = names(":- - :+ + :? ? % %% # ## / // ^ ^^ , ,,")
ARITHMETIC_TESTS: Final = names("-eq -ne -lt -le -gt -ge -v -R")
"""Tests that evaluate their operands, and so can run commands."""
INLINE: Final = names("command file_redirect redirected_statement variable_assignment declaration_command concatenation")
"""Nodes that end with the line."""


class OpaqueError(Exception):
    """A script cannot be parsed; the message names the reason."""


class WordReader(ABC):
    """Reads the words of a command."""

    def __init__(self) -> None:
        self._depth = 0

    @abstractmethod
    def substitution(self, node: Node) -> None:
        """Reads the script of `$(…)` or `<(…)`."""

    @abstractmethod
    def give(self, node: Node) -> None:
        """Notes an expansion that has been read, for the second look."""

    # Words

    def word(self, node: Node) -> str:
        """The expanded word; reads the scripts in it on the way."""
        with self.deeper(node):
            match node.type:
                case "word" | "number" | "file_descriptor":
                    if node.children:
                        raise OpaqueError(f"a word is not understood: {shown_part(node)}")
                    return bare(text_of(node))
                case "raw_string":
                    return text_of(node)[1:-1]
                case "string":
                    return self._string(node)
                case "concatenation":
                    if text_of(node) == "{}":
                        return "{}"
                    joined = "".join(self.word(child) for child in node.children)
                    braces = any(child.type == "word" and re.search(r"[{}[]", text_of(child)) for child in node.children)
                    return self.misread(node) if not _touching(node) else UNKNOWN if braces else joined
                case "ansi_c_string" | "brace_expression":
                    return UNKNOWN
                case (
                    "simple_expansion"
                    | "expansion"
                    | "arithmetic_expansion"
                    | "command_substitution"
                    | "process_substitution"
                ):
                    self.value(node)
                    return UNKNOWN
                case _:
                    return self.misread(node)

    def misread(self, node: Node) -> NoReturn:
        """Raise OpaqueError for a word that is not understood."""
        raise OpaqueError(f"a word is not understood: {shown_part(node)}")

    def _string(self, node: Node) -> str:
        """Expands a text in double quotes. All between its expansions is text, also parts that the grammar skips."""
        content, text, at = node.text or b"", "", 1
        for child in node.named_children:
            if child.type == "string_content":
                continue
            start = child.start_byte - node.start_byte
            text += _quoted(_decoded(content[at:start])) + self.word(child)
            at = child.end_byte - node.start_byte
        return text + _quoted(_decoded(content[at:-1]))

    def value(self, node: Node) -> None:
        """Reads an expansion or a test, if its whole form is known."""
        with self.deeper(node):
            if node.type in ("command_substitution", "process_substitution"):
                self.substitution(node)
            elif node.type == "expansion":
                self._expansion(node)
            elif node.type == "arithmetic_expansion":
                if not re.fullmatch(r"\$\(\([\d\s+*/%()<>=!&|^~-]*\)\)", text_of(node)):
                    raise OpaqueError(f"an expression with more than numbers is evaluated: {shown_part(node)}")
                self.give(node)
            elif node.type == "test_command":
                if not text_of(node).startswith("[[") and re.search(r"[<>]", text_of(node)):
                    raise OpaqueError(f"a test may have a redirection: {shown_part(node)}")  # in `[[ a > b ]]` it compares
                self._test(node)
            elif node.type != "simple_expansion":
                self.word(node)

    def _expansion(self, node: Node) -> None:
        """Reads `${name}`, also with a default, prefix or replacement; other forms evaluate a variable's content."""
        children = node.children[1:-1]
        if children and children[0].type == "#":
            children = children[1:]
        if not children or children[0].type not in ("variable_name", "special_variable_name"):
            raise OpaqueError(f"an expansion is not understood: {shown_part(node)}")
        for child in children[1:]:
            if child.is_named and child.type != "regex":
                self.word(child)
            elif (child.type == "regex" and re.search(r"[$`]", text_of(child))) or (
                not child.is_named and child.type not in VALUE_OPERATORS
            ):
                raise OpaqueError(f"an expansion is not understood: {shown_part(node)}")

    def _test(self, node: Node) -> None:
        for child in node.children:
            if child.type == "test_operator" and text_of(child) in ARITHMETIC_TESTS:
                raise OpaqueError(f"a test evaluates an expression: {shown_part(node)}")
            if child.type in ("unary_expression", "binary_expression", "parenthesized_expression"):
                self._deep_test(child)
            elif child.type in ("regex", "extglob_pattern"):
                if re.search(r"[$`]", text_of(child)):
                    raise OpaqueError(f"the pattern of a test is not a plain text: {shown_part(node)}")
            elif child.is_named and child.type != "test_operator":
                self.word(child)
            elif child.type in ("((", "))"):
                raise OpaqueError(f"an expression is evaluated: {shown_part(node)}")

    def _deep_test(self, node: Node) -> None:
        with self.deeper(node):
            self._test(node)

    @contextmanager
    def deeper(self, node: Node | None) -> Iterator[None]:
        """Enters a node or script; refuses one that the parser has guessed."""
        self._depth += 1
        try:
            if self._depth > MAX_DEPTH:
                raise OpaqueError("the command is nested too deep")
            if node is not None:
                check(node)
            yield
        finally:
            self._depth -= 1


_GAP: Final = re.compile(rb"|(?:[ \t\n]|(?<=[ \t\n])\\\n|\\\n(?=[ \t\n]))+")
"""White space; a line that is continued within a word makes one word of two, which the grammar does not know."""
_INLINE_GAP: Final = re.compile(rb"|(?:[ \t]|(?<=[ \t\n])\\\n|\\\n(?=[ \t\n]))+")


def check(node: Node) -> None:
    """Raises OpaqueError where the parser has guessed or skipped text."""
    if node.type == "ERROR" or node.is_missing or node.is_error:
        raise OpaqueError(f"the command is not understood: {shown_part(node)}")
    if node.type in ("string", "heredoc_body", "heredoc_redirect"):
        return
    content = node.text or b""
    gap_form = _INLINE_GAP if node.type in INLINE else _GAP
    at = node.start_byte
    for child in node.children:
        gap = content[at - node.start_byte : child.start_byte - node.start_byte]
        if not gap_form.fullmatch(gap):
            raise OpaqueError(f"the command is not understood: {shown_part(node)}")
        at = child.end_byte
    if node.children and not gap_form.fullmatch(content[at - node.start_byte :]):
        raise OpaqueError(f"the command is not understood: {shown_part(node)}")


def _touching(node: Node) -> bool:
    return all(one.end_byte == other.start_byte for one, other in zip(node.children, node.children[1:], strict=False))


def text_of(node: Node) -> str:
    """The source text of a node."""
    return _decoded(node.text or b"")


def encoded(text: str) -> bytes:
    """Encodes a script as ASCII for the parser, whose scanner crashes at other letters.

    To a shell such letters are parts of a word, like the marks that replace them here.
    """
    return re.sub(r"[^\x00-\x7f]", lambda match: f"\x01{ord(match[0]):x}\x02", text).encode("ascii")


def _decoded(content: bytes) -> str:
    text = re.sub(r"\x01([0-9a-f]+)\x02", lambda match: chr(int(match[1], 16)), content.decode("ascii"))
    if "\x01" in text or "\x02" in text:
        raise OpaqueError("the command has characters that the parser cuts in two")
    return text


def shown_part(node: Node) -> str:
    """The start of a part, for people."""
    text = " ".join(text_of(node).split())
    return f"{text[:60]}…" if len(text) > 60 else text or node.type


_MEMBERS: Final = re.compile(r"\[[!^]?\]?(?:\[[:.=].*?[:.=]\]|\\.|[^\]])*\]", re.DOTALL)
"""Matches `[a-z]` as a shell reads it: one character."""


def bare(text: str) -> str:
    """Removes the quotes of a word as the shell does."""
    if text.startswith("~") and not re.match(r"~(?:/|$)", text):
        return UNKNOWN
    if text in ("{", "}", "{}"):
        return text
    word, at = "", 0
    while at < len(text):
        char = text[at]
        if char == "\\":
            if at + 1 == len(text):
                raise OpaqueError("a word ends in a backslash")
            word += text[at + 1].replace("\n", "")
            at += 2
            continue
        if char in "$`;&|()<>\"' \t\n":
            raise OpaqueError(f"a word is not understood: {text[:60]}")
        members = _MEMBERS.match(text, at) if char == "[" else None
        if members and "/" in members[0]:
            return UNKNOWN
        word += WILD if char in "*?[" else char
        at = members.end() if members else at + 1
    return word if not re.search(r"(?<!\\)[{}]", text) else UNKNOWN


def _quoted(text: str) -> str:
    """Reads text between double quotes as the shell does."""
    if re.search(r"(?<!\\)(?:\\\\)*[`\"]|(?<!\\)(?:\\\\)*\$[\w({\[@*#?!-]", text):
        raise OpaqueError(f"a text in quotes is not understood: {text[:60]}")
    return re.sub(r"\\(\n|[\\$`\"])", lambda match: match[1].strip("\n"), text)
