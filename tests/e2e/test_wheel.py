"""What is shipped: sdist and wheel, installed into a clean environment, do the demo's work without the repository."""

import ast
import importlib.metadata
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.programs import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.kernel, pytest.mark.mcp, pytest.mark.timeout(900)]

TOOLS = sorted(path.name for path in (ROOT / "tools").glob("*.json"))


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


@dataclass(frozen=True, kw_only=True)
class Built:
    """What was built."""

    sdist: Path
    wheel: Path
    """Built from the repository."""
    wheel_of_sdist: Path
    source: Path
    """The sdist, unpacked."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """No isolated build environment: the build backend is one of the development packages."""
    folder = tmp_path_factory.mktemp("dist")
    hatchling = (sys.executable, "-m", "hatchling", "build")
    run(*hatchling, "-t", "sdist", "-t", "wheel", "-d", folder, cwd=ROOT)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 and later have it
        archive.extractall(folder / "source")
    (source,) = (folder / "source").iterdir()
    run(*hatchling, "-t", "wheel", "-d", folder / "again", cwd=source)
    (wheel_of_sdist,) = (folder / "again").glob("*.whl")
    return Built(sdist=sdist, wheel=wheel, wheel_of_sdist=wheel_of_sdist, source=source)


@dataclass(frozen=True, kw_only=True)
class InstalledWheel:
    """A virtual environment with the wheel in it, and nothing of the repository."""

    folder: Path
    python: Path
    examples: Path
    without_matplotlib: subprocess.CompletedProcess[str]
    """The demo, where its extra is missing."""


def scrubbed(folder: Path) -> dict[str, str]:
    """An environment in which nobody has set anything."""
    return {"PATH": "/usr/bin:/bin", "HOME": str(folder), "TMPDIR": os.environ["TMPDIR"]}


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> InstalledWheel:
    """Offline: the packages that ours needs are those of the environment of the tests, found behind our own."""
    folder = tmp_path_factory.mktemp("clean")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    python = folder / "venv/bin/python"
    examples = (built.source / "examples").rename(folder / "examples")
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check")
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    run(*pip, "--no-index", "--no-deps", built.wheel_of_sdist, cwd=folder, env=environment)
    (site_packages,) = folder.glob("venv/lib/python*/site-packages")
    # a line of a .pth file is a folder to search; the .pth files in it, such as the one that names this repository, are not read
    (site_packages / "needed.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    (folder / "hidden").mkdir()
    (folder / "hidden/sitecustomize.py").write_text("import sys; sys.modules['matplotlib'] = None", encoding="utf-8")
    early = subprocess.run(
        (python, examples / "demo/demo.py"),
        cwd=folder,
        env={**scrubbed(folder), "PYTHONPATH": str(folder / "hidden")},
        capture_output=True,
        text=True,
        check=False,
    )
    return InstalledWheel(folder=folder, python=python, examples=examples, without_matplotlib=early)


def needs_of(distribution: str) -> set[str]:
    return {canonicalize_name(Requirement(text).name) for text in importlib.metadata.requires(distribution) or ()}


def test_imports_of_the_package_are_declared() -> None:
    """The environment of the tests has more than that of a user: what only the tests install must not be imported."""
    declared = needs_of("freeact-sub")
    installed = declared & {canonicalize_name(found.name) for found in importlib.metadata.distributions()}
    for distribution in installed:  # such as pydantic-core, which comes with pydantic
        declared |= needs_of(distribution)
    imported = set()
    for path in (ROOT / "freeact_sub").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                imported.add((node.module or "").partition(".")[0])
    for_people = {"numpy", "pandas"}  # preloaded where the kernel's Python has them
    others = imported - sys.stdlib_module_names - for_people - {"freeact_sub"}
    homes = importlib.metadata.packages_distributions()
    undeclared = {name for name in others if not {canonicalize_name(home) for home in homes.get(name, ())} & declared}
    assert len(others) > 10
    assert undeclared == set()


def test_both_carry_all_that_is_needed(built: Built) -> None:
    assert TOOLS
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"tools/{name}" for name in TOOLS} <= names
    assert {"LICENSE", "README.md", "CHANGELOG.md", "examples/demo/demo.py", "examples/data/ridge.csv"} <= names
    for wheel in (built.wheel, built.wheel_of_sdist):
        with zipfile.ZipFile(wheel) as archive:
            names = set(archive.namelist())
        shipped = {path.relative_to(ROOT).as_posix() for path in (ROOT / "freeact_sub").rglob("*") if path.is_file()}
        shipped = {name for name in shipped if "__pycache__" not in name}
        metadata = {name for name in names if ".dist-info/" in name}
        assert names - metadata == shipped | {f"freeact_sub/tools/definitions/{name}" for name in TOOLS}
        assert any(name.endswith("/licenses/LICENSE") for name in metadata)


def test_without_matplotlib_the_demo_says_what_to_install(installed: InstalledWheel) -> None:
    done = installed.without_matplotlib
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        'demo: matplotlib is missing: run `make demo`, or in the project\'s folder: python -m pip install ".[demo]"\n'
    )


def test_the_demo_runs_from_the_installed_wheel(installed: InstalledWheel) -> None:
    folder, env = installed.folder, scrubbed(installed.folder)
    where = run(
        installed.python, "-c", "import freeact_sub, sys; print(freeact_sub.__file__, *sys.path)", cwd=folder, env=env
    )
    assert where.startswith(str(folder / "venv"))
    assert str(ROOT) not in where.split()

    # the packages of this Python are those of the tests, from a folder that the wall of `auto` would hide
    printed = run(installed.python, installed.examples / "demo/demo.py", "--yes", "--mode", "ask", cwd=folder, env=env)

    assert "The demo is complete." in printed
    assert (folder / "out/report.md").is_file()
    assert (folder / "out/weather.png").is_file()
    assert str(ROOT) not in printed


def test_the_program_is_there(installed: InstalledWheel) -> None:
    program = installed.python.with_name("freeact-sub")
    assert run(program, "--version", cwd=installed.folder, env=scrubbed(installed.folder)).startswith("freeact-sub ")
    assert "run" in run(
        installed.python, "-m", "freeact_sub", "--help", cwd=installed.folder, env=scrubbed(installed.folder)
    )
