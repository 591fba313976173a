"""Prints the lowest version of each dependency that `pyproject.toml` allows, as constraints for pip."""

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def lowest(texts: list[str]) -> dict[str, str]:
    """The lowest version of each requirement that names one, by the name of its package.

    Raises:
        ValueError: One names no lowest version.
    """
    found: dict[str, str] = {}
    for requirement in map(Requirement, texts):
        bounds = [bound.version for bound in requirement.specifier if bound.operator in (">=", "==", "~=")]
        if bounds:
            found[requirement.name] = bounds[0]
        elif not requirement.extras:
            raise ValueError(f"{requirement} names no lowest version")
    return found


def requirements() -> list[str]:
    """The requirements of the package and its extras."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    return [*project["dependencies"], *(text for extra in project["optional-dependencies"].values() for text in extra)]


if __name__ == "__main__":
    for name, version in lowest(requirements()).items():
        print(f"{name}=={version}")
