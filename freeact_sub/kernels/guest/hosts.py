"""Remembers for which host an address was found, so that questions show names instead of numbers.

Runs in kernels: standard library only.
"""

import functools
import ipaddress
import socket
from collections import OrderedDict
from typing import Any

MAX_NAMES = 1000


class Names:
    """Hosts by address."""

    def __init__(self) -> None:
        self.found: OrderedDict[str, tuple[str, dict[int, Any]]] = OrderedDict()
        """For each address: the host, and for each port None or the reason of a denial."""
        find = socket.getaddrinfo

        @functools.wraps(find)
        def getaddrinfo(*args: Any, **kwargs: Any) -> Any:
            found = find(*args, **kwargs)
            self.remember(args[0] if args else kwargs.get("host"), found)
            return found

        socket.getaddrinfo = getaddrinfo

    def remember(self, host: Any, found: list[Any]) -> None:
        """Note the result of a lookup."""
        name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
        verdicts: dict[int, Any] = {}
        for *_, address in found:
            if name and name != address[0]:
                self.found[str(address[0])] = (name, verdicts)
                self.found.move_to_end(str(address[0]))
        while len(self.found) > MAX_NAMES:
            self.found.popitem(last=False)


def is_ip(host: str) -> bool:
    """Whether a host is an address, not a name."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
