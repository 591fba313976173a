"""Hooks files: what is read, what is left out, what is an error, and which scripts count as a part of them."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.tables import each

from freeact_sub.config.hooks import FoundHooks, first_matched, parse_hooks, read_hook_files
from freeact_sub.errors import ConfigError


def one(command: str, **more: Any) -> dict[str, Any]:
    return {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": command, **more}]}]}


def parsed(value: Any, workspace: Path) -> FoundHooks:
    return parse_hooks(value, "hooks.json", workspace)


@each(
    ("pattern", "names", "first"),
    [
        ("", ["Write", "Edit"], "Write"),
        ("*", ["Write", "Edit"], "Write"),
        ("Edit", ["Write", "Edit"], "Edit"),
        ("Edit|Write", ["Write", "Edit"], "Write"),
        ("Edit, Write", ["Write", "Edit"], "Write"),
        ("edit", ["Write", "Edit"], None),
        ("Writer", ["Write"], None),
        ("Bash", ["BashOutput"], None),
        ("Notebook.*", ["NotebookEdit"], "NotebookEdit"),
        ("mcp__.*__delete", ["mcp__github__delete_file"], "mcp__github__delete_file"),
        ("mcp__github", ["mcp__github__delete_file"], None),
        ("^shell$", ["Bash", "shell"], "shell"),
        ("", [], ""),
        ("manual", ["auto"], None),
    ],
)
def test_a_matcher_is_a_list_of_names_or_an_expression(pattern: str, names: list[str], first: str | None) -> None:
    assert first_matched(pattern, names) == first


def test_a_file_is_read_with_the_scripts_that_it_names(tmp_path: Path) -> None:
    script = tmp_path / ".claude" / "hooks" / "check.py"
    script.parent.mkdir(parents=True)
    script.write_text("print()")
    (tmp_path / "notes.txt").write_text("data")
    file = tmp_path / "hooks.json"
    file.write_text(json.dumps({"hooks": one('python3 "$CLAUDE_PROJECT_DIR"/.claude/hooks/check.py notes.txt', timeout=5)}))
    found = read_hook_files([file], tmp_path)
    assert set(found.contents) == {file, script}
    (hook,) = found.hooks
    assert (hook.event, hook.matcher, hook.timeout_seconds, hook.required) == ("PreToolUse", "Bash", 5.0, False)
    assert not hook.changed_scripts()
    script.write_text("print(1)")
    assert hook.changed_scripts() == [script]


@each(
    ("command", "scripts"),
    [
        ("./check", ["check"]),
        ("${CLAUDE_PROJECT_DIR}/check --all", ["check"]),
        ("cat | ./check && echo done >> log.txt", ["check"]),
        ("python check", ["check"]),
        ("bash -e run.sh", ["run.sh"]),
        ("jq -r .tool_name < input.json", []),
        ("python -c 'print(1)'", []),
        ("ruff format .", []),
        ("echo 'not closed", []),
    ],
)
def test_the_scripts_of_a_command_are_what_it_runs(command: str, scripts: list[str], tmp_path: Path) -> None:
    for name in ("check", "run.sh", "input.json", "log.txt"):
        (tmp_path / name).write_text("#!/bin/sh\n" if name in ("check", "run.sh") else "{}")
    found = parsed(one(command), tmp_path)
    assert [path.name for path in found.contents] == scripts


def test_a_script_that_appears_later_was_not_reviewed(tmp_path: Path) -> None:
    (hook,) = parsed(one("python later.py"), tmp_path).hooks
    assert not hook.changed_scripts()
    (tmp_path / "later.py").write_text("print()")
    assert hook.changed_scripts() == [tmp_path / "later.py"]


def test_a_link_out_of_the_workspace_is_a_script_of_it(tmp_path: Path) -> None:
    outside, workspace = tmp_path / "outside.py", tmp_path / "workspace"
    workspace.mkdir()
    outside.write_text("print()")
    (workspace / "link.py").symlink_to(outside)
    (hook,) = parsed(one("python link.py"), workspace).hooks
    assert list(hook.scripts) == [workspace / "link.py"]
    assert not parsed(one(f"python {outside}"), workspace).contents


@each(
    ("value", "problem"),
    [
        ([], "must be an object"),
        ({"PreToolUse": {}}, "must be a list"),
        ({"PreToolUse": [1]}, "must be an object"),
        ({"PreToolUse": [{"matcher": "Bash(", "hooks": []}]}, "not a regular expression"),
        ({"PreToolUse": [{"matcher": 1, "hooks": []}]}, "must be a text"),
        ({"PreToolUse": [{"matcher": "Bash"}]}, "must be a list"),
        (one(" "), "needs a `command`"),
        (one("x", timeout=0), "`timeout`"),
        (one("x", timeout=True), "`timeout`"),
        (one("x", timeout="5"), "`timeout`"),
        (one("x", required="yes"), "`required`"),
    ],
)
def test_faults_are_named_with_the_file(value: Any, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=problem) as raised:
        parsed(value, tmp_path)
    assert "hooks.json" in str(raised.value)


@each("content", [b"", b"[]", b"{}", b'{"hooks": ', b"\xff\xfe{"])
def test_a_file_that_is_none_is_an_error_that_names_it(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "hooks.json"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"hooks\.json"):
        read_hook_files([file], tmp_path)


def test_foreign_hooks_without_meaning_here_are_left_out_and_told(tmp_path: Path) -> None:
    value = {
        "TeammateIdle": [{"hooks": [{"type": "command", "command": "x"}]}],
        **one("x", statusMessage="checks"),
        "Stop": [
            {"hooks": [{"type": "prompt", "prompt": "done?"}, {"type": "command", "command": "y", "if": "Bash(git *)"}]}
        ],
    }
    found = parsed(value, tmp_path)
    assert [hook.command for hook in found.hooks] == ["x"]
    assert ["TeammateIdle" in found.problems[0], "'prompt'" in found.problems[1], "`if`" in found.problems[2]] == [True] * 3
    assert len(found.problems) == 3


def test_a_switch_takes_the_hooks_of_its_file_and_of_those_before_it(tmp_path: Path) -> None:
    """So a person's own switch holds for all, and a project's never for the person's."""
    files = {name: tmp_path / f"{name}.json" for name in ("project", "own")}
    for project_off, own_off, left in ((False, False, 2), (True, False, 1), (False, True, 0), (True, True, 0)):
        for name, is_off in (("project", project_off), ("own", own_off)):
            files[name].write_text(json.dumps({"disableAllHooks": is_off, "hooks": one(name)}))
        found = read_hook_files([*files.values()], tmp_path)
        assert len(found.hooks) == left
        assert [hook.command for hook in found.hooks][-1:] == (["own"] if left else [])
        assert {*found.contents} == {*files.values()}, "a person reviews them all the same"
        if left < 2:
            assert "`disableAllHooks` is true" in found.problems[-1]
    files["own"].write_text('{"disableAllHooks": true}')
    assert read_hook_files([files["own"]], tmp_path).hooks == ()


@pytest.mark.parametrize("key", ["async", "asyncRewake", "once"])
def test_a_key_that_is_false_as_by_default_leaves_no_hook_out(key: str, tmp_path: Path) -> None:
    assert len(parsed(one("x", **{key: False}), tmp_path).hooks) == 1
    found = parsed(one("x", **{key: True}), tmp_path)
    assert found.hooks == ()
    assert f"`{key}` has no meaning here" in found.problems[0]


@pytest.mark.parametrize("value", [{"PreToolUse": "curl -H key:sk-1"}, {"PreToolUse": ["sk-1"]}, one("x", required="sk-1")])
def test_faults_are_named_without_the_value(value: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        parsed(value, tmp_path)
    assert "sk-1" not in str(raised.value)
