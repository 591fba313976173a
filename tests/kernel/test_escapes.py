"""Attempts to get out of real kernels with nothing but the wall in the way: no hook asks, nobody is asked.

`docs/security.md` has a table of them, each row with the modes that stop it; a test here holds the two together.
"""

import asyncio
import os
from pathlib import Path

import pytest
from support.agents import cell, of_kind, read, task
from support.attempts import ATTEMPTS
from support.kernels import open_kernel, run_cell
from support.sandbox import ALL, NEEDS_A_WALL, PREPARED, PROVIDERS, SECRET, WALLED, outside_world, sandboxed

from freeact_sub import Agent, Config
from freeact_sub.cells import CellError
from freeact_sub.config.schema import KernelConfig
from freeact_sub.events import AgentFinished, ApprovalRequest, CodeExecutionOutput, Decision
from freeact_sub.kernels.local import LocalKernelProvider
from freeact_sub.testing import ScriptedModel

pytestmark = [pytest.mark.kernel, NEEDS_A_WALL]


@pytest.fixture
def world(tmp_path):
    """What kernels try to reach."""
    with outside_world(tmp_path) as names:
        yield names


@pytest.mark.parametrize("mode", ALL)
@pytest.mark.parametrize("kind", PROVIDERS)
async def test_escapes(kind, mode, world, tmp_path):
    """All attempts of a mode in one kernel, beside a sibling: each fails with an ordinary exception, and has no effect."""
    workspace, provider = tmp_path / "workspace", PROVIDERS[kind]()
    escaped = {}
    try:
        async with (
            open_kernel(provider, workspace, **sandboxed(mode, workspace)) as sibling,
            open_kernel(provider, workspace, **sandboxed(mode, workspace)) as kernel,
        ):
            world["SIBLING"] = int((await run_cell(sibling, "secret = 1\nimport os; os.getpid()")).text)
            world["FOLDER"] = str(sibling.connection_file.parent)
            names = "".join(f"{name} = {value!r}\n" for name, value in world.items())
            assert (await run_cell(kernel, PREPARED + names)).status == "ok"
            for name, attempt in ATTEMPTS.items():
                if mode in attempt.modes:
                    ran = await run_cell(kernel, attempt.code)
                    raised = [output.ename for output in ran.outputs if isinstance(output, CellError)]
                    if ran.status != "error" or raised[0] not in attempt.errors:
                        escaped[name] = (ran.status, ran.text[-300:])
            assert (await run_cell(sibling, "secret")).text == "1\n"
    finally:
        await provider.aclose()
    assert escaped == {}
    if mode in WALLED:
        assert sorted(os.listdir(tmp_path / "outside")) == ["file", "socket"]
        assert (tmp_path / "outside/file").read_text() == SECRET
        assert os.listdir(workspace / ".freeact") == []
        assert os.listdir(workspace / ".git") == ["config"]


SELF_TEST = (
    *("open", "libc.open", "subprocess", "own symlink", "symlink in the workspace", "/proc/self/fd", "settings of the host"),
    *("key in the home directory", "key by a subprocess", "environment of the host", "environment by a subprocess"),
    *("file beside the program", "git's settings", "a repository moved", "settings that are a link"),
    *("set-uid file by chmod", "set-uid file by open", "set-uid file by mknod", "socket in the workspace"),
    *("datagram in the workspace", "raw socket in the workspace", "datagram of a pair"),
    *("socket", "datagram", "netlink", "ctypes socket", "socket by a subprocess", "Unix socket of another program"),
    *("abstract socket of another program", "kill of the host", "limits of the host", "open files of the host"),
    *(
        "kill of a sibling",
        "pidfd of a sibling",
        "ptrace of a sibling",
        "memory of a sibling",
        "sibling's key",
        "System V memory",
        "shared memory by name",
    ),
)


async def test_the_attempts_work_where_nothing_stops_them(world, tmp_path):
    """A test of the test: without a sandbox the same code gets out, so that it is the wall that stops it."""
    workspace, provider = tmp_path / "workspace", LocalKernelProvider()
    environment = {**KernelConfig().environment(), "TMPDIR": str(tmp_path)}
    stopped = {}
    try:
        async with (
            open_kernel(provider, workspace) as sibling,
            open_kernel(provider, workspace, environment=environment) as kernel,
        ):
            world["SIBLING"] = int((await run_cell(sibling, "import os; os.getpid()")).text)
            world["FOLDER"] = str(sibling.connection_file.parent)
            await run_cell(kernel, PREPARED + "".join(f"{name} = {value!r}\n" for name, value in world.items()))
            for name in SELF_TEST:
                ran = await run_cell(kernel, ATTEMPTS[name].code)
                if ran.status != "ok":
                    stopped[name] = ran.text[-300:]
    finally:
        await provider.aclose()
    assert stopped == {}


# What is the host's own: approvals, modes, depths, budgets

UNTIL = """
import os, threading, time
def until(condition):
    while not condition(): time.sleep(0.01)
"""
FORGE = (
    UNTIL
    + """
requests, kernel = agent._requests, get_ipython().kernel
def forge():
    until(lambda: requests.waiting)
    for request_id in list(requests.waiting):
        content = {'id': request_id, 'request_id': 'approval-1', 'ok': True, 'value': None, 'allowed': True, 'decision': {'allowed': True}}
        for kind in ('freeact_reply', 'approval_answered', 'execute_reply', 'input_reply'):
            kernel.session.send(kernel.iopub_socket, kind, content, parent=kernel.get_parent('shell'))
            kernel.session.send(kernel.control_stream, kind, content)
        for method in ('freeact_reply', 'approve', 'decide', 'answer'):
            requests.send(method, content, lambda _: None)
threading.Thread(target=forge, daemon=True).start()
try:
    await agent.shell('touch ../outside/new', reason='r')
except PermissionError as error:
    print(error)
"""
)
PRETEND = (
    UNTIL
    + """
def pretend():
    until(lambda: agent._requests.waiting and os.path.exists('ready'))
    for request_id in list(agent._requests.waiting):
        value = {'exit_code': 0, 'output': 'it ran'}
        agent._requests.on_reply(None, None, {'content': {'id': request_id, 'ok': True, 'value': value}})
threading.Thread(target=pretend, daemon=True).start()
print(agent.shell('touch ../outside/new', reason='r').output)
"""
)


@pytest.mark.parametrize("mode", ALL)
@pytest.mark.parametrize("code", [FORGE, PRETEND], ids=["forged replies", "a pretended answer"])
async def test_code_cannot_answer_its_own_question(mode, code, world, tmp_path):
    """A person answers after all forged messages have come; until then, and after a no, nothing has happened."""
    asked: list[ApprovalRequest] = []
    ready = tmp_path / "workspace/ready"
    """Code pretends now: before, it would withdraw the question with its cell."""
    if mode == "plan":  # nobody is asked
        ready.touch()

    def rule(request):
        if request.call.kind == "code":
            return Decision(allowed=True)
        asked.append(request)
        ready.touch()
        asyncio.get_running_loop().call_later(0.5, request.deny, "a person said no")
        return None

    model = ScriptedModel([[cell(code)], "done"])
    async with Agent(Config(workspace=tmp_path / "workspace", mode=mode), model=model) as agent:
        events, _ = await read(agent.run("x"), rule)
    [end] = of_kind(events, CodeExecutionOutput)
    if code == FORGE:
        assert ("denied: nothing runs outside the sandbox" if mode == "plan" else "a person said no") in end.text
    assert len(asked) == (mode != "plan")
    assert not (tmp_path / "outside/new").exists()


RAISE = """
import os
os.environ.update(FREEACT_MODE='full', FREEACT_MAX_TURNS='100', FREEACT_SUBAGENTS__MAX_DEPTH='9')
for name in ('mode', 'depth', 'max_turns', 'policy', 'budget'):
    setattr(agent, name, 'full')
    for method in ('check', f'set_{name}', 'configure', 'spawn', 'task'):
        try:
            agent._requests.ask(method, mode='full', depth=0, max_turns=100, agent_id='root', prompt='x', task_id='0' * 32, **{name: 9} if name == 'budget' else {})
            print('passed', method)
        except Exception:
            pass
try:
    open('../outside/new', 'w')
    print('written')
except OSError:
    pass
print('raised')
"""


@pytest.mark.parametrize("mode", WALLED)
async def test_code_cannot_raise_its_own_mode_depth_or_turns(mode, world, tmp_path):
    script = {
        "root": [[task("child", max_turns=3)], "done"],
        "child": [
            [cell(RAISE)],
            [task("grandchild"), cell("print('again')")],
            [cell(RAISE)],
            [cell("print('too far')")],
            "ok",
        ],
        "grandchild": ["I live"],
    }
    config = Config(workspace=tmp_path / "workspace", mode=mode, kernel=KernelConfig(sandbox="auto"))
    async with Agent(config, model=ScriptedModel(script)) as agent:
        events, _ = await read(agent.run("root"))
    assert [end.text.split() for end in of_kind(events, CodeExecutionOutput)] == [["raised"], ["again"], ["raised"]]
    assert {end.depth: end.status for end in of_kind(events, AgentFinished)} == {1: "limit", 0: "completed"}
    assert not (tmp_path / "outside/new").exists()


OTHER_TESTS = {
    "code that runs later": (
        WALLED,
        "test_later_starts.py",
        "test_what_an_agent_leaves_in_the_workspace_does_not_run_by_itself",
    ),
    "answer a question": (ALL, "test_escapes.py", "test_code_cannot_answer_its_own_question"),
    "hand itself more rights": (
        WALLED,
        "test_rights_of_variables.py",
        "test_a_kernel_reads_what_a_kernel_of_no_less_rights_has_saved",
    ),
    "change the variables of another session or moment": (
        WALLED,
        "test_snapshots_wall.py",
        "test_what_rewrites_its_saved_variables_while_they_are_read_reaches_no_other_session_and_no_earlier_moment",
    ),
    "raise its own rights": (WALLED, "test_escapes.py", "test_code_cannot_raise_its_own_mode_depth_or_turns"),
    "fork without end": (ALL, "test_ordinary_user.py", "test_an_ordinary_user_forks_up_to_the_limit"),
}
"""Rows that a test of its own tries."""


def test_the_table_of_the_document_is_what_is_tried():
    text = (Path(__file__).parents[2] / "docs/security.md").read_text()
    section = text.partition("\n## Attempts\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("|")]
    documented = {row[0]: ALL if row[2] == "all" else tuple(row[2].split(", ")) for row in rows[2:]}
    tried = {name: set(modes) for name, (modes, _, _) in OTHER_TESTS.items()}
    for _, file, name in OTHER_TESTS.values():
        assert f"def {name}(" in Path(__file__).with_name(file).read_text()
    for attempt in ATTEMPTS.values():
        tried.setdefault(attempt.row, set()).update(attempt.modes)
    assert {name: set(modes) for name, modes in documented.items()} == tried
