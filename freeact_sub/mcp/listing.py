"""`list_tools`: a server's list of tools, with a note on each thing that is left out; what it tells of changes.

In the older protocol a server says unasked that its list has changed. In the newer one it does if it is listened to, by a
request that stays open. Lists of resources and prompts are read when somebody wants them, so no change can be missed.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from freeact_sub.mcp.odd_responses import NOTES
from freeact_sub.mcp.results import McpTool, needs_task, read_tool
from freeact_sub.mcp.transports import reason_of

if TYPE_CHECKING:
    import mcp


MAX_TOOLS: Final = 10_000

logger = logging.getLogger(__name__)
FIRST_PAUSE: Final = 1.0
LAST_PAUSE: Final = 60.0
"""Seconds before a server that stopped to tell is listened to again: twice as long each time."""
"""Tools of one server that are read."""
MAX_PAGES: Final = 1_000
"""Of a list of tools."""
MAX_NOTES: Final = 20
"""On one list of tools."""


async def list_tools(client: "mcp.Client") -> tuple[tuple[McpTool, ...], tuple[str, ...]]:
    """Reads all pages. Returns the tools, and a note on each thing that is left out."""
    if client.server_capabilities.tools is None:
        return (), ("it offers no tools",)
    tools: dict[str, McpTool] = {}
    notes: dict[str, None] = {}
    cursor: str | None = None
    seen: set[str | None] = set()
    while cursor not in seen and len(seen) < MAX_PAGES:
        seen.add(cursor)
        try:
            page = await client.list_tools(cursor=cursor, cache_mode="refresh")
        except Exception as error:  # the border to the SDK, whose errors for what it cannot read are of many types
            if not tools:
                raise
            notes[f"its list of tools breaks off after {len(tools):,} of them: {reason_of(error)}"] = None
            break
        notes |= dict.fromkeys((page.meta or {}).get(NOTES, ()))
        for listed in page.tools:
            tool = read_tool(listed)
            if needs_task(listed):
                notes[f"the tool {tool.name!r} can only be called as a task, which is not possible here"] = None
            elif tools.setdefault(tool.name, tool) != tool:
                notes[f"it lists the tool {tool.name!r} twice: the first one counts"] = None
        if len(tools) > MAX_TOOLS:
            notes[f"it has more than {MAX_TOOLS:,} tools: the others are left out"] = None
            break
        cursor = page.next_cursor
        if cursor is None:
            break
    else:
        notes[f"its list of tools has no end: what {len(seen):,} pages have is used"] = None
    return tuple(tools.values())[:MAX_TOOLS], tuple(notes)[:MAX_NOTES]


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
