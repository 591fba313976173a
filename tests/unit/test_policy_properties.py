"""What must hold of decisions whatever the rules, the modes and the calls."""

from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from freeact_sub.approvals import Policy, decide, make_rules, narrowed
from freeact_sub.approvals.patterns import KINDS
from freeact_sub.approvals.rules import Rules
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


@settings(max_examples=400)
@given(
    RULES,
    st.sampled_from(MODES),
    st.none() | st.sampled_from(MODES),
    st.none() | RULES,
    st.none() | st.sampled_from(MODES),
    CALLS,
)
def test_a_child_is_never_allowed_what_its_parent_is_not(rules, mode, wanted_mode, wanted_rules, deeper_mode, call):
    order = ["deny", "ask", "allow"]
    parent = Policy(workspace=WORK, mode=mode, rules=rules)
    child = narrowed(parent, wanted_mode, wanted_rules)
    grandchild = narrowed(child, deeper_mode)
    found = [order.index(decide(call, policy).verdict) for policy in (grandchild, child, parent)]
    assert found == sorted(found)
    walls = ["read-only", "workspace", "open"]
    assert [walls.index(policy.wall) for policy in (grandchild, child, parent)] == sorted(
        walls.index(policy.wall) for policy in (grandchild, child, parent)
    )


@settings(max_examples=400)
@given(
    SCRIPTS,
    SCRIPTS,
    st.sampled_from(
        ["{0}; {1}", "{1} && {0}", "({0})", "echo $({0})", "bash -c '{0}'", "{0} | {1}", "{1} `{0}`", "f() {{ {0}\n}}; f"]
    ),
)
@example("", "", "{0}; {1}")
def test_what_stands_around_a_denied_command_does_not_allow_it(before, after, form):
    rules = Rules(levels=(make_rules({"deny": ["shell:forbidden *"], "allow": list(KINDS)}),))
    for command in (form.format("forbidden x", before), f"{before}\nforbidden\n{after}", f"{before}; forbidden; {after}"):
        policy = Policy(workspace=WORK, mode="full", rules=rules)
        inert = "forbidden" not in command.replace("'", "").replace('"', "").replace("\\", "")
        quoted = any(mark in before for mark in ("'", '"', "\\", "<<", "#", "`"))
        assert inert or quoted or decide(ShellCommand(command=command), policy).verdict != "allow"


@settings(max_examples=300)
@given(st.text(), st.sampled_from(MODES))
def test_no_text_of_a_call_breaks_it(text, mode):
    policy = Policy(workspace=WORK, mode=mode)
    for call in (
        ShellCommand(command=text),
        ShellCommand(command="ls > x", cwd=text),
        FileWrite(path=text),
        NetworkConnect(host=text, port=1),
    ):
        decide(call, policy)
        assert call.summary
