"""A corner of the window that is dragged: what is left is what is drawn in a window that always had this size.

In tmux, which folds rows, moves rows into its history when the window becomes lower, and brings them back, as most terminals do.
"""

import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from support.terminal import CONVERSATION
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")]

CHILDREN = 10
ASKING = 5
"""Children that may work at the same time; each asks."""
DRAGS = 5
STEP = 2
"""Columns or rows by which the window changes at once. A busy machine is slow to say that it has: see `RESIZED_SECONDS`."""
LIVE = re.compile(r"asks to run|^y yes|^ Approval|asks: Python|waiting for a free|more: |agents at work|^/\d ", re.MULTILINE)


class Tmux:
    """A conversation in a server of its own."""

    def __init__(self, folder: Path, columns: int, rows: int) -> None:
        self.folder = folder
        folder.mkdir()
        self(
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            *_size(columns, rows),
            f"RESIZED_SECONDS=1.5 {sys.executable} {CONVERSATION}",
        )

    def __call__(self, *words: str) -> str:
        command = ["tmux", "-S", str(self.folder / "tmux"), *words]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=True).stdout

    @property
    def size(self) -> tuple[int, int]:
        columns, rows = self("display", "-p", "#{pane_width} #{pane_height}").split()
        return int(columns), int(rows)

    @property
    def all(self) -> str:
        """With all that has left the screen."""
        return self("capture-pane", "-p", "-S", "-")

    @property
    def screen(self) -> str:
        return self("capture-pane", "-p")

    def ask(self) -> None:
        """Has ten children, of whom five ask: of more than ten, three would ask first, and then a quote."""
        wait_until(lambda: "type a prompt" in self.all)
        self("send-keys", "/help", "Enter")  # something to move into the history
        wait_until(lambda: "agent's short id" in self.all)
        self("send-keys", f"children {' '.join(f'n{number}' for number in range(CHILDREN))}", "Enter")
        wait_until(lambda: "Approval 1 of" in self.screen and "y yes" in self.screen)
        self("send-keys", "a")  # children, in this session
        wait_until(
            lambda: f"Approval 1 of {ASKING}" in self.screen and "asks to run" in self.screen and "y yes" in self.screen
        )

    def drag(self, columns: int, rows: int) -> None:
        start = self.size
        steps = max(abs(columns - start[0]), abs(rows - start[1])) // STEP + 1
        for step in range(1, steps + 1):
            at = [begin + (end - begin) * step // steps for begin, end in zip(start, (columns, rows), strict=True)]
            self("resize-window", *_size(*at))
            wait_until(lambda at=at: self.size == tuple(at) and self._is_drawn())
        wait_until(lambda: self.size == (columns, rows) and "y yes" in self.screen and "asks to run" in self.screen)
        wait_until(lambda: f"/{ASKING} " in self.screen or rows < 24)

    def _is_drawn(self) -> bool:
        """Whether the program has drawn what it draws while the window changes: a few rows, and none of the children's."""
        return "agents at work" in self.screen and "waiting for a free" not in self.screen

    def close(self) -> None:
        self("kill-server")


def _size(columns: int, rows: int) -> tuple[str, ...]:
    return "-x", str(columns), "-y", str(rows)


def live(text: str) -> Counter[str]:
    """The rows that are drawn again and again, without what is another one each time."""
    rows = (re.sub(r"\b[0-9a-f]{4}\b", "ID", row) for row in text.splitlines() if LIVE.search(row))
    rows = (re.sub(r"\d+(,\d+)*( s| tok)", r"N\2", re.sub(r"\bn\d+", "NAME", row)) for row in rows)
    return Counter(re.sub(r" {2,}", "  ", row).rstrip() for row in rows)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_corner_that_is_dragged_leaves_no_stale_rows(seed: int, tmp_path: Path) -> None:
    sizes = random.Random(seed)
    dragged, fresh = Tmux(tmp_path / "dragged", 110, 40), None
    try:
        dragged.ask()
        for _ in range(DRAGS):
            size = sizes.randint(50, 140), sizes.randint(18, 45)
            dragged.drag(*size)
        dragged.drag(*(size := (sizes.randint(80, 120), sizes.randint(28, 40))))
        fresh = Tmux(tmp_path / "fresh", *size)
        fresh.ask()
        wait_until(lambda: live(dragged.screen) == live(fresh.screen))
        assert live(dragged.all) == live(fresh.all), dragged.all
    finally:
        dragged.close()
        if fresh is not None:
            fresh.close()
