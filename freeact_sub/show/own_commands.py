"""A person's own commands: `.agents/commands/NAME.md` is a prompt, sent by `/NAME words`; so is a skill, by its name."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from freeact_sub.config.parsing import prose_of_file
from freeact_sub.skills import Skill
from freeact_sub.text import one_line, visible

ARGUMENTS: Final = "$ARGUMENTS"
MAX_CHARS: Final = 60_000
WORDS_CHARS: Final = 80
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]*")
_HEAD: Final = re.compile(r"---\n(?:(.*?)\n)?---\n", re.DOTALL)
_DESCRIPTION: Final = re.compile(r"^description:\s*(.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class OwnCommand:
    """One of a person's own commands."""

    prompt: str
    words: str
    """The description in its head, or its first line."""
    skill: str = ""
    """The skill that goes before the prompt. Empty: none."""

    def with_arguments(self, arguments: str) -> str:
        """The prompt. Args: arguments: replace `$ARGUMENTS`, or follow the text if that is not in it."""
        if ARGUMENTS in self.prompt:
            return self.prompt.replace(ARGUMENTS, arguments)
        return f"{self.prompt}\n\n{arguments}" if arguments else self.prompt


def own_commands(contents: Mapping[Path, bytes], taken: Collection[str]) -> Mapping[str, OwnCommand]:
    """Return the commands of files by name with `/`; of two with one name, the first one counts.

    Args:
        contents: The contents of the files, see `Config.command_contents`.
        taken: Names that cannot be used.
    """
    found: dict[str, OwnCommand] = {}
    for path, content in contents.items():
        name = f"/{path.stem}"
        if not _NAME.fullmatch(path.stem) or name in taken or name in found:
            continue
        if command := _command(prose_of_file(content)[:MAX_CHARS]):
            found[name] = command
    return found


def skill_commands(skills: Mapping[str, Skill], taken: Collection[str]) -> tuple[dict[str, OwnCommand], list[str]]:
    """Return the commands that load skills, and the names of skills that have none, because another command has it."""
    named = {f"/{name}": skill for name, skill in skills.items() if _NAME.fullmatch(name)}
    found = {
        command: OwnCommand(
            prompt=f"Use the skill {skill.name}.", words=one_line(visible(skill.description), WORDS_CHARS), skill=skill.name
        )
        for command, skill in named.items()
        if command not in taken
    }
    return found, [skill.name for command, skill in named.items() if command in taken]


def skill_of(text: str, commands: Mapping[str, OwnCommand]) -> str:
    """Return the skill that a text begins with; empty if it is none."""
    command = commands.get(text.split(maxsplit=1)[0]) if text.startswith("/") else None
    return "" if command is None else command.skill


def prompt_of(text: str, commands: Mapping[str, OwnCommand]) -> str:
    """Return the prompt that a text stands for: a command's prompt with its arguments, or the text itself."""
    name, *arguments = text.split(maxsplit=1) or [""]
    command = commands.get(name)
    return text if command is None else command.with_arguments("".join(arguments).strip())


def _command(text: str) -> OwnCommand | None:
    head = _HEAD.match(text)
    prompt = text[head.end() if head else 0 :].strip()
    if not prompt:
        return None
    described = _DESCRIPTION.search(head[1] or "") if head else None
    words = described[1].strip("\"'") if described else prompt.partition("\n")[0].lstrip("# ")
    return OwnCommand(prompt=prompt, words=one_line(visible(words), WORDS_CHARS))
