"""Optional packages, ours (`[project.optional-dependencies]`) and the providers': the missing ones, and their commands.

Commands name this Python and the packages themselves, so that they work in any folder.
"""

import shlex
import sys
from importlib.util import find_spec
from typing import Final

from freeact_sub.errors import ConfigError

DISTRIBUTION: Final = "freeact-sub"
MODELS: Final = "pydantic-ai-slim"
"""The package whose extras have the names of providers."""


def require_extra(package: str, *, extra: str, needed_by: str) -> None:
    """Check that a package of an extra is installed, before it is imported.

    Args:
        package: The name by which it is imported.
        extra: The extra that installs it.
        needed_by: The subject of the sentence: the command or setting that uses it.

    Raises:
        ConfigError: The package is not installed.
    """
    if not is_installed(package):
        raise ConfigError(f"{needed_by} needs the package {package}, which is not installed: run `{how_to_install(extra)}`")


def is_installed(package: str) -> bool:
    """Return whether a package can be imported. Args: package: the name by which it is imported."""
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):  # the package that it is in is missing
        return False


def how_to_install(extra: str) -> str:
    """Return the command that installs one of our extras."""
    return shlex.join(install_command(*_requirements(extra)))


def how_to_install_provider(extra: str) -> str:
    """Return the command that installs the packages of a provider's models. Args: extra: of pydantic-ai."""
    return shlex.join(install_command(provider_requirement(extra)))


def install_command(*requirements: str) -> list[str]:
    """Return the command that installs packages for this Python: by pip, or by uv in an environment that has no pip."""
    import shutil  # noqa: PLC0415  # each start imports this module, and installs nothing

    uv = None if is_installed("pip") else shutil.which("uv")
    words = [sys.executable, "-m", "pip", "install"] if uv is None else [uv, "pip", "install", "--python", sys.executable]
    return [*words, *requirements]


def provider_requirement(extra: str) -> str:
    """Return the requirement for a provider's models: of the installed pydantic-ai, so that nothing else changes."""
    import importlib.metadata  # noqa: PLC0415  # slow

    return f"{MODELS}[{extra}]=={importlib.metadata.version(MODELS)}"


def _requirements(extra: str) -> list[str]:
    import importlib.metadata  # noqa: PLC0415  # slow
    import re  # noqa: PLC0415

    try:
        needed = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:  # run from a source tree
        return [f"{DISTRIBUTION}[{extra}]"]
    found = [text.partition(";") for text in needed]
    return [what.strip() for what, _, marker in found if re.search(rf"""extra\s*==\s*["']{extra}["']""", marker)]
