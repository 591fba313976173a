"""Programs that read all files below the folders they are given: what a rule forbids there counts as if it were named."""

import re
from collections.abc import Mapping
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
    **dict.fromkeys(names("borg restic duplicity rdiff-backup cpio rg ag ack ugrep"), ALWAYS),
    **dict.fromkeys(names("tar gtar bsdtar star"), PACKS),
    **dict.fromkeys(names("cp gcp install ditto"), COPIES),
    **dict.fromkeys(names("grep egrep fgrep zgrep diff gzip bzip2 xz zstd lz4 pigz"), RECURSIVE),
}
"""By name, an expression for the word that makes it read folders."""
SEARCHES: Final = names("rg ag ack")
ENTERS: Final = re.compile(r"(?s:(?:-C|--directory=|--cd=)(.+))")


def reads_folders(words: tuple[str, ...]) -> bool:
    """Whether a command reads what is in its folders. Args: words: the program's name without its folder, and the rest."""
    option = READERS.get(words[0])
    if option is None:
        return False
    first = words[1:2] if option is PACKS else ()  # tar takes its letters without a dash too
    return option == ALWAYS or any(re.fullmatch(option, word, re.DOTALL) for word in (*first, *_options(words)))


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
