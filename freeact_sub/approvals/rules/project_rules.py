"""`ProjectRules`: the file of the project's rules, to which the decision "always in this project" adds.

Code in the workspace may have changed the file since it was read. What it wrote must not count as looked at because a
person has answered a question: then nothing is added, and a notice says why.
"""

import asyncio
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from freeact_sub.approvals.policy import with_rule
from freeact_sub.config.schema import PERMISSIONS_FILE
from freeact_sub.config.trust import Trust
from freeact_sub.errors import ConfigError
from freeact_sub.system.daemon_threads import DaemonThreads
from freeact_sub.system.safe_files import MAX_BYTES, beneath, make_folder, replace_beneath

SAVE_SECONDS: Final = 10.0
"""Bound on the wait for the disk."""
_saving: Final = DaemonThreads("saves rules")


class ProjectRules:
    """Adds rules to the file of one project."""

    def __init__(self, workspace: Path, trust: Trust) -> None:
        """Notes the file's present content. Args: workspace: the project. trust: records what is written."""
        self._workspace = workspace
        self._path = workspace / PERMISSIONS_FILE
        self._trust = trust
        self._known = self._content()
        self._lock = threading.Lock()

    async def allow_in_time(self, patterns: Iterable[str]) -> None:
        """Does what `allow` does, in a thread: the event loop does not wait for the disk.

        Raises:
            ConfigError: As by `allow`, or the disk does not answer.
        """
        saving = asyncio.get_running_loop().run_in_executor(_saving, self.allow, tuple(patterns))
        done, _ = await asyncio.wait({saving}, timeout=SAVE_SECONDS)
        if not done:
            raise ConfigError(f"{self._path} could not be written within {SAVE_SECONDS:g} s")
        saving.result()

    def allow(self, patterns: Iterable[str]) -> None:
        """Adds patterns to the `allow` list. Can be called in any thread.

        Raises:
            ConfigError: The file cannot be written, or has changed since it was read.
        """
        with self._lock:  # two answers may come at the same time
            self._allow(patterns)

    def _allow(self, patterns: Iterable[str]) -> None:
        content = new = self._content()
        trusted = content is None or self._trust.knows(self._path, content)
        if content != self._known and not trusted:
            raise ConfigError(
                f"{self._path} has changed since a person last reviewed it: start the program again to review it"
            )
        link = next((path for path in (self._path.parent, self._path) if path.is_symlink()), None)
        if link is not None:
            raise ConfigError(f"{link} is a symbolic link: rules are not written through one")
        for text in patterns:
            new = with_rule(new or b"", "allow", text, self._path)
        if new is None or new == content:
            return
        try:
            make_folder(self._path.parent)
            replace_beneath(self._workspace, self._path, new)
        except OSError as error:
            raise ConfigError(f"cannot write {self._path}: {error.strerror}") from error
        self._known = new
        if trusted:
            self._trust.add({self._path: new})

    def _content(self) -> bytes | None:
        try:
            with open(self._path, "rb", opener=beneath(self._workspace)) as file:
                return file.read(MAX_BYTES)
        except OSError:
            return None  # missing, or not to be read: whoever adds to it says why
