"""git in a folder whose settings name a program wherever they can: what the rules allow starts none of them."""

import os
import pty
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from freeact_sub.approvals import Policy, decide, git_programs
from freeact_sub.approvals.shell.program_options import programs
from freeact_sub.calls import FileWrite, ShellCommand
from freeact_sub.config.schema import KernelConfig
from freeact_sub.modes import MODES
from freeact_sub.system.git_settings import files_of_user

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")

SETTINGS = """diff.submodule pager.status core.fsmonitor core.pager core.editor core.sshCommand core.askPass core.alternateRefsCommand core.gitProxy pager.log
  pager.diff pager.show pager.branch pager.tag pager.shortlog pager.reflog pager.stash diff.external diff.evil.textconv
  diff.other.command diff.default.textconv diff.default.command filter.evil.clean filter.evil.smudge filter.other.process merge.evil.driver gpg.program gpg.ssh.program
  gpg.x509.program credential.helper sequence.editor interactive.diffFilter alias.log alias.status alias.zz
  uploadpack.packObjectsHook trailer.x.command help.browser remote.origin.uploadpack remote.origin.receivepack"""
HOOKS = "post-index-change post-checkout pre-commit reference-transaction post-rewrite pre-auto-gc fsmonitor-watchman"
MISSING = "deadbeef" * 5
OPERANDS = ["", "HEAD", "HEAD~1", "HEAD~2 HEAD~1", "HEAD:a.txt", "-- a.txt", "HEAD~1 -- b.bin sub", MISSING, "t2"]


def run_git(folder: Path, *args: str, text: str = "") -> str:
    """git, in preparation of the folder."""
    names = {f"GIT_{role}_{part}": "a@b" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_ALLOW_PROTOCOL": "file", **names}
    done = subprocess.run(
        ["git", *args], cwd=folder, env=env, input=text, capture_output=True, text=True, timeout=240, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def user(monkeypatch):
    """Makes a folder the user's home; of the machine's settings none count."""

    def set_home(folder: Path) -> None:
        monkeypatch.setenv("HOME", str(folder))
        monkeypatch.setattr(
            git_programs,
            "files_of_user",
            lambda name: [path for path in files_of_user(name) if path.startswith(f"{folder}/")],
        )

    return set_home


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A repository, with a submodule, that starts `trips/NAME` wherever a setting can say so."""
    root = tmp_path_factory.mktemp("git")
    inner, work, trips = root / "inner", root / "work", root / "trips"
    for folder in (inner, work, trips, root / "hooks"):
        folder.mkdir()
    for folder in (inner, work):
        run_git(folder, "init", "-q", "-b", "main")
        (folder / "a.txt").write_text("one\n")
        (folder / "b.bin").write_text("one\n")
        (folder / ".gitattributes").write_text("*.txt diff=evil filter=evil merge=evil\n*.bin diff=other filter=other\n")
        if folder == work:
            run_git(work, "submodule", "add", "-q", str(inner), "sub")
        for content in ("two\n", "three\n"):
            run_git(folder, "add", ".")
            run_git(folder, "commit", "-qm", content)
            (folder / "a.txt").write_text(content)
            (folder / "b.bin").write_text(content)
    tree, parent = run_git(work, "rev-parse", "HEAD^{tree}"), run_git(work, "rev-parse", "HEAD")
    signed = f"tree {tree}\nparent {parent}\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n"
    signed += "gpgsig -----BEGIN PGP SIGNATURE-----\n \n iQ==\n -----END PGP SIGNATURE-----\n\nsigned\n"
    run_git(work, "update-ref", "HEAD", run_git(work, "hash-object", "-t", "commit", "-w", "--stdin", text=signed))
    run_git(work, "tag", "-a", "t2", "-m", "x")
    run_git(work, "stash")
    # of the same size: else git knows by that that it has changed, and needs no filter
    (work / "a.txt").write_text((work / "a.txt").read_text().swapcase())
    text = "[extensions]\n\tpartialClone = origin\n[log]\n\tshowSignature = true\n[status]\n\tsubmoduleSummary = true\n"
    text += f"[core]\n\trepositoryformatversion = 1\n\thooksPath = {root}/hooks\n[include]\n\tpath = {root}/more\n"
    text += f'[remote "origin"]\n\turl = {inner}\n\tpromisor = true\n[protocol "ext"]\n\tallow = always\n'
    set_programs(root, SETTINGS.split())
    for hook in HOOKS.split():
        shutil.copy(_trap(root, f"{trips}/hook-{hook}"), root / "hooks" / hook)
    for config in (work / ".git/config", work / ".git/modules/sub/config"):
        config.write_text(config.read_text() + text)
    return root


def settings_for(root: Path, names: list[str]) -> str:
    """Settings of these names, each with a program that leaves `trips/NAME`."""
    text = ""
    for name in names:
        section, _, key = name.rpartition(".")
        first, _, second = section.partition(".")
        value = (
            "diff" if name == "diff.submodule" else f"{'!' if first == 'alias' else ''}{_trap(root, f'{root}/trips/{name}')}"
        )
        text += f"[{first}" + (f' "{second}"' if second else "") + f"]\n\t{key} = {value}\n"
    return text


def set_programs(root: Path, names: list[str]) -> None:
    """Makes these the settings that the repository and its submodule include."""
    (root / "more").write_text(settings_for(root, names))


def _trap(root: Path, mark: str) -> Path:
    path = root / f"start-{Path(mark).name}"
    goes_on = "exec cat" if any(word in path.name for word in ("pager", "clean", "smudge")) else "exit 1"
    path.write_text(f"#!/bin/sh\n: > {shlex.quote(mark)}\n{goes_on}\n")
    path.chmod(0o755)
    return path


def started(root: Path, lines: list[str], environment: dict[str, str]) -> list[str]:
    """What the lines start, in a terminal: there git starts a pager."""
    for mark in (root / "trips").iterdir():
        mark.unlink()
    script = "\n".join(f"touch a.txt b.bin sub/a.txt; {line}" for line in lines)
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(root / "work")
        os.execve("/bin/sh", ["sh", "-c", script], {**environment, "GIT_CONFIG_NOSYSTEM": "1"})
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:
        pass  # the end of a terminal
    os.close(terminal)
    os.waitpid(child, 0)
    return sorted(mark.name for mark in (root / "trips").iterdir())


def test_the_trap_works(hostile):
    environment = {"PATH": os.environ["PATH"], "HOME": str(hostile)}
    lines = [
        "git log -1",
        "git status",
        "git diff",
        "git show -p HEAD~1",
        f"git cat-file -p {MISSING}",
        "git diff --no-ext-diff",
    ]
    found = started(hostile, lines, environment)
    assert {"core.fsmonitor", "filter.evil.clean", "gpg.program", "remote.origin.uploadpack"} <= set(found)
    assert {"pager.log", "diff.evil.textconv"} <= set(found)


def lines_of(command: str) -> list[str]:
    program = programs()[command]
    options = [*(f"-{letter}" for letter in program.short), *(f"--{name}" for name in program.long)]
    options += [f"{option}=%G?1" for option in options if option.startswith("--")] + [f"{option} 1" for option in options]
    more = [*(" ".join(sorted(group)) for group in program.needs[-1:]), " ".join(sorted(program.guards))]
    needed = max(more, key=len)
    forms = [f"{command} {needed} {names}" for names in OPERANDS] + [
        f"{command} {needed} {option} HEAD~1" for option in options
    ]
    return [" ".join(form.split()) for form in (*forms, *(f"{command} {option}" for option in options))]


PLAIN = [
    "git branch",
    "git branch -a",
    "git branch -vv",
    "git tag",
    "git tag -n",
    "git remote -v",
    "git stash list",
    "git reflog",
    "git worktree list",
]


@pytest.mark.slow
@pytest.mark.parametrize("command", [name for name in programs() if name.startswith("git ")] + ["plain"])
def test_what_is_allowed_of_git_starts_nothing(hostile, command, user):
    user(hostile)
    policy = Policy(workspace=hostile / "work")
    lines = PLAIN if command == "plain" else lines_of(command)
    settings = command != "plain" and programs()[command].settings
    with_drivers = start_nothing(hostile, lines, policy)
    if not settings:
        assert with_drivers
        return
    set_programs(hostile, [name for name in SETTINGS.split() if not name.startswith(("filter.", "diff."))])
    assert len(with_drivers) < len(start_nothing(hostile, lines, policy))
    set_programs(hostile, SETTINGS.split())


def start_nothing(root: Path, lines: list[str], policy: Policy) -> list[str]:
    """The lines that are allowed; none of them has started anything."""
    allowed = [line for line in lines if decide(ShellCommand(command=line), policy).verdict == "allow"]
    environment = KernelConfig().environment() | {"HOME": str(root)}
    if allowed and started(root, allowed, environment):
        assert {line: found for line in allowed if (found := started(root, [line], environment))} == {}
    return allowed


DRIVERS = {
    "filter.evil.clean": ["git status", "git diff", "git diff HEAD"],
    "filter.other.process": ["git status -s", "git diff --stat"],
    "diff.external": ["git diff", "git diff HEAD~1 --unified=1"],
    "diff.evil.textconv": ["git diff", "git log -p -2", "git show HEAD~1"],
    "diff.other.command": ["git diff HEAD~2"],
    "diff.default.textconv": ["git diff HEAD~2 HEAD -- .gitmodules", "git log -p -3"],
}


PLACES = {
    "repository": ".git/config",
    "worktree": ".git/config.worktree",
    "submodule": ".git/modules/sub/config",
    "user": "../.gitconfig",
    "included": "../included",
    "included for others": "../included",
}


def append(path: Path, text: str) -> None:
    path.write_text((path.read_text() if path.exists() else "") + text)


@pytest.fixture
def plain(hostile, user):
    """The hostile folder without any of its settings; they are back after the test."""
    before = {path: path.read_text() for path in (hostile / "work/.git/config", hostile / "work/.git/modules/sub/config")}
    for path, text in before.items():
        path.write_text(re.sub(r"(?s)\[extensions\].*", "", text))
    user(hostile)
    yield hostile
    for place in PLACES.values():
        (hostile / "work" / place).unlink(missing_ok=True)
    for path, text in before.items():
        path.write_text(text)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", DRIVERS)
def test_a_setting_that_starts_a_program_is_the_reason_of_the_question(name, place, plain):
    policy, config, file = Policy(workspace=plain / "work"), plain / "work/.git/config", plain / "work" / PLACES[place]
    lines = DRIVERS[name]
    assert [decide(ShellCommand(command=line), policy).verdict for line in lines] == ["allow"] * len(lines)
    append(config, "[extensions]\n\tworktreeConfig = true\n")
    if place.startswith("included"):
        condition = ' "gitdir:/elsewhere/"' if place.endswith("others") else ""
        append(config, f"[include{'If' if condition else ''}{condition}]\n\tpath = {file}\n")
    append(file, settings_for(plain, [name]))
    for line in lines:
        ruling = decide(ShellCommand(command=line), policy)
        assert ruling.verdict == "ask", line
        assert name.rpartition(".")[2] in ruling.rule
        assert os.path.basename(PLACES[place]) in ruling.rule
    if place.endswith("others") or (place == "submodule" and name != "filter.evil.clean"):
        return  # what does not count for git asks too
    assert name in started(plain, lines, KernelConfig().environment() | {"HOME": str(plain)})


@pytest.fixture
def small(tmp_path):
    """A repository beside a user's settings with a filter, and no attributes."""
    (tmp_path / ".gitconfig").write_text(settings_for(tmp_path, ["filter.lfs.clean"]))
    (tmp_path / "trips").mkdir()
    work = tmp_path / "work"
    (work / "in").mkdir(parents=True)
    run_git(work, "init", "-q", "-b", "main")
    for name in ("a.txt", "b.bin", "in/c.txt"):
        (work / name).write_text("one\n")
    run_git(work, "add", ".")
    run_git(work, "commit", "-qm", "x")
    return tmp_path


@pytest.mark.parametrize(
    "place", [".gitattributes", "in/.gitattributes", ".git/info/attributes", "../.config/git/attributes"]
)
@pytest.mark.parametrize("name", ["filter", "text"])
def test_a_driver_counts_where_attributes_name_it(name, place, small, user):
    user(small)
    policy, file = Policy(workspace=small / "work"), small / "work" / place
    assert decide(ShellCommand(command="git status"), policy).verdict == "allow"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"* {name}={'lfs' if name == 'filter' else 'auto'}\n")
    assert decide(ShellCommand(command="git status"), policy).verdict == ("ask" if name == "filter" else "allow")
    found = started(small, ["touch in/c.txt; git status"], KernelConfig().environment() | {"HOME": str(small)})
    assert found == (["filter.lfs.clean"] if name == "filter" else [])
    if place.endswith(".gitattributes") and name == "filter":
        run_git(small / "work", "-c", "filter.lfs.clean=cat", "add", ".")
        file.unlink()
        assert "in the index" in decide(ShellCommand(command="git status"), policy).rule


@pytest.mark.parametrize(
    "change",
    [
        "git update-index --index-version 4",
        "git update-index --split-index",
        "git config core.worktree /",
        "git config attr.tree HEAD",
        "git config diff.submodule diff",
        "git config include.path '%(prefix)/x'",
        "git config core.attributesFile '%(prefix)/x'",
        "head -c 2000000 /dev/zero >> .git/config",
        "mkfifo .git/x; git config include.path x",
        "mv .git/objects .git/o",
        "rm -rf .git; git init -q --object-format=sha256",
        "rm -rf .git",
        "rm -rf .git; echo gitdir: /nowhere > .git",
        "truncate -s 100 .git/index",
    ],
)
def test_what_cannot_be_read_of_a_repository_is_asked_for(change, small, user):
    user(small)
    policy = Policy(workspace=small / "work")
    assert decide(ShellCommand(command="cd in && git diff"), policy).verdict == "allow"
    subprocess.run(["sh", "-c", change], cwd=small / "work", check=True, env={"PATH": os.environ["PATH"], "HOME": "/"})
    assert decide(ShellCommand(command="git diff"), policy).verdict == "ask"


def test_a_look_at_a_repository_has_a_bound(small, user, monkeypatch):
    user(small)
    monkeypatch.setattr(git_programs, "LOOK_SECONDS", -1.0)
    ruling = decide(ShellCommand(command="git diff"), Policy(workspace=small / "work"))
    assert (ruling.verdict, ruling.rule) == ("ask", "git may start a program: there are too many files to check")


def test_worktrees_and_tracked_secrets(small, user):
    user(small)
    run_git(small / "work", "worktree", "add", "-q", "../other")
    policy = Policy(workspace=small / "other")
    for line in ("git status", "git diff", "git log -p", "git diff HEAD -- in"):
        assert decide(ShellCommand(command=line), policy).verdict == "allow"
    for line in ("git diff ../work in", "git diff ~/.ssh in", "cd $x && git status"):
        assert decide(ShellCommand(command=line), policy).verdict == "ask"
    (small / "other/.env").write_text("x")
    assert decide(ShellCommand(command="git diff"), policy).verdict == "allow"
    run_git(small / "other", "add", ".")
    assert "reads" in decide(ShellCommand(command="git diff"), policy).part
    assert decide(ShellCommand(command="git status"), policy).verdict == "allow"
    append(small / "work/.git/config", settings_for(small, ["diff.external"]))
    assert "diff.external" in decide(ShellCommand(command="git log -p"), policy).rule


@pytest.mark.parametrize(
    "command",
    [
        *("git status", "git diff", "git diff HEAD", "git diff --stat", "git diff --no-ext-diff", "git blame a", "git show", "git show HEAD:x -p", "git log -p", "git log -S x"),
        *("git log --patch --no-textconv", "git log -L1,1:a", "git ls-files -m", "git describe --dirty", "git branch x", "git branch -D x", "git tag x"),
        *("git branch --list -D x", "git tag --list -d x", "git log --output=x", "git log --ext-diff", "git show --textconv --stat", "git diff --no-index a b"),
        *("git -c core.pager=x log", "git --exec-path=x log", "git -C x log", "git --git-dir=x log", "git -p log", "git grep -O x", "git fetch", "git push"),
        *("git cat-file --textconv HEAD:a", "git cat-file --filters HEAD:a", "git rev-parse --parseopt", "git config -l", "git stash list -p"),
    ],
)  # fmt: skip
def test_other_forms_of_git_are_asked_for(command):
    assert decide(ShellCommand(command=command), Policy(workspace=Path("/work space"))).verdict == "ask"


@pytest.mark.parametrize(
    "path", ["x/HEAD", "HEAD", ".git", "x/.git", ".git/config", "x/.git/hooks/y", ".git/commondir", "x/../HEAD"]
)
def test_a_folder_that_git_may_obey_is_not_made_unasked(path):
    policy = {mode: Policy(workspace=Path("/work space"), mode=mode) for mode in MODES}
    assert decide(FileWrite(path=path, operation="create"), policy["ask"]).verdict == "ask"
    assert decide(ShellCommand(command=f"echo x > {path}"), policy["ask"]).verdict == "ask"
    assert decide(FileWrite(path=path, operation="rename"), policy["plan"]).verdict == "deny"
