"""What code in a kernel says of files: `files`, sent after a cell that has used some, or has started programs."""

import asyncio
import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, Final

from freeact_sub.agents.files.attribution import MAX_FILES, Writing
from freeact_sub.agents.files.changed import CLOCK_STEP_NS, NOT_LOOKED_INTO, changed_files
from freeact_sub.agents.from_code.base import Handler
from freeact_sub.agents.tree import AgentNode
from freeact_sub.events import Notice
from freeact_sub.kernels import CellClock

MAX_PATH_CHARS: Final = 4096
MAX_CODE_CHARS: Final = 100_000
MAX_LOOKING: Final = 2
"""At the same time. Each is for one cell, and a model takes longer to write the next."""


class FileRequests:
    """Notes the files of an agent's run, as far as they are in the workspace."""

    def __init__(self, node: AgentNode) -> None:
        self._node = node
        self._looking: set[asyncio.Task[Any]] = set()

    @property
    def handlers(self) -> dict[str, Handler]:
        """By method."""
        return {"files": self._files}

    async def settle(self) -> None:
        """Wait until what was told has been looked into."""
        if self._looking:
            await asyncio.wait(self._looking)

    async def _files(self, params: Mapping[str, Any], clock: CellClock | None) -> None:
        del clock
        files, until = self._node.run.files, time.time_ns()
        for name in self._names(params.get("read")):
            if len(files.read) < MAX_FILES and not NOT_LOOKED_INTO.intersection(PurePath(name).parts[:-1]):
                files.read[name] = None
        since = self._time(params.get("since"), until)
        self._note(
            Writing(work=files, since_ns=since, until_ns=until, certain=True),
            self._names(params.get("written")),
        )
        writers = self._node.shared.file_attribution
        files.undo(frozenset(self._names(params.get("undone"))))
        writers.note_removed(files, self._names(params.get("removed")), certain=True)
        writers.note_removed(files, self._names(params.get("gone")), certain=False)
        if params.get("programs") is not None and len(self._looking) < MAX_LOOKING:
            code = params.get("code")
            code = code[:MAX_CODE_CHARS] if isinstance(code, str) else ""
            looking = asyncio.create_task(self._look(self._time(params["programs"], until), until, code))
            self._looking.add(looking)
            looking.add_done_callback(self._looking.discard)

    async def _look(self, since: int, until: int, code: str) -> None:
        """Find what programs have written. Args: code: of the cell that started them."""
        work = self._node.run.files
        since -= CLOCK_STEP_NS  # of the guess as well: it may have found what another agent had written just before
        found = await asyncio.to_thread(changed_files, self._node.shared.config.workspace, since, until)
        names = [name for name in found if name not in work.written]
        for certain in (True, False):
            writing = Writing(work=work, since_ns=since, until_ns=until, certain=certain)
            self._note(writing, [name for name in names if _is_named(code, PurePath(name).name) is certain])

    def _note(self, writing: Writing, names: list[str]) -> None:
        for warning in self._node.shared.file_attribution.note(writing, names):
            self._node.emitter.put(Notice(content=warning))

    def _names(self, paths: Any) -> list[str]:
        return list(_within(self._node.shared.config.workspace, paths)) if isinstance(paths, list) else []

    def _time(self, told: Any, now: int) -> int:
        """When it began, as the kernel says; not before the run."""
        earliest = now - int(self._node.run.seconds * 1e9)
        return min(max(told, earliest), now) if isinstance(told, int) else earliest


def _is_named(code: str, file: str) -> bool:
    """The name of the file stands in the code, and not as a part of another."""
    return re.search(rf"(?<![\w.-]){re.escape(file)}(?![\w-])", code) is not None


def _within(workspace: Path, paths: list[Any]) -> Iterator[str]:
    """Paths that are in the workspace, relative to it. Names are compared, no file is touched."""
    for path in paths[:MAX_FILES]:
        if isinstance(path, str) and len(path) <= MAX_PATH_CHARS:
            whole = Path(os.path.normpath(workspace / path))
            if workspace in whole.parents:
                yield str(whole.relative_to(workspace))
