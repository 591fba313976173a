"""An MCP server of the older protocol over HTTP, by hand: it has sessions, forgets them, and asks for a key.

Prints its port. Every request needs the header `Authorization: Bearer right`.
"""

import itertools
import socket
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

sessions: set[str] = set()
numbers = itertools.count(1)


async def handle(request: Request) -> Response:
    session = request.headers.get("mcp-session-id")
    if request.headers.get("authorization") != "Bearer right":
        return Response(status_code=401)
    if request.method == "GET":
        return Response(status_code=405)
    if session is not None and session not in sessions:
        return Response(status_code=404)
    if request.method == "DELETE":
        sessions.discard(session)
        return Response()
    message = await request.json()
    return start_session(message) if session is None else reply(message, session)


def reply(message: dict, session: str) -> Response:
    if "id" not in message:
        return Response(status_code=202)
    if message["method"] == "tools/list":
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("session", "forget")]
        return answer(message, {"tools": tools})
    if message["params"]["name"] == "forget":
        sessions.clear()
    return answer(message, {"content": [{"type": "text", "text": session}]})


def start_session(message: dict) -> Response:
    if message["method"] != "initialize":
        return Response(status_code=400)
    session = f"session-{next(numbers)}"
    sessions.add(session)
    version = message["params"]["protocolVersion"]
    info = {"name": "sessions", "version": "1"}
    result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    return answer(message, result, headers={"mcp-session-id": session})


def answer(message: dict, result: dict, **options: object) -> Response:
    return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": result}, **options)


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listening:
        print(listening.getsockname()[1], flush=True)
        app = Starlette(routes=[Route("/mcp", handle, methods=["GET", "POST", "DELETE"])])
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run([listening])
