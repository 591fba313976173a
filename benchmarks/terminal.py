"""What drawing costs: draws and bytes a second, and whether events that come at 5,000 a second wait for the screen.

The display is the real one, in a terminal of its own, which takes all that is written; the events are made. The demo runs as
a person would see it.
"""

import os
import pty
import re
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


def _measured(arguments: list[str], *, marked: bool = True) -> dict[str, float]:
    """Run a program in a terminal. Args: marked: it says when that begins and ends which is measured."""
    with tempfile.TemporaryDirectory() as folder, _terminal() as (theirs, written):
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
            for line in process.stderr:
                if line == "begins\n":
                    began, cpu, size = clock(), cpu_ms([process.pid]), len(written)
                elif line == "ends\n":
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
        }


@contextmanager
def _terminal() -> Iterator[tuple[int, bytearray]]:
    """A terminal, as the program gets it, and what was written into it."""
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
        yield theirs, written
    finally:
        os.close(theirs)
        thread.join(5)
        os.close(ours)


if __name__ == "__main__":
    main(run)
