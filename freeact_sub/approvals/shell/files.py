"""Judgements on the files that a command may open: by its words, its wildcards and its folders.

No list has all programs that read whole folders. `READERS` are known to; where a file is denied, all others but `LEAVES`
count as readers too.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import Final, TypeAlias

from freeact_sub.approvals import access
from freeact_sub.approvals.git_files import UnknownFilesError, tracked_files
from freeact_sub.approvals.patterns import UNKNOWN, WILD
from freeact_sub.approvals.policy import Policy, Ruling
from freeact_sub.approvals.shell.script import SimpleCommand
from freeact_sub.approvals.shell.wrappers import names

OPEN_NOTHING: Final = names("echo printf true false : cd seq sleep exit return basename dirname")
"""Shell builtins that do not open the files that their arguments name."""
ONLY_NAME: Final = names("ls stat du df find tree realpath readlink")
"""Programs that do not read the content of the files that a wildcard finds."""
EDITORS: Final = names("sed gsed ssed ed red ex vi vim nvim view")
"""Programs with command letters that a file's name follows at once: `rFILE`, `$wFILE`, `s/a/b/wFILE`."""
RECURSIVE: Final = r"-[^-]*[rRd].*|--(r|de|di).*"
COPIES: Final = r"-[^-]*[rRa].*|--(r|a).*"
PACKS: Final = r"-?[A-Za-z]*[cruA].*|--(c|r|u|a).*"
"""Options with which tar writes an archive instead of unpacking one."""
READERS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        names(
            "zip 7z 7za 7zr 7zz rar rsync pax jar scp sftp rclone mksquashfs genisoimage mkisofs xorriso borg restic "
            "duplicity rdiff-backup cpio rg ag ack ugrep rgrep zipgrep mv gmv ln gln diff docker docker-compose podman "
            "nerdctl buildah zipfile tarfile zipapp http.server caddy httpd pyftpdlib uploadserver miniserve darkhttpd "
            "croc wormhole unison dar lrztar zpaq"
        ),
        ".*",
    ),
    **dict.fromkeys(names("aws gsutil gcloud s3cmd s5cmd mc azcopy"), r"cp|mv|sync|rsync|put|mirror|copy"),
    **dict.fromkeys(names("tar gtar bsdtar star"), PACKS),
    **dict.fromkeys(names("cp gcp install ditto"), COPIES),
    **dict.fromkeys(names("grep egrep fgrep zgrep gzip bzip2 xz zstd lz4 pigz"), RECURSIVE),
    "php": r"-S.*",
    "npm": r"pack|publish",
    "cmake": r"-E",
    "git": r"grep|--no-index",
}
"""Expressions, by program, for the word that makes it read folders."""
MOVES: Final = names("mv gmv cp gcp ln gln install")
"""Programs whose last word is a place to write to."""
SEARCHES: Final = names("rg ag ack")
GREPS: Final = SEARCHES | names("grep egrep fgrep zgrep ugrep")
ANY_LIST: Final = r"--(files0?|paths|pathspec)-f.*|--files0.*|--file-list.*"
LISTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(names("cpio pax"), r".*"),
    **dict.fromkeys(names("tar gtar bsdtar star"), r"-?[A-Za-z]*T.*|--files.*"),
    **dict.fromkeys(names("7z 7za 7zr 7zz rar"), r"-?[ix]?r?@.*"),
    "zip": r"-[^-]*@|--names-.*",
}
"""Expressions, by program, for the word that says that file names stand in another file or come from the input."""
SERVES: Final[Mapping[str, str]] = {
    **dict.fromkeys(names("http.server caddy httpd pyftpdlib uploadserver miniserve darkhttpd php npm build"), r".*"),
    **dict.fromkeys(names("docker docker-compose podman nerdctl buildah"), r"build|buildx|bake|bud|compose|up"),
    **dict.fromkeys(names("ctags cscope hashdeep"), r"-[^-]*[rR].*"),
    "hg": r"archive|bundle|serve",
    "git": r"add|stash|grep",
}
"""Expressions, by program, for the word with which it reads its starting folder, if no other is named."""
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
ENTERS: Final = re.compile(r"(?s:(?:-C|--directory=|--cd=)(.+))")
MAX_WILDCARDS: Final = 20
"""Words with wildcards of a command before a person is asked instead."""
MAX_LETTERS: Final = 40
"""Letters of a word with options after which a file's name may begin."""
MAX_NAMES: Final = 2_000
"""Names of files to look for in a command; with more, one of them may be any file."""
Found: TypeAlias = Mapping[str, dict[str, list[str]] | None]
"""Names that each word with a wildcard finds, by the command's starting folder. None: too many."""
_MARKS: Final = re.compile(r"[=:,@'\"()\s<>!{}\[\]|;&^`]")


def about_files(command: SimpleCommand, found: Found, policy: Policy) -> Iterator[Ruling]:
    """Judge the files that a command reads.

    Args:
        command: The command.
        found: The names that its wildcards find; empty if these stand in their place.
        policy: The agent's policy.
    """
    program = command.words[0].rpartition("/")[2].lower()  # some disks do not distinguish capitals
    if program in OPEN_NOTHING:
        return
    words = _of_module((program, *command.words[1:]))
    for folder in command.folders:
        there = found.get(folder, {}) if program not in ONLY_NAME else {}
        if there is None:
            yield access.too_many(policy)
            return  # what they name as folders are too many as well
        yield from _about_names(words, folder, there, policy)
    denying = replace(policy, mode="full")  # what only asks does not count for programs that may not read at all
    if reads_lists(words):  # where a rule only asks, a person's own rule for the program has said yes
        yield access.judge_read(UNKNOWN, "", denying)
    entered = [value for word, value in pairwise(words) if word in ("-C", "--directory", "--cd")]
    entered += [place[1] for word in words if (place := ENTERS.fullmatch(word))]
    places = [joined(start, inner) for start in command.folders for inner in ("", *entered)]
    if _reads_folders(words):
        inside = [name for word in _read_words(words) for name in _names_in(word) if not name.startswith("-")]
        yield from _about_folders(words, inside, places, policy)
    elif access.denies_files(policy):
        inside = [name for word in words[1:] if not re.search(r"[\s'\"()]", word) for name in _names_in(word)]
        leaves = words[0] in LEAVES or (words[0] == "git" and _subcommand(words) not in ("add", "stash", "clone"))
        folders = () if leaves else _about_folders(words, inside, places, denying)
        tracked = (
            about_tracked(places, denying, Ruling(verdict="ask", rule="", lasting=False)) if _shows_tracked(words) else ()
        )
        for ruling in (*folders, *tracked):  # a program that may read what is denied is asked about
            is_denied = ruling.verdict == "deny"
            sentence = f"it may read what is denied: {ruling.rule}"
            yield replace(ruling, verdict="ask", rule=sentence, lasting=False) if is_denied else ruling


def what_is_found(command: SimpleCommand, policy: Policy) -> Found:
    """Return the names that a command's wildcards find."""
    bases = {folder: access.possible_paths("", folder, policy.workspace)[-1] for folder in command.folders}
    return {folder: _found(command.words, base) for folder, base in bases.items()}


def with_options_found(command: SimpleCommand, found: Found) -> Iterator[SimpleCommand]:
    """Yield the command with the files that its wildcards find, where a name may be an option: `-r`, `@list`, `+cmd`."""
    for folder, there in found.items():
        words = tuple(name for word in command.words for name in (there or {}).get(word) or [word])
        if any(word.startswith(("-", "@", "+")) for word in set(words).difference(command.words)):
            words = words if len(words) <= MAX_NAMES else (words[0], UNKNOWN)
            yield replace(command, words=words, folders=(folder,))


def reads_lists(words: tuple[str, ...]) -> bool:
    """Return whether a command reads files that another file, or its input, names."""
    form = f"{LISTS.get(words[0], ANY_LIST)}|{ANY_LIST}"
    marked = (word for at, word in enumerate(words[1:]) if at == 0 or word.startswith(("-", "@")))
    return LISTS.get(words[0]) == ".*" or any(re.fullmatch(form, word, re.DOTALL) for word in marked)


def shows_work_tree(words: tuple[str, ...]) -> bool:
    """Return whether a command is a `git diff` that shows the content of files."""
    return words[0] == "git" and _subcommand(words) == "diff" and WITHOUT.isdisjoint(words[1:])


def about_tracked(folders: Sequence[str], policy: Policy, unknown: Ruling) -> Iterator[Ruling]:
    """Judge the reading of the files that git tracks in folders. Args: unknown: the ruling if they are not known."""
    for folder in folders:
        try:
            yield access.judge_files(tracked_files(folder, policy.workspace), policy)
        except UnknownFilesError as error:
            yield replace(unknown, rule=f"which files git shows is not known: {error}")


def joined(cwd: str, folder: str) -> str:
    """Return a folder relative to another, either of which may be empty or unknown."""
    if not folder:
        return cwd
    return f"{cwd}/{folder}" if cwd and folder[:1] not in ("/", "~", UNKNOWN) else folder


def _of_module(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return `python -m NAME …` as the command `NAME …`; other commands as they are."""
    if not re.fullmatch(r"(?:python|pypy)[\d.]*w?|py", words[0]):
        return words
    for at, word in enumerate(words[1:], start=1):
        found = re.fullmatch(r"-[A-Za-z]*?m(.*)", word, re.DOTALL)
        if found and (inner := (*filter(None, [found[1]]), *words[at + 1 :])):
            return inner
        if not word.startswith("-") and words[at - 1] not in ("-X", "-W"):
            break
    return words


def _found(words: tuple[str, ...], base: str) -> dict[str, list[str]] | None:
    """Return the names that each word with a wildcard finds in a folder. None: more than a decision has time for."""
    wild = [word for word in words if WILD in word and UNKNOWN not in word + base]
    if len(wild) > MAX_WILDCARDS:
        return None
    try:
        found = {word: sorted(access.expanded(access.with_home(word), base)) for word in dict.fromkeys(wild)}
    except access.TooManyError:
        return None
    return found if sum(len(found[word]) for word in wild) <= access.MAX_FILES else None


def _about_names(words: tuple[str, ...], folder: str, there: dict[str, list[str]], policy: Policy) -> Iterator[Ruling]:
    rules = access.FileRules(policy)
    written = [word if UNKNOWN in word else word.replace(WILD, "*") for word in words[1:]]
    # who names hidden files may mean one that is not there yet
    written += [word for word in there if word.rpartition("/")[2].startswith(".")]
    found = dict.fromkeys(name for word in written for name in _names_in(word))
    if words[0] in EDITORS:
        found |= dict.fromkeys(name for word in words[1:] for name in re.findall(r"(?=[rRwWe+]([^\s;}]+))", word))
    most = [*found][:MAX_NAMES] + [UNKNOWN] * (len(found) > MAX_NAMES)
    for name in dict.fromkeys((*most, *(name for word in chain(*there.values()) for name in _names_in(word)))):
        paths = access.possible_paths(name, folder, policy.workspace)
        if any(UNKNOWN in path or WILD in path or rules.may_be_about(path) for path in paths):
            yield access.judge_read(name, folder, policy)


def _about_folders(words: tuple[str, ...], inside: list[str], places: list[str], policy: Policy) -> Iterator[Ruling]:
    """Judge the folders among the names in a command's words, and its starting folder if the command reads that."""

    def is_there(name: str, test: Callable[[str], bool]) -> bool:
        paths = (path for place in places for path in access.possible_paths(name, place, policy.workspace))
        return access.may_look() and any(map(test, paths))

    operands = [word for word in words[1:] if not word.startswith("-")]
    has_operand = any(word and is_there(word, os.path.lexists) for word in operands[1:])
    reads_here = (words[0] in GREPS and not has_operand) or (words[0] == "git" and "grep" in words)
    if not reads_here and any(re.fullmatch(SERVES.get(words[0], "(?!)"), word) for word in words):
        reads_here = not any(is_there(name, os.path.lexists if words[0] == "git" else os.path.isdir) for name in inside)
    hidden = words[0] not in SEARCHES or any(word.startswith(("-u", "-.", "--h", "--u", "--no-i")) for word in words[1:])
    for name in dict.fromkeys((*inside[:MAX_NAMES], *(["."] if reads_here else []))):
        for place in places:
            yield access.judge_folder(name, place, policy, hidden=hidden)


def _reads_folders(words: tuple[str, ...]) -> bool:
    option = READERS.get(words[0], "(?!)")
    first = words[1:2] if option is PACKS else ()  # tar takes its letters without a dash too
    given = [word for word in words[1:] if word.startswith("-")] if option.startswith("-") else words[1:]
    return option == ".*" or any(re.fullmatch(option, word, re.DOTALL) for word in (*first, *given))


def _read_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that may name files to read: not the place to copy or move to."""
    others = [at for at, word in enumerate(words) if at and not word.startswith("-")]
    has_target = any(re.match(r"-[A-Za-z]*t|--t", word) for word in words)
    if words[0] not in MOVES or has_target or len(others) < 2:
        return words[1:]
    return (*words[1 : others[-1]], *words[others[-1] + 1 :])


def _shows_tracked(words: tuple[str, ...]) -> bool:
    """Return whether a command of git shows the content of files that it does not name."""
    inner = _subcommand(words) if words[0] == "git" else ""
    options = [word for word in words[1:] if word.startswith("-")]
    patches = any(re.fullmatch(PATCHES, option, re.DOTALL) for option in options)
    return (
        inner in SHOWS
        or (inner in ("show", "diff") and WITHOUT.isdisjoint(options))
        or (patches and inner in ("log", "show", "diff", "reflog", "diff-tree", "diff-index", "cat-file"))
    )


def _subcommand(words: tuple[str, ...]) -> str:
    """Return the subcommand of git; empty: there is none."""
    after = pairwise(words)
    return next((word for before, word in after if not word.startswith("-") and before not in GIT_VALUES), "")


def _names_in(word: str) -> Iterator[str]:
    """Yield the possible file names in a word: after an option's letters, `=`, `:`, `,` or `@`, or in quotes."""
    found = [word]
    if _MARKS.search(word) or word.startswith("-"):
        found += [part for mark in "=:,@" for part in (word.rpartition(mark)[2], word.partition(mark)[2])]
        found += _MARKS.split(word)
    if word.startswith("-") and not word.startswith("--"):
        found += [word[at:] for at in range(2, min(len(word), MAX_LETTERS))]
    return (name for name in found if name)
