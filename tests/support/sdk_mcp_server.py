"""A server made with the MCP SDK: on standard streams, or over HTTP on the port given as argument (0: any; it is printed)."""

import asyncio
import base64
import os
import socket
import sys

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resources import TextResource
from mcp_types import (
    BlobResourceContents,
    Completion,
    CompletionArgument,
    EmbeddedResource,
    ImageContent,
    PromptReference,
    ResourceLink,
    ResourceTemplateReference,
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
async def slow(name: str, endless: bool) -> str:
    running.add(name)
    try:
        if endless:
            await asyncio.Event().wait()
    finally:
        running.discard(name)
    return name


@server.tool(structured_output=False)
async def count(ctx: Context, to: int, seconds: float = 0) -> str:
    """Counts, to 0 without end, and tells how far it is."""
    done = 0
    while done < to or not to:
        done += 1
        await ctx.report_progress(done, to or None, f"number {done}")
        await asyncio.sleep(seconds)
    return f"counted to {done}"


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
async def grow(ctx: Context) -> str:
    """Adds a resource and a tool, and tells the client."""
    server.add_tool(lambda: "grown", name="grown_tool", description="Grown.")
    server.add_resource(TextResource(uri="demo://grown", name="grown", text="new"))
    await ctx.notify_tools_changed()  # to those who listen, in the newer protocol
    await ctx.session.send_tool_list_changed()  # in the older one
    return "grown"


@server.resource("demo://words", mime_type="text/plain", description="Some words")
def words() -> str:
    return "some words"


@server.resource("demo://pixel", mime_type="image/png")
def pixel() -> bytes:
    return PNG


@server.resource("demo://cities/{city}", description="A city")
async def city(city: str) -> str:
    if city == "far-away":
        await asyncio.Event().wait()
    return f"about {city}"


@server.prompt(description="Asks for a review")
def review(language: str, focus: str = "bugs", name: str = "") -> str:
    return f"Review this {language} code{name and f' of {name}'} for {focus}."


@server.completion()
async def proposals(
    ref: PromptReference | ResourceTemplateReference, argument: CompletionArgument, _context: object
) -> Completion:
    known = ["python", "pytorch", "rust"] if isinstance(ref, PromptReference) else ["Rome", "Riga"]
    return Completion(values=[each for each in known if each.startswith(argument.value)])


@server.tool()
def crash() -> str:
    print("about to crash", file=sys.stderr, flush=True)
    os._exit(3)


def serve_http(port: int) -> None:
    import uvicorn

    with socket.create_server(("127.0.0.1", port)) as listening:
        print(listening.getsockname()[1], flush=True)
        app = server.streamable_http_app()
        uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)).run([listening])


if __name__ == "__main__":
    server.run() if len(sys.argv) == 1 else serve_http(int(sys.argv[1]))
