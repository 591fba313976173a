"""What programs that are shipped as allowed may be given: held against lists, and against what the programs really do."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from support.thorough import THOROUGH

from freeact_sub.approvals import Policy, decide, make_rules
from freeact_sub.approvals.rules.rule import SHIPPED, Rules, shipped_rules
from freeact_sub.approvals.shell.program_options import programs, read_options
from freeact_sub.calls import ShellCommand
from freeact_sub.modes import MODES

WORK = Path("/work space")


def verdict(command, mode="ask", workspace=WORK, **lists):
    rules = Rules(levels=(make_rules(lists), *shipped_rules().levels))
    return decide(ShellCommand(command=command), Policy(workspace=workspace, mode=mode, rules=rules)).verdict


def test_each_program_that_is_shipped_as_allowed_has_a_list_of_its_options():
    globs = [rule.pattern.glob for level in shipped_rules().levels for rule in level if str(rule).startswith('allow "shell')]
    assert sorted(programs()) == sorted({glob.removesuffix(" **") for glob in globs if "*" in glob})
    assert all(rule.source == SHIPPED for level in shipped_rules().levels for rule in level)


@pytest.mark.parametrize(
    "command",
    [
        *("find . -delete", "find . -exec ls {} +", "find . -execdir ls {} +", "find . -ok ls {} +", "find . -fprint x", "find . -fprintf x y"),
        *("find . -fls x", "find . -fprint0 x", "find -files0-from x", "find *", "sort -o x y", "sort -ox y", "sort -ro x y", "sort --output=x y"),
        *("sort --out x y", "sort --compress-program=x y", "sort --comp=x y", "sort -T . y", "sort --files0-from=x", "sort --random-source=x y"),
        *("sort *", "sort y -o x", "tree -o x", "tree -R -L 1 -H .", "tree -H . -L 1 -R", "tree --fromfile x", "rg --pre x y", "rg --hostname-bin x y"),
        *("rg -z x", "rg --hidden x", "rg -uu x", "file -C -m x", "file -Cm x", "file -f x", "file -fx", "file --files-from x", "file -z x"),
        *("file -m x y", "date -s x", "date --set=x", "date --se x", "date -f x", "date 01010101", "printf -v x y", "wc --files0-from=x"),
        *("wc --files0=x", "du --files0-from=x", "du -X x .", "md5sum -c x", "md5sum --check x", "md5sum --ch x", "sha1sum -c x", "diff -l a b"),
        *("diff --from-file=x y", "diff --to-file=x y", "strings @x", "strings -@x y", "hexdump -f x y", "hexdump -fx y", "ps e", "ps auxe"),
        *("ps -auxe", "ps eww", "ps -E", "ps -o environ", "grep --fil=x y", "grep -d recurse x y", "ls --weird", "ls --colo", "cat --wei"),
        *("sed p -i a", "sed -i p a", "sed -e p a", "sed -f x a", "sed -n -s 'w x' a", "sed '1w x' a", "sed 's/a/b/w x' a", "sed 's/a/b/e' a", "sed 1e a"),
        *("sed 'e ls' a", "sed '1r x' a", "sed '/a/{p' a", "sed --in-place p a", "sed 's,a,b,' a", "sed '1p;2w x' a", "sed '1p\nw x' a", "sed '/a\nw x/p' a"),
        *("sed '1!w x' a", "sed a", "sed", "sed '1~2F' a", "sed --help=x", "sed 's/a/b/;w x' a", 'sed "1p;$X" a', "awk -f x a", "awk -v x=1 '{print}' a"),
        *("awk '{print > \"x\"}' a", "awk '{print | \"sh\"}' a", "awk '{system(\"x\")}' a", "awk '{print $(system(1))}' a", "awk '{\"x\" | getline}' a"),
        *("awk 'BEGIN{while(1){}}'", "awk '{print};{print > \"x\"}' a", "awk '/a/{print}/b/{print > $1}' a", "awk", "awk -i inplace '{print}' a", "git log --help"),
        *("awk '{print \"a\\\"} > \"x\"}' a", 'awk "{print $1}" a', "column --weird", "df --sync", "uname --weird", "which --weird x", "printf $X y", "sort $X", "ls $X", "find $X", "head {-c5,x}"),
    ],
)  # fmt: skip
def test_an_option_that_nobody_knows_to_be_harmless_is_asked_for(command):
    assert verdict(command) == "ask"
    assert verdict(command, "plan") == "ask"
    if "$" not in command and "{" not in command:
        assert verdict(command, allow=[f"shell:{command.split()[0]} *"]) == "allow", "a rule of the user's own"


@pytest.mark.parametrize(
    "command",
    [
        *("ls", "ls -la", "ls *", "cat *", "ls -lart --color=auto *", "cat -n a b", "head -5 a", "head -n -5 a", "tail -n +3 a", "tail -f a", "wc -l *"),
        *("grep -n x a", "grep -iE 'a|b' a b", "grep -e x -C 3 a", "grep --include='*.py' x a", "grep -- -x a", "grep x *", "egrep x a", "cut -d, -f1 a"),
        *("sort -k 2 -n a", "sort -t, -k1,1 a | uniq", "sort -u -- a", "find . -name '*.py' -type f", "find a b -maxdepth 2 -newer c -printf '%p'"),
        *("find . ( -name a -o -name b ) -print", "tree -L 2 -a", "du -sh .", "df -h", "date", "date +%s", "date -u +%F", "date -d yesterday +%F"),
        *("stat -c %s a", "file -b a", "od -A x -t x1 a", "hexdump -C a", "strings -n 8 a", "diff -u a b", "cmp a b", "comm -12 a b", "ps aux", "ps -ef"),
        *("echo $X $(date)", "echo -n x", "printf '%s\\n' -5 x", "true $X", "cd $X", "sleep 1", "seq 1 5", "uname -a", "nproc", "free -h", "id -u", "which python"),
        *("sed -n 1,10p a", "sed -n '5p' a", "sed -n '$p' a", "sed -n '/def f/,/return/p' a", "sed '1d' a", "sed 's/a/b/g' a", "sed -E 's/(a|b)+/\\1/gI' a"),
        *("sed -n '10,+5p;20q' a", "sed -n '/x\\/y/=' a", "awk '{print $1}' a", "awk -F, '{print $1, $NF}' a", "awk '/x/ {print NR \": \" $0}' a", "awk 'NR==3{print}' a"),
        *("ls --help", "grep --version", "git log", "git log --oneline -5", "git log --stat --since=yesterday -n 3", "git log -p --no-textconv --no-ext-diff", "git show --stat HEAD"),
        *("git diff --cached --stat", "git diff --staged --no-textconv --no-ext-diff", "git branch", "git branch --list 'a*'", "git branch -a", "git tag"),
        *("git tag --list 'v*'", "git remote -v", "git rev-parse HEAD", "git rev-parse --show-toplevel", "git ls-files", "git ls-tree -r HEAD", "git stash list"),
        *("fc-list --help", r"fc-list '--format=%{file}\n'", "git describe --tags", "git shortlog -sn HEAD", "git merge-base a b", "git cat-file -p HEAD", "git show --no-textconv --no-ext-diff HEAD:a"),
    ],
)  # fmt: skip
def test_what_only_reads_is_not_asked_for(command):
    command = command.replace(" | uniq", "").replace("( ", "\\( ").replace(" )", " \\)").replace("$\\( date \\)", "$(date)")
    assert verdict(command) == "allow", decide(ShellCommand(command=command), Policy(workspace=WORK))
    assert {verdict(command, mode) for mode in MODES} == {"allow"}


SECRETS = [
    *(".env", ".env.local", ".env~", ".env.bak", ".envrc", "prod.env", "a/.env", "/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-"),
    *("/proc/1/environ", "/proc/self/environ", "/proc/1/task/1/environ", "/proc/thread-self/environ", "/dev/fd/../environ", "id_rsa", "id_rsa.bak"),
    *("x.pem", "x.pem~", "server.key", "server.key.old", ".netrc", ".pgpass", ".npmrc", ".pypirc", "kubeconfig", "~/.kube/config", "~/.aws/credentials"),
    *("~/.ssh/config", "a/.ssh/id_x", "~/.git-credentials", ".bash_history", "x.p12", "x.kdbx", "/etc/sudoers", "~/.docker/config.json"),
]  # fmt: skip


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize(
    "form", ["cat {}", "cat < {}", "file -f{}", "strings @{}", "hexdump -f{}", "grep x --file={}", "grep -f{} x", "grep -nf{} x", "head -- {}", "git show HEAD:{}"]
)  # fmt: skip
def test_a_secret_file_is_asked_for_however_it_is_named(form, name):
    assert verdict(form.format(name)) == "ask"


def test_a_secret_in_a_folder_is_found_where_all_of_the_folder_is_read(tmp_path):
    for folder in ("clean", "sub/inner"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "clean/a").touch()
    (tmp_path / "sub/inner/.env").touch()
    (tmp_path / "link").symlink_to("sub")
    policy = Policy(workspace=tmp_path)
    for command in (
        "grep -r x .",
        "grep -rn x sub",
        "grep --recursive x",
        "grep -R x link",
        "rg x sub/inner/.env",
        "diff clean sub",
        "grep -r x *",
    ):
        ruling = decide(ShellCommand(command=command), policy)
        assert (ruling.verdict, ruling.suggests) == ("ask", ("file:sub/inner/.env",)), command
        assert "sub/inner/.env" in ruling.reason
    for command in (
        "grep -r x clean",
        "rg x clean clean",
        "rg x",
        "rg x sub",
        "grep x *",
        "ls -R sub",
        "find sub",
        "diff clean clean",
    ):
        assert decide(ShellCommand(command=command), policy).verdict == "allow", command


def test_a_wildcard_is_what_it_finds(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/x.csv").touch()
    policy = Policy(
        workspace=tmp_path, rules=Rules(levels=(make_rules({"deny": ["file:data/x.csv"]}), *shipped_rules().levels))
    )
    assert decide(ShellCommand(command="cat data/*"), policy).verdict == "deny"
    assert decide(ShellCommand(command="cat */x.*"), policy).verdict == "deny"
    assert decide(ShellCommand(command="cat *.py"), policy).verdict == "allow"
    (tmp_path / "server.pem").touch()
    assert decide(ShellCommand(command="cat *"), policy).verdict == "ask"
    assert decide(ShellCommand(command="ls *"), policy).verdict == "allow"


# Beside the real programs

FIRST = {"find": ["."], "sed": ["p"], "awk": ["{print}"]}
SHORT_VALUES = ("out", "1") if THOROUGH else ("out",)
LONG_VALUES = ("out", "list") if THOROUGH else ("list",)
INSTALLED = [name for name in programs() if not name.startswith("git") and shutil.which(name)]


def options_of(program: str) -> set[str]:
    """All short options, and the long ones that its help names, shortened too."""
    told = subprocess.run(
        [program, "--help"], capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL
    )
    long = set(re.findall(r"(?<![\w-])--[a-z][\w-]+", told.stdout + told.stderr)) | {
        f"--{name}" for name in programs()[program].long
    }
    short = {f"-{letter}" for letter in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@"}
    words = set(re.findall(r"(?<![\w-])-[a-z][a-z0-9]+", told.stdout)) if program == "find" else set()
    return {*short, *long, *(name[:-1] for name in long), *words}


def lines_of(program: str) -> list[str]:
    """The program with each option, in each way in which it may have a value; without those that the table refuses."""
    options = sorted(options_of(program))
    short = [option for option in options if len(option) == 2]
    long = [option for option in options if len(option) > 2]
    forms = [[option] for option in options]
    if programs()[program].any and not THOROUGH:
        short = long = []  # whatever value an option has, it is allowed
    forms += [form for option in short for value in SHORT_VALUES for form in ([option, value], [option + value])]
    forms += [form for option in long for value in LONG_VALUES for form in ([option, value], [f"{option}={value}"])]
    first = FIRST.get(program, [])
    last = (
        []
        if program in ("find", "ps", "nproc", "date", "free", "uname", "id")
        else ["data", "data" if program == "diff" else "sub"]
    )
    lines = [(program, *first, *form, *last) for form in forms]
    return [shlex.join(words) for words in lines if not read_options(words).doubt]


def traps(folder: Path) -> None:
    """A folder in which whatever writes, starts a program or reads a secret is seen."""
    (folder / "sub").mkdir(parents=True)
    for name in (".env", "sub/.env"):
        (folder / name).write_text("SECRET\n")
    (folder / "list").write_text(".env\0")
    (folder / "data").write_text(".env\n")
    (folder / "trip").write_text("#!/bin/sh\n: > started\ncat\n")
    (folder / "trip").chmod(0o755)


def tripped(folder: Path, lines: list[str]) -> list[str]:
    """What the lines have done that reading is not."""
    shutil.rmtree(folder, ignore_errors=True)
    traps(folder)
    before = {path: path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}
    script = "\n".join(f"timeout -s KILL 0.3 {line} < /dev/null" for line in lines)
    done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, timeout=250, check=False)
    after = {path: path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}
    changed = [str(path) for path in before.keys() | after.keys() if before.get(path) != after.get(path)]
    return [*changed, *(["SECRET"] if b"SECRET" in done.stdout + done.stderr else [])]


@pytest.mark.slow
@pytest.mark.parametrize("program", INSTALLED)
def test_no_option_that_is_allowed_writes_starts_a_program_or_reads_a_secret(program, tmp_path):
    folder = tmp_path / "traps"
    traps(folder)
    policy = Policy(workspace=folder)
    allowed = [line for line in lines_of(program) if decide(ShellCommand(command=line), policy).verdict == "allow"]
    assert allowed or program in ("printf", "rev")
    if tripped(folder, allowed):
        assert {line: found for line in allowed if (found := tripped(folder, [line]))} == {}
