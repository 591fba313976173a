"""An agent on a web page: prompts and answers by POST, events by SSE. `web.py anthropic:NAME` asks a real model.

Whoever knows the address, which holds a token, is the user, and answers for all that the agent asks.
"""

import asyncio
import secrets
import signal
import socket
import sys
from pathlib import Path

from script import script

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import FileResponse, Response, StreamingResponse
    from starlette.routing import Route
except ModuleNotFoundError as error:
    sys.exit(f'web: {error.name} is missing: in the project\'s folder, python -m pip install ".[web]"')

from freeact_sub import Agent, Answer, Decision, Run, load_config
from freeact_sub.show.feed import Feed
from freeact_sub.testing import ScriptedModel


def routes(agent: Agent, root: str, feed: Feed) -> list[Route]:
    """One conversation, for all browsers that look at it."""
    runs = list[tuple[Run, asyncio.Task[None]]]()

    async def prompt(request: Request) -> Response:
        text = (await request.body()).decode()
        if not runs or not runs[-1][0].send(text):  # else it steers the run that is at work
            run = agent.run(text)
            runs.append((run, asyncio.create_task(feed.read(run))))
        return Response(status_code=204)

    async def answer(request: Request) -> Response:
        given, request_id = await request.json(), request.path_params["request_id"]
        answer = Decision(**given) if "allowed" in given else Answer(**given)
        try:  # 409: nobody waits for it any more; 422: it is no answer, and the question stays open
            return Response(status_code=204 if runs and runs[-1][0].answer(request_id, answer) else 409)
        except ValueError as error:
            return Response(str(error), status_code=422)

    async def stop(_: Request) -> Response:
        return Response(status_code=204 if runs and runs[-1][0].cancel() else 409)  # the agent and all its children

    async def events(request: Request) -> Response:
        seen = int(request.headers.get("last-event-id", -1))
        lines = (f"id: {number}\ndata: {message}\n\n" async for number, message in feed.after(seen))
        return StreamingResponse(lines, media_type="text/event-stream")

    page = Route(f"{root}/", lambda _: FileResponse(Path(__file__).with_suffix(".html")))
    posts = [("/prompt", prompt), ("/answer/{request_id}", answer), ("/stop", stop)]
    return [page, Route(f"{root}/events", events), *(Route(root + path, post, methods=["POST"]) for path, post in posts)]


class Server(uvicorn.Server):
    """Serves pages until Ctrl-C or SIGTERM. Agents that are closed afterwards leave nothing."""

    def __init__(self, pages: list[Route], feeds: list[Feed]) -> None:
        super().__init__(uvicorn.Config(Starlette(routes=pages), log_level="warning", timeout_graceful_shutdown=1))
        self.feeds = feeds
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: None)  # uvicorn ends and raises it once more

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn; streams of events would go on for ever."""
        for feed in self.feeds:
            await feed.aclose()
        await super().shutdown(sockets)


async def main(model: str | None = None) -> None:
    """Serve one page."""
    root, listener, feed = f"/{secrets.token_urlsafe()}", socket.create_server(("127.0.0.1", 0)), Feed()
    async with Agent(load_config(), model=model or ScriptedModel(script)) as agent:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}{root}/", flush=True)
        await Server(routes(agent, root, feed), [feed]).serve([listener])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
