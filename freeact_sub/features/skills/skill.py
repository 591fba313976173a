"""Agent Skills: folders with instructions, and perhaps Python, for one kind of work, in the open format (agentskills.io).

`config/project_texts.py` reads the folders, as they are trusted. In kernels `kernels/guest/skills.py` makes their Python
importable.

A `Skill` is read leniently from a folder with `SKILL.md`: usable parts are used, and each fault is one sentence for people.
Faults that change the effect of a skill are told at every start (`Skills.problems`); faults for other programs only by
`freeact-sub skills check`. `signatures` reads the functions and classes of a skill's Python from its syntax tree; nothing of
it runs. `catalogue` is the text for models before a skill is loaded, `loaded_text` the text of a loaded one.
"""

import ast
import re
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from freeact_sub.config.frontmatter import BadLineError, Document, read_document
from freeact_sub.config.parsing import prose_of_file
from freeact_sub.config.project_texts import CODE, SkillFolder, SkillModule
from freeact_sub.errors import sentence
from freeact_sub.text import one_line, whole_text

MOST: Final = 12
"""Signatures of one skill."""
CHARS: Final = 240
"""Characters of one signature."""
FIELDS: Final = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
"""Settings of the format."""
FOR_PEOPLE: Final = "disable-model-invocation"
"""The setting of several programs for a skill that only a person may load."""
NAME_CHARS: Final = 64
DESCRIPTION_CHARS: Final = 1_024
"""Characters of a description, in its file and in the catalogue."""
COMPATIBILITY_CHARS: Final = 500
BODY_LINES: Final = 500
"""Lines of the longest text that the format recommends."""
TEXT_CHARS: Final = 100_000
"""Characters of a text that are loaded."""
_SETTING: Final = re.compile(r"([A-Za-z][\w-]*):[ \t]*(.*)")
CATALOGUE_CHARS: Final = 24_000
"""Characters of all descriptions and signatures together: each request pays for them."""
NAMED_FILES: Final = 40
"""Files that the text of a skill names."""
HEAD: Final = (
    "- Skills, guides to kinds of work. When the description of one fits what you are about to do, load it first, with "
    '`agent.skill("NAME")` in a cell; you read its text before your next step. '
)
OF_CODE: Final = "Functions after `skills.NAME` are imported: `from skills import NAME`. "


def signatures(source: bytes) -> tuple[tuple[str, ...], str]:
    """Return the public signatures of a module, and its fault; empty if it has none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the compiler, about the skill's strings
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
        return (), f"it is not Python{line}: {getattr(error, 'msg', error)}"
    chosen = _listed(tree.body)
    found = [
        _signature(node)
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if (node.name in chosen if chosen is not None else not node.name.startswith("_"))
    ]
    more = [f"and {len(found) - MOST} more"] if len(found) > MOST else []
    return (*found[:MOST], *more), ""


def _listed(body: Sequence[ast.stmt]) -> set[str] | None:
    """Return the names in `__all__`; None if the module has none that can be read."""
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        value = getattr(node, "value", None)
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            if isinstance(value, ast.List | ast.Tuple):
                return {item.value for item in value.elts if isinstance(item, ast.Constant) and isinstance(item.value, str)}
            return None
    return None


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str:
    if isinstance(node, ast.ClassDef):
        begin = next((item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None)
        inner = f"({', '.join(_parameters(begin.args, without_first=True))})" if begin is not None else ""
        return f"class {node.name}{inner}"[:CHARS]
    before = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    after = f" -> {_type(node.returns)}" if node.returns is not None else ""
    return f"{before}{node.name}({', '.join(_parameters(node.args))}){after}"[:CHARS]


def _parameters(given: ast.arguments, *, without_first: bool = False) -> list[str]:
    positional = [*given.posonlyargs, *given.args]
    defaults = [*[None] * (len(positional) - len(given.defaults)), *given.defaults]
    found = [_parameter(*pair) for pair in zip(positional, defaults, strict=True)]
    if given.posonlyargs:
        found.insert(len(given.posonlyargs), "/")
    return [*found[1 if without_first and found else 0 :], *_after_positional(given)]


def _after_positional(given: ast.arguments) -> Iterator[str]:
    if given.vararg is not None:
        yield f"*{_parameter(given.vararg, None)}"
    elif given.kwonlyargs:
        yield "*"
    for parameter, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield _parameter(parameter, default)
    if given.kwarg is not None:
        yield f"**{_parameter(given.kwarg, None)}"


def _parameter(parameter: ast.arg, default: ast.expr | None) -> str:
    kind = f": {_type(parameter.annotation)}" if parameter.annotation is not None else ""
    if default is None:
        return f"{parameter.arg}{kind}"
    return f"{parameter.arg}{kind} = {_text(default)}" if kind else f"{parameter.arg}={_text(default)}"


def _text(node: ast.expr) -> str:
    try:
        return ast.unparse(node)[:CHARS]
    except (RecursionError, ValueError):
        return "..."


def _type(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else _text(node)


@dataclass(frozen=True, kw_only=True)
class Skill:
    """A skill that can be loaded."""

    name: str
    description: str
    text: str
    """The text that a model reads when it loads the skill."""
    folder: Path
    files: tuple[str, ...] = ()
    """Other files, by path in the folder."""
    module: str = ""
    """The name of the module after `skills.`; empty if there is none."""
    modules: tuple[SkillModule, ...] = ()
    signatures: tuple[str, ...] = ()
    """The functions and classes of the module."""
    for_people: bool = False
    """Whether models do not see the skill; a person loads it by `/name`."""


@dataclass(frozen=True, kw_only=True)
class Skills:
    """The skills that were found."""

    skills: Mapping[str, Skill] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    """Sentences on the faults, one each."""


@dataclass(kw_only=True)
class _Faults:
    """The faults of one skill."""

    told: list[str] = field(default_factory=list)
    """Faults for every start."""
    checked: list[str] = field(default_factory=list)
    """Faults for somebody who checks the skill."""


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
    """Return everything that the format does not allow, and that is not recommended."""
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
    """Return the head and the body of a text; a head that is not YAML is read line by line."""
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
    """Return a setting as text on one line: numbers and words such as `true` are texts where a text is meant."""
    return "" if value is None or isinstance(value, dict | list) else " ".join(str(value).split())


def _name(head: Mapping[str, Any], folder: SkillFolder, faults: _Faults) -> str:
    """Return the name of a skill: its folder's, where its own cannot be one."""
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
    """Return the faults of a name by the format."""
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


def catalogue(skills: Mapping[str, Skill]) -> str:
    """Return the text about skills for the system prompt; empty if a model may load none."""
    shown = [skill for skill in skills.values() if not skill.for_people]
    if not shown:
        return ""
    lines, left = list[str](), CATALOGUE_CHARS
    for skill in shown:
        line = f"\n  - {skill.name}: {one_line(skill.description, DESCRIPTION_CHARS)}{_code(skill)}"
        left -= len(line)
        lines.append(line if left >= 0 else f"\n  - {skill.name}")
    head = HEAD + (OF_CODE if any(skill.module for skill in shown) else "")
    return whole_text(head.rstrip() + "".join(lines))


def loaded_text(skill: Skill) -> str:
    """Return the text of a skill for a model, with the place of its files."""
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
    more = f" and {len(names) - NAMED_FILES} more" if len(names) > NAMED_FILES else ""
    return f"{', '.join(names[:NAMED_FILES])}{more}"
