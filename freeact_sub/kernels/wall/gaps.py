"""`Gaps` reports once what the wall of a kernel does not cover, or ends the kernel's start if all of it is required."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Iterable

from freeact_sub.config.schema import SETTINGS_FOLDER, own_folders
from freeact_sub.kernels.kernel import KernelSpec
from freeact_sub.kernels.wall import sandbox
from freeact_sub.kernels.wall.repositories import MAX_FOLDERS, Repositories
from freeact_sub.pythons.about import installed_in
from freeact_sub.system.safe_files import make_folder


class Gaps:
    """The gaps of all kernels of one provider."""

    def __init__(self, on_notice: Callable[[str], None]) -> None:
        self._on_notice = on_notice
        self._noticed: set[str] = set()

    async def check(self, spec: KernelSpec) -> Repositories:
        """Finds what the wall of a kernel will not cover, before the kernel starts, and gives notice of it once.

        Returns:
            What the kernel must leave as it is in the folders that it may write.

        Raises:
            KernelStartError: The sandbox is required and cannot be had whole.
        """
        policy = spec.sandbox
        if policy is None:
            return sandbox.NOTHING_KEPT
        if policy.protected:
            with contextlib.suppress(OSError):  # what the host cannot make there, a kernel cannot make either
                make_folder(spec.workspace / SETTINGS_FOLDER)  # the wall protects what is there
            for folder in set(own_folders()).intersection(policy.protected):
                with contextlib.suppress(OSError):
                    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in policy.hidden if policy.walled else ():
            with contextlib.suppress(OSError):  # as above; a sign-in that comes later is hidden, too
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        machine, kept = await asyncio.to_thread(sandbox.look, policy)
        missing = sandbox.check(policy, machine, kept)
        if not kept.complete:
            where = f"among the first {MAX_FOLDERS:,} folders, or not in time"
            missing += (f"repositories of git that were not found {where}, and Python environments in the others",)
        if new := self._new(missing):
            self._on_notice(f"the sandbox of mode `{policy.mode}` does not cover: {'; '.join(new)}")
        if new := self._new(map(str, policy.not_readable)):
            folders = ", ".join(f'"{path}"' for path in new)
            self._on_notice(
                f"code in mode `{policy.mode}` cannot import the packages that are installed in editable form from these "
                f"folders; kernel.readable = [{folders}] lets it"
            )
        for source in self._new(kept.sources):
            self._on_notice(source_notice(source, policy))
        return kept

    def _new(self, texts: Iterable[str]) -> list[str]:
        """The gaps that nobody has reported yet."""
        new = [text for text in texts if text not in self._noticed]
        self._noticed.update(new)
        return new


def source_notice(source: str, policy: sandbox.SandboxPolicy) -> str:
    """Why code cannot change the source of a package that is installed in editable form, and what lets it."""
    steps = {
        "run this program from an environment of its own (`uv tool install`, `pipx`)": sys.executable,
        "set kernel.python to a Python in which it is not installed": policy.python,
    }
    needed = [step for step, python in steps.items() if source in map(os.path.realpath, installed_in(python).editable)]
    needed = needed or ["start the MCP servers in an environment in which it is not installed"]
    return (
        f"code in mode `{policy.mode}` cannot change {source}: it is installed in editable form in a Python that starts "
        f"outside of the sandbox and may import from there. Mode `ask` can change it, and asks you. "
        f"To let mode `{policy.mode}`, {' and '.join(needed)}"
    )
