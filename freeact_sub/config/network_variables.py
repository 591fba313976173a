"""Environment variables that every HTTP client obeys, checked before one is made: its own error would not name them."""

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from freeact_sub.errors import ConfigError

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
SCHEMES = ("http", "https", "socks5", "socks5h")


def check_network_variables(variables: Mapping[str, str] | None = None) -> None:
    """Checks where certificates are and which proxies are used.

    Args:
        variables: The environment variables. None: those of this process.

    Raises:
        ConfigError: One of them cannot be used.
    """
    variables = os.environ if variables is None else variables
    file, folders = variables.get("SSL_CERT_FILE"), variables.get("SSL_CERT_DIR")
    if file and not Path(file).is_file():
        raise ConfigError(
            f"the environment variable SSL_CERT_FILE names {file!r}, which is not a file: correct it, or unset it"
        )
    if folders and not any(Path(folder).is_dir() for folder in folders.split(os.pathsep)):
        raise ConfigError(
            f"the environment variable SSL_CERT_DIR names {folders!r}, which is not a folder: correct it, or unset it"
        )
    for name in (*PROXIES, *map(str.lower, PROXIES)):
        if variables.get(name) and not _is_proxy(variables[name]):
            raise ConfigError(
                f"the environment variable {name} is not a proxy address such as http://host:8080: correct it, or unset it"
            )


def _is_proxy(address: str) -> bool:
    """As HTTP clients read it: without a scheme it is one of HTTP."""
    try:
        url = urlsplit(address if "://" in address else f"http://{address}")
        return url.scheme in SCHEMES and bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        return False
