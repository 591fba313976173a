"""A person's own commands: `.agents/commands/NAME.md` is a prompt, sent by `/NAME words`."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from freeact_sub.system.safe_files import files_in, read_file
from freeact_sub.text import one_line, visible

ARGUMENTS: Final = "$ARGUMENTS"
MAX_CHARS: Final = 60_000
WORDS_CHARS: Final = 80
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]*")
_HEAD: Final = re.compile(r"---\n(?:(.*?)\n)?---\n", re.DOTALL)
_DESCRIPTION: Final = re.compile(r"^description:\s*(.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class OwnCommand:
    """One of them."""

    prompt: str
    words: str
    """The description in its head, or its first line."""

    def with_arguments(self, arguments: str) -> str:
        """The prompt. Args: arguments: stand for `$ARGUMENTS`; where that is not in it, they follow it."""
        if ARGUMENTS in self.prompt:
            return self.prompt.replace(ARGUMENTS, arguments)
        return f"{self.prompt}\n\n{arguments}" if arguments else self.prompt


def own_commands(folders: Iterable[Path], taken: Collection[str]) -> Mapping[str, OwnCommand]:
    """The commands of folders, by name with its `/`; those of the first folder win. It reads files.

    Args:
        folders: The most specific first. What cannot be read is left out.
        taken: Names that cannot be used.
    """
    found: dict[str, OwnCommand] = {}
    for folder in folders:
        for path in files_in(folder, ".md"):
            name = f"/{path.stem}"
            if not _NAME.fullmatch(path.stem) or name in taken or name in found:
                continue
            try:
                text = read_file(path).decode(errors="replace")
            except OSError:
                continue
            if command := _command(text[:MAX_CHARS].replace("\r\n", "\n")):
                found[name] = command
    return found


def _command(text: str) -> OwnCommand | None:
    head = _HEAD.match(text)
    prompt = text[head.end() if head else 0 :].strip()
    if not prompt:
        return None
    described = _DESCRIPTION.search(head[1] or "") if head else None
    words = described[1].strip("\"'") if described else prompt.partition("\n")[0].lstrip("# ")
    return OwnCommand(prompt=prompt, words=one_line(visible(words), WORDS_CHARS))
