"""Environments of projects, made of the Python that runs the tests and of links to its packages: nothing is downloaded."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

PANDAS = ("pandas", "numpy", "dateutil", "six", "tzdata", "python_dateutil")


def make_venv(folder: Path, *, packages: tuple[str, ...] = PANDAS) -> Path:
    """A virtual environment that has pandas, and neither pip nor ipykernel."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    [place] = folder.glob("lib/python*/site-packages")
    link_packages(place, packages)
    return folder


def make_uv(folder: Path) -> Path:
    """As `uv venv` makes one."""
    make_venv(folder)
    version = ".".join(map(str, sys.version_info[:3]))
    home = Path(os.path.realpath(sys.executable)).parent
    lines = (f"home = {home}", "implementation = CPython", "uv = 0.9.0", f"version_info = {version}")
    (folder / "pyvenv.cfg").write_text("\n".join([*lines, "include-system-site-packages = false", ""]))
    (folder / ".gitignore").write_text("*")
    (folder / "CACHEDIR.TAG").touch()
    return folder


def make_conda(folder: Path) -> Path:
    """In Conda's layout: no `pyvenv.cfg`. The program finds its folders by a variable, for it is no Python of Conda's."""
    venv = make_venv(folder.parent / "made of")
    (folder / "bin").mkdir(parents=True)
    (folder / "conda-meta").mkdir()
    version = ".".join(map(str, sys.version_info[:3]))
    (folder / f"conda-meta/python-{version}-h1_0_cpython.json").write_text(json.dumps({"name": "python"}))
    (folder / "lib").symlink_to(venv / "lib")
    (folder / "bin/python").write_text(f'#!/bin/sh\nexec "{venv}/bin/python" "$@"\n')
    (folder / "bin/python").chmod(0o755)
    return folder


def link_packages(place: Path, names: tuple[str, ...]) -> None:
    """Has an environment find some of our packages, and no other of ours."""
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if entry.name.partition("-")[0].partition(".")[0] in names:
            (place / entry.name).symlink_to(entry)
