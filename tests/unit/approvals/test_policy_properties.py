"""What must hold of decisions whatever the rules, the modes and the calls."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.thorough import examples

from freeact_sub.approvals import Policy, decide, make_rules, narrowed
from freeact_sub.approvals.patterns import KINDS
from freeact_sub.approvals.policy import Rules
from freeact_sub.calls import CodeAction, FileWrite, McpCall, NetworkConnect, ShellCommand, SpawnCall, ToolCall
from freeact_sub.modes import MODES

WORK = Path("/work space")

WORDS = [
    "ls",
    "rm",
    "git",
    "push",
    "-rf",
    "/",
    "~",
    "$X",
    "*",
    "a",
    ".env",
    "make",
    "sudo",
    "env",
    "X=1",
    "bash",
    "-c",
    "'make x'",
]
JOINTS = [
    " ",
    " ",
    " ",
    " ",
    " && ",
    "; ",
    " | ",
    " > ",
    "\n",
    " $(",
    ") ",
    " `",
    "'",
    '"',
    " & ",
    " || ",
    "\\",
    " { ",
    "; }",
    " <<E\n",
    "\nE\n",
]
SCRIPTS = st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(JOINTS)), max_size=8).map(
    lambda parts: "".join(word + joint for word, joint in parts)
)
PATTERNS = st.sampled_from(
    [*KINDS, "shell:git *", "shell:git push *", "shell:rm **", "shell:make *", "shell:ls *", "write:out/**", "write:/**", "file:**/.env", "connect:*.org:443", "mcp:s/*", "tool:m*"]
)  # fmt: skip
LEVEL = st.fixed_dictionaries({verdict: st.lists(PATTERNS, max_size=3) for verdict in ("allow", "ask", "deny")})
RULES = st.lists(LEVEL, max_size=3).map(lambda levels: Rules(levels=tuple(make_rules(level) for level in levels)))
CALLS = st.one_of(
    st.builds(ShellCommand, command=SCRIPTS),
    st.builds(FileWrite, path=st.sampled_from(["a", "out/x", "../x", "/etc/x", ".env", "/tmp/x", "~/x", "a\0"])),
    st.builds(NetworkConnect, host=st.sampled_from(["a.org", "h", "::1"]), port=st.sampled_from([80, 443])),
    st.builds(McpCall, server=st.just("s"), tool=st.just("t"), read_only=st.booleans()),
    st.builds(SpawnCall, prompt=st.just("p"), mode=st.sampled_from([None, *MODES])),
    st.builds(ToolCall, tool_name=st.sampled_from(["mine", "reset_kernel"])),
    st.builds(CodeAction, code=st.just("1")),
)


@settings(max_examples=examples(400))
@given(
    RULES,
    st.sampled_from(MODES),
    st.sampled_from(MODES),
    st.none() | RULES,
    st.sampled_from(MODES),
    CALLS,
)
def test_a_child_is_never_allowed_what_its_parent_is_not(rules, mode, wanted_mode, wanted_rules, deeper_mode, call):
    order = ["deny", "ask", "allow"]
    parent = Policy(workspace=WORK, mode=mode, rules=rules)
    child = replace(narrowed(parent, wanted_mode), rules=wanted_rules or rules)
    grandchild = narrowed(child, deeper_mode)
    found = [order.index(decide(call, policy).verdict) for policy in (grandchild, child, parent)]
    assert found == sorted(found)
    walls = ["read-only", "workspace", "open"]
    assert [walls.index(policy.wall) for policy in (grandchild, child, parent)] == sorted(
        walls.index(policy.wall) for policy in (grandchild, child, parent)
    )


UNQUOTED = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *(word for word in WORDS if not set("'\"\\") & set(word)),
                "x=1",
                "for",
                "if",
                "then",
                "{",
                "}",
                "f()",
                "!",
                "done",
            ]
        ),
        st.sampled_from(
            [" ", " && ", "; ", " | ", " > ", "\n", " $(", ") ", " & ", " || ", " < ", " {", "; }", " (", " 2>&1 ", ";; "]
        ),
    ),
    max_size=8,
).map(lambda parts: "".join(word + joint for word, joint in parts))
"""Without a character that makes a word of what follows: no quote, backslash, backtick, comment or here-document."""
FORBIDDEN = Rules(levels=(make_rules({"deny": ["shell:forbidden *"], "allow": list(KINDS)}),))


@settings(max_examples=examples(60), deadline=None)
@given(UNQUOTED, UNQUOTED, st.sampled_from(MODES))
@example("", "", "full")
@example("f() { ", "}", "full")
@example("PATH=x; ", "", "full")
@example("{ x=1; ", "; }", "full")
def test_what_stands_around_a_denied_command_does_not_allow_it(before, after, mode):
    policy = Policy(workspace=WORK, mode=mode, rules=FORBIDDEN)
    for joint in ("\n", "; ", " && ", " | ", "& "):
        command = f"{before}{joint}forbidden{joint}{after}"
        assert decide(ShellCommand(command=command, wall=True), policy).verdict != "allow", command


@settings(max_examples=examples(60), deadline=None)
@given(
    UNQUOTED,
    st.sampled_from(
        [
            "({0}\n)",
            "echo $({0}\n)",
            "bash -c '{0}'",
            "eval '{0}'",
            "trap '{0}' EXIT",
            "f() {{ {0}\n}}; f",
            "env bash -c '{0}'",
            "cat <({0}\n)",
        ]
    ),
)
def test_what_stands_in_other_commands_is_not_allowed_by_them(after, form):
    command = form.format(f"forbidden x; {after}".replace("'", ""))
    assert (
        decide(ShellCommand(command=command, wall=True), Policy(workspace=WORK, mode="full", rules=FORBIDDEN)).verdict
        != "allow"
    )


@pytest.fixture(scope="module")
def tangled(tmp_path_factory):
    """A workspace with links that lead in circles, nowhere and outside."""
    folder = tmp_path_factory.mktemp("tangled")
    for name, target in {
        "one": "two",
        "two": "one",
        "self": "self/x",
        "gone": "nowhere",
        "out": "/proc/1/root",
    }.items():
        (folder / name).symlink_to(target)
    return folder


PARTS = [
    *("/proc/1/root", "/proc/1/cwd", "/proc/1/fd/0", "/proc/self/root", "/dev/fd/999", "one", "self", "gone", "out", "..", ".", "~", "~root"),
    *("x" * 300, "\0", "\ud800", "\udcff", "*", "$X", "", "é", "a b", "\n", "-", "--", "@", "=", ":", ",", "/" * 50, "x/" * 3000),
]  # fmt: skip
PATHS = st.one_of(st.text(), st.lists(st.sampled_from(PARTS), max_size=5).map("/".join))


@settings(max_examples=examples(60), deadline=None)
@given(PATHS, PATHS, st.sampled_from(MODES), st.booleans())
@example("/proc/1/root/etc/shadow", "/proc/1/cwd", "ask", False)
@example("\ud800", "one/x", "full", True)
@pytest.mark.slow
def test_no_text_of_a_call_breaks_it(tangled, text, other, mode, outside):
    policy = Policy(workspace=tangled, mode=mode)
    calls = (
        ShellCommand(command=text, cwd=other, outside=outside),
        ShellCommand(command=f"cat {text}", cwd=other, wall=True),
        ShellCommand(command=f"grep -r x < {text} > {other}", wall=True),
        ShellCommand(command="grep -r x one self gone", cwd=other, wall=True),
        FileWrite(path=text, named=other),
        NetworkConnect(host=text, port=1, ip=other),
        McpCall(server=text, tool=other),
        ToolCall(tool_name=text),
    )
    for call in calls:
        assert decide(call, narrowed(policy, "auto")).verdict in ("allow", "ask", "deny")
        assert decide(call, policy).reason
        assert call.summary
