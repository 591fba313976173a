"""Offers and results of a server: tools, resources, templates of their addresses, prompts.

All of it is free of the MCP library's types.

A result has two readers. Code gets `value`, plain JSON data: the structured content where the server sends any, else the
text, else, where pictures or other binary data came, the content blocks as the protocol writes them (`has_blocks`), of which
the kernel makes objects (`kernels/guest/mcp.py`). A model gets `text` and `images`.

`list_tools` reads a server's list of tools, with a note on each entry left out. In the older protocol a server says unasked
that its list has changed. In the newer one it tells a listener, by a request that stays open. Lists of resources and prompts
are read at each use, so no change can be missed.
"""

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from freeact_sub.mcp.envelopes import opened
from freeact_sub.mcp.transports import reason_of

if TYPE_CHECKING:
    import mcp
    from mcp_types import CallToolResult
    from pydantic_ai import BinaryContent

FIELDS: Final = ("content", "structuredContent", "isError", "resultType", "_meta")
"""Fields of a response."""
MAX_TOOLS: Final = 10_000
"""Maximum tools of one server that are read."""
FIRST_PAUSE: Final = 1.0
LAST_PAUSE: Final = 60.0
"""Longest pause before a silent server is listened to again; each pause is twice the last."""
MAX_NOTES: Final = 20
"""Maximum notes on one list of tools."""
MAX_PAGES: Final = 1_000
MAX_ENTRIES: Final = 10_000
"""Maximum entries of a list of resources or prompts."""
MAX_COMPLETIONS: Final = 100

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class McpTool:
    """A tool of a server."""

    name: str
    description: str
    parameters_json_schema: dict[str, Any]
    read_only: bool = False
    """Whether the tool changes nothing, by the server's word, which is no guarantee."""
    output_json_schema: dict[str, Any] | None = None
    """Schema of the result, by the server's word; results are not held against it. None: unknown."""


@dataclass(frozen=True, kw_only=True)
class McpResult:
    """A tool's response."""

    value: Any
    """The result for code, as plain JSON data."""
    has_blocks: bool = False
    """Whether the value is a list of the protocol's content blocks."""
    text: str
    """The result for the model."""
    images: "tuple[BinaryContent, ...]" = ()
    """Pictures for the model."""
    sections: tuple[str, ...] = ()
    """Texts of the response, if there are several."""
    is_error: bool = False
    """Whether the tool has failed; the message says why."""


def read_result(result: "CallToolResult") -> McpResult:
    """Read a server's response. It may break the protocol; parts left out are named."""
    response = opened(result)
    content, structured = response.get("content"), response.get("structuredContent")
    if content is None and structured is None:  # as in older versions of the protocol
        structured = {name: value for name, value in response.items() if name not in FIELDS} or None
    blocks = content if isinstance(content, list) else [] if content is None else [content]
    texts, images = read_blocks(blocks)
    text = "\n".join(texts)
    is_error = response.get("isError") in (True, "true")
    has_blocks = False
    if structured is not None:
        value = _unwrapped(structured)
        text = text or json.dumps(value, ensure_ascii=False)
    elif all(isinstance(block, str) or (isinstance(block, dict) and block.get("type") == "text") for block in blocks):
        value = text
    else:
        value, has_blocks = blocks, True
    if is_error and not text:
        text = "the tool failed and did not say why"
    sections = tuple(texts) if len(texts) > 1 else ()
    return McpResult(value=value, has_blocks=has_blocks, text=text, images=images, sections=sections, is_error=is_error)


def failure(text: str) -> McpResult:
    """Return the result of a tool that failed with this text."""
    return McpResult(value=text, text=text, is_error=True)


def _unwrapped(structured: Any) -> Any:
    """Unwrap a value that is no object: servers send it in an object with the one key `result`."""
    if isinstance(structured, dict) and structured.keys() == {"result"}:
        return structured["result"]
    return structured


def read_blocks(blocks: list[Any]) -> "tuple[list[str], tuple[BinaryContent, ...]]":
    """Return the texts of content blocks, and their pictures."""
    texts: list[str] = []
    images: list[BinaryContent] = []
    for block in blocks:
        match block:
            case str():
                texts.append(block)
            case {"type": "text", "text": text}:
                texts.append(text if isinstance(text, str) else json.dumps(text, ensure_ascii=False))
            case {"type": "text"}:
                texts.append("")
            case {"type": "resource_link", "uri": uri}:
                about = block.get("description") or block.get("title") or block.get("name")
                texts.append(f"[resource {uri}{f': {about}' if about else ''}]")
            case {"type": "resource", "resource": {"text": str(text)}}:
                texts.append(text)
            case {"type": "resource", "resource": {"blob": str(encoded), **resource}}:
                _read_binary(f"resource {resource.get('uri')}", encoded, resource.get("mimeType"), texts, images)
            case {"type": "image" | "audio" as kind, "data": str(encoded)}:
                _read_binary(kind, encoded, block.get("mimeType"), texts, images)
            case _:
                texts.append(f"[a block of a kind that is not known: {json.dumps(block, ensure_ascii=False)}]")
    return texts, tuple(images)


def _read_binary(name: str, encoded: str, mime_type: Any, texts: list[str], images: "list[BinaryContent]") -> None:
    from pydantic_ai import BinaryContent  # noqa: PLC0415  # costs 0.6 s, and pictures are rare

    try:
        data = base64.b64decode(encoded, validate=True)
    except ValueError:  # or characters that are not ASCII
        texts.append(f"[{name}: data that is not base64]")
        return
    if isinstance(mime_type, str) and mime_type.startswith("image/"):
        images.append(BinaryContent(data, media_type=mime_type))
    else:
        texts.append(f"[{name}: {len(data)} bytes of {mime_type or 'unknown type'}]")


async def list_tools(client: "mcp.Client") -> tuple[tuple[McpTool, ...], tuple[str, ...]]:
    """Read all pages. Return the tools, and a note on each entry left out."""
    if client.server_capabilities.tools is None:
        return (), ("it offers no tools",)
    tools: dict[str, McpTool] = {}
    notes: dict[str, None] = {}
    pages, cursor = 0, None
    try:
        async for page in read_pages(lambda cursor: client.list_tools(cursor=cursor, cache_mode="refresh")):
            pages, cursor = pages + 1, page.next_cursor
            told, taken = opened(page), {tool.name for tool in page.tools}
            notes |= dict.fromkeys(told["notes"])
            for tool in (McpTool(**entry) for entry in told["tools"] if entry["name"] in taken):
                if tools.setdefault(tool.name, tool) != tool:
                    notes[f"it lists the tool {tool.name!r} twice: the first one counts"] = None
            if len(tools) > MAX_TOOLS:
                notes[f"it has more than {MAX_TOOLS:,} tools: the others are left out"] = cursor = None
                break
    except Exception as error:  # the border to the SDK, whose errors for what it cannot read are of many types
        if not tools:
            raise
        notes[f"its list of tools breaks off after {len(tools):,} of them: {reason_of(error)}"] = cursor = None
    if cursor is not None:
        notes[f"its list of tools has no end: what {pages:,} pages have is used"] = None
    return tuple(tools.values())[:MAX_TOOLS], tuple(notes)[:MAX_NOTES]


async def hear_changes(message: Any, on_change: Callable[[], None]) -> None:
    """Take a message of the server. The MCP SDK calls this."""
    from mcp_types import ToolListChangedNotification  # noqa: PLC0415  # slow to import, see `transports.py`

    if isinstance(message, ToolListChangedNotification):
        on_change()


async def listen(client: "mcp.Client", on_change: Callable[[], None]) -> None:
    """Listen to a server of the newer protocol until cancelled; `hear_changes` gets its messages."""
    from mcp.client.subscriptions import ListenNotSupportedError  # noqa: PLC0415  # as above

    tools = client.server_capabilities.tools
    if tools is None or not tools.list_changed:
        return
    pause, again = FIRST_PAUSE, False
    while True:
        try:
            async with client.listen(tools_list_changed=True) as told:
                if again:  # what was told meanwhile is lost
                    on_change()
                async for _ in told:
                    pause = FIRST_PAUSE
        except ListenNotSupportedError:
            return
        except Exception as error:  # noqa: BLE001  # the border to the SDK: nothing but changes is missed
            logger.debug("a server does not tell of changes: %r", error)
        again = True
        await asyncio.sleep(pause)
        pause = min(2 * pause, LAST_PAUSE)


@dataclass(frozen=True, kw_only=True)
class McpResource:
    """A resource of a server, or a template of the addresses of several."""

    uri: str
    """The address; in a template, `{name}` is a blank to fill in."""
    name: str = ""
    description: str = ""
    mime_type: str = ""
    is_template: bool = False


@dataclass(frozen=True, kw_only=True)
class McpArgument:
    """An argument of a prompt."""

    name: str
    description: str = ""
    required: bool = False


@dataclass(frozen=True, kw_only=True)
class McpPrompt:
    """A prompt that a server offers to people."""

    name: str
    description: str = ""
    arguments: tuple[McpArgument, ...] = ()


async def read_pages(fetch: Callable[[str | None], Awaitable[Any]]) -> AsyncIterator[Any]:
    """Yield the pages of a list; it ends where a page has no next one, or one that was there before."""
    cursor: str | None = None
    seen: set[str | None] = set()
    while cursor not in seen and len(seen) < MAX_PAGES:
        seen.add(cursor)
        page = await fetch(cursor)
        yield page
        cursor = page.next_cursor
        if cursor is None:
            break


async def _entries(fetch: Callable[[str | None], Awaitable[Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async for page in read_pages(fetch):
        found += opened(page)
        if len(found) >= MAX_ENTRIES:
            break
    return found[:MAX_ENTRIES]


async def list_resources(client: "mcp.Client") -> tuple[McpResource, ...]:
    """Return the server's resources, then its templates."""
    if client.server_capabilities.resources is None:
        return ()
    listed = await _entries(lambda cursor: client.list_resources(cursor=cursor, cache_mode="refresh"))
    templates = await _entries(lambda cursor: client.list_resource_templates(cursor=cursor, cache_mode="refresh"))
    found = [*(_resource(entry, "uri") for entry in listed), *(_resource(entry, "uriTemplate") for entry in templates)]
    return tuple(dict.fromkeys(found))


async def list_prompts(client: "mcp.Client") -> tuple[McpPrompt, ...]:
    """Return the server's prompts."""
    if client.server_capabilities.prompts is None:
        return ()
    listed = await _entries(lambda cursor: client.list_prompts(cursor=cursor, cache_mode="refresh"))
    return tuple({entry["name"]: _prompt(entry) for entry in reversed(listed)}.values())[::-1]


async def read_resource(client: "mcp.Client", uri: str) -> McpResult:
    """Return the contents of a resource: blocks for code, text and pictures for a model."""
    contents = opened(await client.read_resource(uri, cache_mode="bypass"))
    blocks = [{"type": "resource", "resource": content} for content in contents]
    texts, images = read_blocks(blocks)
    return McpResult(
        value=blocks,
        has_blocks=True,
        text="\n".join(texts) if contents or texts else "[the resource is empty]",
        images=images,
        sections=tuple(texts) if len(texts) > 1 else (),
    )


async def get_prompt(client: "mcp.Client", name: str, arguments: dict[str, str]) -> McpResult:
    """Return the messages of a prompt as one text, with its pictures."""
    messages = opened(await client.get_prompt(name, arguments))
    blocks: list[Any] = []
    for message in messages:
        content = message.get("content")
        if message.get("role") == "assistant":
            blocks.append("You said:")
        blocks += content if isinstance(content, list) else [content]
    texts, images = read_blocks(blocks)
    return McpResult(value="\n\n".join(texts), text="\n\n".join(texts), images=images)


async def complete(
    client: "mcp.Client", of: McpPrompt | McpResource, argument: str, given: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the server's proposals for an argument of a prompt, or for a part of a template.

    Args:
        client: Reaches the server.
        of: The prompt or the template.
        argument: The argument's name.
        given: Texts typed so far for this argument and others.
    """
    from mcp_types import PromptReference, ResourceTemplateReference  # noqa: PLC0415  # slow to import, see `transports.py`

    if client.server_capabilities.completions is None:
        return ()
    reference = ResourceTemplateReference(uri=of.uri) if isinstance(of, McpResource) else PromptReference(name=of.name)
    others = {name: value for name, value in given.items() if name != argument}
    begun = {"name": argument, "value": given.get(argument, "")}
    result = await client.complete(reference, begun, others or None)
    return tuple(result.completion.values[:MAX_COMPLETIONS])


def _resource(entry: dict[str, Any], address: str) -> McpResource:
    return McpResource(
        uri=entry[address],
        name=_text(entry, "title", "name"),
        description=_text(entry, "description"),
        mime_type=_text(entry, "mimeType"),
        is_template=address == "uriTemplate",
    )


def _prompt(entry: dict[str, Any]) -> McpPrompt:
    listed = entry.get("arguments")
    arguments = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    return McpPrompt(
        name=entry["name"],
        description=_text(entry, "description", "title"),
        arguments=tuple(
            McpArgument(
                name=each["name"], description=_text(each, "description", "title"), required=each.get("required") is True
            )
            for each in arguments
            if isinstance(each.get("name"), str)
        ),
    )


def _text(entry: dict[str, Any], *names: str) -> str:
    return next((entry[name] for name in names if isinstance(entry.get(name), str) and entry[name]), "")
