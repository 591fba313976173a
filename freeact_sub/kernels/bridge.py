"""`Bridge`: replies to the requests of code in a kernel, such as MCP calls, children and approvals.

Each request has its own task, so that ten calls of `asyncio.gather` in a cell run side by side. A request
carries data only; the host's handler decides what it may do and trusts nothing from the kernel.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from freeact_sub.errors import ApprovalDeniedError, FreeactError, InvalidRequestError, SpawnForbiddenError
from freeact_sub.kernels.kernel import HostRequestHandler
from freeact_sub.kernels.wire.output import CellClock

logger = logging.getLogger(__name__)

GIVE_UP = "give_up"
"""The request that ends another one; it gets no reply."""
MAX_OPEN_REQUESTS = 1000
"""The bound on open requests of a kernel."""


CANCEL_SECONDS = 0.2
"""Seconds to wait for cancelled requests; after that their cell is interrupted."""


class Bridge:
    """The host's end of one kernel's requests."""

    def __init__(self, handler: HostRequestHandler, reply: Callable[[dict[str, Any]], None]) -> None:
        """Args: handler: gives the replies. reply: sends one to the kernel."""
        self.handler = handler
        self._reply = reply
        self._open: dict[asyncio.Task[None], Any] = {}
        """The open requests and their ids."""
        self._closed = False

    def receive(self, content: dict[str, Any], clock: CellClock | None) -> None:
        """Starts to handle a request."""
        if self._closed:
            return
        if "refused" in content:
            self._reply(_failure(content.get("id"), "ValueError", str(content["refused"])))
            return
        if content.get("method") == GIVE_UP:
            params = content.get("params")
            self._give_up(params.get("request") if isinstance(params, dict) else None)
            return
        if len(self._open) >= MAX_OPEN_REQUESTS:
            self._reply(_failure(content.get("id"), "RuntimeError", f"more than {MAX_OPEN_REQUESTS} open requests"))
            return
        # the context here is that in which the kernel was opened; the request belongs to the cell, whose run may be another
        context = clock.context.copy() if clock is not None else None
        name = f"host request {content.get('method')}"
        task = asyncio.create_task(self._handle_request(content, clock), name=name, context=context)
        self._open[task] = content.get("id")
        task.add_done_callback(self._open.pop)

    async def cancel(self) -> None:
        """Cancels all open requests; the code that waits for them gets an error."""
        tasks = tuple(self._open)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_SECONDS)

    def _give_up(self, request_id: Any) -> None:
        """Ends a request whose code no longer waits for the reply."""
        for task, open_id in tuple(self._open.items()):
            if open_id == request_id:
                task.cancel()

    async def aclose(self) -> None:
        """Cancels all open requests and refuses new ones."""
        self._closed = True
        await self.cancel()

    async def _handle_request(self, content: dict[str, Any], clock: CellClock | None) -> None:
        request_id = content.get("id")
        try:
            value = await self.handler(str(content.get("method")), dict(content.get("params") or {}), clock)
            if isinstance(value, AsyncGenerator):
                value = await self._show(request_id, value)
            json.dumps(value)  # the reply must survive the wire
            reply = {"id": request_id, "ok": True, "value": value}
        except (ApprovalDeniedError, SpawnForbiddenError) as error:
            reply = _failure(request_id, "PermissionError", str(error))
        except InvalidRequestError as error:
            reply = _failure(request_id, "ValueError", str(error))
        except FreeactError as error:
            reply = _failure(request_id, "RuntimeError", str(error))
        except Exception as error:  # border: whatever fails here must reach the code that waits for it
            logger.warning("host request %s failed", content.get("method"), exc_info=True)
            reply = _failure(request_id, "RuntimeError", f"{type(error).__name__}: {error}")
        except asyncio.CancelledError:
            self._reply(_failure(request_id, "CancelledError", "the request was cancelled"))
            raise
        except BaseException as error:  # it ends more than this request, but the code must not wait for ever
            self._reply(_failure(request_id, "RuntimeError", f"{type(error).__name__}: {error}"))
            raise
        self._reply(reply)

    async def _show(self, request_id: Any, items: AsyncGenerator[Any, None]) -> Any:
        """Pass on the texts that come before the value."""
        value = None
        async with aclosing(items):
            async for item in items:
                if isinstance(item, str):
                    self._reply({"id": request_id, "output": item})
                else:
                    value = item
        return value


def _failure(request_id: Any, kind: str, message: str) -> dict[str, Any]:
    return {"id": request_id, "ok": False, "error": kind, "message": message}
