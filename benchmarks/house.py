"""How large the house is, and how far one walks through it: commit b2ea7fe7 beside this state.

Lines and files by folder, lines of tests for a line of the package, the largest circle of imports (typing counted),
private names of other libraries, class and file names that stand twice, and how far features are woven into the core. How
many of our files, classes and functions run while an agent runs a cell, from a prompt to a child's first output, and for a
line of output. How many tokens a model with the default settings reads before its first prompt. Nothing is subtracted.
"""

import json
import os
import pty
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final

from benchmarks.common import Goal, OtherLoad, Row, clean_environment, clock, files_of, main, report, serving
from benchmarks.structure import BORROWED, DOCUMENTED, Source, lines_of
from benchmarks.weave import woven

COMMIT: Final = "b2ea7fe7"
ROOT: Final = Path(__file__).parents[1]
LIMIT_SECONDS: Final = 300
WALK: Final = ROOT / "benchmarks" / "walk.py"
GOALS: Final = {
    "lines": 72_000,
    "files": 330,
    "lines of tests for a line": 0.75,
    "largest circle of imports, files": 3,
    "private names of other libraries": 40,
    "private names outside borrowed files": 0,
    "class names that stand twice": 1,  # TaskError, which code in a kernel knows by the name that the SDK has
    "an agent runs a cell: files": 45,
    "an agent runs a cell: classes": 65,
    "a child's first output: files": 62,
    "a child's first output: classes": 85,
    "a line of output: files": 14,
    "files of the core that name a feature": 10,
    "system prompt and tools, tokens": 2500,  # 2,279 before children's choices and questions to the user, and a tenth
    "description of task, tokens": 350,
}
"""At most, now."""
WALKS: Final = {"cell": "an agent runs a cell", "child": "a child's first output"}
CHARS_PER_TOKEN: Final = 4
"""About, of English and JSON."""
CELL: Final = """import time, pathlib
print('first')
time.sleep(4)
moment = time.monotonic()
print('second')
time.sleep(2)
pathlib.Path({clock!r}).write_text(str(moment))
"""
"""The first line has the program import what it imports when it is used."""


def run(*, small: bool = False) -> dict[str, Any]:
    """The table; small: this state alone, without the line of output."""
    load, figures = OtherLoad(), {}
    with files_of(COMMIT) as before:
        states = {"now": ROOT} if small or before is None else {COMMIT: before, "now": ROOT}
        for name, folder in states.items():
            figures[name] = _figures(folder, walk_line=not small)
    rows = [
        Row(
            figure=figure,
            unit="",
            values={name: found.get(figure) for name, found in figures.items()},
            goals=(Goal(of="now", at_most=GOALS[figure]),) if figure in GOALS else (),
        )
        for figure in dict.fromkeys(figure for found in reversed(figures.values()) for figure in found)
    ]
    doubles = Source(ROOT).doubles()
    notes = [f"stands twice: {', '.join(doubles)}"] if doubles else []
    return report("house", rows, load, notes)


def _figures(folder: Path, *, walk_line: bool) -> dict[str, float]:
    source = Source(folder)
    lines, counts, circles = source.lines(), source.counts(), source.circles()
    borrowed = _borrowed(folder, source)
    outside = {name for module, names in borrowed.items() if BORROWED not in module for name in names}
    found: dict[str, float] = {"lines": lines.total(), "files": counts.total()}
    found |= {f"lines of {name}": size for name, size in sorted(lines.items(), key=lambda item: -item[1])}
    found |= {
        "largest circle of imports, files": max(map(len, circles), default=1),
        "private names of other libraries": len(set().union(*borrowed.values())),
        "private names outside borrowed files": len(outside),
        "class names that stand twice": len(source.doubles()),
        "file names that stand twice": len(source.file_doubles()),
        "files of the core that name a feature": sum(map(len, woven(source).values())),
        "lines of tests for a line": lines_of((folder / "tests").rglob("*.py")) / lines.total(),
    }
    for walk, name in WALKS.items():
        found |= {f"{name}: {what}": count for what, count in _walked(folder, walk).items()}
    read = {name: chars / CHARS_PER_TOKEN for name, chars in _walked(folder, "prompt").items()}
    found |= {
        "system prompt and tools, tokens": read["system prompt"] + read["tools"],
        "description of task, tokens": read["task"],
    }
    if walk_line:
        found["a line of output: files"] = len(_line(folder))
    return found


def _borrowed(folder: Path, source: Source) -> dict[str, set[str]]:
    """By module: private names that it uses, and those of other libraries' classes that it defines again."""
    found = source.borrowed()
    for name, names in _walked(folder, "overrides")["overrides"].items():
        module = next(module for module in sorted(source.files, key=len, reverse=True) if name.startswith(f"{module}."))
        found.setdefault(module, set()).update(set(names) - DOCUMENTED)
    return found


def _walked(folder: Path, part: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="fa-bench-") as temporary:
        result = Path(temporary, "walk.json")
        command = [sys.executable, "-P", str(WALK), part, str(result)]
        environment = _environment(folder, temporary)
        done = subprocess.run(
            command, env=environment, cwd=temporary, capture_output=True, text=True, check=False, timeout=300
        )
        if done.returncode:
            raise RuntimeError(f"{part} of {folder}: {done.stderr[-2000:]}")
        found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        return found


def _line(folder: Path) -> list[str]:
    """The files that run for one line which a cell prints, in a conversation that is drawn in a terminal."""
    with tempfile.TemporaryDirectory(prefix="fa-bench-") as temporary:
        moment, result = Path(temporary, "clock"), Path(temporary, "walk.json")
        workspace = Path(temporary, "workspace")
        workspace.mkdir()
        with _model(CELL.format(clock=str(moment))) as base_url:
            options = ["--workspace", str(workspace), "--model", "openai-chat:measured", "--base-url", base_url]
            options += ["--code-actions", "tool", "--mode", "full", "-p", "print"]
            environment = _environment(folder, temporary) | {"WALK_CLOCK": str(moment), "TERM": "xterm-256color"}
            pid, terminal = pty.fork()
            if not pid:
                os.chdir(workspace)
                os.execve(sys.executable, [sys.executable, "-P", str(WALK), "line", str(result), *options], environment)
            shown = _drain(terminal)
            os.waitpid(pid, 0)
            os.close(terminal)
        if not result.exists():
            raise RuntimeError(f"a line of {folder}: {shown[-2000:]!r}")
        files: list[str] = json.loads(result.read_text(encoding="utf-8"))["files"]
        return files


def _drain(terminal: int) -> bytes:
    """Read all that the program writes, to its end."""
    shown, deadline = b"", clock() + LIMIT_SECONDS
    with suppress(OSError):  # the program has closed the terminal
        while clock() < deadline:
            if select.select([terminal], [], [], 1.0)[0]:
                if not (content := os.read(terminal, 65536)):
                    break
                shown += content
    return shown


@contextmanager
def _model(code: str) -> Iterator[str]:
    """A server whose model runs the cell and is done; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send("application/json", json.dumps({"data": []}).encode())

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            function = {"name": "execute_ipython_cell", "arguments": json.dumps({"code": code})}
            call = {"index": 0, "id": "call-1", "type": "function", "function": function}
            over = any(message["role"] == "tool" for message in asked["messages"])
            delta = {"role": "assistant", "content": "done"} if over else {"role": "assistant", "tool_calls": [call]}
            body = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "measured"}
            chunks = [{"index": 0, "delta": delta, "finish_reason": None}]
            chunks += [{"index": 0, "delta": {}, "finish_reason": "stop" if over else "tool_calls"}]
            lines = [f"data: {json.dumps(body | {'choices': [chunk]})}\n\n" for chunk in chunks]
            self._send("text/event-stream", "".join([*lines, "data: [DONE]\n\n"]).encode())

        def _send(self, kind: str, content: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    with serving(Handler) as base_url:
        yield base_url


def _environment(folder: Path, home: str) -> dict[str, str]:
    return clean_environment(folder) | {"HOME": home, "XDG_CONFIG_HOME": home, "XDG_STATE_HOME": home}


if __name__ == "__main__":
    main(run)
