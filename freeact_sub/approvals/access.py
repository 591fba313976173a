"""Judgements by rules and mode, on files that are written or named, and on connections.

The words of a command are resolved to paths. A command that names a folder or a wildcard is judged by the files that are
there now (`judge_folder`, `judge_files`); a secret counts as if it were named. Files that code makes meanwhile are judged
when they are made, by the same rules.

Rules may name a network address by any of its spellings. A person who answers "always" gets a suggested pattern, and can
edit it.
"""

import ipaddress
import os
import re
import socket
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final, Literal

from freeact_sub.approvals.patterns import UNKNOWN, WILD, Kind, escaped
from freeact_sub.approvals.policy import SHIPPED, Policy, Ruling, by_mode, by_rule, denied_by_mode, strictest, unless_full
from freeact_sub.calls import NetworkConnect
from freeact_sub.config.schema import PROTECTED

HARMLESS: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty", "/dev/zero", "/dev/full"})
"""Files to which writes leave nothing behind."""

MAX_BUNDLE: Final = 1_000_000
"""Characters of a file to look at."""
_by_names: Final = ContextVar("by names alone", default=False)
_IN_PROCESS: Final = re.compile(r"/proc/[^/]+(?:/task/[^/]+)?/cwd(?:/|$)")


@contextmanager
def by_names_alone() -> Iterator[None]:
    """Keep the decisions of this task from looking at files: paths count as written, folder contents are unknown."""
    token = _by_names.set(True)
    try:
        yield
    finally:
        _by_names.reset(token)


def may_look() -> bool:
    """Return whether a decision may look at files."""
    return not _by_names.get()


def possible_paths(word: str, folder: str, workspace: Path) -> tuple[str, ...]:
    """Return the absolute paths that a word may mean in a folder: as written, and with symbolic links followed.

    Args:
        word: The word as written; parts of it may be unknown.
        folder: The folder it is relative to: absolute, or relative to the workspace.
        workspace: The agent's workspace.
    """
    path = with_home(word)
    if not path.startswith(("/", UNKNOWN)):
        base = with_home(folder)
        base = base if base.startswith(("/", UNKNOWN)) else f"{workspace}/{base}"
        path = f"{base}/{path}"
    if ".." in path.split("/") and (UNKNOWN in path or WILD in path):
        return (UNKNOWN,)
    written = os.path.normpath(path)
    written = f"/{written.lstrip('/')}" if written.startswith("/") else written
    if UNKNOWN in written or WILD in written or "\0" in written:
        return (written,)
    # `/proc/self/cwd` leads the command to another folder than this process
    return tuple(dict.fromkeys((written, UNKNOWN if _IN_PROCESS.match(written) else real_path(path))))


def real_path(path: str) -> str:
    """Return a path with its symbolic links followed; an unknown path if one cannot be followed."""
    try:
        return os.path.realpath(path) if may_look() else os.path.normpath(path)
    except (OSError, ValueError):
        return UNKNOWN  # `/proc/PID/root` of somebody else's process; a name that no file can have


def has_only_certificates(path: str) -> bool:
    """Return whether a file holds public certificates and no key."""
    try:
        if not may_look() or not stat.S_ISREG(Path(path).stat().st_mode):
            return False
        with Path(path).open("rb") as file:
            content = file.read(MAX_BUNDLE + 1)
    except (OSError, ValueError):
        return False
    return len(content) <= MAX_BUNDLE and b"-----BEGIN CERTIFICATE-----" in content and b"PRIVATE" not in content


def is_within(path: str, folder: Path) -> bool:
    """Return whether a path is a folder or lies in it, whatever its unknown parts."""
    known = path.partition(UNKNOWN)[0].partition(WILD)[0] if UNKNOWN not in path else ""
    if not known:
        return False
    root = str(folder).rstrip("/")
    return path == root or (known.startswith(f"{root}/"))


def with_home(word: str) -> str:
    """Return a word with the home folder in place of `~`."""
    return str(Path.home()) + word[1:] if word == "~" or word.startswith("~/") else word


FILE_KINDS: Final[tuple[Kind, ...]] = ("file", "write")


def judge_write(word: str, folder: str, policy: Policy) -> Ruling:
    """Judge the write of a file that a word names in a folder."""
    ruling = _judge_paths(word, folder, policy)
    if ruling.verdict != "ask":
        return ruling
    paths = possible_paths(word, folder, policy.workspace)
    kind: Literal["file", "write"] = "file" if _is_about(ruling, "file") else "write"
    return replace(ruling, suggests=path_pattern(kind, paths, policy.workspace))


def _judge_paths(word: str, folder: str, policy: Policy) -> Ruling:
    paths = possible_paths(word, folder, policy.workspace)
    # the word too: /dev/stdout leads to another file in each process, which was judged when it was opened
    if word in HARMLESS or all(path in HARMLESS or path.startswith("/dev/fd/") for path in paths):
        return Ruling(verdict="allow", rule="nothing stays of what is written there")
    found = [ruling for kind in FILE_KINDS if (ruling := by_rule(kind, paths, policy))]
    if any(ruling.verdict == "deny" for ruling in found):
        return strictest(found)
    if all(any(is_within(path, own) for own in policy.scratch) for path in paths):
        return strictest([*found, Ruling(verdict="allow", rule="it is in a folder of the agent's own")])
    inside = all(is_within(path, policy.workspace) for path in paths)
    if policy.mode == "plan":
        return denied_by_mode(policy, "nothing is written")
    if policy.mode == "auto" and not inside:
        return denied_by_mode(policy, "nothing is written outside the workspace")
    if policy.mode == "auto" and any(is_within(path, policy.workspace / name) for path in paths for name in PROTECTED):
        return denied_by_mode(policy, "the settings of agents and of git in the workspace are not written")
    if any(ruling.verdict == "ask" or _is_about(ruling, "write") for ruling in found):
        return strictest(found)
    if inside:
        return by_mode(policy, "writes in the workspace")
    return by_mode(policy, "writes outside the workspace")


def judge_connection(spelled: tuple[str, ...], policy: Policy) -> Ruling:
    """Judge a connection. Args: spelled: spellings of `HOST:PORT`, the plain one first; parts of them may be unknown."""
    if policy.mode == "plan":
        return denied_by_mode(policy, "nothing connects")
    plain, *others = spelled
    ruling = by_rule("connect", [plain], policy, also=others)
    if policy.mode == "auto" and policy.network:
        return ruling or Ruling(verdict="allow", rule="connections are allowed", source="kernel.network")
    if policy.mode == "auto" and (ruling is None or ruling.verdict == "ask"):
        return denied_by_mode(policy, "nothing connects but where a rule allows it")
    return ruling or by_mode(policy, "connections")


def judge_read(word: str, folder: str, policy: Policy) -> Ruling:
    """Judge the reading of a file by a program that names it."""
    paths = possible_paths(word, folder, policy.workspace)
    ruling = by_rule("file", paths, policy)
    if ruling is None or (_is_shipped_pem(ruling) and all(map(has_only_certificates, paths))):
        ruling = Ruling(verdict="allow", rule="it is read")
    return replace(ruling, suggests=path_pattern("file", paths, policy.workspace))


def _is_shipped_pem(ruling: Ruling) -> bool:
    return ruling.source == SHIPPED and ruling.decided_by is not None and ruling.decided_by.pattern.glob == "**/*.pem*"


def _is_about(ruling: Ruling, kind: Kind) -> bool:
    return ruling.decided_by is not None and ruling.decided_by.pattern.kind == kind


def spellings(call: NetworkConnect) -> tuple[str, ...]:
    """Return all spellings of `host:port`, the plain one first."""
    hosts = (*_names(call.host), *(name for ip in (call.ip, *call.others) if ip for name in _names(ip)))
    return tuple(dict.fromkeys(replace(call, host=host).address for host in hosts))


def _names(host: str) -> tuple[str, ...]:
    """Return all spellings of a host, the plain one first.

    A system takes `127.1`, `0x7f.0.0.1` and `2130706433` for 127.0.0.1; a name may end in a dot; letters that only
    look different are the same name.
    """
    written = host.lower()
    name = written.rstrip(".") or written
    forms = [name, written]
    with suppress(UnicodeError):
        forms.insert(0, name.encode("idna").decode("ascii"))
    with suppress(OSError, ValueError):
        packed = socket.inet_aton(name) if name.isascii() and "\0" not in name and " " not in name else None
        if packed is not None:
            forms.insert(0, str(ipaddress.IPv4Address(packed)))
    with suppress(ValueError):
        address = ipaddress.ip_address(name)
        forms.insert(0, str(address))
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
            forms.insert(0, str(address.ipv4_mapped))
    if "0.0.0.0" in forms or "::" in forms:  # noqa: S104  # a connection there is to the machine itself
        forms += ["127.0.0.1", "::1"]
    return tuple(dict.fromkeys(forms))


def command_pattern(words: tuple[str, ...], *, any_words: bool) -> tuple[str, ...]:
    """Return the pattern for this command alone; none if the command is known only when it runs.

    Args:
        words: The program's name and its arguments.
        any_words: None of the program's options writes, starts a program or connects: the pattern leaves its arguments open.
    """
    text = " ".join(words)
    if UNKNOWN in text or (WILD in text and not any_words) or re.search(r"\s{2}|\n", text) or text != text.strip():
        return ()
    return (f"shell:{escaped(words[0])} *",) if any_words else (f"shell:{escaped(text)}",)


def path_pattern(kind: Literal["file", "write"], paths: tuple[str, ...], workspace: Path) -> tuple[str, ...]:
    """Return the pattern for a file, relative to the workspace if the file is in it; none if the file is unknown."""
    if any(UNKNOWN in path or WILD in path for path in paths):
        return ()
    root = f"{str(workspace).rstrip('/')}/"
    return tuple(f"{kind}:{escaped(path.removeprefix(root))}" for path in paths if path.strip() == path)


MAX_FILES: Final = 10_000
"""Files to look at before a person is asked instead."""
READ: Final = Ruling(verdict="allow", rule="it is read")


class TooManyError(Exception):
    """More than `MAX_FILES` files in a folder or wildcard, or no look allowed."""


def judge_folder(word: str, folder: str, policy: Policy, *, hidden: bool = True) -> Ruling:
    """Judge the reading of all files below the path of a word. Args: hidden: include files with a leading dot."""
    paths = possible_paths(word, folder, policy.workspace)
    if any(UNKNOWN in path for path in paths):
        return judge_read(f"{word}/{UNKNOWN}", folder, policy)
    try:
        starts = [start for path in paths for start in expanded(path, "/")]
        return judge_files(files_below(*starts, hidden=hidden), policy)
    except TooManyError:
        return too_many(policy)


def too_many(policy: Policy) -> Ruling:
    """Ask about files that are not looked at; in `full` only where one may be denied."""
    sentence = "it reads files that are too many to look at"
    return Ruling(verdict="ask", rule=sentence, lasting=False) if denies_files(policy) else unless_full(sentence, policy)


def denies_files(policy: Policy) -> bool:
    """Return whether a rule denies files by their names."""
    return any(rule.verdict == "deny" and rule.pattern.kind == "file" for level in policy.rules.levels for rule in level)


def judge_files(paths: Iterable[str], policy: Policy) -> Ruling:
    """Judge the reading of files."""
    rules = FileRules(policy)
    return strictest([READ, *(_read(path, policy) for path in paths if rules.may_be_about(path))])


def _read(path: str, policy: Policy) -> Ruling:
    return replace(judge_read(path, "/", policy), part=f"reads {path}")


class FileRules:
    """The rules that ask about files or deny them, as a quick test of a path."""

    def __init__(self, policy: Policy) -> None:
        self._places = [(re.compile(inside, re.DOTALL), name) for inside, name in _places(policy)]
        self._names: dict[str, re.Pattern[str] | None] = {}

    def may_be_about(self, path: str) -> bool:
        """Return whether a rule may be about a path. Args: path: absolute, and known."""
        place, slash, name = path.rpartition("/")
        if place not in self._names:
            forms = [f"(?:{form})" for inside, form in self._places if inside.fullmatch(place + slash)]
            self._names[place] = re.compile("|".join(forms), re.DOTALL) if forms else None
        form = self._names[place]
        return form is not None and form.fullmatch(name) is not None


def _places(policy: Policy) -> Iterator[tuple[str, str]]:
    """Yield expressions for the folders and the names of the files that a rule matches."""
    for level in policy.rules.levels:
        for rule in level:
            if rule.pattern.kind == "file" and rule.verdict != "allow":
                yield from rule.pattern.places(policy.workspace)


def expanded(word: str, folder: str) -> Iterator[str]:
    """Yield the words that a shell makes now of a word with wildcards: the paths that match, as written in a folder.

    Raises:
        TooManyError: More than `MAX_FILES` match.
    """
    first, *parts = word.split("/")
    start = "" if word.startswith("/") else f"{folder}/"
    found = [first] if WILD not in first else _bounded(_matching(first, folder))
    for part in parts:
        inner = ((place, _matching(part, f"{start}{place}/") if WILD in part else [part]) for place in found)
        found = _bounded(f"{place}/{name}" for place, names in inner for name in names)
    yield from found


def _bounded(paths: Iterable[str]) -> list[str]:
    found = list(islice(paths, MAX_FILES + 1))
    if len(found) > MAX_FILES:
        raise TooManyError
    return found


def _matching(part: str, folder: str) -> Iterator[str]:
    form, hidden = re.compile("[^/]*".join(map(re.escape, part.split(WILD))), re.DOTALL), part.startswith(".")
    names = (entry.name for entry in _entries(folder))
    return (name for name in names if form.fullmatch(name) and (hidden or not name.startswith(".")))


def files_below(*starts: str, hidden: bool = True) -> Iterator[str]:
    """Yield all files below folders, links followed. Args: hidden: include files with a leading dot."""
    todo, seen, left = list(starts), set[str](), MAX_FILES
    while todo:
        path = real_path(todo.pop())
        if path in seen:
            continue
        seen.add(path)
        files: list[str] = []
        for entry in _entries(path):
            if not hidden and entry.name.startswith("."):
                continue
            (todo if _is_folder(entry) else files).append(entry.path)
            if entry.is_symlink():
                files.append(real_path(entry.path))
        left -= len(files) + 1
        if left < 0:
            raise TooManyError
        yield from files


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link that leads to itself


def _entries(folder: str) -> list[os.DirEntry[str]]:
    if not may_look():
        raise TooManyError
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (OSError, ValueError):
        return []  # no folder, or one that what is started cannot read either
