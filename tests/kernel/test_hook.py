"""The audit hook in real kernels: what code does by itself is asked for before it happens, or not at all."""

import asyncio
import importlib.util
import os
import socket

import psutil
import pytest
import pytest_asyncio
from support.elsewhere import CANNOT_FORK
from support.host import RecordingHost
from support.kernels import open_kernel, run_cell
from support.thorough import sample
from support.waiting import eventually

from freeact_sub.kernels import AuditSettings
from freeact_sub.kernels.local import LocalKernelProvider

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(CANNOT_FORK, reason="forked kernels and /proc"),
]


@pytest.fixture
def host():
    return RecordingHost()


def each(names):
    """All names with forked kernels, and some of them with others, which ask in the same way."""
    chosen = [("fork", name) for name in names] + [("local", name) for name in sample(list(names), 3)]
    return pytest.mark.parametrize(("shared_provider", "how"), chosen, indirect=["shared_provider"])


@pytest_asyncio.fixture(loop_scope="module")
async def kernel(shared_provider, tmp_path, host):
    """A kernel in `workspace`, beside a folder `outside`; `way-out` in the one leads to the other."""
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    for path in (workspace / ".freeact", outside):
        path.mkdir(parents=True)
    (workspace / "way-out").symlink_to(outside)
    asked = (
        (f"{workspace}/", r"\.freeact|secret\.[^/]*"),
        (f"{workspace}/.freeact/.*", ".*"),
        (f"{workspace}/a/.*", "kept"),
    )
    async with open_kernel(
        shared_provider, workspace, host, audit=AuditSettings(writable=(workspace,), asked=asked)
    ) as kernel:
        assert (await run_cell(kernel, f"OUT = {str(outside)!r}\nimport os, shutil, subprocess, socket")).status == "ok"
        yield kernel


def caught(code: str) -> str:
    """The code as honest code: it goes on where something is denied."""
    lines = "\n".join(f"    {line}" for line in code.splitlines())
    return f"try:\n{lines}\nexcept PermissionError as error:\n    print('caught', error.errno, error)"


# Programs

STARTS = {
    "!": ("!touch made", "touch made"),
    "x = !": ("x = !touch made", "touch made"),
    "%%bash": ("get_ipython().run_cell_magic('bash', '', 'touch made\\necho it')", "touch made\necho it"),
    "%%script": ("get_ipython().run_cell_magic('script', 'sh -e', 'touch made')", "sh -e <<'END_OF_SCRIPT'\ntouch made\nEND_OF_SCRIPT"),
    "subprocess": ("subprocess.run(['touch', 'made'])", "touch made"),
    "shell=True": ("subprocess.run('touch made && true', shell=True)", "touch made && true"),
    "executable": ("subprocess.run(['x', 'made'], executable='/bin/touch')", "/bin/touch made"),
    "words": ("subprocess.run(['touch', 'made', 'a b', '$x'])", "touch made 'a b' '$x'"),
    "variables": ("subprocess.run(['touch', 'made'], env={**os.environ, 'LD_PRELOAD': 'a b', 'X': '1', 'BASHOPTS': 'dotglob', 'TAR_OPTIONS': '-h'})", "LD_PRELOAD='a b' BASHOPTS=dotglob TAR_OPTIONS=-h touch made"),
    "no variables": ("subprocess.run(['/bin/touch', 'made'], env={})", "env -u GIT_CONFIG_COUNT -u GIT_NO_LAZY_FETCH -u GIT_PAGER /bin/touch made"),
    "without closing": ("subprocess.run(['/bin/touch', 'made'], close_fds=False)", "/bin/touch made"),
    "asyncio": ("import asyncio; await (await asyncio.create_subprocess_exec('touch', 'made')).wait()", "touch made"),
    "os.system": ("os.system('touch made')", "touch made"),
    "os.posix_spawn": ("os.waitpid(os.posix_spawn('/bin/touch', ['touch', 'made'], os.environ), 0)", "/bin/touch made"),
    "os.popen": ("os.popen('touch made').read()", "touch made"),
    "pty.spawn": ("import pty; pty.spawn(['touch', 'made'])", "touch made"),
}  # fmt: skip


@each(STARTS)
async def test_a_program_is_asked_for_and_denied_as_an_ordinary_exception(kernel, host, tmp_path, how):
    code, command = STARTS[how]
    made = tmp_path / "workspace/made"
    host.allows = lambda _: False
    ran = await run_cell(kernel, caught(code))
    assert (ran.status, ran.text) == ("ok", "caught 13 [Errno 13] denied: not that\n")
    assert not made.exists()
    host.allows = lambda _: True
    assert (await run_cell(kernel, code)).status == "ok"
    assert made.exists()
    assert [subject.strip() for subject in host.subjects] == [command] * 2
    assert host.asked[0]["cwd"] == str(tmp_path / "workspace")


FORKS = {
    "os.fork and os.exec": "pid = os.fork()\nif pid == 0:\n    try: os.execvp('touch', ['touch', 'made'])\n    finally: os._exit(127)\nprint(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))",
    "os.spawn": "print(os.spawnlp(os.P_WAIT, 'touch', 'touch', 'made'))",
    "multiprocessing": "import multiprocessing\nwith multiprocessing.get_context('fork').Pool(1) as pool:\n    try: print(pool.apply(os.system, ['touch made']))\n    except PermissionError: print(127)",
}  # fmt: skip


@each(FORKS)
async def test_a_forked_process_asks_through_its_kernel(kernel, host, tmp_path, how):
    made = tmp_path / "workspace/made"
    host.allows = lambda _: False
    assert (await run_cell(kernel, FORKS[how])).text.strip() == "127"
    assert not made.exists()
    host.allows = lambda _: True
    assert (await run_cell(kernel, FORKS[how])).text.strip() == "0"
    assert made.exists()
    assert len(host.asked) == 2
    assert all(subject.endswith("touch made") for subject in host.subjects)


OTHER_STARTS = {
    "a Python of multiprocessing that is another program": "import multiprocessing as m\nm.set_executable(EVIL)\nm.get_context('spawn').Process(target=print).start()",
    "a program of multiprocessing.util": "from multiprocessing import util\nutil.spawnv_passfds(EVIL.encode(), [b'evil'], ())",
    "what looks after locks": "import multiprocessing.resource_tracker as t\nold, sys.executable = sys.executable, EVIL\ntry:\n    import multiprocessing.spawn as s\n    s.set_executable(EVIL); t.ResourceTracker().ensure_running()\nfinally: sys.executable = old",
    "the function below all": "import _posixsubprocess as p, subprocess\nr, w = os.pipe()\np.fork_exec([b'evil'], [EVIL.encode()], True, (w,), None, None, -1, -1, -1, -1, -1, -1, r, w, False, False, *REST)",
    "a name that changes, by os": "os.waitpid(os.posix_spawn(EVIL, [Changes(EVIL, '/bin/true')], dict(os.environ)), 0)",
    "a name that changes, in a shell": "os.waitpid(os.posix_spawn('/bin/sh', ['sh', Changes(EVIL, '/dev/null')], dict(os.environ)), 0)",
}  # fmt: skip
SETUP = """
import os, subprocess, sys
EVIL = os.getcwd() + '/evil'
with open(EVIL, 'w') as file: file.write('#!/bin/sh\\ntouch ' + os.getcwd() + '/made\\n')
os.chmod(EVIL, 0o755)
REST = (-1, None, None, None, -1, None, False) if sys.version_info >= (3, 11) else (None, None, None, -1, None)
class Changes:
    def __init__(self, *names): self.names = [*names]
    def __fspath__(self): return self.names.pop(0) if len(self.names) > 1 else self.names[0]
"""


CHANGING = {
    "a name": "[Changes('/bin/true', EVIL)]",
    "a name alone": "Changes('/bin/true', EVIL)",
    "a name at the second look": "[Changes('/bin/true', '/bin/true', EVIL)]",
    "an executable": "['true'], executable=Changes('/bin/true', EVIL)",
    "an argument": "['/bin/sh', Changes('/dev/null', EVIL)]",
    "a folder": "['sh', 'evil'], cwd=Changes('/', os.getcwd())",
    "a variable": "['/bin/sh', '-c', '. \"$X\"'], env=Variables()",
    "a name, without a fork": "[Changes('/bin/true', EVIL)], close_fds=False",
}  # fmt: skip


async def test_what_a_command_says_at_a_later_look_is_not_started(kernel, host, tmp_path):
    host.allows = lambda asked: "evil" not in str(asked)
    variables = """
class Variables(dict):
    seen = 0
    def items(self):
        self.seen += 1
        return {'X': '/dev/null' if self.seen == 1 else EVIL}.items()
    def __iter__(self): return iter(['X'])
    def __getitem__(self, name): return dict(self.items())[name]
"""
    assert (await run_cell(kernel, SETUP + variables)).status == "ok"
    for what, call in CHANGING.items():
        ran = await run_cell(
            kernel, f"try:\n    subprocess.run({call}, stderr=subprocess.DEVNULL)\nexcept PermissionError as e: print(e)"
        )
        assert ran.status == "ok", (what, ran.text)
        assert not (tmp_path / "workspace" / "made").exists(), (what, host.subjects)


@pytest.mark.parametrize("how", OTHER_STARTS)
async def test_what_is_started_without_an_event_or_under_another_name_is_asked_about(kernel, host, how, tmp_path):
    host.allows = lambda asked: "evil" not in str(asked)
    made = tmp_path / "workspace" / "made"
    assert (await run_cell(kernel, SETUP)).status == "ok"
    ran = await run_cell(kernel, f"try:\n    exec({OTHER_STARTS[how]!r})\nexcept PermissionError as error: print(error)")
    assert "denied" in ran.text, (ran.text, host.subjects)
    evil = str(tmp_path / "workspace" / "evil")
    await eventually(lambda: not [each for each in psutil.process_iter(["cmdline"]) if evil in (each.info["cmdline"] or ())])
    assert not made.exists()


async def test_workers_of_multiprocessing_start_unasked_and_commands_are_asked_about_once(kernel, host, tmp_path):
    host.allows = lambda _: True
    code = "from multiprocessing import get_context\nimport math, pathlib, subprocess\nwith get_context('spawn').Pool(1) as pool: print(pool.map(math.sqrt, [4]))"
    assert (await run_cell(kernel, code)).text.strip() == "[2.0]"
    assert host.subjects == []
    await run_cell(
        kernel, "subprocess.run(['true']); subprocess.run([pathlib.Path('/bin/true')]); subprocess.run('true', shell=True)"
    )
    assert host.subjects == ["true", "/bin/true", "true"]


async def test_the_kernel_itself_can_become_a_program_after_a_question(kernel, host):
    host.allows = lambda _: False
    assert "caught" in (await run_cell(kernel, caught("os.execv('/bin/true', ['true'])"))).text
    assert host.subjects == ["/bin/true"]


async def test_a_denied_terminal_leaves_nothing_open(kernel, host):
    host.allows = lambda _: False
    code = """
def terminals_and_pipes():
    links = [f'/proc/self/fd/{name}' for name in os.listdir('/proc/self/fd')]
    return sorted(os.readlink(link) for link in links if os.path.lexists(link) and os.readlink(link).startswith(('pipe', '/dev/pt')))
before = terminals_and_pipes()
"""
    ran = await run_cell(kernel, f"{code}{caught('!ls')}\n{caught('!ls')}\nassert terminals_and_pipes() == before")
    assert ran.status == "ok", ran.text
    assert host.subjects == ["ls"] * 2


# Files

WRITES = {
    "open": ("open(OUT + '/new', 'w').close()", ["create /new"]),
    "open to append": ("open(OUT + '/file', 'a').close()", ["append /file"]),
    "open to read and write": ("open(OUT + '/file', 'r+').close()", ["write /file"]),
    "bytes": ("open(OUT.encode() + b'/new', 'w').close()", ["create /new"]),
    "a name that is not text": ("open(OUT.encode() + b'/\\xff', 'w').close()", ["create /\\xff"]),
    "pathlib": ("from pathlib import Path; Path(OUT, 'new').write_text('x')", ["create /new"]),
    "os.open": ("os.close(os.open(OUT + '/new', os.O_CREAT | os.O_WRONLY))", ["create /new"]),
    "a link in the workspace": ("open('way-out/new', 'w').close()", ["create /new"]),
    "a link to a file": ("os.symlink(OUT + '/file', 'l')\nopen('l', 'w').close()", ["write /file"]),
    "a relative path": ("open('../outside/new', 'w').close()", ["create /new"]),
    "another folder": ("os.chdir(OUT)\ntry: open('new', 'w').close()\nfinally: os.chdir('../workspace')", ["create /new"]),
    "rename": ("os.rename(OUT + '/file', OUT + '/b')", ["rename /file", "rename /b"]),
    "remove": ("os.remove(OUT + '/file')", ["remove /file"]),
    "rmdir": ("os.rmdir(OUT + '/folder/empty')", ["remove /folder/empty"]),
    "mkdir": ("os.makedirs(OUT + '/x/y')", ["create /x", "create /x/y"]),
    "link": ("os.link('here', OUT + '/l')", ["link /l"]),
    "link to what is outside": ("os.link(OUT + '/file', 'l')", ["link /file"]),
    "symlink": ("os.symlink('here', OUT + '/l')", ["link /l"]),
    "truncate": ("os.truncate(OUT + '/file', 0)", ["write /file"]),
    "chmod": ("os.chmod(OUT + '/file', 0o700)", ["change /file"]),
    "utime": ("os.utime(OUT + '/file', (1, 1))", ["change /file"]),
    "folder descriptor": ("f = os.open(OUT, os.O_PATH); os.remove('file', dir_fd=f)", ["remove /file"]),
    "open in a folder's descriptor": ("f = os.open(OUT, os.O_RDONLY); os.close(os.open('new', os.O_CREAT | os.O_WRONLY, dir_fd=f))", ["create /new"]),
    "an opener": ("f = os.open(OUT, os.O_RDONLY)\nopen('new', 'w', opener=lambda *args: os.open(*args, dir_fd=f)).close()", ["create /new"]),
    "mode by a descriptor": ("f = os.open(OUT + '/file', os.O_RDONLY); os.fchmod(f, 0o700)", ["change /file"]),
    "a Unix socket's name": ("os.chdir(OUT)\ntry: socket.socket(socket.AF_UNIX).bind('new')\nfinally: os.chdir('../workspace')", ["create /new"]),
    "shutil.copy": ("shutil.copy2('here', OUT + '/copy')", ["create /copy"]),
    "shutil.move": ("shutil.move('here', OUT + '/moved')", ["rename /moved"]),
    "shutil.copytree": ("shutil.copytree('tree', OUT + '/tree')", ["create /tree"]),
    "shutil.rmtree": ("shutil.rmtree(OUT + '/folder')", ["remove /folder"]),
    "sqlite3": ("import sqlite3; sqlite3.connect(OUT + '/db').execute('create table t(a)')", ["write /db"]),
    "pandas": ("import pandas; pandas.DataFrame({'a': [1]}).to_csv(OUT + '/new')", ["create /new"]),
    "a Unix socket": ("socket.socket(socket.AF_UNIX).connect(OUT + '/socket')", ["write /socket"]),
}  # fmt: skip
UNCHANGED = ("open to append", "open to read and write", "a Unix socket", "link to what is outside")
PREPARED = "open('here', 'w').close(); os.makedirs('tree/a', exist_ok=True); open('tree/a/b', 'w').close()"


@each(WRITES)
async def test_a_change_outside_the_workspace_is_asked_for_once(kernel, host, tmp_path, how):
    if how == "pandas" and importlib.util.find_spec("pandas") is None:
        pytest.skip("pandas is not installed")
    outside = tmp_path / "outside"
    (outside / "folder/empty").mkdir(parents=True)
    for name in ("file", "folder/a", "folder/b"):
        (outside / name).write_text("x")
    listener = socket.socket(socket.AF_UNIX)
    os.chdir(outside)  # the whole path is longer than a socket's may be
    listener.bind("socket")
    listener.listen()
    code, asked = WRITES[how]
    await run_cell(kernel, PREPARED)
    before = snapshot(outside)
    host.allows = lambda _: False
    ran = await run_cell(kernel, caught(code))
    assert (ran.status, ran.text) == ("ok", "caught 13 [Errno 13] denied: not that\n")
    assert snapshot(outside) == before
    assert host.subjects == [asked[0].replace("/", f"{outside}/", 1)]
    host.allows, host.asked = (lambda _: True), []
    ran = await run_cell(kernel, f"import contextlib\nwith contextlib.suppress(FileNotFoundError): os.remove('l')\n{code}")
    assert ran.status == "ok", ran.text
    assert host.subjects == [what.replace("/", f"{outside}/", 1) for what in asked]
    assert snapshot(outside) != before or how in UNCHANGED
    listener.close()


def snapshot(folder):
    """All that is in a folder, with modes and times of files."""
    paths = sorted(os.fsencode(path) for path in folder.rglob("*"))
    return [(path, (found := os.lstat(path)).st_mode, found.st_size, found.st_mtime_ns) for path in paths]


FREE = {
    "reading": "open('/etc/hosts').read(); os.listdir('/'); os.stat('/etc')",
    "the workspace": "open('a', 'w').close(); os.rename('a', 'b'); os.mkdir('d'); os.chmod('b', 0o600); os.remove('b'); shutil.rmtree('d')",
    "by its whole path": "open(os.getcwd() + '/a', 'w').close()",
    "a temporary folder": "import tempfile\nwith tempfile.TemporaryDirectory() as d, tempfile.NamedTemporaryFile() as f:\n    open(d + '/x', 'w').close()",
    "devices": "open('/dev/null', 'w').close(); open('/dev/stdout', 'w').close(); open('/dev/stderr', 'a').close()",
    "a mode by a descriptor that was opened to write": "f = open('a', 'w'); os.fchmod(f.fileno(), 0o600); os.fchmod(os.open('a', os.O_RDONLY), 0o600); os.fchmod(os.pipe()[0], 0o600)",
    "what fails by itself": "for call in (lambda: os.mkdir(OUT), lambda: os.remove(OUT + '/none'), lambda: open(OUT + '/none', 'r+'), lambda: open('a\\0b', 'w')):\n    try: call()\n    except (OSError, ValueError): pass\n    else: raise AssertionError(call)",
    "compiled imports": "import sys; sys.path.insert(0, OUT); import module_outside; assert os.path.exists(OUT + '/__pycache__')",
    "shared memory and pipes": "import multiprocessing; q = multiprocessing.get_context('fork').SimpleQueue(); q.put(1); q.get(); os.pipe(); socket.socketpair()",
    "a database in memory": "import sqlite3; sqlite3.connect(':memory:'); sqlite3.connect('here.db')",
    "what IPython notes": "get_ipython().run_line_magic('cd', '-q .'); get_ipython().run_line_magic('bookmark', 'here')",
    "output": "print('x' * 10); import sys; sys.stderr.write('y'); from IPython.display import display; display(1)",
    "pictures": "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.savefig('a.png'); plt.show()",
    "logging": "import logging; logging.basicConfig(filename='log'); logging.warning('x')",
    "a listener": "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); s.close()",
}  # fmt: skip


@each(FREE)
async def test_what_is_always_allowed_is_not_asked_for(kernel, host, tmp_path, how):
    (tmp_path / "outside/module_outside.py").write_text("x = 1")
    ran = await run_cell(kernel, FREE[how])
    assert ran.status == "ok", ran.text
    # matplotlib's first plot looks for fonts, by a program that the rules allow
    assert [subject for subject in host.subjects if not subject.startswith("fc-list ")] == []


async def test_what_a_rule_may_be_about_is_asked_for_in_the_workspace_too(kernel, host, tmp_path):
    workspace = tmp_path / "workspace"
    await run_cell(
        kernel, "for name in ('a', 'secret.txt', '.freeact/x', './.freeact/../secret.b'): open(name, 'w').close()"
    )
    assert host.subjects == [f"create {workspace}/{name}" for name in ("secret.txt", ".freeact/x", "secret.b")]
    host.asked.clear()
    await run_cell(kernel, "shutil.rmtree('.freeact')")
    assert host.subjects == [f"remove {workspace}/.freeact"]


async def test_what_is_asked_for_in_a_folder_that_is_not_is_asked_for_by_itself(kernel, host, tmp_path):
    """One question stands for all in a folder only if it was put."""
    workspace = tmp_path / "workspace"
    for path in ("a/b", "c/d"):
        (workspace / path).mkdir(parents=True)
    code = "for name in ('a/b/kept', 'a/b/x', 'c/d/kept'): open(name, 'w').close()"
    await run_cell(kernel, code)
    host.asked.clear()
    host.allows = lambda _: False
    for code in ("shutil.rmtree('a')", "shutil.copytree('c', 'a', dirs_exist_ok=True)"):
        assert (await run_cell(kernel, code)).status == "error"
    assert host.subjects == [f"remove {workspace}/a/b/kept", f"create {workspace}/a/d/kept"]
    assert (workspace / "a/b/kept").exists()
    assert not (workspace / "a/d/kept").exists()


async def test_a_link_that_comes_in_is_seen(kernel, host, tmp_path):
    """A folder's real place is remembered, and forgotten when a link may have taken its place."""
    await run_cell(
        kernel,
        "os.mkdir('d'); open('d/a', 'w').close(); os.rename('d', 'e'); os.symlink(OUT, 'd'); open('d/b', 'w').close()",
    )
    assert host.subjects == [f"create {tmp_path}/outside/b"]
    await run_cell(
        kernel,
        "open('e/a', 'w').close(); shutil.rmtree('e'); subprocess.run(['ln', '-s', OUT, 'e']); open('e/c', 'w').close()",
    )
    assert host.subjects[2:] == [f"create {tmp_path}/outside/c"]


async def test_a_question_while_the_lock_of_logging_is_held_is_answered(kernel, host, tmp_path):
    code = "import logging; logging.getLogger('x').setLevel(10); logging.basicConfig(filename=OUT + '/log')"
    assert (await run_cell(kernel, code)).status == "ok"
    assert host.subjects == [f"append {tmp_path}/outside/log"]


# Network


@pytest.fixture
def port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


CONNECTS = {
    "socket": ("socket.socket().connect(('127.0.0.1', PORT))", "127.0.0.1"),
    "connect_ex": ("socket.socket().connect_ex(('127.0.0.1', PORT))", "127.0.0.1"),
    "a name": ("socket.socket().connect(('localhost', PORT))", "localhost"),
    "create_connection": ("socket.create_connection(('localhost', PORT))", "localhost"),
    "asyncio": ("import asyncio; await asyncio.open_connection('localhost', PORT, family=socket.AF_INET)", "localhost"),
    "a datagram": ("s = socket.socket(type=socket.SOCK_DGRAM); [s.sendto(b'x', ('127.0.0.1', PORT)) for _ in range(3)]", "127.0.0.1"),
    "a message": ("socket.socket(type=socket.SOCK_DGRAM).sendmsg([b'x'], [], 0, ('127.0.0.1', PORT))", "127.0.0.1"),
    "a library": ("import urllib.request\ntry: urllib.request.urlopen(f'http://localhost:{PORT}/', timeout=0.2)\nexcept urllib.error.URLError as e: raise e.reason\nexcept OSError: pass", "localhost"),
}  # fmt: skip


@each(CONNECTS)
async def test_a_connection_is_asked_for_by_the_name_of_its_host(kernel, host, port, how):
    code, name = CONNECTS[how]
    await run_cell(kernel, f"PORT = {port}")
    host.allows = lambda _: False
    ran = await run_cell(kernel, caught(code))
    assert ran.text == "caught 13 [Errno 13] denied: not that\n"
    host.allows = lambda _: True
    await run_cell(kernel, code)
    assert host.subjects == [f"{name}:{port}"] * 2
    assert {params["ip"] for params in host.asked} <= {"127.0.0.1", "::1", ""}


async def test_one_question_for_a_host_names_all_of_its_addresses(kernel, host, port):
    """Who says yes says it for all of them; a rule about one of them counts at once."""
    found = [(0, 0, 0, "", (ip, 0)) for ip in ("127.0.0.1", "127.0.0.2", "127.0.0.3")]
    await run_cell(kernel, f"from freeact_guest.hook import WATCHES; WATCHES[0].names.remember('two.example', {found})")
    await run_cell(kernel, f"for n in (2, 1): socket.socket().connect_ex((f'127.0.0.{{n}}', {port}))")
    assert host.subjects == [f"two.example:{port}"]
    assert (host.asked[0]["ip"], host.asked[0]["others"]) == ("127.0.0.2", ["127.0.0.1", "127.0.0.3"])


# Many at once, and interrupts


async def test_questions_of_twenty_threads_are_answered_in_any_order(kernel, host, tmp_path):
    host.waits = True
    code = """
import concurrent.futures
def write(n):
    try:
        open(f'{OUT}/f{n}', 'w').close()
    except PermissionError:
        return n
with concurrent.futures.ThreadPoolExecutor(20) as pool:
    print([n for n in pool.map(write, range(20)) if n is not None])
"""
    running = asyncio.create_task(run_cell(kernel, code))
    await eventually(lambda: len(host.open) == 20)
    outside = tmp_path / "outside"
    for number in reversed(range(20)):
        host.open[f"{outside}/f{number}"].set_result(number % 2 == 0)
    assert (await running).text == f"{list(range(1, 20, 2))}\n"
    assert sorted(os.listdir(outside)) == sorted(f"f{number}" for number in range(0, 20, 2))
    assert host.without_cell == 0


async def test_code_of_gather_asks_one_by_one_and_threads_of_it_at_once(kernel, host):
    code = """
import asyncio
async def run(n):
    process = await asyncio.create_subprocess_exec('true', str(n))
    return await process.wait()
print(await asyncio.gather(*(run(n) for n in range(5)), *(asyncio.to_thread(os.system, f'true {n}') for n in range(5))))
"""
    assert (await run_cell(kernel, code)).text == f"{[0] * 10}\n"
    assert sorted(host.subjects) == sorted([f"true {n}" for n in range(5)] * 2)


@pytest.mark.parametrize("code", ["open(OUT + '/x', 'w')", "!ls", "os.spawnlp(os.P_WAIT, 'ls', 'ls')"])
async def test_an_interrupt_ends_the_question_and_nothing_happens(kernel, host, tmp_path, code):
    host.waits = True
    running = asyncio.create_task(run_cell(kernel, code))
    await eventually(lambda: host.open)
    await kernel.interrupt()
    assert (await running).status == "interrupted"
    assert next(iter(host.open.values())).cancelled()
    assert os.listdir(tmp_path / "outside") == []
    host.waits = False
    assert (await run_cell(kernel, "open(OUT + '/x', 'w').close(); print('goes on')")).text == "goes on\n"


async def test_time_in_which_it_is_asked_does_not_count(kernel, host):
    host.waits = True
    running = asyncio.create_task(run_cell(kernel, "os.system('true')\nprint('done')", limit=3))
    await eventually(lambda: host.open)
    loop = asyncio.get_running_loop()
    waited = loop.create_future()
    loop.call_later(3.2, waited.set_result, None)  # longer than the cell may take
    await waited
    host.open["true"].set_result(True)
    ran = await running
    assert (ran.status, ran.text) == ("ok", "done\n")


async def test_a_kernel_without_settings_asks_for_nothing(host, tmp_path):
    provider = LocalKernelProvider()
    async with open_kernel(provider, tmp_path, host) as kernel:
        assert (await run_cell(kernel, "import os; os.system('true')")).status == "ok"
    await provider.aclose()
    assert host.asked == []
