"""Commands whose reader leaves: they end quietly, as other programs do."""

import subprocess

import pytest
from support.warm import PROGRAM

pytestmark = pytest.mark.e2e

COMMANDS = [
    ["--help"],
    ["run", "--help"],
    ["--version"],
    ["sessions", "list"],
    ["permissions", "list"],
    ["permissions", "check", "ls"],
    ["agents"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_whose_reader_has_left_ends_quietly(command, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    whole = subprocess.run([PROGRAM, *command], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert whole.stdout, whole.stderr
    program = subprocess.Popen([PROGRAM, *command], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    program.stdout.close()
    with program:
        assert program.stderr.read() == b""
        assert program.wait(240) == 141
