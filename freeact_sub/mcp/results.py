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
    """A tool's answer."""

    value: Any
    """Plain JSON data for code."""
    text: str
    """For the model."""
    images: "tuple[BinaryContent, ...]" = ()
    """For the model."""
    sections: tuple[str, ...] = ()
    """The separate texts of the answer. Empty: it has one."""
    is_error: bool = False
    """The tool has failed; the message says why."""


def read_tool(tool: "Tool") -> McpTool:
    """Reads a tool from a server's list."""
    return McpTool(
        name=tool.name,
        description=tool.description or tool.title or "",
        parameters_json_schema=tool.input_schema,
        read_only=bool(tool.annotations and tool.annotations.read_only_hint),
    )


def needs_task(tool: "Tool") -> bool:
    """Whether a tool can only be called as a task of the protocol, which we do not speak: every call would fail."""
    return tool.execution is not None and tool.execution.task_support == "required"


def read_result(result: "CallToolResult") -> McpResult:
    """Reads a server's answer."""
    texts, images = _read_blocks(result.content)
    text = "\n".join(texts)
    if result.structured_content is not None:
        value = _unwrapped(result.structured_content)
        text = text or json.dumps(value, ensure_ascii=False)
    elif all(block.type == "text" for block in result.content):
        value = text
    else:
        value = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
    if result.is_error and not text:
        text = "the tool failed and did not say why"
    sections = tuple(texts) if len(texts) > 1 else ()
    return McpResult(value=value, text=text, images=images, sections=sections, is_error=result.is_error)


def failure(text: str) -> McpResult:
    """The result of a tool that failed with this text."""
    return McpResult(value=text, text=text, is_error=True)


def _unwrapped(structured: Any) -> Any:
    """Unwraps a value that is no object: servers send it in an object with the one key `result`."""
    if isinstance(structured, dict) and structured.keys() == {"result"}:
        return structured["result"]
    return structured


def _read_blocks(blocks: "Sequence[ContentBlock]") -> "tuple[list[str], tuple[BinaryContent, ...]]":
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
    return texts, tuple(images)


def _read_binary(block: Any, texts: list[str], images: "list[BinaryContent]") -> None:
    """Reads binary data: a picture for the model, else a note."""
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
