"""`drawn_writes`: the files that a cell surely writes, each as a diff against what stands there."""

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from freeact_sub.system.safe_files import is_file, read_file
from freeact_sub.terminal.questions.planned_writes import planned_writes
from freeact_sub.text import visible, whole_line

KEPT: Final = 32
"""Number of questions whose diffs are kept: a card is drawn many times a second."""
MAX_BYTES: Final = 60_000
"""Bound on all contents that a card compares, together; the event loop waits for it."""
MAX_WRITES: Final = 100
STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}


@lru_cache(maxsize=KEPT)
def drawn_writes(_request_id: str, code: str, workspace: Path) -> tuple[RenderableType, ...]:
    """The diffs of a cell's writes against the files as they are when its question is drawn for the first time."""
    writes = planned_writes(code)
    if len(writes) > MAX_WRITES:
        return (Text(f"\n± {len(writes):,} writes, which are too many to be compared here", "dim", overflow="fold"),)
    planned: dict[str, bytes | None] = {}
    for write in writes:
        before: bytes | None = b""
        if write.appends:
            before = planned[write.path] if write.path in planned else _content_of(workspace / write.path)
        planned[write.path] = None if before is None or write.content is None else before + write.content
    left, drawn = MAX_BYTES, list[Text]()
    for path, new in planned.items():
        old = _content_of(workspace / path)
        left -= len(new or b"") + len(old or b"")
        drawn.append(Text("\n", overflow="fold").join(_lines(path, old, new, workspace, fits=left >= 0)))
    return tuple(drawn)


def diff_lines(text: str) -> Iterator[Text]:
    """A unified diff in colours."""
    for line in text.splitlines():
        yield Text(visible(line), STYLES.get(line[:1], ""), overflow="fold")


def _lines(path: str, old: bytes | None, new: bytes | None, workspace: Path, *, fits: bool) -> Iterator[Text]:
    file = workspace / path
    target = "" if old is None else os.path.realpath(file)
    yield Text()
    if target not in ("", os.path.normpath(workspace.resolve() / path)):
        yield Text(f"± {whole_line(path)} is a link to {whole_line(target)}", "yellow", overflow="fold")
    if new is None:
        yield Text(f"± {whole_line(path)}: its content is computed when the cell runs", "dim", overflow="fold")
    elif old is None or not fits:
        yield Text(f"± {whole_line(path)}: {len(new):,} bytes, which cannot be compared here", "dim", overflow="fold")
    elif old == new and is_file(file):
        yield Text(f"± {whole_line(path)}: as it is", "dim", overflow="fold")
    else:
        from freeact_sub.agents.undo.differences import ChangedFile, unified  # noqa: PLC0415  # slow to import

        is_there = is_file(file)
        yield Text(f"± {whole_line(path)}{'' if is_there else ', a new file'}", "bold", overflow="fold")
        diff = unified(ChangedFile(path=whole_line(path), before=old if is_there else None, after=new))
        yield from diff_lines(diff.split("\n", 2)[2])  # without its two lines of names


def _content_of(path: Path) -> bytes | None:
    """The content of a file, empty if there is none. None: it cannot be read, or is too large."""
    try:
        return read_file(path, MAX_BYTES)
    except FileNotFoundError:
        return b""
    except OSError:
        return None
