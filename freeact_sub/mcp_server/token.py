"""Who may use the server over HTTP: whoever has the token, which is kept in the user's own folder, out of kernels' sight."""

import hmac
import secrets
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.responses import Response

from freeact_sub.config.own_folders import token_folder
from freeact_sub.errors import ConfigError
from freeact_sub.system.safe_files import put_file, read_file

NAME: Final = "of-mcp-server"


def own_token() -> str:
    """Return the user's token; the first call makes it, so that clients keep their settings over restarts.

    Raises:
        ConfigError: It cannot be kept.
    """
    file = token_folder() / NAME
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not file.exists():
            put_file(file, secrets.token_urlsafe().encode(), mode=0o600)
        return read_file(file).decode()
    except (OSError, ValueError) as error:
        raise ConfigError(f"the token of the server cannot be kept in {file}: {error}") from error


class WithToken:
    """An ASGI app that answers only requests with the token."""

    def __init__(self, app: Any, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """See ASGI."""
        if scope["type"] != "lifespan":
            given = Headers(scope=scope).get("authorization", "").encode("utf-8", errors="replace")
            if scope["type"] != "http" or not hmac.compare_digest(given, self._expected):
                refused = Response("the server's token is missing", 401, headers={"WWW-Authenticate": "Bearer"})
                await refused(scope, receive, send)
                return
        await self._app(scope, receive, send)
