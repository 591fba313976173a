"""What the README and the pages of `docs/` name exists: commands and their options, settings, extras, modules, links."""

import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from pydantic import BaseModel
from support.cli import run
from support.programs import ROOT, code_blocks

from freeact_sub.approvals import load_rules
from freeact_sub.config.load import load_config
from freeact_sub.notebook.magic_options import adopt_options, agent_options

BESIDE = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/README.md", "examples/README.md"]
PAGES = [*BESIDE, *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md")))]
OTHER_PROGRAMS = {"--jinja", "--live", "--no-ext-diff", "--no-textconv"}
"""Options of llama.cpp, of our tests and of git."""
OF_MAGICS = frozenset(re.findall(r"--[a-z-]+", agent_options().format_help() + adopt_options().format_help()))

pytestmark = pytest.mark.parametrize("page", PAGES)


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def inline_code(page: str) -> list[str]:
    without_fences = re.sub(r"^```.*?^```$", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", without_fences)]


@cache
def options_of(*command: str) -> frozenset[str]:
    """All options of a command, as its help tells them."""
    return frozenset(re.findall(r"--[a-z-]+", run(*command, "--help", cwd=ROOT).stdout))


@cache
def commands_below(*command: str) -> frozenset[str]:
    return frozenset(re.findall(r"^    ([a-z-]+) ", run(*command, "--help", cwd=ROOT).stdout, re.MULTILINE))


def commands_on(page: str) -> Iterator[list[str]]:
    """The words of each command line of ours that the page shows."""
    for block in code_blocks("[a-z]*", page):
        for line in re.findall(r"^(?:\$ )?freeact-sub\b(.*)", block, re.MULTILINE):
            yield shlex.split(line, comments=True)
    for code in inline_code(page):
        if code.startswith("freeact-sub "):
            yield shlex.split(code)[1:]


def test_its_commands_exist(page: str) -> None:
    for words in commands_on(page):
        command: list[str] = []
        while words[len(command) :] and words[len(command)] in commands_below(*command):
            command.append(words[len(command)])
        rest = words[len(command) :]
        is_prompt = bool(rest) and " " in rest[0]
        assert command or not rest or rest[0].startswith("-") or is_prompt, words
        assert {word.partition("=")[0] for word in rest if word.startswith("--")} - {"--"} <= options_of(*command), words


def test_its_options_exist(page: str) -> None:
    known = (
        options_of("run")
        | options_of("map")
        | options_of("permissions", "check")
        | options_of("kernelspec", "install")
        | options_of("mcp", "add")
        | options_of("sessions", "fork")
        | OTHER_PROGRAMS
        | OF_MAGICS
    )
    for code in inline_code(page):
        if code.startswith("--"):
            assert set(re.findall(r"--[a-z-]+", code)) <= known, code


@cache
def settings() -> frozenset[str]:
    """All settings and sections by their path."""

    def below(section: type[BaseModel], prefix: str) -> Iterator[str]:
        for name, field in section.model_fields.items():
            yield prefix + name
            if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
                yield from below(field.annotation, f"{prefix}{name}.")

    from freeact_sub import Config

    return frozenset(below(Config, ""))


def test_its_settings_exist(page: str) -> None:
    for code in inline_code(page):
        if named := re.match(r"\[?((?:kernel|subagents|budget)\.[a-z_.]+)", code):
            assert named[1] in settings(), code
        if variable := re.match(r"FREEACT_([A-Z_]+)\b", code):
            assert variable[1].lower().replace("__", ".").rstrip("_") in settings() | {""}, code


def test_its_toml_is_taken(page: str, tmp_path: Path) -> None:
    (tmp_path / ".freeact").mkdir()
    for block in code_blocks("toml", page):
        if tomllib.loads(block).keys() & {"allow", "ask", "deny"}:
            (tmp_path / "permissions.toml").write_text(block, encoding="utf-8")
            load_rules((tmp_path / "permissions.toml",))
        else:
            (tmp_path / ".freeact" / "config.toml").write_text(block, encoding="utf-8")
            load_config(tmp_path, environment={})


def test_its_python_is_python(page: str) -> None:
    for block in code_blocks("(?:python|py)", page):
        lines = (line for line in block.splitlines() if not line.startswith("%"))
        compile("\n".join(lines), page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_its_extras_exist(page: str) -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = re.findall(r"(?:\"|')(?:\.|freeact-sub)\[([\w,-]+)\]", text_of(page))
    assert {extra for names in named for extra in names.split(",")} <= declared.keys()


def test_its_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)\s]+)\)", text_of(page)):
        path, _, heading = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), target
        if heading:
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", text).strip().lower().replace(" ", "-") for text in headings}
            assert heading in slugs, target


def test_the_files_that_it_names_exist(page: str) -> None:
    """As a path from the repository's folder, the package's or the page's; a folder's name ends in a slash."""
    name = (
        r"\w[\w./-]*(?:\.(?:py|json|svg|ipynb)|/)"
        if page == "docs/architecture.md"
        else r"\w[\w./-]*/\w+\.(?:py|json|svg|ipynb)"
    )
    for code in inline_code(page):
        if re.fullmatch(name, code) and page != "CHANGELOG.md" and "NAME" not in code:
            places = (ROOT, ROOT / "freeact_sub", (ROOT / page).parent)
            assert any((place / code).exists() for place in places), code
