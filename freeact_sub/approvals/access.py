"""Judges files that are written or named, and connections, by rules and mode.

Rules may name a network address by any of its spellings. A person who answers "always" is suggested a pattern, and can edit
it.
"""

import ipaddress
import re
import socket
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

from freeact_sub.approvals.paths import HARMLESS, has_only_certificates, is_within, possible_paths
from freeact_sub.approvals.policy import SHIPPED, Policy, Ruling, by_mode, by_rule, denied_by_mode, strictest
from freeact_sub.approvals.rules.patterns import UNKNOWN, WILD, Kind, escaped
from freeact_sub.calls import NetworkConnect
from freeact_sub.config.schema import PROTECTED

FILE_KINDS: Final[tuple[Kind, ...]] = ("file", "write")


def judge_write(word: str, folder: str, policy: Policy) -> Ruling:
    """Judges the write of a file that a word names in a folder."""
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
    """Judges a connection. Args: spelled: spellings of `HOST:PORT`, the plain one first; parts of them may be unknown."""
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
    """Judges the reading of a file by a program that names it."""
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
    """All spellings of `host:port`, the plain one first."""
    hosts = (*_names(call.host), *(name for ip in (call.ip, *call.others) if ip for name in _names(ip)))
    return tuple(dict.fromkeys(replace(call, host=host).address for host in hosts))


def _names(host: str) -> tuple[str, ...]:
    """All spellings of a host, the plain one first.

    `127.1`, `0x7f.0.0.1` and `2130706433` are what a system takes for 127.0.0.1; a name may end in a dot; letters that only
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
    if "0.0.0.0" in forms or "::" in forms:  # noqa: S104  # who connects there connects to itself
        forms += ["127.0.0.1", "::1"]
    return tuple(dict.fromkeys(forms))


def command_pattern(words: tuple[str, ...], *, any_words: bool) -> tuple[str, ...]:
    """The pattern for a command: just this one, and none if it is known only when it runs.

    Args:
        words: The program's name and its arguments.
        any_words: None of the program's options writes, starts a program or connects: the pattern leaves its arguments open.
    """
    text = " ".join(words)
    if UNKNOWN in text or (WILD in text and not any_words) or re.search(r"\s{2}|\n", text) or text != text.strip():
        return ()
    return (f"shell:{escaped(words[0])} *",) if any_words else (f"shell:{escaped(text)}",)


def path_pattern(kind: Literal["file", "write"], paths: tuple[str, ...], workspace: Path) -> tuple[str, ...]:
    """The pattern for a file, relative to the workspace if it is in it; none if the file is unknown."""
    if any(UNKNOWN in path or WILD in path for path in paths):
        return ()
    root = f"{str(workspace).rstrip('/')}/"
    return tuple(f"{kind}:{escaped(path.removeprefix(root))}" for path in paths if path.strip() == path)
