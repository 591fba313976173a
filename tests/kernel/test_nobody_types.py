"""No cell waits for a keyboard: programs find the end of their input, and no terminal to ask on."""

import shutil
import sys

import pytest
import pytest_asyncio
from support.elsewhere import CANNOT_FORK
from support.kernels import open_kernel, run_cell

pytestmark = [pytest.mark.kernel, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def kernel(shared_provider, tmp_path_factory):
    async with open_kernel(shared_provider, tmp_path_factory.mktemp("work")) as kernel:
        assert (await run_cell(kernel, "import os, subprocess\nos.environ['TERM'] = 'xterm'")).status == "ok"
        yield kernel


READING = {
    "!": ("!cat", ""),
    "! with a read": ("!read x; echo [$x] $?", "[] 1\n"),
    "! asks on the terminal": ("!cat < /dev/tty", "No such device or address"),
    "! reads from where it writes": ("!cat <&1; cat <&2; echo done", "done\n"),
    "! asks twice": ("!sh -c 'read a <&2; read b <&2; echo [$a$b]'", "[]\n"),
    "x = !": ("x = !cat\nprint(x)", "[]\n"),
    "!!": ("!!cat", "[]"),
    "%system": ("%system cat", "[]"),
    "%%bash": ("%%bash\necho a; cat </dev/null; read x </dev/tty", "No such device or address"),
    "subprocess": ("print(subprocess.run(['cat']).returncode)", "0\n"),
    "shell": ("print(subprocess.run('read x', shell=True).returncode)", "1\n"),
    "os.system": ("print(os.system('cat'))", "0\n"),
    "another Python": (f"!{sys.executable} -c 'input()'", "EOFError"),
    "a password": (f"!{sys.executable} -c 'import getpass; getpass.getpass()'", "EOFError"),
    "a terminal": ("import os, pty\nprint(os.WEXITSTATUS(pty.spawn(['sh', '-c', 'read x; echo [$x]; exit 5'])))", "[]\n5\n"),
    "a terminal that is recorded": (
        (
            "import os, pty\nseen = []\ndef keep(fd):\n    seen.append(os.read(fd, 1024)); return seen[-1]\n"
            "pty.spawn(['sh', '-c', 'echo shown; cat'], keep)\nprint(b'shown' in b''.join(seen))"
        ),
        "shown\nTrue\n",
    ),
    "a terminal and code that types": (
        "import pty\ntyped = [b'typed\\n', b'']\n_ = pty.spawn(['head', '-n', '1'], stdin_read=lambda fd: typed.pop(0))",
        "typed\ntyped\n",
    ),
    "a shell in a terminal": ("import pty\nprint(pty.spawn('sh') is not None)", "True\n"),
    "a forked process": (
        "import os\nif (pid := os.fork()) == 0: input('? ')\nprint(os.waitpid(pid, 0)[1] >> 8)",
        "cannot ask",
    ),
    "the lines of a forked process": (
        "import os, sys\nif (pid := os.fork()) == 0:\n    print(sys.stdin.readlines()); os._exit(0)\nos.waitpid(pid, 0); None",
        "[]",
    ),
    "a password in a forked process": (
        "import getpass, os\nif (pid := os.fork()) == 0: getpass.getpass()\nos.waitpid(pid, 0); None",
        "cannot ask",
    ),
    "a process of multiprocessing": (
        "import multiprocessing\np = multiprocessing.get_context('fork').Process(target=input); p.start(); p.join(); p.exitcode",
        "EOFError",
    ),
    "a debugger in a forked process": ("import os\nif (pid := os.fork()) == 0: breakpoint()\nos.waitpid(pid, 0); None", ""),
    "a debugger": (f"!{sys.executable} -c 'breakpoint()'", "BdbQuit" if sys.version_info < (3, 14) else "[exit code 1]"),
}


@pytest.mark.parametrize("how", READING)
async def test_what_reads_the_keyboard_finds_its_end(kernel, how):
    code, shown = READING[how]
    ran = await run_cell(kernel, code)
    assert ran.status in ("ok", "error")
    assert shown in ran.text


KEYS = {"less": "less /etc/services", "more": "more /etc/services", "vi": "vi file", "watch": "watch ls"}


@pytest.mark.skipif(CANNOT_FORK, reason="other systems do not tell who has taken over a terminal")
@pytest.mark.parametrize(
    "command",
    [
        *(
            pytest.param(line, marks=pytest.mark.skipif(not shutil.which(name), reason="not here"))
            for name, line in KEYS.items()
        ),
        f"{sys.executable} -c 'import os, tty; tty.setcbreak(1); os.read(1, 1)'",
        f"{sys.executable} -c 'import os, signal, tty; signal.signal(1, signal.SIG_IGN); tty.setraw(2); os.read(2, 1)'",
    ],
)
async def test_a_program_that_waits_for_keys_is_ended_and_the_cell_goes_on(kernel, command):
    line = command.replace("/etc/services", "long")
    code = f"!seq 500 > long\n!{line}\nprint('\\nnext')"  # a program that is ended may leave its last line open
    ran = await run_cell(kernel, code)
    assert ran.status == "ok"
    assert ran.text.count("[ended: the command waits for keys, and nobody can type them]") == 1
    assert ran.text.endswith("next\n")


GIT = {
    "commit": ("git commit --allow-empty", "-m or -F"),
    "log": ("git log", "first"),
    "a password": ("printf 'protocol=https\\nhost=example.invalid\\n' | git -c credential.helper= credential fill", "could not read Username"),
}  # fmt: skip


@pytest.mark.skipif(shutil.which("git") is None, reason="git")
@pytest.mark.parametrize("what", GIT)
async def test_git_neither_starts_an_editor_or_pager_nor_asks(kernel, what):
    command, shown = GIT[what]
    person = "-c user.name=A -c user.email=a@b.invalid"
    await run_cell(kernel, f"!git init -q .; git {person} commit -q --allow-empty -m first")
    ran = await run_cell(kernel, f"!{command.replace('git ', f'git {person} ', 1)}")
    assert (ran.status, shown in ran.text) == ("ok", True), ran.text


ENDS = {
    "exit 3": ("", "3"),
    "kill -9 $$": ("", "-9"),
    "sh -c 'kill -15 $$'": ("", "-15"),
    "exec >/dev/null 2>&1; sleep 0.5; exit 4": ("", "4"),
    "printf '\\342\\202'; sleep 0.2; printf '\\254\\n'": ("€\n", "0"),
    "(sleep 1000; echo late) & echo early": ("early\n", "0"),
    "yes | head -n 20000 | tail -n 1": ("y\n", "0"),
    "stty size": ("", "1"),
    "stty size <&1": ("24 80\n", "0"),
}


@pytest.mark.parametrize("command", ENDS)
async def test_a_command_is_shown_in_a_terminal_and_gives_its_exit_code(kernel, command):
    output, code = ENDS[command]
    ran = await run_cell(kernel, f"!{command}\nprint('code', _exit_code)")
    assert ran.status == "ok"
    note = {"0": "", "-9": "[ended by signal 9]\n", "-15": "[ended by signal 15]\n"}.get(code, f"[exit code {code}]\n")
    assert ran.text.endswith(f"{output}{note}code {code}\n")


async def test_an_interrupted_command_ends_with_what_it_has_started(kernel, tmp_path):
    ran = await run_cell(kernel, "!trap '' INT HUP; sleep 1000 & echo $! > pid; wait", limit=2)
    assert ran.status == "timeout"
    programs = "import sys; programs = sys.modules['freeact_guest.programs']"
    await run_cell(kernel, f"{programs}; kept = programs.INTERRUPT_SECONDS; programs.INTERRUPT_SECONDS = 60")
    ran = await run_cell(kernel, "!trap 'echo caught; exit 5' INT; sleep 1000 & wait", limit=2)
    assert (ran.status, "caught" in ran.text) == ("timeout", True)
    await run_cell(kernel, "programs.INTERRUPT_SECONDS = kept")
    assert (await run_cell(kernel, "print('next')")).text == "next\n"
