"""A server made with the MCP SDK: on standard streams, or over HTTP on the port given as argument (0: any; it is printed)."""

import asyncio
import base64
import os
import socket
import sys

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import (
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from pydantic import BaseModel

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")

server = MCPServer("demo")
running: set[str] = set()


class Weather(BaseModel):
    city: str
    degrees: float


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def weather(city: str) -> Weather:
    return Weather(city=city, degrees=21.5)


@server.tool(structured_output=False)
def greet(name: str) -> str:
    return f"hello {name}"


@server.tool(structured_output=False)
def picture() -> list[TextContent | ImageContent]:
    image = ImageContent(data=base64.b64encode(PNG).decode(), mime_type="image/png")
    return [TextContent(text="one pixel"), image]


@server.tool(structured_output=False)
def attachments() -> list[EmbeddedResource | ResourceLink]:
    blob = BlobResourceContents(uri="file:///data.bin", mime_type="application/x-data", blob="AAEC")
    return [
        EmbeddedResource(resource=blob),
        ResourceLink(uri="file:///more.txt", name="more", description="more of it"),
    ]


@server.tool(structured_output=False)
def flood(kind: str) -> list[TextContent | ImageContent | EmbeddedResource]:
    match kind:
        case "text":
            return [TextContent(text=f"begin {'x' * 6_000_000} end")]
        case "parts":
            return [TextContent(text=f"begin {number} {'x' * 5_000} end {number}") for number in range(4)]
        case "resource":
            text = TextResourceContents(uri="file:///a.txt", mime_type="text/plain", text="begin" + "x" * 1_000_000)
            return [EmbeddedResource(resource=text)]
        case "error":
            raise ToolError("begin" + "x" * 1_000_000)
        case _:
            pictures = [(PNG, "image/png")] * 7
            pictures += [(b"<svg/>", "image/svg+xml"), (PNG + bytes(6_000_000), "image/png"), (b"no", "image/png")]
            return [ImageContent(data=base64.b64encode(data).decode(), mime_type=kind) for data, kind in pictures]


@server.tool()
def records(count: int) -> list[dict[str, int]]:
    return [{"number": number} for number in range(count)]


@server.tool()
def fail(why: str) -> str:
    raise ToolError(why)


@server.tool()
async def slow(name: str, seconds: float) -> str:
    running.add(name)
    try:
        await asyncio.sleep(seconds)
    finally:
        running.discard(name)
    return name


@server.tool()
def still_running() -> list[str]:
    return sorted(running)


@server.tool()
def pid() -> int:
    return os.getpid()


@server.tool()
def environment() -> dict[str, str]:
    return dict(os.environ)


@server.tool()
def add_tool() -> str:
    server.add_tool(lambda: "late", name="late_tool")
    return "added"


@server.tool()
def crash() -> str:
    print("about to crash", file=sys.stderr, flush=True)
    os._exit(3)


def serve_http(port: int) -> None:
    import uvicorn

    with socket.create_server(("127.0.0.1", port)) as listening:
        print(listening.getsockname()[1], flush=True)
        app = server.streamable_http_app()
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run([listening])


if __name__ == "__main__":
    server.run() if len(sys.argv) == 1 else serve_http(int(sys.argv[1]))
