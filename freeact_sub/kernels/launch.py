"""`Launcher`: starts, interrupts and kills the process of one kernel; all differences between places are here.

`private_environment` has the variables that turn programs to a kernel's own folder, and away from the user's home.
"""

import asyncio
import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from freeact_sub.kernels.files import OwnFiles
from freeact_sub.kernels.forkserver.branches import Branches
from freeact_sub.kernels.kernel import KernelSpec
from freeact_sub.kernels.wire.channels import KernelChannels

USER_FOLDERS: Final = {"IPYTHONDIR": "ipython", "XDG_CACHE_HOME": "cache", "XDG_CONFIG_HOME": "config"}
LIBRARY_FOLDERS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "MPLCONFIGDIR": ("matplotlib", (".config/matplotlib/matplotlibrc", ".config/matplotlib/stylelib")),
    "KERAS_HOME": ("keras", (".keras",)),
    "DASK_CONFIG": ("dask", (".config/dask",)),
}
"""Variables of libraries that make files in the home folder when they are imported, each with a folder of the kernel's own,
and the entries in the home of a user who has set the library up."""


class Launcher(Protocol):
    """A launcher of one kernel, once."""

    has_guest: bool
    """Whether `agent` exists in the kernel from the start. False: a first cell installs it."""
    greets: bool
    """Whether the kernel greets a subscriber to iopub, and not before it is ready for a cell (`KernelClient.open`)."""
    exited: asyncio.Future[str] | None
    """A future with the reason of the process's end."""

    @property
    def own_files(self) -> OwnFiles | None:
        """The kernel's copy of the workspace, if any."""
        ...

    @property
    def scratch(self) -> Path | None:
        """The kernel's own writable folder on this machine, if any."""
        ...

    async def launch(self) -> KernelChannels:
        """Starts the process. It need not be ready: the client waits for it.

        Raises:
            KernelStartError: It cannot be started; the message says why.
        """
        ...

    async def settle(self) -> None:
        """Called once when the kernel is ready, before any code runs in it.

        Raises:
            KernelStartError: The kernel does not work as expected.
        """
        ...

    async def interrupt(self) -> None:
        """Interrupts the kernel."""
        ...

    async def kill(self) -> None:
        """Ends the process and everything it has started, within a few seconds. Can be called again, and before `launch`."""
        ...

    async def aclose(self, *, lost: bool) -> None:
        """Removes the kernel's files, after `kill`. Args: lost: the process had ended by itself."""
        ...

    def log_tail(self) -> str:
        """Returns the tail of the process's standard streams, if it can be read."""
        ...

    def branch(self, spec: KernelSpec, branches: Branches) -> "Launcher":
        """Returns a launcher for a branch of the live kernel.

        Args:
            spec: The settings of the branch.
            branches: The branches of the kernel; they have it fork itself.

        Raises:
            KernelBranchError: The kernel cannot be branched; the message says why.
        """
        ...


def home_of(spec: KernelSpec) -> Path:
    """Returns the home folder that a kernel's programs see."""
    return Path(spec.environment.get("HOME") or Path.home())


def private_environment(spec: KernelSpec, private: Path) -> Mapping[str, str]:
    """Returns variables for a kernel. Behind a wall the user's folders cannot be written.

    Where a person is asked about code, the files that a library makes when it is imported would be a row of questions.
    They are shared with no other program, for some of them name code to load.

    Args:
        spec: The kernel's settings.
        private: The kernel's temporary folder.
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
    """Makes the folders that these variables name, with a copy of matplotlib's list of the user's fonts."""
    for folder in variables.values():
        Path(folder).mkdir(parents=True, exist_ok=True)
    if "MPLCONFIGDIR" in variables:
        for path in (home / ".cache/matplotlib").glob("fontlist-*.json"):
            with contextlib.suppress(OSError):
                shutil.copyfile(path, Path(variables["MPLCONFIGDIR"], path.name))
