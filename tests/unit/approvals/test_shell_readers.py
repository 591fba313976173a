"""Programs that only read: unasked behind their wall, and asked about where there is none."""

from pathlib import Path

import pytest

from freeact_sub.approvals import Policy, decide, make_rules
from freeact_sub.approvals.rules.rule import Rules, shipped_rules
from freeact_sub.calls import ShellCommand

WORK = Path("/work space")


def ruling(command, mode="ask", *, wall=True, workspace=WORK, **lists):
    rules = Rules(levels=(make_rules(lists), *shipped_rules().levels))
    return decide(ShellCommand(command=command, wall=wall), Policy(workspace=workspace, mode=mode, rules=rules))


def verdict(command, mode="ask", **options):
    return ruling(command, mode, **options).verdict


READS = [
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
    *("x=1", "# nothing", "ls 2>/dev/null", "echo $(pwd) `pwd`", "for f in a b; do echo $f; done", "sort --debug a"),
    *("git status", "git log -p", "git show HEAD", "git diff --no-index a b | wc -l", "bash -c 'ls | wc -l'", "timeout 5 cat a"),
]  # fmt: skip


@pytest.mark.parametrize("command", READS)
def test_what_only_reads_is_unasked_behind_the_wall_and_asked_about_without_it(command, tmp_path):
    (tmp_path / ".git").mkdir()  # an empty one: git shows nothing
    command = command.replace("( ", "\\( ").replace(" )", " \\)").replace("$\\( date \\)", "$(date)")
    for mode in ("plan", "ask"):
        found = ruling(command, mode, workspace=tmp_path)
        assert (found.verdict, found.walled) == ("allow", True), found
        assert verdict(command, mode, wall=False, workspace=tmp_path) == "ask"
    for mode in ("auto", "full"):
        found = ruling(command, mode, wall=False, workspace=tmp_path)
        assert (found.verdict, found.walled) == ("allow", None)


@pytest.mark.parametrize(
    "command",
    [
        *("sort -o x y", "sort -ro x y", "sort --output=x y", "tree -o x", "sed -i p a", "sed --in-place p a", "sed -n -i.bak p a", "find . -delete", "find . -fprint x"),
        *("awk '{print > \"x\"}' a", "awk '{system(\"x\")}' a", "date -s x", "uniq a b", "rg --pre x y", "wc --files0-from=x", "git log --output=x", "file -C -m x"),
        *("find . -exec rm {} +", "ls | xargs rm", "touch x", "python x.py", "printf -v PATH x; ls", "ls | tee x", "./ls", "PATH=. ls"),
    ],
)  # fmt: skip
def test_what_the_wall_would_stop_is_asked_about(command):
    assert {verdict(command, mode) for mode in ("plan", "ask")} == {"ask"}


def test_a_line_of_which_a_part_needs_more_than_the_wall_is_unasked_only_where_nothing_can_be_misread():
    own = {"allow": ["shell:make *", "connect:h:80"]}
    for line in (
        "make x",
        "make x 2>&1 | tail -5",
        "cd a && make 'b c' && echo \"done\" >> log.txt",
        "echo x > a.txt",
        "cat a b > c",
    ):
        found = ruling(line, **own)
        assert (found.verdict, found.walled) == ("allow", False), line
    for line in (
        *("make x; sort a", "echo $x > a", "echo `date` > a", "make x; echo $(ls)", "make x; echo \\a", "make x; cat <(ls)", "make x\n: # it's"),
        *("make x; x=1; ls", "make x; cat < /dev/tcp/h/80", "echo x > ~/a", "{ make x; ls; }", "make x; echo {a,b}"),
    ):  # fmt: skip
        assert verdict(line, **own) == "ask", line
    assert verdict("make x | tail -5", wall=False, **own) == "ask"
    assert (verdict("make x", wall=False, **own), verdict("ls", wall=False, allow=["shell:ls **"])) == ("allow", "allow")


ALWAYS = {
    "tar xf x.tar": "tar xf x.tar",
    "vim x y": "vim x y",
    "git push origin": "git push origin",
    "make test": "make test",
    "ssh h uptime": "ssh h uptime",
    "docker run x": "docker run x",
    "sort -o x y": "sort -o x y",
    "cat a.txt": "cat *",
    "grep -n x a": "grep *",
    "find . -name x": "find . -name x",
    "git status": "git status",
    "tar xf $x": None,
    "vim *": None,
    "cat $x": None,
    "./cat a": "./cat a",
}


@pytest.mark.parametrize(("command", "offered"), ALWAYS.items())
def test_always_offers_open_arguments_only_where_no_option_starts_a_program(command, offered, tmp_path):
    (tmp_path / ".git").mkdir()
    found = ruling(command, wall=False, workspace=tmp_path)
    wanted = () if offered is None else (f"shell:{offered}",)
    assert (found.verdict, tuple(text for text in found.suggests if text.startswith("shell:"))) == ("ask", wanted)
    if offered is not None and "*" not in offered:
        other = f"{command} --option=x"
        assert verdict(other, wall=False, workspace=tmp_path, allow=[f"shell:{offered}"]) == "ask"


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
        ruling = decide(ShellCommand(command=command, wall=True), policy)
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
        assert decide(ShellCommand(command=command, wall=True), policy).verdict == "allow", command


def test_a_wildcard_is_what_it_finds(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/x.csv").touch()
    policy = Policy(
        workspace=tmp_path, rules=Rules(levels=(make_rules({"deny": ["file:data/x.csv"]}), *shipped_rules().levels))
    )
    assert decide(ShellCommand(command="cat data/*", wall=True), policy).verdict == "deny"
    assert decide(ShellCommand(command="cat */x.*", wall=True), policy).verdict == "deny"
    assert decide(ShellCommand(command="cat *.py", wall=True), policy).verdict == "allow"
    (tmp_path / "server.pem").touch()
    assert decide(ShellCommand(command="cat *", wall=True), policy).verdict == "ask"
    assert decide(ShellCommand(command="ls *", wall=True), policy).verdict == "allow"
