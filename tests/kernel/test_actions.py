"""What code in cells does by itself, from the kernel's hook to a person's answer: modes, rules, children, hostile requests."""

import asyncio

import pytest
from support.agents import cell, of_kind, read, task
from support.elsewhere import CANNOT_FORK
from support.waiting import eventually

from freeact_sub import Agent, Config
from freeact_sub.agent_names import short_id
from freeact_sub.calls import CodeAction, FileWrite, NetworkConnect, ShellCommand, SpawnCall
from freeact_sub.config.schema import KernelConfig
from freeact_sub.events import ApprovalRequest, CodeExecutionOutput, Decision
from freeact_sub.testing import ScriptedModel

pytestmark = [pytest.mark.kernel, pytest.mark.skipif(CANNOT_FORK, reason="the sandbox")]


@pytest.fixture
def run(tmp_path):
    """Run cells: what was asked about what the code does, and what the cells put out."""

    async def run_cells(*cells, rule=lambda _: Decision(allowed=True), script=None, **config):
        (tmp_path / "work/.freeact").mkdir(parents=True, exist_ok=True)
        model = ScriptedModel(script or [*([cell(code)] for code in cells), "done"])
        async with Agent(Config(workspace=tmp_path / "work", **config), model=model) as agent:
            events, result = await read(agent.run("root"), lambda request: rule(request))
        assert result.status == "completed"
        asked = [event for event in of_kind(events, ApprovalRequest) if not isinstance(event.call, CodeAction | SpawnCall)]
        return asked, [end.text for end in of_kind(events, CodeExecutionOutput)]

    return run_cells


ATTEMPTS = {
    "inside": "open('inside', 'w').close()",
    "outside": "open('../outside', 'w').close()",
    "settings": "open('.freeact/config.toml', 'w').close()",
    "program": "import subprocess; subprocess.run(['touch', 'touched'])",
    "harmless": "import subprocess; subprocess.run(['ls'])",
    "push": "!git push",
    "connect": "import socket; socket.socket().connect(('127.0.0.1', 1))",
}
EXPECTED = {
    "plan": {"inside": "denied", "outside": "denied", "settings": "denied", "program": "asked", "push": "asked", "connect": "denied"},
    "ask": {"outside": "asked", "settings": "asked", "program": "asked", "push": "asked", "connect": "asked"},
    "auto": {"outside": "denied", "settings": "denied", "push": "asked", "connect": "denied"},
    "full": {},
}  # fmt: skip


@pytest.mark.parametrize("mode", EXPECTED)
@pytest.mark.parametrize("sandbox", ["auto", "off"])
async def test_a_mode_decides_what_is_asked_and_what_is_denied(run, mode, sandbox):
    found = {}
    asked, texts = await run(*ATTEMPTS.values(), mode=mode, kernel=KernelConfig(sandbox=sandbox))
    denied = [name for name, text in zip(ATTEMPTS, texts, strict=True) if "denied: " in text]
    found = dict.fromkeys(denied, "denied") | {name_of(event.call): "asked" for event in asked}
    assert found == EXPECTED[mode]
    for name, text in zip(ATTEMPTS, texts, strict=True):
        assert name not in denied or ("PermissionError" in text and f"(mode {mode})" in text)


def name_of(call):
    match call:
        case FileWrite():
            return "settings" if "config.toml" in call.path else "outside" if call.path.endswith("outside") else call.path
        case ShellCommand():
            return "push" if call.command == "git push" else "program" if "touched" in call.command else call.command
        case NetworkConnect():
            return "connect"
    return call


async def test_rules_hold_in_the_workspace_and_for_how_code_names_a_file(run, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "work/data").symlink_to(tmp_path / "elsewhere")
    rules = tmp_path / "rules.toml"
    rules.write_text(
        'deny = ["write:data/**", "write:*.lock", "connect:127.0.0.1"]\nask = ["write:notes*"]\nallow = ["connect", "shell"]'
    )
    codes = [
        "open('data/x', 'w')",
        "open('a.lock', 'w')",
        "open('notes.md', 'w').close()",
        "open('free', 'w').close()",
        "import socket; socket.create_connection(('localhost', 1))",
        "import os; os.environ['PATH'] = '.:' + os.environ['PATH']; os.system('ls'); import subprocess; subprocess.run(['ls'])",
    ]
    asked, texts = await run(*codes, mode="full", permission_files=(rules,))
    assert asked == []
    assert ["denied" in text for text in texts] == [True, True, False, False, True, False]
    asked, texts = await run(*codes, mode="ask", permission_files=(rules,))
    assert ["denied" in text for text in texts] == [True, True, False, False, True, False]
    assert [event.call.summary.replace(str(tmp_path), "") for event in asked][0] == "write /work/notes.md"
    assert len(asked) == 3
    assert all("PATH=" in event.call.summary for event in asked[1:])


LOOP = """
while True:
    try:
        open({name!r}, 'w').close()
    except PermissionError as error:
        print(error)
        break
"""


async def test_a_rule_that_is_saved_while_a_cell_writes_counts_for_that_cell(run, tmp_path):
    given, made = tmp_path / "rules.toml", tmp_path / "work/.freeact/permissions.toml"
    given.write_text("deny = []")

    async def save():
        for name, file, text in (("one", given, 'deny = ["write:one"]'), ("two", made, 'ask = ["write:two"]')):
            await eventually((tmp_path / "work" / name).exists)
            file.write_text(text)

    saving = asyncio.create_task(save())
    codes = [LOOP.format(name=name) for name in ("one", "two")]

    def rule(request):
        return Decision(allowed=not isinstance(request.call, FileWrite), reason="not this")

    asked, texts = await run(
        *codes, mode="ask", permission_files=(given,), rule=rule, kernel=KernelConfig(cell_timeout_seconds=60)
    )
    await saving
    assert ["write:one" in texts[0], "not this" in texts[1]] == [True, True]
    assert [event.call.path for event in asked] == [str(tmp_path / "work/two")]


async def test_auto_with_the_network_connects_unasked(run):
    asked, [text] = await run(ATTEMPTS["connect"], mode="auto", kernel=KernelConfig(network=True))
    assert "ConnectionRefusedError" in text
    assert asked == []


async def test_a_question_says_who_asks_and_what_a_pattern_would_allow(run, tmp_path):
    rule = lambda request: Decision(allowed=True, remember="session")
    [asked, *more], _ = await run("for n in range(3): open('../outside', 'w').close()", rule=rule)
    assert more == []
    assert asked.call == FileWrite(path=str(tmp_path / "outside"), operation="create")
    assert asked.suggested == (f"write:{tmp_path}/outside",)
    assert asked.path == (short_id(asked.agent_id),)
    assert asked.tool_call_id


async def test_children_ask_at_once_and_are_answered_in_the_other_order(run, tmp_path):
    code = (
        "import os\ntry:\n    open('../of-' + NAME, 'w').close()\nexcept PermissionError as error:\n    print(NAME, error)"
    )
    names = ["a", "b", "c"]
    script = {
        "root": [[task(f"child {name}", description=name) for name in names], "done"],
        **{f"child {name}": [[cell(code.replace("NAME", repr(name)))], "ok"] for name in names},
    }
    waiting = []

    def rule(request):
        if not isinstance(request.call, FileWrite):
            return Decision(allowed=True)
        waiting.append(request)
        if len(waiting) == len(names):
            for number, other in enumerate(reversed(waiting)):
                assert other.decide(Decision(allowed=number > 0, reason="only two"))
        return None

    asked, texts = await run(script=script, rule=rule)
    denied = asked[-1].path[-1].rpartition("(")[2][0]
    assert sorted(text for text in texts if "only two" in text) == [f"{denied} [Errno 13] denied: only two\n".strip()]
    assert sorted(path.name for path in tmp_path.glob("of-*")) == [f"of-{name}" for name in names if name != denied]
    assert {event.path[-1].rpartition(" ")[2] for event in asked} == {f"({name})" for name in names}


GARBAGE = [
    {},
    {"kind": "everything"},
    {"kind": "shell"},
    {"kind": "shell", "command": ["ls"], "cwd": "/"},
    {"kind": "shell", "command": "ls", "cwd": "relative"},
    {"kind": "shell", "command": "x" * 200_000, "cwd": "/"},
    {"kind": "write", "path": "/a"},
    {"kind": "write", "path": "relative", "named": "relative", "operation": "write"},
    {"kind": "write", "path": "/a", "named": "/a", "operation": "destroy"},
    {"kind": "write", "path": "/a", "named": "/a", "operation": ["write"]},
    {"kind": "write", "path": "/" + "a/" * 10_000, "named": "/a", "operation": "write"},
    {"kind": "connect", "host": "h", "port": "80"},
    {"kind": "connect", "host": "h", "port": True},
    {"kind": "connect", "host": "h", "port": 10**9},
    {"kind": "connect", "host": {}, "port": 80, "ip": 5},
    {"kind": "mcp", "server": "s", "tool": "t"},
    {"kind": "shell", "command": "ls", "cwd": "/", "wall": True, "outside": True, "mode": "full", "depth": 0},
]


async def test_a_request_that_is_none_is_denied_and_harms_nothing(run):
    code = f"""
for params in {GARBAGE!r}:
    try:
        agent._requests.ask('check', **params)
        print('passed', params)
    except PermissionError as error:
        assert 'could not be read' in str(error), error
for method in ('allow', 'approve', 'set_mode', 'set_depth', '__class__', ''):
    try:
        agent._requests.ask(method, mode='full')
        print('passed', method)
    except RuntimeError as error:
        assert 'unknown request' in str(error), error
"""
    asked, texts = await run(code, "open('../outside', 'w')", mode="ask", rule=_deny_writes)
    assert texts[0] == "passed " + repr(GARBAGE[-1])
    assert "PermissionError" in texts[1]
    assert [type(event.call) for event in asked] == [FileWrite]


def _deny_writes(request):
    return Decision(allowed=not isinstance(request.call, FileWrite))


async def test_headless_denies_or_allows_as_configured(run, tmp_path):
    for headless, made in (("deny", False), ("allow", True)):
        (tmp_path / "outside").unlink(missing_ok=True)
        rules = tmp_path / "rules.toml"
        rules.write_text('allow = ["code"]')
        asked, [text] = await run(ATTEMPTS["outside"], headless=headless, permission_files=(rules,))
        assert [event.headless for event in asked] == [True]
        assert ("nobody is there to answer" in text) is not made
        assert (tmp_path / "outside").exists() is made
