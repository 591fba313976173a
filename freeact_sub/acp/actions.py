"""Calls as tool calls: their kinds, titles and contents.

The contents of a client's prompt become text for the model, and texts and pictures become contents for the client.
"""

import base64
import binascii
import json
import mimetypes
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pydantic_ai import BinaryContent

from freeact_sub.agent_names import short_id
from freeact_sub.calls import Call, CodeAction, FileWrite
from freeact_sub.cells import CELL_TOOL
from freeact_sub.events import AgentEvent
from freeact_sub.show import blocks
from freeact_sub.show.heads import head_of_call
from freeact_sub.show.wording import PICTURES, tool_words
from freeact_sub.text import code_title, fenced, one_line, own_title, shortened

Block: Any = dict[str, Any]
READ_CHARS: Final = 50_000
"""Characters of a file that a prompt names, and that the client's editor gives."""
PICTURE_BYTES: Final = 5_000_000
"""Bytes of the pictures of one cell that are sent to a client; others are sent as files."""
OUTPUT_CHARS: Final = 20_000
"""Characters of a text in a tool call."""
TITLE_CHARS: Final = 160
_KINDS: Final = {"code": "execute", "shell": "execute", "write": "edit", "connect": "fetch"}
_KINDS_OF_TOOLS: Final = {CELL_TOOL: "execute", "ask": "think", "ask_parent": "think"}
META: Final = "freeact_sub"
"""The key of our additions to messages, in `_meta`."""


def text_block(text: str) -> dict[str, Any]:
    """Return a text as a block."""
    return {"type": "text", "text": text}


def tool_text(text: str) -> dict[str, Any]:
    """Return a text as a part of a tool call."""
    return {"type": "content", "content": text_block(shortened(text, OUTPUT_CHARS))}


def pictures_of(displays: Sequence[Mapping[str, Any]], files: Sequence[str]) -> list[dict[str, Any]]:
    """Return the pictures of a cell for a tool call: small ones as data, and all as links to their files."""
    found: list[dict[str, Any]] = []
    room = PICTURE_BYTES
    for display in displays:
        kind = next((kind for kind in PICTURES if isinstance(display.get(kind), str)), None)
        if kind is None:
            continue
        data = display[kind]
        data = base64.b64encode(data.encode()).decode() if kind == "image/svg+xml" else "".join(data.split())
        room -= len(data)
        if room >= 0:
            found.append({"type": "content", "content": {"type": "image", "data": data, "mimeType": kind}})
    found += [{"type": "content", "content": _link(file)} for file in files]
    return found


def _link(file: str) -> dict[str, Any]:
    kind = mimetypes.guess_type(file)[0]
    link = {"type": "resource_link", "uri": Path(file).as_uri(), "name": Path(file).name}
    return link if kind is None else {**link, "mimeType": kind}


def picture_lines(files: Sequence[str], *, as_paths: bool) -> str:
    """Return pictures as Markdown, for clients without them in tool calls. Args: as_paths: the client shows none at all."""
    return "".join(f"\n\nPicture: `{file}`\n\n" if as_paths else f"\n\n![{Path(file).name}](<{file}>)\n\n" for file in files)


@dataclass(kw_only=True)
class ReadPrompt:
    """A prompt of a client."""

    text: str = ""
    """The person's text, with the names of files."""
    notes: list[str] = field(default_factory=list)
    """Texts that the model reads after the prompt."""
    pictures: list[BinaryContent] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The prompt in one line."""
        return one_line(self.text, 100)


async def read_prompt(
    blocks: Sequence[Mapping[str, Any]], workspace: Path, read: Callable[[str], Awaitable[str]] | None
) -> ReadPrompt:
    """Read the blocks of a prompt.

    Args:
        blocks: Checked blocks, as the protocol writes them.
        workspace: The session's folder.
        read: Reads a text file through the client, whose editor may have it unsaved. None: it does not offer that.
    """
    prompt = ReadPrompt()
    texts: list[str] = []
    for block in blocks:
        match block:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "image" | "audio", "data": str(data), "mimeType": str(kind)}:
                _add_picture(prompt, texts, data, kind)
            case {"type": "resource_link", "uri": str(uri)}:
                texts.append(await _linked(prompt, uri, workspace, read))
            case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
                texts.append(f"@{_name(uri, workspace)}")
                prompt.notes.append(f"{_name(uri, workspace)}:\n{fenced(text)}")
            case {"type": "resource", "resource": {"uri": str(uri), "blob": str(data)} as resource}:
                texts.append(f"@{_name(uri, workspace)}")
                _add_picture(prompt, texts, data, resource.get("mimeType") or "")
    prompt.text = "".join(texts)
    return prompt


def _add_picture(prompt: ReadPrompt, texts: list[str], data: str, kind: str) -> None:
    try:
        content = base64.b64decode(data, validate=False)
    except (binascii.Error, ValueError):
        texts.append(" [data that cannot be read] ")
        return
    if kind.startswith(("image/", "audio/")) or kind == "application/pdf":
        prompt.pictures.append(BinaryContent(content, media_type=kind))
    else:
        texts.append(f" [data of type {kind or 'unknown'}, {len(content)} bytes] ")


async def _linked(prompt: ReadPrompt, uri: str, workspace: Path, read: Callable[[str], Awaitable[str]] | None) -> str:
    """Return the words for a link in the prompt. The text of a file is added if the client gives it."""
    name, path = _name(uri, workspace), path_of(uri)
    if (
        path is not None
        and read is not None
        and not (mimetypes.guess_type(path)[0] or "text/").startswith(("image", "audio"))
    ):
        text = await read(path)
        if text:
            more = "\n[...]" if len(text) > READ_CHARS else ""
            prompt.notes.append(f"{name}, as it is in the editor now:\n{fenced(text[:READ_CHARS] + more)}")
    return f"@{name}"


def path_of(uri: str) -> str | None:
    """Return the absolute path that a `file` address names. None: it is another address."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    path = unquote(parts.path)
    return path if parts.scheme == "file" and parts.netloc in ("", "localhost") and Path(path).is_absolute() else None


def _name(uri: str, workspace: Path) -> str:
    """Return the path of a file in the workspace; anything else by its address."""
    path = path_of(uri)
    if path is None:
        return uri
    return os.path.relpath(path, workspace) if Path(path).is_relative_to(workspace) else path


def meta_of(event: AgentEvent, **more: Any) -> dict[str, Any]:
    """Return the agent of an event, as metadata."""
    return {META: {"agentId": event.agent_id, "parentId": event.parent_id, "depth": event.depth, **more}}


def titled(event: AgentEvent, title: str) -> str:
    """Return a title, which names the agent unless it is the root."""
    who = f"{short_id(event.agent_id)}: " if event.depth else ""
    return one_line(f"{who}{title}", TITLE_CHARS) or "a call"


def started(event: AgentEvent, call: blocks.CallStep) -> dict[str, Any]:
    """Return the beginning of a tool call. Args: event: its event."""
    words = tool_words(call.tool_name)
    shown: dict[str, Any] = {"kind": _KINDS_OF_TOOLS.get(call.tool_name, "other"), "rawInput": json_value(call.args)}
    if call.code is not None:
        title = own_title(call.label) or code_title(call.code) or words
        return {**shown, "title": titled(event, title), "content": [tool_text(fenced(call.code, "python"))]}
    return {**shown, "title": titled(event, f"{words}: {call.label}" if call.label else words)}


def asked(call: Call) -> dict[str, Any]:
    """Return the whole of a call, for its approval."""
    language = {"code": "python", "shell": "sh"}.get(call.kind, "")
    by_code = CodeAction(code=call.code) if isinstance(call, CodeAction) else call  # people answer by it, not by a title
    text = f"{call.question}:\n\n{fenced(call.text, language)}"
    return {
        "title": one_line(head_of_call(by_code).text, TITLE_CHARS),
        "kind": "delete" if isinstance(call, FileWrite) and call.operation == "remove" else _KINDS.get(call.kind, "other"),
        "content": [{"type": "content", "content": text_block(text)}],
        "rawInput": json_value({name: value for name, value in vars(call).items() if value not in ("", None, (), {})}),
    }


def json_value(value: Any) -> Any:
    """Return a value as JSON has it."""
    return json.loads(json.dumps(value, default=str))
