"""How many small faults the tests find: `python tests/support/faults.py [--all]`, in a clone without changes.

Each fault of `tests/faults.toml` is put into the program, and the tests run until one fails: first those for the file, then all
of `make test`; with `--all`, then those of `make test-all` too. The file is put back after each.
"""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from support.tests_for import WHICH, tests_for  # noqa: E402

FAULTS: Final = ROOT / "tests" / "faults.toml"
PYTEST: Final = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "2", "-p", "no:cacheprovider"]


def found_by(file: str, *, all_tests: bool) -> str:
    """The tier whose tests find the fault that is in the file; empty: none."""
    tiers = {"tests for the file": ["-m", WHICH, *tests_for([file])], "make test": ["-m", WHICH]}
    if all_tests:
        tiers["make test-all"] = []
    for name, arguments in tiers.items():
        done = subprocess.run([*PYTEST, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        # with several workers, pytest exits as if interrupted at the first failure: the exit status tells nothing
        if failed := [line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]:
            return f"{name}: {failed[0].partition(' - ')[0]}"
    return ""


def main(arguments: list[str]) -> int:
    """Print each fault and the test that finds it. Exit status 1: a fault is not found."""
    if subprocess.run(["git", "diff", "--quiet", "HEAD"], cwd=ROOT, check=False).returncode:
        print("this clone has changes: commit them first")
        return 2
    faults = tomllib.loads(FAULTS.read_text(encoding="utf-8"))["fault"]
    missed = 0
    for number, fault in enumerate(faults, start=1):
        file = f"freeact_sub/{fault['file']}"
        text = (ROOT / file).read_text(encoding="utf-8")
        if text.count(fault["old"]) != 1:
            print(f"{number} {file}: {fault['old']!r} stands there {text.count(fault['old'])} times", flush=True)
            return 2
        try:
            (ROOT / file).write_text(text.replace(fault["old"], fault["new"]), encoding="utf-8")
            found = found_by(file, all_tests="--all" in arguments)
        finally:
            (ROOT / file).write_text(text, encoding="utf-8")
        missed += not found
        print(f"{number} {file}: {fault['old'].strip()} -> {fault['new'].strip()}: {found or 'NOT FOUND'}", flush=True)
    print(f"{len(faults) - missed} of {len(faults)} faults found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
