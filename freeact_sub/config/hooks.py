"""Files of hooks: commands that are run at certain moments, in the form that several agents share.

A file is `{"hooks": {EVENT: [{"matcher": PATTERN, "hooks": [{"type": "command", "command": TEXT, "timeout": SECONDS}]}]}}`.
Errors are a `ConfigError`; entries of other programs without meaning here are left out, with one sentence each.

A hook that comes from a file runs with the rights of the person. So the scripts of the workspace that it names are read with
the file, are part of what a person reviews, and a script that has changed since is not run.
"""

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

from freeact_sub.config.frontmatter import read_document
from freeact_sub.config.parsing import SHOWN, kind_of, parse_json, text_of_file
from freeact_sub.config.trust import SCRIPTS, digest, is_isolated, modules_beside, runs_python
from freeact_sub.errors import ConfigError
from freeact_sub.system.safe_files import is_file, is_folder, read_file

HookEvent: TypeAlias = Literal[
    "PreToolUse", "PermissionRequest", "PostToolUse", "UserPromptSubmit", "SessionStart", "SessionEnd", "Stop",
    "SubagentStart", "SubagentStop", "PreCompact", "Notification",
]  # fmt: skip
"""The moments at which hooks run."""
HOOK_EVENTS: Final[tuple[HookEvent, ...]] = get_args(HookEvent)
HOOKS_FILE: Final = Path(".agents") / "hooks.json"
"""The hooks of a workspace."""
PROJECT_VARIABLE: Final = "CLAUDE_PROJECT_DIR"
"""The variable that holds the workspace, under its name in other agents."""
TIMEOUT_SECONDS: Final = 60.0
MAX_SCRIPT_BYTES: Final = 20_000_000
"""Bytes of the largest file that counts as a script."""
MAX_FOLDERS: Final = 8
"""Folders in which the words of one command are looked for."""
INTERPRETER: Final = re.compile(r"(python|pypy|node|deno|bun|bash|dash|sh|zsh|ruby|perl|source|\.)[\d.]*")
"""A word before the file that it runs."""
CODE: Final = frozenset((".py", ".pyz", ".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".sh", ".bash", ".zsh", ".rb", ".pl"))
"""Endings of scripts."""
BINARY_BYTES: Final = 8_000
"""Bytes at the beginning of a file that must hold no null byte if it is text."""
WITHOUT_EFFECT: Final = frozenset({"type", "command", "timeout", "required", "name", "description", "statusMessage"})
"""Keys of a command that are read, and keys without effect on it."""
OFF_BY_DEFAULT: Final = frozenset({"async", "asyncRewake", "once"})
"""Keys of a command that change nothing while they are false."""
OFF: Final = "disableAllHooks"
"""The switch that turns off the hooks of a file and of those before it. Yours is the last one: a project cannot switch yours
off."""
ASSIGNMENT: Final = re.compile(r"\w+=")
LIST_OF_NAMES: Final = re.compile(r"[\w\s|,-]*")
"""A list of names, which has no other character; all else is an expression."""


def check_matcher(pattern: str) -> None:
    """Raise ConfigError unless this is a matcher: a list of names as `Write|Edit`, a regular expression, empty or `*`."""
    try:
        re.compile("" if pattern == "*" else pattern)
    except re.error as error:
        raise ConfigError(f"the matcher {SHOWN.repr(pattern)} is not a regular expression: {error}") from error


def first_matched(pattern: str, names: Sequence[str]) -> str | None:
    """Return the first of the names that a matcher names, if it names one; an empty matcher and `*` name all."""
    if pattern in ("", "*"):
        return next(iter(names), "")
    if LIST_OF_NAMES.fullmatch(pattern):
        wanted = {name.strip() for name in re.split("[|,]", pattern)}
        return next((name for name in names if name in wanted), None)
    return next((name for name in names if re.search(pattern, name)), None)


@dataclass(frozen=True, kw_only=True)
class CommandHook:
    """A command of a hooks file."""

    event: HookEvent
    command: str
    """The command, for a shell."""
    matcher: str = ""
    """The matcher (`check_matcher`)."""
    timeout_seconds: float = TIMEOUT_SECONDS
    required: bool = False
    """Whether a failure counts as a denial."""
    scripts: Mapping[Path, str | None] = field(default_factory=dict)
    """Files of the workspace that the command runs, with the digests of their contents as read. None: no such file."""
    beside: Mapping[Path, Mapping[Path, bytes]] = field(default_factory=dict)
    """Files that a script run by Python can import from its folder (`modules_beside`), by script."""
    workspace: Path = Path()
    safe_path: bool = False
    """Whether a Python that the command starts must import nothing from its script's folder, nor from the workspace."""

    @property
    def label(self) -> str:
        """The name for people."""
        return self.command

    def changed_scripts(self) -> list[Path]:
        """Return the scripts that have changed since they were read."""
        changed = [path for path, known in self.scripts.items() if _content_digest(path) != known]
        for script, known in self.beside.items():
            now = modules_beside(script, self.workspace) or {}
            changed += sorted(path for path in {*known, *now} if known.get(path) != now.get(path))
        return changed


@dataclass(frozen=True, kw_only=True)
class FoundHooks:
    """The hooks of files."""

    hooks: tuple[CommandHook, ...] = ()
    problems: tuple[str, ...] = ()
    """Sentences on the things that were left out."""
    contents: Mapping[Path, bytes] = field(default_factory=dict)
    """The files, and the scripts that they name."""

    def with_others(self, others: "FoundHooks") -> "FoundHooks":
        """Return these hooks and others together."""
        return FoundHooks(
            hooks=(*self.hooks, *others.hooks),
            problems=(*self.problems, *others.problems),
            contents={**self.contents, **others.contents},
        )


def read_hook_files(paths: Sequence[Path], workspace: Path) -> FoundHooks:
    """Read the hooks of files, in their order: a project's, then the person's own.

    Raises:
        ConfigError: A file cannot be read, or is no file of hooks; the message names it.
    """
    found = FoundHooks()
    for path in paths:
        try:
            content = read_file(path)
            value = parse_json(content)
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from error
        except ValueError as error:
            raise ConfigError(f"cannot read {path}: {error}") from error
        if isinstance(value, dict) and value.get(OFF) is True:
            told = f"{path}: `{OFF}` is true, so neither its hooks run nor those of the files before it"
            found = FoundHooks(problems=(told,), contents={**found.contents, path: content})
            continue
        if not isinstance(value, dict) or "hooks" not in value:
            raise ConfigError(f'{path} has no object `hooks`: write {{"hooks": {{"PreToolUse": [...]}}}}')
        here = parse_hooks(value["hooks"], str(path), workspace)
        found = found.with_others(replace(here, contents={path: content, **here.contents}))
    return found


def parse_hooks(value: Any, source: str, workspace: Path) -> FoundHooks:
    """Read the hooks of a table of events. Args: source: names it in messages.

    Raises:
        ConfigError: `value` is no such table.
    """
    hooks: list[CommandHook] = []
    problems: list[str] = []
    contents: dict[Path, bytes] = {}
    modules: dict[Path, bytes] = {}
    for event, groups in _table(value, f"{source}: `hooks`").items():
        known = next((name for name in HOOK_EVENTS if name == event), None)
        if known is None:
            problems.append(f"{source}: there is no event {SHOWN.repr(event)} here; its hooks are left out")
            continue
        for place, group, matcher in _groups(groups, f"{source}: `{event}"):
            for number, one in enumerate(_list(group.get("hooks"), f"{place}.hooks`")):
                where = f"{place}.hooks[{number}]`"
                settings = _table(one, where)
                if problem := _has_no_meaning(settings):
                    problems.append(f"{where}: {problem}; this hook is left out")
                    continue
                hook = _command_hook(known, matcher, settings, where)
                scripts = dict(_scripts_of(hook.command, workspace))
                known_as = {path: None if text is None else digest(text) for path, text in scripts.items()}
                beside, safe_path = _beside(hook.command, workspace, scripts)
                for found in beside.values():
                    modules |= found
                contents |= {path: text for path, text in scripts.items() if text is not None}
                hooks.append(replace(hook, scripts=known_as, beside=beside, safe_path=safe_path, workspace=workspace))
    return FoundHooks(hooks=tuple(hooks), problems=tuple(problems), contents={**modules, **contents})


def _groups(value: Any, where: str) -> Iterator[tuple[str, dict[str, Any], str]]:
    for number, group in enumerate(_list(value, f"{where}`")):
        place = f"{where}[{number}]"
        table = _table(group, f"{place}`")
        pattern = table.get("matcher", "")
        if not isinstance(pattern, str):
            raise ConfigError(f"{place}.matcher` must be a text, not {kind_of(pattern)}")
        try:
            check_matcher(pattern)
        except ConfigError as error:
            raise ConfigError(f"{place}`: {error}") from error
        yield place, table, pattern


def _has_no_meaning(settings: Mapping[str, Any]) -> str:
    """Return the wish of another program's hook that means nothing here; empty if there is none."""
    kind = settings.get("type", "command")
    if kind != "command":
        return f"hooks of type {SHOWN.repr(kind)} do not exist here"
    unknown = sorted(
        key for key in set(settings) - WITHOUT_EFFECT if key not in OFF_BY_DEFAULT or settings[key] is not False
    )
    return f"`{unknown[0]}` has no meaning here" if unknown else ""


def _command_hook(event: HookEvent, matcher: str, settings: Mapping[str, Any], where: str) -> CommandHook:
    command, timeout = settings.get("command"), settings.get("timeout", TIMEOUT_SECONDS)
    required = settings.get("required", False)
    if not isinstance(command, str) or not command.strip():
        raise ConfigError(f"{where} needs a `command`, a text for a shell")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= 86_400:
        got = timeout if isinstance(timeout, int | float) else kind_of(timeout)
        raise ConfigError(f"{where}: `timeout` must be a number of seconds, up to a day, not {got}")
    if not isinstance(required, bool):
        raise ConfigError(f"{where}: `required` must be true or false, not {kind_of(required)}")
    return CommandHook(event=event, command=command, matcher=matcher, timeout_seconds=float(timeout), required=required)


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where} must be an object, not {kind_of(value)}")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise ConfigError(f"{where} must be a list, not {kind_of(value)}")
    return value


def expanded(command: str, workspace: Path) -> str:
    """Return the command with the workspace in place of its variable."""
    return re.sub(rf"\$(?:{PROJECT_VARIABLE}\b|\{{{PROJECT_VARIABLE}\}})", lambda _: str(workspace), command)


def simple_commands(command: str, workspace: Path) -> list[tuple[str, ...]]:
    """Return the words of each program that a command starts, as far as they can be known without running it."""
    text = expanded(command, workspace)
    try:
        lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
    except ValueError:  # a quote is not closed, as in a comment
        words = re.findall(r"[^\s'\"|&;()<>=,]+", text)
    commands: list[list[str]] = [[]]
    for word in words:
        if word and not word.strip(";|&("):
            commands.append([])
        elif word.strip("<>)") and (commands[-1] or not ASSIGNMENT.match(word)):
            commands[-1].append(word)
    inner = (
        word for words in commands for before, word in pairwise(words) if before in ("-c", "-ec", "-lc") and " " in word
    )
    shells = any(INTERPRETER.fullmatch(words[0].rpartition("/")[2]) and "sh" in words[0] for words in commands if words)
    nested = [found for word in inner for found in simple_commands(word, workspace)] if shells else []
    return [*(tuple(words) for words in commands if words), *nested]


def _scripts_of(command: str, workspace: Path) -> Iterator[tuple[Path, bytes | None]]:
    """Yield the files of the workspace that a command runs, with their contents. None: a file does not exist."""
    roots, folders = {workspace, workspace.resolve()}, [workspace]
    for words in simple_commands(command, workspace):
        if words[0] in ("cd", "pushd"):
            folders += [Path(os.path.normpath(folder / word)) for word in words[1:] for folder in [*folders]][:MAX_FOLDERS]
        for before, word in zip(("", *words), words, strict=False):
            is_given = bool(INTERPRETER.fullmatch(before.rpartition("/")[2]))
            missing = None
            for folder in folders:
                try:
                    path = Path(os.path.normpath(folder / Path(word).expanduser()))
                    if not any(place.is_relative_to(root) for place in (path, path.resolve()) for root in roots):
                        continue
                    is_code = is_given or path.suffix in CODE or (not before and "/" in word)
                    if not is_file(path):
                        missing = path if is_code and not is_folder(path) and not word.startswith("-") else missing
                        continue
                    content = read_file(path, MAX_SCRIPT_BYTES)
                    is_script = is_code or os.access(path, os.X_OK) or content.startswith(b"#!")
                    if is_script and b"\0" not in content[:BINARY_BYTES]:  # nobody could review a program
                        yield path, content
                    missing = None
                    break
                except (OSError, ValueError, RuntimeError):
                    continue
            if missing is not None:
                yield missing, None


def _beside(
    command: str, workspace: Path, scripts: Mapping[Path, bytes | None]
) -> tuple[dict[Path, Mapping[Path, bytes]], bool]:
    """Return the files that a command's Python scripts can import from their folders; and whether that must be prevented."""
    commands = [words for words in simple_commands(command, workspace) if not is_isolated(words)]
    found, unseen = dict[Path, Mapping[Path, bytes]](), any("-c" in words and runs_python(words) for words in commands)
    for path, content in scripts.items():
        if is_python_script(path, content, commands):
            modules = modules_beside(path, workspace)
            if modules is None:
                unseen = True
            else:
                found[path] = modules
    return found, unseen and not found


def is_python_script(path: Path, content: bytes | None, commands: Sequence[Sequence[str]]) -> bool:
    """Return whether a Python runs a file. Args: commands: their words."""
    naming = [words for words in commands if any(Path(word).name == path.name for word in words)]
    first_line = (content or b"").partition(b"\n")[0]
    by_itself = path.suffix in SCRIPTS or (first_line.startswith(b"#!") and b"python" in first_line)
    return any(by_itself or runs_python(words) for words in naming)


def _content_digest(path: Path) -> str | None:
    try:
        return digest(read_file(path, MAX_SCRIPT_BYTES))
    except OSError:
        return None


def scripts_of_type(path: Path, content: bytes, workspace: Path) -> Mapping[Path, bytes]:
    """Return the scripts that the hooks of an agent type run, with their contents; none if its file is wrong."""
    try:
        head = read_document(text_of_file(content)).head
        return parse_hooks(head.get("hooks", {}), str(path), workspace).contents
    except (ConfigError, ValueError):
        return {}
