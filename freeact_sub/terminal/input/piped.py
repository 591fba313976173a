"""`Piped`: data from standard input that goes along with a prompt."""

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from freeact_sub.config.parsing import UTF16_MARKS
from freeact_sub.errors import ConfigError
from freeact_sub.system.safe_files import write_new
from freeact_sub.terminal.input.mentions import MARKS, MAX_CHARS, MAX_PICTURE_BYTES
from freeact_sub.text import counted, fenced, shortened


@dataclass(frozen=True, kw_only=True)
class Piped:
    """Text, or a picture; nothing if both are empty."""

    text: str = ""
    picture: bytes | None = None
    media_type: str = ""

    @classmethod
    def of(cls, content: bytes) -> Self:
        """Make it from bytes: text or a picture.

        Raises:
            ConfigError: It is neither, or the picture is too large.
        """
        media_type = next((name for name, mark in MARKS.items() if content.startswith(mark)), None)
        if media_type is not None:
            if len(content) > MAX_PICTURE_BYTES:
                limit = f"{MAX_PICTURE_BYTES / 2**20:g} MiB"
                raise ConfigError(f"the picture on standard input has more than {limit}: make it smaller, or name its file")
            return cls(picture=content, media_type=media_type)
        if content.startswith(UTF16_MARKS) and len(content) % 2 == 0:
            return cls(text=content.decode("utf-16", errors="replace"))
        if b"\0" in content:
            raise ConfigError(
                "standard input is neither text nor a picture: save it to a file and name the file in the prompt"
            )
        return cls(text=content.decode("utf-8-sig", errors="replace"))

    def section(self, workspace: Path, folder: Path) -> list[str]:
        """Return the text for a prompt, marked and fenced; a long one is saved to a file.

        Args:
            workspace: The folder that agents work in.
            folder: The folder in it for such files.

        Raises:
            ConfigError: The file cannot be written.
        """
        if not self.text.strip():
            return []
        title, text = "Standard input", self.text.rstrip("\n")
        if len(text) > MAX_CHARS:
            file = folder / f"standard-input-{secrets.token_hex(4)}.txt"
            try:
                write_new(file, self.text.encode(errors="replace"), root=workspace)
            except (OSError, ValueError) as error:
                raise ConfigError(f"cannot keep the text of standard input in {file}: {error}") from error
            size = counted(len(text), "character")
            title += f", its beginning and its end; all of it, {size}, is in the file {file.relative_to(workspace)}"
            text = shortened(text, MAX_CHARS)
        return [f"[{title}:]\n{fenced(text)}"]
