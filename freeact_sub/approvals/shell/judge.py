"""Judges a shell command by rules and mode: the strictest ruling on its parts counts.

A part is also a connection through `/dev/tcp/HOST/PORT`, which looks like a file and is a connection for a shell; gawk has
others.

A shipped rule allows programs that only read behind a wall. What makes this safe is the wall, not the lists here: in `plan`
and `ask` a kernel starts what is allowed in this way so that it can change no file and connect to nothing
(`kernels/wall/reading.py`), whatever the command turns out to be. The lists say what such a wall would be in the way of, so
that a person is asked instead.

Forbidden commands are also looked for among the arguments of programs that may start them, though nobody knows that they
do. A word may be the command's first, as after `fakeroot`, or hold all of it, as in `tmux new 'git push'` or between quotes
in `awk 'BEGIN{system("git push")}'`. What a program puts together while it runs nobody can see here.
"""

import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from freeact_sub.approvals.access import command_pattern, judge_connection, judge_files, judge_read, judge_write, spellings
from freeact_sub.approvals.git_files import UnknownFilesError, tracked_files
from freeact_sub.approvals.patterns import UNKNOWN, WILD, Pattern, escaped
from freeact_sub.approvals.policy import SHIPPED, Policy, Ruling, by_mode, by_rule, denied_by_mode, strictest, unless_full
from freeact_sub.approvals.shell import dangers
from freeact_sub.approvals.shell.command_files import Found, about_files, joined, what_is_found, with_options_found
from freeact_sub.approvals.shell.folder_readers import reads_lists, shows_work_tree
from freeact_sub.approvals.shell.script import Script, SimpleCommand, read_script
from freeact_sub.approvals.shell.words import names
from freeact_sub.approvals.shell.wrappers import without_options
from freeact_sub.calls import NetworkConnect, ShellCommand

WRITTEN: Final = re.compile(r"/dev/(tcp|udp)/([^\s/;|&<>()'\"`$\\]+)/([\w-]+)")
"""Matches such a path anywhere in a script, also in a part that cannot be parsed."""
INET: Final = re.compile(r"/inet[46]?/(tcp|udp)/[^/\s]*/([^\s/;|&<>()'\"`$\\]+)/([\w-]+)")
"""Matches the same for gawk, to which it is such a path as the name of any file."""
NAMED: Final = re.compile(r"/dev/(tcp|udp)/([^/]+)/([^/]+)")
ANY: Final = Pattern(kind="tool", glob="/dev/[tu][cd]p/*/*")

PLAIN_VARIABLES: Final = names("LANG LANGUAGE LC_ALL LC_CTYPE LC_COLLATE TZ COLUMNS LINES NO_COLOR TERM")
"""Variables that change only how a program writes, not what it does."""
PLACES: Final = re.compile(rf"^:?/|\.\.|{UNKNOWN}")
"""Matches values of such variables that lead elsewhere: `LANGUAGE=../x` holds the texts that a program prints."""
SPEAKING: Final = r"\w*_proxy|npm_config_\w*|c?d?path|[fm]path|manpath|module_path|fignore|histchars|prompt\d?|psvar"
"""Lower-case variables that programs or a shell obey."""
PROGRAM_FOLDERS: Final = frozenset({"/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin"})


LEAVES_NOTHING: Final = frozenset({"/dev/null", "/dev/zero", "/dev/full"})
"""What a program can write behind the wall for programs that only read."""


def judge_command(call: ShellCommand, policy: Policy) -> Ruling:
    """Judges a command that runs behind the wall of the mode."""
    script = read_script(call.command, posix=call.posix or call.outside)
    parts = [*_parts(script, call, policy)]
    ruling = strictest(parts)
    if ruling.verdict != "allow" or by_mode(policy, "commands").verdict == "allow":
        return replace(ruling, walled=None)
    reading = [part for part in parts if part.walled]
    is_free = any(part.walled is False for part in parts)
    if is_free and not reading:
        return ruling
    if call.wall and not is_free:
        return replace(ruling, walled=True)
    if call.wall and is_plain(call.command) and all(_is_filter(part.part) for part in reading):
        return replace(ruling, walled=False)
    sentence = "it also writes or runs what a wall would stop" if call.wall else "it would run without a wall"
    patterns = tuple(dict.fromkeys(pattern for part in reading for pattern in part.suggests))
    return Ruling(
        verdict="ask", rule=f"what only reads is asked about where {sentence}", lasting=bool(patterns), suggests=patterns
    )


def _is_filter(part: str) -> bool:
    folder, _, name = part.partition(" ")[0].rpartition("/")
    return name in FILTERS and (not folder or folder in PROGRAM_FOLDERS)


def judge_outside(call: ShellCommand, policy: Policy) -> Ruling:
    """Judges a command for the host: `deny` rules count, else a person is asked, whatever else allows it."""
    ruling = judge_command(call, replace(policy, mode="full", parent=None))
    if ruling.verdict == "deny":
        return ruling
    if policy.mode == "plan":
        return denied_by_mode(policy, "nothing runs outside the sandbox")
    return Ruling(verdict="ask", rule="it runs outside the sandbox", lasting=False, needs_person=True)


def _parts(script: Script, call: ShellCommand, policy: Policy) -> Iterator[Ruling]:
    if script.bomb:
        yield Ruling(verdict="deny", rule=dangers.BOMB, lasting=False)
    if script.opaque:
        yield Ruling(verdict="ask", rule=script.opaque, lasting=False)
    yield from _about_variables(script, policy)
    yield from _about_functions(script, policy)
    yield from _about_connections(script, call, policy)
    for file in script.files:
        for folder in file.folders:
            place = joined(call.cwd, folder)
            if not file.writes:
                yield judge_read(file.path, place, policy)
            else:
                yield replace(judge_write(file.path, place, policy), walled=None if file.path in LEAVES_NOTHING else False)
    for command in script.commands:
        moved = replace(command, folders=tuple(joined(call.cwd, folder) for folder in command.folders))
        found = what_is_found(moved, policy)
        for read in (moved, *with_options_found(moved, found)):
            ruling = _command(read, found if read is moved else {}, policy)
            yield replace(ruling, part=ruling.part or command.text)
    if not script.commands and not script.files and not script.opaque:
        yield Ruling(verdict="allow", rule="it starts no program")


def _about_variables(script: Script, policy: Policy) -> Iterator[Ruling]:
    for name in script.assigned:
        if changes_programs(name):
            yield unless_full(f"it changes {name}, which may change what programs do", policy, part=name)
    words = (word for command in script.commands for word in command.words[1:])  # of `env`, `command export`
    for name, value in (*script.values, *(word.partition("=")[::2] for word in words)):
        if name in PLAIN_VARIABLES and PLACES.search(value):
            yield unless_full(f"it changes {name}, which may name files that programs obey", policy, part=name)
    yield from hidden_texts([value for name, value in script.values if changes_programs(name)], policy)


def _about_functions(script: Script, policy: Policy) -> Iterator[Ruling]:
    """Asks about functions with the name of an allowed program: they replace it."""
    allowed = [rule for level in policy.rules.levels for rule in level if rule.verdict == "allow"]
    firsts = {rule.pattern.glob.split()[0] for rule in allowed if rule.pattern.kind == "shell" and rule.pattern.glob}
    for name in script.functions:
        if any(Pattern(kind="shell", glob=first).may_match(name, policy.workspace) for first in firsts if first.strip("*")):
            yield unless_full(f"it gives {name} another meaning", policy, part=name)


def _about_connections(script: Script, call: ShellCommand, policy: Policy) -> Iterator[Ruling]:
    for spelled in dict.fromkeys(connections(call.command, script)):
        ruling = judge_connection(spelled, policy)
        suggests = (f"connect:{escaped(spelled[0])}",) if ruling.lasting and UNKNOWN not in spelled[0] else ()
        yield replace(ruling, part=f"connect to {spelled[0]}", suggests=suggests, walled=False)
    for file in script.files:
        if not may_connect(file.path):
            continue
        asked = by_mode(policy, "connections") if policy.mode == "ask" else None  # else a wall decides, or nobody
        forbidden = by_rule("connect", [f"{UNKNOWN}:{UNKNOWN}"], policy) or asked
        if forbidden is not None and forbidden.verdict != "allow":
            yield replace(forbidden, verdict="ask", rule=f"it may be a connection: {forbidden.rule}", lasting=False)


def _command(command: SimpleCommand, found: Found, policy: Policy) -> Ruling:
    rulings = [ruling for ruling in about_files(command, found, policy) if ruling.verdict != "allow"]
    danger = dangers.danger_of(command, policy.workspace)
    if danger == "sure":
        return Ruling(verdict="deny", rule=dangers.SENTENCE, lasting=False)
    if danger == "possible":
        rulings.append(Ruling(verdict="ask", rule=f"it may be that {dangers.SENTENCE}", lasting=False))
    named = _by_name(command, policy)
    rulings.append(named)
    if any(name not in PLAIN_VARIABLES for name in command.assigned):
        rulings.append(unless_full("it changes variables, which may change what the program does", policy))
    if command.wraps:
        rulings += hidden_texts([word for word in command.words[1:] if "=" in word], policy)
    elif not _starts_nothing(command):
        rulings += hidden_commands(command, policy)
    ruling = strictest(rulings)
    return replace(ruling, suggests=named.suggests) if ruling.verdict == "allow" else ruling


def _starts_nothing(command: SimpleCommand) -> bool:
    words = (command.words[0].rpartition("/")[2], *command.words[1:])
    return words[0] in START_NOTHING and not means_to_write(words)


def _by_name(command: SimpleCommand, policy: Policy) -> Ruling:
    """Judges a program by its name: rules that forbid match it without its folder too, rules that allow only as written."""
    folder, _, name = command.words[0].rpartition("/")
    short = " ".join((name, *command.words[1:]))
    trusted = not folder or folder in PROGRAM_FOLDERS
    ruling = by_rule(
        "shell",
        [short if trusted else command.text],
        policy,
        also=[command.text, short, short.replace(name, name.lower(), 1), *without_options(name, command.words)],
    )
    if command.wraps and (ruling is None or ruling.verdict == "allow"):
        return Ruling(verdict="allow", rule="what it starts is judged by itself")
    ruling = ruling or by_mode(policy, "commands")
    if ruling.verdict == "allow":
        ruling = _allowed(ruling, command, policy)
    if ruling.suggests:
        return ruling
    words = (name if trusted else command.words[0], *command.words[1:])
    return replace(ruling, suggests=command_pattern(words, any_words=trusted and name in FILTERS))


def _allowed(ruling: Ruling, command: SimpleCommand, policy: Policy) -> Ruling:
    """What a shipped rule allows only reads, behind a wall; the rules of a person allow whatever they say."""
    if ruling.source != SHIPPED:
        return replace(ruling, walled=False)
    words = (command.words[0].rpartition("/")[2], *command.words[1:])
    by = by_mode(policy, "commands")
    if means_to_write(words) and by.verdict != "allow":
        return replace(by, rule="it may do more than read")
    return strictest([replace(ruling, walled=True), *_about_git(words, command.folders, policy)])


def _about_git(words: tuple[str, ...], folders: tuple[str, ...], policy: Policy) -> Iterator[Ruling]:
    """Asks where a rule is about a tracked file that git shows."""
    for folder in folders if shows_work_tree(words) else ():
        try:
            yield judge_files(tracked_files(folder, policy.workspace), policy)
        except UnknownFilesError as error:
            yield replace(by_mode(policy, "commands"), rule=f"which files git shows is not known: {error}")


def changes_programs(variable: str) -> bool:
    """Whether a shell variable may change what programs do; most lower-case names are the script's own."""
    return variable not in PLAIN_VARIABLES and (
        any(char.isupper() for char in variable) or bool(re.fullmatch(SPEAKING, variable))
    )


def connections(text: str, script: Script) -> Iterator[tuple[str, ...]]:
    """The possible connections of a script, each with the spellings that rules may use, the plain one first."""
    words = [word for command in script.commands for word in command.words[1:]]
    for pattern, places in ((WRITTEN, [text]), (INET, [text]), (NAMED, [*words, *(file.path for file in script.files)])):
        for place in places:
            for protocol, host, port in pattern.findall(place):
                yield _spelled_address(protocol, host, port)


def may_connect(path: str) -> bool:
    """Whether the unknown parts of a file name could make it a connection."""
    return UNKNOWN in path and ANY.may_match(path.replace(WILD, UNKNOWN), Path("/")) and not NAMED.search(path)


def _spelled_address(protocol: str, host: str, port: str) -> tuple[str, ...]:
    number = _number(protocol, port)
    host = re.sub(f"[{UNKNOWN}{WILD}]+", UNKNOWN, host)
    if number is None or UNKNOWN in host:
        return (f"{host}:{UNKNOWN if number is None else number}",)
    return spellings(NetworkConnect(host=host, port=number))


def _number(protocol: str, port: str) -> int | None:
    """The port of a number or service name. None: it is not known."""
    if re.fullmatch(r"[0-9]{1,9}", port):
        return int(port) % 65536  # as the system takes it
    try:
        return socket.getservbyname(port, protocol) if port.isascii() else None
    except OSError:
        return None


FILTERS: Final = names(
    "true false : cd pwd exit return break continue echo printf seq sleep basename dirname test cat head tail tac rev wc nl "
    "cut tr fold expand paste comm cmp column grep egrep fgrep ls stat du df realpath readlink base64 md5sum sha1sum "
    "sha256sum od hexdump strings id whoami groups uname nproc free uptime arch which type"
)
"""Programs that no option makes write a file, start a program or connect."""
START_NOTHING: Final = FILTERS | names("rg find tree file uniq date ps fc-list locale hostname lscpu")
"""Programs that start no other, unless `WRITES` says so or the parser finds it."""
WRITES: Final[Mapping[str, str]] = {
    "sort": r"-[^-]*o.*|--o.*",
    "tree": r"-o|-R",
    "sed": r"-[^-]*i.*|--i.*",
    "awk": r".*(?:print[^}]*[>|]|system|inplace).*",
    "find": r"-delete|-fprint.*|-fls|-ok.*",
    "file": r"-C|--compile",
    "date": r"-s.*|--s.*",
    "git": r"--output.*",
    "rg": r"--pre.*|--hostname-bin.*",
}
"""By program, an expression for a word by which it is meant to write or to start another."""
PLAIN: Final = re.compile(r"""(?s:[\w\s./:=,@%+?*-]|'[^']*'|"[^"$`\\!]*"|&&|\|\|?|;|\d?>>?(?=\s*[\w./])|[12]?>&[12])*""")
"""Matches a line in which every shell, and everybody, sees the same words."""


def means_to_write(words: Sequence[str]) -> bool:
    """Whether a program that is known to read is to write, or to read what a list names. Args: words: its name first."""
    form = WRITES.get(words[0])
    if words[0] == "uniq":
        return sum(re.match(r"-|\d+$", word) is None for word in words[1:]) > 1
    return reads_lists(tuple(words)) or (form is not None and any(re.fullmatch(form, word, re.DOTALL) for word in words[1:]))


def is_plain(text: str) -> bool:
    """Whether a line is so plain that nothing in it can be misread: no expansion, no group, no escape."""
    return PLAIN.fullmatch(text) is not None and not re.search(r"(?m:(?:^|[\s;&|])(?:\w+\+?=))", text)


DANGEROUS: Final = frozenset({*dangers.RECURSIVE, "find", "dd"})
MAX_TEXTS: Final = 20
"""Texts to read as scripts; of more, the content counts as unknown."""
ASKED: Final = Ruling(verdict="ask", rule="a forbidden command is among its words", lasting=False)


def hidden_commands(command: SimpleCommand, policy: Policy) -> Iterator[Ruling]:
    """Asks for each forbidden command that an allowed one may start."""
    forbidden = _Forbidden(policy)
    for start, word in enumerate(command.words[1:], start=1):
        if forbidden.may_begin(word) and forbidden.has(replace(command, words=command.words[start:])):
            yield ASKED
    yield from _in_texts(command.words[1:], forbidden)


def hidden_texts(words: Sequence[str], policy: Policy) -> Iterator[Ruling]:
    """Asks where a text, such as the value of a variable, holds a forbidden command."""
    if words:
        yield from _in_texts(words, _Forbidden(policy))


def _in_texts(words: Sequence[str], forbidden: "_Forbidden") -> Iterator[Ruling]:
    texts = [text for word in words for text in _texts(word) if any(map(forbidden.may_begin, re.split(r"[\s;&|(]+", text)))]
    found = [inner for text in texts[:MAX_TEXTS] for inner in read_script(text).commands]
    # the first word may be another language's: `1e git push`, `spawn git push`
    found += [replace(inner, words=inner.words[1:]) for inner in found if len(inner.words) > 1]
    found += [inner for word in words for inner in _inner_commands(word, forbidden)]
    if len(texts) > MAX_TEXTS or any(forbidden.has(inner) for inner in found):
        yield ASKED


def _inner_commands(word: str, forbidden: "_Forbidden") -> Iterator[SimpleCommand]:
    """The commands that begin anywhere in a text of some language, as in `1e git push` and `s/x/git push/e`."""
    pieces = [word, *(word[at:] for at in range(2, 5) if word.startswith("-"))]
    for mark in set(re.findall(r"(?:^|[\W\d_])s(\w)", word)):  # `sxaxgit pushxe`
        pieces += word.split(mark)
    is_prose = not re.search(r"^-|[^\w\s.,:'?()-]", word) or not re.search(r"\s", word)
    for piece in () if is_prose else dict.fromkeys(pieces):
        for name in re.finditer(r"[\w.+-]+(?=\s)|(?<=_)[a-z][\w.+-]*(?=\s)", piece):
            if forbidden.may_begin(name[0].strip("_")):
                end = re.match(r"[^\n;&|(){}<>'\"`,!#%]*", piece[name.start() :])
                text = (end[0] if end else "").strip("_")
                for cut in dict.fromkeys((text, *(text.partition(mark)[0] for mark in "/@:=+_"))):
                    yield SimpleCommand(words=tuple(cut.split()), folders=("",))


def _texts(word: str) -> Iterator[str]:
    """The parts of a word that may be scripts."""
    if not re.search(r"[\s'\"]", word) or UNKNOWN in word or WILD in word:
        return
    yield word
    if "\\" in word:
        yield from _texts(re.sub(r"\\(?:[tnrfv]|x(?:20|09|0a)|0?40)|\\", lambda code: " " * (len(code[0]) > 1), word))
    if word.startswith("-"):
        yield word[2:]
    yield from re.split(r"[=!:,`|(){}\[\]]", word)[1:]
    quoted = [one or other for one, other in re.findall(r"'([^']*)'|\"([^\"]*)\"", word)]
    yield from quoted
    yield " ".join(quoted)


class _Forbidden:
    """The commands that rules forbid."""

    def __init__(self, policy: Policy) -> None:
        self._workspace = policy.workspace
        rules = (rule for level in policy.rules.levels for rule in level)
        self._patterns = [rule.pattern for rule in rules if rule.verdict == "deny" and rule.pattern.kind == "shell"]
        firsts = {pattern.glob.partition(" ")[0] for pattern in self._patterns}
        self._firsts = [Pattern(kind="tool", glob=first) for first in firsts]
        self._begin: dict[str, bool] = {"": False}

    def may_begin(self, word: str) -> bool:
        """Tests quickly whether a forbidden command may begin with a word."""
        name = word.rpartition("/")[2]
        if name not in self._begin:
            known = not name.startswith("-") and UNKNOWN not in name and WILD not in name
            git = any(first.covers("git", self._workspace) for first in self._firsts) if name.startswith("git-") else False
            self._begin[name] = known and (
                git or name in DANGEROUS or any(first.covers(name, self._workspace) for first in self._firsts)
            )
        return self._begin[name]

    def has(self, command: SimpleCommand) -> bool:
        """Whether a command is forbidden, as written or without its folder and the options before its subcommand."""
        name = command.words[0].rpartition("/")[2]
        texts = {command.text, " ".join((name, *command.words[1:])), *without_options(name, command.words)}
        if any(pattern.covers(text, self._workspace) for pattern in self._patterns for text in texts):
            return True
        return name in DANGEROUS and dangers.danger_of(command, self._workspace) == "sure"
