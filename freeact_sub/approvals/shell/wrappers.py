"""`inside` finds the commands that wrappers such as `env`, `sudo`, `xargs`, `bash -c` and `find -exec` start.

An option that is not in the table makes the command opaque: to take the next word for its value, or for the program, would
be a guess.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from freeact_sub.approvals.patterns import UNKNOWN, WILD


class OpaqueError(Exception):
    """A script that cannot be taken apart; the message names the reason."""


def names(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


@dataclass(frozen=True, kw_only=True)
class Inside:
    """The commands that a command runs, and the variables that it changes."""

    commands: tuple[tuple[str, ...], ...] = ()
    scripts: tuple[str, ...] = ()
    """Scripts that a shell runs."""
    assigned: tuple[str, ...] = ()
    """Variables set for the commands."""
    changed: tuple[str, ...] = ()
    """Variables of the shell that are changed."""
    wraps: bool = False
    """Whether the command does nothing itself."""


WRAPPERS: Final[Mapping[str, tuple[str, str, int]]] = {
    **dict.fromkeys(("env", "command", "exec", "nohup", "busybox", "setsid"), ("", "", 0)),
    "nice": (r"-n?\d+|--adjustment=-?\d+", "-n", 0),
    "stdbuf": (r"-[ioe]\w+|--(?:input|output|error)=\w+", "-[ioe]", 0),
    "jobs": ("-[lnprsx]+", "", 0),
    "sudo": ("-[nEH]+", "-u", 0),
    "time": ("-[pv]", "", 0),
    "timeout": (
        r"-v|-[ks]\w+|--(?:foreground|preserve-status|verbose)|--(?:kill-after|signal)=\w+",
        "-[ks]|--kill-after|--signal",
        1,
    ),
    "xargs": (r"-[0rtx]+|-[nPL]\d+|-I[{}\w%]+|-d\S{1,2}|--(?:null|no-run-if-empty|verbose)", "-0?[nPLId]", 0),
}
"""Options of one word, options that take the next word, and own words before the program, by wrapper."""
SHELLS: Final = names("sh bash dash ash")
UNSEEN: Final = names(
    "su script parallel chroot unshare nsenter batch crontab newgrp flock watch entr runuser pkexec systemd-run sg strace "
    "ltrace gdb at alias enable shopt hash complete bind mapfile readarray let compgen fc getopts declare typeset doas "
    "ionice builtin chrt taskset rbash"
)
"""Programs that run code from elsewhere, or change the meaning of words."""
HARMLESS: Final = re.compile(r"(?s:(?:command|type) -[vV]( .*)?|set(?: [-+][euxE]*o?| pipefail| errexit| nounset| xtrace)+)")
OTHER_SHELLS: Final = names("zsh ksh mksh fish")
DECLARING: Final = names("export unset local readonly")
MAX_OPTIONS: Final = 40
"""Words to try as options before a subcommand; with more, it may be any subcommand."""
STREAM: Final = re.compile(
    rf"/dev/(?:stdin|fd/.*|tty)|/proc/[^/]+(?:/task/[^/]+)?/fd/.*|[-+].*|.*[{UNKNOWN}{WILD}].*|", re.DOTALL
)
"""Scripts with unknown content."""


def inside(words: tuple[str, ...]) -> Inside:
    """Return the programs that a command runs. Args: words: its name and arguments.

    Raises:
        OpaqueError: They are not known.
    """
    name, rest = words[0].rpartition("/")[2], words[1:]
    if HARMLESS.fullmatch(" ".join((name, *rest))):
        return Inside(wraps=name == "set")
    if name in WRAPPERS:
        return _wrapped(name, list(rest))
    if name in SHELLS or name in OTHER_SHELLS:
        return _shell(name, rest)
    if name in DECLARING or name in ("read", "printf", "wait", "test", "["):
        return Inside(changed=_changed(name, rest))
    if name in ("eval", "trap") and rest and not rest[0].startswith("-"):
        return Inside(scripts=(" ".join(rest if name == "eval" else rest[:1]),), wraps=True)
    is_alias = name == "git" and any(re.match(r"(?i:(?:-c|--config-env=)?[\"']?alias\.)", word) for word in rest)
    is_stream = name in (".", "source") and STREAM.fullmatch(" ".join(rest[:1])) is not None
    if name in UNSEEN or name in ("eval", "trap", "set") or is_alias or is_stream:
        raise _unknown(name)
    return Inside(commands=tuple(_found_by(rest))) if name == "find" else Inside()


def _unknown(name: str) -> OpaqueError:
    return OpaqueError(f"what {name} does cannot be told from the command")


def _wrapped(name: str, rest: list[str]) -> Inside:
    flags, values, operands = WRAPPERS[name]
    placeholder = ""
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        value = option[2:]
        if option == "--":
            break
        if re.fullmatch(values, option) and rest:
            value = rest.pop(0)
        elif not re.fullmatch(flags, option):
            raise _unknown(name)
        if UNKNOWN in option + value or WILD in option + value:
            raise _unknown(name)
        placeholder = value if "I" in option and name == "xargs" else placeholder
    assigned: list[str] = []
    while name in ("env", "sudo") and rest and "=" in rest[0]:
        assigned.append(rest.pop(0).partition("=")[0])
    own, rest = rest[:operands], rest[operands:]
    if any(UNKNOWN in word or WILD in word for word in own) or (name == "time" and re.match(r"\w+\+?=", " ".join(rest))):
        raise _unknown(name)  # to the word of the shell `x=1` is a variable, to the program `time` it is a program
    if not rest:
        return Inside()
    rest = [word.replace(placeholder, UNKNOWN) if placeholder else word for word in rest]
    command = (*rest, UNKNOWN) if name == "xargs" else tuple(rest)
    return Inside(commands=(command,), assigned=tuple(assigned), wraps=name != "sudo")


def without_options(name: str, words: tuple[str, ...]) -> Iterator[str]:
    """Yield the command without options before its subcommand: `git -C x push` is a `git push`, and so is `git-push`.

    Whether an option takes the next word is not known here, so both readings are yielded.
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


def _shell(name: str, rest: tuple[str, ...]) -> Inside:
    """Read `bash -c TEXT`. `bash FILE` is a program like any other; `bash` alone reads an unknown script."""
    while rest and re.fullmatch(r"-[euxvlfn]+", rest[0]):
        rest = rest[1:]
    if rest and re.fullmatch(r"-[eufnxlvi]*c[euxlv]*", rest[0]):
        if name in OTHER_SHELLS or len(rest) < 2 or rest[1].startswith(("-", "+")):
            raise _unknown(name)
        return Inside(scripts=(rest[1],), wraps=True)
    if rest[:1] not in (("--version",), ("--help",)) and STREAM.fullmatch(" ".join(rest[:1])):
        raise _unknown(name)
    return Inside()


def _found_by(words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the commands that `find` starts."""
    rest = list(words)
    while rest:
        if rest.pop(0) in ("-exec", "-execdir", "-ok", "-okdir"):
            end = next((at for at, word in enumerate(rest) if word in (";", "+")), len(rest))
            yield tuple(word.replace("{}", UNKNOWN) for word in rest[:end]) or (UNKNOWN,)
            rest = rest[end:]


def _changed(name: str, rest: tuple[str, ...]) -> tuple[str, ...]:
    """Return the variables that a builtin of the shell changes."""
    if name in ("test", "["):
        if any(word in ("-v", "-R") or UNKNOWN in word for word in rest[:-1]):
            raise _unknown(name)
        return ()
    if name in ("printf", "wait"):
        if any(word.startswith((UNKNOWN, WILD, "-v", "-p", "-f")) for word in (rest[:1] if name == "printf" else rest)):
            raise _unknown(name)
        return ()
    named = tuple(
        word.partition("=")[0].removesuffix("+") for word in rest if name != "read" or not re.fullmatch("-[ers]+", word)
    )
    if not all(re.fullmatch(r"[A-Za-z_]\w*", variable, re.ASCII) for variable in named):
        raise _unknown(name)
    return named
