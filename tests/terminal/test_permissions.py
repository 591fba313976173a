"""`freeact-sub permissions`: what it prints, and its exit status."""

import tomllib

import pytest
from support.tables import each, lines

from freeact_sub.cli import main


@pytest.fixture
def permissions(tmp_path, monkeypatch, capsys):
    """Runs the command in the workspace; its exit status, and what it has printed where."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        try:
            status = main(["permissions", *arguments])
        except SystemExit as end:
            status = end.code
        return (status, *capsys.readouterr())

    return run


@pytest.fixture
def rules(tmp_path):
    path = tmp_path / ".freeact" / "permissions.toml"
    path.parent.mkdir()
    path.write_text('allow = ["shell:make *", "connect:*.org:443"]')
    return path


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (
            ["ls -l && git log"],
            0,
            ["allow: ", 'allow "shell:'],
        ),
        (["git push"], 3, ['ask: git push: ask "shell:git push *" (default)']),
        (["ls && rm -rf /"], 1, ["deny: rm -rf /: "]),
        (["make all"], 0, ['allow: make all: allow "shell:make *"', ".freeact/permissions.toml"]),
        (["make all", "--mode", "plan"], 0, ["allow"]),
        (["git push", "--mode", "full"], 0, ["(mode full)"]),
        (["--kind", "write", "out/report"], 0, ["writes in the workspace are allowed (mode ask)"]),
        (["--kind", "write", "/etc/hosts"], 3, ["writes outside the workspace are asked for (mode ask)"]),
        (["--kind", "write", "/etc/hosts", "--mode", "auto"], 1, ["deny: ", "(mode auto)"]),
        (["--kind", "write", ".freeact/permissions.toml"], 1, ['deny "write:**/.freeact/permissions.toml" (default)']),
        (["--kind", "connect", "example.org:443"], 0, ['allow "connect:*.org:443"']),
        (["--kind", "connect", "example.com:443"], 3, ["connections are asked for"]),
        (["--kind", "mcp", "units/convert"], 3, ["MCP calls are asked for"]),
        (["--kind", "mcp", "units/convert", "--mode", "plan"], 1, ["(mode plan)"]),
        (["--kind", "tool", "reset_kernel"], 0, ["only the agent and its children"]),
        (["--kind", "tool", "ask"], 0, ['allow "tool:ask" (default)']),
        (["--kind", "tool", "ask", "--mode", "plan"], 0, ['allow "tool:ask" (default)']),
        (["--kind", "connect", "example.org"], 2, ["HOST:PORT"]),
        (["--kind", "none", "x"], 2, ["--kind"]),
        (["x", "--workspace", "nowhere"], 2, ["nowhere"]),
    ],
)
def test_check_tells_the_decision_and_the_rule(permissions, rules, arguments, status, words):
    ended, shown, told = permissions("check", *arguments)
    assert ended == status
    assert all(word in shown + told for word in words), (shown, told)
    assert len(shown.splitlines()) == (status != 2)
    if status != 2:
        assert "since a person last reviewed them" in told  # it is only looked at here


@each("mode", ["plan", "ask", "auto", "full"])
@each("command", lines("commands/that_install_packages.txt"))
@pytest.mark.slow
def test_installing_a_package_is_asked_for_in_every_mode_but_full(permissions, command, mode):
    assert permissions("check", command, "--mode", mode)[0] == (0 if mode == "full" else 3)


def test_list_shows_what_wins_first_in_the_form_of_a_rule_file(permissions, rules):
    _, shown, _ = permissions("list", "--trust")
    project, heading, shipped = shown.partition("# default\n")
    assert heading
    assert str(rules) in project
    assert tomllib.loads(project) == {"allow": ["shell:make *", "connect:*.org:443"]}
    assert "shell:pip* install *" in tomllib.loads(shipped)["ask"]
    rules.write_text("alow = []")
    status, _, told = permissions("list")
    assert status == 2
    assert "unknown list `alow`" in told
