"""What a parent's model reads of a child: a status line, the reason of a failure, and the answer.

A long answer goes whole to a file in the child's output folder, and the parent reads its head, its tail and the path: the
parent's history must not grow with what its children write.
"""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any, Final

from pydantic_core import to_jsonable_python

from freeact_sub.agents.results import RunResult
from freeact_sub.text import one_line

ANSWER_BYTES: Final = 6_000
"""A longer answer is shown as head and tail."""
HEAD_BYTES: Final = 4_000
TAIL_BYTES: Final = 1_500
ERROR_CHARS: Final = 1_000
FILES_SHOWN: Final = 8
WARNINGS_SHOWN: Final = 2

logger = logging.getLogger(__name__)


async def report(result: RunResult, folder: Path) -> str:
    """What the parent's model reads, at most about 8 KB. Args: folder: gets the file of a long answer."""
    answer = await _shown(text_of(result.output), folder)
    warnings = [f"[WARNING] {one_line(text, ERROR_CHARS)}" for text in result.warnings[:WARNINGS_SHOWN]]
    if len(result.warnings) > WARNINGS_SHOWN:
        warnings.append(f"[WARNING] More of these: {len(result.warnings) - WARNINGS_SHOWN}")
    head = "\n".join([status_line(result), *warnings])
    if result.status == "completed":
        return f"{head}\n{answer}"
    partial = f"\nWhat it had so far:\n{answer}" if answer else "\nIt had no text so far."
    return f"[ERROR] The child did not complete: {one_line(result.error, ERROR_CHARS)}\n{head}{partial}"


def status_line(result: RunResult) -> str:
    """Status, spendings, time and files of a run, with all that it has started."""
    files = list(result.files_written[:FILES_SHOWN])
    if len(result.files_written) > len(files):
        files.append(f"{len(result.files_written) - len(files)} more")
    written = f"; files written: {one_line(', '.join(files), ERROR_CHARS)}" if files else ""
    count = len(result.files_read)
    read = f"; {count:,} file{'s' if count > 1 else ''} read" if count else ""
    reused = f"; the answer is that of {result.reused_from} to the same task" if result.reused_from else ""
    return f"[{result.agent_id}: {result.status}; {result.tree_usage}; {result.seconds:.1f} s{read}{written}{reused}]"


def text_of(output: Any) -> str:
    """An answer as text: JSON for what is not text."""
    if isinstance(output, str):
        return output
    return json.dumps(to_jsonable_python(output, fallback=str), ensure_ascii=False)


async def _shown(answer: str, folder: Path) -> str:
    data = answer.encode("utf-8", "backslashreplace")
    if len(data) <= ANSWER_BYTES:
        return answer
    file = folder / "answer.txt"
    where = f"the whole answer is in {file}"
    try:
        await asyncio.to_thread(_write, file, data)
    except OSError as error:
        logger.warning("an answer could not be written to %s", file, exc_info=True)
        where = f"it could not be kept in {file}: {error}"
    head = data[:HEAD_BYTES].decode("utf-8", "ignore")
    tail = data[-TAIL_BYTES:].decode("utf-8", "ignore")
    left_out = len(data) - HEAD_BYTES - TAIL_BYTES
    return f"{head}\n[... {left_out:,} of {len(data):,} bytes left out; {where} ...]\n{tail}"


def _write(file: Path, data: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
