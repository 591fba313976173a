"""What a server offers besides tools: resources, templates of their addresses, prompts; and how its lists are read.

Free of the MCP library's types. What a response holds passes the SDK in an envelope, as results of tools do, so that one odd
entry costs no other.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from freeact_sub.mcp.odd_responses import ENVELOPE
from freeact_sub.mcp.results import McpResult, read_blocks

if TYPE_CHECKING:
    import mcp

MAX_PAGES: Final = 1_000
"""Of a list."""
MAX_ENTRIES: Final = 10_000
"""Of a list of resources or prompts."""
MAX_COMPLETIONS: Final = 100


@dataclass(frozen=True, kw_only=True)
class McpResource:
    """A resource of a server, or a template of the addresses of several."""

    uri: str
    """Its address; in a template, `{name}` stands for what is to be filled in."""
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
    """The pages of a list; it ends where a page has no next one, or one that was there before."""
    cursor: str | None = None
    seen: set[str | None] = set()
    while cursor not in seen and len(seen) < MAX_PAGES:
        seen.add(cursor)
        page = await fetch(cursor)
        yield page
        cursor = page.next_cursor
        if cursor is None:
            break


async def list_resources(client: "mcp.Client") -> tuple[McpResource, ...]:
    """The server's resources, then its templates."""
    if client.server_capabilities.resources is None:
        return ()
    found: list[McpResource] = []
    async for page in read_pages(lambda cursor: client.list_resources(cursor=cursor, cache_mode="refresh")):
        found += [_resource(entry, "uri") for entry in enveloped(page)]
        if len(found) >= MAX_ENTRIES:
            break
    found = found[:MAX_ENTRIES]
    async for page in read_pages(lambda cursor: client.list_resource_templates(cursor=cursor, cache_mode="refresh")):
        found += [_resource(entry, "uriTemplate") for entry in enveloped(page)]
        if len(found) >= 2 * MAX_ENTRIES:
            break
    return tuple(dict.fromkeys(found))[: 2 * MAX_ENTRIES]


async def list_prompts(client: "mcp.Client") -> tuple[McpPrompt, ...]:
    """The server's prompts."""
    if client.server_capabilities.prompts is None:
        return ()
    found: dict[str, McpPrompt] = {}
    async for page in read_pages(lambda cursor: client.list_prompts(cursor=cursor, cache_mode="refresh")):
        for entry in enveloped(page):
            found.setdefault(entry["name"], _prompt(entry))
        if len(found) >= MAX_ENTRIES:
            break
    return tuple(found.values())[:MAX_ENTRIES]


async def read_resource(client: "mcp.Client", uri: str) -> McpResult:
    """The contents of a resource: blocks for code, text and pictures for a model."""
    contents = enveloped(await client.read_resource(uri, cache_mode="bypass"))
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
    """The messages of a prompt as one text, with its pictures."""
    messages = enveloped(await client.get_prompt(name, arguments))
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
    """What the server proposes for an argument of a prompt, or for a part of a template.

    Args:
        client: Reaches the server.
        of: The prompt or the template.
        argument: The argument's name.
        given: What is typed of it and of the others.
    """
    from mcp_types import PromptReference, ResourceTemplateReference  # noqa: PLC0415  # slow to import, see `transports.py`

    if client.server_capabilities.completions is None:
        return ()
    reference = ResourceTemplateReference(uri=of.uri) if isinstance(of, McpResource) else PromptReference(name=of.name)
    others = {name: value for name, value in given.items() if name != argument}
    begun = {"name": argument, "value": given.get(argument, "")}
    result = await client.complete(reference, begun, others or None)
    return tuple(result.completion.values[:MAX_COMPLETIONS])


def enveloped(result: Any) -> list[dict[str, Any]]:
    """The entries of a response that passed the SDK in an envelope."""
    entries = (result.meta or {}).get(ENVELOPE, [])
    return [entry for entry in entries if isinstance(entry, dict)]


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
    """The first of these fields that is a text."""
    return next((entry[name] for name in names if isinstance(entry.get(name), str) and entry[name]), "")
