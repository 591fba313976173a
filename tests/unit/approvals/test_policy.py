"""Patterns, rule files, and what is decided by them and by the mode."""

import tomllib
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.tables import each, lines
from support.thorough import examples

from freeact_sub.approvals import Policy, decide, load_rules, make_rules
from freeact_sub.approvals.patterns import KINDS, UNKNOWN, WILD, Pattern, escaped, parse_pattern
from freeact_sub.approvals.policy import Rules, shipped_rules, with_rule
from freeact_sub.calls import CodeAction, FanOut, FileWrite, McpCall, NetworkConnect, ShellCommand, SpawnCall, ToolCall
from freeact_sub.errors import ConfigError
from freeact_sub.modes import MODES

WORK = Path("/work space")


def verdicts(call, rules=None):
    return [decide(call, Policy(workspace=WORK, mode=mode, rules=rules or shipped_rules())).verdict for mode in MODES]


def shell(command, mode="ask", **lists):
    rules = Rules(levels=(make_rules(lists), *shipped_rules().levels))
    return decide(ShellCommand(command=command, wall=True), Policy(workspace=WORK, mode=mode, rules=rules))


# Patterns


@each(
    ("pattern", "text", "covers", "may_match"),
    [
        ("shell:git push *", "git push", True, True),
        ("shell:git push *", "git push a b", True, True),
        ("shell:git push *", "git pushx", False, False),
        ("shell:git push *", f"git push {UNKNOWN}", False, True),
        ("shell:git push **", f"git push {UNKNOWN}", True, True),
        ("shell:rm -rf /", f"rm {UNKNOWN}", False, True),
        ("shell:[a-c]x[!0-9]", "bxz", True, True),
        ("shell:[a-c]x[!0-9]", "bx1", False, False),
        ("shell:a[*]b", "a*b", True, True),
        ("shell:a[*]b", "axb", False, False),
        ("file:**/.env", "/.env", True, True),
        ("file:**/.env", "/a/b/.env", True, True),
        ("file:**/.env", "/a/b/x.env", False, False),
        ("file:**/.env", f"/a/.e{WILD}", False, True),
        ("file:**/.env", f"/a/{WILD}", False, False),
        ("file:**/*.pem", f"/a/{WILD}", False, True),
        ("file:**/*.pem", f"/a/{WILD}.csv", False, False),
        ("file:**/.env", f"/a/{UNKNOWN}", False, True),
        ("write:out/*", "/work space/out/a", True, True),
        ("write:out/*", "/work space/out/a/b", False, False),
        ("write:out/**", "/work space/out/a/b", True, True),
        ("write:out/", "/work space/out/a/b", True, True),
        ("write:out/**", "/work space/out", True, True),
        ("write:out/", "/work space/out", True, True),
        ("write:out/*", "/work space/out", False, False),
        ("write:out/**", "/work space/outside", False, False),
        ("write:../x", "/x", True, True),
        ("write:/data/**/x?", "/data/x1", True, True),
        ("connect:*.example.org:443", "a.example.org:443", True, True),
        ("connect:*.example.org:443", "a.example.org:80", False, False),
        ("connect:Example.org", "example.org:80", True, True),
        ("connect:example.org", "example.org.evil:80", False, False),
        ("mcp:git*/get_*", "github/get_x", True, True),
        ("tool:mine", "mine2", False, False),
        ("code", "anything", True, True),
    ],
)
def test_patterns(pattern, text, covers, may_match):
    assert parse_pattern(pattern).covers(text, WORK) is covers
    assert parse_pattern(pattern).may_match(text, WORK) is may_match


@each("text", ["", "git push", "shel:x", "shell:", "shell: x", "code:x", f"shell:{UNKNOWN}", "file:a\0b"])
def test_what_is_no_pattern_says_so(text):
    with pytest.raises(ValueError, match="."):
        parse_pattern(text)


@given(st.text(), st.sampled_from(KINDS), st.text())
@example("[", "shell", "[")
@example("a[]", "file", "")
def test_no_glob_and_no_text_break_the_matcher(glob, kind, text):
    pattern = Pattern(kind=kind, glob=glob)
    if pattern.covers(text, WORK):
        assert pattern.may_match(text, WORK)


@given(st.text())
def test_an_escaped_text_matches_itself(text):
    if not set(text) & {UNKNOWN, WILD}:
        assert Pattern(kind="tool", glob=escaped(text)).covers(text, WORK)


@given(st.text("ab*", min_size=1, max_size=8), st.text("ab", max_size=8), st.integers(0, 8), st.integers(0, 8))
def test_what_is_matched_may_be_matched_whatever_part_of_it_is_hidden(glob, text, start, length):
    pattern = Pattern(kind="tool", glob=glob)
    hidden = text[:start] + UNKNOWN + text[start + length :]
    if pattern.covers(text, WORK):
        assert pattern.may_match(hidden, WORK)


def test_a_long_text_against_many_stars_takes_no_time():
    assert not Pattern(kind="tool", glob="*a" * 20 + "b").covers("a" * 5000, WORK)


# Modes


@each(
    ("call", "expected"),
    [
        (CodeAction(code="1"), "ask ask allow allow"),
        (ShellCommand(command="make", wall=True), "ask ask allow allow"),
        (ShellCommand(command="ls", wall=True), "allow allow allow allow"),
        (ShellCommand(command="git push", wall=True), "ask ask ask allow"),
        (ShellCommand(command="pip install x", wall=True), "ask ask ask allow"),
        (ShellCommand(command="rm -rf /", wall=True), "deny deny deny deny"),
        (ShellCommand(command='eval "$x"', wall=True), "ask ask ask ask"),
        (ShellCommand(command="ls > out", wall=True), "deny allow allow allow"),
        (ShellCommand(command="ls > out", cwd="/elsewhere", wall=True), "deny ask deny allow"),
        (ShellCommand(command="ls > /dev/null 2>&1", wall=True), "allow allow allow allow"),
        (FileWrite(path="a/b"), "deny allow allow allow"),
        (FileWrite(path="a/../../b"), "deny ask deny allow"),
        (FileWrite(path="/work spaces/b"), "deny ask deny allow"),
        (FileWrite(path=".env"), "deny ask ask allow"),
        (FileWrite(path=".freeact/permissions.toml"), "deny deny deny deny"),
        (NetworkConnect(host="::1", port=80), "deny ask deny allow"),
        (McpCall(server="s", tool="t"), "deny ask ask allow"),
        (McpCall(server="s", tool="t", read_only=True), "ask ask allow allow"),
        (SpawnCall(prompt="p"), "ask ask allow allow"),
        (FanOut(what="map"), "ask ask ask allow"),
        (SpawnCall(prompt="p", mode="plan"), "ask ask allow allow"),
        (SpawnCall(prompt="p", mode="ask"), "deny ask allow allow"),
        (ToolCall(tool_name="mine"), "deny ask ask allow"),
        (ToolCall(tool_name="reset_kernel", harmless=True), "allow allow allow allow"),
    ],
)
def test_what_a_mode_says_where_no_file_does(call, expected):
    assert " ".join(verdicts(call)) == expected


def test_no_rule_allows_what_the_wall_forbids():
    rules = Rules(levels=(make_rules({"allow": list(KINDS)}),))
    assert verdicts(FileWrite(path="/elsewhere"), rules) == ["deny", "allow", "deny", "allow"]
    assert verdicts(NetworkConnect(host="h", port=1), rules) == ["deny", "allow", "allow", "allow"]
    assert verdicts(McpCall(server="s", tool="t"), rules) == ["deny", "allow", "allow", "allow"]
    assert verdicts(ToolCall(tool_name="mine"), rules) == ["deny", "allow", "allow", "allow"]


def test_a_folder_of_the_agents_own_is_written_to_in_every_mode():
    for mode in MODES:
        policy = Policy(workspace=WORK, mode=mode, scratch=(Path("/private"),))
        assert decide(FileWrite(path="/private/x"), policy).verdict == "allow"


def test_a_way_up_from_a_folder_that_is_not_known_may_lead_anywhere():
    for path, verdict in {"a/../x": "allow", "$A/../x": "ask", "*/../x": "ask", '"$(pwd)"/../x': "ask"}.items():
        assert shell(f"echo x > out/{path}", allow=["write:out/**"]).verdict == verdict, path


def test_links_are_followed(tmp_path):
    (tmp_path / "link").symlink_to("/etc")
    (tmp_path / "innocent").symlink_to(tmp_path / ".env")
    policy = Policy(workspace=tmp_path)
    assert decide(FileWrite(path="link/x"), policy).verdict == "ask"
    assert decide(ShellCommand(command="ls > link/x", wall=True), policy).verdict == "ask"
    assert decide(ShellCommand(command="cat innocent", wall=True), policy).verdict == "ask"


# Shell commands


@each(
    "command",
    [
        "cat .env",
        "cat < .env",
        "cat .e*",
        "cat $X",
        "grep x --file=.env",
        "cat ~/.ssh/id_rsa",
        "cd a && cat .env",
        "bash -c 'cat .env'",
    ],
)
def test_secrets_are_asked_for(command):
    assert shell(command).verdict == "ask"


@each("command", lines("commands/that_destroy_a_machine.txt"))
def test_what_destroys_a_machine_is_denied_in_every_mode(command):
    assert {shell(command, mode).verdict for mode in MODES} == {"deny"}
    assert {shell(command, mode, allow=list(KINDS)).verdict for mode in MODES} == {"deny"}


@each("command", ["rm -rf $X", "rm $X", 'X=/; rm -rf "$X"', "doit rm -rf /", "$X -rf /", "sh < f", "curl x | bash"])
def test_what_may_destroy_a_machine_is_never_allowed(command):
    assert {shell(command, mode, allow=list(KINDS)).verdict for mode in MODES} == {"ask"}


@each(
    "command",
    ["PATH=. ls", "PATH=.; ls", "LD_PRELOAD=x ls", "env LD_PRELOAD=x ls", "export GIT_PAGER=x; git log", "./ls", "/tmp/ls"],
)
def test_a_program_that_may_be_another_one_is_not_allowed_by_its_name(command):
    assert shell(command).verdict == "ask"


def test_a_part_that_is_asked_for_is_named_and_can_be_allowed():
    ruling = shell("ls && git push origin; make x")
    assert (ruling.verdict, ruling.part) == ("ask", "git push origin")
    assert ruling.suggests == ("shell:git push origin", "shell:make x")
    assert shell("ls && git push origin; make x", allow=ruling.suggests).verdict == "allow"


def test_a_rule_that_denies_counts_with_a_path_before_the_name_and_with_hidden_words():
    assert shell("/usr/bin/git push", "full", deny=["shell:git push *"]).verdict == "deny"
    assert shell("git $X", "full", deny=["shell:git push *"]).verdict == "ask"
    assert shell("git log", "full", deny=["shell:git push *"]).verdict == "allow"


# Rules and files


def test_deny_beats_all_and_the_specific_level_beats_the_general_one():
    user = make_rules({"deny": ["shell:make *"], "ask": ["shell:tool *"]})
    project = make_rules({"allow": ["shell:make *", "shell:tool *", "shell:pip* install *"]})
    rules = Rules(levels=(project, user, *shipped_rules().levels))

    def verdict(command):
        return decide(ShellCommand(command=command, wall=True), Policy(workspace=WORK, rules=rules)).verdict

    assert [verdict("make x"), verdict("tool x"), verdict("pip install x")] == ["deny", "allow", "allow"]
    same = Rules(levels=(make_rules({"allow": ["shell:a"], "ask": ["shell:a"]}),))
    assert decide(ShellCommand(command="a", wall=True), Policy(workspace=WORK, rules=same)).verdict == "ask"


def test_the_ruling_names_the_rule_and_its_file(tmp_path):
    file = tmp_path / "permissions.toml"
    file.write_text('deny = ["shell:git push *"]\n')
    ruling = decide(ShellCommand(command="git push", wall=True), Policy(workspace=WORK, rules=load_rules([file])))
    assert ruling.reason == f'git push: deny "shell:git push *" ({file})'


@each(
    ("text", "words"),
    [
        ("allow = ]", ["cannot read", "line 1"]),
        ('\nalow = ["code"]', ["line 2", "`alow`", "allow, ask or deny"]),
        ('allow = "code"', ["line 1", "not a list"]),
        ("allow = [\n1]", ["is not text"]),
        ('allow = [\n"code",\n"git push",\n]', ["line 3", "git push", "KIND:GLOB"]),
        ('deny = ["shell:"]', ["line 1", "empty glob"]),
        ("allow = " + "[" * 5000, ["cannot read"]),
    ],
)
def test_a_wrong_file_names_itself_and_the_line(tmp_path, text, words):
    file = tmp_path / "permissions.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_rules([file])
    assert all(word in str(caught.value) for word in [str(file), *words]), str(caught.value)


@settings(max_examples=examples(200))
@given(st.one_of(st.binary(), st.text().map(str.encode), st.text().map(lambda text: f'allow = ["{text}"]'.encode())))
def test_no_file_breaks_the_reader(tmp_path_factory, content):
    file = tmp_path_factory.getbasetemp() / "any.toml"
    file.write_bytes(content)
    with suppress(ConfigError):
        load_rules([file])


def test_a_rule_is_added_and_comments_stay():
    def add(content, verdict, pattern):
        return with_rule(content, verdict, pattern, Path("rules.toml"))

    content = b"# mine\n" + add(b"", "allow", "shell:make *") + b"deny = [\n  'shell:x', # why\n]\n"
    content = add(content, "allow", "shell:git push *")
    assert add(content, "allow", "shell:git push *") == content
    text = add(content, "deny", "write:a[[]b").decode()
    assert "# mine" in text
    assert "# why" in text
    assert tomllib.loads(text) == {"allow": ["shell:make *", "shell:git push *"], "deny": ["shell:x", "write:a[[]b"]}
    with pytest.raises(ConfigError, match="kind"):
        add(content, "allow", "git push")
    with pytest.raises(ConfigError, match=r"rules\.toml, line 1"):
        add(b"alow = []", "allow", "code")


def verdict_of(call, mode="ask", rules=None):
    return decide(call, Policy(workspace=WORK, mode=mode, rules=rules or shipped_rules())).verdict


@each(
    "command",
    [
        *(
            "git --no-pager push",
            "git -C x push origin",
            "git --git-dir x push",
            "git -c a=b --no-pager push",
            "git -P -C . push",
        ),
        *("/usr/bin/git -C x push", "env git -p push", "ls && git --namespace=x push"),
    ],
)
def test_options_before_what_is_done_do_not_hide_it(command):
    rules = Rules(levels=(make_rules({"deny": ["shell:git push *"], "allow": ["shell:git *", "shell:env *"]}),))
    assert verdict_of(ShellCommand(command=command, wall=True), rules=rules, mode="full") == "deny"
    assert verdict_of(ShellCommand(command="git -C x log", wall=True), rules=rules) == "allow"
    assert verdict_of(ShellCommand(command="git log push", wall=True), rules=rules) == "allow"


@each(
    ("written", "rule"),
    [
        *((host, "127.0.0.1") for host in ("127.1", "0x7f.1", "2130706433", "0177.0.0.1", "::ffff:127.0.0.1", "127.0.0.1")),
        *((host, "evil.org") for host in ("EVIL.org", "evil.org.", "\uff45vil.org", "evil\u3002org")),
        ("0:0:0:0:0:0:0:1", "[[]::1]"),
    ],
)
def test_a_host_is_the_same_however_it_is_written(written, rule):
    call = NetworkConnect(host=written, port=443)
    for known in ("deny", "allow"):
        rules = Rules(levels=(make_rules({known: [f"connect:{rule}"]}),))
        assert verdict_of(call, rules=rules) == known
        assert verdict_of(call, rules=rules, mode="full") == ("deny" if known == "deny" else "allow")
    assert verdict_of(NetworkConnect(host="other.org", port=443), rules=rules) == "ask"


@given(st.text(max_size=30))
def test_no_host_breaks_the_decision(host):
    decide(NetworkConnect(host=host, port=1), Policy(workspace=Path("/ws")))


@each("path", [".freeact", ".freeact/permissions.toml", "sub/.freeact", ".freeact/"])
def test_the_settings_folder_is_not_moved_away(path):
    assert verdict_of(FileWrite(path=path, operation="rename"), mode="full") == "deny"


def test_strict_scripts_and_standard_streams_are_judged_by_what_they_do():
    assert shell("set -euo pipefail; ls > /dev/stderr").verdict == "allow"
    assert shell("set -e; git push", deny=["shell:git push *"]).verdict == "deny"
    assert shell("set -- rm x; $@").verdict == "ask"
    assert shell("echo x > /dev/stderr/../sda").verdict != "allow"
