"""Hooks on what code in a real kernel does, in the form in which other agents document them; and what keeps them from it."""

import json
import sys

import pytest
from support.agents import cell, of_kind, read
from support.sandbox import NEEDS_A_WALL

from freeact_sub import Agent, Hook
from freeact_sub.config.load import load_config
from freeact_sub.events import Notice, ToolOutput
from freeact_sub.testing import ScriptedModel

pytestmark = pytest.mark.kernel

VALIDATOR = """\
import json, re, sys
RULES = [(r"\\bgrep\\b(?!.*\\|)", "use rg in place of grep"), (r"\\bfind\\s+\\S+\\s+-name\\b", "use rg --files")]
data = json.load(sys.stdin)
if data.get("tool_name", "") != "Bash":
    sys.exit(0)
problems = [text for pattern, text in RULES if re.search(pattern, data.get("tool_input", {}).get("command", ""))]
for text in problems:
    print(f"- {text}", file=sys.stderr)
sys.exit(2 if problems else 0)
"""
FORMATTER = """\
import json, pathlib, sys
path = pathlib.Path(json.load(sys.stdin)["tool_input"]["file_path"])
if path.suffix == ".py":
    path.write_text(path.read_text().replace("x=1", "x = 1"))
    print(json.dumps({"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": f"{path.name} was formatted"}}))
"""
CODE = """
import subprocess
try:
    subprocess.run(["grep", "-r", "x", "."])
except PermissionError as error:
    print("refused:", error)
print(subprocess.run(["echo", "fine"], capture_output=True, text=True).stdout)
open("made.py", "w").write("x=1")
try:
    open("secret.txt", "w")
except PermissionError as error:
    print("refused:", error)
for name in (".agents/hooks.json", ".claude/hooks/check.py", "tools/format.py"):
    try:
        open(name, "a").write("#")
        print("written:", name)
    except OSError as error:
        print(type(error).__name__, name)
"""


@NEEDS_A_WALL
async def test_hooks_of_a_file_hold_for_what_a_cell_does_and_a_cell_cannot_change_them(tmp_path):
    def refuse(data):
        return (
            {"decision": "block", "reason": "no secrets"} if data["tool_input"]["file_path"].endswith("secret.txt") else None
        )

    for name, text in ((".claude/hooks/check.py", VALIDATOR), ("tools/format.py", FORMATTER)):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    (tmp_path / ".agents").mkdir()
    check, form = 'python3 "$CLAUDE_PROJECT_DIR"/.claude/hooks/check.py', "python3 -P tools/format.py"
    hooks = {
        "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": check}]}],
        "PostToolUse": [{"matcher": "Edit|MultiEdit|Write", "hooks": [{"type": "command", "command": form, "timeout": 30}]}],
    }
    (tmp_path / ".agents/hooks.json").write_text(json.dumps({"hooks": hooks}))
    config = load_config(tmp_path, environment={"XDG_CONFIG_HOME": str(tmp_path / "own")}, arguments={"mode": "auto"})
    model = ScriptedModel([cell(CODE), "done"])
    async with Agent(config, model=model, hooks=[Hook("PreToolUse", refuse, "Write")]) as agent:
        events, result = await read(agent.run("p"))
    [output] = of_kind(events, ToolOutput)
    assert "use rg in place of grep" in output.content
    assert "fine" in output.content
    assert "no secrets" in output.content
    assert "written:" not in output.content
    assert "[A hook of the user says: made.py was formatted]" in output.content
    assert (tmp_path / "made.py").read_text() == "x = 1"
    assert not (tmp_path / "secret.txt").exists()
    assert result.status == "completed"
    assert not [event for event in of_kind(events, Notice) if "hook" in event.content], sys.version
