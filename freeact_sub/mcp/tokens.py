"""`TokenFile`: a kept sign-in to an HTTP server, in the user's own folder.

There is one file for each URL, with mode 0600. Walls hide the folder from kernels. The name of a server does not count: a
workspace whose `mcp.json` gives a known name to another URL gets no tokens of the first one.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import stat
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Self

from freeact_sub.config.schema import token_folder
from freeact_sub.errors import McpError
from freeact_sub.system.safe_files import put_file, read_file

LOCK_SECONDS: Final = 30.0
"""Seconds that one process may take to refresh tokens while others wait."""
LOOK_SECONDS: Final = 0.05
"""Seconds between two attempts to get the lock."""
EARLY_SECONDS: Final = 30.0
EARLY_SHARE: Final = 0.1
"""Longest time before their end at which tokens are refreshed, or this share of their life if that is shorter."""


@dataclass(frozen=True, kw_only=True)
class SignIn:
    """The kept facts of a sign-in. Its text never holds a token."""

    url: str
    tokens: dict[str, Any] = field(default_factory=dict, repr=False)
    """The response of the authorization server. Empty: signed out."""
    use_until: float | None = None
    """The time to refresh the access token, in seconds since 1970. None: when the server refuses it."""
    client: dict[str, Any] = field(default_factory=dict, repr=False)
    """The registration of this program at the authorization server."""
    authorization_server: dict[str, Any] = field(default_factory=dict)
    """The metadata of the authorization server."""
    resource: dict[str, Any] = field(default_factory=dict)
    """The metadata of the MCP server. Empty: it has none."""
    wanted_scope: str = ""
    """The scope that the server has asked for since."""

    @property
    def access_token(self) -> str:
        """The access token. Empty: there is none."""
        return str(self.tokens.get("access_token") or "")

    @property
    def can_refresh(self) -> bool:
        """Whether new tokens can be had without a person."""
        return bool(self.tokens.get("refresh_token") and self.client and self.authorization_server)

    @property
    def is_due(self) -> bool:
        """Whether the access token is due for a refresh."""
        return self.use_until is not None and time.time() >= self.use_until

    def with_tokens(self, tokens: dict[str, Any]) -> Self:
        """Return the sign-in with new tokens. Values that their response leaves out stay."""
        seconds = tokens.get("expires_in")
        until = None
        if isinstance(seconds, int | float):
            until = time.time() + seconds - min(EARLY_SECONDS, seconds * EARLY_SHARE)
        kept = {name: self.tokens[name] for name in ("refresh_token", "scope") if name in self.tokens}
        new = {name: value for name, value in tokens.items() if value is not None}
        return replace(self, tokens=kept | new, use_until=until)


class TokenFile:
    """The file of one URL."""

    def __init__(self, server: str, url: str) -> None:
        """Args: server: its name, for errors; url: as its settings have it."""
        self._server = server
        self._url = url
        self._file = token_folder() / f"{hashlib.sha256(url.encode()).hexdigest()[:32]}.json"

    def read(self) -> SignIn | None:
        """Return the kept sign-in, if there is one.

        Raises:
            McpError: The file cannot be read, or others may read it.
        """
        try:
            found = os.lstat(self._file)  # a link is not followed
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._error(f"cannot be read ({error.strerror})") from error
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid():
            raise self._error("is not a regular file of yours")
        if found.st_mode & 0o077:
            raise self._error("can be read by others (its mode is not 0600)")
        try:
            content = json.loads(read_file(self._file))
            known = {name: value for name, value in content.items() if name in SignIn.__dataclass_fields__}
            kept = SignIn(**known)
            is_right = kept.url == self._url and all(
                isinstance(value, dict) for value in (kept.tokens, kept.client, kept.authorization_server, kept.resource)
            )
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._error(f"cannot be read ({error.strerror})") from error
        except (ValueError, TypeError, AttributeError, RecursionError):
            is_right = False
        if not is_right:
            raise self._error("is damaged")
        return kept

    def write(self, kept: SignIn) -> None:
        """Replace the kept sign-in, at once.

        Raises:
            McpError: It cannot be written.
        """
        try:
            self._make_folder()
            put_file(self._file, json.dumps(asdict(kept)).encode(), mode=0o600)
        except OSError as error:
            raise self._error(f"cannot be written ({error.strerror})") from error

    def remove(self) -> bool:
        """Remove the kept sign-in; return whether there was one. Raises: McpError: It cannot be removed."""
        try:
            self._file.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._error(f"cannot be removed ({error.strerror})") from error
        return True

    @asynccontextmanager
    async def lock(self) -> AsyncIterator[None]:
        """Hold the file in one task of one process at a time.

        Raises:
            McpError: Another one has held it for too long.
        """
        with self._lock_file() as handle:
            loop = asyncio.get_running_loop()
            end = loop.time() + LOCK_SECONDS
            while not _locked(handle):
                if loop.time() > end:
                    raise self._error(f"has been locked by another process for {LOCK_SECONDS:g} s")
                await asyncio.sleep(LOOK_SECONDS)
            yield  # closing the file ends the lock

    @contextlib.contextmanager
    def _lock_file(self) -> Iterator[int]:
        try:
            self._make_folder()
            name = self._file.with_suffix(".lock")
            handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise self._error(f"cannot be locked ({error.strerror})") from error
        try:
            yield handle
        finally:
            os.close(handle)

    def _make_folder(self) -> None:
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file.parent.chmod(0o700)

    def _error(self, text: str) -> McpError:
        message = f"MCP server {self._server!r}: the file with your sign-in {text}: {self._file}"
        return McpError(message, server=self._server)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
