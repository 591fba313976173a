"""The spellings of a network address that rules may name it by."""

import ipaddress
import socket
from contextlib import suppress
from dataclasses import replace

from freeact_sub.calls import NetworkConnect


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
