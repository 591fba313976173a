"""The tests for a change: `make test-for FILE...`, or `make test-for` for what differs from the last commit.

For a file of the package: the tests in the folder that mirrors its own, and those that import it. While these are few, the
tests of the modules that import it are added. For a file of tests: itself, or the tests that import it. For another file:
the tests that name it. Of tests that start processes, those of `contract.txt` alone are run. With `--list` the files are printed and nothing is run.
"""

import ast
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.structure import PACKAGE, Source, imported  # noqa: E402

TESTS: Final = ROOT / "tests"
WHICH: Final = "contract or fast"
"""As `make test`."""
FEW: Final = 25
"""Tests that are one import further away are left out where they would make more files than this."""


def tests_for(changed: Iterable[str]) -> list[str]:
    """The paths of test files for changed files. Args: changed: paths from the project's root."""
    found: set[Path] = set()
    source = Source(ROOT)
    modules = {path.relative_to(ROOT).as_posix(): name for name, path in source.files.items()}
    named = {path: {*imported(ast.parse(path.read_text(encoding="utf-8")))} for path in TESTS.rglob("*.py")}
    for name in changed:
        path = ROOT / name
        if name in modules:
            found |= _of_module(source, modules[name], path, named)
        elif path.name.startswith("test_"):
            found.add(path)
        elif name.startswith("tests/") and path.suffix == ".py":
            found |= {test for test in _importing({f"support.{path.stem}"}, named) if test != path}
        else:
            found |= {test for test in named if path.name in test.read_text(encoding="utf-8")}
    return sorted(path.relative_to(ROOT).as_posix() for path in found if path.name.startswith("test_") and path.exists())


def _of_module(source: Source, module: str, path: Path, named: dict[Path, set[str]]) -> set[Path]:
    folder = TESTS / "unit" / path.relative_to(ROOT / PACKAGE).parent
    while folder != TESTS / "unit" and not any(folder.glob("test_*.py")):
        folder = folder.parent
    found = set(folder.glob("test_*.py")) if folder != TESTS / "unit" else set()
    found |= set((TESTS / "unit").rglob(f"test_{path.stem}.py"))
    imports = source.imports()
    ring, seen = {module}, {module}
    while ring:
        further = found | _importing(ring, named)
        if found and len(further) > FEW:
            break
        found = further
        ring = {name for name, others in imports.items() if others & ring} - seen
        seen |= ring
    return found


def _importing(modules: set[str], named: dict[Path, set[str]]) -> set[Path]:
    return {test for test, names in named.items() if names & modules}


def _changed() -> list[str]:
    """The files that differ from the last commit, new ones too."""
    listed = ["git", "ls-files", "--modified", "--others", "--exclude-standard"], ["git", "diff", "--cached", "--name-only"]
    asked = [subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout for command in listed]
    return sorted({name for text in asked for name in text.split("\n") if name})


def main(arguments: list[str]) -> int:
    """Run them; the exit status is that of pytest."""
    only_list = "--list" in arguments
    given = [name for name in arguments if name != "--list"]
    if missing := [name for name in given if not Path(name).exists()]:
        print(f"there is no file {missing[0]}")
        return 2
    files = [Path(name).resolve().relative_to(ROOT).as_posix() for name in given] or _changed()
    tests = tests_for(files)
    if not tests:
        print("no test is about: " + (", ".join(files) or "nothing has changed since the last commit"))
        return 0
    print(*tests, sep="\n", flush=True)
    if only_list:
        return 0
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "-m", WHICH, *tests], cwd=ROOT, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
