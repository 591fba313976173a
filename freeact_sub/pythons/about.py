"""Facts about a Python that runs kernels; ipykernel is lent to it if it has none.

Modules of our own environment work in another Python if both have the same ABI: a compiled module (pyzmq) loads nowhere
else. They come after everything that the other Python has itself, and only those that ipykernel needs: `lender.py` finds
them there by name.
"""

import asyncio
import functools
import importlib.metadata
import json
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from freeact_sub.errors import UnusablePythonError
from freeact_sub.pythons import installed

OLDEST: Final = (3, 11)
"""The oldest Python that can run kernels: our code in them is written for it."""
OLDEST_IPYKERNEL: Final = 6
NOTABLE: Final = ("numpy", "pandas", "polars", "matplotlib", "scikit-learn", "torch")
"""Packages whose presence decides how code is written."""
LENT: Final = ("ipykernel", "cloudpickle")
"""Packages that a Python is lent, with all that they depend on."""
ASK_SECONDS: Final = 10.0


@dataclass(frozen=True, kw_only=True)
class Installed:
    """A Python's answer about itself (`installed.py`)."""

    own: list[str]
    """Files and folders of the Python, of its packages, and of the modules that it is lent."""
    editable: list[str]
    """Folders of packages that are installed elsewhere (editable)."""
    version: str
    abi: str
    packages: Mapping[str, str]
    """The versions of its packages, by name."""
    lent: "Lent | None" = None
    """Modules that it has to be lent."""


@dataclass(frozen=True, kw_only=True)
class Lent:
    """Modules of ours that another Python imports."""

    folders: tuple[str, ...]
    modules: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()

    def wire(self) -> str:
        """Return the text that `lender.py` reads."""
        return json.dumps({"folders": self.folders, "modules": self.modules, "packages": self.packages})


@dataclass(kw_only=True)
class _Package:
    """A package of our own environment."""

    version: str
    folder: str
    modules: set[str] = field(default_factory=set)
    needs: list[tuple[str, str]] = field(default_factory=list)
    """Names of required packages, each with the versions that will do."""


@functools.cache
def installed_in(python: str) -> Installed:
    """Ask a Python that runs kernels for its installed packages.

    Raises:
        UnusablePythonError: It cannot run kernels; the message says why, and the way out.
    """
    if python == sys.executable:
        return Installed(**installed.describe())
    script = Path(installed.__file__)
    try:
        # in the root folder: where it starts is on its path
        ran = subprocess.run([python, "-E", str(script)], capture_output=True, timeout=ASK_SECONDS, check=True, cwd="/")
        found = Installed(**_answer_in(ran.stdout))
    except subprocess.CalledProcessError as error:
        if version := _old_version(python):
            raise _too_old(python, version) from error
        said = error.stderr.decode(errors="replace").strip().splitlines()
        raise _unusable(python, said[-1] if said else f"it ended with exit code {error.returncode}") from error
    except subprocess.TimeoutExpired as error:
        raise _unusable(python, f"it was not ready after {ASK_SECONDS:g} s") from error
    except OSError as error:
        raise _unusable(python, error.strerror or str(error)) from error
    except (ValueError, TypeError) as error:
        raise _unusable(python, "it is not Python") from error
    lent = lent_to(python, found)
    return replace(found, own=[python, *found.own, *(lent.folders if lent else ())], lent=lent)


def _answer_in(printed: bytes) -> dict[str, Any]:
    """Return the object that `installed.py` printed. Raises: ValueError: There is none.

    A Python may print more around it, since a company, a profiler or a coverage tool may run code at its start.
    """
    for line in reversed(printed.splitlines()):
        with suppress(ValueError):
            answer = json.loads(line)
            if isinstance(answer, dict) and "version" in answer:
                return answer
    raise ValueError("it says nothing of itself")


def _old_version(python: str) -> str:
    """Return the version of a Python that is too old to run `installed.py`; empty: new enough, or unknown."""
    code = r"import sys; print('\nPython %d.%d.%d' % tuple(sys.version_info[:3]))"
    try:
        ran = subprocess.run([python, "-E", "-c", code], capture_output=True, timeout=ASK_SECONDS, check=True, cwd="/")
    except (OSError, subprocess.SubprocessError):
        return ""
    found = re.search(r"^Python ((\d+)\.(\d+)\.\d+)\r?$", ran.stdout.decode(errors="replace"), re.MULTILINE)
    return found[1] if found and (int(found[2]), int(found[3])) < OLDEST else ""


def packages_text(packages: Mapping[str, str], *, missing: bool = False) -> str:
    """Return the notable packages with their versions. Args: missing: absent ones too, without a version."""
    if missing:
        return ", ".join(name for name in NOTABLE if name not in packages)
    return ", ".join(f"{name} {packages[name]}" for name in NOTABLE if name in packages)


@functools.cache
def version_and_packages(python: str) -> tuple[str, Mapping[str, str]]:
    """Return the versions of a Python and of its packages. Raises: see `installed_in`."""
    if python == sys.executable:  # a tenth of the time
        return platform.python_version(), installed.packages_in(sys.path)
    found = installed_in(python)
    return found.version, found.packages


def for_model(python: str) -> str:
    """Return a sentence for a model on the Python that runs its code. Empty: no answer; its kernel will say why."""
    try:
        version, packages = version_and_packages(python)
    except UnusablePythonError:
        return ""
    has, lacks = packages_text(packages), packages_text(packages, missing=True)
    parts = [f"with {has}" if has else "", f"without {lacks}" if lacks else ""]
    return f"It runs Python {version} ({python}), {' and '.join(filter(None, parts))}."


async def lent(python: str) -> Lent | None:
    """Return the modules that a Python is lent; asks it in a thread, and notices its removal. Raises: see `installed_in`."""
    if python == sys.executable:
        return None
    if shutil.which(python) is None:
        raise _unusable(python, "it does not exist, or it is not a program")
    return (await asyncio.to_thread(installed_in, python)).lent


def lent_to(python: str, found: Installed) -> Lent | None:
    """Return the modules that a Python needs of ours.

    Raises:
        UnusablePythonError: It is too old; or it has no ipykernel, and ours does not work in it.
    """
    if tuple(map(int, found.version.split(".")[:2])) < OLDEST:
        raise _too_old(python, found.version)
    has = found.packages.get("ipykernel")
    if has is not None:
        if int(has.partition(".")[0]) < OLDEST_IPYKERNEL:
            raise _unusable(python, f"its ipykernel {has} is too old: install {OLDEST_IPYKERNEL} or newer there")
        return None
    if found.abi != installed_in(sys.executable).abi:
        raise NoIpykernelError(
            f"{python} (Python {found.version}) has no ipykernel, and that of freeact-sub works only in Python "
            f"{sys.version_info[0]}.{sys.version_info[1]}: install ipykernel there"
        )
    ours = _ours()
    lent = {name: package for name, package in ours.items() if name not in found.packages}
    for package in lent.values():
        for need, versions in package.needs:
            there = found.packages.get(need)
            if there is not None and not _fits(there, versions):
                raise NoIpykernelError(
                    f"{python} has no ipykernel, and that of freeact-sub does not work with its {need} {there} "
                    f"(it needs {versions}): install ipykernel there"
                )
    return Lent(
        folders=tuple(sorted({package.folder for package in lent.values()})),
        modules=tuple(sorted({module for package in lent.values() for module in package.modules})),
        packages=tuple(sorted(lent)),
    )


class NoIpykernelError(UnusablePythonError):
    """A Python that lacks only ipykernel to run kernels."""


def _too_old(python: str, version: str) -> UnusablePythonError:
    return _unusable(python, f"it is Python {version}, and cells need {'.'.join(map(str, OLDEST))} or newer")


def _unusable(python: str, why: str) -> UnusablePythonError:
    return UnusablePythonError(f"{python} cannot run cells: {why}")


def _fits(version: str, versions: str) -> bool:
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415  # rarely needed
    from packaging.version import InvalidVersion  # noqa: PLC0415

    try:
        return SpecifierSet(versions).contains(version, prereleases=True)
    except InvalidVersion:
        return False


@functools.cache
def _ours() -> Mapping[str, _Package]:
    """Return the packages that `LENT` names, and all that they need, by name."""
    from packaging.requirements import Requirement  # noqa: PLC0415

    found: dict[str, _Package] = {}
    to_come = list(LENT)
    while to_come:
        name = installed.normalized(to_come.pop())
        if name in found:
            continue
        distribution = importlib.metadata.distribution(name)
        package = found[name] = _Package(version=distribution.version, folder=str(distribution.locate_file("")))
        package.modules.update(_modules_of(distribution))
        for requirement in map(Requirement, distribution.requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                package.needs.append((installed.normalized(requirement.name), str(requirement.specifier)))
                to_come.append(requirement.name)
    return found


def _modules_of(distribution: importlib.metadata.Distribution) -> Iterator[str]:
    """Yield the importable names of a distribution; some are files that nobody imports."""
    lines = (distribution.read_text("RECORD") or "").splitlines()
    for top in {line.partition(",")[0].partition("/")[0] for line in lines}:
        name = top.partition(".")[0]
        if name.isidentifier() and not top.endswith((".dist-info", ".libs", ".data", ".pth")):
            yield name
