"""`decide`: what rules and mode say about a call. It asks nobody, remembers nothing, and has no effect.

A rule decides where there is one, else the mode. `plan` and `auto` stand for a wall around the kernel: what the wall
forbids is denied here as well, whatever a rule allows, so that nobody is asked for what cannot happen. What happens
outside the wall, MCP calls and a user's own tools, `auto` asks for, unless the server says that a tool is read-only;
children stand behind the same wall as their parent and need no question.

A child's policy holds its parent's, and of the two the stricter counts for every call: whatever a child is given, it is
never allowed what its parent is not.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from freeact_sub.approvals import dangers
from freeact_sub.approvals.hosts import spellings
from freeact_sub.approvals.paths import HARMLESS, is_within, possible_paths
from freeact_sub.approvals.patterns import UNKNOWN, WILD, Kind, escaped
from freeact_sub.approvals.rules import SHIPPED, VERDICTS, Rule, Rules, Verdict, shipped_rules
from freeact_sub.approvals.shell import Command, Script, read_script
from freeact_sub.approvals.suggest import command_pattern, path_pattern
from freeact_sub.approvals.words import names
from freeact_sub.approvals.wrappers import without_options
from freeact_sub.calls import Call, CodeAction, FileWrite, McpCall, NetworkConnect, ShellCommand, SpawnCall, ToolCall
from freeact_sub.config import PROTECTED
from freeact_sub.modes import MODES, WALL_OF, WALLS, Mode, Wall, narrower

HARMLESS_TOOLS: Final = frozenset({"reset_kernel", "ask", "ask_parent", "subagents"})
"""Tools that touch nothing but the agent itself and its children; `ask` costs what its budget allows."""
PLAIN_VARIABLES: Final = names("LANG LANGUAGE LC_ALL LC_CTYPE LC_COLLATE TZ COLUMNS LINES NO_COLOR TERM")
"""Variables that change nothing about what a program does but how it writes."""
OPEN_NOTHING: Final = names("echo printf true false : cd seq sleep exit return basename dirname")
"""Programs of the shell that open no file that their arguments name."""
PROGRAM_FOLDERS: Final = frozenset({"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin"})


@dataclass(frozen=True, kw_only=True)
class Ruling:
    """What was decided about a call, and by what."""

    verdict: Verdict
    rule: str
    """The rule, as it is written, or the sentence that decided."""
    source: str = SHIPPED
    """Where the rule stands: a file, `default`, `this session`, or `mode NAME`."""
    part: str = ""
    """The part of a shell command that decided; empty: all of the call."""
    lasting: bool = True
    """False where no rule can change it: an answer holds for this call alone."""
    needs_person: bool = False
    """Nobody but a person may say yes: where nobody is asked it is denied."""
    suggests: tuple[str, ...] = ()
    """Patterns that would allow what is asked for."""

    @property
    def reason(self) -> str:
        """One sentence for whoever is refused."""
        about = f"{shown(self.part)}: " if self.part else ""
        return f"{about}{self.rule} ({self.source})"


@dataclass(frozen=True, kw_only=True)
class Policy:
    """All that decides about an agent's calls."""

    workspace: Path
    mode: Mode = "ask"
    rules: Rules = field(default_factory=shipped_rules)
    scratch: tuple[Path, ...] = ()
    """Folders of the agent's own, outside the workspace, in which it may write in every mode."""
    network: bool = False
    """In mode `auto` the wall lets connections pass."""
    parent: "Policy | None" = None

    @property
    def wall(self) -> Wall:
        """What stands around the agent's kernel: never less than around its parent's."""
        wall = WALL_OF[self.mode]
        return wall if self.parent is None else min(wall, self.parent.wall, key=WALLS.index)

    def with_session(self, rules: Iterable[Rule]) -> "Policy":
        """The policy with what people have answered for the whole session."""
        level = tuple(rules)
        parent = self.parent.with_session(level) if self.parent else None
        return replace(self, rules=self.rules.with_session(level), parent=parent)

    def with_scratch(self, folders: Iterable[Path]) -> "Policy":
        """The policy of an agent that has these folders; they count for its parent's too, where that judges its calls."""
        own = tuple(folders)
        parent = self.parent.with_scratch(own) if self.parent else None
        return replace(self, scratch=own, parent=parent)


def narrowed(parent: Policy, mode: Mode | None = None, rules: Rules | None = None, scratch: tuple[Path, ...] = ()) -> Policy:
    """A child's policy.

    Args:
        parent: The parent's.
        mode: What the child is wanted to have; it gets that, or its parent's if that is narrower. None: its parent's.
        rules: Rules of the child alone. They are held beside its parent's, and can only forbid more. None: none.
        scratch: The child's own folders. They count for the child and not for its parent.
    """
    own = parent.mode if mode is None else narrower(parent.mode, mode)
    above = replace(parent, scratch=scratch)
    return replace(above, mode=own, rules=rules or parent.rules, parent=above)


def decide(call: Call, policy: Policy) -> Ruling:
    """What rules and mode say about a call; of a child's policy and its parent's, the stricter."""
    ruling = _decide_here(call, policy)
    if ruling.verdict == "ask" and ruling.lasting and not ruling.suggests:
        ruling = replace(ruling, suggests=_suggested(call))
    if policy.parent is None or ruling.verdict == "deny":
        return ruling
    return _strictest([ruling, decide(call, policy.parent)])


def _suggested(call: Call) -> tuple[str, ...]:
    """Patterns for calls that are one thing. Commands and files have theirs from where they are judged."""
    match call:
        case NetworkConnect():
            return (f"connect:{escaped(spellings(call)[0])}",)
        case McpCall():
            return (f"mcp:{escaped(call.server)}/{escaped(call.tool)}",)
        case ToolCall():
            return (f"tool:{escaped(call.tool_name)}",)
        case CodeAction() | SpawnCall():
            return (call.kind,)
        case _:
            return ()


def _decide_here(call: Call, policy: Policy) -> Ruling:
    match call:
        case ShellCommand():
            return _outside(call, policy) if call.outside else _shell(call, policy)
        case FileWrite():
            return _strictest(_write(path, "", policy) for path in dict.fromkeys((call.path, call.named or call.path)))
        case NetworkConnect():
            return _connect(call, policy)
        case McpCall():
            text = f"{call.server}/{call.tool}"
            if policy.mode == "plan" and not call.read_only:
                return _denied_by_mode(policy, "MCP tools run only if their server says that they are read-only")
            in_auto: Verdict = "allow" if call.read_only else "ask"
            return _by_rule("mcp", [text], policy) or _by_mode(policy, "MCP calls", ("ask", "ask", in_auto, "allow"))
        case SpawnCall():
            if policy.mode == "plan" and call.mode not in (None, "plan"):
                return _denied_by_mode(policy, "children can only be in mode plan as well")
            return _by_rule("spawn", [""], policy) or _by_mode(policy, "children", ("ask", "ask", "allow", "allow"))
        case ToolCall():
            return _tool(call, policy)
        case CodeAction():
            return _by_rule("code", [""], policy) or _by_mode(policy, "cells", ("ask", "ask", "allow", "allow"))


def _tool(call: ToolCall, policy: Policy) -> Ruling:
    harmless = call.tool_name in HARMLESS_TOOLS
    if policy.mode == "plan" and not harmless:
        return _denied_by_mode(policy, "tools that are not known to be read-only do not run")
    if ruling := _by_rule("tool", [call.tool_name], policy):
        return ruling
    if harmless:
        return Ruling(verdict="allow", rule="it touches only the agent and its children")
    return _by_mode(policy, "tools", ("deny", "ask", "ask", "allow"))


# Files and network


def _write(word: str, folder: str, policy: Policy) -> Ruling:
    ruling = _judge_write(word, folder, policy)
    if ruling.verdict != "ask":
        return ruling
    paths = possible_paths(word, folder, policy.workspace)
    kind: Literal["file", "write"] = "file" if ruling.rule.startswith('ask "file') else "write"
    return replace(ruling, suggests=path_pattern(kind, paths, policy.workspace))


def _judge_write(word: str, folder: str, policy: Policy) -> Ruling:
    paths = possible_paths(word, folder, policy.workspace)
    # the word too: /dev/stdout leads to another file in each process, which was judged when it was opened
    if word in HARMLESS or all(path in HARMLESS or path.startswith("/dev/fd/") for path in paths):
        return Ruling(verdict="allow", rule="nothing stays of what is written there")
    found = [ruling for kind in _FILE_KINDS if (ruling := _by_rule(kind, paths, policy))]
    if any(ruling.verdict == "deny" for ruling in found):
        return _strictest(found)
    if all(any(is_within(path, own) for own in policy.scratch) for path in paths):
        return _strictest([*found, Ruling(verdict="allow", rule="it is in a folder of the agent's own")])
    inside = all(is_within(path, policy.workspace) for path in paths)
    if policy.mode == "plan":
        return _denied_by_mode(policy, "nothing is written")
    if policy.mode == "auto" and not inside:
        return _denied_by_mode(policy, "nothing is written outside the workspace")
    if policy.mode == "auto" and any(is_within(path, policy.workspace / name) for path in paths for name in PROTECTED):
        return _denied_by_mode(policy, "the settings of agents and of git in the workspace are not written")
    if any(ruling.verdict == "ask" for ruling in found) or any(ruling.rule.startswith('allow "write') for ruling in found):
        return _strictest(found)
    if inside:
        return _by_mode(policy, "writes in the workspace", ("deny", "allow", "allow", "allow"))
    return _by_mode(policy, "writes outside the workspace", ("deny", "ask", "deny", "allow"))


def _connect(call: NetworkConnect, policy: Policy) -> Ruling:
    if policy.mode == "plan":
        return _denied_by_mode(policy, "nothing connects")
    plain, *others = spellings(call)
    ruling = _by_rule("connect", [plain], policy, also=others)
    if policy.mode == "auto" and policy.network:
        return ruling or Ruling(verdict="allow", rule="connections are allowed", source="kernel.network")
    if policy.mode == "auto" and (ruling is None or ruling.verdict == "ask"):
        return _denied_by_mode(policy, "nothing connects but where a rule allows it")
    return ruling or _by_mode(policy, "connections", ("deny", "ask", "deny", "allow"))


_FILE_KINDS: Final[tuple[Kind, ...]] = ("file", "write")

# Shell commands


def _shell(call: ShellCommand, policy: Policy) -> Ruling:
    script = read_script(call.command)
    return _strictest([*_parts(script, call, policy)])


def _outside(call: ShellCommand, policy: Policy) -> Ruling:
    """What the host is to run: `deny` rules count; else a person is asked, whatever the mode and whatever is allowed."""
    ruling = _shell(call, replace(policy, mode="full", parent=None))
    if ruling.verdict == "deny":
        return ruling
    if policy.mode == "plan":
        return _denied_by_mode(policy, "nothing runs outside the sandbox")
    return Ruling(verdict="ask", rule="it runs outside the sandbox", lasting=False, needs_person=True)


def _parts(script: Script, call: ShellCommand, policy: Policy) -> Iterator[Ruling]:
    if script.bomb:
        yield Ruling(verdict="deny", rule=dangers.BOMB, lasting=False)
    if script.opaque:
        yield Ruling(verdict="ask", rule=script.opaque, lasting=False)
    for name in script.assigned:
        if name not in PLAIN_VARIABLES and any(char.isupper() for char in name):
            yield _unless_full(f"it sets {name}, which may change what programs do", policy, part=name)
    for file in script.files:
        for folder in file.folders:
            place = _join(call.cwd, folder)
            yield _write(file.path, place, policy) if file.writes else _read_file(file.path, place, policy)
    for command in script.commands:
        moved = replace(command, folders=tuple(_join(call.cwd, folder) for folder in command.folders))
        yield replace(ruling := _command(moved, policy), part=ruling.part or command.text)
    if not script.commands and not script.files and not script.opaque:
        yield Ruling(verdict="allow", rule="it starts no program")


def _command(command: Command, policy: Policy) -> Ruling:
    rulings = [*_about_files(command, policy)]
    danger = dangers.danger_of(command, policy.workspace)
    if danger == "sure":
        return Ruling(verdict="deny", rule=dangers.SENTENCE, lasting=False)
    if danger == "possible":
        rulings.append(Ruling(verdict="ask", rule=f"it may be that {dangers.SENTENCE}", lasting=False))
    rulings.append(_by_name(command, policy))
    if any(name not in PLAIN_VARIABLES for name in command.assigned):
        rulings.append(_unless_full("it sets variables, which may change what the program does", policy))
    rulings += _hidden(command, policy)
    return _strictest(rulings)


def _by_name(command: Command, policy: Policy) -> Ruling:
    """A program's rules: those that forbid see it without its folder too, those that allow know its folder."""
    folder, _, name = command.words[0].rpartition("/")
    short = " ".join((name, *command.words[1:]))
    trusted = not folder or folder in PROGRAM_FOLDERS
    ruling = _by_rule(
        "shell",
        [short if trusted else command.text],
        policy,
        also=[command.text, short, *without_options(name, command.words)],
    )
    if command.wraps and (ruling is None or ruling.verdict == "allow"):
        return Ruling(verdict="allow", rule="what it starts is judged by itself")
    ruling = ruling or _by_mode(policy, "commands", ("ask", "ask", "allow", "allow"))
    return replace(ruling, suggests=command_pattern((name if trusted else command.words[0], *command.words[1:])))


def _hidden(command: Command, policy: Policy) -> Iterator[Ruling]:
    """A program that is not known to start others may do so all the same: a forbidden command in its words is asked for."""
    for start in range(1, min(len(command.words), 20)):
        words = command.words[start:]
        inner = replace(command, words=words)
        if not words[0] or words[0].startswith("-"):
            continue
        ruling = _by_rule("shell", [inner.text], policy)
        forbidden = ruling is not None and ruling.verdict == "deny" and UNKNOWN not in words[0] and WILD not in words[0]
        if forbidden or dangers.danger_of(inner, policy.workspace) == "sure":
            yield Ruling(verdict="ask", rule="a forbidden command is among its words", lasting=False)


def _about_files(command: Command, policy: Policy) -> Iterator[Ruling]:
    if command.words[0] in OPEN_NOTHING:
        return
    for word in command.words[1:]:
        for name in {word, word.rpartition("=")[2], word.rpartition(":")[2]}:
            if name and name.rpartition("/")[2].strip(WILD):
                for folder in command.folders:
                    ruling = _read_file(name, folder, policy)
                    if ruling.verdict != "allow":
                        yield ruling


def _read_file(word: str, folder: str, policy: Policy) -> Ruling:
    paths = possible_paths(word, folder, policy.workspace)
    ruling = _by_rule("file", paths, policy) or Ruling(verdict="allow", rule="it is read")
    return replace(ruling, suggests=path_pattern("file", paths, policy.workspace))


def _join(cwd: str, folder: str) -> str:
    return f"{cwd}/{folder}" if cwd and folder[:1] not in ("/", "~", UNKNOWN) else folder


def _unless_full(sentence: str, policy: Policy, part: str = "") -> Ruling:
    verdict: Verdict = "allow" if policy.mode == "full" else "ask"
    return Ruling(verdict=verdict, rule=sentence, part=part, lasting=False)


# Rules and modes


def _by_rule(kind: Kind, texts: Iterable[str], policy: Policy, also: Iterable[str] = ()) -> Ruling | None:
    """What the rules say about something that may be any of these texts; None if they say nothing.

    A rule that forbids counts if it could be about one of them; a rule that allows, if it is about all of them whatever they
    will be. A rule that could be about it, but is not for certain, asks where it would deny.
    """
    allowing = list(texts)
    forbidding = [*allowing, *also]
    possible = [rule for rule in _of_kind(policy.rules.levels, kind, "deny") if _may_be(rule, forbidding, policy)]
    for rule in possible:
        if any(rule.pattern.covers(text, policy.workspace) for text in forbidding):
            return _ruling(rule)
    if possible:
        rule = possible[0]
        return Ruling(verdict="ask", rule=f"it may be what is denied: {rule}", source=rule.source, lasting=False)
    rulings = (_by_level(level, kind, allowing, forbidding, policy) for level in policy.rules.levels)
    return next((ruling for ruling in rulings if ruling is not None), None)


def _by_level(
    level: tuple[Rule, ...], kind: Kind, allowing: list[str], forbidding: list[str], policy: Policy
) -> Ruling | None:
    for rule in _of_kind([level], kind, "ask"):
        if _may_be(rule, forbidding, policy):
            asked = policy.mode != "full"
            return _ruling(rule) if asked else replace(_ruling(rule), verdict="allow", source="mode full")
    for rule in _of_kind([level], kind, "allow"):
        if all(rule.pattern.covers(text, policy.workspace) for text in allowing):
            return _ruling(rule)
    return None


def _of_kind(levels: Iterable[tuple[Rule, ...]], kind: Kind, verdict: Verdict) -> Iterator[Rule]:
    return (rule for level in levels for rule in level if rule.pattern.kind == kind and rule.verdict == verdict)


def _may_be(rule: Rule, texts: list[str], policy: Policy) -> bool:
    return any(rule.pattern.may_match(text, policy.workspace) for text in texts)


def _ruling(rule: Rule) -> Ruling:
    return Ruling(verdict=rule.verdict, rule=str(rule), source=rule.source)


def _by_mode(policy: Policy, what: str, verdicts: tuple[Verdict, Verdict, Verdict, Verdict]) -> Ruling:
    verdict = verdicts[MODES.index(policy.mode)]
    done = {"allow": "allowed", "ask": "asked for", "deny": "denied"}[verdict]
    return Ruling(verdict=verdict, rule=f"{what} are {done}", source=f"mode {policy.mode}")


def _denied_by_mode(policy: Policy, sentence: str) -> Ruling:
    return Ruling(verdict="deny", rule=sentence, source=f"mode {policy.mode}", lasting=False)


def _strictest(rulings: Iterable[Ruling]) -> Ruling:
    """The strictest; of equals one that no rule can change. What it suggests would allow all that is asked for."""
    known = list(rulings)
    chosen = max(known, key=lambda ruling: (VERDICTS.index(ruling.verdict), not ruling.lasting))
    if chosen.verdict != "ask":
        return replace(chosen, suggests=())
    asked = [ruling.suggests if ruling.lasting else () for ruling in known if ruling.verdict == "ask"]
    suggests = tuple(dict.fromkeys(text for texts in asked for text in texts)) if all(asked) else ()
    return replace(chosen, suggests=suggests)


def shown(part: str) -> str:
    """A part of a command as people read it."""
    return part.replace(UNKNOWN, "$…").replace(WILD, "*")
