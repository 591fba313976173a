"""`drawn_writes`: the files that a cell surely writes, each as a diff against what stands there."""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from freeact_sub.system.safe_files import is_file, read_file
from freeact_sub.terminal.questions.planned_writes import planned_writes
from freeact_sub.text import visible

KEPT: Final = 32
"""Questions whose diffs are kept: a card is drawn many times a second."""
MAX_BYTES: Final = 60_000
"""Of a file that is compared; the event loop waits for it."""
STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}


@lru_cache(maxsize=KEPT)
def drawn_writes(_request_id: str, code: str, workspace: Path) -> tuple[RenderableType, ...]:
    """What a cell writes, against the files as they are when its question is drawn for the first time."""
    planned: dict[str, bytes | None] = {}
    for write in planned_writes(code):
        before: bytes | None = b""
        if write.appends:
            before = planned[write.path] if write.path in planned else _content_of(workspace / write.path)
        planned[write.path] = None if before is None or write.content is None else before + write.content
    return tuple(Text("\n", overflow="fold").join(_lines(path, new, workspace)) for path, new in planned.items())


def diff_lines(text: str) -> Iterator[Text]:
    """A unified diff in colours."""
    for line in text.splitlines():
        yield Text(visible(line), STYLES.get(line[:1], ""), overflow="fold")


def _lines(path: str, new: bytes | None, workspace: Path) -> Iterator[Text]:
    yield Text()
    if new is None:
        yield Text(f"± {visible(path)}: its content is computed when the cell runs", "dim", overflow="fold")
        return
    from freeact_sub.agents.undo.differences import ChangedFile, unified  # noqa: PLC0415  # slow to import

    old = _content_of(workspace / path)
    is_there = is_file(workspace / path)
    if old is None or len(new) > MAX_BYTES:
        yield Text(f"± {visible(path)}: {len(new):,} bytes, which cannot be compared here", "dim", overflow="fold")
    elif old == new and is_there:
        yield Text(f"± {visible(path)}: as it is", "dim", overflow="fold")
    else:
        yield from diff_lines(unified(ChangedFile(path=path, before=old if is_there else None, after=new)))


def _content_of(path: Path) -> bytes | None:
    """None: it cannot be read, or is large; of what is not there, nothing."""
    try:
        return read_file(path, MAX_BYTES)
    except FileNotFoundError:
        return b""
    except OSError:
        return None
