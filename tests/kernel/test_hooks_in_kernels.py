"""Hooks on what code in a real kernel does, in the form in which other agents document them; and what keeps them from it."""

import json
import sys
from pathlib import Path

import pytest
from support.agents import cell, of_kind, read, task
from support.gateways import behind
from support.sandbox import NEEDS_A_WALL

from freeact_sub import Agent, Config, Hook
from freeact_sub.config.load import load_config
from freeact_sub.events import AgentStarted, Notice, ToolOutput
from freeact_sub.testing import ScriptedModel

pytestmark = pytest.mark.kernel

SERVER = {"demo": {"command": sys.executable, "args": [str(Path(__file__).parents[1] / "support" / "sdk_mcp_server.py")]}}
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
KEEPER = (
    "python3 -c \"import json, sys; path = json.load(sys.stdin).get('tool_input', {}).get('file_path', ''); "
    "sys.exit(2 if any(part in path for part in ['.env', 'package-lock.json', '.git/']) else 0)\""
)
REVIEWER = (
    "python3 -c \"import json, sys; print(json.dumps({} if json.load(sys.stdin)['stop_hook_active'] else "
    "{'decision': 'block', 'reason': 'say which files you made'}))\""
)
CODE = """
import subprocess
try:
    subprocess.run(["grep", "-r", "x", "."])
except PermissionError as error:
    print("refused:", error)
print(subprocess.run(["echo", "fine"], capture_output=True, text=True).stdout)
open("made.py", "w").write("x=1")
for name in ("secret.txt", "package-lock.json"):
    try:
        open(name, "w")
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
async def test_hooks_of_a_file_hold_for_what_a_cell_does_and_a_cell_cannot_change_them(tmp_path, monkeypatch):
    monkeypatch.setattr("freeact_sub.hooks.SLOW_SECONDS", 60.0)  # one that takes long is told of as well

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
        "PreToolUse": [
            {"matcher": "Bash", "hooks": [{"type": "command", "command": check}]},
            {"matcher": "Edit|Write", "hooks": [{"type": "command", "command": KEEPER}]},
        ],
        "Stop": [{"hooks": [{"type": "command", "command": REVIEWER}]}],
        "Notification": [{"matcher": "", "hooks": [{"type": "command", "command": "cat >> notes.jsonl"}]}],
        "PostToolUse": [{"matcher": "Edit|MultiEdit|Write", "hooks": [{"type": "command", "command": form, "timeout": 30}]}],
    }
    (tmp_path / ".agents/hooks.json").write_text(json.dumps({"hooks": hooks}))
    config = load_config(tmp_path, environment={"XDG_CONFIG_HOME": str(tmp_path / "own")}, arguments={"mode": "auto"})
    model = ScriptedModel([cell(CODE), "done", cell("agent.shell('true', reason='outside')"), "made.py"])
    async with Agent(config, model=model, hooks=[Hook("PreToolUse", refuse, "Write")]) as agent:
        events, result = await read(agent.run("p"))
    output = of_kind(events, ToolOutput)[0]
    assert "use rg in place of grep" in output.content
    assert "fine" in output.content
    assert "no secrets" in output.content
    assert "written:" not in output.content
    assert "[A hook of the user says: made.py was formatted]" in output.content
    assert (tmp_path / "made.py").read_text() == "x = 1"
    assert not [name for name in ("secret.txt", "package-lock.json") if (tmp_path / name).exists()]
    assert (result.status, result.output) == ("completed", "made.py")
    [note] = [json.loads(line) for line in (tmp_path / "notes.jsonl").read_text().splitlines()]
    assert (note["notification_type"], note["cwd"]) == ("permission_prompt", str(tmp_path))
    notices = [event.content for event in of_kind(events, Notice) if "hook" in event.content]
    assert [text for text in notices if "python -P" not in text] == ["a hook has the agent go on: say which files you made"]
    assert len(notices) == 2  # `python3 -c` in the workspace imports from it: the wall does not hold new files there


@pytest.mark.parametrize("at", ["here", "gateway"])
async def test_hooks_hear_what_children_of_models_and_of_code_do_by_the_id_of_the_agent(at, tmp_path, request):
    heard: list[tuple[str, str, str]] = []

    def hear(data):
        heard.append((data["hook_event_name"], data["tool_name"], data.get("agent_id", "root")))

    work = """
import subprocess
subprocess.run(["echo", "inner"])
open("by_child.txt", "w").write("x")
print(agent.mcp.demo.add(1, 2), agent.tools.double(4), agent.shell("true", reason="r").exit_code)
"""
    code = "r = await agent.task('of code', description='adder')\nprint(r.agent_id)"
    script = {
        "root": [[cell(code), task("of model", description="second")], "done"],
        "of code": [[cell(work)], "done"],
        "of model": [[cell("open('of_model.txt', 'w').write('x')")], "done"],
    }

    def double(number: int) -> int:
        return 2 * number

    kernel = {} if at == "here" else {"kernel": behind(request.getfixturevalue("gateways")[0], workspace="shared")}
    config = Config(workspace=tmp_path, mode="full", mcp_servers=SERVER, headless="allow", **kernel)
    hooks = [Hook("PreToolUse", hear), Hook("PostToolUse", hear)]
    async with Agent(config, model=ScriptedModel(script), hooks=hooks, tools=[double]) as agent:
        events, result = await read(agent.run("root"))
    assert result.status == "completed"
    ids = {event.prompt: event.agent_id for event in of_kind(events, AgentStarted)}
    of_code = {"execute_ipython_cell", "Write", "Bash", "mcp__demo__add", "double"}
    assert {name for event, name, who in heard if (event, who) == ("PreToolUse", ids["of code"])} == of_code
    assert {name for event, name, who in heard if (event, who) == ("PostToolUse", ids["of code"])} == of_code
    assert {name for _, name, who in heard if who == ids["of model"]} == {"execute_ipython_cell", "Write"}
    assert {name for _, name, who in heard if who == "root"} == {"execute_ipython_cell", "Task"}
    assert heard.count(("PreToolUse", "Task", "root")) == 2
    assert heard.count(("PreToolUse", "Bash", ids["of code"])) == 2  # a program of the cell, and agent.shell


async def test_code_of_a_program_and_of_a_node_is_heard_and_a_hook_on_an_inner_action_ends_the_run(tmp_path):
    heard: list[tuple[str, str]] = []

    def hear(data):
        heard.append((data["tool_name"], data.get("agent_id", "root")[:4]))

    def stop(data):
        return {"continue": False, "stopReason": "enough"} if data["tool_input"]["command"] == "stop" else None

    inner = "import subprocess\nsubprocess.run(['true'])\nopen('made.txt', 'w').write('x')"
    refused = "try:\n    subprocess.run(['stop'])\nexcept PermissionError as error:\n    print('refused:', error)"
    hooks = [Hook("PostToolUse", hear), Hook("PreToolUse", stop, "Bash")]
    model = ScriptedModel([cell(f"import subprocess\n{refused}"), "never"])
    async with Agent(Config(workspace=tmp_path, mode="full"), model=model, hooks=hooks) as agent:
        await agent.execute(inner)
        assert sorted(heard) == [("Bash", "root"), ("Write", "root"), ("execute_ipython_cell", "root")]
        heard.clear()
        await (await agent.branch()).execute(inner)
        assert sorted(heard) == [("Bash", "node"), ("Write", "node"), ("execute_ipython_cell", "node")]
        events, result = await read(agent.run("go"))
    assert "denied: a hook says: enough" in of_kind(events, ToolOutput)[0].content
    assert (result.status, "enough" in result.error, model.requests) == ("rejected", True, 1)
