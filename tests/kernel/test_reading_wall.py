"""Programs that only read, in real kernels: unasked, and whatever they turn out to be, they change nothing and reach nobody."""

import itertools
import os
import random
import shlex
import shutil
import subprocess
import sys

import pytest
from support.agents import cell, of_kind, read
from support.elsewhere import CANNOT_FORK
from support.host import RecordingHost
from support.kernels import PROVIDERS, open_kernel, run_cell

from freeact_sub import Agent, Config
from freeact_sub.calls import CodeAction
from freeact_sub.events import ApprovalRequest, CodeExecutionOutput, Decision
from freeact_sub.kernels import WALLED, AuditSettings
from freeact_sub.kernels.wall.sandbox import support
from freeact_sub.system.closing import carry_out
from freeact_sub.testing import ScriptedModel

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(CANNOT_FORK or not support().landlock or not support().seccomp, reason="needs the wall"),
]


class WallingHost(RecordingHost):
    """Allows each program behind the wall, if it would get one, and else as it is."""

    async def __call__(self, method, params, clock):
        if method != "check":
            return None
        await super().__call__(method, params, clock)
        return WALLED if params.get("wall") else None


@pytest.fixture
def host():
    return WallingHost()


@pytest.fixture(params=["fork", "local"])
async def kernel(request, tmp_path, host):
    """A kernel in `work`, beside a folder `outside` with a file."""
    for name in ("work", "outside"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("as it was")
    provider = PROVIDERS[request.param]()
    audit = AuditSettings(writable=(tmp_path,))
    try:
        async with open_kernel(provider, tmp_path / "work", host, audit=audit) as kernel:
            yield kernel
    finally:
        await carry_out(provider.aclose())


def state_of(folder):
    """All that is in a folder, with modes, owners, times and content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        stat = path.lstat()
        found[str(path)] = (stat.st_mode, stat.st_uid, stat.st_mtime_ns, path.read_bytes() if path.is_file() else b"")
    return found


# Doors

DOORS = {
    "subprocess": "print(subprocess.run(['sh', '-c', S], capture_output=True, text=True).stdout, end='')",
    "shell=True": "print(subprocess.run(S, shell=True, capture_output=True, text=True).stdout, end='')",
    "close_fds=False": "print(subprocess.run(S, shell=True, close_fds=False, stdout=-1, text=True).stdout, end='')",
    "a generator of words": "print(subprocess.run((w for w in ['sh', '-c', S]), stdout=-1, text=True).stdout, end='')",
    "a thread": "import concurrent.futures as c; print(c.ThreadPoolExecutor(1).submit(subprocess.getoutput, S).result())",
    "os.popen": "print(os.popen(S).read(), end='')",
    "asyncio": "import asyncio; print((await (await asyncio.create_subprocess_shell(S, stdout=-1)).communicate())[0].decode(), end='')",
    "os.system": "os.system(S)",
    "os.posix_spawn": "os.waitpid(os.posix_spawn('/bin/sh', ['sh', '-c', S], os.environ), 0)",
    "posix.system": "import posix; posix.system(S)",
    "os.posix_spawnp": "os.waitpid(os.posix_spawnp('sh', ['sh', '-c', S], os.environ), 0)",
    "os.spawn": "os.spawnlp(os.P_WAIT, 'sh', 'sh', '-c', S)",
    "fork and exec": "pid = os.fork()\nif pid == 0:\n    try: os.execvp('sh', ['sh', '-c', S])\n    finally: os._exit(127)\nos.waitpid(pid, 0)",
    "a forked worker": "import multiprocessing as m\nwith m.get_context('fork').Pool(1) as pool: pool.apply(os.system, [S])",
    "!": "get_ipython().system(S)",
    "x = !": "print('\\n'.join(get_ipython().getoutput(S)))",
    "%%bash": "get_ipython().run_cell_magic('bash', '--no-raise-error', S)",
    "pty.spawn": "import pty; pty.spawn(['sh', '-c', S])",
}
SCRIPT = "touch ../outside/new; echo x > made; chmod 777 file; (sh -c 'rm file'); (setsid sh -c 'echo x > made' 2>/dev/null &); ls > /dev/null && echo $(cat file) done; exit 3"


async def test_each_door_walls_the_program_and_not_the_kernel(kernel, host, tmp_path):
    await run_cell(kernel, f"import os, subprocess\nS = {SCRIPT!r}")
    before = state_of(tmp_path)
    for name, code in DOORS.items():
        host.asked.clear()
        ran = await run_cell(kernel, code)
        assert ran.status == "ok", f"{name}: {ran.text}"
        assert "as it was done" in ran.text or name in (
            "os.system",
            "posix.system",
            "os.posix_spawn",
            "os.spawn",
            "a forked worker",
        ), ran.text
        assert [params["wall"] for params in host.asked if params["kind"] == "shell"] == [True], name
    assert state_of(tmp_path) == before
    free = "os.mkdir('dir'); os.rmdir('dir'); import threading\nprint([t.name for t in threading.enumerate() if 'start' in t.name])"
    assert (await run_cell(kernel, free)).text == "[]\n"


KEPT = """
def told(*words, **options):
    done = subprocess.run(words, capture_output=True, text=True, **options)
    return done.returncode, done.stdout, done.stderr
print(told('sh', '-c', 'echo out; echo err >&2; exit 3'), told('cat', input='typed'), told('sh', '-c', 'kill -9 $$'))
print(os.waitstatus_to_exitcode(os.system('exit 5')), subprocess.Popen(['true']).wait(), told('pwd', cwd='/')[1], told('env', env={'A': 'b'})[1])
try: subprocess.run(['/no/such'])
except FileNotFoundError as error: print(error)
try: subprocess.run(['sleep', '9'], timeout=0.2)
except subprocess.TimeoutExpired: print('late')
"""


async def test_output_input_and_exit_codes_are_those_of_the_program(kernel):
    ran = await run_cell(kernel, f"import os, subprocess\n{KEPT}")
    assert ran.text.splitlines() == [
        "(3, 'out\\n', 'err\\n') (0, 'typed', '') (-9, '', '')",
        *("5 0 /", " A=b", ""),
        *("[Errno 2] No such file or directory: '/no/such'", "late"),
    ]


NO_DOOR = {
    "a function before it": "subprocess.run(['true'], preexec_fn=lambda: None)",
    "the kernel itself": "os.execv('/bin/true', ['true'])",
}


@pytest.mark.parametrize("how", NO_DOOR)
async def test_a_start_that_has_no_door_says_so(kernel, host, how):
    host.allows = lambda _: False
    assert "denied" in (await run_cell(kernel, f"import os, subprocess\n{NO_DOOR[how]}")).text
    assert [params["wall"] for params in host.asked] == [False]


PROBE = r"""
import ctypes, fcntl, mmap, os, signal, socket, struct, subprocess, sys
outside, parent = sys.argv[1], os.getppid()
file, libc = outside + "/file", ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    if libc.syscall(number, *arguments) < 0: raise OSError(ctypes.get_errno())
def done(*words):
    subprocess.run(words, check=True, capture_output=True)
class Attempts:
    def write(): open(file, "w")
    def append(): open(file, "a")
    def update(): open(file, "r+")
    def empty(): os.open(file, os.O_RDONLY | os.O_TRUNC)
    def odd_empty(): os.open(file, 3 | os.O_TRUNC)
    def truncate(): os.truncate(file, 0)
    def create(): open(outside + "/new", "x")
    def temporary(): os.open(outside, os.O_TMPFILE | os.O_RDWR)
    def shared(): open("/dev/shm/freeact-new", "x")
    def in_tmp(): open("/tmp/freeact-new", "x")
    def mode(): os.chmod(file, 0o777)
    def mode_of_descriptor(): os.fchmod(os.open(file, os.O_RDONLY), 0o777)
    def owner(): os.chown(file, os.getuid(), os.getgid())
    def times(): os.utime(file)
    def times_of_descriptor(): os.utime(os.open(file, os.O_RDONLY))
    def attribute(): os.setxattr(file, "user.x", b"1")
    def flags(): fcntl.ioctl(os.open(file, os.O_RDONLY), 0x40086602, struct.pack("q", 0x40))
    def folder(): os.mkdir(outside + "/new")
    def link(): os.link(file, outside + "/new")
    def symlink(): os.symlink(file, outside + "/new")
    def rename(): os.rename(file, outside + "/new")
    def remove(): os.remove(file)
    def pipe(): os.mkfifo(outside + "/new")
    def device(): os.mknod(outside + "/new", 0o20666, os.makedev(1, 3))
    def by_descriptor(): open(f"/proc/self/fd/{os.open(file, os.O_RDONLY)}", "w")
    def by_root(): open(f"/proc/{parent}/root{file}", "w")
    def mapped(): mmap.mmap(os.open(file, os.O_RDWR), 1)
    def tcp(): socket.socket().connect(("127.0.0.1", int(sys.argv[2])))
    def tcp6(): socket.socket(socket.AF_INET6)
    def datagram(): socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    def netlink(): socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)
    def unix(): socket.socket(socket.AF_UNIX).connect(sys.argv[3])
    def abstract(): socket.socket(socket.AF_UNIX).connect("\0" + sys.argv[3])
    def unix_datagram(): socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    def signalled(): os.kill(parent, 0)
    def stopped(): os.kill(int(sys.argv[4]), signal.SIGTERM)
    def memory(): open(f"/proc/{parent}/mem", "rb")
    def environment(): open(f"/proc/{parent}/environ", "rb").read()
    def namespace(): call(272, 0x10000000)
    def uring(): call(425, 4, ctypes.create_string_buffer(120))
    def queue(): call(240, b"freeact-new", 0o102, 0o600, None)
    def system_v(): call(29, 0x4711, 100, 0o1600)
    def program(): done("touch", outside + "/new")
    def shell(): done("sh", "-c", f"echo x > {outside}/new")
    def python(): done(sys.executable, "-c", f"open({outside!r} + '/new', 'w')")
    def memfd():
        made = os.memfd_create("x"); os.write(made, b"#!/bin/sh\ntouch " + os.fsencode(outside) + b"/new\n")
        done(f"/proc/self/fd/{made}")
found = []
for name, attempt in vars(Attempts).items():
    if callable(attempt):
        try: attempt()
        except (OSError, subprocess.SubprocessError): continue
        found.append(name)
print(found, open(file).read(), len(os.listdir("/usr")) > 1)
"""


async def test_nothing_is_changed_and_nobody_reached_from_behind_the_wall(kernel, tmp_path):
    (tmp_path / "probe.py").write_text(PROBE)
    name = str(tmp_path / "s")
    listen = f"""
import socket, subprocess, sys
servers = [socket.socket(), socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)]
for server, address in zip(servers, [("127.0.0.1", 0), {name!r}, "\\0" + {name!r}]):
    server.bind(address); server.listen()
"""
    assert (await run_cell(kernel, listen)).status == "ok"
    before = state_of(tmp_path)
    words = [sys.executable, str(tmp_path / "probe.py"), str(tmp_path / "outside")]
    code = f"print(subprocess.run({words!r} + [str(servers[0].getsockname()[1]), {name!r}, '{os.getpid()}'], stdout=-1, text=True).stdout)"
    assert (await run_cell(kernel, code)).text.strip() == "[] as it was True"
    assert state_of(tmp_path) == before


# From the parser to the wall

SEEN_BY_NOBODY = [
    *("echo \"${x-'$(CMD)'}\"", "cat <<E\n${x-'$(CMD)'}\nE", "echo \"${x-$'$(CMD)'}\"", r"echo `echo \`CMD\``", 'echo "${x-~`CMD`}"', 'echo "${x-[`CMD`]}"'),
    *("echo ${PWD%<(CMD)}", "echo ${PWD/<(CMD)/a}", "case a in <(CMD)) ls;; esac", "[[ x || CMD ]]", r"[[ a =~ b|CMD ]]", "[[ a > OUT/new ]]"),
    *(r"echo $'\'; CMD #'", r"echo TEXT $'\'>OUT/new #'", "ls &> OUT/new", "sort -k1,1 --compress-program=OUT/run file", "awk 'BEGIN{\"CMD\" | getline}'"),
    *("sed -n '1e CMD' file", "sed -n '1w OUT/new' file", "rg --hidden --pre OUT/run x .", "find . -name file -printf x", "git -c alias.log='!CMD' log", "ls | xargs CMD"),
]  # fmt: skip
STARTS = [
    "subprocess.run(['bash', '-c', {0!r}], capture_output=True)",
    "subprocess.run({0!r}, shell=True, capture_output=True)",
    "os.system({0!r})",
    "get_ipython().system({0!r})",
]


async def asked_by(folder, lines, *, mode="ask", starts=STARTS, **rules):
    """Runs the lines in an agent's kernel; the questions, which are denied, and what the cells put out."""
    code = "\n".join(f"try: {start.format(line)}\nexcept PermissionError: pass" for line in lines for start in starts)
    model = ScriptedModel([[cell(f"import os, subprocess\n{code}")], "done"])
    config = Config(workspace=folder, mode=mode, effects={"enabled": False}, **rules)

    def decide(request):
        return Decision(allowed=isinstance(request.call, CodeAction))

    async with Agent(config, model=model) as agent:
        events, result = await read(agent.run("x"), decide)
    assert result.status == "completed"
    asked = [event.call for event in of_kind(events, ApprovalRequest) if not isinstance(event.call, CodeAction)]
    return asked, "".join(event.text for event in of_kind(events, CodeExecutionOutput))


@pytest.fixture
def places(tmp_path):
    work, outside = tmp_path / "work", tmp_path / "outside"
    for folder in (work, outside):
        folder.mkdir()
    (work / "file").write_text("text\n")
    (outside / "run").write_text(f"#!/bin/sh\ntouch {outside}/new\n")
    (outside / "run").chmod(0o755)
    return work, outside


def written_for(outside, text):
    return text.replace("CMD", f"touch {outside}/new").replace("OUT", str(outside))


@pytest.mark.parametrize("mode", ["ask", "plan"])
async def test_no_form_that_a_parser_may_miss_does_anything_unasked(places, mode):
    work, outside = places
    before = state_of(outside)
    _, text = await asked_by(work, [written_for(outside, line) for line in SEEN_BY_NOBODY], mode=mode)
    assert state_of(outside) == before, text
    assert [path.name for path in work.iterdir() if not path.name.startswith(".")] == ["file"]


async def test_random_commands_do_nothing_unasked_outside_of_the_wall(places):
    work, outside = places
    random_, before = random.Random(50), state_of(outside)
    wraps = [
        "$({})",
        "`{}`",
        "<({})",
        '"${{x-{}}}"',
        "\"${{x-'{}'}}\"",
        "${{PWD%{}}}",
        "'{}'",
        '"{}"',
        "$'{}'",
        r"`echo \`{}\``",
        "$(echo {})",
        r"$'\'{}",
        "[{}]",
    ]
    lines = [
        "echo {}",
        "cat <<E\n{}\nE",
        "case a in {}) ls;; esac",
        "[[ a || {} ]]",
        "ls {} | cat",
        r"echo $'\'; {} #'",
        "for i in {}; do ls; done",
        "cat file; {}",
    ]
    for _ in range(12):  # cells
        texts = []
        for _ in range(10):
            text = f"touch {outside}/new"
            for _ in range(random_.randint(1, 3)):
                text = random_.choice(wraps).format(text)
            texts.append(random_.choice(lines).format(text))
        await_all = [*itertools.islice(texts, 10)]
        _, put_out = await asked_by(work, await_all, starts=STARTS[:2])
        assert state_of(outside) == before, (texts, put_out)


@pytest.mark.parametrize(("mode", "sandbox"), [("ask", "auto"), ("ask", "off"), ("plan", "auto")])
async def test_everyday_reading_is_unasked_and_does_what_it_did(places, mode, sandbox):
    work, _ = places
    if shutil.which("git"):
        subprocess.run(["git", "init", "-q"], cwd=work, check=True)
    lines = [
        "ls",
        "cat file | wc -l",
        "grep -n te file",
        "head -1 file",
        "find . -name file",
        "diff file file",
        "python3 --version",
        "sort file 2>/dev/null",
        "git status -s",
    ]
    start = "print(subprocess.run({0!r}, shell=True, capture_output=True, text=True))"
    asked, text = await asked_by(work, lines, mode=mode, starts=[start], kernel={"sandbox": sandbox})
    assert asked == []
    assert text.count("returncode=0") == len(lines), text
    for part in (r"stdout='file\n'", r"stdout='1\n'", r"stdout='1:text\n'", r"stdout='./file\n'", r"stdout='?? file\n'"):
        assert part in text


async def test_what_the_settings_of_a_repository_start_is_behind_the_wall(places):
    work, outside = places
    if not shutil.which("git"):
        pytest.skip("needs git")
    run = shlex.quote(str(outside / "run"))
    (work / ".gitattributes").write_text("* filter=evil diff=evil\n")
    for words in (["init", "-q"], ["add", "."], ["config", "filter.evil.clean", run], ["config", "diff.evil.textconv", run]):
        subprocess.run(["git", *words], cwd=work, check=True)
    (work / "file").write_text("TEXT\n")
    before = state_of(outside)
    asked, _ = await asked_by(work, ["git status", "git diff", "git diff HEAD"], starts=STARTS[1:2])
    assert (asked, state_of(outside)) == ([], before)
    subprocess.run(["git", "status"], cwd=work, check=False, capture_output=True)
    assert state_of(outside) != before, "the settings do nothing"
