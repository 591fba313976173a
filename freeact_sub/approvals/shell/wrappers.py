"""`inside` finds the commands that wrappers such as `env`, `sudo`, `xargs`, `bash -c` and `find -exec` start.

An option that is not in the tables makes the command opaque: whether the next word belongs to it, or is the program, would
be a guess.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from freeact_sub.approvals.patterns import UNKNOWN, WILD

SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "rbash"})
OTHER_SHELLS: Final = SHELLS - {"sh", "bash", "dash", "ash", "rbash"}
"""Shells with words, wildcards and tests of their own, which may run what bash takes for text."""


POSIX_SHELLS: Final = frozenset({"sh", "dash", "ash"})


@dataclass(frozen=True, kw_only=True)
class Inside:
    """The commands that a wrapper runs."""

    commands: tuple[tuple[str, ...], ...] = ()
    scripts: tuple[str, ...] = ()
    """Scripts that a shell runs."""
    posix: bool = False
    """True: that shell may be another one than bash."""
    assigned: tuple[str, ...] = ()
    """Variables set or unset for the commands."""
    wraps: bool = False
    """True: the wrapper does nothing itself."""
    opaque: str = ""
    """Why the commands are unknown; empty: they are known."""


@dataclass(frozen=True)
class _Options:
    """The options of a wrapper, up to the program that it starts."""

    flags: str = ""
    """Short options without a value; they may stand together."""
    values: str = ""
    """Short options with a value."""
    long_flags: tuple[str, ...] = ()
    long_values: tuple[str, ...] = ()
    operands: int = 0
    """Words between the options and the program."""
    variables: bool = False
    """`NAME=VALUE` may stand before the program."""
    numbers: bool = False
    """`-10` is an option."""
    wraps: bool = True
    appends: bool = False
    """True: arguments follow that are known only when it runs."""
    replaces: tuple[str, ...] = ()
    """Options that name the placeholder for such arguments."""


WRAPPERS: Final = {
    "env": _Options("i0v", "u", ("ignore-environment", "null", "debug"), ("unset",), variables=True),
    "sudo": _Options(
        "AbEHnPkS", "ugpTUhr", ("non-interactive", "preserve-env"), ("user", "group"), variables=True, wraps=False
    ),
    "doas": _Options("nL", "u", wraps=False),
    "nohup": _Options(),
    "setsid": _Options("cfw", "", ("ctty", "fork", "wait")),
    "nice": _Options("", "n", (), ("adjustment",), numbers=True),
    "ionice": _Options("t", "cn", ("ignore",), ("class", "classdata")),
    "time": _Options("pv"),
    "timeout": _Options("v", "ks", ("foreground", "preserve-status", "verbose"), ("kill-after", "signal"), operands=1),
    "stdbuf": _Options("", "ioe", (), ("input", "output", "error")),
    "command": _Options("p"),
    "builtin": _Options(),
    "exec": _Options("cl"),
    "busybox": _Options(),
    "chrt": _Options("bforidma", "", operands=1),
    "taskset": _Options("ac", "", operands=1),
    "xargs": _Options(
        "0rtxp",
        "nPILsdaE",
        ("null", "no-run-if-empty", "verbose", "exit"),
        ("max-args", "max-procs", "replace", "max-lines", "max-chars", "delimiter", "arg-file"),
        appends=True,
        replaces=("I", "replace", "i"),
    ),
}


MAX_OPTIONS: Final = 40
"""Words to try as options before a subcommand; with more, it may be any subcommand."""
STREAM: Final = re.compile(r"/dev/(?:stdin|fd/.*|tty)|/proc/[^/]+(?:/task/[^/]+)?/fd/.*|-")
"""Scripts with unknown content."""
CLEARING: Final = {"env": ("i", "u", "ignore-environment", "unset"), "exec": ("c",)}
"""Options that unset variables for the started program."""


def inside(words: tuple[str, ...]) -> Inside:
    """The programs that a command runs. Args: words: its name and arguments."""
    name = words[0].rpartition("/")[2]
    if name in SHELLS:
        return _shell(words)
    if name in ("command", "type") and any(word in ("-v", "-V") for word in words[1:2]):
        return Inside()
    if name in WRAPPERS:
        return _wrapped(name, words[1:], WRAPPERS[name])
    return _SPECIAL[name](words) if name in _SPECIAL else Inside()


def _wrapped(name: str, words: Sequence[str], options: _Options) -> Inside:
    taken: list[tuple[str, str]] = []
    rest = _skip_options(words, options, taken)
    if rest is None:
        return Inside(opaque=f"an option of {name} is not known here")
    if name == "time" and rest and re.match(r"\w+\+?=", rest[0]):
        # to the word of the shell it is a variable, to the program of that name it is a program
        return Inside(opaque="whether time starts the first word or the next one is a guess")
    assigned = [value or option for option, value in taken if option in CLEARING.get(name, ())]
    if name == "env" and rest[:1] == ["-"]:
        assigned.append(rest.pop(0))
    while options.variables and rest and "=" in rest[0]:
        assigned.append(rest[0].partition("=")[0])
        rest = rest[1:]
    if options.operands and len(rest) > options.operands and any(UNKNOWN in word for word in rest[: options.operands]):
        return Inside(opaque=f"which words of {name} are its own is known only when it runs")
    rest = rest[options.operands :]
    replaced = next((value or "{}" for option, value in taken if option in options.replaces), "")
    rest = [word.replace(replaced, UNKNOWN) if replaced else word for word in rest]
    if not rest:
        return Inside(wraps=False)
    return Inside(
        commands=((*rest, UNKNOWN) if options.appends else tuple(rest),), assigned=tuple(assigned), wraps=options.wraps
    )


def without_options(name: str, words: tuple[str, ...]) -> Iterator[str]:
    """The command without options before its subcommand: `git -C x push` is a `git push`, and so is `git-push`.

    Whether an option takes the next word is not known here, so both readings are returned.
    """
    if name.startswith("git-"):
        yield " ".join(("git", name.removeprefix("git-"), *words[1:]))
    for at in range(1, len(words) - 1):
        if not words[at].startswith("-") and (at == 1 or not words[at - 1].startswith("-")):
            return
        if at == MAX_OPTIONS:
            yield f"{name} {UNKNOWN}"
            return
        yield " ".join((name, *words[at + 1 :]))


def _skip_options(words: Sequence[str], options: _Options, taken: list[tuple[str, str]]) -> list[str] | None:
    """The words after the options. None: an option is not known. Appends each option with its value to `taken`."""
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        if UNKNOWN in word or WILD in word:
            return None
        takes = _long_takes(word, options) if word.startswith("--") else _short_takes(word, options)
        if takes is None or (takes and not rest):
            return None
        if takes and UNKNOWN in rest[0]:
            return None  # without quotes it may be several words, or none
        taken += _taken(word, rest.pop(0) if takes else "", options)
    return rest


def _taken(word: str, value: str, options: _Options) -> Iterator[tuple[str, str]]:
    """The options in a word, each with its value in or after the word."""
    if word.startswith("--"):
        name, _, attached = word[2:].partition("=")
        yield name, attached or value
        return
    for index, letter in enumerate(word[1:], start=1):
        if letter in options.values:
            yield letter, word[index + 1 :] or value
            return
        yield letter, ""


def _long_takes(word: str, options: _Options) -> bool | None:
    """Whether the next word is the option's value; None if the option is not known."""
    name, has_value, _ = word[2:].partition("=")
    if name in options.long_values:
        return not has_value
    return False if name in options.long_flags else None


def _short_takes(word: str, options: _Options) -> bool | None:
    if options.numbers and re.fullmatch(r"-\d+", word):
        return False
    for index, letter in enumerate(word[1:], start=1):
        if letter in options.values:
            return index == len(word) - 1
        if letter not in options.flags:
            return None
    return False


def _shell(words: tuple[str, ...]) -> Inside:
    """Reads `bash -c TEXT`. `bash FILE` is a program like any other; `bash` alone reads an unknown script."""
    at = 1
    while at < len(words) and words[at].startswith(("-", "+")) and len(words[at]) > 1:
        word = words[at]
        if word in ("--version", "--help"):
            return Inside()
        if re.fullmatch(r"-[eufnxlvi]*c[euxlv]*", word):
            if at + 1 >= len(words) or words[at + 1].startswith(("-", "+")):
                break
            if words[0].rpartition("/")[2] in OTHER_SHELLS and not re.fullmatch(r"[\w\s./;&|-]*", words[at + 1]):
                break
            return Inside(scripts=(words[at + 1],), posix=words[0].rpartition("/")[2] in POSIX_SHELLS, wraps=True)
        if not re.fullmatch(r"-[euxvlfn]+|--(?:norc|noprofile|posix|login)", word):
            break
        at += 1
    else:
        if at < len(words) and not STREAM.fullmatch(words[at]) and UNKNOWN not in words[at]:
            return Inside()
    return Inside(opaque=f"what {words[0]} runs cannot be told from the command")


def _source(words: tuple[str, ...]) -> Inside:
    """Reads `. FILE`, a program like any other if the file is known."""
    seen = len(words) > 1 and not STREAM.fullmatch(words[1]) and UNKNOWN not in words[1]
    return Inside() if seen else Inside(opaque=f"what {words[0]} runs cannot be told from the command")


def _git(words: tuple[str, ...]) -> Inside:
    """Refuses aliases: an alias is any command of git or the shell under another name."""
    if any(re.match(r"(?:-c|--config-env=)?[\"']?alias\.", word, re.IGNORECASE) for word in words[1:]):
        return Inside(opaque="the command behind a git alias is not known")
    return Inside()


def _eval(words: tuple[str, ...]) -> Inside:
    return Inside(scripts=(" ".join(words[1:]),), wraps=True)


def _trap(words: tuple[str, ...]) -> Inside:
    rest = [word for word in words[1:] if word != "--"]
    if any(word.startswith("-") and word != "-" for word in rest):
        return Inside(wraps=True) if rest[0] in ("-l", "-p") else Inside(opaque="an option of trap is not known here")
    return Inside(scripts=tuple(rest[:1]) if len(rest) > 1 and rest[0] != "-" else (), wraps=True)


def _set(words: tuple[str, ...]) -> Inside:
    """Reads `set -euo pipefail`, which is harmless. Other options change the meaning of words."""
    if all(re.fullmatch(r"[-+][euxE]*o?|pipefail|errexit|nounset|xtrace", word) for word in words[1:]) and len(words) > 1:
        return Inside(wraps=True)
    return _change_user(words)


def _find(words: tuple[str, ...]) -> Inside:
    commands: list[tuple[str, ...]] = []
    rest = list(words[1:])
    while rest:
        if rest.pop(0) in ("-exec", "-execdir", "-ok", "-okdir"):
            command: list[str] = []
            while rest and rest[0] not in (";", "+"):
                command.append(rest.pop(0).replace("{}", UNKNOWN))
            commands.append(tuple(command) or (UNKNOWN,))
    return Inside(commands=tuple(commands))


def _change_user(words: tuple[str, ...]) -> Inside:
    """Reads `su -c TEXT`, `script -c TEXT`, `flock FILE -c TEXT`, `watch TEXT`: a shell runs the text."""
    return Inside(opaque=f"what {words[0]} runs cannot be told from the command") if len(words) > 1 else Inside()


def _other_shell(words: tuple[str, ...]) -> Inside:
    """Reads `su`, `batch`, `crontab -`: without words too they run what comes from the input."""
    return Inside(opaque=f"what {words[0]} runs cannot be told from the command")


_SPECIAL: Final[dict[str, Callable[[tuple[str, ...]], Inside]]] = {
    "eval": _eval,
    ".": _source,
    "source": _source,
    "git": _git,
    "trap": _trap,
    "find": _find,
    "set": _set,
    **dict.fromkeys(
        ("su", "script", "parallel", "chroot", "unshare", "nsenter", "batch", "crontab", "newgrp"), _other_shell
    ),
    **dict.fromkeys(("flock", "watch", "entr", "runuser", "pkexec", "systemd-run", "sg"), _change_user),
    **dict.fromkeys(("strace", "ltrace", "gdb", "at", "alias"), _change_user),
    **dict.fromkeys(("enable", "shopt", "hash", "complete", "bind", "mapfile", "readarray", "let"), _change_user),
    **dict.fromkeys(("compgen", "fc"), _change_user),
}
