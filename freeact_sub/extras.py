"""Our optional packages (`[project.optional-dependencies]`): where one is missing, a person reads one sentence about it."""

from importlib.util import find_spec

from freeact_sub.errors import ConfigError


def require_extra(package: str, *, extra: str, needed_by: str) -> None:
    """Check that a package of an extra is installed, before it is imported.

    Args:
        package: The name by which it is imported.
        extra: The extra that installs it.
        needed_by: The subject of the sentence: the command or setting that uses it.

    Raises:
        ConfigError: It is not installed.
    """
    if find_spec(package) is None:
        raise ConfigError(f"{needed_by} needs the package {package}, which is not installed: {how_to_install(extra)}")


def how_to_install(extra: str) -> str:
    """How to install one of our extras, as the README does."""
    return f'in the folder of freeact_sub, pip install ".[{extra}]"'
