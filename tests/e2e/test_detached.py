"""Conversations that go on without their terminal: left, found again from another one, stopped, ended."""

import contextlib
import os
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.chat_server import ChatCall, ChatReply
from support.cli import PROGRAM, Chat, chat, environment, run
from support.terminal import CTRL_D, READY, Terminal
from support.waiting import pending_signals, until_there, wait_until

from freeact_sub.detached.sockets import connect, live_hosts, may_connect
from freeact_sub.system.process import state_folder
from freeact_sub.terminal.interrupts import INTERRUPTED

pytestmark = [pytest.mark.e2e, pytest.mark.kernel, pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs Linux")]
WAITS = "exec(open('waits.py').read())"
"""A cell that waits for a file."""
Start = Callable[..., Terminal]


def script(request: dict[str, Any]) -> ChatReply:
    """A cell for each prompt, which is its code; then what it gave."""
    last = request["messages"][-1]
    if last["role"] == "tool":
        return ["The cell gave ", str(last["content"])]
    return [ChatCall("execute_ipython_cell", {"code": str(last["content"])})]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Runs the program in a terminal of this size; what is left of it at the end is killed."""
    (tmp_path / "waits.py").write_text(f"{until_there('go')}\nprint('went on')")
    with contextlib.ExitStack() as opened:

        def start(*words: str, rows: int = 40, columns: int = 100) -> Terminal:
            terminal = Terminal(words, cwd=tmp_path, env=environment(), rows=rows, columns=columns)
            return opened.enter_context(terminal)

        yield start
    for host in hosts():  # of a test that has failed
        with contextlib.suppress(ProcessLookupError):
            os.kill(host, signal.SIGTERM)
    wait_until(lambda: not hosts())


@pytest.fixture
def server() -> Iterator[Chat]:
    with chat(script) as server:
        yield server


def family(terminal: Terminal) -> tuple[psutil.Process, psutil.Process]:
    """The host and the program of a terminal that has started them."""
    host = psutil.Process(terminal.pid).children()[0]
    return host, host.children()[0]


def state_of(folder: Path) -> str:
    """What `sessions list` says of the last session. Empty: its first prompt is not on disk yet."""
    listed = run("sessions", "list", cwd=folder).stdout
    found = re.search(r"\(([^()]*), 1 agent, ", listed)
    assert found or listed.startswith("no sessions in "), listed
    return found[1] if found else ""


def wait_until_state_is(state: str, folder: Path) -> None:
    """A host that is busy for a moment, as one whose terminal leaves, counts as `open`."""
    wait_until(lambda: state_of(folder) == state)


def wait_until_at_rest() -> None:
    """Wait until the host has heard that nothing is at work: a drawing may tell it a moment earlier."""
    wait_until(lambda: [host.state for host in live_hosts()] == ["done"])


def at_rest(start: Start, server: Chat) -> Terminal:
    """A conversation that has run a cell, and is at rest."""
    terminal = start(PROGRAM, "--yes", *server.options)
    terminal.wait_at_bottom(READY)
    terminal.enter("1 + 1")
    terminal.wait_at_bottom("The cell gave", READY)
    wait_until_at_rest()
    return terminal


def close_unheard(terminal: Terminal) -> None:
    """Close the window of a program that is stopped, so it has not heard of it yet."""
    program = family(terminal)[1]
    program.suspend()
    terminal.send_signal(signal.SIGKILL)
    terminal.wait_end()
    wait_until(lambda: signal.SIGHUP in pending_signals(program.pid))


def all_of(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def test_the_first_use(start: Start, server: Chat, tmp_path: Path) -> None:
    told = run("run", "--detach", "print(6 * 7)", *server.options, cwd=tmp_path).stdout
    session = re.fullmatch(r"detached: freeact-sub attach (\S+)\n", told)
    assert session, told
    wait_until_state_is("waiting for you", tmp_path)
    terminal = start(PROGRAM, "attach", rows=30, columns=70)
    terminal.wait_for("> print(6 * 7)")
    terminal.answer("y", "asks to run this cell")
    terminal.wait_for("  42", "The cell gave 42")
    assert terminal.wait_end() == 0
    assert state_of(tmp_path) == "completed"
    again = start(PROGRAM, "attach", session[1][:-1], *server.options)
    again.wait_for("resumed print(6 * 7)", "The cell gave 42")
    again.wait_at_bottom(READY)
    again.press(CTRL_D)
    assert again.wait_end() == 0


def test_a_conversation_is_left_and_goes_on_from_terminal_to_terminal(start: Start, server: Chat, tmp_path: Path) -> None:
    terminal = start(PROGRAM, *server.options)
    terminal.wait_at_bottom(READY)
    host, program = family(terminal)
    terminal.enter(WAITS)
    terminal.reply("/detach\r", "asks to run this cell")
    assert terminal.wait_end() == 0
    assert re.search(r"\ndetached: freeact-sub attach \S+$", terminal.shown)
    wait_until_state_is("waiting for you", tmp_path)
    second = start(PROGRAM, "attach", rows=24, columns=80)
    second.answer("y", "asks to run this cell")
    second.wait_at_bottom("1 agent at work")
    wait_until_state_is("working", tmp_path)
    third = start(PROGRAM, "attach", rows=30, columns=120)
    third.wait_at_bottom("1 agent at work")
    assert second.wait_end() == 0
    assert "another terminal has taken over" in second.shown
    third.send_signal(signal.SIGKILL)  # as a window that closes
    third.wait_end()
    left = all_of(host)
    assert program in left
    (tmp_path / "go").touch()
    assert not psutil.wait_procs(left, timeout=60)[1]  # nothing is left to do, and nobody is there
    assert state_of(tmp_path) == "completed"


def test_a_window_that_closes_at_rest_ends_the_program(start: Start, server: Chat) -> None:
    terminal = start(PROGRAM, *server.options)
    terminal.wait_at_bottom(READY)
    left = all_of(family(terminal)[0])
    terminal.send_signal(signal.SIGKILL)
    terminal.wait_end()
    assert not psutil.wait_procs(left, timeout=60)[1]
    told = start(PROGRAM, "attach")
    assert told.wait_end() == 2
    assert "nothing is at work in this folder" in told.shown


def test_a_terminal_that_comes_while_the_program_ends_continues_the_session(start: Start, server: Chat) -> None:
    terminal = at_rest(start, server)
    host, program = family(terminal)
    close_unheard(terminal)
    late = start(PROGRAM, "attach", *server.options)
    late.wait_for("is ending")
    program.resume()
    late.wait_at_bottom("The cell gave", READY)
    assert not psutil.wait_procs([host], timeout=60)[1]
    late.press(CTRL_D)
    assert late.wait_end() == 0


def test_a_terminal_that_comes_after_ctrl_d_continues_the_session(start: Start, server: Chat) -> None:
    terminal = at_rest(start, server)
    host, program = family(terminal)
    kernels = program.children(recursive=True)
    for process in kernels:
        process.suspend()  # their end takes seconds
    terminal.press(CTRL_D)
    terminal.wait_at_bottom("ending")
    program.suspend()
    for process in kernels:
        with contextlib.suppress(psutil.NoSuchProcess):  # the program has killed it meanwhile
            process.resume()
    late = start(PROGRAM, "attach", *server.options)
    late.wait_for("is ending")
    program.resume()
    terminal.wait_for("continue with")
    assert terminal.wait_end() == 0
    late.wait_at_bottom("The cell gave", READY)
    late.press(CTRL_D)
    assert late.wait_end() == 0
    assert not psutil.wait_procs([host, program], timeout=60)[1]


def test_kill_lets_a_program_that_is_ending_end_in_good_order(start: Start, server: Chat, tmp_path: Path) -> None:
    close_unheard(at_rest(start, server))
    session = run("sessions", "list", cwd=tmp_path).stdout.split()[0]
    # a program that ends at once leaves its temporary folder, which each test looks for at its end
    assert run("kill", session, cwd=tmp_path).stdout.startswith(f"ended: {session}")


def test_a_prompt_that_waits_for_the_start_is_run_without_a_window(start: Start, server: Chat, tmp_path: Path) -> None:
    terminal = start(PROGRAM, "--yes", *server.options)
    terminal.wait_until(lambda: any(text in terminal.bottom for text in ("starting", READY)), "the line")
    terminal.enter("open('ran', 'w')")
    terminal.wait_for_match("^(queued:|>) open.'ran', 'w'.$(?s:.*)^>$")  # entered
    terminal.send_signal(signal.SIGKILL)
    terminal.wait_end()
    wait_until(lambda: not hosts())
    assert (tmp_path / "ran").exists()


def test_detaching_at_rest_ends_the_conversation(start: Start, server: Chat) -> None:
    terminal = start(PROGRAM, *server.options)
    terminal.wait_at_bottom(READY)
    terminal.enter("/detach")
    assert terminal.wait_end() == 0
    assert "nothing is at work: the conversation is saved, and ends" in terminal.shown


def test_kill_ends_all_of_it(start: Start, server: Chat, tmp_path: Path) -> None:
    told = run(
        "run", "--detach", "--yes", "import os; os.system('touch begun; sleep 1000')", *server.options, cwd=tmp_path
    ).stdout
    session = told.split()[-1]
    (host,) = map(psutil.Process, hosts())
    wait_until((tmp_path / "begun").exists)
    left = all_of(host)
    assert run("kill", session, cwd=tmp_path).stdout.startswith(f"ended: {session}")
    assert not psutil.wait_procs(left, timeout=60)[1]
    assert not hosts()
    assert "no program is at work" in run("kill", session, cwd=tmp_path, check=1).stderr


def test_a_stopped_host_is_open_and_comes_back_by_attach_and_ends_by_kill(
    start: Start, server: Chat, tmp_path: Path
) -> None:
    session = run("run", "--detach", "print(6 * 7)", *server.options, cwd=tmp_path).stdout.split()[-1]
    (host,) = map(psutil.Process, hosts())
    wait_until_state_is("waiting for you", tmp_path)
    host.suspend()
    assert state_of(tmp_path) == "open"
    with contextlib.suppress(BlockingIOError):
        while True:  # others that ask meanwhile take all of its room
            connect(str(host.pid)).close()
    terminal = start(PROGRAM, "attach", session)
    terminal.reply("/detach\r", "asks to run this cell")
    assert terminal.wait_end() == 0
    left = all_of(host)
    for process in (host, host.children()[0]):
        process.suspend()
    assert run("kill", session, cwd=tmp_path).stdout.startswith(f"ended: {session}")
    assert not psutil.wait_procs(left, timeout=60)[1]
    assert not hosts()


@pytest.mark.usefixtures("start")
def test_kill_says_where_a_program_without_a_terminal_ends(server: Chat, tmp_path: Path) -> None:
    command = [PROGRAM, "run", "--yes", f"open('begun', 'w'); {WAITS}", *server.options]
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), stdin=subprocess.DEVNULL) as program:
        wait_until((tmp_path / "begun").exists)
        wait_until_state_is("open", tmp_path)
        session = run("sessions", "list", cwd=tmp_path).stdout.split()[0]
        told = run("kill", session[:-1], cwd=tmp_path, check=1).stderr
        (tmp_path / "go").touch()
    assert f"{session} is open in a program that is no conversation of a terminal: end it where it runs" in told
    assert program.returncode == 0


@pytest.mark.usefixtures("start")
def test_an_empty_id_names_no_conversation(server: Chat, tmp_path: Path) -> None:
    run("run", "--detach", "print(6 * 7)", *server.options, cwd=tmp_path)
    assert "id is empty" in run("kill", "", cwd=tmp_path, check=2).stderr
    assert hosts()


@pytest.mark.usefixtures("start")
def test_a_beginning_that_is_interrupted_leaves_nothing(server: Chat, tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text('{"mcpServers": {"slow": {"command": "sleep", "args": ["1000"]}}}')
    command = [PROGRAM, "run", "--detach", "--yes", "--trust", WAITS, *server.options]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stdin=subprocess.DEVNULL, start_new_session=True
    ) as caller:
        wait_until(hosts)
        (host,) = map(psutil.Process, hosts())
        left = all_of(host)
        caller.send_signal(signal.SIGINT)
    assert caller.returncode == INTERRUPTED
    assert not psutil.wait_procs(left, timeout=60)[1]


@pytest.mark.usefixtures("start")
def test_a_program_that_is_detached_keeps_nothing_of_its_caller(server: Chat, tmp_path: Path) -> None:
    """A pipe that its caller has, and a standard input that is closed."""
    reader, writer = os.pipe()
    command = f"exec {shlex.join([PROGRAM, 'run', '--detach', 'print(6 * 7)', *server.options])} <&-"
    words = ["sh", "-c", command]
    done = subprocess.run(words, cwd=tmp_path, env=environment(), pass_fds=[writer], capture_output=True, check=False)
    os.close(writer)
    with open(reader, "rb") as pipe:
        assert done.stdout.startswith(b"detached: "), done.stderr
        assert select.select([pipe], [], [], 0)[0]  # its end


def test_without_a_socket_nothing_is_detached(server: Chat, tmp_path: Path) -> None:
    hosted = state_folder() / "hosts"
    hosted.mkdir(mode=0o700, parents=True, exist_ok=True)
    command = shlex.join([PROGRAM, "run", "--detach", "print(6 * 7)", *server.options])
    words = ["sh", "-c", f"mkdir {hosted}/.$$; exec {command}"]  # no socket can have this name
    done = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    for odd in hosted.glob(".*"):
        odd.rmdir()
    assert (done.returncode, done.stdout) == (2, "")
    assert "--detach is not possible here" in done.stderr


def test_a_closed_window_ends_a_start_whose_starter_ignores_hangups(start: Start, server: Chat) -> None:
    terminal = start("sh", "-c", f"trap '' HUP; exec {shlex.join([PROGRAM, *server.options])}")
    wait_until(hosts)
    left = all_of(psutil.Process(*hosts()))
    terminal.send_signal(signal.SIGKILL)
    assert not psutil.wait_procs(left, timeout=60)[1]


def test_a_connection_of_a_process_that_has_ended_is_refused(tmp_path: Path) -> None:
    connects = "import socket; socket.socket(socket.AF_UNIX).connect('it')"
    with socket.socket(socket.AF_UNIX) as listener, contextlib.chdir(tmp_path):
        listener.bind("it")
        listener.listen()
        subprocess.run([sys.executable, "-c", connects], check=True)  # a process that it gave it to may be there yet
        with listener.accept()[0] as connection:
            assert not may_connect(connection, os.getpid())


def hosts() -> list[int]:
    """The hosts that have a socket."""
    folder = state_folder() / "hosts"
    return [int(name) for name in os.listdir(folder) if name.isdigit()] if folder.exists() else []


def test_code_in_a_kernel_cannot_answer_its_own_questions(start: Start, server: Chat, tmp_path: Path) -> None:
    knocks = f"""
import os, socket
os.chdir({str(state_folder() / "hosts")!r})
for name in os.listdir():
    with socket.socket(socket.AF_UNIX) as knocking:
        try:
            knocking.connect(name)
            knocking.sendall(b'q' + bytes(4))
            told = knocking.recv(1000)
        except (BrokenPipeError, ConnectionResetError):
            told = b""
        print('told:', told)
"""
    (tmp_path / "knock.py").write_text(knocks)
    terminal = start(PROGRAM, *server.options)
    terminal.wait_at_bottom(READY)
    terminal.enter("exec(open('knock.py').read())")
    terminal.answer("y", "asks to run this cell")
    terminal.answer("y", "asks to write this file", "/freeact/hosts/")
    terminal.wait_for("The cell gave told: b''")
    terminal.wait_at_bottom(READY)
    terminal.press(CTRL_D)
    terminal.wait_end()


def test_ctrl_z_does_nothing_while_an_editor_has_the_terminal(start: Start, server: Chat, tmp_path: Path) -> None:
    waits = f"touch begun; {shlex.quote(sys.executable)} -c {shlex.quote(until_there('go'))}; printf edited"
    (tmp_path / "edit").write_text(f'{waits} > "$1"\n')
    terminal = start("env", "-u", "VISUAL", f"EDITOR=sh {tmp_path}/edit", PROGRAM, *server.options)
    terminal.wait_at_bottom(READY)
    terminal.press("a prompt")
    terminal.wait_at_bottom("> a prompt")
    terminal.press("\x07")
    wait_until((tmp_path / "begun").exists)
    terminal.press("\x1a")
    terminal.wait_at_bottom("^Z")
    (tmp_path / "go").touch()
    terminal.wait_at_bottom("> edited", READY)
    terminal.press(" and more")
    terminal.wait_at_bottom("> edited and more")
    assert "stopped; fg brings it back" not in terminal.shown


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_ctrl_z_stops_the_terminal_and_the_work_goes_on(start: Start, server: Chat, tmp_path: Path) -> None:
    shell = start("bash", "--norc", "--noprofile", "-i")
    shell.press("PS1='shell> '\r")
    shell.wait_at_bottom("shell>")
    (tmp_path / "talk").write_text(f"exec {shlex.join([PROGRAM, '--yes', *server.options])}\n")
    shell.enter("bash talk")
    shell.wait_at_bottom(READY)
    shell.press("half")
    shell.wait_at_bottom("> half")
    shell.press("\x1a")
    shell.wait_at_bottom("stopped; fg brings it back", "Stopped", "shell>")
    shell.enter("clear; fg")
    shell.wait_at_bottom("> half", READY)
    shell.press("\x15")
    shell.wait_gone("half")
    shell.enter(WAITS)
    shell.wait_at_bottom("1 agent at work")
    shell.press("\x1a")
    shell.wait_at_bottom("stopped; the work goes on, and fg brings it back", "shell>")
    (tmp_path / "go").touch()
    wait_until_at_rest()
    shell.enter("clear; fg")
    shell.wait_for("The cell gave")  # what was told meanwhile
    shell.wait_at_bottom(READY)
    assert shell.shown.count("1 agent at work") == 0
    shell.press(CTRL_D)
    shell.wait_at_bottom("continue with", "shell>")
    shell.press("exit\r")
    assert shell.wait_end() == 0
