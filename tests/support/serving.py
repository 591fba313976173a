"""A server on a free port of loopback that leaves no connection behind, not even one that comes at the last moment."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from support.waiting import turns

STEPS = 3
"""So many steps of the event loop after it was taken, a connection has been handed over."""


@asynccontextmanager
async def serving(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[asyncio.Server]:
    """Serve connections while the block runs. Leaving it breaks off what still runs.

    Args:
        serve: Is awaited for each connection, which is closed when it ends.
    """
    running: dict[asyncio.Future[None], asyncio.StreamWriter] = {}

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # asyncio would make the task, but one that is cancelled before it begins closes nothing
        task = asyncio.ensure_future(serve(reader, writer))
        running[task] = writer
        task.add_done_callback(ended)

    def ended(task: asyncio.Future[None]) -> None:
        running.pop(task).transport.abort()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield server
    finally:
        for listening in server.sockets:  # what it has taken and not handed over when it is closed, asyncio loses
            asyncio.get_running_loop().remove_reader(listening.fileno())
        await turns(STEPS)
        server.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await server.wait_closed()
