"""Attempts to get out of real kernels with nothing but the wall in the way: no hook asks, nobody is asked.

`docs/security.md` has a table of them.
"""

import asyncio
import os
from dataclasses import dataclass

import pytest
from support.agents import cell, of_kind, read, task
from support.kernels import open_kernel, run_cell
from support.sandbox import ALL, NEEDS_A_WALL, PREPARED, PROVIDERS, SECRET, WALLED, outside_world, sandboxed

from freeact_sub import Agent, Config
from freeact_sub.cells import CellError
from freeact_sub.config import KernelConfig
from freeact_sub.events import AgentFinished, ApprovalRequest, CodeExecutionOutput, Decision
from freeact_sub.kernels import LocalKernelProvider
from freeact_sub.testing import ScriptedModel

pytestmark = [pytest.mark.kernel, NEEDS_A_WALL]


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """Code that tries to get out; OUTSIDE, HOST, SIBLING, PORT and the like stand for what the test has put up."""

    code: str
    modes: tuple[str, ...]
    errors: tuple[str, ...] = ("PermissionError",)


def outside(code: str, *errors: str) -> Attempt:
    """An attempt that a mode with walled files must stop."""
    return Attempt(code=code, modes=WALLED, errors=errors or ("PermissionError",))


def others(code: str, *errors: str) -> Attempt:
    """An attempt that every mode must stop."""
    return Attempt(code=code, modes=ALL, errors=errors or ("PermissionError",))


GONE = ("PermissionError", "FileNotFoundError")
"""What is outside is not there at all, in the view."""
READ_ONLY = ("PermissionError", "OSError")

ATTEMPTS = {
    # writing
    "open": outside("open(OUTSIDE + '/new', 'w')", *GONE),
    "open to append": outside("open(OUTSIDE + '/file', 'a')", *GONE),
    "os.open": outside("os.open(OUTSIDE + '/new', os.O_CREAT | os.O_WRONLY)", *GONE),
    "os.truncate": outside("os.truncate(OUTSIDE + '/file', 0)", *GONE),
    "os.remove": outside("os.remove(OUTSIDE + '/file')", *GONE),
    "os.mkdir": outside("os.mkdir(OUTSIDE + '/folder')", *GONE),
    "shutil.copy": outside("Path(tempfile.gettempdir(), 'x').write_text('x'); shutil.copy(tempfile.gettempdir() + '/x', OUTSIDE + '/new')", *GONE),
    "rename": outside("Path(tempfile.gettempdir(), 'x').write_text('x'); os.rename(tempfile.gettempdir() + '/x', OUTSIDE + '/new')", *GONE, "OSError"),
    "hard link": outside("os.link(OUTSIDE + '/file', tempfile.gettempdir() + '/link')", *GONE, "OSError"),
    "libc.open": outside("called(libc.open(OUTSIDE.encode() + b'/new', os.O_CREAT | os.O_WRONLY, 0o600))", *GONE),
    "system file": outside("open('/usr/freeact-test', 'w')", *READ_ONLY),
    "/etc": outside("open('/etc/freeact-test', 'w')", *READ_ONLY),
    "subprocess": outside("run('touch', OUTSIDE + '/new')", "CalledProcessError"),
    "shell": outside("run('sh', '-c', 'echo x > ' + OUTSIDE + '/new')", "CalledProcessError"),
    "symlink in the workspace": outside("open('way-out/new', 'w')", *GONE),
    "own symlink": outside("os.symlink(OUTSIDE, tempfile.gettempdir() + '/s'); open(tempfile.gettempdir() + '/s/new', 'w')", *GONE),
    "/proc/self/root": outside("open('/proc/self/root' + OUTSIDE + '/new', 'w')", *GONE),
    "/proc/self/fd": outside("f = os.open('/', os.O_PATH); open(f'/proc/self/fd/{f}' + OUTSIDE + '/new', 'w')", *GONE),
    "/proc/self/fd of the log": Attempt(code="open('/proc/self/fd/3/../../etc/x', 'w')", modes=WALLED, errors=(*GONE, "NotADirectoryError")),
    "/proc/1/root": outside("open('/proc/1/root' + OUTSIDE + '/new', 'w')", *GONE),
    "remount": outside("called(libc.mount(None, b'/usr', None, 32, None))"),
    "new namespace": outside("called(libc.unshare(0x10020000))"),
    "terminal of the host": outside("[open(f'/dev/pts/{n}', 'w') for n in range(3)]", *GONE),
    "the workspace in plan": Attempt(code="open('new', 'w')", modes=("plan",), errors=READ_ONLY),
    "mode of a system file": outside("os.chmod('/usr', 0o755)", *READ_ONLY),
    "time of a file of Python": outside("os.utime(os.__file__)", *READ_ONLY),
    "mode of the workspace in plan": Attempt(code="os.chmod('.', 0o755)", modes=("plan",), errors=READ_ONLY),
    "mode of the settings": outside("os.chmod('.freeact', 0o755)", *READ_ONLY),
    "System V memory": outside("called(libc.shmget(SHM_KEY, 1, 0))", "FileNotFoundError"),
    "settings of the host": Attempt(code="open('.freeact/config.toml', 'w')", modes=WALLED, errors=READ_ONLY),
    "settings moved away": Attempt(code="os.rename('.freeact', 'other')", modes=WALLED, errors=READ_ONLY),
    # reading
    "key in the home directory": outside("open(HOME + '/.ssh/id_ed25519').read()", *GONE),
    "key by a subprocess": outside("run('cat', HOME + '/.ssh/id_ed25519')", "CalledProcessError"),
    "password hashes": outside("open('/etc/shadow').read()", *GONE),
    "environment of the host": others("open(f'/proc/{HOST}/environ', 'rb').read()"),
    "environment of the parent": others("open(f'/proc/{os.getppid()}/environ', 'rb').read()"),
    "environment by a subprocess": others("run('cat', f'/proc/{HOST}/environ')", "CalledProcessError"),
    # the network
    "socket": outside("socket.create_connection(('127.0.0.1', PORT))", "OSError"),
    "IPv6 socket": outside("socket.socket(socket.AF_INET6)", "OSError"),
    "datagram": outside("socket.socket(socket.AF_INET, socket.SOCK_DGRAM)", "OSError"),
    "netlink": outside("socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)", "OSError"),
    "ctypes socket": outside("called(libc.socket(2, 1, 0))", "OSError"),
    "socket by a subprocess": outside("run('bash', '-c', f'exec 3<>/dev/tcp/127.0.0.1/{PORT}')", "CalledProcessError"),
    "io_uring": outside("called(libc.syscall(425, 1, ctypes.create_string_buffer(120)))"),
    "Unix socket of another program": outside("socket.socket(socket.AF_UNIX).connect(OUTSIDE + '/socket')", *GONE),
    "abstract socket of another program": others("socket.socket(socket.AF_UNIX).connect('\\0' + ABSTRACT)"),
    # host, fork server, siblings
    **{
        f"{name} of {whom}": others(code.replace("PID", pid))
        for whom, pid in {"the host": "HOST", "the parent": "os.getppid()", "a sibling": "SIBLING"}.items()
        for name, code in {
            "kill": "os.kill(PID, signal.SIGCONT)",
            "pidfd": "signal.pidfd_send_signal(os.pidfd_open(PID), signal.SIGCONT)",
            "ptrace": "called(libc.ptrace(0x4206, PID, None, None))",
            "memory": "open(f'/proc/{PID}/mem', 'r+b')",
            "process_vm_readv": "b = ctypes.create_string_buffer(16); v = struct.pack('QQ', ctypes.addressof(b), 8); called(libc.process_vm_readv(PID, v, 1, v, 1, 0))",
            "open files": "os.readlink(f'/proc/{PID}/fd/0')",
            "limits": "resource.prlimit(PID, resource.RLIMIT_CORE, (0, 0))",
        }.items()
    },
    "sibling's sockets": others(
        "found = 0\nfor n in range(1, 6):\n    s = socket.socket(socket.AF_UNIX)\n    try: s.connect(f'{FOLDER}/k-{n}'); found += 1\n    except OSError as e: error = e\nassert not found\nraise error",
        *GONE,
    ),
    "sibling's key": others("open(FOLDER + '/kernel.json').read()", *GONE),
    # limits
    "raise a limit": others("soft, hard = resource.getrlimit(resource.RLIMIT_DATA)\nresource.setrlimit(resource.RLIMIT_DATA, (hard, hard * 2))", "ValueError", "PermissionError"),
    "fill the memory": others("bytearray(2 * 2**30)", "MemoryError"),
    "fill the memory in a subprocess": others("run(sys.executable, '-I', '-S', '-c', 'bytearray(2 * 2**30)')", "CalledProcessError"),
    "fill the disk": others("open(tempfile.gettempdir() + '/big', 'wb').write(bytes(5 * 2**20))", "OSError"),
    "set-uid": others("assert open('/proc/self/status').read().split('NoNewPrivs:')[1].split()[0] == '1'; raise PermissionError"),
    "kernel modules": others("called(libc.syscall(SYS_INIT_MODULE, None, 0, b''))"),
    "keyrings": others("called(libc.syscall(SYS_KEYCTL, 0, -3, 0))"),
}  # fmt: skip


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


SELF_TEST = (
    *("open", "libc.open", "subprocess", "own symlink", "symlink in the workspace", "/proc/self/fd", "settings of the host"),
    *("key in the home directory", "key by a subprocess", "environment of the host", "environment by a subprocess"),
    *("socket", "datagram", "netlink", "ctypes socket", "socket by a subprocess", "Unix socket of another program"),
    *("abstract socket of another program", "kill of the host", "limits of the host", "open files of the host"),
    *(
        "kill of a sibling",
        "pidfd of a sibling",
        "ptrace of a sibling",
        "memory of a sibling",
        "sibling's key",
        "System V memory",
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

FORGE = """
import threading, time
requests, kernel = agent._requests, get_ipython().kernel
def forge():
    while not requests.waiting:
        time.sleep(0.01)
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
PRETEND = """
import threading, time
def pretend():
    while not agent._requests.waiting:
        time.sleep(0.01)
    for request_id in list(agent._requests.waiting):
        value = {'exit_code': 0, 'output': 'it ran'}
        agent._requests.on_reply(None, None, {'content': {'id': request_id, 'ok': True, 'value': value}})
threading.Thread(target=pretend, daemon=True).start()
print(agent.shell('touch ../outside/new', reason='r').output)
"""


@pytest.mark.parametrize("mode", ALL)
@pytest.mark.parametrize("code", [FORGE, PRETEND], ids=["forged replies", "a pretended answer"])
async def test_code_cannot_answer_its_own_question(mode, code, world, tmp_path):
    """A person answers after all forged messages have come; until then, and after a no, nothing has happened."""
    asked: list[ApprovalRequest] = []

    def rule(request):
        if request.call.kind == "code":
            return Decision(allowed=True)
        asked.append(request)
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
            agent._requests.ask(method, mode='full', depth=0, max_turns=100, agent_id='root', **{name: 9} if name == 'budget' else {})
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
