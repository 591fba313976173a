"""Notes that the client of a call over HTTP is gone: the connection on which the answer would go is closed."""

import asyncio
from typing import Any, Final

from mcp.server.mcpserver import Context

KEY: Final = "freeact_sub.gone"


class WithLeaving:
    """An ASGI app around another one: a request that loses its connection says so (`gone_of`)."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """See ASGI."""
        gone = asyncio.Event()

        async def hear() -> Any:
            message = await receive()
            if message["type"] == "http.disconnect":
                gone.set()
            return message

        await self._app({**scope, KEY: gone}, hear, send)


def gone_of(ctx: Context[Any, Any]) -> asyncio.Event:
    """Return what is set when the client of a call is gone; on standard streams never, for the process ends with it."""
    scope = getattr(ctx.request_context.request, "scope", {})
    gone = scope.get(KEY)
    return gone if isinstance(gone, asyncio.Event) else asyncio.Event()
