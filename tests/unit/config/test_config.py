"""Settings: where they come from, which wins, and what a wrong one says."""

import json
from pathlib import Path

import pytest
from support.tables import each

from freeact_sub.cli.parser import parse
from freeact_sub.config.budget import Budget
from freeact_sub.config.command_options import load_arguments
from freeact_sub.config.load import load_config, read_mcp_servers
from freeact_sub.config.schema import Config, KernelConfig, McpServerConfig, SubagentsConfig
from freeact_sub.config.trust import Trust
from freeact_sub.errors import ConfigError


def write_settings(folder: Path, text: str) -> None:
    (folder / ".freeact").mkdir(exist_ok=True)
    (folder / ".freeact/config.toml").write_text(text)


@pytest.mark.parametrize("command", ["acp", "mcp-server"])
def test_a_server_for_other_programs_is_in_the_mode_of_the_settings_else_in_auto(tmp_path, command):
    def mode(*options, **variables):
        arguments = load_arguments(parse([command, *options])) | {"workspace": tmp_path}
        return load_config(**arguments, environment={"XDG_CONFIG_HOME": str(tmp_path), **variables}).mode

    assert mode() == "auto"
    (tmp_path / "freeact").mkdir()
    (tmp_path / "freeact/config.toml").write_text('mode = "plan"')
    assert (mode(), mode(FREEACT_MODE="ask"), mode("--mode", "full")) == ("plan", "ask", "full")


def test_arguments_win_over_the_environment_and_that_over_the_file(tmp_path):
    write_settings(tmp_path, 'model = "file"\nbudget.turns = 1\n[kernel]\ncell_timeout_seconds = 1\noutput_chars = 500\n')
    config = load_config(
        tmp_path,
        arguments={"model": "argument", "base_url": None},
        environment={"FREEACT_MODEL": "env", "FREEACT_KERNEL__CELL_TIMEOUT_SECONDS": "2.5", "OTHER": "x"},
    )
    assert (config.model, config.budget.turns) == ("argument", 1)
    assert (config.kernel.cell_timeout_seconds, config.kernel.output_chars) == (2.5, 500)
    assert config.workspace == tmp_path.resolve()


def test_the_users_own_file_comes_first_and_needs_no_trust(tmp_path):
    own, workspace = tmp_path / "own", tmp_path / "work"
    (own / "freeact").mkdir(parents=True)
    workspace.mkdir()
    (own / "freeact/config.toml").write_text('model = "openai:mine"\nmode = "plan"\n[kernel]\noutput_chars = 300\n')
    variables = {"XDG_CONFIG_HOME": str(own)}
    config = load_config(workspace, environment=variables, trust=Trust(own / "freeact"))
    assert (config.model, config.mode, config.kernel.output_chars) == ("openai:mine", "plan", 300)
    write_settings(workspace, 'mode = "auto"\nkernel.spares = 0\n')
    config = load_config(workspace, environment=variables)
    assert (config.mode, config.kernel.output_chars, config.kernel.spares) == ("auto", 300, 0)
    (own / "freeact/config.toml").write_text("modle = 1")
    with pytest.raises(ConfigError, match=r"freeact/config\.toml: unknown setting `modle`"):
        load_config(workspace, environment=variables)


@each(
    ("argument", "base_url"),
    [
        ({"model": "anthropic:x"}, None),
        ({"model": "anthropic:x", "base_url": "http://b/v1"}, "http://b/v1"),
        ({"model": "openai-chat:y"}, "http://a/v1"),
        ({"model": None}, "http://a/v1"),
        ({"base_url": "http://b/v1"}, "http://b/v1"),
        ({"model": "small"}, "http://a/v1"),
        ({"model": "large"}, None),
    ],
)
@each("source", ["argument", "variable", "workspace"])
def test_an_address_goes_with_the_provider_of_its_model(tmp_path, argument, base_url, source):
    (tmp_path / "own/freeact").mkdir(parents=True)
    (tmp_path / "own/freeact/config.toml").write_text(
        'model = "openai-chat:x"\nbase_url = "http://a/v1"\n[models]\nsmall = "openai-chat:s"\nlarge = "anthropic:l"\n'
    )
    variables, given = {"XDG_CONFIG_HOME": str(tmp_path / "own")}, {k: v for k, v in argument.items() if v}
    if source == "variable":
        variables |= {f"FREEACT_{name.upper()}": value for name, value in given.items()}
    if source == "workspace":
        write_settings(tmp_path, "".join(f"{name} = {json.dumps(value)}\n" for name, value in given.items()))
    config = load_config(tmp_path, environment=variables, arguments=argument if source == "argument" else None)
    assert config.base_url == base_url
    assert ":" in config.model


def test_tables_and_lists_in_the_environment_are_json(tmp_path):
    config = load_config(tmp_path, environment={"FREEACT_MODEL_SETTINGS": '{"temperature": 0.5}'})
    assert config.model_settings == {"temperature": 0.5}


@each(
    ("environment", "words"),
    [
        ({"FREEACT_MODELL": "x"}, ["FREEACT_MODELL", "`modell`", "`model`"]),
        ({"FREEACT_KERNEL__CELL_TIMEOUT": "3"}, ["`kernel.cell_timeout`", "`kernel.cell_timeout_seconds`"]),
        ({"FREEACT_BUDGET__TURNS": "-1"}, ["FREEACT_BUDGET__TURNS", "`budget.turns`", "'-1'"]),
        ({"FREEACT_SUBAGENTS__BUDGET__TOKEN": "5"}, ["`subagents.budget.token`", "`subagents.budget.tokens`"]),
        ({"FREEACT_SUBAGENTS__MAX_DEPTH": "11"}, ["`subagents.max_depth`", "10"]),
    ],
)
def test_a_wrong_variable_is_named_with_the_way_out(tmp_path, environment, words):
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path, environment=environment)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_toml_and_a_missing_workspace_are_one_line(tmp_path):
    write_settings(tmp_path, "model = [")
    with pytest.raises(ConfigError, match=r"cannot read .*config\.toml"):
        load_config(tmp_path, environment={})
    with pytest.raises(ConfigError, match="not a directory"):
        load_config(tmp_path / "nowhere", environment={})


def test_mcp_variables_are_filled_in_anywhere_and_a_missing_one_is_named(tmp_path):
    server = {"command": "${CMD:-python}", "args": ["${ARG}"], "env": {"T": "x-${ARG}-${E:-}"}}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"demo": server}}))
    filled = read_mcp_servers(file, {"ARG": "a b"})
    assert filled["demo"] == {"command": "python", "args": ["a b"], "env": {"T": "x-a b-"}}
    assert "environment variable ARG" in read_mcp_servers(file, {})["demo"]["notice"]
    assert load_config(tmp_path, environment={"ARG": "1"}).mcp_servers["demo"].args == ("1",)


@each(
    ("content", "words"),
    [
        ("{", "cannot read"),
        ("[]", "mcpServers"),
        ('{"servers": {}}', "mcpServers"),
        ('{"mcpServers": []}', "mcpServers"),
    ],
)
def test_a_wrong_mcp_file_is_one_clear_line(tmp_path, content, words):
    (tmp_path / "mcp.json").write_text(content)
    with pytest.raises(ConfigError, match=words) as caught:
        load_config(tmp_path, environment={})
    assert "\n" not in str(caught.value)


def test_a_kernel_gets_no_secret_of_the_host(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "secret")
    environment = KernelConfig(env={"MINE": "1"}).environment()
    assert "secret" not in environment.values()
    assert environment["MINE"] == "1"
    assert "PATH" in environment


@each(
    ("make", "said"),
    [
        (lambda: Config(modle="x"), "unknown setting `modle`: did you mean `mode` or `model`?"),
        (lambda: Config(kernel={"spars": 1}), "unknown setting `kernel.spars`: did you mean `kernel.spares`?"),
        (lambda: Config(subagents={"budget": {"turn": 1}}), "did you mean `subagents.budget.turns`?"),
        (lambda: Config(mcp_servers={"a": {"comand": "x"}}), "did you mean `mcp_servers.a.command`?"),
        (lambda: Config(kernel=KernelConfig(spars=1)), "unknown setting `spars`: did you mean `spares`?"),
        (lambda: SubagentsConfig(max_deth=1), "unknown setting `max_deth`: did you mean `max_depth`?"),
        (lambda: McpServerConfig(comand="x"), "unknown setting `comand`: did you mean `command`?"),
        (lambda: Budget(token=1), "unknown setting `token`: did you mean `tokens`?"),
        (lambda: Budget(turns=-1), "setting `turns`: Input should be greater than or equal to 0 (got -1)"),
        (lambda: Config(mode="askk"), "setting `mode`: "),
        (lambda: Config(workspace="/nowhere/at/all"), "is not a directory"),
    ],
)
def test_a_wrong_setting_in_python_is_named_with_the_nearest(make, said):
    with pytest.raises(ConfigError) as caught:
        make()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_paths_may_be_text(tmp_path, monkeypatch):
    write_settings(tmp_path, 'model = "file"\n')
    (tmp_path / "servers.json").write_text('{"mcpServers": {"demo": {"command": "x"}}}')
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    config = load_config(f"~/{tmp_path.name}", environment={}, mcp_file=f"~/{tmp_path.name}/servers.json")
    assert (config.model, config.workspace, list(config.mcp_servers)) == ("file", tmp_path.resolve(), ["demo"])
    assert list(read_mcp_servers(str(tmp_path / "servers.json"))) == ["demo"]


def test_settings_cannot_be_changed_afterwards():
    with pytest.raises(ValueError, match="frozen"):
        Config().model = "x"
