"""What code in a kernel says it has written: `files_written`, sent after a cell that wrote files."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from freeact_sub.agents.tree import AgentNode
from freeact_sub.kernels import CellClock

MAX_FILES: Final = 1000
"""Kept of one run; code in a kernel can say whatever it likes."""
MAX_PATH_CHARS: Final = 4096


class FileRequests:
    """Notes the files of an agent's run, as far as they are in the workspace."""

    def __init__(self, node: AgentNode) -> None:
        self._node = node

    async def written(self, params: Mapping[str, Any], clock: CellClock | None) -> None:
        """Answers `files_written`."""
        del clock
        paths = params.get("paths")
        for path in paths if isinstance(paths, list) else ():
            if isinstance(path, str) and len(path) <= MAX_PATH_CHARS and len(self._node.files_written) < MAX_FILES:
                name = _within(self._node.tree.config.workspace, path)
                if name is not None:
                    self._node.files_written[name] = None


def _within(workspace: Path, path: str) -> str | None:
    """The path relative to the workspace; None: it is not in it. Names are compared, no file is touched."""
    whole = Path(os.path.normpath(workspace / path))
    return str(whole.relative_to(workspace)) if workspace in whole.parents else None
