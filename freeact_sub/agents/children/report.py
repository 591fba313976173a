"""The report on a child for its parent's model: a status line, the reason of a failure, and the answer.

A long answer goes to a file in the child's output folder, and the parent reads its head, its tail and the path, so that the
parent's history does not grow with its children's answers.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from freeact_sub.agents.runs.results import RunResult
from freeact_sub.events.ending import Receipts
from freeact_sub.system.safe_files import write_new
from freeact_sub.text import counted, one_line

ANSWER_BYTES: Final = 6_000
"""A longer answer is shown as head and tail."""
HEAD_BYTES: Final = 4_000
TAIL_BYTES: Final = 1_500
ERROR_CHARS: Final = 1_000
FILES_SHOWN: Final = 8
PRINTED_CHARS: Final = 160
WARNINGS_SHOWN: Final = 2
MARKS: Final = {*';,[]"\n'}
"""What separates the parts of the status line."""

logger = logging.getLogger(__name__)


async def report(result: RunResult, folder: Path, root: Path | None = None) -> str:
    """Return the report, at most about 8 KB.

    Args:
        result: How the child ended.
        folder: Receives the file of a long answer.
        root: The folder from which `folder` is reached without following a link. None: `folder` itself.
    """
    answer = await _shown(result.text, folder, root or folder)
    warnings = [f"[WARNING] {one_line(text, ERROR_CHARS)}" for text in result.warnings[:WARNINGS_SHOWN]]
    if len(result.warnings) > WARNINGS_SHOWN:
        warnings.append(f"[WARNING] More of these: {len(result.warnings) - WARNINGS_SHOWN}")
    doubts = [f"[FACT] {one_line(text, ERROR_CHARS)}" for text in result.doubts]
    head = "\n".join([status_line(result), *doubts, *warnings])
    if result.status == "completed":
        return f"{head}\n{answer}"
    partial = f"\nWhat it had so far:\n{answer}" if answer else "\nIt had no text so far."
    return f"[ERROR] The child did not complete: {one_line(result.error, ERROR_CHARS)}\n{head}{partial}"


def status_line(result: RunResult) -> str:
    """Return status, spending and time of a run and its descendants, and what it has done, in one line."""
    written = _files("files written", result.files_written) + _files("files removed", result.files_removed)
    count = len(result.files_read)
    read = f"; {counted(count, 'file')} read" if count else ""
    made = "" if result.receipts is None else _receipts(result.receipts)
    passed = "; its answer has passed the check" if result.verified else ""
    reused = f"; {result.reused_from} gave this answer to the same task" if result.reused_from else ""
    kept = f"; its kernel stays as node {result.node.node_id}" if result.node is not None else ""
    spent = f"{result.tree_usage}; {result.seconds:.1f} s"
    return f"[{result.agent_id}: {result.status}; {spent}{made}{read}{written}{passed}{reused}{kept}]"


def _receipts(made: Receipts) -> str:
    last = one_line(made.printed[-PRINTED_CHARS:], PRINTED_CHARS)
    return f"; receipts: {made}" + (f"; its last output ends with: {_quoted(last)}" if last else "")


def _quoted(text: str) -> str:
    """A child's own words, which the parent's model must not take for words of the host."""
    return json.dumps(text, ensure_ascii=False)


def _files(what: str, names: Sequence[str]) -> str:
    shown = [_quoted(name) if MARKS & {*name} else name for name in names[:FILES_SHOWN]]
    if len(names) > len(shown):
        shown.append(f"{len(names) - len(shown)} more")
    return f"; {what}: {one_line(', '.join(shown), ERROR_CHARS)}" if shown else ""


async def _shown(answer: str, folder: Path, root: Path) -> str:
    data = answer.encode("utf-8", "backslashreplace")
    if len(data) <= ANSWER_BYTES:
        return answer
    try:
        file = await asyncio.to_thread(_write, folder, data, root)
        where = f"the whole answer is in {file}"
    except OSError as error:
        logger.warning("an answer could not be written to %s", folder, exc_info=True)
        where = f"it could not be kept in {folder}: {error}"
    head = data[:HEAD_BYTES].decode("utf-8", "ignore")
    tail = data[-TAIL_BYTES:].decode("utf-8", "ignore")
    left_out = len(data) - HEAD_BYTES - TAIL_BYTES
    return f"{head}\n[... {left_out:,} of {len(data):,} bytes left out; {where} ...]\n{tail}"


def _write(folder: Path, data: bytes, root: Path) -> Path:
    file = folder / "answer.txt"
    try:
        write_new(file, data, root=root)
    except FileExistsError:  # the child's code has put something there
        file = folder / f"answer-{secrets.token_hex(4)}.txt"
        write_new(file, data, root=root)
    return file
