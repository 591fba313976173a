"""The process guard: what it starts ends with it, whatever happens, and nothing is left."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.elsewhere import CANNOT_FORK
from support.tables import each
from support.waiting import is_running, wait_until

import freeact_sub.system.guard

pytestmark = pytest.mark.process

GUARD = [sys.executable, "-I", "-S", freeact_sub.system.guard.__file__]

SLEEPER = "import os, signal; print(os.getpid(), flush=True); signal.pause()"

FAMILY = """
import os, signal, sys

def report(role):
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.write(1, f"{os.getpid()} {role}\\n".encode())
    signal.pause()

if not os.fork():           # a child in a session of its own
    os.setsid()
    report("session")
if not os.fork():           # a daemon: session, double fork, the middle one ends
    os.setsid()
    if os.fork():
        os._exit(0)
    report("daemon")
if not os.fork():           # a child with a child, the middle one ends
    if os.fork():
        os._exit(0)
    report("orphan")
report("program")
"""

HOST = """
import os, signal, subprocess, sys
program = sys.argv[1]
guard = subprocess.Popen([sys.executable, "-I", "-S", sys.argv[2], str(os.getpid()), sys.executable, "-c", program])
signal.pause()
"""

HOST_THREAD = """
import os, subprocess, sys, threading
def start():
    command = [sys.executable, "-I", "-S", sys.argv[2], str(os.getpid()), sys.executable, "-c", sys.argv[1]]
    global guard
    guard = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
thread = threading.Thread(target=start)
thread.start()
thread.join()
guard.stdin.write(b"still here\\n")
guard.stdin.close()
print(guard.stdout.read().decode(), end="")
"""


@contextmanager
def guarded(*command: str, **options: object) -> Iterator[subprocess.Popen[str]]:
    """The program, started through the guard in a session of its own, as kernels and MCP servers are."""
    arguments = [*GUARD, str(os.getpid()), *command]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(arguments, text=True, start_new_session=True, **pipes | options) as process:
        try:
            yield process
        finally:
            process.kill()


def read_family(process: subprocess.Popen[str]) -> dict[str, int]:
    lines = [process.stdout.readline().split() for _ in range(4)]
    return {role: int(pid) for pid, role in lines}


def python(program: str) -> tuple[str, str, str]:
    return sys.executable, "-c", program


@each("code", [0, 1, 7, 255])
def test_ends_with_the_exit_code_of_the_program(code: int) -> None:
    with guarded(*python(f"raise SystemExit({code})")) as process:
        assert process.wait(120) == code


@each("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT, signal.SIGINT, signal.SIGSEGV])
def test_ends_by_the_signal_of_the_program(number: int) -> None:
    with guarded(*python(f"import os; os.kill(os.getpid(), {int(number)})")) as process:
        assert process.wait(120) == -number


@pytest.mark.parametrize(("command", "code"), [("no-such-program", 127), ("/", 126)])
def test_says_that_a_program_cannot_be_started(command: str, code: int) -> None:
    with guarded(command) as process:
        assert process.wait(120) == code
        assert process.stderr.read().startswith(f"cannot start {command}: ")


def test_hands_on_the_standard_streams_and_the_environment() -> None:
    program = "import os, sys; print(sys.stdin.read().upper() + os.environ['WORD']); print('oops', file=sys.stderr)"
    with guarded(*python(program), env={"WORD": "there"}) as process:
        out, err = process.communicate("hello ", timeout=120)
    assert (out, err) == ("HELLO there\n", "oops\n")


def test_lets_go_of_the_streams_that_the_program_closes() -> None:
    program = "import os, signal; os.write(1, b'last words'); os.close(1); os.close(2); signal.pause()"
    with guarded(*python(program)) as process:
        assert process.stdout.read() == "last words"
        assert process.poll() is None


def test_gives_the_program_default_signals() -> None:
    program = "import signal; print([s for s in signal.valid_signals() if signal.getsignal(s) == signal.SIG_IGN])"
    with guarded(*python(program)) as process:
        assert process.stdout.read() == f"{[signal.SIGPIPE, signal.SIGXFSZ]}\n"  # Python itself ignores these two


def test_terminated_it_ends_everything_that_the_program_has_started() -> None:
    with guarded(*python(FAMILY)) as process:
        family = read_family(process)
        process.terminate()
        assert process.wait(120) == -signal.SIGTERM
        assert [role for role, pid in family.items() if is_running(pid)] == []


def test_when_the_program_ends_what_it_has_started_ends_too() -> None:
    with guarded(*python(FAMILY)) as process:
        family = read_family(process)
        os.kill(family["program"], signal.SIGKILL)
        assert process.wait(120) == -signal.SIGKILL
        assert [role for role, pid in family.items() if is_running(pid)] == []


def test_an_interrupt_of_the_group_reaches_the_program_only() -> None:
    program = """
import signal
try:
    print("ready", flush=True); signal.pause()
except KeyboardInterrupt:
    print("interrupted", flush=True); input()
"""
    with guarded(*python(program)) as process:
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        os.killpg(process.pid, signal.SIGWINCH)
        process.communicate("go on\n", timeout=120)
        assert process.returncode == 0


@each("number", [signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGALRM])
def test_other_signals_do_not_end_it(number: int) -> None:
    with guarded(*python("print('ready', flush=True); input()")) as process:
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, number)
        process.communicate("\n", timeout=120)
        assert process.returncode == 0


def test_started_with_blocked_signals_it_can_be_terminated() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
    try:
        with guarded(*python(SLEEPER)) as process:
            pid = int(process.stdout.readline())
            process.terminate()
            process.wait(120)
            assert not is_running(pid)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGCHLD})


def test_killed_host_leaves_nothing() -> None:
    command = [sys.executable, "-c", HOST, FAMILY, freeact_sub.system.guard.__file__]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as host:
        family = read_family(host)
        assert all(is_running(pid) for pid in family.values())
        host.kill()
        wait_until(lambda: not any(is_running(pid) for pid in family.values()))


def test_the_end_of_the_thread_that_started_it_is_not_the_end_of_the_host() -> None:
    command = [sys.executable, "-c", HOST_THREAD, "print(input())", freeact_sub.system.guard.__file__]
    assert subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout == "still here\n"


def test_without_its_host_it_starts_nothing() -> None:
    with subprocess.Popen([*GUARD, "1", *python("print('started')")], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.read() == ""
        assert process.wait(120) == 1


def test_told_that_its_host_may_not_live_on_it_removes_the_folder_itself(tmp_path: Path) -> None:
    folders = [tmp_path / "left to it", tmp_path / "kept"]
    for folder in folders:
        (folder / "inner").mkdir(parents=True)
        if folder == folders[0]:
            (folder / freeact_sub.system.guard.ENDING).touch()
        command = [*GUARD, str(os.getpid()), "--remove", str(folder), *python("print('started', flush=True); input()")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "started\n"
            process.terminate()
            assert process.wait(120) == -signal.SIGTERM
    assert [folder.exists() for folder in folders] == [False, True]


HOST_OF_A_READER = """
import os, socket, subprocess, sys
ours, theirs = socket.socketpair()
arguments = [str(os.getpid()), "--remove", sys.argv[2], "sh", "-c", f"echo ready >&{theirs.fileno()}; read line <&{theirs.fileno()}"]
guard = subprocess.Popen(
    [sys.executable, "-I", "-S", sys.argv[1], *arguments], pass_fds=(theirs.fileno(),), start_new_session=True
)
theirs.close()
ours.recv(100)
os._exit(0)
"""


@pytest.mark.skipif(CANNOT_FORK, reason="elsewhere it is not known that a process is about to end")
def test_a_host_that_is_about_to_end_has_ended() -> None:
    zombie = subprocess.Popen([sys.executable, "-c", ""])
    wait_until(lambda: b") Z " in Path(f"/proc/{zombie.pid}/stat").read_bytes())
    try:
        assert freeact_sub.system.guard.is_ending(zombie.pid)
    finally:
        zombie.wait()
    assert not freeact_sub.system.guard.is_ending(zombie.pid)
    assert not freeact_sub.system.guard.is_ending(os.getpid())


def test_a_program_that_ends_because_its_host_ends_leaves_no_folder(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(20)]
    for folder in folders:
        folder.mkdir()
    hosts = [
        subprocess.Popen([sys.executable, "-c", HOST_OF_A_READER, freeact_sub.system.guard.__file__, folder])
        for folder in folders
    ]
    for host in hosts:
        host.wait(120)
    wait_until(lambda: not any(folder.exists() for folder in folders))
