"""Texts of a session without secrets: small ones in the database, large ones in files named by their digest."""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from freeact_sub.errors import SessionError
from freeact_sub.system.late_secrets import late_secrets

MAX_CHARS: Final = 32_000
"""Characters of a text in the database, at most."""
FILES: Final = "texts"
_MARK: Final = "@sha256:"
"""Precedes the digest of a text in a file; no JSON begins with it."""


class Bodies:
    """The texts of one session."""

    def __init__(self, folder: Path, secrets: Sequence[str] = ()) -> None:
        """Args: folder: the session's own. secrets: values that are never written."""
        self._folder = folder / FILES
        # longest first, since one may be part of another; also in their JSON form
        forms = {form for secret in secrets for form in (secret, _in_json(secret)) if form}
        self._secrets = sorted(forms, key=len, reverse=True)

    def clean(self, text: str) -> str:
        """The text without secrets and lone surrogates."""
        for secret in (*self._secrets, *late_secrets()):
            if secret in text:
                text = text.replace(secret, "[secret]")
        return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")

    def stored(self, text: str) -> str:
        """The database's value for a JSON text; writes a file for a large one."""
        text = self.clean(text)
        if len(text) <= MAX_CHARS:
            return text
        content = text.encode()
        digest = hashlib.sha256(content).hexdigest()
        path = self._folder / digest
        if not path.exists():
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            new = path.with_suffix(".new")
            new.write_bytes(content)
            os.replace(new, path)  # noqa: PTH105  # as the rest: at once, or not at all
        return _MARK + digest

    def text(self, stored: str) -> str:
        """The text of a value in the database.

        Raises:
            SessionError: Its file is missing or was changed.
        """
        if not stored.startswith(_MARK):
            return stored
        digest = stored.removeprefix(_MARK)
        try:
            content = (self._folder / digest).read_bytes()
        except OSError as error:
            raise SessionError(f"a text of the session is missing: {error}") from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise SessionError(f"a text of the session is damaged: {self._folder / digest}")
        return content.decode()


def _in_json(secret: str) -> str:
    """A secret as a JSON string contains it."""
    return json.dumps(secret, ensure_ascii=False)[1:-1]
