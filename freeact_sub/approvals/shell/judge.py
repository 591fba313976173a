"""Judgements on shell commands by rules and mode: the strictest ruling on the parts counts.

A file such as `/dev/tcp/HOST/PORT` is a connection for a shell (gawk has others), wherever it stands. Its
address is not looked at.

A shipped rule allows programs that only read behind a wall. What makes this safe is the wall, not the lists here: in `plan`
and `ask` a kernel starts what is allowed in this way so that it can change no file and connect to nothing
(`kernels/wall/reading.py`), whatever the command turns out to be. The lists name programs that such a wall would stop, so
that a person is asked instead.

Forbidden commands are also looked for among the arguments of programs that may start them, though nobody knows that they
do. A word may be the command's first, as after `fakeroot`, or hold all of it, as in `tmux new 'git push'` or between quotes
in `awk 'BEGIN{system("git push")}'`. A command that a program makes while it runs cannot be seen here.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

from freeact_sub.approvals import access
from freeact_sub.approvals.patterns import UNKNOWN, WILD, Pattern
from freeact_sub.approvals.policy import SHIPPED, Policy, Ruling, by_mode, by_rule, denied_by_mode, strictest, unless_full
from freeact_sub.approvals.shell import files
from freeact_sub.approvals.shell.script import MAX_CHARS, Script, SimpleCommand, read_script
from freeact_sub.approvals.shell.wrappers import names, without_options
from freeact_sub.calls import ShellCommand

CONNECTS: Final = re.compile(r"/dev/(?:tcp|udp)/.|/inet[46]?/(?:tcp|udp)/")
"""Names of files that are connections for a shell, or for gawk."""
MAY_CONNECT: Final = Pattern(kind="tool", glob="/dev/[tu][cd]p/*/*")
ANYWHERE: Final = f"{UNKNOWN}:{UNKNOWN}"
LANGUAGE: Final = r"(?:LANG|LANGUAGE|LC_ALL|LC_CTYPE|LC_COLLATE|TZ|COLUMNS|LINES|NO_COLOR|TERM)="
"""Variables that change only how a program writes."""
OWN_VARIABLE: Final = re.compile(
    r"(?!\w*_proxy=|npm_config_|c?d?path=|[fm]path=|manpath=|module_path=|fignore=|histchars=|prompt\d?=|psvar=)[a-z_0-9]*="
    rf"|(?s:{LANGUAGE}(?!:?[/~])(?!.*(?:\.\.|{UNKNOWN})))"
)
"""Assignments that change no program: of the script's own variables, or of language and time if the value names no file."""
PROGRAM_FOLDERS: Final = frozenset({"", "/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin"})
LEAVES_NOTHING: Final = frozenset({"/dev/null", "/dev/zero", "/dev/full"})
"""Files that a program can write behind the wall for programs that only read."""


def judge_command(call: ShellCommand, policy: Policy) -> Ruling:
    """Judge a command that runs behind the wall of the mode."""
    script = read_script(call.command)
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
    is_plain = PLAIN.fullmatch(call.command) and not re.search(r"(?m:(?:^|[\s;&|])(?:\w+\+?=))", call.command)
    programs = [part.part.partition(" ")[0].rpartition("/") for part in reading]
    if call.wall and is_plain and all(name in FILTERS and folder in PROGRAM_FOLDERS for folder, _, name in programs):
        return replace(ruling, walled=False)
    sentence = "it also writes or runs what a wall would stop" if call.wall else "it would run without a wall"
    patterns = tuple(dict.fromkeys(pattern for part in reading for pattern in part.suggests))
    return Ruling(
        verdict="ask", rule=f"what only reads is asked about where {sentence}", lasting=bool(patterns), suggests=patterns
    )


def judge_outside(call: ShellCommand, policy: Policy) -> Ruling:
    """Judge a command for the host: `deny` rules count, else a person is asked, whatever else allows it."""
    ruling = judge_command(call, replace(policy, mode="full", parent=None))
    if ruling.verdict == "deny":
        return ruling
    if policy.mode == "plan":
        return denied_by_mode(policy, "nothing runs outside the sandbox")
    return Ruling(verdict="ask", rule="it runs outside the sandbox", lasting=False, needs_person=True)


def _parts(script: Script, call: ShellCommand, policy: Policy) -> Iterator[Ruling]:
    bodies = ((name, body) for name, body in FUNCTION.findall(call.command[:MAX_CHARS]) if re.search(r"[|&]", body))
    if any(re.search(rf"(?:^|[\s;&|]){re.escape(name)}(?:$|[\s;&|])", body) for name, body in bodies):
        yield Ruling(verdict="deny", rule=BOMB, lasting=False)
    if script.opaque:
        yield Ruling(verdict="ask", rule=script.opaque, lasting=False)
    yield from _about_variables(script, policy)
    yield from _about_connections(script, call.command, policy)
    for file in script.files:
        for folder in file.folders:
            place = files.joined(call.cwd, folder)
            if not file.writes:
                yield access.judge_read(file.path, place, policy)
            else:
                yield replace(
                    access.judge_write(file.path, place, policy), walled=None if file.path in LEAVES_NOTHING else False
                )
    for command in script.commands:
        moved = replace(command, folders=tuple(files.joined(call.cwd, folder) for folder in command.folders))
        found = files.what_is_found(moved, policy)
        for read in (moved, *files.with_options_found(moved, found)):
            ruling = _command(read, found if read is moved else {}, policy)
            yield replace(ruling, part=ruling.part or command.text)
    if not script.commands and not script.files and not script.opaque:
        yield Ruling(verdict="allow", rule="it starts no program")


def _about_variables(script: Script, policy: Policy) -> Iterator[Ruling]:
    words = (word for command in script.commands for word in command.words[1:])  # of `env`, `command export`
    given = [f"{name}={value}" for name, value in (*script.values, *((name, "") for name in script.assigned))]
    changing = [
        text for text in (*given, *(word for word in words if re.match(LANGUAGE, word))) if not OWN_VARIABLE.match(text)
    ]
    for name in dict.fromkeys(text.partition("=")[0] for text in changing):
        yield unless_full(f"it changes {name}, which may change what programs do", policy, part=name)
    yield from hidden_texts(changing, policy)


def _about_connections(script: Script, text: str, policy: Policy) -> Iterator[Ruling]:
    """Judge a file that is a connection; its address is not looked at."""
    paths = [file.path for file in script.files]
    words = [word for command in script.commands for word in command.words[1:]]
    rules = [rule for level in policy.rules.levels for rule in level if rule.pattern.kind == "connect"]
    if any(CONNECTS.search(place) for place in (text, *words, *paths)):
        ruling = access.judge_connection((ANYWHERE,), policy)
        if any(rule.verdict == "deny" for rule in rules):
            ruling = Ruling(verdict="deny", rule="a shell's own connection may be one that a rule denies", lasting=False)
        yield replace(ruling, part="connect", suggests=(), lasting=False, walled=False)
    elif any(UNKNOWN in path and MAY_CONNECT.may_match(path.replace(WILD, UNKNOWN), Path("/")) for path in paths):
        asked = by_mode(policy, "connections") if policy.mode == "ask" else None  # else a wall decides, or nobody
        forbidden = by_rule("connect", [ANYWHERE], policy) or asked
        if forbidden is not None and forbidden.verdict != "allow":
            yield replace(forbidden, verdict="ask", rule=f"it may be a connection: {forbidden.rule}", lasting=False)


def _command(command: SimpleCommand, found: files.Found, policy: Policy) -> Ruling:
    rulings = [ruling for ruling in files.about_files(command, found, policy) if ruling.verdict != "allow"]
    danger = _danger_of(command, policy.workspace)
    if danger == "sure":
        return Ruling(verdict="deny", rule=SENTENCE, lasting=False)
    if danger == "possible":
        rulings.append(Ruling(verdict="ask", rule=f"it may be that {SENTENCE}", lasting=False))
    named = _by_name(command, policy)
    rulings.append(named)
    if not all(re.match(LANGUAGE, f"{name}=") for name in command.assigned):
        rulings.append(unless_full("it changes variables, which may change what the program does", policy))
    if command.wraps:
        rulings += hidden_texts([word for word in command.words[1:] if "=" in word], policy)
    elif command.words[0].rpartition("/")[2] not in START_NOTHING or means_to_write(command.words):
        rulings += hidden_commands(command, policy)
    ruling = strictest(rulings)
    return replace(ruling, suggests=named.suggests) if ruling.verdict == "allow" else ruling


def _by_name(command: SimpleCommand, policy: Policy) -> Ruling:
    """Judge a program by its name: rules that forbid match it without its folder too, rules that allow only as written."""
    folder, _, name = command.words[0].rpartition("/")
    short = " ".join((name, *command.words[1:]))
    trusted = folder in PROGRAM_FOLDERS
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
    return replace(ruling, suggests=access.command_pattern(words, any_words=trusted and name in FILTERS))


def _allowed(ruling: Ruling, command: SimpleCommand, policy: Policy) -> Ruling:
    """Return an allowing ruling: by a shipped rule for reading, behind a wall; by a person's rule for all."""
    if ruling.source != SHIPPED:
        return replace(ruling, walled=False)
    by = by_mode(policy, "commands")
    if means_to_write(command.words) and by.verdict != "allow":
        return replace(by, rule="it may do more than read")
    words = (command.words[0].rpartition("/")[2], *command.words[1:])
    shown = files.about_tracked(command.folders, policy, unknown=by) if files.shows_work_tree(words) else ()
    return strictest([replace(ruling, walled=True), *shown])


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
"""Expressions, by program, for a word that makes it write or start another program."""
PLAIN: Final = re.compile(r"""(?s:[\w\s./:=,@%+?*-]|'[^']*'|"[^"$`\\!]*"|&&|\|\|?|;|\d?>>?(?=\s*[\w./])|[12]?>&[12])*""")
"""Lines in which every shell, and everybody, sees the same words."""


def means_to_write(words: tuple[str, ...]) -> bool:
    """Return whether a reading program is to write, or to read files from a list. Args: words: its name first."""
    name = words[0].rpartition("/")[2]
    if name == "uniq":
        return sum(re.match(r"-|\d+$", word) is None for word in words[1:]) > 1
    form = WRITES.get(name, "(?!)")
    return files.reads_lists((name, *words[1:])) or any(re.fullmatch(form, word, re.DOTALL) for word in words[1:])


RECURSIVE: Final = {"rm": "rR", "chmod": "R", "chown": "R", "chgrp": "R"}
"""Programs that recurse into folders, and their short options for it."""
DANGEROUS: Final = frozenset({*RECURSIVE, "find", "dd"})
SYSTEM: Final = names(
    "/ /bin /boot /dev /etc /home /lib /lib32 /lib64 /media /mnt /opt /proc /root /run /sbin /srv /sys /usr /usr/bin "
    "/usr/lib /usr/local /var /var/lib /Applications /Library /System /Users"
)
SENTENCE: Final = "it removes or changes all of a system folder, of the home folder, or of a disk"
FUNCTION: Final = re.compile(r"(?s:(?<![^\s;&|(){}'\"])([^\s;&|(){}'\"]+)\s*\(\)\s*\{([^}]{,2000})\})")
BOMB: Final = "it starts itself again and again without an end"


def _danger_of(command: SimpleCommand, workspace: Path) -> Literal["sure", "possible"] | None:
    """Return how surely a command destroys a whole machine, home folder or disk. `possible`: its targets are not known.

    Patterns cannot say this: `rm -rf /`, `rm -r --force -- /etc/..` and `find ~ -delete` have no text in common.
    """
    name = command.words[0].rpartition("/")[2].lower()
    paths = [
        path
        for target in _targets(name, command.words[1:])
        for folder in command.folders
        for path in access.possible_paths(target, folder, workspace)
    ]
    if any(_is_disk(path) if name == "dd" else _is_system(path) for path in paths):
        return "sure"
    return "possible" if any(UNKNOWN in _all_of(path) or WILD in _all_of(path) for path in paths) else None


def _targets(name: str, words: tuple[str, ...]) -> Iterator[str]:
    options = [word for word in words if word.startswith("-")]
    others = [word for word in words if not word.startswith("-") and word]
    if name in RECURSIVE:
        form = rf"(?s:-(?!-).*[{RECURSIVE[name]}].*|--r.*)"
        if any(re.fullmatch(form, option) for option in options) or any(UNKNOWN in word for word in words):
            yield from others[name != "rm" :]
    elif name == "find":
        if "-delete" in options or any(word in ("rm", "shred") for word in others):
            yield from (word for word in words[: words.index(options[0])] if word)
    elif name == "dd":
        yield from (word.removeprefix("of=") for word in others if word.startswith("of="))


def _all_of(path: str) -> str:
    """Return the folder, for a path that means all its content."""
    folder, _, name = path.rpartition("/")
    return path if not name or name.strip(WILD) else folder or "/"


def _is_system(path: str) -> bool:
    path, home = _all_of(path), str(Path.home())
    return path in SYSTEM or path == home or home.startswith(f"{path}/")


def _is_disk(path: str) -> bool:
    return path.startswith("/dev/") and path not in access.HARMLESS and path.split("/")[2] not in ("fd", "shm")


MAX_STARTS: Final = 100
"""Places in a text at which a command may begin; with more, a person is asked."""
MAX_WORDS: Final = 40
ASKED: Final = Ruling(verdict="ask", rule="a forbidden command is among its words", lasting=False)
PROSE: Final = re.compile(r"(?!-)[\w\s.,:'?()-]*")
ESCAPES: Final = re.compile(r"\\(?:[tnrfv]|x(?:20|09|0a)|0?40)")


def hidden_commands(command: SimpleCommand, policy: Policy) -> Iterator[Ruling]:
    """Ask where an allowed command may start a forbidden one."""
    forbidden = _Forbidden(policy)
    for start, word in enumerate(command.words[1:], start=1):
        if forbidden.may_begin(word) and forbidden.has(command.words[start:]):
            yield ASKED
    yield from hidden_texts(command.words[1:], policy)


def hidden_texts(words: Sequence[str], policy: Policy) -> Iterator[Ruling]:
    """Ask where a text, such as the value of a variable, holds a forbidden command."""
    forbidden = _Forbidden(policy)
    for word in words:
        if not re.search(r"[\s'\"\\]", word) or UNKNOWN in word or WILD in word:
            continue
        text = ESCAPES.sub(" ", word).replace("\\", "")
        pieces = [text, *(text[at:] for at in range(2, 5) if text.startswith("-"))]
        marks = ((piece, mark) for piece in pieces for mark in re.findall(r"(?:^|[\W\d_])s(\w)", piece))
        pieces += [piece.replace(mark, "\n") for piece, mark in [*dict.fromkeys(marks)]]  # `sxaxgit pushxe`
        starts = [start for piece in pieces for start in _starts(piece, forbidden)]
        inner = read_script(text).commands if starts else ()
        if len(starts) > MAX_STARTS or any(map(forbidden.has, (*starts, *(found.words for found in inner)))):
            yield ASKED


def _starts(text: str, forbidden: "_Forbidden") -> Iterator[tuple[str, ...]]:
    """Yield parts of a text in any language that may be forbidden commands; of a sentence only parts after a mark."""
    is_prose = PROSE.fullmatch(text) is not None
    found = [*re.finditer(r"[^\s'\"`|;&(){}\[\],=!:<>@#%]+", text)]
    gaps = [text[one.end() : other.start()] for one, other in pairwise(found)]
    since = 0
    for at, token in enumerate(found):
        since = 0 if at and gaps[at - 1].strip() else since + 1
        if forbidden.may_begin(token[0]) and not (is_prose and since > 2):
            for soft in (r"[\s]*", r"[\s'\",()\[\]]*"):
                end = next(
                    (to for to in range(at, min(len(gaps), at + MAX_WORDS)) if not re.fullmatch(soft, gaps[to])), len(gaps)
                )
                words = [other[0] for other in found[at : min(end + 1, at + MAX_WORDS)]]
                yield tuple(words)
                yield (words[0], *(re.split(r"[/+_]", word)[0] or word for word in words[1:]))


class _Forbidden:
    """The commands that rules forbid."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        rules = (rule for level in policy.rules.levels for rule in level)
        self._patterns = [rule.pattern for rule in rules if rule.verdict == "deny" and rule.pattern.kind == "shell"]
        firsts = {pattern.glob.partition(" ")[0] for pattern in self._patterns}
        self._firsts = [Pattern(kind="tool", glob=first) for first in firsts]
        self._begin: dict[str, bool] = {"": False}

    def may_begin(self, word: str) -> bool:
        """Test quickly whether a forbidden command may begin with a word."""
        name = word.rpartition("/")[2]
        if name not in self._begin:
            known = not name.startswith("-") and UNKNOWN not in name and WILD not in name
            programs = (name, "git") if name.startswith("git-") else (name,)
            self._begin[name] = known and (
                name in DANGEROUS
                or any(first.covers(program, self._policy.workspace) for first in self._firsts for program in programs)
            )
        return self._begin[name]

    def has(self, words: tuple[str, ...]) -> bool:
        """Return whether a command is forbidden, as written or without its folder and the options before its subcommand."""
        name = words[0].rpartition("/")[2]
        texts = {" ".join(words), " ".join((name, *words[1:])), *without_options(name, words)}
        if any(pattern.covers(text, self._policy.workspace) for pattern in self._patterns for text in texts):
            return True
        command = SimpleCommand(words=words, folders=("",))
        return name in DANGEROUS and _danger_of(command, self._policy.workspace) == "sure"
