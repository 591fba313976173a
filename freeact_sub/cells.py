"""What a cell puts out, as Jupyter's message specification names it.

A kernel yields these values while a cell runs; the last one is always an `ExecuteReply`. They are the border between the
wire (`kernels/client.py`) and everything above it, so nothing above knows Jupyter messages.
"""

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

MimeBundle: TypeAlias = dict[str, Any]
"""MIME type to data: text as `str`, images as base64 `str`, JSON types as plain values."""

ReplyStatus: TypeAlias = Literal["ok", "error", "aborted", "timeout", "interrupted", "kernel_lost"]
"""How a cell ended. `ok`, `error`, `aborted` are Jupyter's; the others are decided by the host."""


@dataclass(frozen=True, kw_only=True)
class StreamText:
    """Text written to a standard stream."""

    name: Literal["stdout", "stderr"]
    text: str


@dataclass(frozen=True, kw_only=True)
class DisplayData:
    """A rich display, such as a picture or a table."""

    data: MimeBundle
    metadata: dict[str, Any] = field(default_factory=dict)
    display_id: str | None = None
    """Set where a later `DisplayData` with `update` may replace this one."""
    update: bool = False
    """True where this replaces an earlier display of the same `display_id`."""


@dataclass(frozen=True, kw_only=True)
class ExecuteResult:
    """The value of a cell's last expression."""

    data: MimeBundle
    metadata: dict[str, Any] = field(default_factory=dict)
    execution_count: int = 0


@dataclass(frozen=True, kw_only=True)
class ClearOutput:
    """The cell asked that its output so far be cleared."""

    wait: bool = False


@dataclass(frozen=True, kw_only=True)
class CellError:
    """An exception that ended the cell."""

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
    """Characters of output that were not yielded because the reader was too slow; the cell's output file has them."""


CellOutput: TypeAlias = StreamText | DisplayData | ExecuteResult | ClearOutput | CellError
"""What a cell may put out before it ends."""
