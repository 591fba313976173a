"""A server made with the MCP SDK that asks the person behind its client: on standard streams, or over HTTP on a port.

Arguments: `old` speaks the older protocol only, in which a server sends its question while a call is open; otherwise a call
returns the question, and is made again with the answer. A port (0: any; it is printed) serves HTTP.
"""

import asyncio
import sys
from typing import Literal

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import UrlElicitationRequiredError
from mcp_types import (
    CallToolResult,
    DiscoverResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    InputRequiredResult,
    RequestParams,
    TextContent,
)
from pydantic import BaseModel, Field

server = MCPServer("asking")
opened: set[str] = set()


class Booking(BaseModel):
    people: int = Field(ge=1, le=20, description="For how many")
    day: Literal["Saturday", "Sunday"]
    smoking: bool = False
    note: str | None = None


FORM = {
    "type": "object",
    "properties": {
        "people": {"type": "integer", "minimum": 1, "maximum": 20, "description": "For how many"},
        "day": {"type": "string", "enum": ["Saturday", "Sunday"]},
        "smoking": {"type": "boolean", "default": False},
    },
    "required": ["people", "day"],
}
URL = "https://pay.example.org/checkout?order=42&token=abc"


def said(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)])


@server.tool(structured_output=False)
async def book(ctx: Context, seconds: float = 0) -> str:
    """Book a table; in the older protocol."""
    result = await ctx.elicit("When do you come?", Booking)
    await asyncio.sleep(seconds)
    return f"{result.action} {result.data.model_dump_json() if result.action == 'accept' else ''}".strip()


@server.tool(structured_output=False)
async def pay(ctx: Context) -> str:
    """Pay on a page; in the older protocol."""
    return (await ctx.elicit_url("Pay for order 42", URL, "order-42")).action


@server.tool(structured_output=False)
async def bad_page(ctx: Context, url: str) -> str:
    return (await ctx.elicit_url("Look", url, "bad")).action


@server.tool(structured_output=False)
async def confirm(ctx: Context) -> str:
    result = await ctx.session.elicit_form("Delete all?", {"type": "object", "properties": {}})
    return f"{result.action} {result.content}"


@server.tool(structured_output=False)
async def log_in() -> str:
    """Refused until a page was opened; in the older protocol."""
    if "login" not in opened:
        opened.add("login")
        page = ElicitRequestURLParams(message="Log in", url="https://login.example.org/", elicitation_id="login")
        raise UrlElicitationRequiredError([page])
    return "logged in"


@server.tool(structured_output=False)
async def book_anew(ctx: Context) -> InputRequiredResult | CallToolResult:
    """Book a table; in the newer protocol."""
    given = (ctx.input_responses or {}).get("table")
    if given is None:
        asked = ElicitRequest(params=ElicitRequestFormParams(message="When do you come?", requested_schema=FORM))
        return InputRequiredResult(input_requests={"table": asked}, request_state="state")
    return said(f"{given.action} {given.content}")


@server.tool(structured_output=False)
async def pay_anew(ctx: Context) -> InputRequiredResult | CallToolResult:
    given = (ctx.input_responses or {}).get("page")
    if given is None:
        asked = ElicitRequest(params=ElicitRequestURLParams(message="Pay for order 42", url=URL))
        return InputRequiredResult(input_requests={"page": asked}, request_state="state")
    return said(given.action)


def speak_the_older_protocol() -> None:
    """Over HTTP, of which the newer protocol is a matter of each request."""

    async def discover(_: object, __: object) -> DiscoverResult:
        lowlevel = server._lowlevel_server  # noqa: SLF001
        return DiscoverResult(supported_versions=["2025-11-25"], capabilities=lowlevel.get_capabilities())

    server._lowlevel_server.add_request_handler("server/discover", RequestParams, discover)  # noqa: SLF001


async def serve_stdio_in_the_older_protocol() -> None:
    lowlevel = server._lowlevel_server  # noqa: SLF001
    async with stdio_server() as (incoming, outgoing), lowlevel.lifespan(lowlevel) as state:
        options = lowlevel.create_initialization_options()
        await serve_loop(lowlevel, incoming, outgoing, lifespan_state=state, init_options=options)


def serve_http(port: int) -> None:
    import socket

    import uvicorn

    with socket.create_server(("127.0.0.1", port)) as listening:
        print(listening.getsockname()[1], flush=True)
        uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="warning")).run([listening])


if __name__ == "__main__":
    is_old = "old" in sys.argv
    ports = [int(argument) for argument in sys.argv[1:] if argument.isdecimal()]
    if is_old and ports:
        speak_the_older_protocol()
    if ports:
        serve_http(ports[0])
    elif is_old:
        anyio.run(serve_stdio_in_the_older_protocol)
    else:
        server.run()
