"""Finds connections through `/dev/tcp/HOST/PORT`, which look like files and are connections for a shell; gawk has others."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from freeact_sub.approvals.addresses import spellings
from freeact_sub.approvals.rules.patterns import UNKNOWN, WILD, Pattern
from freeact_sub.approvals.shell.script import Script
from freeact_sub.calls import NetworkConnect

WRITTEN: Final = re.compile(r"/dev/(tcp|udp)/([^\s/;|&<>()'\"`$\\]+)/([\w-]+)")
"""Matches such a path anywhere in a script, also in a part that cannot be parsed."""
INET: Final = re.compile(r"/inet[46]?/(tcp|udp)/[^/\s]*/([^\s/;|&<>()'\"`$\\]+)/([\w-]+)")
"""Matches the same for gawk, to which it is such a path as the name of any file."""
NAMED: Final = re.compile(r"/dev/(tcp|udp)/([^/]+)/([^/]+)")
ANY: Final = Pattern(kind="tool", glob="/dev/[tu][cd]p/*/*")


def connections(text: str, script: Script) -> Iterator[tuple[str, ...]]:
    """The possible connections of a script, each with the spellings that rules may use, the plain one first."""
    words = [word for command in script.commands for word in command.words[1:]]
    for pattern, places in ((WRITTEN, [text]), (INET, [text]), (NAMED, [*words, *(file.path for file in script.files)])):
        for place in places:
            for protocol, host, port in pattern.findall(place):
                yield _spelled(protocol, host, port)


def may_connect(path: str) -> bool:
    """Whether the unknown parts of a file name could make it a connection."""
    return UNKNOWN in path and ANY.may_match(path.replace(WILD, UNKNOWN), Path("/")) and not NAMED.search(path)


def _spelled(protocol: str, host: str, port: str) -> tuple[str, ...]:
    number = _number(protocol, port)
    host = re.sub(f"[{UNKNOWN}{WILD}]+", UNKNOWN, host)
    if number is None or UNKNOWN in host:
        return (f"{host}:{UNKNOWN if number is None else number}",)
    return spellings(NetworkConnect(host=host, port=number))


def _number(protocol: str, port: str) -> int | None:
    """The port of a number or service name. None: it is not known."""
    if re.fullmatch(r"[0-9]{1,9}", port):
        return int(port) % 65536  # as the system takes it
    try:
        return socket.getservbyname(port, protocol) if port.isascii() else None
    except OSError:
        return None
