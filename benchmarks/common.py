"""What the benchmarks share: figures and their goals, memory and CPU of processes, the machine and who else used it.

Linux only: memory comes from `/proc/*/smaps_rollup`, CPU time from `/proc/*/task/*/schedstat` (nanoseconds; the ticks of
`/proc/*/stat` are 10 ms, as much as half a kernel's start).
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

REFERENCE = "stock"
"""The contender that ratios are against: plain jupyter_client and ipykernel, as they come."""
PACKAGES = (
    "jupyter_client",
    "ipykernel",
    "ipython",
    "pyzmq",
    "tornado",
    "pydantic-ai-slim",
    "numpy",
    "pandas",
    "matplotlib",
)

clock = time.perf_counter


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What one contender should reach in one row."""

    of: str
    at_most: float | None = None
    """In the row's unit; None: only the ratio counts."""
    at_least: float | None = None
    ratio: float | None = None
    """How many times less than the reference, in the same run."""

    def missed(self, values: Mapping[str, float | None]) -> str:
        """What is not reached; empty if all is, or if it was not measured."""
        value, reference = values.get(self.of), values.get(REFERENCE)
        if value is None:
            return ""
        if self.at_most is not None and value > self.at_most:
            return f"{self.of}: {value:.4g} > {self.at_most:g}"
        if self.at_least is not None and value < self.at_least:
            return f"{self.of}: {value:.4g} < {self.at_least:g}"
        if self.ratio is not None and reference is not None and reference < self.ratio * value:
            return f"{self.of}: {reference / value:.3g}x < {self.ratio:g}x"
        return ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure, of all contenders."""

    figure: str
    unit: str
    values: dict[str, float | None]
    """By contender; None: not measured."""
    goals: tuple[Goal, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON; ratios say how many times less than the reference."""
        reference = self.values.get(REFERENCE)
        ratios = {name: round(reference / value, 2) for name, value in self.values.items() if reference and value}
        ratios.pop(REFERENCE, None)
        values = {name: None if value is None else round(value, 4) for name, value in self.values.items()}
        missed = [text for goal in self.goals if (text := goal.missed(self.values))]
        return {"figure": self.figure, "unit": self.unit, "values": values, "ratios": ratios, "missed": missed}


@dataclass(kw_only=True)
class Series:
    """Measurements by figure and contender, in the order of their first appearance."""

    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, figure: str, contender: str, value: float) -> None:
        """Note one measurement."""
        self.values.setdefault(figure, {}).setdefault(contender, []).append(value)

    def row(self, figure: str, unit: str, *goals: Goal) -> Row | None:
        """The medians of a figure; None where nothing was measured."""
        medians: dict[str, float | None] = {
            name: statistics.median(values) for name, values in self.values.get(figure, {}).items()
        }
        return Row(figure=figure, unit=unit, values=medians, goals=goals) if medians else None


class OtherLoad:
    """How much of the machine's CPU went to processes that are not ours, since it was made."""

    def __init__(self) -> None:
        self._busy, self._own, self._since = _busy_seconds(), _own_seconds(), clock()

    def share(self) -> float:
        """0.0 (we were alone) to 1.0; above 0.3, do not believe the times."""
        other = _busy_seconds() - self._busy - (_own_seconds() - self._own)
        return round(max(0.0, other) / (clock() - self._since) / (os.cpu_count() or 1), 3)


def processes(pid: int) -> list[int]:
    """A process and its descendants."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return [pid, *(child.pid for child in process.children(recursive=True))]
    return []


def memory(pids: Iterable[int]) -> tuple[float, float]:
    """PSS and USS of the processes, in MB (10^6 bytes)."""
    pss = uss = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
                name, _, value = line.partition(":")
                if name == "Pss":
                    pss += int(value.split()[0])
                elif name in ("Private_Clean", "Private_Dirty", "Private_Hugetlb"):
                    uss += int(value.split()[0])
    return pss * 1024 / 1e6, uss * 1024 / 1e6


def resident(pid: int) -> float:
    """Resident memory of a process in MB."""
    return float(psutil.Process(pid).memory_info().rss / 1e6)


def cpu_ms(pids: Iterable[int]) -> float:
    """CPU time of the processes' living threads so far."""
    total = 0
    for pid in pids:
        for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                total += int(path.read_text(encoding="ascii").split()[0])
    return total / 1e6


def report(benchmark: str, rows: Iterable[Row | None], load: OtherLoad, notes: Iterable[str] = ()) -> dict[str, Any]:
    """What a benchmark's `run` returns."""
    return {
        "benchmark": benchmark,
        "machine": _machine(),
        "versions": _versions(),
        "other_load": load.share(),
        "rows": [row.as_dict() for row in rows if row is not None],
        "notes": list(notes),
    }


@contextlib.contextmanager
def files_of(commit: str) -> Iterator[Path | None]:
    """A folder with the files of a commit of this clone. None: the clone does not have it."""
    with tempfile.TemporaryDirectory(prefix="fa-bench-") as folder:
        archive = subprocess.run(
            ["git", "archive", commit], cwd=Path(__file__).parent.parent, capture_output=True, check=False
        )
        if archive.returncode:
            yield None
            return
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        yield Path(folder)


def clean_environment(folder: Path | None = None) -> dict[str, str]:
    """This environment without what changes a run. Args: folder: where Python finds the package. None: it is installed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FREEACT_", "PYTHON"))}
    kept = {name: value for name, value in kept.items() if not name.endswith("_API_KEY")}
    return kept if folder is None else kept | {"PYTHONPATH": str(folder)}


@contextlib.contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """A model server on loopback; its base URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()


def main(run: Callable[..., dict[str, Any]]) -> None:
    """Run one benchmark as a program."""
    parser = argparse.ArgumentParser(description="Prints one JSON object.")
    parser.add_argument("--small", action="store_true", help="the shortest form, to see that it works")
    result = run(small=parser.parse_args().small)
    print(json.dumps(result, indent=1))
    raise SystemExit(1 if result.get("failed") else 0)


def _machine() -> dict[str, Any]:
    model = ""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return {
        "cpus": os.cpu_count(),
        "cpu": model,
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
    }


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _busy_seconds() -> float:
    with Path("/proc/stat").open(encoding="ascii") as file:
        user, nice, system, _idle, _iowait, *rest = (int(value) for value in file.readline().split()[1:9])
    return float(user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    """Of this process and its descendants, those that have ended and were waited for included."""
    total = 0.0
    for pid in processes(os.getpid()):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(psutil.Process(pid).cpu_times()[:4])
    return total
