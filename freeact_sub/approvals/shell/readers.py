"""Programs that only read, and when they need no question: a shipped rule allows them behind a wall.

What makes this safe is the wall, not these lists: in `plan` and `ask` a kernel starts what is allowed in this way so that it
can change no file and connect to nothing (`kernels/wall/reading.py`), whatever the command turns out to be. The lists say
what such a wall would be in the way of, so that a person is asked instead.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from freeact_sub.approvals.shell.folder_readers import reads_lists
from freeact_sub.approvals.shell.words import names

FILTERS: Final = names(
    "true false : cd pwd exit return break continue echo printf seq sleep basename dirname test cat head tail tac rev wc nl "
    "cut tr fold expand paste comm cmp column grep egrep fgrep ls stat du df realpath readlink base64 md5sum sha1sum "
    "sha256sum od hexdump strings id whoami groups uname nproc free uptime arch which type"
)
"""Programs that no option makes write a file, start a program or connect."""
START_NOTHING: Final = FILTERS | names("rg find tree file uniq date ps fc-list locale hostname lscpu")
"""Programs that start no other, unless `WRITES` says so or the parser finds it."""
WRITES: Final[Mapping[str, str]] = {
    "sort": r"-[^-]*o.*|--o.*",
    "tree": r"-o|-R",
    "sed": r"-[^-]*i.*|--i.*",
    "awk": r".*(?:print[^}]*[>|]|system|inplace).*",
    "find": r"-delete|-fprint.*|-fls|-ok.*",
    "file": r"-C|--compile",
    "date": r"-s.*|--s.*",
    "git": r"--output.*",
    "rg": r"--pre.*|--hostname-bin.*",
}
"""By program, an expression for a word by which it is meant to write or to start another."""
PLAIN: Final = re.compile(r"""(?s:[\w\s./:=,@%+?*-]|'[^']*'|"[^"$`\\!]*"|&&|\|\|?|;|\d?>>?(?=\s*[\w./])|[12]?>&[12])*""")
"""Matches a line in which every shell, and everybody, sees the same words."""


def means_to_write(words: Sequence[str]) -> bool:
    """Whether a program that is known to read is to write, or to read what a list names. Args: words: its name first."""
    form = WRITES.get(words[0])
    if words[0] == "uniq":
        return sum(re.match(r"-|\d+$", word) is None for word in words[1:]) > 1
    return reads_lists(tuple(words)) or (form is not None and any(re.fullmatch(form, word, re.DOTALL) for word in words[1:]))


def is_plain(text: str) -> bool:
    """Whether a line is so plain that nothing in it can be misread: no expansion, no group, no escape."""
    return PLAIN.fullmatch(text) is not None and not re.search(r"(?m:(?:^|[\s;&|])(?:\w+\+?=))", text)
