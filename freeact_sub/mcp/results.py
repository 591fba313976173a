"""`McpTool` and `McpResult`: a server's tools and results, free of the MCP library's types.

A result has two readers. Code gets `value`, plain JSON data: the structured content where the server sends any, else the
text, else, where pictures or other binary data came, the content blocks as the protocol writes them (`has_blocks`), of which
the kernel makes objects (`kernels/guest/contents.py`). A model gets `text` and `images`.
"""

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from freeact_sub.mcp.odd_responses import ENVELOPE, OUTPUT

if TYPE_CHECKING:
    from mcp_types import CallToolResult, Tool
    from pydantic_ai import BinaryContent


FIELDS: Final = ("content", "structuredContent", "isError", "resultType", "_meta")
"""The fields of a response."""


@dataclass(frozen=True, kw_only=True)
class McpTool:
    """A tool of a server."""

    name: str
    description: str
    parameters_json_schema: dict[str, Any]
    read_only: bool = False
    """The server says that the tool changes nothing. It is the server's word, no guarantee."""
    output_json_schema: dict[str, Any] | None = None
    """What it returns, by the server's word; what it does return is not held against it. None: it does not say."""


@dataclass(frozen=True, kw_only=True)
class McpResult:
    """A tool's response."""

    value: Any
    """Plain JSON data for code."""
    has_blocks: bool = False
    """The value is a list of the protocol's content blocks."""
    text: str
    """For the model."""
    images: "tuple[BinaryContent, ...]" = ()
    """For the model."""
    sections: tuple[str, ...] = ()
    """The separate texts of the response. Empty: it has one."""
    is_error: bool = False
    """The tool has failed; the message says why."""


def read_tool(tool: "Tool") -> McpTool:
    """Reads a tool from a server's list."""
    return McpTool(
        name=tool.name,
        description=tool.description or tool.title or "",
        parameters_json_schema=tool.input_schema,
        read_only=bool(tool.annotations and tool.annotations.read_only_hint),
        output_json_schema=(tool.meta or {}).get(OUTPUT),
    )


def needs_task(tool: "Tool") -> bool:
    """Whether a tool can only be called as a task of the protocol, which we do not speak: every call would fail."""
    return tool.execution is not None and tool.execution.task_support == "required"


def read_result(result: "CallToolResult") -> McpResult:
    """Read a server's response. It may break the protocol; whatever is left out of it is named."""
    enveloped = result.structured_content
    response = (
        enveloped[ENVELOPE] if isinstance(enveloped, dict) and ENVELOPE in enveloped else result.model_dump(by_alias=True)
    )
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
    """The result of a tool that failed with this text."""
    return McpResult(value=text, text=text, is_error=True)


def _unwrapped(structured: Any) -> Any:
    """Unwraps a value that is no object: servers send it in an object with the one key `result`."""
    if isinstance(structured, dict) and structured.keys() == {"result"}:
        return structured["result"]
    return structured


def read_blocks(blocks: list[Any]) -> "tuple[list[str], tuple[BinaryContent, ...]]":
    """The texts of content blocks, and their pictures."""
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
    """Reads binary data: a picture for the model, else a note."""
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
