"""Finds commands that no rule allows: they remove or hand over a whole machine, home folder or disk.

Patterns cannot say this: `rm -rf /`, `rm -r --force -- /etc/..` and `find ~ -delete` have no text in common.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, TypeAlias

from freeact_sub.approvals.access import HARMLESS, possible_paths
from freeact_sub.approvals.patterns import UNKNOWN, WILD
from freeact_sub.approvals.shell.script import SimpleCommand

Danger: TypeAlias = Literal["sure", "possible"]

SYSTEM: Final = frozenset(
    [
        "/bin",
        "/boot",
        "/dev",
        "/etc",
        "/home",
        "/lib",
        "/lib32",
        "/lib64",
        "/media",
        "/mnt",
        "/opt",
        "/proc",
        "/root",
        "/run",
        "/sbin",
        "/srv",
        "/sys",
        "/usr",
        "/usr/bin",
        "/usr/lib",
        "/usr/local",
        "/var",
        "/var/lib",
        "/Applications",
        "/Library",
        "/System",
        "/Users",
    ]
)
RECURSIVE: Final = {"rm": "rR", "chmod": "R", "chown": "R", "chgrp": "R"}
"""Programs that recurse into folders, and their short options for it."""
SENTENCE: Final = "it removes or changes all of a system folder, of the home folder, or of a disk"
BOMB: Final = "it starts itself again and again without an end"


def danger_of(command: SimpleCommand, workspace: Path) -> Danger | None:
    """Whether a command destroys a whole machine, home folder or disk. `possible`: its targets are not known."""
    name = command.words[0].rpartition("/")[2].lower()
    targets = tuple(_targets(name, command.words[1:]))
    found: Danger | None = None
    for target in targets:
        for folder in command.folders:
            for path in possible_paths(target, folder, workspace):
                judged = _judge_disk(path) if name == "dd" else _judge(path)
                if judged == "sure":
                    return judged
                found = found or judged
    return found


def _targets(name: str, words: tuple[str, ...]) -> Iterator[str]:
    options = [word for word in words if word.startswith("-")]
    others = [word for word in words if not word.startswith("-") and word]
    if name in RECURSIVE:
        if any(_is_recursive(option, RECURSIVE[name]) for option in options) or any(UNKNOWN in word for word in words):
            yield from others[name != "rm" :]
    elif name == "find":
        if "-delete" in options or any(word in ("rm", "shred") for word in others):
            yield from (word for word in words[: words.index(options[0])] if word)
    elif name == "dd":
        yield from (word.removeprefix("of=") for word in others if word.startswith("of="))


def _is_recursive(option: str, letters: str) -> bool:
    if option.startswith("--"):
        return option != "--" and "--recursive".startswith(option)
    return any(letter in option for letter in letters)


def _judge(path: str) -> Danger | None:
    name = path.rpartition("/")[2]
    if name and not name.strip(WILD):  # all that is in a folder
        path = path.removesuffix(name).rstrip("/") or "/"
    if UNKNOWN in path or WILD in path:
        return "possible"
    home = str(Path.home())
    return "sure" if path == "/" or path in SYSTEM or path == home or home.startswith(f"{path}/") else None


def _judge_disk(path: str) -> Danger | None:
    if UNKNOWN in path or WILD in path:
        return "possible"
    return "sure" if path.startswith("/dev/") and path not in HARMLESS and path.split("/")[2] not in ("fd", "shm") else None
