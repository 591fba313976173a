"""Commands that a reader may not see, held against what bash and another `sh` really start."""

import contextlib
import random
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from support.tables import each, lines
from support.thorough import THOROUGH

from freeact_sub.approvals import Policy, decide, make_rules
from freeact_sub.approvals.patterns import UNKNOWN
from freeact_sub.approvals.policy import Rules, shipped_rules
from freeact_sub.approvals.shell.script import read_script
from freeact_sub.calls import ShellCommand

SHELLS = [shell for shell in ("/bin/bash", "/bin/dash") if shutil.which(shell)]
WORDS = [
    "$({})", "`{}`", "\\`{}\\`", "<({})", ">({})", "${{x-{}}}", "${{x:-{}}}", "${{PATH%{}}}", "${{PATH//{}/a}}", "${{PATH,{}}}", "${{x-'{}'}}",
    "${{x-$'{}'}}", "${{x-~{}}}", "${{x-[{}]}}", "'{}'", '"{}"', "$'{}'", '$"{}"', "~{}", "[{}]", "a{}b", "{{a,{}}}", "$(echo {})", "`echo {}`",
    "\"${{x-'{}'}}\"", "\"${{x-$'{}'}}\"", '"${{x-~{}}}"', '"${{x-[{}]}}"', "`echo \\`{}\\``", "${{PWD%{}}}", "${{PWD,{}}}", '"$(echo "{}")"',
    "$((1+{}))", "$[{}]", "\\'{}", '\\"{}\\"', "{}'", "'{}", '"{}', "$'\\'{}", "#{}", "x={}", "a\n{}", "\\{}", "{}\\",
]  # fmt: skip
LINES = [
    "echo {}", "cat <<E\n{}\nE", "cat <<'E'\n{}\nE", "cat <<E\nit's\nE\n{}", "case a in {}) ls;; esac", "case {} in a) ls;; esac", "[[ a = {} ]]",
    "[[ {} ]]", "[[ a || {} ]]", "[[ a < {} ]]", "[[ a =~ b|{} ]]", "[ {} ]", "x={} ls", "a=({})", "for i in {}; do ls; done", "ls {} | cat", "ls > {}",
    "echo a; {}", "echo 'a' {} 'b'", 'echo "a" {} "b"', "if ls; then echo {}; fi", "{}", "f() {{ ls {}; }}; f", "ls # {}\nls", "ls # it's\n{}",
    "echo {} {}", "echo a &> {}", "(( {} ))", "cat <<< {}", "! ls {}", "echo $'\\'; {} #'", "echo a\\\n{}", "bash -c '{}'", "sh -c '{}'",
    "[[ a && {} ]]", "[[ a && b == {} ]] && ls", "ls &> a {}", "ls &>> {} 2>&1", "ls |& {}", "ls < <(echo {})", "cat <<< {} > a",
    "case a in a) {};; esac", "case a in (b) ls;; a|c) ;; *) {} ;; esac", "case {} in a) ls;& b) {} ;; esac", "f() {{ {}; }}; f", "function f {{ {}; }}; f",
    "f() {{ ls $1 {}; }}; f a", "case a in b) ;;\n# x\na) {}\nesac; ls", "(a); {}", "f() ( {} ); f",
]  # fmt: skip
FORMS = [
    """echo "${x-'$(zz)'}\"""", """cat <<E\n${x-'$(zz)'}\nE""", """echo "${x-$'$(zz)'}\"""", r"echo `echo \`zz\``", 'echo "${x-~`zz`}"',
    "echo ${PWD%<(zz)}", "echo ${PWD/<(zz)/a}", "echo ${PWD,<(zz)}", "case a in <(zz)) ls;; esac", "case a in `zz`) ls;; esac",
    "[[ x || zz ]]", "[[ a =~ b|zz ]]", r"echo $'\'; zz #'", r"echo TEXT $'\'>FILE #'", "[[ x | zz ]]", "ls &> a zz", "((x)) || zz",
]  # fmt: skip
RUNNING = [
    "! [[ a && zz ]]", "true || [[ a && zz ]]", "! true | [[ a && zz ]]",
    "cat <<E | echo $(ls\nzz\nE\n)\nx\nE", 'cat <<E >a "$(ls\nzz\nE\n)"\nE', "cat <<E >$(ls\nzz\nE\n)\nE",
    "a=-v; b='x[$(zz)]'; [ $a \"$b\" ]", "y='1 -o -v b[$(zz)]'; [ -n $y ]", "y='1 -o -v b[$(zz)]'; test -n $y",
    "y='1 -o -v b[$(zz)]'; command test -n $y", "a=-v; b='x[$(zz)]'; [ ! \"$a\" \"$b\" ]", "touch -- -v 'x[$(zz)]'; [ -? x* ]",
    "OPTIND='a[$(zz)]'", "for RANDOM in 'a[$(zz)]'; do ls; done", "read OPTIND <<< 'a[$(zz)]'", "export HISTCMD='a[$(zz)]'",
    "jobs -x zz",
]  # fmt: skip
"""Scripts in which some shell starts `zz`."""


def made(random_: random.Random) -> str:
    text = "zz"
    for _ in range(random_.randint(1, 4)):
        text = random_.choice(WORDS).format(text)
    other = random_.choice(WORDS).format("zz") if random_.random() < 0.5 else "a"
    line = random_.choice(LINES).format(text, other)
    return random_.choice(LINES).format(line, line) if random_.random() < 0.2 else line


@pytest.fixture
def starts(tmp_path):
    """Tells whether a shell starts `zz` when it runs a script."""
    hit = tmp_path / "hit"
    (tmp_path / "zz").write_text('#!/bin/sh\n: > "$HIT"\n')
    (tmp_path / "zz").chmod(0o755)

    def starts(shell: str, text: str) -> bool:
        hit.unlink(missing_ok=True)
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HIT": str(hit)}
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [shell, "-c", text],
                cwd=tmp_path,
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=5,
                check=False,
            )
        return hit.exists()

    return starts


def unseen(text: str, shell: str) -> bool:
    """Whether the parser says that the script is understood, and `zz` not in it."""
    found = read_script(text)
    return not found.opaque and not any(command.words[0] == "zz" for command in found.commands)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.process
def test_what_a_shell_starts_is_found_or_not_understood(shell, starts):
    random_ = random.Random(f"{shell} 1")
    texts = [text for text in (made(random_) for _ in range(10_000 if THOROUGH else 1000)) if unseen(text, shell)]
    assert [text for text in texts if starts(shell, text)] == []


@each("text", RUNNING)
@pytest.mark.process
def test_what_a_shell_starts_in_a_rare_form_is_found_or_not_understood(text, starts):
    assert any(starts(shell, text) for shell in SHELLS)
    assert not unseen(text, "")


@each("form", FORMS)
def test_no_form_passes_a_rule_that_denies(form):
    rules = Rules(levels=(make_rules({"deny": ["shell:zz **"]}), *shipped_rules().levels))
    policy = Policy(workspace=Path("/w"), mode="full", rules=rules)
    assert decide(ShellCommand(command=form), policy).verdict != "allow"
    assert decide(ShellCommand(command=f"sh -c {shlex.quote(form)}"), policy).verdict != "allow"


@each("text", lines("commands/that_are_plain.txt"))
def test_what_is_plain_to_every_shell_is_understood(text):
    assert read_script(text).opaque == ""


@each("text", ["[[ a > FILE ]]", "ls &> FILE", "ls &>>FILE", "cat <<< a > FILE", "ls |& cat > FILE"])
def test_files_that_any_shell_opens_are_found(text):
    assert [file.path for file in read_script(text).files] == ["FILE"]


@each("text", ["chdir /; zz", "for i in 1 2 3; do zz; c''d ..; done", "trap zz EXIT; cd ..", "trap 'cd ..' DEBUG; zz; zz"])
def test_folder_that_a_shell_may_be_in_is_known_or_unknown(text):
    script = read_script(text)
    [folders, *_] = [command.folders for command in script.commands if command.words == ("zz",)]
    assert script.opaque or UNKNOWN in folders
