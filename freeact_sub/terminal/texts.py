"""The words of the front ends: rich output as text, what a call asks for, how a question was answered."""

import base64
import binascii
import json
from typing import Any, Final

from freeact_sub.calls import Call, CodeAction, FileWrite, McpCall, NetworkConnect, ShellCommand, SpawnCall, ToolCall
from freeact_sub.cells import CellError, MimeBundle
from freeact_sub.events import ApprovalAnswered, ApprovalRequest, CodeExecutionOutput
from freeact_sub.text import clean, one_line, visible

PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml")
TOOL_OUTPUT_LINES: Final = 12
MAX_CHARS: Final = 100_000
MESSAGES: Final = {"request": "asks", "response": "answers", "status": "tells", "cancel": "cancels"}
"""What an agent does with a message, in words that stand between its name and the other's."""
_JPEG_SIZES: Final = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
"""The JPEG segments that hold the picture's size."""


def display_text(data: MimeBundle) -> str:
    """A rich output as text: one line about a picture, else the plain form that the kernel sent with it."""
    for media_type in PICTURES:
        if media_type in data:
            return _picture(media_type, data[media_type])
    for media_type in ("text/plain", "text/markdown", "text/latex"):
        if isinstance(data.get(media_type), str):
            return bounded(data[media_type])
    return f"({', '.join(map(str, data)) or 'empty output'}: not shown in a terminal)"


def error_text(error: CellError) -> str:
    """An exception that ended a cell, as IPython formats it."""
    return bounded("\n".join(error.traceback) or f"{error.ename}: {error.evalue}")


def bounded(text: str) -> str:
    """The beginning of a text that may be of any size; drawing it must not take seconds."""
    left = len(text) - MAX_CHARS
    return text if left <= 0 else f"{text[:MAX_CHARS]}\n… {left:,} more characters"


def written(value: Any) -> str:
    """An argument as people read it: text as it is, all else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def question(call: Call) -> str:
    """What a call asks for, in words that follow an agent's name."""
    match call:
        case CodeAction():
            return "asks to run this cell"
        case SpawnCall():
            turns = f", at most {call.max_turns} turns" if call.max_turns is not None else ""
            label = f" ({one_line(call.description)})" if call.description else ""
            return f"asks to start {one_line(call.child, 200)}{label}{turns}"
        case McpCall():
            return f"asks to call {one_line(call.tool)} of the MCP server {one_line(call.server)}"
        case ShellCommand():
            where = f" in {one_line(call.cwd, 200)}" if call.cwd else ""
            return f"asks to run this command{' OUTSIDE THE SANDBOX' if call.outside else ''}{where}"
        case FileWrite():
            return f"asks to {call.operation} this file"
        case NetworkConnect():
            return "asks to connect to this host"
        case ToolCall():
            return f"asks to call {one_line(call.tool_name)}"


def call_text(call: Call) -> str:
    """A call in full, with nothing hidden."""
    match call:
        case CodeAction():
            return visible(call.code)
        case SpawnCall():
            return visible(call.prompt)
        case ShellCommand():
            return visible(call.command) + (f"\n(the reason that it gives: {visible(call.purpose)})" if call.purpose else "")
        case FileWrite():
            return visible(call.path) + (f"\n(named {visible(call.named)})" if call.named else "")
        case NetworkConnect():
            return visible(call.address) + (f" ({visible(call.ip)})" if call.ip else "")
        case McpCall() | ToolCall():
            return arguments_text(call.args)


def arguments_text(args: dict[str, Any]) -> str:
    """Arguments, with nothing hidden; code alone as it is."""
    if list(args) == ["code"]:
        return visible(written(args["code"]))
    return "\n".join(visible(f"{name} = {written(value)}") for name, value in args.items())


def answer(event: ApprovalAnswered, request: ApprovalRequest | None) -> str:
    """How a question was answered, in words that follow the name of the agent that asked."""
    what = f": {one_line(request.call.summary)}" if request is not None else ""
    if event.allowed:
        return f"approved{what}"
    reason = f" ({one_line(event.reason, 300)})" if event.reason else ""
    return f"denied{reason}{what}"


def cell_notes(event: CodeExecutionOutput) -> list[str]:
    """What to know about a cell's output beyond what was shown of it."""
    notes = []
    if event.left_out_chars:
        notes.append(f"{event.left_out_chars:,} characters of output are not shown here")
    if event.output_file:
        notes.append(f"all of the output: {one_line(event.output_file, 300)}")
    return notes


def first_lines(text: str) -> str:
    """The beginning of a tool's result, cleaned, and how much more there is."""
    lines = clean(text).rstrip().splitlines()
    left = len(lines) - TOOL_OUTPUT_LINES
    return "\n".join(lines[:TOOL_OUTPUT_LINES] + ([f"… {left} more lines"] if left > 0 else []))


def _picture(media_type: str, data: Any) -> str:
    if media_type == "image/svg+xml":
        return f"[picture: {media_type}, {len(str(data).encode(errors='replace')):,} bytes]"
    try:
        content = base64.b64decode(data)
    except (binascii.Error, ValueError, TypeError):
        return f"[picture: {media_type}, data that cannot be read]"
    size = _size(content)
    return f"[picture: {media_type}, {len(content):,} bytes" + (f", {size[0]} x {size[1]} pixels]" if size else "]")


def _size(content: bytes) -> tuple[int, int] | None:
    """Width and height in pixels; None where the format, or this picture, does not tell."""
    if content.startswith(b"\x89PNG") and len(content) >= 24:
        return int.from_bytes(content[16:20]), int.from_bytes(content[20:24])
    if content.startswith(b"GIF") and len(content) >= 10:
        return int.from_bytes(content[6:8], "little"), int.from_bytes(content[8:10], "little")
    if content.startswith(b"\xff\xd8"):
        return _jpeg_size(content)
    return None


def _jpeg_size(content: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(content) and content[at] == 0xFF:
        if content[at + 1] in _JPEG_SIZES:
            return int.from_bytes(content[at + 7 : at + 9]), int.from_bytes(content[at + 5 : at + 7])
        at += 2 + max(2, int.from_bytes(content[at + 2 : at + 4]))
    return None
