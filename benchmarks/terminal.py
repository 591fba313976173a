"""What drawing costs: draws and bytes a second, whether 5,000 events a second wait for the screen, and the echo of keys.

The display is the real one, in a terminal of its own, which takes all that is written; the events are made. The demo runs as
a person would see it.
"""

import os
import pty
import re
import statistics
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.common import Goal, OtherLoad, Row, clock, cpu_ms, main, report

PROGRAM: Final = Path(__file__).with_name("drawn_conversation.py")
DRAW: Final = re.compile(rb"\x1b\[\?25l")
"""Each drawing hides the cursor once."""
ROWS, COLUMNS = 40, 120
LIMIT_SECONDS: Final = 300
DEMO: Final = Path(__file__).parents[1] / "examples/demo/demo.py"
CASES: Final = {"20 children": ("children", 5.0), "3,000 printed lines": ("lines", 0.6), "an answer": ("text", 5.0)}
"""Names by events and seconds."""
MOST_DRAWS: Final = 20
KEYS: Final = "αβγδεζηθικλμνξοπρστυφχψω"
"""No event has these letters, so that one that appears was typed."""
KEY_SECONDS: Final = 0.1
"""Between two keys."""
ECHOES: Final = "median", "worst"


def run(*, small: bool = False) -> dict[str, Any]:
    """All cases; small: each as short as it can be, and not the demo."""
    load, rows = OtherLoad(), []
    for name, (case, seconds) in CASES.items():
        lasts = str(0.4 if small else seconds)
        drawn = _measured([str(PROGRAM), case, "drawn", lasts])
        alone = _measured([str(PROGRAM), case, "alone", lasts])
        rows += _rows(name, drawn)
        rows.append(Row(figure=f"{name}: lasts", unit="s", values={"drawn": drawn["seconds"], "read": alone["seconds"]}))
        rows.append(Row(figure=f"{name}: CPU", unit="ms/s", values={"drawn": drawn["cpu"], "read": alone["cpu"]}))
        echo = _measured([str(PROGRAM), case, "drawn", lasts], types=True)
        rows += [Row(figure=f"{name}: key echo, {which}", unit="ms", values={"drawn": echo[which]}) for which in ECHOES]
    if not small:
        demo = _measured([str(DEMO)], marked=False)
        rows += [*_rows("make demo", demo), Row(figure="make demo: lasts", unit="s", values={"drawn": demo["seconds"]})]
    return report("terminal", rows, load)


def _rows(name: str, drawn: dict[str, float]) -> list[Row]:
    most = Goal(of="drawn", at_most=MOST_DRAWS)
    return [
        Row(figure=f"{name}: draws", unit="1/s", values={"drawn": drawn["draws"]}, goals=(most,)),
        Row(figure=f"{name}: written", unit="kB/s", values={"drawn": drawn["kilobytes"]}),
    ]


def _measured(arguments: list[str], *, marked: bool = True, types: bool = False) -> dict[str, float]:
    """Run a program in a terminal.

    Args:
        arguments: The program, with its arguments.
        marked: The program says when the measured part begins and ends.
        types: Type keys in that part.
    """
    with tempfile.TemporaryDirectory() as folder, _terminal() as (ours, theirs, written):
        environment = os.environ | {"TERM": "xterm-256color", "XDG_STATE_HOME": folder}
        environment["PYTHONPATH"] = str(PROGRAM.parents[1])
        began, cpu, size = clock(), 0.0, 0
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=subprocess.PIPE,
            cwd=folder,
            env=environment,
            text=True,
        )
        with process:
            assert process.stderr is not None
            keys = _Keys(ours, written)
            for line in process.stderr:
                if line == "begins\n":
                    began, cpu, size = clock(), cpu_ms([process.pid]), len(written)
                    if types:
                        keys.start()
                elif line == "ends\n":
                    keys.end()
                    seconds, used, content = clock() - began, cpu_ms([process.pid]) - cpu, bytes(written[size:])
            assert process.wait(LIMIT_SECONDS) == 0
        if not marked:
            seconds, used, content = clock() - began, 0.0, bytes(written)
        draws = len(DRAW.findall(content))
        return {
            "draws": draws / seconds,
            "kilobytes": len(content) / seconds / 1000,
            "seconds": seconds,
            "cpu": used / seconds,
            "median": statistics.median(keys.echoes or [0.0]),
            "worst": max(keys.echoes, default=0.0),
        }


class _Keys(threading.Thread):
    """Types a key after another, and notes how long each takes to appear, in ms."""

    def __init__(self, terminal: int, written: bytearray) -> None:
        super().__init__(daemon=True)
        self.echoes: list[float] = []
        self._terminal = terminal
        self._written = written
        self._ended = threading.Event()

    def run(self) -> None:
        """Until the end, or until each letter was typed."""
        for key in KEYS:
            if self._ended.wait(KEY_SECONDS):
                return
            typed, size = clock(), len(self._written)
            os.write(self._terminal, key.encode())
            while self._written.find(key.encode(), size) < 0:
                if self._ended.wait(0.0005):
                    return
            self.echoes.append((clock() - typed) * 1000)

    def end(self) -> None:
        """No further keys."""
        self._ended.set()
        if self.ident is not None:
            self.join()


@contextmanager
def _terminal() -> Iterator[tuple[int, int, bytearray]]:
    """A terminal, as we and as the program have it, and all that the program writes."""
    ours, theirs = pty.openpty()
    os.set_inheritable(theirs, True)
    termios.tcsetwinsize(ours, (ROWS, COLUMNS))
    written = bytearray()

    def read() -> None:
        while True:
            try:
                content = os.read(ours, 65536)
            except OSError:
                return
            if not content:
                return
            written.extend(content)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield ours, theirs, written
    finally:
        os.close(theirs)
        thread.join(5)
        os.close(ours)


if __name__ == "__main__":
    main(run)
