"""What models read of skills: the catalogue in the system prompt, and the text of a skill that was loaded."""

from collections.abc import Iterable, Mapping
from typing import Final

from freeact_sub.skills.skill import Skill
from freeact_sub.text import one_line, whole_text

DESCRIPTION_CHARS: Final = 1_024
"""Characters of a description in the catalogue."""
CATALOGUE_CHARS: Final = 24_000
"""Characters of all descriptions and signatures together: each request pays for them."""
FILES: Final = 40
"""Files that the text of a skill names."""
HEAD: Final = (
    "\n- Skills, guides to kinds of work. When the description of one fits what you are about to do, load it first, with "
    '`agent.skill("NAME")` in a cell; you read its text before your next step. '
)
CODE: Final = "Functions after `skills.NAME` are imported: `from skills import NAME`. "


def catalogue(skills: Mapping[str, Skill]) -> str:
    """Return what the system prompt says of skills; empty if a model may load none."""
    shown = [skill for skill in skills.values() if not skill.for_people]
    if not shown:
        return ""
    lines, left = list[str](), CATALOGUE_CHARS
    for skill in shown:
        line = f"\n  - {skill.name}: {one_line(skill.description, DESCRIPTION_CHARS)}{_code(skill)}"
        left -= len(line)
        lines.append(line if left >= 0 else f"\n  - {skill.name}")
    head = HEAD + (CODE if any(skill.module for skill in shown) else "")
    return whole_text(head.rstrip() + "".join(lines))


def loaded_text(skill: Skill) -> str:
    """Return the text of a skill for a model, with where its files are."""
    files = f"\n\nFiles in the folder of this skill: {_named(skill.files)}." if skill.files else ""
    code = (
        f"\n\nIts functions: `from skills import {skill.module}`; `help({skill.module})` explains them."
        if skill.module
        else ""
    )
    return whole_text(
        f'<skill name="{skill.name}" folder="{skill.folder}">\n{skill.text}{files}{code}\n</skill>\n'
        "Paths in the skill are relative to its folder, which cannot be written."
    )


def _code(skill: Skill) -> str:
    if not skill.module:
        return ""
    offered = "; ".join(one_line(signature, 240) for signature in skill.signatures)
    return f" [skills.{skill.module}: {offered}]" if offered else f" [skills.{skill.module}]"


def _named(files: Iterable[str]) -> str:
    names = [*map(one_line, files)]
    more = f" and {len(names) - FILES} more" if len(names) > FILES else ""
    return f"{', '.join(names[:FILES])}{more}"
