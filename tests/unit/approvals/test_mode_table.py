"""The table of modes in docs/approvals.md says what the code does."""

import re
from pathlib import Path

from support.tables import each

from freeact_sub.approvals import Policy, decide
from freeact_sub.calls import CodeAction, FileWrite, McpCall, NetworkConnect, ShellCommand, SpawnCall, ToolCall
from freeact_sub.modes import MODES

PAGE = Path(__file__).parents[3] / "docs/approvals.md"
WORK = Path("/work space")
WORDS = {"runs": "allow", "asked": "ask", "denied": "deny"}
CALLS = {
    "a cell": (CodeAction(code="1"),),
    "a program started by a cell": (ShellCommand(command="make x", wall=True),),
    "a file written in the workspace": (FileWrite(path=f"{WORK}/a.txt"),),
    "a file written outside": (FileWrite(path="/elsewhere/a.txt"),),
    "a connection": (NetworkConnect(host="example.org", port=443),),
    "an MCP call": (McpCall(server="s", tool="t"), McpCall(server="s", tool="t", read_only=True)),
    "a child": (SpawnCall(agent="a", prompt="p"),),
    "one request to a model (`ask`, `agent.ask`)": (ToolCall(tool_name="ask", harmless=True),),
    "one command outside the wall (`agent.shell`)": (ShellCommand(command="make x", outside=True),),
}
ONLY_READ = {"asked if read-only, else denied": "ask", "asked, unless read-only": "allow"}
"""What the words say of an MCP call that only reads."""


def rows() -> dict[str, dict[str, str]]:
    table = PAGE.read_text().partition("## Modes")[2].partition("\n| ")[2].partition("\n\n")[0]
    lines = [
        [cell.strip() for cell in line.strip("|\n ").split("|")]
        for line in f"| {table}".splitlines()
        if line.startswith("| ")
    ]
    heads = [head.partition("`")[2].partition("`")[0] for head in lines[0][-4:]]
    return {line[0]: dict(zip(heads, line[1:], strict=True)) for line in lines[1:] if not line[0].startswith("---")}


def test_the_table_has_a_row_for_each_kind_of_call_and_a_column_for_each_mode():
    assert rows().keys() == CALLS.keys()
    assert all(tuple(row) == MODES for row in rows().values())


@each("mode", MODES)
@each("row", CALLS)
def test_the_page_says_what_is_decided(row, mode):
    words = rows()[row][mode]
    for call in CALLS[row]:
        said = "denied" if words.endswith("denied") else re.findall(r"\w+", words)[0]
        expected = ONLY_READ.get(words, WORDS[said]) if getattr(call, "read_only", False) else WORDS[said]
        assert decide(call, Policy(workspace=WORK, mode=mode)).verdict == expected, words


def test_what_else_the_page_says_of_modes_holds():
    network = Policy(workspace=WORK, mode="auto", network=True)
    assert decide(NetworkConnect(host="example.org", port=443), network).verdict == "allow"
    for mode in ("plan", "ask"):
        assert decide(ShellCommand(command="ls", wall=True), Policy(workspace=WORK, mode=mode)).verdict == "allow"
    assert decide(SpawnCall(agent="a", prompt="p", mode="auto"), Policy(workspace=WORK, mode="plan")).verdict == "deny"
