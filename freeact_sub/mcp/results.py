"""`McpTool` and `McpResult`: what a server offers and answers, free of the MCP library's types.

A result has two readers. Code gets `value`, plain JSON data: the structured content where the server sends any, else the
text, else, where pictures or other binary data came, the content blocks as the protocol writes them. A model gets `text` and
`images`.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock, Tool
    from pydantic_ai import BinaryContent


@dataclass(frozen=True, kw_only=True)
class McpTool:
    """A tool of a server."""

    name: str
    description: str
    parameters_json_schema: dict[str, Any]
    read_only: bool = False
    """The server says that the tool changes nothing. It is the server's word, no guarantee."""


@dataclass(frozen=True, kw_only=True)
class McpResult:
    """What a tool answered."""

    value: Any
    """Plain JSON data for code."""
    text: str
    """For the model."""
    images: "tuple[BinaryContent, ...]" = ()
    """For the model."""
    is_error: bool = False
    """The tool has failed; the text says why."""


def read_tool(tool: "Tool") -> McpTool:
    """A tool as its server lists it."""
    return McpTool(
        name=tool.name,
        description=tool.description or tool.title or "",
        parameters_json_schema=tool.input_schema,
        read_only=bool(tool.annotations and tool.annotations.read_only_hint),
    )


def read_result(result: "CallToolResult") -> McpResult:
    """An answer as its server sends it."""
    text, images = _read_blocks(result.content)
    if result.structured_content is not None:
        value = _unwrapped(result.structured_content)
        text = text or json.dumps(value, ensure_ascii=False)
    elif all(block.type == "text" for block in result.content):
        value = text
    else:
        value = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
    if result.is_error and not text:
        text = "the tool failed and did not say why"
    return McpResult(value=value, text=text, images=images, is_error=result.is_error)


def failure(text: str) -> McpResult:
    """The answer of a tool that failed with this text."""
    return McpResult(value=text, text=text, is_error=True)


def _unwrapped(structured: Any) -> Any:
    """Servers wrap what is no object, such as a number or a list, in an object with the one key `result`."""
    if isinstance(structured, dict) and structured.keys() == {"result"}:
        return structured["result"]
    return structured


def _read_blocks(blocks: "Sequence[ContentBlock]") -> "tuple[str, tuple[BinaryContent, ...]]":
    texts: list[str] = []
    images: list[BinaryContent] = []
    for block in blocks:
        match block.type:
            case "text":
                texts.append(block.text)
            case "resource_link":
                texts.append(f"[resource {block.uri}{f': {block.description}' if block.description else ''}]")
            case "resource" if (text := getattr(block.resource, "text", None)) is not None:
                texts.append(text)
            case _:
                _read_binary(block, texts, images)
    return "\n".join(texts), tuple(images)


def _read_binary(block: Any, texts: list[str], images: "list[BinaryContent]") -> None:
    """A picture is shown to the model; of other binary data it is told."""
    from pydantic_ai import BinaryContent  # noqa: PLC0415  # costs 0.6 s, and pictures are rare

    resource = getattr(block, "resource", None)
    encoded, mime_type = (block.data, block.mime_type) if resource is None else (resource.blob, resource.mime_type)
    name = block.type if resource is None else f"resource {resource.uri}"
    try:
        data = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        texts.append(f"[{name}: data that is not base64]")
        return
    if (mime_type or "").startswith("image/"):
        images.append(BinaryContent(data, media_type=mime_type))
    else:
        texts.append(f"[{name}: {len(data)} bytes of {mime_type or 'unknown type'}]")
