"""`mcp.json`: with comments, with keys of other programs, and changed where nothing is lost."""

import json
import threading
from pathlib import Path

import pytest
from support.tables import each

from freeact_sub.cli import main
from freeact_sub.cli.mcp import add_server, remove_server
from freeact_sub.config.hooks import read_hook_files
from freeact_sub.config.load import load_config, read_mcp_servers
from freeact_sub.config.parsing import parse_jsonc, plain_json
from freeact_sub.config.schema import McpServerConfig, notices_on, unread_keys
from freeact_sub.errors import ConfigError

FOREIGN = """{
  // mine
  "inputs": [{"id": "key"}],
  "mcpServers": {
    "a": {"command": "x", "args": ["http://y // no comment"]}, /* first */
    "b": {
      "url": "https://b.example/mcp" // inside
    }, // after b
  },
  "other": "/* no comment, */",
}
"""


def server(**keys: object) -> dict:
    return {"command": "x", **keys}


@pytest.fixture
def read(tmp_path: Path):
    def read(**keys: object) -> McpServerConfig:
        (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"a": keys}}))
        return load_config(tmp_path, environment={}).mcp_servers["a"]

    return read


def test_comments_and_last_commas_are_read_and_texts_stay() -> None:
    content = parse_jsonc(FOREIGN.encode())
    assert content["mcpServers"]["a"]["args"] == ["http://y // no comment"]
    assert content["other"] == "/* no comment, */"
    assert len(plain_json(FOREIGN)) == len(FOREIGN)


def test_a_server_is_added_and_removed_and_the_rest_stays(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    content = {"inputs": [{"id": "key"}], "mcpServers": {"a": server(args=["é"]), "b": server()}, "other": 1.5}
    file.write_bytes(f"\ufeff{json.dumps(content)}\r\n".encode())
    file.chmod(0o640)
    add_server(file, "c", server(args=["1"]), mode=0o644)
    added = {**content, "mcpServers": {**content["mcpServers"], "c": server(args=["1"])}}
    assert file.read_text() == json.dumps(added, indent=2, ensure_ascii=False) + "\n"
    assert file.stat().st_mode & 0o777 == 0o640
    remove_server(file, "c")
    assert file.read_text() == json.dumps(content, indent=2, ensure_ascii=False) + "\n"


@each(
    "text",
    [
        '{"mcpServers": {"a": {"command": "x"}}}',
        '{"mcpServers":{}}',
        "{}",
        '{"$schema": "s"}',
        '{\n\t"mcpServers": {\n\t\t"a": {"command": "x"}\n\t}\n}\n',
        "",
    ],
)
def test_any_form_can_be_changed(tmp_path: Path, text: str) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(text)
    before = json.loads(text or "{}")
    add_server(file, "new", server(), mode=0o644)
    expected = before | {"mcpServers": {**before.get("mcpServers", {}), "new": server()}}
    assert json.loads(file.read_bytes()) == expected
    remove_server(file, "new")
    assert json.loads(file.read_bytes()) == {**before, "mcpServers": before.get("mcpServers", {})}
    for name in [*before.get("mcpServers", {})]:
        remove_server(file, name)
    assert json.loads(file.read_bytes())["mcpServers"] == {}


def test_files_that_cannot_be_changed_are_named_and_stay(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    for text, words in {
        "[]": "no object `mcpServers`",
        '{"mcpServers": 3}': "no object `mcpServers`",
        "{": "cannot change",
        '{"mcpServers": {}, "x": 1e400}': "cannot change",
        '{"mcpServers": {"a": {},}}': "it has comments or a comma behind a last entry: edit it by hand",
        FOREIGN: "it has comments or a comma behind a last entry: edit it by hand",
        '{"mcpServers": {"a": {}}}': "has a server 'a' already: remove it first",
    }.items():
        file.write_text(text)
        with pytest.raises(ConfigError, match=words):
            add_server(file, "a", server(), mode=0o644)
        assert file.read_text() == text
    for text, words in {'{"mcpServers": {"a": {}}}': "has no server 'b'", FOREIGN: "edit it by hand"}.items():
        file.write_text(text)
        with pytest.raises(ConfigError, match=words):
            remove_server(file, "b")
        assert file.read_text() == text


def test_programs_that_add_at_once_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    adding = [threading.Thread(target=add_server, args=(file, f"s{n}", server()), kwargs={"mode": 0o600}) for n in range(8)]
    for thread in adding:
        thread.start()
    for thread in adding:
        thread.join()
    assert set(read_mcp_servers(file)) == {f"s{n}" for n in range(8)}
    assert file.stat().st_mode & 0o777 == 0o600


def test_keys_of_other_programs_have_their_meaning(read) -> None:
    assert read(command="x", timeout=60).call_timeout_seconds == 60
    assert read(command="x", timeout=60_000).call_timeout_seconds == 60
    assert read(command="x", timeout=60, call_timeout_seconds=5).call_timeout_seconds == 5
    assert read(httpUrl="https://a.example/mcp").url == "https://a.example/mcp"
    assert read(serverUrl="https://a.example/mcp", type="streamableHttp").type == "http"
    assert read(command="x", enabled=False).disabled
    assert read(command="x", disabled=True, enabled=True).disabled
    for key in ("disabledTools", "excludeTools"):
        assert [read(command="x", **{key: ["t"]}).offers(tool) for tool in "tu"] == [False, True]
    for key in ("includeTools", "enabledTools", "tools"):
        assert [read(command="x", **{key: ["t"]}).offers(tool) for tool in "tu"] == [True, False]
    assert read(command="x", tools=["*"]).offers("t")
    oauth = read(url="https://a.example/mcp", oauth={"clientId": "i", "scopes": ["r", "w"], "callbackPort": 8000}).oauth
    assert (oauth.client_id, oauth.scope, oauth.callback_port) == ("i", "r w", 8000)


def test_a_key_that_would_narrow_is_never_dropped(read) -> None:
    left_out = read(command="x", disabledTools="t")
    assert left_out.disabled
    assert "without_tools" in left_out.notice


SECRET = "sk-secret-123"
ODD = {
    "no command": ({}, "needs either `command` or `url`"),
    "no table": (f"npx x --key {SECRET}", "valid dictionary"),
    "nothing": (None, "valid dictionary"),
    "env": (server(env=[{"name": "KEY", "value": SECRET}]), "`env`: Input should be a valid dictionary (got a list)"),
    "a text as env": (server(env=f"KEY={SECRET}"), "`env`: Input should be a valid dictionary (got a text)"),
    "a variable": (server(env={f"KEY={SECRET}": "x"}), "'KEY' is not the name of an environment variable"),
    "a number": (server(env={"KEY": 17}), "`env.KEY`: Input should be a valid string (got a number)"),
    "headers": ({"url": "https://a.example/mcp", "headers": [SECRET]}, "`headers`: Input should be a valid dictionary"),
    "args": (server(args=f"--key {SECRET}"), "`args`"),
    "a URL": ({"url": f"user:{SECRET}@example"}, "`url` is not a URL"),
    "unset": (server(env={"KEY": "${NOT_SET_ANYWHERE}", "B": SECRET}), "needs the environment variable NOT_SET_ANYWHERE"),
    "seconds": (server(init_timeout_seconds=-5), "greater than 0 (got -5)"),
}


def test_an_odd_entry_is_left_out_with_a_notice_that_tells_no_value(tmp_path: Path) -> None:
    servers = {name: entry for name, (entry, _) in ODD.items()} | {"sound": server()}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    found = load_config(tmp_path, environment={}).mcp_servers
    assert [name for name, one in found.items() if not one.disabled] == ["sound"]
    told = notices_on(found)
    for name, (_, words) in ODD.items():
        [notice] = [each for each in told if f"MCP server {name!r} is left out:" in each]
        assert words in notice
    assert SECRET not in "".join(told)


def test_disabled_servers_are_not_checked(tmp_path: Path) -> None:
    switches = ({"disabled": True}, {"enabled": False}, {"isActive": False})
    servers = {
        f"{name.replace(' ', '_')}-{number}": {**entry, **switch}
        for name, (entry, _) in ODD.items()
        if isinstance(entry, dict)
        for number, switch in enumerate(switches)
    }
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    found = load_config(tmp_path, environment={}).mcp_servers
    assert all(one.disabled for one in found.values())
    assert notices_on(found) == ()


def test_a_server_with_an_odd_name_gets_another_one(tmp_path: Path) -> None:
    names = ["My Server", "@owner/name", "github.com/owner/name", "owner_name", "", "服务器", "-a", "My-Server"]
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {name: server(args=[name]) for name in names}}))
    found = load_config(tmp_path, environment={}).mcp_servers
    assert {name: one.args[0] for name, one in found.items()} == {
        "My_Server": "My Server", "owner_name_2": "@owner/name", "github_com_owner_name": "github.com/owner/name",
        "owner_name": "owner_name", "server": "", "server_2": "服务器", "a": "-a", "My-Server": "My-Server",
    }  # fmt: skip
    told = "".join(notices_on(found))
    assert told.count("is called") == 6
    assert f"MCP server 'My Server' of {tmp_path / 'mcp.json'} is called 'My_Server' here" in told


@each("text", ["", " \n", "{}", "\ufeff", "// none yet\n", '{"mcpServers": {}}', "{ /* none */ }"])
def test_a_file_without_servers_has_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "mcp.json").write_text(text, encoding="utf-8")
    assert load_config(tmp_path, environment={}).mcp_servers == {}


def test_foreign_keys_make_one_notice_and_approve_nothing(tmp_path: Path) -> None:
    servers = {
        "a": server(autoApprove=["*"], alwaysAllow=["t"], trust=True, envFile=".env"),
        "b": {"url": "https://b.example/mcp", "type": "sse", "oauth": {"registrationUrl": "x"}},
        "c": server(enviroment={}),
        "d": server(timeout="soon"),
        "e": server(),
    }
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    config = load_config(tmp_path, environment={})
    assert config.permission_files == ()
    [notice] = unread_keys(config.mcp_servers)
    assert notice == (
        "keys of MCP servers that mean nothing here are not used: "
        "`autoApprove` (a rule allows calls: docs/approvals.md), `alwaysAllow` (a rule allows calls: docs/approvals.md), "
        "`trust` (a rule allows calls: docs/approvals.md), `envFile` of 'a'; "
        "`type` (sse is the older transport: the newer one is tried at its URL), `oauth.registrationUrl` of 'b'; "
        "`enviroment` of 'c'; `timeout` of 'd'"
    )
    assert unread_keys({"e": config.mcp_servers["e"]}) == ()


def test_the_servers_of_the_user_count_in_all_workspaces(tmp_path: Path) -> None:
    own = tmp_path / "own/freeact"
    own.mkdir(parents=True)
    workspace = tmp_path / "work"
    workspace.mkdir()
    (own / "mcp.json").write_text(json.dumps({"mcpServers": {"mine": server(), "both": server(args=["user"])}}))
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "own")}
    assert list(load_config(workspace, environment=environment).mcp_servers) == ["mine", "both"]
    (workspace / "mcp.json").write_text(json.dumps({"mcpServers": {"both": server(args=["work"])}}))
    config = load_config(workspace, environment=environment)
    assert (list(config.mcp_servers), config.mcp_servers["both"].args) == (["mine", "both"], ("work",))
    only = load_config(workspace, environment=environment, mcp_file=workspace / "mcp.json")
    assert list(only.mcp_servers) == ["both"]


@pytest.mark.parametrize("name", ["mcp.json", "hooks.json"])
def test_a_name_that_stands_twice_is_refused_not_dropped(tmp_path, name):
    """Which of two servers or commands is meant, nobody can say."""
    content = {
        "mcp.json": '{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}, "a": {"command": "z"}}}',
        "hooks.json": '{"hooks": {"a": [], "a": []}}',
    }
    (tmp_path / name).write_text(content[name])
    read = {"mcp.json": read_mcp_servers, "hooks.json": lambda path: read_hook_files([path], tmp_path)}
    with pytest.raises(ConfigError, match=f"cannot read .*{name}: 'a' stands twice in one object"):
        read[name](tmp_path / name)


def test_the_list_names_odd_servers_and_shows_nothing_that_may_be_secret(tmp_path: Path, monkeypatch, capsys) -> None:
    servers = {name: entry for name, (entry, _) in ODD.items()}
    servers |= {"sound": server(args=["--key", SECRET]), "web": {"url": f"https://u:{SECRET}@a.example/mcp?key={SECRET}"}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    assert main(["mcp", "list"]) == 0
    printed = capsys.readouterr()
    assert SECRET not in printed.out + printed.err
    assert "sound: workspace, not trusted, stdio: x with 2 arguments" in printed.out
    assert "https://a.example/mcp\n" in printed.out
    assert "MCP server 'env' is left out" in printed.err
    assert main(["mcp", "add", "new", "--header", f"Authorization {SECRET}", "https://a.example/mcp"]) == 2
    assert SECRET not in capsys.readouterr().err
