"""What the README and the pages of `docs/` name exists: commands and their options, settings, extras, modules, links."""

import ast
import contextlib
import inspect
import io
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from support.programs import ROOT, code_blocks
from support.tables import each

import freeact_sub
from freeact_sub.approvals import load_rules
from freeact_sub.approvals.patterns import parse_pattern
from freeact_sub.calls import CALLS
from freeact_sub.cli import main
from freeact_sub.config.load import load_config
from freeact_sub.kernels.guest.agent import AgentProxy
from freeact_sub.notebook.magic_options import adopt_options, agent_options
from freeact_sub.rlm import RLM
from freeact_sub.tools import Tool

BESIDE = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/README.md", "examples/README.md"]
PAGES = [*BESIDE, *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md")))]
OTHER_PROGRAMS = {"--jinja", "--live", "--no-ext-diff", "--no-textconv"}
"""Options of llama.cpp, of our tests and of git."""
OF_MAGICS = frozenset(re.findall(r"--[a-z-]+", agent_options().format_help() + adopt_options().format_help()))

each_page = each("page", PAGES)


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def inline_code(page: str) -> list[str]:
    without_fences = re.sub(r"^```.*?^```$", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", without_fences)]


@cache
def help_of(*command: str) -> str:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        main([*command, "--help"])
    return shown.getvalue()


@cache
def options_of(*command: str) -> frozenset[str]:
    """All options of a command, as its help tells them."""
    return frozenset(re.findall(r"--[a-z-]+", help_of(*command)))


@cache
def commands_below(*command: str) -> frozenset[str]:
    return frozenset(re.findall(r"^    ([a-z-]+) ", help_of(*command), re.MULTILINE))


def commands_on(page: str) -> Iterator[list[str]]:
    """The words of each command line of ours that the page shows."""
    for block in code_blocks("[a-z]*", page):
        for line in re.findall(r"^(?:\$ )?freeact-sub\b(.*)", block, re.MULTILINE):
            yield shlex.split(line, comments=True)
    for code in inline_code(page):
        if code.startswith("freeact-sub "):
            yield shlex.split(code)[1:]


@each_page
def test_its_commands_exist(page: str) -> None:
    for words in commands_on(page):
        command: list[str] = []
        while words[len(command) :] and words[len(command)] in commands_below(*command):
            command.append(words[len(command)])
        rest = words[len(command) :]
        is_prompt = bool(rest) and " " in rest[0]
        assert command or not rest or rest[0].startswith("-") or is_prompt, words
        assert {word.partition("=")[0] for word in rest if word.startswith("--")} - {"--"} <= options_of(*command), words


@each_page
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


@each_page
def test_its_settings_exist(page: str) -> None:
    for code in inline_code(page):
        if named := re.match(r"\[?((?:kernel|subagents|budget)\.[a-z_.]+)", code):
            assert named[1] in settings(), code
        if variable := re.match(r"FREEACT_([A-Z_]+)\b", code):
            assert variable[1].lower().replace("__", ".").rstrip("_") in settings() | {""}, code


@each_page
def test_its_toml_is_taken(page: str, tmp_path: Path) -> None:
    (tmp_path / ".freeact").mkdir()
    for block in code_blocks("toml", page):
        if tomllib.loads(block).keys() & {"allow", "ask", "deny"}:
            (tmp_path / "permissions.toml").write_text(block, encoding="utf-8")
            load_rules((tmp_path / "permissions.toml",))
        else:
            (tmp_path / ".freeact" / "config.toml").write_text(block, encoding="utf-8")
            load_config(tmp_path, environment={})


def wrong_rules(text: str) -> list[str]:
    """The patterns of rules in a text which can match no call of their kind."""
    listed = [
        pattern
        for rules in re.findall(r"\b(?:allow|ask|deny) = \[(.*?)\]", text, re.DOTALL)
        for pattern in rules.split('"')[1::2]
    ]
    alone = re.findall(r"[`\"]((?:shell|file|write|connect|mcp|tool|spawn):[^\s`\"][^`\"\n]*)[`\"]", text)
    return [pattern for pattern in (*listed, *alone) if not can_match(pattern)]


def can_match(text: str) -> bool:
    try:
        pattern = parse_pattern(text)
        if pattern.kind == "mcp" and pattern.glob:
            CALLS["mcp"].parse(pattern.glob)
    except ValueError:
        return False
    return True


@each_page
def test_its_rules_match_their_kind(page: str) -> None:
    assert wrong_rules(text_of(page)) == []


OF_PROGRAMS: dict[str, Callable[..., Any]] = {
    name: value for name in freeact_sub.__all__ if callable(value := getattr(freeact_sub, name))
} | {"RLM": RLM, "Tool": Tool}


def takers_of(call: ast.Call) -> list[Callable[..., Any]]:
    """What a call on a page may call: something of the package, or a method of an agent in a program or in a cell."""
    match call.func:
        case ast.Name(id="run"):
            return [freeact_sub.Agent.run]
        case ast.Name(id=name) if name in OF_PROGRAMS:
            return [OF_PROGRAMS[name]]
        case ast.Attribute(value=ast.Name(id="agent"), attr=name):
            return [getattr(owner, name) for owner in (freeact_sub.Agent, AgentProxy) if hasattr(owner, name)]
    return []


def wrong_arguments(code: str) -> list[str]:
    """The keyword arguments in a piece of code that nothing takes; a sketch such as `f(a=, ...)` is read as well."""
    sketch = code.replace("\N{HORIZONTAL ELLIPSIS}", "...").replace("=,", "=0,").replace("=)", "=0)").replace(", ...)", ")")
    try:
        tree = compile(sketch, "a page", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError:
        return []
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    wrong = []
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        for taker in takers_of(call):
            if isinstance(taker, type) and issubclass(taker, BaseModel):
                taker.model_rebuild()  # until it is used, it may have its parent's signature
        known = [inspect.signature(taker).parameters.values() for taker in takers_of(call)]
        closed = [parameters for parameters in known if not any(each.kind is each.VAR_KEYWORD for each in parameters)]
        taken = {each.name for parameters in closed for each in parameters}
        if closed and not (isinstance(call.func, ast.Name) and call.func.id in own):
            wrong += [f"{ast.unparse(call.func)}({key.arg}=)" for key in call.keywords if key.arg and key.arg not in taken]
    return wrong


@each_page
def test_its_keyword_arguments_exist(page: str) -> None:
    blocks = [
        "\n".join(line for line in block.splitlines() if not line.startswith("%"))
        for block in code_blocks("(?:python|py)", page)
    ]
    assert [wrong for code in (*inline_code(page), *blocks) for wrong in wrong_arguments(code)] == []


@each_page
def test_its_python_is_python(page: str) -> None:
    for block in code_blocks("(?:python|py)", page):
        lines = (line for line in block.splitlines() if not line.startswith("%"))
        compile("\n".join(lines), page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@each_page
def test_its_extras_exist(page: str) -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = re.findall(r"(?:\"|')(?:\.|freeact-sub|[A-Z_]+)\[([\w,-]+)\]", text_of(page))
    assert {extra for names in named for extra in names.split(",")} <= declared.keys()


@each_page
def test_the_page_installs_from_a_clone(page: str) -> None:
    """No package index has the package, so that no command names it without a place."""
    by_name = r"(?:pip install|pipx install|uv add|uv tool install|uvx|uvx --from|uv run --with) [\"']?freeact[-_]sub"
    assert page == "CHANGELOG.md" or not re.findall(by_name, text_of(page))


@each_page
def test_its_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)\s]+)\)", text_of(page)):
        path, _, heading = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), target
        if heading:
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", text).strip().lower().replace(" ", "-") for text in headings}
            assert heading in slugs, target


@each_page
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
