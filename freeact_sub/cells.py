"""The output of cells as values, named after Jupyter's message specification.

A kernel yields these values while a cell runs, and an `ExecuteReply` at its end. They are the border between the wire
(`kernels/wire/client.py`) and everything above it, so nothing above knows Jupyter messages.
"""

from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

CELL_TOOL: Final = "execute_ipython_cell"

MAX_KINDS: Final = 5
MAX_KIND_CHARS: Final = 100

MimeBundle: TypeAlias = dict[str, Any]
"""MIME type to data: text as `str`, images as base64 `str`, JSON types as plain values."""

ReplyStatus: TypeAlias = Literal["ok", "error", "aborted", "timeout", "interrupted", "kernel_lost"]
"""The end of a cell. `ok`, `error`, `aborted` are Jupyter's; the host sets the others."""


@dataclass(frozen=True, kw_only=True)
class StreamText:
    """Text written to a standard stream."""

    type: Literal["StreamText"] = "StreamText"
    name: Literal["stdout", "stderr"]
    text: str


@dataclass(frozen=True, kw_only=True)
class DisplayData:
    """A rich display, such as a picture or a table."""

    type: Literal["DisplayData"] = "DisplayData"
    data: MimeBundle
    metadata: dict[str, Any] = field(default_factory=dict)
    display_id: str | None = None
    """The id by which a later `DisplayData` with `update` may replace this one."""
    update: bool = False
    """Whether this replaces an earlier display of the same `display_id`."""


@dataclass(frozen=True, kw_only=True)
class ExecuteResult:
    """The value of a cell's last expression."""

    type: Literal["ExecuteResult"] = "ExecuteResult"
    data: MimeBundle
    metadata: dict[str, Any] = field(default_factory=dict)
    execution_count: int = 0


@dataclass(frozen=True, kw_only=True)
class ClearOutput:
    """The cell clears its output so far."""

    type: Literal["ClearOutput"] = "ClearOutput"
    wait: bool = False
    """Whether to wait for the next output. Events do not wait: theirs comes right before that output."""


@dataclass(frozen=True, kw_only=True)
class CellError:
    """An exception that ended the cell."""

    type: Literal["CellError"] = "CellError"
    ename: str
    evalue: str
    traceback: tuple[str, ...] = ()
    """Lines as IPython formats them, with ANSI colour codes."""


@dataclass(frozen=True, kw_only=True)
class ExecuteReply:
    """The end of a cell."""

    status: ReplyStatus
    execution_count: int | None = None
    left_out_chars: int = 0
    """Characters of output that a slow reader missed; the cell's output file has them."""


CellOutput: TypeAlias = StreamText | DisplayData | ExecuteResult | ClearOutput | CellError
"""Output of a cell before its end."""


def size_of(output: CellOutput) -> int:
    """Return the number of characters of an output."""
    rich = output.data.items() if isinstance(output, DisplayData | ExecuteResult) else ()
    return len(text_of(output)) + sum(len(str(data)) for kind, data in rich if kind != "text/plain")


def text_of(output: CellOutput) -> str:
    """Return the text of an output; a display without text is named by its kind."""
    match output:
        case StreamText():
            return output.text
        case CellError():
            return "\n".join(output.traceback) + "\n" if output.traceback else f"{output.ename}: {output.evalue}\n"
        case DisplayData() | ExecuteResult():
            return text_of_bundle(output.data)
        case ClearOutput():
            return ""


def text_of_bundle(data: MimeBundle) -> str:
    """Return the text of rich output, or for readers of text its kinds, such as `[displayed: text/html]`."""
    text = data.get("text/plain")
    kinds = [kind for kind in data if kind != "text/plain"]
    if kinds and (text is None or (isinstance(text, str) and not text.strip())):
        more = f" and {len(kinds) - MAX_KINDS:,} more" if len(kinds) > MAX_KINDS else ""
        return f"[displayed: {', '.join(kind[:MAX_KIND_CHARS] for kind in kinds[:MAX_KINDS])}{more}]\n"
    return "" if text is None else f"{text}\n"
