"""`scripts/install.py`: what `make demo` says while pip works. Pip's lines are those of pip 23 and 25; pip itself is not run."""

import importlib.metadata
import importlib.util
import io
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PIP_23 = """\
Obtaining file:///home/me/freeact_sub
  Installing build dependencies: started
WARNING: Location 'file:///x/anyio/' is ignored: it is neither a file nor a directory.
Collecting anyio<5,>=4.10 (from freeact-sub==0.1.0)
  Downloading anyio-4.16.0-py3-none-any.whl (134 kB)
Collecting numpy>=2 (from matplotlib>=3.9->freeact-sub==0.1.0)
  Using cached numpy-2.4.6-cp311-cp311-manylinux_2_27_x86_64.whl (16.5 MB)
"""
PIP_25 = """\
Collecting anyio<5,>=4.10 (from freeact-sub==0.1.0)
  Downloading anyio-4.16.0-py3-none-any.whl.metadata (4.0 kB)
Collecting numpy>=2 (from matplotlib>=3.9->freeact-sub==0.1.0)
  Downloading numpy-2.4.6-cp311-cp311-manylinux_2_27_x86_64.whl.metadata (62 kB)
Collecting uvicorn[standard] (from x)
Downloading anyio-4.16.0-py3-none-any.whl (134 kB)
Downloading numpy-2.4.6-cp311-cp311-manylinux_2_27_x86_64.whl (16.5 MB)
"""


@pytest.fixture(scope="module")
def install() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("install_script", ROOT / "scripts/install.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["install_script"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["install_script"]


@pytest.mark.parametrize(("lines", "packages"), [(PIP_23, 3), (PIP_25, 3)])
def test_lines_of_pip_become_one_line_of_progress(install: ModuleType, lines: str, packages: int) -> None:
    progress = install.Progress()
    for line in lines.splitlines():
        progress.read(line)
    assert progress.text(0).startswith(f"fetching: {packages} of about ")
    assert ", 17 of about " in progress.text(0)
    progress.read("Installing collected packages: numpy, anyio")
    assert progress.text(2) == f"unpacking: 2 of {packages} packages"


def test_warnings_are_kept_and_many_are_counted(install: ModuleType) -> None:
    progress = install.Progress()
    for number in range(90):
        progress.read(f"WARNING: Location {number} is ignored")
        progress.read("WARNING: Retrying")
    shown = list(install.closing_words(progress, 0))
    assert shown == [
        "  pip warns: Location 0 is ignored",
        "  pip warns: Retrying",
        "  pip warns: Location 1 is ignored",
        "  pip warns: and 88 more",
    ]


class Screen(io.StringIO):
    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_one_line_on_a_terminal_and_lines_elsewhere(
    install: ModuleType, is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "LINE_SECONDS", 0.01)
    monkeypatch.setattr(install, "REDRAW_SECONDS", 0.01)
    progress, out, ended = install.Progress(), Screen(is_terminal=is_terminal), threading.Event()
    telling = threading.Thread(target=install.tell, args=(progress, out, ended))
    telling.start()
    for name in ("anyio", "numpy"):
        progress.read(f"Collecting {name}")
        while f"fetching: {len(progress.found)} of" not in out.getvalue():
            assert telling.is_alive()
    ended.set()
    telling.join()
    shown = out.getvalue()
    if is_terminal:
        assert "\n" not in shown
        assert shown.endswith("\r\x1b[K")
    else:
        assert "\x1b" not in shown
        assert [line[:13] for line in shown.splitlines()][-1] == "  fetching: 2"


@pytest.mark.process
def test_a_failure_ends_with_the_reason_and_the_way_out(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = "print('Collecting numpy'); print('ERROR: No matching distribution found for numpy'); raise SystemExit(1)"
    monkeypatch.setattr(install, "COMMAND", [sys.executable, "-c", program])
    assert install.main() == 1
    shown = capsys.readouterr().out
    assert re.search(r"about \d+ packages, \d+ MB to fetch, \d+ MB on disk", shown)
    assert "  pip: Collecting numpy\n" in shown
    assert "The installation failed: No matching distribution found for numpy\n" in shown
    assert "run the same command again" in shown


def installed_for(extra: str) -> set[str]:
    """All packages that an extra of ours brings, as they are installed here."""
    todo, done = [("freeact-sub", extra)], set[tuple[str, str]]()
    while todo:
        name, of = todo.pop()
        done.add((name, of))
        for text in importlib.metadata.requires(name) or []:
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": of}):
                todo += [(canonicalize_name(needed.name), each) for each in ("", *needed.extras)]
        todo = [each for each in todo if each not in done]
    return {name for name, _ in done}


def test_the_figures_are_near_to_what_is_installed(install: ModuleType) -> None:
    names = installed_for("demo")
    assert 0.8 < install.PACKAGES / len(names) < 1.25
    files = [file for name in names for file in importlib.metadata.files(name) or []]
    size = sum(file.size or 0 for file in files if not str(file).endswith(".pyc")) / 1e6
    assert 0.7 < install.DISK_MB / size < 1.4
