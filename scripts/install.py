"""Installs the program for `make demo`: pip does the work, and this says what, how large it is, and how far it is.

    .venv/bin/python scripts/install.py

It needs nothing but Python and pip. Files are not compiled: Python compiles the few that are used.
"""

import re
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TextIO

PACKAGES, DOWNLOAD_MB, DISK_MB = 90, 75, 315
"""What it takes, about; a test compares these with what is installed."""
COMMAND: Final = [
    sys.executable,
    "-m",
    "pip",
    "install",
    "--disable-pip-version-check",
    "--no-compile",
    "--progress-bar=off",
]
WHAT: Final = ["--editable", ".[demo]"]
LINE_SECONDS: Final = 5.0
"""Between two lines of progress; on a terminal one line is written anew, more often."""
REDRAW_SECONDS: Final = 0.3
SHOWN_WARNINGS: Final = 3
SHOWN_LINES: Final = 25
"""Of pip's own words, if it fails."""
_FOUND: Final = re.compile(r"^\s*(?:Collecting|Processing|Obtaining) (\S+)")
_FETCHED: Final = re.compile(r"^\s*(?:Downloading|Using cached) \S+?(?<!\.metadata) \(([\d.]+) (bytes|kB|MB|GB)\)")
_LOCAL: Final = re.compile(r"^\s*Processing (\S+\.whl)")
_UNITS: Final = {"bytes": 1e-6, "kB": 1e-3, "MB": 1.0, "GB": 1e3}


@dataclass
class Progress:
    """How far pip is, as its lines tell."""

    found: set[str] = field(default_factory=set)
    megabytes: float = 0.0
    is_unpacking: bool = False
    failure: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def read(self, line: str) -> None:
        """Takes in a line of pip."""
        self.lines.append(line)
        if found := _FOUND.match(line):
            self.found.add(re.split(r"[\[<>=!~;]", found[1])[0])
            if (local := _LOCAL.match(line)) and (wheel := Path(local[1])).is_file():
                self.megabytes += wheel.stat().st_size / 1e6
        elif fetched := _FETCHED.match(line):
            self.megabytes += float(fetched[1]) * _UNITS[fetched[2]]
        elif line.startswith("Installing collected packages"):
            self.is_unpacking = True
        elif line.startswith("WARNING: "):
            self.warnings.append(line.removeprefix("WARNING: "))
        elif line.startswith("ERROR: "):
            self.failure.append(line.removeprefix("ERROR: "))

    def text(self, unpacked: int) -> str:
        """One line for people. Args: unpacked: how many packages are in their place."""
        if self.is_unpacking:
            return f"unpacking: {unpacked} of {max(len(self.found), unpacked)} packages"
        return f"fetching: {len(self.found)} of about {PACKAGES} packages, {self.megabytes:.0f} of about {DOWNLOAD_MB} MB"


def main() -> int:
    """Install, and return pip's exit status."""
    begun = time.monotonic()
    folder = Path(sys.prefix).name
    print(
        f"Installing freeact_sub into {folder}/: about {PACKAGES} packages, {DOWNLOAD_MB} MB to fetch, {DISK_MB} MB on disk."
    )
    print("Nothing else is touched. On an idle machine it takes about a minute.", flush=True)
    progress = Progress()
    status = run([*COMMAND, *WHAT], progress, sys.stdout)
    for line in closing_words(progress, status):
        print(line, flush=True)
    if not status:
        print(f"Installed in {time.monotonic() - begun:.0f} s.", flush=True)
    return status


def run(command: list[str], progress: Progress, out: TextIO) -> int:
    """Run pip to its end and tell of its progress; returns its exit status."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as pip:
        ended = threading.Event()
        telling = threading.Thread(target=tell, args=(progress, out, ended))
        telling.start()
        try:
            for line in pip.stdout or ():
                progress.read(line.rstrip())
        finally:
            ended.set()
            telling.join()
    return pip.returncode


def tell(progress: Progress, out: TextIO, ended: threading.Event) -> None:
    """Write a line of progress now and then, or one line anew on a terminal."""
    redraws, said, packages = out.isatty(), "", Path(sysconfig.get_path("purelib"))
    while not ended.wait(REDRAW_SECONDS if redraws else LINE_SECONDS):
        text = progress.text(sum(1 for _ in packages.glob("*.dist-info")))
        if text != said:
            out.write(f"\r\x1b[K  {text}" if redraws else f"  {text}\n")
            out.flush()
            said = text
    if redraws and said:
        out.write("\r\x1b[K")
        out.flush()


def closing_words(progress: Progress, status: int) -> Iterator[str]:
    """What pip warned of, and its last words if it has failed."""
    warnings = list(dict.fromkeys(progress.warnings))
    for warning in warnings[:SHOWN_WARNINGS]:
        yield f"  pip warns: {warning}"
    if len(warnings) > SHOWN_WARNINGS:
        yield f"  pip warns: and {len(warnings) - SHOWN_WARNINGS} more"
    if status:
        yield from (f"  pip: {line}" for line in progress.lines[-SHOWN_LINES:])
        yield f"The installation failed: {'; '.join(progress.failure) or f'pip ended with status {status}'}"
        yield "Check the connection and the disk, then run the same command again: what was fetched is kept."


if __name__ == "__main__":
    sys.exit(main())
