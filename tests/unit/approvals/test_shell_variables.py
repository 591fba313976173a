"""What changes the meaning of words that follow: variables, functions, aliases; and connections that look like files."""

from pathlib import Path

from support.tables import each, lines

from freeact_sub.approvals import Policy, decide, make_rules
from freeact_sub.approvals.policy import Rules, shipped_rules
from freeact_sub.calls import ShellCommand
from freeact_sub.modes import MODES

WORK = Path("/work space")


def ruling(command, mode="ask", **lists):
    rules = Rules(levels=(make_rules(lists), *shipped_rules().levels))
    return decide(ShellCommand(command=command, wall=True), Policy(workspace=WORK, mode=mode, rules=rules))


def verdict(command, mode="ask", **lists):
    return ruling(command, mode, **lists).verdict


CHANGING = lines("commands/that_change_what_words_mean.txt")


@each("command", CHANGING)
def test_what_changes_what_words_mean_is_asked_for(command):
    assert verdict(command) == "ask"
    assert verdict(command, "auto") in ("ask", "deny")
    assert verdict(command, allow=["shell:ls **", "shell:git **", "shell:read **", "shell:env **"]) == "ask"


@each("command", lines("commands/whose_variables_change_nothing.txt"))
def test_what_changes_nothing_is_not_asked_for_because_of_a_variable(command):
    said = ruling(command, allow=["shell:read **", "shell:wait **", "shell:getopts **"])
    assert not any(word in said.rule for word in ("change", "variable", "meaning", "understood", "told")), said


CONNECTING = lines("commands/that_connect_by_a_file.txt")


@each("command", CONNECTING)
def test_a_connection_that_looks_like_a_file_is_a_connection(command):
    assert verdict(command) == "ask"
    assert verdict(command, "auto") == "deny"
    assert verdict(command, "plan") == "deny"
    assert {verdict(command, mode, deny=["connect:127.0.0.1:80"]) for mode in MODES} == {"deny"}
    assert verdict(command, deny=["connect:127.0.0.1:81"]) == "deny", "which address it is nobody looks at"
    assert verdict(command, allow=["connect:127.0.0.1:80"]) == "ask"


@each("command", ["cat < $F", "cat < /dev/$P/h/80", "cat < $F/h/80"])
def test_what_may_be_a_forbidden_connection_is_asked_for(command):
    assert verdict(command, "full", deny=["connect:h:80"]) == "ask"
    assert verdict(command) == "ask"


def test_where_all_connections_are_allowed_one_by_a_file_needs_no_question():
    assert verdict("cat < /dev/tcp/127.0.0.1/80", allow=["connect", "shell:cat"]) == "allow"
    assert ruling("cat < /dev/tcp/example.org/80").suggests == ()


@each(
    "command",
    [
        *("LANGUAGE=../../x ls", "env LANGUAGE=../../x ls", "LC_ALL=/x ls", "TZ=:/x date", "TZ=$x date", "export LANGUAGE=x/../..; ls"),
        *("LANGUAGE=de/../../x ls", "TERM=../x ls", "nice env TZ=/x date", "command export LANGUAGE=../x; ls"),
    ],
)  # fmt: skip
def test_a_plain_variable_that_leads_to_files_elsewhere_is_asked_for(command):
    assert verdict(command) == "ask"


@each("command", ["TZ=Europe/Berlin date", "LC_ALL=C.UTF-8 sort x", "LANGUAGE=de:en ls", "env LANG=C ls", "TZ= date"])
def test_a_plain_variable_is_not_asked_for(command):
    assert verdict(command) == "allow"
