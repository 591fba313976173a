"""An MCP server of the older protocol over HTTP, by hand: it has sessions, forgets them, and asks for a key.

Prints its port. Every request needs the header `Authorization: Bearer right`. An argument behind the port is the status with
which it answers in a session that it has forgotten. Its tool `refuse` answers with the status, body and headers of its
arguments, `fail` with an error of the protocol.
"""

import itertools
import json
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
        return forgotten(await request.body())
    if request.method == "DELETE":
        sessions.discard(session)
        return Response()
    message = await request.json()
    return start_session(message) if session is None else reply(message, session)


def reply(message: dict, session: str) -> Response:
    if "id" not in message:
        return Response(status_code=202)
    if message["method"] == "tools/list":
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("session", "forget", "refuse", "fail")]
        return answer(message, {"tools": tools})
    if message["method"] != "tools/call":
        error = {"code": -32601, "message": "no such method"}
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "error": error})
    given = message["params"]["arguments"]
    match message["params"]["name"]:
        case "forget":
            sessions.clear()
        case "refuse":
            return Response(given["body"], status_code=given["status"], headers=given.get("headers"))
        case "fail":
            body = {"jsonrpc": "2.0", "id": message["id"], "error": given["error"]}
            return JSONResponse(body, status_code=given.get("status", 200), headers=given.get("headers"))
    return answer(message, {"content": [{"type": "text", "text": session}]})


def forgotten(sent: bytes) -> Response:
    status = int(sys.argv[2]) if len(sys.argv) > 2 else 404
    if status == 200:  # the protocol knows no such error
        error = {"code": -32000, "message": "Session not found"}
        return JSONResponse({"jsonrpc": "2.0", "id": json.loads(sent or b"{}").get("id"), "error": error})
    return Response("No valid session ID provided", status_code=status)


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
