"""`Skill`: what a folder with `SKILL.md` says. Read leniently: what can be used is, and each fault is one sentence.

Faults are sentences for people. Those that change what a skill does are told at every start (`Skills.problems`); what
another program might refuse is told by `freeact-sub skills check` only.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from freeact_sub.config.frontmatter import BadLineError, Document, read_document
from freeact_sub.config.parsing import prose_of_file
from freeact_sub.config.skill_folders import CODE, SkillFolder
from freeact_sub.errors import sentence
from freeact_sub.skills.signatures import signatures

FIELDS: Final = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
"""The settings that the format has."""
FOR_PEOPLE: Final = "disable-model-invocation"
"""The setting of several programs for a skill that only a person may load."""
NAME_CHARS: Final = 64
DESCRIPTION_CHARS: Final = 1_024
COMPATIBILITY_CHARS: Final = 500
BODY_LINES: Final = 500
"""What the format recommends at most."""
TEXT_CHARS: Final = 100_000
"""Characters of a text that are loaded."""
_SETTING: Final = re.compile(r"([A-Za-z][\w-]*):[ \t]*(.*)")


@dataclass(frozen=True, kw_only=True)
class SkillModule:
    """A module of a skill, as a kernel gets it."""

    name: str
    """After `skills.`; the module of a skill, or one in its package."""
    file: str
    source: str
    is_package: bool = False


@dataclass(frozen=True, kw_only=True)
class Skill:
    """A skill that can be loaded."""

    name: str
    description: str
    text: str
    """What a model reads when it loads the skill."""
    folder: Path
    files: tuple[str, ...] = ()
    """Its other files, by path in the folder."""
    module: str = ""
    """The name of its Python after `skills.`; empty: it has none."""
    modules: tuple[SkillModule, ...] = ()
    signatures: tuple[str, ...] = ()
    """The functions and classes of its Python."""
    for_people: bool = False
    """Models do not see it; a person loads it by `/name`."""


@dataclass(frozen=True, kw_only=True)
class Skills:
    """The skills that were found."""

    skills: Mapping[str, Skill] = field(default_factory=dict)
    """By name."""
    problems: tuple[str, ...] = ()
    """One sentence for each fault."""


@dataclass(kw_only=True)
class _Faults:
    """What is wrong with one skill."""

    told: list[str] = field(default_factory=list)
    """At every start."""
    checked: list[str] = field(default_factory=list)
    """Only when somebody checks the skill."""


def load_skills(folders: Iterable[SkillFolder]) -> Skills:
    """Give skills their meaning; of two with the same name, the first one counts."""
    found: dict[str, Skill] = {}
    problems: list[str] = []
    for folder in folders:
        faults = _Faults()
        skill = _read(folder, faults)
        if skill is not None and skill.name in found:
            faults.told.append(f"{skill.name!r} is left out: {found[skill.name].folder} has the same name")
        elif skill is not None:
            found[skill.name] = skill
        problems += [sentence(f"skill {folder.path}: {fault}") for fault in faults.told]
    return Skills(skills=found, problems=tuple(problems))


def check_skill(folder: SkillFolder) -> list[str]:
    """Return all that the format does not allow, and what is not recommended."""
    faults = _Faults()
    _read(folder, faults)
    return [*faults.told, *faults.checked]


def _read(folder: SkillFolder, faults: _Faults) -> Skill | None:
    """Read a skill. None: it cannot be used; the faults say why."""
    if folder.problem:
        faults.told.append(f"it is left out: {folder.problem}")
        return None
    document = _document(prose_of_file(folder.text), faults)
    head = document.head
    description = _one(head.get("description"))
    if not description:
        faults.told.append("it is left out: it has no `description`, which says what it does and when to use it")
        return None
    name = _name(head, folder, faults)
    if len(description) > DESCRIPTION_CHARS:
        faults.checked.append(f"`description` has {len(description):,} characters; the format allows {DESCRIPTION_CHARS:,}")
    _check_rest(head, document.body, faults)
    text = document.body
    if len(text) > TEXT_CHARS:
        faults.told.append(f"its text is cut after {TEXT_CHARS:,} characters: move parts of it into other files")
        text = f"{text[:TEXT_CHARS]}\n[the rest is in {folder.file}]"
    modules, found = _modules(folder, faults)
    return Skill(
        name=name,
        description=description[:DESCRIPTION_CHARS],
        text=text,
        folder=folder.path,
        files=folder.files,
        module=folder.module if modules else "",
        modules=modules,
        signatures=found,
        for_people=head.get(FOR_PEOPLE) is True,
    )


def _document(text: str, faults: _Faults) -> Document:
    """The head and the body of a text; a head that is not YAML is read line by line."""
    try:
        return read_document(text)
    except BadLineError as error:
        problem = str(error).rstrip(".")
        lines = text.removeprefix("\ufeff").split("\n")
        end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), 0)
        if lines[0].rstrip() != "---" or not end:
            faults.told.append(problem)
            return Document(head={}, body=text.strip())
        faults.told.append(f"line {error.line}: {problem}; its settings are read line by line, as text")
        return Document(head=_by_line(lines[1:end]), body="\n".join(lines[end + 1 :]).strip())


def _by_line(lines: Iterable[str]) -> dict[str, Any]:
    head: dict[str, Any] = {}
    last = ""
    for line in lines:
        if (setting := _SETTING.fullmatch(line.rstrip())) is not None:
            last, value = setting[1], setting[2].strip()
            head[last] = "" if value in (">", "|", ">-", "|-") else value.strip("\"'")
        elif last and line[:1].isspace():
            head[last] = f"{head[last]} {line.strip()}".strip()
    return {name: {"true": True, "false": False}.get(value, value) for name, value in head.items()}


def _one(value: Any) -> str:
    """A setting as text on one line: numbers and words such as `true` are texts where a text is meant."""
    return "" if value is None or isinstance(value, dict | list) else " ".join(str(value).split())


def _name(head: Mapping[str, Any], folder: SkillFolder, faults: _Faults) -> str:
    """The name of a skill: its folder's, where its own cannot be one."""
    own, of_folder = (unicodedata.normalize("NFKC", text) for text in (_one(head.get("name")), folder.path.name))
    problems = problems_of_name(own) if own else ["`name` is missing"]
    if own and own != of_folder:
        problems.append(f"`name` is {own!r}, and the folder has another name")
    usable = own and not re.search(r"[^\w.-]", own) and len(own) <= NAME_CHARS
    name = own if usable else of_folder
    if problems:
        faults.told.append(f"{'; '.join(problems)}: it is used as {name!r}")
    return name


def problems_of_name(name: str) -> list[str]:
    """Return what the format does not allow about a name."""
    problems = []
    if len(name) > NAME_CHARS:
        problems.append(f"`name` has {len(name)} characters; the format allows {NAME_CHARS}")
    if name != name.lower():
        problems.append("`name` has capital letters")
    if not all(char.isalnum() or char == "-" for char in name):
        problems.append("`name` has other characters than letters, digits and `-`")
    if name.startswith("-") or name.endswith("-") or "--" in name:
        problems.append("`name` begins or ends with `-`, or has two together")
    return problems


def _check_rest(head: Mapping[str, Any], body: str, faults: _Faults) -> None:
    """What other programs might refuse, and what is not recommended."""
    unknown = [name for name in head if name not in FIELDS]
    if unknown:
        faults.checked.append(f"the format has no settings {', '.join(map(repr, unknown))}")
    if len(_one(head.get("compatibility"))) > COMPATIBILITY_CHARS:
        faults.checked.append(f"`compatibility` has more than {COMPATIBILITY_CHARS} characters")
    if isinstance(head.get("compatibility"), dict | list):
        faults.checked.append("`compatibility` is not a text")
    if not isinstance(head.get("metadata", {}), dict):
        faults.checked.append("`metadata` is not a table of texts")
    if body.count("\n") >= BODY_LINES:
        faults.checked.append(f"its text has more than {BODY_LINES} lines: parts of it could be files that it names")


def _modules(folder: SkillFolder, faults: _Faults) -> tuple[tuple[SkillModule, ...], tuple[str, ...]]:
    """The Python of a skill, and the signatures of what it offers."""
    if not folder.code:
        return (), ()
    name = folder.module
    if not name.isidentifier():
        faults.told.append(f"its Python cannot be imported: {name!r} is not a name in Python")
        return (), ()
    begin = f"{name}/__init__.py" if f"{name}/__init__.py" in folder.code else CODE
    modules, found = list[SkillModule](), tuple[str, ...]()
    for file, content in folder.code.items():
        if (begin == CODE) != (file == CODE):  # where there is a package, it counts
            continue
        offered, problem = signatures(content)
        if file == begin:
            found = offered
        if problem:
            faults.told.append(f"{file}: {problem}")
            if file == begin:
                return (), ()
        inner = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        modules.append(
            SkillModule(
                name=name if file == begin else inner,
                file=str(folder.path / file),
                source=prose_of_file(content),
                is_package=file.endswith("/__init__.py"),
            )
        )
    return tuple(modules), found
