"""Checks of the environment variables that every HTTP client obeys: the client's own error would not name them."""

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from freeact_sub.errors import ConfigError

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
SOCKS = ("socks5", "socks5h")
SCHEMES = ("http", "https", *SOCKS)


def check_network_variables(variables: Mapping[str, str] | None = None) -> None:
    """Check the variables for certificates, proxies and the log of keys.

    Args:
        variables: The environment variables. None: this process's.

    Raises:
        ConfigError: A variable is invalid.
    """
    variables = os.environ if variables is None else variables
    file, folders = variables.get("SSL_CERT_FILE"), variables.get("SSL_CERT_DIR")
    if file and not Path(file).is_file():
        raise ConfigError(
            f"the environment variable SSL_CERT_FILE names {file!r}, which is not a file: correct it, or unset it"
        )
    if file and b"-----BEGIN " not in _content(file):
        raise ConfigError(
            f"the environment variable SSL_CERT_FILE names {file!r}, which has no certificates that can be read: "
            "correct it, or unset it"
        )
    if log := variables.get("SSLKEYLOGFILE"):
        try:
            Path(log).open("ab").close()
        except OSError as error:
            raise ConfigError(
                f"the environment variable SSLKEYLOGFILE names {log!r}, which cannot be written ({error.strerror}): "
                "correct it, or unset it"
            ) from error
    if folders and not any(Path(folder).is_dir() for folder in folders.split(os.pathsep)):
        raise ConfigError(
            f"the environment variable SSL_CERT_DIR names {folders!r}, which is not a folder: correct it, or unset it"
        )
    for name in (*PROXIES, *map(str.lower, PROXIES)):
        if variables.get(name) and not _is_proxy(variables[name]):
            raise ConfigError(
                f"the environment variable {name} is not a proxy address such as http://host:8080: correct it, or unset it"
            )
        if variables.get(name, "").startswith(SOCKS) and importlib.util.find_spec("socksio") is None:
            raise ConfigError(
                f"the environment variable {name} names a SOCKS proxy, which needs a package: run `pip install socksio`, "
                "or unset it"
            )


def proxy_for(address: str) -> str:
    """Return the proxy that the environment names for an address, without a password. Empty: none."""
    parts, proxies = urlsplit(address), getproxies_environment()
    proxy = proxies.get(parts.scheme) or proxies.get("all") or ""
    if not proxy or proxy_bypass(parts.hostname or ""):
        return ""
    return urlsplit(proxy if "://" in proxy else f"//{proxy}").netloc.rpartition("@")[2]


def _content(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError:
        return b""


def _is_proxy(address: str) -> bool:
    """Return whether HTTP clients accept an address: without a scheme it means http."""
    try:
        url = urlsplit(address if "://" in address else f"http://{address}")
        return url.scheme in SCHEMES and bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        return False
