"""What a kernel may do without asking is never more than what the rules allow."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tables import each
from support.thorough import examples

from freeact_sub.agents.requests import action_of
from freeact_sub.approvals import Policy, decide, make_rules, narrowed, unasked_writes
from freeact_sub.approvals.policy import Rules, shipped_rules
from freeact_sub.calls import FileWrite, NetworkConnect, ShellCommand
from freeact_sub.config.schema import PROTECTED
from freeact_sub.errors import ApprovalDeniedError
from freeact_sub.kernels.guest.writable import Files
from freeact_sub.modes import MODES

WORK = Path("/work space")

GLOBS = st.lists(
    st.sampled_from(
        [
            "a",
            "b",
            ".env",
            "/",
            "/",
            "*",
            "**",
            "**/",
            "?",
            "[ab]",
            "[!a]",
            "[a-b/]",
            "[b-a]",
            ".",
            "~/",
            "../",
            "/work space/",
        ]
    ),
    min_size=1,
    max_size=6,
).map("".join)
PATTERNS = st.tuples(st.sampled_from(["write", "file"]), GLOBS.filter(lambda glob: glob == glob.strip())).map(":".join)
LEVEL = st.fixed_dictionaries(
    {verdict: st.lists(PATTERNS | st.just("write"), max_size=3) for verdict in ("allow", "ask", "deny")}
)
RULES = st.lists(LEVEL, max_size=3).map(lambda levels: Rules(levels=tuple(make_rules(level) for level in levels)))
PATHS = st.lists(
    st.sampled_from(["a", "b", "ab", ".env", "c.b", ".freeact", "mcp.json", "aab"]), min_size=1, max_size=4
).map(lambda names: f"{WORK}/{'/'.join(names)}")


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(RULES, st.sampled_from(MODES), st.sampled_from(MODES), st.none() | RULES, PATHS)
def test_what_is_not_asked_for_is_allowed(rules, mode, wanted, wanted_rules, path):
    policy = replace(narrowed(Policy(workspace=WORK, mode=mode, rules=rules), wanted), rules=wanted_rules or rules)
    folders, asked = unasked_writes(policy, (WORK / name for name in PROTECTED))
    files = Files(map(str, folders), asked)
    if files.is_free(path, "write"):
        assert decide(FileWrite(path=path), policy).verdict == "allow"
        assert not any(f"{path}/".startswith(f"{WORK / name}/") for name in PROTECTED)


@each(("mode", "free"), [("plan", False), ("ask", True), ("auto", True), ("full", True)])
def test_ordinary_files_of_the_workspace_are_free_as_shipped(mode, free):
    folders, asked = unasked_writes(Policy(workspace=WORK, mode=mode), (WORK / name for name in PROTECTED))
    files = Files(map(str, folders), asked)
    for name in ("a.txt", "out/b.csv", "x/.hidden", ".github/workflows/x.yml", ".gitignore"):
        assert files.is_free(f"{WORK}/{name}", "write") is free, name
    for name in (".env", "a/.env", "mcp.json", ".freeact", ".freeact/outputs/x", ".git/hooks/pre-commit"):
        assert not files.is_free(f"{WORK}/{name}", "write") or mode == "full", name


def test_the_files_that_are_protected_are_asked_for_in_every_mode():
    for mode in MODES:
        folders, asked = unasked_writes(Policy(workspace=WORK, mode=mode), (WORK / name for name in PROTECTED))
        assert not any(Files(map(str, folders), asked).is_free(f"{WORK}/{name}", "write") for name in PROTECTED)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda items: st.lists(items, max_size=3) | st.dictionaries(st.text(max_size=8), items, max_size=3),
    max_leaves=8,
)
NAMES = ["kind", "command", "cwd", "path", "named", "operation", "host", "port", "ip", "others", "outside"]
VALUES = JSON | st.sampled_from(["shell", "write", "connect", "/a", "ls", "rename", 80, "h"])


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(st.dictionaries(st.sampled_from(NAMES), VALUES))
def test_a_hostile_request_is_an_action_or_a_denial(params):
    try:
        call = action_of(params, WORK)
    except ApprovalDeniedError:
        return
    assert isinstance(call, ShellCommand | FileWrite | NetworkConnect)
    assert not getattr(call, "outside", False)
    decide(call, Policy(workspace=WORK))
    assert call.summary


def test_a_command_outside_is_for_a_person_whatever_is_allowed():
    rules = Rules(levels=(make_rules({"allow": ["shell"], "deny": ["shell:git push *"]}), *shipped_rules().levels))
    for mode in ("ask", "auto", "full"):
        policy = Policy(workspace=WORK, mode=mode, rules=rules)
        for command in ("ls", "pip install x", "echo x > /etc/x"):
            ruling = decide(ShellCommand(command=command, outside=True), policy)
            assert (ruling.verdict, ruling.needs_person, ruling.suggests) == ("ask", True, ())
        for command in ("git push", "true && git push x", "rm -rf /"):
            assert decide(ShellCommand(command=command, outside=True), policy).verdict == "deny"
        child = narrowed(policy, "plan")
        assert decide(ShellCommand(command="ls", outside=True), child).verdict == "deny"


def test_a_denied_address_is_denied_by_whatever_name():
    rules = Rules(levels=(make_rules({"allow": ["connect"], "deny": ["connect:169.254.169.254"]}),))
    policy = Policy(workspace=WORK, mode="full", rules=rules)
    assert decide(NetworkConnect(host="innocent.org", port=80, ip="169.254.169.254"), policy).verdict == "deny"
    assert decide(NetworkConnect(host="innocent.org", port=80, ip="1.2.3.4"), policy).verdict == "allow"
    call = NetworkConnect(host="innocent.org", port=80, ip="1.2.3.4", others=("1.2.3.5", "169.254.169.254"))
    assert decide(call, policy).verdict == "deny"
    by_address = Rules(levels=(make_rules({"allow": ["connect:1.2.3.4"]}),))
    call = NetworkConnect(host="innocent.org", port=80, ip="1.2.3.4")
    assert decide(call, Policy(workspace=WORK, rules=by_address)).verdict == "ask"


def test_the_network_of_mode_auto_is_what_is_configured():
    call = NetworkConnect(host="h", port=80)
    rules = Rules(levels=(make_rules({"ask": ["connect:h"]}),))
    assert decide(call, Policy(workspace=WORK, mode="auto")).verdict == "deny"
    assert decide(call, Policy(workspace=WORK, mode="auto", network=True)).verdict == "allow"
    assert decide(call, Policy(workspace=WORK, mode="auto", network=True, rules=rules)).verdict == "ask"
    assert decide(call, narrowed(Policy(workspace=WORK, mode="auto", network=True), "plan")).verdict == "deny"


def test_a_file_that_is_named_through_a_link_is_judged_by_both_names():
    rules = Rules(levels=(make_rules({"deny": ["write:data/**"], "allow": ["write"]}),))
    policy = Policy(workspace=WORK, mode="full", rules=rules)
    assert decide(FileWrite(path="/big/x", named=f"{WORK}/data/x"), policy).verdict == "deny"
    assert decide(FileWrite(path=f"{WORK}/data/x", named=f"{WORK}/link"), policy).verdict == "deny"
    assert decide(FileWrite(path="/big/x", named=f"{WORK}/other"), policy).verdict == "allow"
