"""What a server tells of its list of tools: that it has changed.

In the older protocol it says so unasked. In the newer one it does if it is listened to, by a request that stays open. Lists
of resources and prompts are read when somebody wants them, so no change of them can be missed.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import mcp

logger = logging.getLogger(__name__)

FIRST_PAUSE: Final = 1.0
LAST_PAUSE: Final = 60.0
"""Seconds before a server that stopped to tell is listened to again: twice as long each time."""


async def hear_changes(message: Any, on_change: Callable[[], None]) -> None:
    """Take a message of the server; the handler of the MCP SDK."""
    from mcp_types import ToolListChangedNotification  # noqa: PLC0415  # slow to import, see `transports.py`

    if isinstance(message, ToolListChangedNotification):
        on_change()


async def listen(client: "mcp.Client", on_change: Callable[[], None]) -> None:
    """Listen to a server of the newer protocol until cancelled; `hear_changes` gets what it tells."""
    from mcp.client.subscriptions import ListenNotSupportedError  # noqa: PLC0415  # as above

    tools = client.server_capabilities.tools
    if tools is None or not tools.list_changed:
        return
    pause, again = FIRST_PAUSE, False
    while True:
        try:
            async with client.listen(tools_list_changed=True) as told:
                if again:  # what was told meanwhile is lost
                    on_change()
                async for _ in told:
                    pause = FIRST_PAUSE
        except ListenNotSupportedError:
            return
        except Exception as error:  # noqa: BLE001  # the border to the SDK: nothing but changes is missed
            logger.debug("a server does not tell of changes: %r", error)
        again = True
        await asyncio.sleep(pause)
        pause = min(2 * pause, LAST_PAUSE)
