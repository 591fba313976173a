"""Shell commands taken apart, and held against what bash really starts."""

import itertools
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.tables import each, lines
from support.thorough import examples

from freeact_sub.approvals.patterns import UNKNOWN, WILD
from freeact_sub.approvals.shell.script import read_script


def commands(text: str) -> list[str]:
    return [
        command.text.replace(UNKNOWN, "$").replace(WILD, "*") for command in read_script(text).commands if not command.wraps
    ]


@each(
    ("text", "found"),
    [
        ("ls -l && git push || true; pwd | wc -l & id", ["ls -l", "git push", "true", "pwd", "wc -l", "id"]),
        ('echo $(rm x) `rm y` "$(rm z)" "`rm p`"', ["rm x", "rm y", "rm z", "rm p", "echo $ $ $ $"]),
        ("echo <(rm x)", ["rm x", "echo $"]),
        ("case $x in a) b;; *) c;; esac", ["b", "c"]),
        ("(cd a; rm x) && { rm y; }", ["cd a", "rm x", "rm y"]),
        ("if a; then b; elif c; then d; else e; fi", list("abcde")),
        ("for f in $(a); do b $f; done; while c; do d; done", ["a", "b $", "c", "d"]),
        ('\'r\'m "-rf" a\\ b c"d"e', ["rm -rf a b cde"]),
        ("l\\s\nrm x # && rm y", ["ls", "rm x"]),
        ("env A=1 B=2 rm x", ["rm x"]),
        ("sudo -u root -n rm x", ["sudo -u root -n rm x", "rm x"]),
        ("timeout -k 5 10 nice -n 5 nohup rm x", ["rm x"]),
        ("bash -c 'ls; rm x'", ["ls", "rm x"]),
        ("bash -ec \"bash -c 'rm x'\"", ["rm x"]),
        ("ls | xargs -0 -n 1 rm -f", ["ls", "rm -f $"]),
        ("find . -exec rm {} + -o -execdir mv {} x \\;", ["find . -exec rm {} + -o -execdir mv {} x ;", "rm $", "mv $ x"]),
        ("eval 'rm x'; trap 'rm y' EXIT", ["rm x", "rm y"]),
        ("cat <<'E' > f && rm x\n$(rm y)\nE\nls", ["cat", "rm x", "ls"]),
        ("A=$(rm x) ls; B=$(rm y)", ["rm x", "ls", "rm y"]),
        ("! time ls", ["ls"]),
        ("command -v ls; command ls", ["command -v ls", "ls"]),
        ("ls *.py ~/x a{b,c}", ["ls *.py ~/x $"]),
    ],
)
def test_every_part_is_found(text, found):
    assert commands(text) == found
    assert not read_script(text).opaque


@each(
    ("text", "files"),
    [
        ("ls > a 2>> b", [("a", True), ("b", True)]),
        ("ls > a; ls >| b; ls 2>> c", [("a", True), ("b", True), ("c", True)]),
        ("cat < a 2>&1 >&2 3>&-", [("a", False)]),
        ("> a", [("a", True)]),
        ("{ ls; } > $X", [(UNKNOWN, True)]),
        ("cat <<E > 'a b'\nx\nE", [("a b", True)]),
        ("for i in 1 2; do ls; done > a", [("a", True)]),
    ],
)
def test_files_that_the_shell_opens_are_found(text, files):
    script = read_script(text)
    assert [(file.path, file.writes) for file in script.files] == files
    assert not script.opaque


@each(
    ("text", "folders"),
    [
        ("ls > f", [""]),
        ("cd a && ls > f", ["", "a"]),
        ("cd a; cd b; ls > f", ["", "a", "b", "a/b"]),
        ("cd /etc; ls > f", ["", "/etc"]),
        ("cd; ls > f", ["", "~"]),
        ("cd $X; ls > f", ["", UNKNOWN]),
        ("while a; do cd ..; done; ls > f", ["", UNKNOWN, ".."]),
        ("while a; do ls > f; cd ..; done", ["", UNKNOWN]),
        ("pushd a; ls > f", ["", UNKNOWN]),
    ],
)
def test_where_a_file_may_be_is_known_after_cd(text, folders):
    assert list(read_script(text).files[0].folders) == folders


@each("text", lines("commands/that_cannot_be_taken_apart.txt"))
def test_what_cannot_be_taken_apart_says_so(text):
    assert read_script(text).opaque


@each(
    ("text", "found"),
    [
        ("case $x in $(a)) rm x;; *) ls > b;; esac", ["rm x", "ls > b"]),
        ("f() { env A=1 rm x; }; f", ["rm x"]),
        ("x=(a b); git 'push' $y", ["git push $"]),
        ("x=(a); [[ x ]] && rm -rf y", ["rm -rf y"]),
        ("bash -c 'f() { rm x; }; f'", ["rm x"]),
    ],
)
def test_what_may_be_a_command_is_found_in_a_text_that_is_not_understood(text, found):
    assert read_script(text).opaque
    assert set(found) <= set(commands(text))


def test_variables_that_are_set_are_told():
    script = read_script("A=1 B=2; export C=3; D=4 ls")
    assert script.assigned == ["A", "B", "C"]
    assert script.commands[0].assigned == ("D",)


@each("name", ["\U000e0000", "\U000b55a1", "é", "\u3000", "\u00a0", "\u2028", "\uff11", "\U0010ffff"])
def test_letters_of_the_world_are_parts_of_words(name):
    assert [command.words for command in read_script(f"ls a{name} '{name}' \"{name}b\" \\{name}; rm x").commands] == [
        ("ls", f"a{name}", name, f"{name}b", name),
        ("rm", "x"),
    ]
    for text in (
        f"{{{name}",
        f"${{{name}}}",
        f"{{1..{name}}}",
        f"<<{name}",
        f"a[{name}]=1",
        f"${name}",
        f"(({name}))",
        f"{name}=1 ls",
    ):
        read_script(text)  # it ended the process


@settings(max_examples=examples(500))
@given(st.text())
def test_no_text_breaks_it(text):
    read_script(text)


def test_letters_beyond_ascii_are_parts_of_words_and_no_harm():
    read_script("{\U000d7a50\tE*\U0001f600\\\\")
    script = read_script("grüße=/x/ä 'für' $ß *é; rm ñ > Ωmega")
    assert [command.words for command in script.commands] == [
        ("grüße=/x/ä", "für", UNKNOWN, "*é".replace("*", WILD)),
        ("rm", "ñ"),
    ]
    assert [file.path for file in script.files] == ["Ωmega"]
    assert read_script("cat <<é\nè\ncat <<'X'\né\nrm -rf /\nX\n").commands[-2].words == ("rm", "-rf", "/")


PIECES = [
    "aa", "bb", "cc", "dd", "echo", "x", "-c", "-n", "eval", "bash", "env", "xargs", "exec", "command", "time", "trap", "EXIT", "find", "-exec", ";", "\\;",
    "&&", "||", "|", "&", "\n", "(", ")", "{", "}", "$(", "`", '"', "'", "\\", "$", "$x", "${x}", "${x:-", "x=", "x=aa", "$((", "))", "<<E\n", "\nE\n",
    "<<'E'\n", "<<-E\n", "<<<", "<(", ">(", "if", "then", "else", "fi", "for x in", "while", "do", "done", "case x in", "esac", ";;", "!", "[[", "]]", "#", "*",
    "function f", "f()", "f", "$'\\x61a'", '$"', "~", "a{a,b}", "==", "-eq", "1", " ", " ", " ", " ", "; ", "return", "\\\n", "%", "|&", "&>y", ">y", "<y", "2>&1",
]  # fmt: skip
RUNS = itertools.count()
STUBS = ("aa", "bb", "cc", "dd")


@pytest.fixture(scope="module")
def stubs(tmp_path_factory):
    """Programs that only write down that they were started."""
    folder = tmp_path_factory.mktemp("stubs")
    for name in STUBS:
        (folder / name).write_text(f'#!/bin/sh\necho {name} >> "$LOG"\n')
        (folder / name).chmod(0o755)
    for name in ("env", "xargs", "find", "bash"):
        (folder / name).symlink_to(shutil.which(name))
    return folder


def started(script: str, stubs: Path, folder: Path) -> set[str]:
    """The stubs that bash starts when it runs the script."""
    log = folder / f"log-{next(RUNS)}"  # what a script leaves in the background writes late, and to its own
    subprocess.run(
        ["/bin/bash", "-c", script],
        cwd=folder,
        env={"PATH": str(stubs), "LOG": str(log), "HOME": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=240,
        check=False,
    )
    return set(log.read_text().split()) if log.exists() else set()


def endless(script: str) -> bool:
    """Loops and functions that call themselves are not for running."""
    return "while" in script or "f()" in script or "function f" in script


@pytest.mark.skipif(not os.access("/bin/bash", os.X_OK), reason="needs bash")
@settings(max_examples=examples(300), suppress_health_check=list(HealthCheck))
@given(
    script=st.lists(st.sampled_from(PIECES), min_size=1, max_size=14).map(lambda pieces: " ".join(pieces).replace("  ", ""))
)
@example(script="cat <<E\n$(aa)\nE")
@example(script="eval a$'\\x61'")
@example(script="x=aa; $x")
@example(script='echo "`aa`" "$(bb "$(cc)")"')
@example(script="echo ${x:-$(aa)} ${x/$(bb)/y}")
@example(script="trap aa EXIT")
@example(script="time x= aa")
@example(script="set -euo pipefail; aa")
@example(script="set -e -- aa; $1")
@example(script="echo \\\naa; a\\\na")
@example(script="[[ x == $(aa) ]]; case $(bb) in *) cc;; esac")
@pytest.mark.process
def test_bash_starts_nothing_that_was_not_found(script, stubs, tmp_path_factory):
    if endless(script):
        return
    told = read_script(script)
    if told.opaque:
        return
    names = {command.words[0] for command in told.commands}
    names |= {word for command in told.commands if command.words[0] == "bash" for word in command.words}  # `bash FILE`
    assert started(script, stubs, tmp_path_factory.getbasetemp()) <= names
