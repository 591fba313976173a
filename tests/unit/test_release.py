"""`scripts/release.py` follows the list of CONTRIBUTING.md, and says which step does not hold."""

import importlib.util
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "scripts/release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("changelog", "problem"),
    [
        ("# Changelog\n\n## [VERSION] - 2026-11-26\n\n## [0.0.1] - 2026-01-01\n", None),
        ("## [VERSION] - unreleased\n", "'unreleased' in the place of the date"),
        ("## [99.0.0] - 2026-11-26\n\n## [VERSION] - 2026-01-01\n", "begins with 99.0.0"),
        ("nothing\n", "begins with no version"),
    ],
)
def test_the_changelog_must_begin_with_the_version(release: ModuleType, changelog: str, problem: str | None) -> None:
    text = changelog.replace("VERSION", PROJECT["version"])
    if problem is None:
        assert release.check_changelog(text) == PROJECT["version"]
    else:
        with pytest.raises(release.StepError, match=re.escape(problem)):
            release.check_changelog(text)


@pytest.mark.process
def test_each_python_that_the_package_names_is_tried(release: ModuleType) -> None:
    named = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", text)]
    assert [*release.SUPPORTED] == named
    with pytest.raises(release.StepError, match="no Python"):
        release.check_supported([sys.executable])


def test_a_wheel_without_its_parts_is_not_ready(
    release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import zipfile

    monkeypatch.setattr(release, "DIST", tmp_path)
    with pytest.raises(release.StepError, match="not one wheel"):
        release.wheel_and_sdist()
    (tmp_path / "x.tar.gz").write_text("")
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as archive:
        archive.writestr("freeact_sub/__init__.pyi", "")
    with pytest.raises(release.StepError, match=r"lacks freeact_sub/py.typed, freeact_sub/tools/definitions/.*, LICENSE"):
        release.check_contents()


@pytest.mark.process
def test_a_program_that_fails_fails_its_step(release: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(release.StepError, match="ended with 3: why not"):
        release.run(sys.executable, "-c", "import sys; print('why not', file=sys.stderr); sys.exit(3)")
    with pytest.raises(release.StepError, match="No such file"):
        release.run(tmp_path / "nothing")
    names = "import os; print(sorted(os.environ))"
    assert "HOME" in release.run(sys.executable, "-c", names, home=tmp_path)
    assert "PYTEST_CURRENT_TEST" not in release.run(sys.executable, "-c", names, home=tmp_path)


def test_all_steps_are_followed_and_one_that_fails_is_told(
    release: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> str:
        raise release.StepError("a reason")

    def steps(*_: Any) -> Iterator[Any]:
        yield from [("first", lambda: "a fact"), ("second", fail), ("third", lambda: "")]

    monkeypatch.setattr(release, "steps", steps)
    monkeypatch.setattr(sys, "argv", ["release.py", "--python", sys.executable])
    assert release.main() == 1
    out = capsys.readouterr().out.splitlines()
    assert out[:3] == ["✓ first: a fact (0 s)", "✗ second: a reason", "✓ third (0 s)"]
    assert out[-1] == "1 step failed: not ready"


@pytest.mark.kernel
def test_the_program_that_is_tried_everywhere_runs(release: ModuleType, tmp_path: Path) -> None:
    assert "completed It is 42." in release.run(sys.executable, "-c", release.PROGRAM, cwd=tmp_path, home=tmp_path)
