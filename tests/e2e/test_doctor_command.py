"""`freeact-sub doctor` as people start it: it starts a real kernel, and leaves nothing behind."""

import subprocess
import sys
from pathlib import Path

import pytest
from support import elsewhere
from support.cli import chat, run
from support.sandbox import NEEDS_A_WALL
from support.warm import PROGRAM

pytestmark = [pytest.mark.e2e, pytest.mark.kernel]

WITH_SETTING = (
    "echo {} > /proc/sys/user/max_user_namespaces && exec setpriv --inh-caps=-all --bounding-set=-all,+setfcap $0 $@"
)
"""A command of a shell that is root in a namespace for users: with no capability but to map itself, it is an ordinary user."""


def in_a_user_namespace(namespaces: int) -> list[str]:
    if subprocess.run(["unshare", "-Ur", "setpriv", "--version"], check=False, capture_output=True).returncode:
        pytest.skip("this user makes no namespace in which to close others, or util-linux lacks unshare and setpriv")
    return ["unshare", "-Ur", "sh", "-c", WITH_SETTING.format(namespaces)]


@NEEDS_A_WALL
def test_closed_namespaces_have_a_remedy_that_opens_them(tmp_path: Path) -> None:
    def doctor(start: list[str], *options: str) -> str:
        command = [*start, PROGRAM, "doctor", "--mode", "auto", *options]
        return subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=240).stdout

    filtered = doctor([sys.executable, elsewhere.__file__, "--without", "namespaces"])
    assert "! namespaces closed: a filter of system calls (seccomp)" in filtered
    assert "✓ kernels" in filtered  # as much of the wall as there is

    closed = doctor(in_a_user_namespace(0))
    assert "! wall       in auto it does not hold modes and times" in closed
    assert "! namespaces closed: the setting user.max_user_namespaces of Linux is 0" in closed
    assert "    echo 'user.max_user_namespaces = 16384' | sudo tee /etc/sysctl.d/99-freeact-sub.conf && sudo" in closed
    assert "all of it holds in plan, ask, auto, full" in doctor(in_a_user_namespace(16384))

    assert f'profile freeact-sub "{Path(sys.executable).resolve()}" flags=(unconfined) {{' in doctor([], "--apparmor")


def test_the_doctor_prints_all_topics(tmp_path: Path) -> None:
    with chat(lambda _: ["unused"]) as server:
        done = run("doctor", "--mode", "auto", *server.options, cwd=tmp_path, check=0)
        assert server.server.requests == []  # asking costs nothing
    topics = [line.split()[1] for line in done.stdout.splitlines() if line[:1] in "✓·!✗" and line[:1]]
    assert topics[:2] == ["model", "keys"]
    assert {"python", "kernels", "branches", "wall", "pictures", "undo", "settings", "sessions", "extras"} <= {*topics}
    assert "where a server answers" in done.stdout
    assert "Agents can work here" in done.stdout.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []

    wrong = run("doctor", "--model", "openai-chat:x", "--base-url", "http://127.0.0.1:1/v1", cwd=tmp_path, check=1)
    assert "✗ model" in wrong.stdout
    assert wrong.stdout.endswith("Agents cannot work here yet: see model.\n")
    run("doctor", "--mode", "nothing", cwd=tmp_path, check=2)


def test_a_kernel_that_does_not_start(tmp_path: Path) -> None:
    (tmp_path / ".freeact").mkdir()
    (tmp_path / ".freeact/config.toml").write_text('[kernel]\npython = "/bin/false"\n')
    done = run("doctor", "--trust", "--model", "test", cwd=tmp_path, check=1)
    assert "✗ python" in done.stdout
    assert "✗ kernels    none starts in mode ask: " in done.stdout
    assert done.stdout.endswith("Agents cannot work here yet: see python, kernels.\n")


def test_a_system_that_lacks_it_all_runs_kernels_and_is_told_what_is_missing(tmp_path: Path) -> None:
    command = [sys.executable, elsewhere.__file__, PROGRAM, "doctor", "--mode", "auto", "--model", "test"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=240)
    if "could not be set up" in done.stderr:
        pytest.skip("this user makes no file tree without /proc")
    words = " ".join(done.stdout.split())
    assert "! kernels the first one ran a cell after " in words
    assert "plain subprocesses, which is slower: this system has no `/proc`" in words
    assert "! branches a live kernel cannot be copied: only a forked kernel can be branched: this system has no" in words
    assert "this system has no Landlock" in words
    assert words.endswith("Agents can work here, with limits: see kernels, branches, wall, namespaces.")
