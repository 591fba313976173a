"""What changes the meaning of words that follow: variables, functions, aliases; and connections that look like files."""

from pathlib import Path

import pytest

from freeact_sub.approvals import Policy, decide, make_rules
from freeact_sub.approvals.rules.rule import Rules, shipped_rules
from freeact_sub.calls import ShellCommand
from freeact_sub.modes import MODES

WORK = Path("/work space")


def ruling(command, mode="ask", **lists):
    rules = Rules(levels=(make_rules(lists), *shipped_rules().levels))
    return decide(ShellCommand(command=command, wall=True), Policy(workspace=WORK, mode=mode, rules=rules))


def verdict(command, mode="ask", **lists):
    return ruling(command, mode, **lists).verdict


CHANGING = [
    *("PATH=. ls", "PATH=.; ls", "PATH+=:.; ls", "PATH=(.); ls", "for PATH in ./bin; do ls; done", "for PATH; do ls; done"),
    *("select PATH in .; do ls; done", "for ((PATH=1;;)); do ls; done", "unset PATH; ls", "unset -v PATH; ls"),
    *("command unset PATH; ls", "builtin unset PATH; ls", "\\unset PATH; ls", "'unset' PATH; ls", "unset $X; ls"),
    *("export PATH; ls", "export PATH=.; ls", "command export PATH=.; ls", "\\export PATH=.; ls", "export -n PATH; ls"),
    *("declare PATH=.; ls", "declare -x PATH=.; ls", "typeset PATH=.; ls", "readonly PATH; ls", "readonly PATH=.; ls"),
    *("command declare -n x=PATH; ls", "builtin typeset PATH=.; ls", "f() { local PATH=.; ls; }; f", "declare -n x=PATH; ls"),
    *("read PATH < f; ls", "read -r PATH < f; ls", "read -ra PATH < f; ls", "read -raPATH x < f; ls", "read x PATH < f; ls"),
    *("read -p ? -t 1 PATH; ls", "command read PATH; ls", "read $X; ls", "read 'a[$(x)]'; ls", "while read PATH; do ls; done < f"),
    *("getopts a PATH; ls", "printf -v PATH .; ls", "printf -vPATH .; ls", "command printf -v PATH .; ls", "printf $X PATH ."),
    *("mapfile PATH < f; ls", "readarray PATH < f; ls", "wait -p PATH; ls", "wait -pPATH; ls", "coproc PATH { ls; }; ls"),
    *("((PATH=1)); ls", "let PATH=1; ls", "echo $((PATH=1)); ls", "echo $[PATH=1]; ls", ": ${PATH:=.}; ls", ": ${PATH=.}; ls"),
    *("exec {PATH}>/dev/null; ls", "true {PATH}>/dev/null; ls", "{ ls; } {PATH}</dev/null", "ls {PATH}>&1"),
    *("LD_PRELOAD=./x ls", "BASH_ENV=f; bash -c ls", "ENV=f sh -c ls", "IFS=/; ls", "PYTHONPATH=. python3 --version"),
    *("GIT_DIR=x git log", "GIT_CONFIG_COUNT=0 git log", "export GIT_PAGER=./x; git log", "unset GIT_CONFIG_COUNT; git log"),
    *("env -u GIT_CONFIG_COUNT git log", "env --unset=GIT_PAGER git log", "env -i git log", "env - git log", "env -iu X git log"),
    *("env --ignore-environment git log", "exec -c git log", "env 'BASH_FUNC_ls%%=() { x; }' bash -c ls", "env $X ls"),
    *("ls() { touch x; }; ls", "function cat { head x; }; cat", "cd() { :; }; cd x", "git() { :; }; git log", "export -f ls; ls"),
    *("alias ls=rm; ls", "command alias ls=rm", "hash -p ./x ls; ls", "enable -f ./x ls; ls", "shopt -s expand_aliases; ls"),
    *("set -a; ls", "set -k; ls", "command set -a; ls", "complete -C x ls; ls", "bind x; ls", "test -v 'a[$(x)]'", "[ -v a ]"),
    *("compgen -C ./x", "fc -s", "http_proxy=x; ls", "export https_proxy=x; ls", "path=(.); ls", "npm_config_prefix=. ; ls"),
    *("TERM=x PATH=. ls", "if PATH=.; then ls; fi", "(PATH=.; ls)", "{ PATH=.; ls; }", "ls $(PATH=. ls)", "! PATH=. ls"),
    *("case x in x) PATH=.;; esac; ls", "true && PATH=. && ls", "bash -c 'PATH=.; ls'", "eval 'PATH=.'; ls", "PATH=. | ls"),
]  # fmt: skip


@pytest.mark.parametrize("command", CHANGING)
def test_what_changes_what_words_mean_is_asked_for(command):
    assert verdict(command) == "ask"
    assert verdict(command, "auto") in ("ask", "deny")
    assert verdict(command, allow=["shell:ls **", "shell:git **", "shell:read **", "shell:env **"]) == "ask"


@pytest.mark.parametrize(
    "command",
    [
        *("for f in a b; do ls $f.txt; done | wc -l", "x=1; echo $x", "LC_ALL=C sort x", "TZ=UTC date", "while read -r line; do echo; done < a"),
        *("f() { ls; }; f", "export LANG=C; ls", "printf '%s' x", "printf -- -5", "unset x; ls", "read -p '? ' -r name < a", "wait", "wait -n"),
        *("ls > ${x}.txt", "env LANG=C ls", "env ls", "command ls", "exec ls", "set -e; ls", "[ -f x ] && ls", "getopts ab: opt"),
    ],
)  # fmt: skip
def test_what_changes_nothing_is_not_asked_for_because_of_a_variable(command):
    said = ruling(command, allow=["shell:read **", "shell:wait **", "shell:getopts **"])
    assert not any(word in said.rule for word in ("change", "variable", "meaning", "understood", "told")), said


CONNECTING = [
    *("cat < /dev/tcp/127.0.0.1/80", "bash -c 'cat < /dev/tcp/127.0.0.1/80'", "cat </dev/udp/127.0.0.1/80", "echo x > /dev/tcp/127.0.0.1/80"),
    *("exec 3<>/dev/tcp/127.0.0.1/80", "exec 3< /dev/tcp/127.0.0.1/80", "cat /dev/tcp/127.0.0.1/80", "cat <<< /dev/tcp/127.0.0.1/80"),
    *("{ cat; } < /dev/tcp/127.0.0.1/80", "while read x; do ls; done < /dev/tcp/127.0.0.1/80", "cat < '/dev/tcp/127.0.0.1/80'"),
    *('cat < /dev/"tcp"/127.0.0.1/80', "cat < /dev/tcp/127.1/http", "cat < /dev/tcp/2130706433/80", "cat < /dev/tcp/127.0.0.1/65616"),
    *("echo $(< /dev/tcp/127.0.0.1/80)", "cat <(cat < /dev/tcp/127.0.0.1/80)", "head -c5 --x=/dev/tcp/127.0.0.1/80", "ls &> /dev/tcp/127.0.0.1/80"),
    *("cat << E\n$(cat < /dev/tcp/127.0.0.1/80)\nE", "if < /dev/tcp/127.0.0.1/80; then ls; fi", "f() { cat; } < /dev/tcp/127.0.0.1/80; f"),
]  # fmt: skip


@pytest.mark.parametrize("command", CONNECTING)
def test_a_connection_that_looks_like_a_file_is_a_connection(command):
    assert verdict(command) == "ask"
    assert verdict(command, "auto") == "deny"
    assert verdict(command, "plan") == "deny"
    assert {verdict(command, mode, deny=["connect:127.0.0.1:80"]) for mode in MODES} == {"deny"}
    assert verdict(command, deny=["connect:127.0.0.1:81"]) == "ask"


@pytest.mark.parametrize(
    "command", ["cat < /dev/tcp/$H/80", "cat < $F", "cat < /dev/$P/h/80", "cat < /dev/tcp/h/$P", "cat < $F/h/80"]
)
def test_what_may_be_a_forbidden_connection_is_asked_for(command):
    assert verdict(command, "full", deny=["connect:h:80"]) == "ask"
    assert verdict(command) == "ask"


def test_an_allowed_connection_needs_no_question():
    assert verdict("cat < /dev/tcp/127.0.0.1/80", allow=["connect:127.0.0.1:80", "shell:cat"]) == "allow"
    assert ruling("cat < /dev/tcp/example.org/80").suggests == ("connect:example.org:80",)


@pytest.mark.parametrize(
    "command",
    [
        *("LANGUAGE=../../x ls", "env LANGUAGE=../../x ls", "LC_ALL=/x ls", "TZ=:/x date", "TZ=$x date", "export LANGUAGE=x/../..; ls"),
        *("LANGUAGE=de/../../x ls", "TERM=../x ls", "nice env TZ=/x date", "command export LANGUAGE=../x; ls"),
    ],
)  # fmt: skip
def test_a_plain_variable_that_leads_to_files_elsewhere_is_asked_for(command):
    assert verdict(command) == "ask"


@pytest.mark.parametrize(
    "command", ["TZ=Europe/Berlin date", "LC_ALL=C.UTF-8 sort x", "LANGUAGE=de:en ls", "env LANG=C ls", "TZ= date"]
)
def test_a_plain_variable_is_not_asked_for(command):
    assert verdict(command) == "allow"
