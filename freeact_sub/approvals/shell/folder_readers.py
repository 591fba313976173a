"""Programs that read all files below the folders they are given: what a rule forbids there counts as if it were named."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from freeact_sub.approvals.shell.words import names

ALWAYS: Final = ""
RECURSIVE: Final = r"-[^-]*[rR].*|--(r|de).*"
COPIES: Final = r"-[^-]*[rRa].*|--(r|a).*"
PACKS: Final = r"-?[A-Za-z]*[cruA].*|--(c|r|u|a).*"
"""The options that make tar write an archive instead of unpacking one."""
READERS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        names("zip 7z 7za 7zr 7zz rar rsync pax jar scp sftp rclone mksquashfs genisoimage mkisofs xorriso"), ALWAYS
    ),
    **dict.fromkeys(names("borg restic duplicity rdiff-backup cpio rg ag ack ugrep mv gmv ln gln"), ALWAYS),
    "git": r"--no-index",
    **dict.fromkeys(names("tar gtar bsdtar star"), PACKS),
    **dict.fromkeys(names("cp gcp install ditto"), COPIES),
    **dict.fromkeys(names("grep egrep fgrep zgrep diff gzip bzip2 xz zstd lz4 pigz"), RECURSIVE),
}
"""By name, an expression for the word that makes it read folders."""
SEARCHES: Final = names("rg ag ack")
GREPS: Final = SEARCHES | names("grep egrep fgrep zgrep ugrep")
LISTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(names("cpio pax"), r".*"),
    **dict.fromkeys(names("tar gtar bsdtar star"), r"-?[A-Za-z]*T.*|--files.*"),
    **dict.fromkeys(names("zip"), r"-[^-]*@|--names-.*"),
    **dict.fromkeys(names("7z 7za 7zr 7zz rar"), r"-?[ix]?r?@.*"),
}
"""By name, an expression for the word that says that the names of files stand in another file or come from the input."""
ANY_LIST: Final = r"--(files0?|paths|pathspec)-f.*|--files0.*|--file-list.*"
ENTERS: Final = re.compile(r"(?s:(?:-C|--directory=|--cd=)(.+))")


def reads_folders(words: tuple[str, ...]) -> bool:
    """Whether a command reads what is in its folders. Args: words: the program's name without its folder, and the rest."""
    if _is_git_grep(words):
        return True
    option = READERS.get(words[0])
    if option is None:
        return False
    first = words[1:2] if option is PACKS else ()  # tar takes its letters without a dash too
    return option == ALWAYS or any(re.fullmatch(option, word, re.DOTALL) for word in (*first, *_options(words)))


def _is_git_grep(words: tuple[str, ...]) -> bool:
    return words[0] == "git" and "grep" in words


def reads_lists(words: tuple[str, ...]) -> bool:
    """Whether a command reads files that another file, or its input, names."""
    known = LISTS.get(words[0], ANY_LIST)
    marked = (word for at, word in enumerate(words[1:]) if at == 0 or word.startswith(("-", "@")))
    return known == ".*" or any(re.fullmatch(f"{known}|{ANY_LIST}", word, re.DOTALL) for word in marked)


def reads_here(words: tuple[str, ...], operands: Sequence[str]) -> bool:
    """Whether such a command reads the folder that it starts in: a search that names no other place."""
    return _is_git_grep(words) or (words[0] in GREPS and len(operands) < 2)


def skips_hidden(words: tuple[str, ...]) -> bool:
    """Whether such a command passes over files with a leading dot."""
    return words[0] in SEARCHES and not any(
        word.startswith(("-u", "-.", "--h", "--u", "--no-i")) for word in _options(words)
    )


def entered(words: tuple[str, ...]) -> tuple[str, ...]:
    """The folders that the command changes to before it reads: `-C x`."""
    after = [value for word, value in pairwise(words) if word in ("-C", "--directory", "--cd")]
    return (*after, *(found[1] for word in words if (found := ENTERS.fullmatch(word))))


def _options(words: tuple[str, ...]) -> list[str]:
    return [word for word in words[1:] if word.startswith("-")]
