"""Programs that read all files below the folders they are given: what a rule forbids there counts as if it were named.

Which other programs do so nobody knows. So they are taken for readers where a file is denied, but for those in `LEAVES`.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from freeact_sub.approvals.shell.words import names

ALWAYS: Final = ""
PYTHON: Final = re.compile(r"(?:python|pypy)[\d.]*w?|py")
RECURSIVE: Final = r"-[^-]*[rRd].*|--(r|de|di).*"
COPIES: Final = r"-[^-]*[rRa].*|--(r|a).*"
PACKS: Final = r"-?[A-Za-z]*[cruA].*|--(c|r|u|a).*"
"""The options that make tar write an archive instead of unpacking one."""
READERS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        names("zip 7z 7za 7zr 7zz rar rsync pax jar scp sftp rclone mksquashfs genisoimage mkisofs xorriso"), ALWAYS
    ),
    **dict.fromkeys(names("borg restic duplicity rdiff-backup cpio rg ag ack ugrep rgrep zipgrep mv gmv ln gln"), ALWAYS),
    **dict.fromkeys(names("docker docker-compose podman nerdctl buildah zipfile tarfile zipapp http.server caddy"), ALWAYS),
    **dict.fromkeys(names("httpd pyftpdlib uploadserver miniserve darkhttpd croc wormhole unison dar lrztar zpaq"), ALWAYS),
    "php": r"-S.*",
    "npm": r"pack|publish",
    **dict.fromkeys(names("aws gsutil gcloud s3cmd s5cmd mc azcopy"), r"cp|mv|sync|rsync|put|mirror|copy"),
    "cmake": r"-E",
    "git": r"--no-index",
    **dict.fromkeys(names("tar gtar bsdtar star"), PACKS),
    **dict.fromkeys(names("cp gcp install ditto"), COPIES),
    "diff": ALWAYS,
    **dict.fromkeys(names("grep egrep fgrep zgrep gzip bzip2 xz zstd lz4 pigz"), RECURSIVE),
}
"""By name, an expression for the word that makes it read folders."""
MOVES: Final = names("mv gmv cp gcp ln gln install")
"""Programs whose last word is a place to write to."""
SEARCHES: Final = names("rg ag ack")
GREPS: Final = SEARCHES | names("grep egrep fgrep zgrep ugrep")
LISTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(names("cpio pax"), r".*"),
    **dict.fromkeys(names("tar gtar bsdtar star"), r"-?[A-Za-z]*T.*|--files.*"),
    **dict.fromkeys(names("zip"), r"-[^-]*@|--names-.*"),
    **dict.fromkeys(names("7z 7za 7zr 7zz rar"), r"-?[ix]?r?@.*"),
}
"""By name, an expression for the word that says that the names of files stand in another file or come from the input."""
SERVES: Final[Mapping[str, str]] = {
    **dict.fromkeys(names("http.server caddy httpd pyftpdlib uploadserver miniserve darkhttpd php npm"), r".*"),
    **dict.fromkeys(names("docker docker-compose podman nerdctl buildah"), r"build|buildx|bake|bud|compose|up"),
    **dict.fromkeys(names("ctags cscope hashdeep"), r"-[^-]*[rR].*"),
    "build": r".*",
    "hg": r"archive|bundle|serve",
    "git": r"add|stash",
}
"""By name, an expression for the word with which it reads the folder that it starts in, if no other is named."""
LEAVES: Final = names(
    "ls stat du df find tree realpath readlink rm rmdir mkdir touch chmod chown chgrp test [ cd pushd popd ln cp tar grep "
    "diff pwd which type unzip gunzip install gzip cc gcc g++ c++ clang clang++ ld javac cargo rustc go make ninja cmake "
    "mvn gradle tsc eslint prettier ruff mypy pyright black isort flake8 pylint pytest tox nox npm yarn pnpm pre-commit"
)
"""Programs that show nothing of the files in a folder, check or translate source code, or have an expression above."""
SHOWS: Final = names(
    "archive bundle fast-export format-patch stash whatchanged range-diff clone checkout-index daemon instaweb upload-pack "
    "upload-archive send-email"
)
"""Subcommands of git that show or pack the content of tracked files whatever their names are."""
PATCHES: Final = r"-[A-Za-z]*[puUWcL].*|--(?:patch|unified|function-context|word-diff|cc|batch).*"
WITHOUT: Final = names("--stat --shortstat --numstat --name-only --name-status --no-patch -s --summary")
GIT_VALUES: Final = names("-C -c --git-dir --work-tree --namespace --config-env")
ANY_LIST: Final = r"--(files0?|paths|pathspec)-f.*|--files0.*|--file-list.*"
ENTERS: Final = re.compile(r"(?s:(?:-C|--directory=|--cd=)(.+))")


def of_module(words: tuple[str, ...]) -> tuple[str, ...]:
    """`python -m NAME …` as the command `NAME …`; other commands as they are."""
    if not PYTHON.fullmatch(words[0]):
        return words
    for at, word in enumerate(words[1:], start=1):
        found = re.fullmatch(r"-[A-Za-z]*?m(.*)", word, re.DOTALL)
        if found and (inner := (*filter(None, [found[1]]), *words[at + 1 :])):
            return inner
        if not word.startswith("-") and words[at - 1] not in ("-X", "-W"):
            break
    return words


def reads_folders(words: tuple[str, ...]) -> bool:
    """Whether a command reads what is in its folders. Args: words: the program's name without its folder, and the rest."""
    if _is_git_grep(words):
        return True
    option = READERS.get(words[0])
    if option is None:
        return False
    first = words[1:2] if option is PACKS else ()  # tar takes its letters without a dash too
    given = _options(words) if option.startswith("-") else words[1:]
    return option == ALWAYS or any(re.fullmatch(option, word, re.DOTALL) for word in (*first, *given))


def leaves_folders(words: tuple[str, ...]) -> bool:
    """Whether a command that is not a reader is known to show nothing of what is in its folders."""
    return words[0] in LEAVES or (words[0] == "git" and subcommand(words) not in ("add", "stash", "clone"))


def shows_tracked(words: tuple[str, ...]) -> bool:
    """Whether a command of git shows the content of files that it does not name."""
    inner, options = subcommand(words) if words[0] == "git" else "", _options(words)
    if inner in ("show", "diff") and not any(option in WITHOUT for option in options):
        return True
    patches = any(re.fullmatch(PATCHES, option, re.DOTALL) for option in options)
    return inner in SHOWS or (patches and inner in ("log", "show", "diff", "reflog", "diff-tree", "diff-index", "cat-file"))


def shows_work_tree(words: tuple[str, ...]) -> bool:
    """Whether a command is a `git diff` that shows the content of files."""
    return words[0] == "git" and subcommand(words) == "diff" and not any(option in WITHOUT for option in _options(words))


def subcommand(words: tuple[str, ...]) -> str:
    """The subcommand of git; empty: there is none."""
    after = pairwise(words)
    return next((word for before, word in after if not word.startswith("-") and before not in GIT_VALUES), "")


def _is_git_grep(words: tuple[str, ...]) -> bool:
    return words[0] == "git" and "grep" in words


def reads_lists(words: tuple[str, ...]) -> bool:
    """Whether a command reads files that another file, or its input, names."""
    known = LISTS.get(words[0], ANY_LIST)
    marked = (word for at, word in enumerate(words[1:]) if at == 0 or word.startswith(("-", "@")))
    return known == ".*" or any(re.fullmatch(f"{known}|{ANY_LIST}", word, re.DOTALL) for word in marked)


def read_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words that may name what such a command reads: not the place that it copies or moves to."""
    others = [at for at, word in enumerate(words) if at and not word.startswith("-")]
    has_target = any(re.match(r"-[A-Za-z]*t|--t", word) for word in words)
    if words[0] not in MOVES or has_target or len(others) < 2:
        return words[1:]
    return (*words[1 : others[-1]], *words[others[-1] + 1 :])


def reads_here(words: tuple[str, ...], operands: Sequence[str], *, has_place: bool) -> bool:
    """Whether such a command reads the folder that it starts in: it searches, serves or packs, and names no other place."""
    if _is_git_grep(words) or (words[0] in GREPS and len(operands) < 2):
        return True
    known = SERVES.get(words[0])
    return known is not None and not has_place and any(re.fullmatch(known, word) for word in words)


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
