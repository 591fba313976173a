"""Answers of maps in a file (`KeptAnswers`), one JSON object a line, each written at once.

A line is written by one call, and a last line that a kill has cut off is skipped, so no earlier answer is lost.
"""

import hashlib
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from freeact_sub.errors import FreeactError
from freeact_sub.system.safe_files import full_path, replace_file

NAME: Final = "answers.jsonl"
"""The file's name in the folder of a session."""
WRITTEN: Final = "written"
"""The key of the result file's digest."""
HEADER: Final = b'{"freeact_sub": "answers of agent.map", "version": 1}\n'


class KeptAnswers:
    """The answers of one map. Without a file they last as long as this object."""

    def __init__(self, path: Path | None) -> None:
        self._path, self._handle, self._known = path, -1, dict[str, Any]()

    def __enter__(self) -> Self:
        """Open the file and read it.

        Raises:
            FreeactError: The file cannot be read or written, or is not a file of answers.
        """
        if self._path is not None:
            try:
                self._open(full_path(self._path))
            except OSError as error:
                raise FreeactError(f"answers cannot be kept in {self._path}: {error.strerror or error}") from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        del kind, error, trace
        self.close()

    def close(self) -> None:
        """Keep no further answers in the file."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def get(self, key: str) -> Any:
        """Return a kept answer, as JSON has it, if there is one."""
        return self._known.get(key)

    def keep(self, key: str, answer: Any) -> None:
        """Keep an answer. Raises OSError if it cannot be written."""
        self._known[key] = answer
        if self._handle >= 0:
            self._write(json.dumps({"key": key, "answer": answer}).encode() + b"\n")

    def has_written(self, content: bytes) -> bool:
        """Return whether the last result file had this content: nobody has changed it since."""
        return bool(self.get(WRITTEN) == hashlib.sha256(content).hexdigest())

    def write(self, path: Path, content: bytes) -> None:
        """Write a result file, and keep its digest. Raises OSError if it cannot be written."""
        self.keep(WRITTEN, hashlib.sha256(content).hexdigest())
        replace_file(path, content)

    def _open(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        self._handle = os.open(path, flags, 0o600)
        with open(self._handle, "rb", closefd=False) as file:  # a handle, not a path
            content = file.read() or b""
        if not content or (b"\n" not in content and HEADER.startswith(content)):
            os.truncate(self._handle, 0)
            self._write(HEADER)
        elif not content.startswith(HEADER):
            self.close()
            raise FreeactError(f"{path} is a file of something else: name another file for the answers")
        elif not content.endswith(b"\n"):
            self._write(b"\n")
        for line in content.splitlines()[1:]:
            self._read(line)

    def _read(self, line: bytes) -> None:
        try:
            known = json.loads(line)
            self._known[str(known["key"])] = known["answer"]
        except (ValueError, TypeError, KeyError, RecursionError):
            return  # a kill has cut it off

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._handle, data) :]
