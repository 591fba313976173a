"""The command `freeact-sub skills`, which lists, checks and begins skills (docs/skills.md)."""

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from freeact_sub.cli.streams import print_line
from freeact_sub.config.project_texts import OWN_SKILLS, PROJECT_SKILLS, TEXTS, SkillFolder, read_skill
from freeact_sub.config.schema import Config, user_folder
from freeact_sub.errors import ConfigError
from freeact_sub.features.skills.skill import Skill, check_skill, load_skills, problems_of_name
from freeact_sub.system.safe_files import is_folder, write_new
from freeact_sub.text import one_line, visible

TEMPLATE: Final = """\
---
name: {name}
description: What this skill does, and when it is to be used. A model chooses by this text.
---

# {title}

Write here what you would tell a capable colleague who does this for the first time: the steps, what they must know of
this project, and how they see that it is right.

Long parts can be files beside this one (`references/...`): name them here, and they are read when they are needed.
Functions can stand in a file `skill.py` beside this one: code then writes `from skills import {module}`.
"""


def run_way(options: argparse.Namespace, settings: Callable[..., Config]) -> int:
    """Carry out `list`, `check` or `new`; return the exit status."""
    if options.way == "new":
        return _new(options.name, settings(looking=True).workspace)
    if options.way == "check" and options.paths:
        return _check(read_skill(path) for path in _folders(options.paths))
    folders = settings(looking=True).skill_contents.values()
    return _check(folders) if options.way == "check" else _list(folders)


def _list(folders: Iterable[SkillFolder]) -> int:
    found = load_skills(folders)
    for skill in found.skills.values():
        print_line(f"{skill.name}: {one_line(skill.description, 200)}{_details(skill)}\n    {skill.folder}")
    if not found.skills and not found.problems:
        places = ", ".join([*map(str, PROJECT_SKILLS), str(user_folder() / OWN_SKILLS), f"~/{PROJECT_SKILLS[0]}"])
        print_line(f"no skills: `freeact-sub skills new NAME` begins one; they are looked for in {places}")
    for problem in found.problems:
        sys.stderr.write(f"freeact-sub: {visible(problem)}\n")
    return 1 if found.problems else 0


def _details(skill: Skill) -> str:
    parts = ["for people only"] if skill.for_people else []
    if skill.module:
        parts.append("; ".join([f"from skills import {skill.module}", *(one_line(text) for text in skill.signatures)]))
    return f" ({'; '.join(parts)})" if parts else ""


def _folders(paths: Iterable[str]) -> list[Path]:
    """Return the folders of skills. Raises: ConfigError: One is no folder."""
    folders = [Path(path).parent if Path(path).name in TEXTS else Path(path) for path in paths]
    for folder in folders:
        if not is_folder(folder):
            raise ConfigError(f"there is no folder {str(folder)!r}: a skill is a folder with {TEXTS[0]}")
    return [folder.absolute() for folder in folders]


def _check(folders: Iterable[SkillFolder]) -> int:
    wrong = False
    for folder in folders:
        faults = check_skill(folder)
        wrong = wrong or bool(faults)
        print_line("\n  ".join([f"{folder.path}: {'not quite right' if faults else 'right'}", *map(visible, faults)]))
    return 1 if wrong else 0


def _new(name: str, workspace: Path) -> int:
    """Begin a skill. Raises: ConfigError: The name is invalid or taken, or the skill cannot be written."""
    if problems := problems_of_name(name):
        raise ConfigError(f"{name!r} is not a name for a skill: {'; '.join(problems)}")
    file = workspace / PROJECT_SKILLS[0] / name / TEXTS[0]
    words = name.replace("-", " ")
    text = TEMPLATE.format(name=name, title=words[:1].upper() + words[1:], module=name.replace("-", "_"))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_new(file, text.encode(), root=workspace)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}") from error
    print_line(f"{file}\nWrite your text into it; `freeact-sub skills check` tells what is wrong with it.")
    return 0
