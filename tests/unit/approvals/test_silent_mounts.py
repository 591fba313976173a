"""A command may name what is in a file system that does not answer: it is asked about, and the event loop continues."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = str(Path(__file__).parents[2])
"""Where `support` is."""

PROGRAM = """
import asyncio, ctypes, os
from pathlib import Path
from support.askers import AskerFake
from freeact_sub.approvals import Gate, Policy, Rules, gate, make_rules, shipped_rules
from freeact_sub.calls import FileWrite, ShellCommand
from freeact_sub.channel import Emitter, EventChannel
from freeact_sub.errors import ApprovalDeniedError
from freeact_sub.system import safe_files
from freeact_sub.show.rule_texts import ruling_text
from freeact_sub.config.schema import Config

gate.PATIENCE_SECONDS, safe_files.ANSWER_SECONDS = 0.1, 0.1
libc = ctypes.CDLL(None, use_errno=True)
top = Path.cwd().resolve()
silent = top / "silent"
silent.mkdir()
(top / "link").symlink_to(silent / "inner/file")
(top / "shown").write_text("shown")
handle = os.open("/dev/fuse", os.O_RDWR)
data = f"fd={handle},rootmode=40000,user_id=0,group_id=0".encode()
if libc.mount(b"never", os.fsencode(silent), b"fuse", 0, data):
    print("not mounted", os.strerror(ctypes.get_errno()))
    raise SystemExit(0)

WORDS = ["cat silent/x", "cat link", "cat silent/*", "cat */x", "grep -r x .", "grep -r x silent", "tar c .", "cd silent && ls *",
         "git -C silent status", "git add silent", "echo x > silent/out", "echo x > link", "diff -r silent shown", "rm -rf silent/.."]
CALLS = [*(ShellCommand(command=words, wall=True) for words in WORDS), FileWrite(path=str(silent / "x")), FileWrite(path="link"),
         ShellCommand(command="cat link", outside=True)]

def policy(mode="ask", deny=(), allow=()):
    rules = make_rules({"deny": deny, "allow": allow})
    return Policy(workspace=top, mode=mode, rules=Rules(levels=(rules, *shipped_rules().levels)))

async def main():
    beats = 0
    async def beat():
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0.001)
    beating = asyncio.create_task(beat())
    channel, gate = EventChannel(), Gate()
    emitter = Emitter(channel=channel, agent_id="agent")
    async def decided(call, policy, gate=gate):
        before = beats
        ruling = await gate.ruling(call, policy)
        assert beats > before, call
        return ruling
    for call in CALLS:  # a person is asked, and what is mounted is named
        task = asyncio.create_task(gate.check(call, AskerFake(policy=policy(allow=["shell", "write"]), emitter=emitter)))
        request = await asyncio.wait_for(channel.receive(), 240)
        assert str(silent) in request.reason and not request.suggested, (call, request.reason)
        assert not call.kind == "shell" or not call.outside or not request.if_nobody.allowed
        task.cancel()
        await asyncio.wait({task})
        await channel.receive()
    for command in ("git push; cat silent/x", "cat secrets/a silent/x"):  # what is denied by its name stays denied
        deny = policy(deny=["shell:git push *", "file:secrets/**"])
        assert (await decided(ShellCommand(command=command, wall=True), deny)).verdict == "deny", command
    call = ShellCommand(command="cat link", wall=True)
    assert (await decided(call, policy("full"))).verdict == "allow"
    assert (await decided(call, policy("full", deny=["file:**/hidden"]))).verdict == "ask"
    await asyncio.gather(*(gate.ruling(call, policy()) for _ in range(60)))  # more than there are threads
    ruling = await gate.ruling(ShellCommand(command="git push", wall=True), policy(deny=["shell:git push *"]))
    assert ruling.verdict == "deny"
    beating.cancel()

asyncio.run(main())
assert ruling_text(Config(workspace=top), "shell", "cat link")[0] == "ask"
print("done")
"""


@pytest.mark.slow
def test_a_file_system_that_does_not_answer_is_asked_about_and_holds_up_nothing(tmp_path):
    alone = ["unshare", "--user", "--map-root-user", "--mount", "--propagation", "private"]
    if not shutil.which("unshare") or subprocess.run([*alone, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this system lets nobody mount in a namespace")
    ran = subprocess.run(
        [*alone, sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        check=False,
        timeout=240,
        env=os.environ | {"PYTHONPATH": TESTS},
        capture_output=True,
    )
    if ran.stdout.startswith(b"not mounted"):
        pytest.skip(ran.stdout.decode())
    assert ran.stdout.endswith(b"done\n"), ran.stdout.decode() + ran.stderr.decode()
