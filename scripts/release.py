"""Follows the release checklist: what is built, what it says of itself, and whether it works where nothing else is.

    python scripts/release.py             # tries the wheel on each Python from 3.11 on that it finds
    python scripts/release.py --python python3.12

It changes nothing but dist/ and uploads nothing. The exit status is 0 if the release is ready.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
DIST: Final = ROOT / "dist"
CORE_MB: Final = 200
"""The most that the wheel and all that it needs may take on disk, without any extra."""
SUPPORTED: Final = ("3.11", "3.12", "3.13")
SECONDS: Final = 900
PROGRAM: Final = """
from pydantic_ai.messages import ToolCallPart
from freeact_sub import Agent, Config
from freeact_sub.testing import ScriptedModel

turns = [ToolCallPart("execute_ipython_cell", {"code": "print(6 * 7)"}), "It is 42."]
result = Agent(Config(headless="allow"), model=ScriptedModel(turns)).run_sync("How much is 6 * 7?")
print(result.status, result.text)
"""
"""An agent runs a cell: without a key, and without the network."""


class StepError(Exception):
    """A step of the checklist does not hold; the message says why."""


def main() -> int:
    """Follow the list, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--python", action="append", metavar="PATH", help="try the wheel on this Python (default: all found)"
    )
    pythons = parser.parse_args().python or [*found_pythons()]
    failed = 0
    with tempfile.TemporaryDirectory(prefix="freeact-release-") as folder:
        for name, step in steps(Path(folder), pythons):
            began = time.monotonic()
            try:
                said = step()
            except StepError as error:
                failed += 1
                print(f"✗ {name}: {error}", flush=True)
            else:
                print(f"✓ {name}{f': {said}' if said else ''} ({time.monotonic() - began:.0f} s)", flush=True)
    print(
        f"\n{failed} {'step' if failed == 1 else 'steps'} failed: not ready"
        if failed
        else f"\nReady: upload {DIST.name}/*, then tag v{version()}"
    )
    return 1 if failed else 0


def steps(folder: Path, pythons: Sequence[str]) -> Iterator[tuple[str, Callable[[], str]]]:
    """The list: each step's name, and what does it. It returns a fact for people. Raises StepError if it does not hold."""
    yield "all changes are committed", check_committed
    yield "the version is the newest of the changelog", check_changelog
    yield "the package is built", lambda: build(folder)
    yield (
        "its description can be shown by an index",
        lambda: check_description(folder),
    )
    yield "it carries its license, its types and its tools", check_contents
    yield "each supported Python is tried", lambda: check_supported(pythons)
    for number, python in enumerate(pythons):
        place = folder / f"try-{number}"
        yield (
            f"it installs and runs an agent on {version_of(python)}",
            lambda python=python, place=place: try_wheel(python, place),
        )
    if uvx := shutil.which("uvx"):
        yield "uvx starts it", lambda: run(uvx, "--from", str(wheel_and_sdist()[0]), "freeact-sub", "--version").strip()


def version() -> str:
    """The version in pyproject.toml."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


def check_committed() -> str:
    """Git knows all files as they are."""
    if changed := run("git", "status", "--porcelain", cwd=ROOT).splitlines():
        raise StepError(f"{len(changed)} files differ, such as {changed[0].split()[-1]}")
    return run("git", "rev-parse", "--short", "HEAD", cwd=ROOT).strip()


def check_changelog(changelog: str | None = None) -> str:
    """The first version of CHANGELOG.md is ours, has a date, and is that of the package too."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8") if changelog is None else changelog
    first = re.search(r"^## \[([^\]]+)\] - (\S+)$", text, re.MULTILINE)
    if first is None or first[1] != version():
        raise StepError(f"CHANGELOG.md begins with {first[1] if first else 'no version'}, pyproject.toml has {version()}")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", first[2]):
        raise StepError(f"CHANGELOG.md says {first[2]!r} in the place of the date of {first[1]}")
    if f'__version__ = "{version()}"' not in (ROOT / "freeact_sub/__init__.py").read_text(encoding="utf-8"):
        raise StepError("freeact_sub/__init__.py has another version")
    return version()


def build(folder: Path) -> str:
    """`python -m build`, in an environment of its own; what was in dist/ is removed first."""
    environment = folder / "tools"
    run(sys.executable, "-m", "venv", str(environment))
    run(str(environment / "bin/python"), "-m", "pip", "install", "--quiet", "build", "twine")
    shutil.rmtree(DIST, ignore_errors=True)
    run(str(environment / "bin/python"), "-m", "build", "--outdir", str(DIST), str(ROOT))
    return ", ".join(f"{path.name} ({path.stat().st_size / 1e6:.1f} MB)" for path in wheel_and_sdist())


def check_description(folder: Path) -> str:
    """`twine check`, of the environment that `build` has made."""
    run(folder / "tools/bin/twine", "check", "--strict", *wheel_and_sdist())
    return "by twine"


def wheel_and_sdist() -> tuple[Path, Path]:
    """The two files in dist/."""
    wheels, sdists = [*DIST.glob("*.whl")], [*DIST.glob("*.tar.gz")]
    if len(wheels) != 1 or len(sdists) != 1:
        raise StepError("there is not one wheel and one sdist in dist/")
    return wheels[0], sdists[0]


def check_contents() -> str:
    """What the wheel must have besides code."""
    with zipfile.ZipFile(wheel_and_sdist()[0]) as archive:
        names = archive.namelist()
    tools = [f"freeact_sub/tools/definitions/{path.name}" for path in (ROOT / "tools").glob("*.json")]
    wanted = ["freeact_sub/py.typed", "freeact_sub/__init__.pyi", *tools]
    missing = [name for name in wanted if name not in names]
    if not any(name.endswith("/licenses/LICENSE") for name in names):
        missing.append("LICENSE")
    if missing:
        raise StepError(f"the wheel lacks {', '.join(missing)}")
    return f"{len(names)} files"


def check_supported(pythons: Sequence[str]) -> str:
    """Of each Python that pyproject.toml names, there is one."""
    there = {version_of(python).rpartition(".")[0] for python in pythons}
    if missing := [each for each in SUPPORTED if each not in there]:
        raise StepError(f"no Python {', '.join(missing)} was found: name one by --python PATH")
    return ", ".join(sorted(there))


def try_wheel(python: str, place: Path) -> str:
    """Installs the wheel where nothing else is, in an empty home, and runs an agent."""
    home = place / "home"
    home.mkdir(parents=True)
    run(python, "-m", "venv", str(place / "venv"))
    program = place / "venv/bin/python"
    before = size_of(place / "venv")
    run(str(program), "-m", "pip", "install", "--quiet", "--no-compile", str(wheel_and_sdist()[0]))
    megabytes = (size_of(place / "venv") - before) / 1e6
    said = run(str(program), "-c", PROGRAM, cwd=home, home=home)
    if "completed It is 42." not in said:
        raise StepError(f"an agent said {said!r}")
    run(str(program.with_name("freeact-sub")), "doctor", "--model", "test", cwd=home, home=home)
    run(str(program), "-m", "pip", "check")
    if megabytes >= CORE_MB:
        raise StepError(f"it takes {megabytes:.0f} MB, {CORE_MB} are allowed")
    return f"{megabytes:.0f} MB"


def size_of(folder: Path) -> int:
    """The bytes of all files below a folder, without what Python compiles."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and path.suffix != ".pyc")
    return sum(path.stat().st_size for path in files)


def found_pythons() -> Iterator[str]:
    """One Python of each version from 3.11 on: of the path, of pyenv."""
    found: dict[str, str] = {}
    names = (f"python3.{minor}" for minor in range(11, 15))
    places = [path for name in names if (path := shutil.which(name))]
    places += map(str, sorted(Path.home().glob(".pyenv/versions/3.1[1-9].*/bin/python")))
    for python in places:
        try:
            found.setdefault(version_of(python).rpartition(".")[0], python)
        except StepError:  # a shim of a version that is not installed
            continue
    yield from (found[version] for version in sorted(found))


def version_of(python: str) -> str:
    """Such as 3.12.4."""
    return run(python, "-c", "import platform; print(platform.python_version())").strip()


def run(*command: str | Path, cwd: Path | None = None, home: Path | None = None) -> str:
    """The standard output of a program. Raises StepError.

    Args:
        command: Its words.
        cwd: Where it runs.
        home: Its environment has nothing but this home.
    """
    environment = None if home is None else {"HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    try:
        done = subprocess.run(
            [str(word) for word in command],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StepError(str(error)) from error
    if done.returncode:
        last = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()][-3:]
        raise StepError(f"{Path(str(command[0])).name} ended with {done.returncode}: {' / '.join(last)}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
