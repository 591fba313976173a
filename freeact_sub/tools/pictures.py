"""Saves the pictures that a cell displays, for front ends without pictures and for later."""

import base64
import binascii
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from freeact_sub.cells import MimeBundle
from freeact_sub.system.safe_files import write_new
from freeact_sub.tools.result_bounds import output_file

SUFFIXES: Final = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/svg+xml": ".svg",
}
"""By media type; the first type in a display counts."""
MAX_SAVED: Final = 100
"""Pictures of one cell that are saved."""

logger = logging.getLogger(__name__)


def save_pictures(displays: Sequence[MimeBundle], folder: Path, tool_call_id: str, *, root: Path) -> tuple[str, ...]:
    """Saves the pictures among the displays of a cell; returns their paths in order. Blocks.

    Args:
        displays: The displays of the cell.
        folder: The folder for the files.
        tool_call_id: The call that ran the cell.
        root: The folder from which `folder` is reached without following a link.
    """
    saved: list[str] = []
    for suffix, content in _pictures(displays):
        file = output_file(folder, tool_call_id, suffix)
        try:
            write_new(file, content, root=root)
        except OSError as error:
            logger.warning("pictures of a cell cannot be written to %s: %s", file, error)
            break
        saved.append(str(file))
        if len(saved) == MAX_SAVED:
            break
    return tuple(saved)


def _pictures(displays: Sequence[MimeBundle]) -> Iterator[tuple[str, bytes]]:
    for data in displays:
        kind = next((kind for kind in SUFFIXES if isinstance(data.get(kind), str)), None)
        if kind is None:
            continue
        text: str = data[kind]
        try:
            content = text.encode("utf-8", "replace") if kind == "image/svg+xml" else base64.b64decode(text)
        except (binascii.Error, ValueError):
            continue
        yield SUFFIXES[kind], content
