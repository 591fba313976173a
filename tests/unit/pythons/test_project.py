"""Which environment is the project's, by its files and the user's variables."""

import base64
import hashlib
import os
import platform
import sys

import pytest
from support.project_environments import make_venv

from freeact_sub.errors import UnusablePythonError
from freeact_sub.pythons.about import installed_in
from freeact_sub.pythons.project import ProjectPython, find_project_python, gone


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A home directory with nothing in it."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def project(home):
    folder = home / "project"
    folder.mkdir()
    return folder


def environment(folder, *, conda=False):
    """An environment, as its files show it; its program would fail if it were run."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").write_text("#!/bin/sh\nexit 99\n")
    (folder / "bin/python").chmod(0o755)
    if conda:
        (folder / "conda-meta").mkdir()
        (folder / "conda-meta/python-3.12.4-h5148396_1.json").write_text("{}")
    else:
        (folder / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.13.2\n")
    return folder


def found(workspace, **variables):
    place = find_project_python(workspace, variables)
    return place if place is None else place.folder


def test_there_may_be_none(project):
    assert found(project) is None
    (project / ".venv").mkdir()
    (project / "venv").mkdir()
    (project / "venv/pyvenv.cfg").touch()
    assert found(project, VIRTUAL_ENV=str(project / "gone"), CONDA_PREFIX=str(project / ".venv")) is None


def test_what_the_user_has_activated_comes_first(project, home):
    environment(project / ".venv")
    active, conda = environment(home / "active"), environment(home / "conda/envs/x", conda=True)
    variables = {"CONDA_PREFIX": str(conda), "CONDA_DEFAULT_ENV": "x"}
    assert find_project_python(project, {**variables, "VIRTUAL_ENV": str(active)}) == ProjectPython(
        folder=active, variable="VIRTUAL_ENV"
    )
    assert find_project_python(project, variables) == ProjectPython(folder=conda, variable="CONDA_PREFIX")
    assert find_project_python(project, {}) == ProjectPython(folder=project / ".venv")


def test_the_base_of_conda_comes_last(project, home):
    base = environment(home / "conda", conda=True)
    variables = {"CONDA_PREFIX": str(base), "CONDA_DEFAULT_ENV": "base"}
    assert found(project, **variables) == base
    environment(project / "venv")
    assert found(project, **variables) == project / "venv"


def test_our_own_environment_is_nobody_elses(project, monkeypatch):
    own = environment(project / ".venv")
    other = environment(project / "venv")
    monkeypatch.setattr(sys, "prefix", str(own))
    assert found(project) is None, "it is the project's, and runs this program"
    assert found(project, VIRTUAL_ENV=str(own)) is None
    assert found(project, VIRTUAL_ENV=str(other)) == other
    elsewhere = project / "x"
    elsewhere.mkdir()
    monkeypatch.setattr(sys, "prefix", str(other))
    assert found(elsewhere, VIRTUAL_ENV=str(other)) == own, "active only because this program runs in it"


@pytest.mark.parametrize("name", [".venv", "venv", ".conda", ".pixi/envs/default"])
def test_the_usual_places(project, name):
    place = environment(project / name, conda=name not in (".venv", "venv"))
    assert found(project) == place
    python = ProjectPython(folder=place)
    assert python.version == ("3.13.2" if name in (".venv", "venv") else "3.12.4")
    assert python.python == f"{place}/bin/python"


def test_the_project_of_a_parent_folder_counts_up_to_the_top_of_its_repository(project, home):
    environment(home / ".venv")
    inner = project / "packages/a/src"
    inner.mkdir(parents=True)
    assert found(inner) is None, "the home directory is no project"
    assert found(home) == home / ".venv", "unless one works in it"
    environment(project / ".venv")
    (project / "packages/a/pyproject.toml").touch()
    assert found(inner) == project / ".venv", "the members of a workspace of uv share one"
    environment(project / "packages/a/.venv")
    assert found(inner) == project / "packages/a/.venv"
    (inner / ".git").mkdir()
    assert found(inner) is None, "another repository"


def test_a_folder_that_others_can_write_names_no_python(project):
    environment(project / ".venv")
    inner = project / "a/b"
    inner.mkdir(parents=True)
    assert found(inner) == project / ".venv"
    project.chmod(0o777)
    assert found(inner) is None
    assert found(project) == project / ".venv"


def test_uv_may_have_another_place(project, home):
    default, other = environment(project / ".venv"), environment(project / "other")
    outside = environment(home / "outside")
    assert found(project, UV_PROJECT_ENVIRONMENT="other") == default, "no project of uv"
    (project / "pyproject.toml").touch()
    assert found(project, UV_PROJECT_ENVIRONMENT="other") == other
    assert found(project, UV_PROJECT_ENVIRONMENT=str(outside)) == outside
    assert found(project, UV_PROJECT_ENVIRONMENT="gone") == default


def test_poetry_keeps_environments_elsewhere(project, home):
    name = base64.urlsafe_b64encode(hashlib.sha256(os.path.realpath(project).encode()).digest()).decode()[:8]
    default, set_, named = home / ".cache/pypoetry/virtualenvs", home / "set/virtualenvs", home / "named"
    for folder in (default, set_, named):
        environment(folder / "other-AAAAAAAA-py3.11")
        environment(folder / f"project-{name}-py3.11")
    assert found(project) is None, "no project of poetry"
    (project / "pyproject.toml").touch()
    assert found(project) == default / f"project-{name}-py3.11"
    assert found(project, POETRY_CACHE_DIR=str(home / "set")) == set_ / f"project-{name}-py3.11"
    assert found(project, POETRY_VIRTUALENVS_PATH=str(named)) == named / f"project-{name}-py3.11"
    settings = home / ".config/pypoetry/config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('cache-dir = "/nowhere"\n[virtualenvs]\npath = "~/named"\n')
    assert found(project) == named / f"project-{name}-py3.11"
    settings.write_text("broken")
    newer = environment(default / f"project-{name}-py3.12")
    os.utime(default / f"project-{name}-py3.11", (1, 1))
    assert found(project) == newer


def test_an_environment_that_is_made_anew_is_another_one(project):
    place = environment(project / ".venv")
    python = ProjectPython(folder=place)
    first = python.identity()
    (place / "lib").mkdir()
    (place / "lib/installed.py").touch()
    assert python.identity() == first, "packages come and go"
    config, status = place / "pyvenv.cfg", (place / "pyvenv.cfg").stat()
    content = config.read_bytes()
    config.unlink()
    config.write_bytes(content)
    os.utime(config, ns=(status.st_atime_ns, status.st_mtime_ns))
    second = python.identity()
    assert second != first, "the same content, made by somebody else"
    (place / "bin/python").unlink()
    (place / "bin/python").symlink_to(sys.executable)
    third = python.identity()
    assert third not in (first, second)


def test_packages_are_read_and_nothing_is_run(project):
    place = environment(project / ".venv")
    packages = place / "lib/python3.13/site-packages"
    for name in ("pandas-2.2.3.dist-info", "Scikit_Learn-1.5.dist-info", "old-1.0-py3.13.egg-info", "numpy", "x.dist-info"):
        (packages / name).mkdir(parents=True)
    assert ProjectPython(folder=place).packages == {"pandas": "2.2.3", "scikit-learn": "1.5", "old": "1.0"}


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_an_environment_that_is_gone_is_named(variable, tmp_path):
    assert gone({}) == gone({variable: ""}) == ""
    assert gone({variable: str(tmp_path / "old")}).startswith(
        f"{variable} names {tmp_path / 'old'}, where there is no Python"
    )
    environment(tmp_path / "new", conda=variable == "CONDA_PREFIX")
    assert gone({variable: str(tmp_path / "new")}) == ""


NOISE = (
    "print('welcome')",
    "import sys; sys.stdout.write('no line end')",
    "print('{}')",
    "import atexit; atexit.register(print, 'bye')",
)


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.process
def test_what_a_python_prints_besides_is_passed_over(noise, project):
    venv = make_venv(project / ".venv", packages=())
    (next((venv / "lib").iterdir()) / "site-packages" / "sitecustomize.py").write_text(f"{noise}\n")
    assert installed_in(str(venv / "bin/python")).version == platform.python_version()


OLD = """#!{python}
import sys
if sys.argv[2] == "-c":
    sys.version_info = (3, 8, 10, "final", 0)
    exec(sys.argv[3])
else:
    raise TypeError("'type' object is not subscriptable")
"""


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("#!/bin/sh\necho hello\n", "it is not Python"),
        ("#!/bin/sh\nexit 3\n", "it ended with exit code 3"),
        (OLD, "it is Python 3.8.10, and cells need 3.11 or newer"),
        ("", "No such file"),
    ],
)
@pytest.mark.process
def test_a_python_that_cannot_run_cells_is_named_with_the_reason(program, why, project):
    path = project / "python"
    if program:
        path.write_text(program.format(python=sys.executable))
        path.chmod(0o755)
    with pytest.raises(UnusablePythonError, match=why):
        installed_in(str(path))
