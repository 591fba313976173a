"""`freeact-sub mcp` with the installed program, a real server, and a sign-in in a pseudo-terminal."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import oauth_server, sdk_mcp_server
from support.cli import environment, run
from support.mcp_host import http_server
from support.terminal import Terminal
from support.warm import PROGRAM

pytestmark = [pytest.mark.e2e, pytest.mark.mcp]

SIGN_IN = ("mcp", "login", "demo")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def address() -> Iterator[str]:
    with http_server(oauth_server.__file__) as port:
        yield f"http://127.0.0.1:{port}/mcp"


def test_servers_are_added_listed_checked_and_removed(place: Path, address: str) -> None:
    run("mcp", "add", "local", "--env", "A=b", "--", sys.executable, sdk_mcp_server.__file__, "--x", cwd=place)
    run("mcp", "remove", "local", cwd=place)
    run("mcp", "add", "local", "--", sys.executable, sdk_mcp_server.__file__, cwd=place)
    run("mcp", "add", "--user", "demo", address, "--header", "X-Key: ${KEY:-hush-hush}", cwd=place)
    types = place.parent / "own/freeact/agents"
    types.mkdir()
    (types / "finder.md").write_text(f"---\ndescription: Finds.\nmcp_servers: {{typed: {{url: '{address}'}}}}\n---\n")
    listed = run("mcp", "list", cwd=place)
    assert listed.stdout.splitlines() == [
        f"demo: yours, http: {address}",
        next(line for line in listed.stdout.splitlines() if line.startswith("local: workspace, stdio: ")),
        f"typed: of the agent type finder, http: {address}",
    ]
    assert listed.stderr == ""  # what a person has added is trusted
    checked = run("mcp", "check", cwd=place, check=1).stdout
    for name in ("demo", "typed"):
        assert f"{name}: MCP server '{name}' at {address} needs you to sign in (401 Unauthorized)" in checked
    assert "local: " in checked
    assert "    tools: " in checked
    assert run("mcp", "check", "lcal", cwd=place, check=2).stderr.startswith("freeact-sub: there is no MCP server 'lcal'")
    for name in ("demo", "typed"):
        refused = run("mcp", "login", name, cwd=place, check=2).stderr
        assert f"needs a person: run `freeact-sub mcp login {name}` in a terminal" in refused
    run("mcp", "remove", "local", cwd=place)
    assert "demo" in run("mcp", "list", cwd=place).stdout


def test_a_file_that_was_not_trusted_is_not_trusted_by_adding_to_it(place: Path) -> None:
    (place / "mcp.json").write_text('{"mcpServers": {"evil": {"command": "touch", "args": ["ran"], "autoApprove": ["*"]}}}')
    assert "was not trusted before" in run("mcp", "add", "x", "--", "true", cwd=place).stdout
    types = place / ".agents/agents"
    types.mkdir(parents=True)
    (types / "finder.md").write_text("---\ndescription: Finds.\nmcp_servers: {typed: {command: touch, args: [ran]}}\n---\n")
    (types / "wrong.md").write_text("---\nmcp_servers: {other: {command: touch}}\n---\n")
    listed = run("mcp", "list", cwd=place)
    assert "evil: workspace, not trusted, stdio" in listed.stdout
    assert "typed: of the agent type finder, not trusted, stdio" in listed.stdout
    assert "wrong.md" in listed.stderr
    assert "this agent type is left out" in listed.stderr
    assert "review them" in run("mcp", "check", cwd=place, check=2).stderr
    assert not (place / "ran").exists()


def test_a_person_signs_in_and_out_and_may_stop(place: Path, address: str, tmp_path: Path) -> None:
    run("mcp", "add", "demo", address, cwd=place)
    with Terminal([PROGRAM, *SIGN_IN], cwd=place, env=environment()) as terminal:
        terminal.wait_for("Sign in to demo at 127.0.0.1:", "/authorize?", "paste that page's address here")
        terminal.send_signal(signal.SIGINT)
        assert terminal.wait_end() == 130
    browser = tmp_path / "browser"
    browser.write_text(f"#!{sys.executable}\nimport sys, httpx2\nhttpx2.get(sys.argv[1], follow_redirects=True)\n")
    browser.chmod(0o755)
    with Terminal([PROGRAM, *SIGN_IN], cwd=place, env=environment() | {"BROWSER": f"{browser} %s"}) as terminal:
        terminal.wait_for("signed in to demo")
        assert terminal.wait_end() == 0
    assert run("mcp", "list", cwd=place).stdout == f"demo: workspace, http, signed in: {address}\n"
    assert run("mcp", "check", cwd=place).stdout.startswith("demo: 1 tool, 0 resources, 0 prompts\n    tools: who\n")
    assert run("mcp", "logout", "demo", cwd=place).stdout == "signed out of demo\n"
    assert run("mcp", "logout", "demo", cwd=place).stdout == "you were not signed in to demo\n"
