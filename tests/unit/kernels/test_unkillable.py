"""The fork server goes on where a process does not end by SIGKILL, as one that sleeps in a dead file system."""

import contextlib
import json
import os
import socket
import subprocess
import sys

import pytest

PROGRAM = """
import json, os, signal, socket, sys
from freeact_sub.kernels.forkserver import server

kill, killpg, spared = os.kill, os.killpg, set(map(int, sys.argv[2:]))
os.kill = lambda pid, number: None if pid in spared or 0 in spared else kill(pid, number)
os.killpg = lambda pid, number: None if pid in spared or 0 in spared else killpg(pid, number)
here = server.Server(socket.socket(fileno=int(sys.argv[1])))
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        here.control.close()
        signal.pause()
    here.kernels[pid] = True
spared.add(min(here.kernels))
here.send({"kernels": sorted(here.kernels)})
here.serve()
"""


@pytest.fixture
def server():
    """Starts a server with two kernels, of which the first cannot be killed."""
    mine, its = socket.socketpair()
    mine.settimeout(120)
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(its.fileno())], pass_fds=[its.fileno()]) as program:
        its.close()
        lines = mine.makefile("r")
        kernels = json.loads(lines.readline())["kernels"]
        try:
            yield mine, lines, kernels
        finally:
            program.kill()
            for pid in kernels:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
            lines.close()
            mine.close()


@pytest.mark.process
def test_a_kernel_that_cannot_be_killed_stops_nothing_else(server):
    control, lines, (stuck, other) = server
    for pid in (stuck, other, stuck):
        control.sendall(json.dumps({"op": "end", "pid": pid}).encode() + b"\n")
    assert json.loads(lines.readline()) == {"ended": other, "code": -9}
    os.kill(stuck, 9)  # its file system is back
    assert json.loads(lines.readline()) == {"ended": stuck, "code": -9}
