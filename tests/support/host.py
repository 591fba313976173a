"""A host that is asked by the code in a kernel: it remembers what was asked, and answers as the test says."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

from freeact_sub.errors import ApprovalDeniedError
from freeact_sub.kernels import CellClock


class RecordingHost:
    """The handler of a kernel's requests."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, Any]] = []
        self.allows: Callable[[Mapping[str, Any]], bool] = lambda _: True
        self.waits = False
        """Answers come from `answer` only."""
        self.open: dict[str, asyncio.Future[bool]] = {}
        """Unanswered questions, by the last word of what is asked."""
        self.without_cell = 0

    async def __call__(self, method: str, params: Mapping[str, Any], clock: CellClock | None) -> None:
        """See `HostRequestHandler`."""
        assert method == "check"
        self.asked.append(params)
        self.without_cell += clock is None
        allowed = self.allows(params)
        if self.waits:
            future = asyncio.get_running_loop().create_future()
            self.open[self.subject(params).rpartition(" ")[2]] = future
            with clock.paused() if clock is not None else nullcontext():
                allowed = await future
        if not allowed:
            raise ApprovalDeniedError("not that")

    @property
    def subjects(self) -> list[str]:
        """What was asked for, in short."""
        return [self.subject(params) for params in self.asked]

    def subject(self, params: Mapping[str, Any]) -> str:
        """One question in short."""
        match params["kind"]:
            case "shell":
                return str(params["command"])
            case "write":
                return f"{params['operation']} {params['path']}"
        return f"{params['host']}:{params['port']}"
