"""Finds forbidden commands among the arguments of programs that may start them, though nobody knows that they do.

A word may be the command's first, as after `fakeroot`, or hold all of it, as in `tmux new 'git push'` or between quotes in
`awk 'BEGIN{system("git push")}'`. What a program puts together while it runs nobody can see here.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from freeact_sub.approvals.policy import Policy, Ruling
from freeact_sub.approvals.rules.patterns import UNKNOWN, WILD, Pattern
from freeact_sub.approvals.shell import dangers
from freeact_sub.approvals.shell.script import SimpleCommand, read_script
from freeact_sub.approvals.shell.wrappers import without_options

DANGEROUS: Final = frozenset({*dangers.RECURSIVE, "find", "dd"})
MAX_TEXTS: Final = 20
"""Texts to read as scripts; of more, the content counts as unknown."""
ASKED: Final = Ruling(verdict="ask", rule="a forbidden command is among its words", lasting=False)


def hidden_commands(command: SimpleCommand, policy: Policy) -> Iterator[Ruling]:
    """Asks for each forbidden command that an allowed one may start."""
    forbidden = _Forbidden(policy)
    for start, word in enumerate(command.words[1:], start=1):
        if forbidden.may_begin(word) and forbidden.has(replace(command, words=command.words[start:])):
            yield ASKED
    yield from _in_texts(command.words[1:], forbidden)


def hidden_texts(words: Sequence[str], policy: Policy) -> Iterator[Ruling]:
    """Asks where a text, such as the value of a variable, holds a forbidden command."""
    if words:
        yield from _in_texts(words, _Forbidden(policy))


def _in_texts(words: Sequence[str], forbidden: "_Forbidden") -> Iterator[Ruling]:
    texts = [text for word in words for text in _texts(word) if any(map(forbidden.may_begin, re.split(r"[\s;&|(]+", text)))]
    found = [inner for text in texts[:MAX_TEXTS] for inner in read_script(text).commands]
    # the first word may be another language's: `1e git push`, `spawn git push`
    found += [replace(inner, words=inner.words[1:]) for inner in found if len(inner.words) > 1]
    found += [inner for word in words for inner in _spelled(word, forbidden)]
    if len(texts) > MAX_TEXTS or any(forbidden.has(inner) for inner in found):
        yield ASKED


def _spelled(word: str, forbidden: "_Forbidden") -> Iterator[SimpleCommand]:
    """The commands that begin anywhere in a text of some language, as in `1e git push` and `s/x/git push/e`."""
    pieces = [word, *(word[at:] for at in range(2, 5) if word.startswith("-"))]
    for mark in set(re.findall(r"(?:^|[\W\d_])s(\w)", word)):  # `sxaxgit pushxe`
        pieces += word.split(mark)
    is_prose = not re.search(r"^-|[^\w\s.,:'?()-]", word) or not re.search(r"\s", word)
    for piece in () if is_prose else dict.fromkeys(pieces):
        for name in re.finditer(r"[\w.+-]+(?=\s)|(?<=_)[a-z][\w.+-]*(?=\s)", piece):
            if forbidden.may_begin(name[0].strip("_")):
                end = re.match(r"[^\n;&|(){}<>'\"`,!#%]*", piece[name.start() :])
                text = (end[0] if end else "").strip("_")
                for cut in dict.fromkeys((text, *(text.partition(mark)[0] for mark in "/@:=+_"))):
                    yield SimpleCommand(words=tuple(cut.split()), folders=("",))


def _texts(word: str) -> Iterator[str]:
    """The parts of a word that may be scripts."""
    if not re.search(r"[\s'\"]", word) or UNKNOWN in word or WILD in word:
        return
    yield word
    if "\\" in word:
        yield from _texts(re.sub(r"\\(?:[tnrfv]|x(?:20|09|0a)|0?40)|\\", lambda code: " " * (len(code[0]) > 1), word))
    if word.startswith("-"):
        yield word[2:]
    yield from re.split(r"[=!:,`|(){}\[\]]", word)[1:]
    quoted = [one or other for one, other in re.findall(r"'([^']*)'|\"([^\"]*)\"", word)]
    yield from quoted
    yield " ".join(quoted)


class _Forbidden:
    """The commands that rules forbid."""

    def __init__(self, policy: Policy) -> None:
        self._workspace = policy.workspace
        rules = (rule for level in policy.rules.levels for rule in level)
        self._patterns = [rule.pattern for rule in rules if rule.verdict == "deny" and rule.pattern.kind == "shell"]
        firsts = {pattern.glob.partition(" ")[0] for pattern in self._patterns}
        self._firsts = [Pattern(kind="tool", glob=first) for first in firsts]
        self._begin: dict[str, bool] = {"": False}

    def may_begin(self, word: str) -> bool:
        """Tests quickly whether a forbidden command may begin with a word."""
        name = word.rpartition("/")[2]
        if name not in self._begin:
            known = not name.startswith("-") and UNKNOWN not in name and WILD not in name
            git = any(first.covers("git", self._workspace) for first in self._firsts) if name.startswith("git-") else False
            self._begin[name] = known and (
                git or name in DANGEROUS or any(first.covers(name, self._workspace) for first in self._firsts)
            )
        return self._begin[name]

    def has(self, command: SimpleCommand) -> bool:
        """Whether a command is forbidden, as written or without its folder and the options before its subcommand."""
        name = command.words[0].rpartition("/")[2]
        texts = {command.text, " ".join((name, *command.words[1:])), *without_options(name, command.words)}
        if any(pattern.covers(text, self._workspace) for pattern in self._patterns for text in texts):
            return True
        return name in DANGEROUS and dangers.danger_of(command, self._workspace) == "sure"
