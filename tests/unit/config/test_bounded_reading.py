"""Whatever stands in a file with settings, in a variable or in a type file: it is read, or one sentence says what is wrong."""

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.tables import each

from freeact_sub import Config
from freeact_sub.approvals.policy import parse_rules
from freeact_sub.config.load import load_config, read_mcp_servers
from freeact_sub.config.parsing import MAX_DEPTH, parse_toml
from freeact_sub.config.schema import KernelConfig, McpServerConfig
from freeact_sub.config.trust import Trust
from freeact_sub.errors import ConfigError
from freeact_sub.features.agent_types import load_agent_types
from freeact_sub.terminal.asking import settings_lines

pytestmark = pytest.mark.slow
DEEP = 100_000
MANY = 60_000


def read_all(folder: Path, environment: dict[str, str]) -> None:
    """All that is read at a start."""
    for trust in (None, Trust(folder / "own")):
        config = load_config(folder, environment=environment, trust=trust)
        for problem in load_agent_types(config).problems:
            assert is_sentence(problem)


def is_sentence(text: str) -> bool:
    return text.isprintable() and 0 < len(text) < 3000


def expect_sentence(folder: Path, environment: dict[str, str] | None = None) -> None:
    """What is there is read, or refused in a sentence; a reader that runs out of time is stopped from outside."""
    started, said = time.process_time(), "nothing"
    try:
        read_all(folder, environment or {})
    except ConfigError as error:
        said = str(error)
    assert is_sentence(said), said
    assert time.process_time() - started < 30  # what was mended took minutes


def workspace(folder: Path, **files: str | bytes) -> Path:
    names = {"toml": ".freeact/config.toml", "rules": ".freeact/permissions.toml", "mcp": "mcp.json"}
    for name, content in files.items():
        path = folder / names.get(name, f".agents/agents/{name}.md")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    return folder


def server(**values: object) -> str:
    return json.dumps({"mcpServers": {"a": {"command": "x"} | values}})


TOML = {
    "a long number": "event_buffer = " + "1" * 5000,
    "deep lists": "model_settings.a = " + "[" * DEEP,
    "deep tables": "model_settings.a = " + "{a=" * DEEP,
    "a deep key": "model_settings." + "a." * DEEP + "a = 1",
    "a deep key with quotes": "model_settings." + "'a' . \"b\"." * DEEP + "a = 1",
    "a deep header": "[model_settings." + "a." * DEEP + "a]",
    "a deep key in a table": "model_settings = {" + "a." * DEEP + "a = 1}",
    "many deep keys": "".join(f"model_settings.{'a.' * 27}b{number} = 1\n" for number in range(10_000)),
    "many unknown settings": "".join(f"k{number} = 1\n" for number in range(MANY)),
    "a long name": f"'{'x' * 100_000}' = 1",
    "a long value": f"mode = '{'x' * 100_000}'",
    "a name of two lines": '"a\\nb" = 1',
    "escapes": 'workspace = "\\u001b[31m\\u202e"',
    "no user": 'workspace = "~no-such-user/x"',
    "no path": 'workspace = "a\\u0000"',
    "a long path": f'workspace = "{"a/" * 5000}"',
    "a long folder": f'agent_folders = ["{"a" * 5000}"]',
    "no folder": 'agent_folders = ["a\\u0000"]',
    "no file": 'permission_files = ["a\\u0000"]',
    "a device": 'permission_files = ["/dev/zero", "/dev/tty"]',
    "no bound": "kernel.memory_bytes = " + "1" * 100,
    "no number": "stall_seconds = nan",
    "no text": b"\xff\xfe",
    "variables that are none": 'kernel.env = {"A=B" = "x", "" = "y"}',
}
MCP = {
    "deep": "[" * DEEP,
    "deep arguments": server()[:-3] + ', "args": ' + "[" * 900 + "]" * 900 + "}}}",
    "a long number": server()[:-3] + ', "init_timeout_seconds": ' + "1" * 5000 + "}}}",
    "many unknown settings": server(**{f"k{number}": 1 for number in range(MANY)}),
    "many wrong arguments": server(args=[1] * 100_000),
    "variables without end": server(args=["${A:-" * DEEP]),
    "half a character": server(command="\ud800"),
    "half a character as a name": '{"mcpServers": {"\\ud800": {"command": "x"}}}',
    "no command": server(command="a\0b"),
    "no variable": server(env={"A=B": "x"}),
    "UTF-16": server().encode("utf-16"),
}
TYPES = {
    "a long head": "description: x\n" + "".join(f"k{number}: 1\n" for number in range(MANY)),
    "deep": "output: " + "[" * DEEP,
    "deep objects": "output: " + "{a: " * 120 + "}" * 120,
    "deep lines": "output:\n" + "".join(" " * number + "a:\n" for number in range(1, 300)),
    "a long list": "tools: {allow: [" + "a, " * 200_000 + "]}",
    "long lines": 'model: "' + "a\n" * 400_000 + '"',
    "a schema that refers to itself": "description: x\noutput: {$ref: '#'}",
    "a schema from elsewhere": "description: x\noutput: {$ref: 'file:///etc/passwd'}",
    "a long tool": f"description: x\ntools: {{allow: [{'q' * 100_000}]}}",
    "a name of two lines": 'description: x\n"a\\nb": 1',
}


@each("text", TOML.values(), ids=TOML)
def test_settings(text, tmp_path):
    expect_sentence(workspace(tmp_path, toml=text))


@each("text", MCP.values(), ids=MCP)
def test_servers(text, tmp_path):
    expect_sentence(workspace(tmp_path, mcp=text))


@each("head", TYPES.values(), ids=TYPES)
def test_types(head, tmp_path):
    expect_sentence(workspace(tmp_path, kind=f"---\n{head}\n---\n"))


@each(
    ("name", "value"),
    [
        ("FREEACT_MODELS", "[" * DEEP),
        ("FREEACT_MODEL_SETTINGS", '{"a":' * DEEP),
        ("FREEACT_MODEL_SETTINGS", '{"a":' * 900 + "1" + "}" * 900),
        ("FREEACT_MODEL_SETTINGS__" + "A__" * 5000 + "B", "1"),
        ("FREEACT_" + "A__" * 20_000 + "B", "1"),
        ("FREEACT_WORKSPACE", "\udcff"),
        ("FREEACT_EVENT_BUFFER", "1" * 5000),
        ("XDG_CONFIG_HOME", "/" + "a" * 5000),
        ("XDG_CONFIG_HOME", "/\0"),
    ],
)
def test_variables(name, value, tmp_path):
    twice = {f"{name[:-1]}C": value} if name.endswith("__B") else {}
    expect_sentence(tmp_path, {name: value} | twice)


@each("path", ["~no-such-user/x", "a\0", "a" * 5000, "loop", "\ud800"])
def test_paths(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    for read in (
        load_config,
        read_mcp_servers,
        lambda path: load_config(mcp_file=path),
        lambda path: Config(workspace=path),
    ):
        with pytest.raises(ConfigError) as caught:
            read(path)
        assert is_sentence(str(caught.value))


@each("name", [".freeact/config.toml", ".freeact/permissions.toml", "mcp.json", ".agents/agents/a.md"])
@each("what", ["pipe", "loop", "folder", "/dev/zero", "/dev/tty", "/proc/kmsg", "/proc/self/mem", "sparse"])
def test_special_files_in_place_of_settings_are_refused(name, what, tmp_path):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    match what:
        case "pipe":
            os.mkfifo(path)
        case "loop":
            path.symlink_to(path.name)
        case "folder":
            path.mkdir()
        case "sparse":
            path.touch()
            os.truncate(path, 1 << 40)
        case _:
            path.symlink_to(what)
    expect_sentence(tmp_path)
    if not name.endswith(".md"):  # rules that are not read would be lost without a word
        with pytest.raises(ConfigError, match="cannot read"):
            load_config(tmp_path, environment={}, trust=Trust(tmp_path / "own"))


def test_names_that_cannot_be_printed_are_written_out(tmp_path):
    folder = workspace(tmp_path, a="")
    for name in (b"a\nb.md", b"\xff.md", b"\x1b[31m.md"):
        Path(os.fsdecode(os.fsencode(folder / ".agents/agents") + b"/" + name)).touch()
    expect_sentence(folder)


def test_many_files_are_not_all_named(tmp_path):
    folder = workspace(tmp_path, **{f"kind{number}": "" for number in range(300)})
    with pytest.raises(ConfigError, match=r"and 290 more: review them, then give load_config a Trust"):
        load_config(folder, environment={}, trust=Trust(folder / "own"))


def test_bounds_that_no_system_can_hold_are_refused():
    for name in ("memory_bytes", "max_processes", "max_file_bytes", "cpu_seconds"):
        with pytest.raises(ConfigError, match=name):
            KernelConfig(**{name: 1 << 63})


def test_usual_settings_are_read(tmp_path):
    nested = json.dumps({"a": [{"b": [1, {"c": "d"}]}]})
    text = f'model_settings.extra = {{a = [{{b = [1]}}]}}\ninstructions = """\n{"." * 200}\nv1.2.3 a.b.c\n"""\n'
    config = load_config(workspace(tmp_path, toml=text), environment={"FREEACT_MODEL_SETTINGS__MORE": nested})
    assert config.model_settings["more"] == {"a": [{"b": [1, {"c": "d"}]}]}
    assert McpServerConfig(command="x", env={"A": "b=c"}).env == {"A": "b=c"}
    assert parse_toml(b"a = " + b"[" * (MAX_DEPTH - 2) + b"]" * (MAX_DEPTH - 2))


# what nobody has thought of

NAMES = st.sampled_from(
    [*Config.model_fields, *KernelConfig.model_fields, *McpServerConfig.model_fields, "a", "", "a\nb", "=", "~"]
)
WORDS = st.text(max_size=12) | st.sampled_from(
    [
        "~",
        "~x/y",
        "/",
        "/dev/zero",
        "\0",
        "a\nb",
        "${A}",
        "${A:-",
        "${A:-b}",
        "http://[",
        "http://a",
        "*",
        "\ud800",
        "-1",
        "nan",
        "[",
        "{",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES | WORDS, inner, max_size=4),
    max_leaves=10,
)
TABLES = st.dictionaries(NAMES, VALUES, max_size=4)
FUZZ = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=int(os.environ.get("FUZZ_EXAMPLES", "60"))
)


def as_toml(value: object) -> str:
    """Near TOML: what it cannot say is written as JSON has it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {as_toml(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(as_toml, value))}]"
    return json.dumps(value)


def fuzzed(folder: Path, **files: str | bytes) -> None:
    environment = {"A": "b", "XDG_CONFIG_HOME": str(folder / "own")}
    for name, content in files.items():
        expect_sentence(workspace(folder, **{name: content}), environment)
        workspace(folder, toml="", mcp='{"mcpServers": {}}', rules="", kind="")


@FUZZ
@given(TABLES)
@example({"mcp_servers": {"a": {"command": "x", "url": "y"}}})
def test_any_settings(tmp_path, table):
    fuzzed(tmp_path, toml="\n".join(f"{json.dumps(name)} = {as_toml(value)}" for name, value in table.items()))


@FUZZ
@given(st.dictionaries(WORDS, TABLES | VALUES, max_size=3) | VALUES)
def test_any_servers(tmp_path, servers):
    fuzzed(tmp_path, mcp=json.dumps({"mcpServers": servers}))


@FUZZ
@given(
    st.dictionaries(st.sampled_from(["description", "tools", "mcp", "output", "budget", "mode", "max_depth", "x"]), VALUES)
)
def test_any_type(tmp_path, head):
    lines = "\n".join(f"{name}: {json.dumps(value)}" for name, value in ({"description": "x"} | head).items())
    fuzzed(tmp_path, kind=f"---\n{lines}\n---\nprompt\n")


@FUZZ
@given(st.dictionaries(st.sampled_from(["allow", "ask", "deny", "x"]), VALUES | st.lists(WORDS)))
def test_any_rules(tmp_path, rules):
    text = "\n".join(f"{name} = {as_toml(value)}" for name, value in rules.items())
    fuzzed(tmp_path, rules=text)
    content = text.encode("utf-8", "surrogatepass")
    settings_lines(Path("permissions.toml"), content)
    said = "nothing"
    try:
        parse_rules(content, Path("permissions.toml"), "user")
    except ConfigError as error:
        said = str(error)
    assert is_sentence(said), said


@FUZZ
@given(
    st.sampled_from(["toml", "mcp", "rules", "kind"]),
    st.binary(max_size=200) | st.text("[]{}.=\"'a1 \n-:#&*!|>%@`,").map(str.encode),
)
def test_any_bytes(tmp_path, name, content):
    fuzzed(tmp_path, **{name: b"---\n" * (name == "kind") + content})


@FUZZ
@given(
    st.dictionaries(
        st.builds("FREEACT_{}__{}".format, NAMES, NAMES).map(str.upper), WORDS | VALUES.map(json.dumps), max_size=4
    )
)
def test_any_variables(tmp_path, variables):
    expect_sentence(tmp_path, variables)
