"""An MCP server that wants a sign-in, and its authorization server, in one process, by hand. Prints its port.

`/authorize` agrees at once. `POST /set` changes how it behaves (`SETTINGS`), and `GET /seen` tells what it was asked.
"""

import base64
import hashlib
import itertools
import secrets
import socket
import sys
from urllib.parse import urlencode

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

SETTINGS: dict = {
    "seconds": 3600,
    "refresh": 200,
    "error": "",
    "state": "",
    "scope": "read",
    "needs": "",
    "authorization_endpoint": "",
    "token_endpoint": "",
    "padding": 0,
    "redirect": "",
}
"""`seconds`: how long tokens last. `refresh`: the status of a refresh. `error`: of an authorization. `state`: sent instead of the
right one. `needs`: a scope that a call of the tool needs. `padding`: bytes of the metadata. `redirect`: where the MCP server and its tokens have moved."""
seen: dict = {"register": [], "authorize": [], "token": [], "mcp": [], "keys": []}
codes: dict[str, dict] = {}
access: dict[str, str] = {}
refresh: dict[str, str] = {}
numbers = itertools.count(1)


def here(request: Request) -> str:
    return str(request.base_url).rstrip("/")


async def resource(request: Request) -> Response:
    return JSONResponse({"resource": f"{here(request)}/mcp", "authorization_servers": [here(request)]})


async def metadata(request: Request) -> Response:
    base = here(request)
    return JSONResponse(
        {
            "issuer": base,
            "authorization_endpoint": SETTINGS["authorization_endpoint"] or f"{base}/authorize",
            "token_endpoint": SETTINGS["token_endpoint"] or f"{base}/token",
            "registration_endpoint": f"{base}/register",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_post", "client_secret_basic"],
            "x": "x" * SETTINGS["padding"],
        }
    )


async def register(request: Request) -> Response:
    client = await request.json()
    seen["register"].append(client)
    return JSONResponse(client | {"client_id": f"client-{next(numbers)}", "token_endpoint_auth_method": "none"}, 201)


async def authorize(request: Request) -> Response:
    query = dict(request.query_params)
    seen["authorize"].append(query)
    state = SETTINGS["state"] or query["state"]
    if SETTINGS["error"]:
        return RedirectResponse(f"{query['redirect_uri']}?{urlencode({'error': SETTINGS['error'], 'state': state})}")
    codes[code := secrets.token_hex()] = query
    return RedirectResponse(f"{query['redirect_uri']}?{urlencode({'code': code, 'state': state})}")


async def token(request: Request) -> Response:
    form = dict(await request.form())
    seen["token"].append(form)
    if SETTINGS["redirect"]:
        return RedirectResponse(f"{SETTINGS['redirect']}/token")  # 307: with its method and body
    if form["grant_type"] == "refresh_token":
        if SETTINGS["refresh"] != 200:
            return JSONResponse({"error": "invalid_grant"}, SETTINGS["refresh"])
        if (scope := refresh.pop(form["refresh_token"], None)) is None:  # each can be used once
            return JSONResponse({"error": "invalid_grant"}, 400)
        return granted(scope)
    query = codes.pop(form["code"])
    digest = hashlib.sha256(form["code_verifier"].encode()).digest()
    assert query["code_challenge"] == base64.urlsafe_b64encode(digest).decode().rstrip("=")
    assert query["redirect_uri"] == form["redirect_uri"]
    return granted(query.get("scope", ""))


def granted(scope: str) -> Response:
    tokens = {"access_token": f"access-{secrets.token_hex()}", "refresh_token": f"refresh-{secrets.token_hex()}"}
    access[tokens["access_token"]] = refresh[tokens["refresh_token"]] = scope
    return JSONResponse(tokens | {"token_type": "Bearer", "expires_in": SETTINGS["seconds"], "scope": scope})


async def mcp(request: Request) -> Response:
    seen["keys"].append(request.headers.get("authorization", ""))
    if SETTINGS["redirect"]:
        return RedirectResponse(f"{SETTINGS['redirect']}/mcp")
    key = seen["keys"][-1].removeprefix("Bearer ")
    if key not in access:
        place = f"{here(request)}/.well-known/oauth-protected-resource/mcp"
        challenge = f'Bearer resource_metadata="{place}", scope="{SETTINGS["scope"]}"'
        return Response(status_code=401, headers={"www-authenticate": challenge})
    if request.method != "POST":
        return Response(status_code=405)
    message = await request.json()
    seen["mcp"].append(message["method"])
    if message["method"] == "tools/call" and SETTINGS["needs"] not in access[key]:
        challenge = f'Bearer error="insufficient_scope", scope="{SETTINGS["needs"]}"'
        return Response(status_code=403, headers={"www-authenticate": challenge})
    if "id" not in message:
        return Response(status_code=202)
    results = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "o", "version": "1"},
        },
        "tools/list": {"tools": [{"name": "who", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": access.get(key, "")}]},
    }
    if (result := results.get(message["method"])) is None:
        error = {"code": -32601, "message": "no such method"}
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "error": error}, 400)
    return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": result})


async def change(request: Request) -> Response:
    SETTINGS.update(new := await request.json())
    if new.get("forget"):
        access.clear()
    return Response()


async def tell(_: Request) -> Response:
    return JSONResponse(seen)


ROUTES = [
    Route("/.well-known/oauth-protected-resource/mcp", resource),
    Route("/.well-known/oauth-authorization-server", metadata),
    Route("/register", register, methods=["POST"]),
    Route("/authorize", authorize),
    Route("/token", token, methods=["POST"]),
    Route("/mcp", mcp, methods=["GET", "POST", "DELETE"]),
    Route("/set", change, methods=["POST"]),
    Route("/seen", tell),
]

if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listening:
        print(listening.getsockname()[1], flush=True)
        uvicorn.Server(uvicorn.Config(Starlette(routes=ROUTES), log_level="warning")).run([listening])
