"""A server as the MCP SDK makes it that asks the person behind its client, in each way that the SDK has.

It serves standard streams, or, with a port (0: any; it is printed), HTTP; with `stateless` or `json` behind it, without
sessions or without streams.
"""

import asyncio
import sys
from typing import Annotated, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Elicit, Resolve
from mcp.shared.exceptions import MCPError, UrlElicitationRequiredError
from mcp_types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    InputRequiredResult,
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


async def booking() -> Elicit[Booking]:
    return Elicit("When do you come?", Booking)


@server.tool(structured_output=False)
async def book_resolved(table: Annotated[Booking, Resolve(booking)]) -> str:
    """Book a table; in both protocols."""
    return f"accept {table.model_dump_json()}"


@server.tool(structured_output=False)
async def act(file: str, code: int) -> str:
    """Act, and then fail with an error of the protocol."""
    with open(file, "a") as acts:
        acts.write("act\n")
    raise MCPError(code, "the disk is full")


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


def serve_http(port: int, **how: bool) -> None:
    import socket

    import uvicorn

    with socket.create_server(("127.0.0.1", port)) as listening:
        print(listening.getsockname()[1], flush=True)
        uvicorn.Server(uvicorn.Config(server.streamable_http_app(**how), log_level="warning")).run([listening])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        serve_http(int(sys.argv[1]), stateless_http="stateless" in sys.argv, json_response="json" in sys.argv)
    else:
        server.run()
