"""Commands that read whole folders: a file in them that a rule forbids counts as if the command named it."""

import os

import pytest
from support.tables import each, lines

from freeact_sub.approvals import Policy, decide
from freeact_sub.approvals.policy import make_rules, shipped_rules
from freeact_sub.approvals.shell.files import COPIES, PACKS, READERS, RECURSIVE
from freeact_sub.calls import ShellCommand
from freeact_sub.modes import MODES

READING = lines("commands/that_read_a_denied_file.txt")
OTHER = lines("commands/that_read_no_denied_file.txt")


@pytest.fixture
def policy(tmp_path):
    """Allows the programs by a person's rules, and denies one file by another."""
    for name in ("DIR/inner", "plain", "y"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "DIR/inner/hidden.txt").write_text("x")
    (tmp_path / "DIR/a.txt").write_text("x")
    (tmp_path / "plain/a.txt").write_text("x")
    programs = [
        "tar",
        "cp",
        "zip",
        "7z",
        "rsync",
        "diff",
        "grep",
        "rg",
        "gzip",
        "scp",
        "ls",
        "mv",
        "git",
        "ruff",
        "python",
        "gcc",
    ]
    allow = [f"shell:{name} **" for name in programs]
    rules = make_rules({"allow": [*allow, "shell:env **", "connect:**"], "deny": ["file:**/hidden.txt", "shell:git push *"]})
    return {mode: Policy(workspace=tmp_path, mode=mode, rules=shipped_rules().with_session(rules)) for mode in MODES}


@each("mode", ["ask", "auto", "full"])
@each("command", READING)
@pytest.mark.slow
def test_a_denied_file_in_a_folder_that_is_read_is_not_read_unasked(policy, command, mode):
    ruling = decide(ShellCommand(command=command, wall=True), policy[mode])
    assert ruling.verdict != "allow", ruling


@each("command", OTHER)
def test_what_reads_no_denied_file_is_allowed(policy, command):
    assert decide(ShellCommand(command=command, wall=True), policy["ask"]).verdict == "allow"


UNKNOWN = ["$UNKNOWN/x", '"$(pwd)"/x', "./$UNKNOWN/../x", "${UNKNOWN}plain/x", "$UNKNOWN/*/x"]
TOLD = {".*": "", RECURSIVE: "-r", COPIES: "-r", PACKS: "cf y", READERS["git"]: "diff --no-index"}
TOLD |= {READERS["php"]: "-S 0:80", READERS["npm"]: "pack", READERS["aws"]: "s3 cp", READERS["cmake"]: "-E copy_directory"}


@each("name", sorted(READERS))
@pytest.mark.slow
def test_a_folder_that_nobody_knows_is_asked_about(policy, name):
    lines = [f"{name} {TOLD[READERS[name]]} {word} y" for word in UNKNOWN]
    lines += [f"cd $UNKNOWN; {name} {TOLD[READERS[name]]} x y", f"{name} {TOLD[READERS[name]]} y -C $UNKNOWN/x in"]
    if name in ("tar", "gtar", "bsdtar", "star"):
        lines += [f"{name} cf y -C$UNKNOWN/x in", f"{name} cf y --directory=$UNKNOWN/x in"]
    found = {line: decide(ShellCommand(command=line, wall=True), policy["full"]).verdict for line in lines}
    assert "allow" not in found.values(), found


NAMED_LIKE_OPTIONS = [
    ("-r", "grep x * ../DIR"),
    ("-R", "cp * ../DIR y"),
    ("-r", "gzip ?r ../DIR"),
    ("--checkpoint-action=exec=git push", "tar cf x.tar *"),
    ("--to-command=git push", "tar xf x.tar -*"),
    ("-TTgit push", "zip x -T *"),
    ("-Tlist", "tar cf x.tar *"),
    ("@list", "7z a x *"),
    ("--files-from=list", "rsync *"),
    ("--files0-from=list", "wc *"),
    ("--files0-from=list", "du *"),
]
NOT_OPTIONS = [
    ("-b", "cat *"),
    ("-R", "ls -l *"),
    ("-r", "grep x ./*"),
    ("-r", "ls ../plain/*"),
    ("-n", "cat *"),
    ("-R", "ls *"),
]


@pytest.mark.parametrize(("name", "command"), NAMED_LIKE_OPTIONS)
def test_a_file_that_a_wildcard_finds_is_an_option_where_its_name_is_one(policy, tmp_path, name, command):
    call = ShellCommand(command=command, cwd="plain", wall=True)
    assert decide(call, policy["full"]).verdict == "allow"
    (tmp_path / "plain" / name).touch()
    assert decide(call, policy["ask"]).verdict != "allow"


@pytest.mark.parametrize(("name", "command"), NOT_OPTIONS)
def test_a_file_with_the_name_of_a_harmless_option_does_not_ask(policy, tmp_path, name, command):
    (tmp_path / "plain" / name).touch()
    assert decide(ShellCommand(command=command, cwd="plain", wall=True), policy["ask"]).verdict == "allow"


@pytest.mark.slow
def test_a_wildcard_that_finds_many_files_is_judged_by_them_up_to_the_bound(policy, tmp_path, monkeypatch):
    monkeypatch.setattr("freeact_sub.approvals.access.MAX_FILES", 3_000)
    for number in range(2_999):
        (tmp_path / "plain" / f"b{number}").touch()
    lines = ["cat plain/*", "cat plain/b*", "cat pl*/*"]
    assert {decide(ShellCommand(command=line, wall=True), policy["ask"]).verdict for line in lines} == {"allow"}
    (tmp_path / "plain/c").touch()
    assert decide(ShellCommand(command=lines[0], wall=True), policy["ask"]).verdict == "ask"
    assert decide(ShellCommand(command=lines[2], wall=True), policy["ask"]).verdict == "ask"
    assert decide(ShellCommand(command=lines[1], wall=True), policy["ask"]).verdict == "allow"


@pytest.mark.slow
def test_wildcards_without_end_are_asked_about_and_read_few_folders(policy, tmp_path, monkeypatch):
    for number in range(2_500):
        (tmp_path / "plain" / f"-{number}").touch()
    read = []
    monkeypatch.setattr("os.scandir", lambda folder, scandir=os.scandir: (read.append(folder), scandir(folder))[1])
    for line in (
        "cat *",
        "cat " + "* " * 9_000,
        "cat " + " ".join(f"*{number}*" for number in range(2_000)),
        "cat * * * * *",
    ):
        assert decide(ShellCommand(command=line, cwd="plain", wall=True), policy["ask"]).verdict == "ask"
    assert len(read) < 4 * 2_500, "each file is looked into once for each line at most"


def test_what_a_wildcard_finds_is_looked_up_once_in_a_decision(policy, tmp_path, monkeypatch):
    (tmp_path / "plain" / "-n").touch()
    read = []
    monkeypatch.setattr("os.scandir", lambda folder, scandir=os.scandir: (read.append(folder), scandir(folder))[1])
    assert decide(ShellCommand(command="cat * *", cwd="plain", wall=True), policy["ask"]).verdict == "allow"
    assert read.count(str(tmp_path / "plain")) == 1


@each("command", ["rg x 'a\\0b'", "cp -r $'a\\0b' y", "cp -r a\0b y", "diff a\0b y"])
def test_a_name_that_no_file_can_have_is_decided_about(policy, command):
    for mode in MODES:
        decide(ShellCommand(command=command, wall=True), policy[mode])
        decide(ShellCommand(command="rg x .", cwd=command, wall=True), policy[mode])
