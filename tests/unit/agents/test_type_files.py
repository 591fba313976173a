"""Named types of agents: what a file says, what is said of a wrong one."""

import contextlib
import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tables import each

from freeact_sub import Config, load_config
from freeact_sub.agents.rights import AgentType
from freeact_sub.cli import main
from freeact_sub.config.budget import Budget
from freeact_sub.config.frontmatter import BadLineError, read_document
from freeact_sub.config.schema import McpServerConfig
from freeact_sub.features.agent_types import load_agent_types, parse_agent_type

WHOLE = """---
description: Reads code and says what is wrong with it.
model: small
tools:
  allow: [execute_ipython_cell, "units_*"]
  deny:
    - units_delete
mode: plan
budget: {turns: 4, cost_usd: 0.25, seconds: 90}
mcp: [units]
max_depth: 0
output:
  type: object
  properties:
    ok: {type: boolean}
    mark: {type: integer, minimum: 1}
  required: [ok]
allow_agents: []
---

You are a reviewer.

Be short.
"""


@pytest.fixture
def config(tmp_path):
    servers = {"units": McpServerConfig(command="x"), "off": McpServerConfig(command="x", disabled=True)}
    return Config(workspace=tmp_path, agent_folders=(tmp_path,), mcp_servers=servers)


def test_a_whole_file(config):
    kind, _ = parse_agent_type(WHOLE, "reviewer", config, file="reviewer.md")
    assert kind == AgentType(
        name="reviewer",
        description="Reads code and says what is wrong with it.",
        prompt="You are a reviewer.\n\nBe short.",
        file="reviewer.md",
        model="small",
        allow=("execute_ipython_cell", "units_*"),
        deny=("units_delete",),
        mode="plan",
        budget=Budget(turns=4, cost_usd=Decimal("0.25"), seconds=90),
        mcp=("units",),
        max_depth=0,
        output={
            "type": "object",
            "properties": {"ok": {"type": "boolean"}, "mark": {"type": "integer", "minimum": 1}},
            "required": ["ok"],
        },
        allow_agents=(),
    )


@each(
    ("text", "line", "said"),
    [
        ("description: no fence", 1, "must begin with a line `---`"),
        ("---\ndescription: x\n", 1, "are not closed"),
        ("---\n---\n", 1, "`description` is missing"),
        ("---\ndescription: ''\n---\n", 2, "`description`: "),
        ("---\ndescription: x\ntols: {}\n---\n", 3, "no setting 'tols': did you mean 'tools'?"),
        ("---\ndescription: x\ntools:\n  alow: []\n---\n", 4, "no setting 'alow': did you mean 'allow'?"),
        (
            "---\ndescription: x\ntools:\n  deny:\n  - reset_kernel\n  - execute_cell\n---\n",
            6,
            "did you mean 'execute_ipython_cell'?",
        ),
        ("---\ndescription: x\nmode: rw\n---\n", 3, "`mode`: "),
        ("---\ndescription: x\nbudget:\n  turns: 3\n  tokens: -1\n---\n", 5, "`budget.tokens`: "),
        ("---\ndescription: x\nbudget: {tuns: 3}\n---\n", 3, "did you mean 'turns'?"),
        ("---\ndescription: x\nmcp: [unitz]\n---\n", 3, "no MCP server 'unitz': did you mean 'units'?"),
        ("---\ndescription: x\nmax_depth: 11\n---\n", 3, "`max_depth`: "),
        ("---\ndescription: x\noutput: {type: string}\n---\n", 3, "`output`: "),
        ("---\ndescription: x\n\n  bad: indent: here\n---\n", 4, "it is not YAML"),
        ("---\ndescription: x\ndescription: y\n---\n", 3, "`description` is set twice"),
        ("---\ndescription: &a x\nmodel: *a\n---\n", 3, "aliases (*name) are not allowed"),
        (
            "---\ndescription: !!python/name:os.system x\n---\n",
            2,
            "tags (tag:yaml.org,2002:python/name:os.system) are not allowed",
        ),
        ("---\ndescription: x\nmodel: \x01\n---\n", 3, "it is not YAML"),
        ("---\n- description\n---\n", 2, "must be lines `name: value`"),
        ("---\n? [a]\n: x\n---\n", 2, "a name must be text"),
        ("---\ndescription: x\nbudget: {tokens: 1e999}\n---\n", 3, "a number that is too large"),
        ("---\ndescription: x\noutput: " + "[" * 5000 + "\n---\n", 2, "nested too deeply"),
    ],
)
def test_faults_are_named_with_their_lines(config, text, line, said):
    with pytest.raises(BadLineError) as error:
        parse_agent_type(text, "x", config)
    assert said in str(error.value)
    assert error.value.line == line


def test_words_are_read_as_yaml_1_2_reads_them():
    head = read_document("---\na: no\nb: 'true'\nc: true\nd:\ne: 012\nf: 1:30\ng: 2024-01-01\nh: .5\n---").head
    assert head == {"a": "no", "b": "true", "c": True, "d": None, "e": 12, "f": "1:30", "g": "2024-01-01", "h": 0.5}


def test_a_wrong_file_is_named_and_the_others_are_read(config, tmp_path):
    (tmp_path / "good.md").write_text("---\ndescription: Good.\nallow_agents: [good, gone]\n---\nBe good.")
    (tmp_path / "bad.md").write_text("---\ndescription: Bad.\nmodle: x\n---\n")
    (tmp_path / "bin.md").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "my type.md").write_text("---\ndescription: x\n---\n")
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "huge.md").write_text("---\ndescription: x\n---\n" + "x" * 1_100_000)
    (tmp_path / "other.txt").write_text("not one")
    found = load_agent_types(config)
    assert [*found.types] == ["good"]
    problems = "\n".join(found.problems)
    assert f"{tmp_path / 'bad.md'}, line 3: `modle`: there is no setting 'modle': did you mean 'mode'?" in problems
    assert f"{tmp_path / 'bin.md'}: it cannot be read" in problems
    assert f"{tmp_path / 'my type.md'}: the file name may contain only" in problems
    assert f"{tmp_path / 'folder.md'}: it cannot be read: it is not a regular file" in problems
    assert f"{tmp_path / 'huge.md'}: it cannot be read: it is larger than" in problems
    assert "`allow_agents` names there is no agent type 'gone'" in problems
    assert len(found.problems) == 6


def test_the_workspace_s_types_win_over_the_user_s(tmp_path):
    workspace, user = tmp_path / "w", tmp_path / "u"
    for folder, text in ((workspace / ".agents/agents", "project"), (user / "freeact/agents", "user")):
        folder.mkdir(parents=True)
        (folder / "both.md").write_text(f"---\ndescription: {text}\n---\n")
    (user / "freeact/agents/mine.md").write_text("---\ndescription: user\n---\n")
    config = load_config(workspace, environment={"XDG_CONFIG_HOME": str(user)})
    found = load_agent_types(config)
    assert {name: kind.description for name, kind in found.types.items()} == {"both": "project", "mine": "user"}
    assert not found.problems


def test_tools_of_a_user_s_own_are_not_known_before_the_run(config):
    text = "---\ndescription: x\ntools: {allow: [order]}\n---\n"
    with pytest.raises(BadLineError, match="no tool 'order'"):
        parse_agent_type(text, "x", config)
    assert parse_agent_type(text, "x", config, other_tools=True)[0].allow == ("order",)


PIECES = st.sampled_from(
    [
        *"\n:-[]{}'\"#&*!|>?,% \t\r\ufeff\x00\u2028",
        "---\n",
        "description: x\n",
        "tools:\n",
        "  allow: [",
        "!!int ''",
        "<<: x",
        "1e5",
        "- ",
    ]
)


@given(st.lists(PIECES | st.text(max_size=5), max_size=30).map("".join), st.booleans())
def test_no_text_is_too_strange(text, fenced):
    """Whatever stands in a file, it is a type, or an error that names a line of it."""
    text = f"---\ndescription: x\n{text}\n---\nbody" if fenced else text
    with contextlib.suppress(BadLineError):
        assert parse_agent_type(text, "x", Config())[0].description


words = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=("Cs",)), max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(words, json_values, max_size=4))
def test_json_values_are_read_as_json_reads_them(values):
    assert read_document(f"---\n{json.dumps(values)}\n---\n").head == values


def test_the_command_lists_types_and_names_what_is_wrong(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    folder = tmp_path / ".agents/agents"
    folder.mkdir(parents=True)
    assert main(["agents", "--workspace", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("no agent types: write NAME.md into .agents/agents of the workspace")
    (folder / "reader.md").write_text(
        '---\ndescription: "Reads\\e[2J."\nmode: plan\ntools: {deny: [task]}\nbudget: {turns: 3}\n---\n'
    )
    assert main(["agents", "--workspace", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"reader: Reads. (mode plan; not task; budget 3 turns)\n    {folder / 'reader.md'}\n"
    (folder / "bad.md").write_text("---\ndescription: x\nmode: rw\n---\n")
    assert main(["agents", "--workspace", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert told.out.startswith("reader: ")
    expected = f"freeact-sub: {folder / 'bad.md'}, line 3: `mode`: Input should be 'plan', 'ask', 'auto' or 'full'"
    assert expected in told.err


FOREIGN = {
    "tools": "tools: Read, Grep\n",
    "list": "tools: [Read, Grep]\n",
    "color": "color: red\n",
    "model": "model: sonnet\n",
    "mode": "permissionMode: plan\n",
    "servers": "mcpServers: [github]\n",
    "other": "tools: Read\nmodel: opus\ncolor: blue\n",
}


def test_types_of_other_programs_are_one_sentence_and_a_name_is_none_of_them(tmp_path):
    for name, more in FOREIGN.items():
        (tmp_path / f"{name}.md").write_text(f"---\nname: {name}\ndescription: d\n{more}---\n\nYou are one.\n")
    (tmp_path / "reviewer.md").write_text("---\nname: reviewer\ndescription: d\n---\n\nYou are one.\n")
    (tmp_path / "same.md").write_text("---\nname: same\ndescription: d\nmodel: inherit\n---\n\nYou are one.\n")
    (tmp_path / "ours.md").write_text("---\ndescription: d\nmod: plan\n---\n\nYou are one.\n")
    found = load_agent_types(Config(workspace=tmp_path, agent_folders=(tmp_path,)))
    assert {*found.types} == {"reviewer", "same"}
    own, all_others = found.problems
    assert "ours.md, line 3: `mod`" in own
    assert f"{len(FOREIGN)} agent types of other programs left out" in all_others
    assert "and 4 more" in all_others
