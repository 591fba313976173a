"""`private_environment`: variables that turn programs to a kernel's own folder, and away from the user's home."""

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from freeact_sub.kernels.kernel import KernelSpec

USER_FOLDERS: Final = {"IPYTHONDIR": "ipython", "XDG_CACHE_HOME": "cache", "XDG_CONFIG_HOME": "config"}
LIBRARY_FOLDERS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "MPLCONFIGDIR": ("matplotlib", (".config/matplotlib/matplotlibrc", ".config/matplotlib/stylelib")),
    "KERAS_HOME": ("keras", (".keras",)),
    "DASK_CONFIG": ("dask", (".config/dask",)),
}
"""Variables of libraries that make files in the home folder when they are imported, each with a folder of the kernel's own,
and what there is in the home of a user who has set the library up."""


def home_of(spec: KernelSpec) -> Path:
    """The home folder that a kernel's programs see."""
    return Path(spec.environment.get("HOME") or Path.home())


def private_environment(spec: KernelSpec, private: Path) -> Mapping[str, str]:
    """Variables for a kernel. Behind a wall the user's folders cannot be written.

    Where code is asked about, what a library makes when it is imported would be a row of questions about nothing that the
    code does; these files are shared with no other program, for some of them name code to load.

    Args:
        spec: The kernel's.
        private: Its temporary folder.
    """
    variables = {"TMPDIR": str(private)}
    walled = spec.sandbox is not None and spec.sandbox.walled
    if walled:
        variables |= {name: str(private / place) for name, place in USER_FOLDERS.items()}
    if walled or spec.audit is not None:
        home = home_of(spec)
        for name, (place, settings) in LIBRARY_FOLDERS.items():
            if walled or not (name in spec.environment or any((home / path).exists() for path in settings)):
                variables[name] = str(private / place)
    return variables


def make_private_folders(variables: Mapping[str, str], home: Path) -> None:
    """Make the folders that these variables name, with a copy of what matplotlib knows of the user's fonts."""
    for folder in variables.values():
        Path(folder).mkdir(parents=True, exist_ok=True)
    if "MPLCONFIGDIR" in variables:
        for path in (home / ".cache/matplotlib").glob("fontlist-*.json"):
            with contextlib.suppress(OSError):
                shutil.copyfile(path, Path(variables["MPLCONFIGDIR"], path.name))
