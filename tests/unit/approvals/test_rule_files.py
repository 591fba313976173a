"""Rules count as they stand in their files now; an answer that cannot be kept says so."""

import asyncio
import os
from contextlib import ExitStack

import pytest
from support.askers import AskerFake
from support.tables import each
from support.waiting import eventually

from freeact_sub.approvals import Gate, Policy, ProjectRules, RuleFiles, policy
from freeact_sub.calls import ShellCommand
from freeact_sub.channel import Emitter, EventChannel
from freeact_sub.config.trust import Trust
from freeact_sub.errors import ApprovalDeniedError
from freeact_sub.events import ApprovalRequest, Notice

MAKE = ShellCommand(command="make x", wall=True)


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "work/.freeact").mkdir(parents=True)
    (tmp_path / "config/freeact").mkdir(parents=True)
    return tmp_path / "work"


def write(path, text):
    new = path.with_name("new")
    new.write_text(text)
    new.replace(path)  # another file each time: whatever a clock says, it is seen
    return path


@pytest.fixture
def channel():
    return EventChannel()


@pytest.fixture
def judge(workspace, channel):
    """What happens to a command: allowed, denied, or asked for; and what is told."""

    def start(*files):
        trust = Trust(workspace.parent / "own")
        rules = RuleFiles(files, workspace, trust)
        gate = Gate(files=rules)
        policy = Policy(workspace=workspace, rules=rules.rules)
        emitter = Emitter(channel=channel, agent_id="agent-1")

        async def said(call=MAKE):
            task = asyncio.create_task(gate.check(call, AskerFake(policy=policy, emitter=emitter)))
            told = []
            while True:
                receiving = asyncio.create_task(channel.receive())
                await asyncio.wait({task, receiving}, return_when=asyncio.FIRST_COMPLETED)
                if receiving.done() and isinstance(receiving.result(), Notice):
                    told.append(receiving.result().content)
                elif receiving.done() and isinstance(receiving.result(), ApprovalRequest):
                    task.cancel()
                    await asyncio.wait({task})
                    await channel.receive()
                    return "ask", told
                elif task.done():
                    receiving.cancel()
                    return "deny" if isinstance(task.exception(), ApprovalDeniedError) else "allow", told

        return said, trust

    return start


async def test_what_a_file_forbids_counts_from_the_moment_it_is_saved(workspace, judge):
    file = write(workspace / ".freeact/permissions.toml", 'allow = ["shell:make *"]')
    said, _ = judge(file)
    assert await said() == ("allow", [])
    write(file, 'allow = ["shell:make *"]\ndeny = ["shell:make *"]')
    assert await said() == ("deny", [])
    write(file, 'allow = ["shell:make *"]')
    assert (await said())[0] == "allow"


async def test_a_file_that_is_made_meanwhile_forbids_too(workspace, judge):
    said, _ = judge()
    assert await said() == ("ask", [])
    write(workspace / ".freeact/permissions.toml", 'deny = ["shell:make *"]')
    assert (await said())[0] == "deny"
    os.remove(workspace / ".freeact/permissions.toml")
    verdict, [told] = await said()
    assert verdict == "deny"
    assert "is gone" in told
    write(workspace.parent / "config/freeact/permissions.toml", 'deny = ["shell:ls *"]\nallow = ["shell:x"]')
    assert (await said(ShellCommand(command="ls", wall=True)))[0] == "deny"


async def test_what_nobody_has_looked_at_allows_nothing(workspace, judge):
    file = write(workspace / ".freeact/permissions.toml", 'deny = ["shell:rm *"]')
    said, trust = judge(file)
    text = 'allow = ["shell:make *"]\nask = ["shell:ls *"]'
    write(file, text)
    verdict, [told] = await said()
    assert verdict == "ask"
    assert "looked at" in told
    assert await said() == ("ask", []), "told once"
    assert (await said(ShellCommand(command="ls", wall=True)))[0] == "ask"
    assert (await said(ShellCommand(command="rm x", wall=True)))[0] == "deny"
    trust.add({file: text.encode()})
    write(file, text)
    assert await said() == ("allow", [])
    assert (await said(ShellCommand(command="rm x", wall=True)))[0] == "ask"


async def test_the_users_own_file_counts_whole(workspace, judge):
    file = write(workspace.parent / "config/freeact/permissions.toml", "")
    said, _ = judge(file)
    assert (await said())[0] == "ask"
    write(file, 'allow = ["shell:make *"]')
    assert await said() == ("allow", [])


@each("text", ["deny = ]", 'deny = "x"', 'alow = ["code"]', "deny = [1]"])
async def test_a_broken_file_keeps_its_rules_and_says_so_once(workspace, judge, text):
    file = write(workspace / ".freeact/permissions.toml", 'deny = ["shell:make *"]')
    said, _ = judge(file)
    write(file, text)
    verdict, [told] = await said()
    assert verdict == "deny"
    assert str(file) in told
    assert "before count" in told
    assert await said() == ("deny", [])


def test_a_file_that_is_saved_broken_again_and_again_is_told_of_once(workspace, tmp_path):
    file = write(workspace / ".freeact/permissions.toml", "")
    files = RuleFiles((file,), workspace, Trust(tmp_path / "own"))
    for number in range(5):  # looked at without a call, as while a long cell runs
        write(file, f"deny = ]  # {number}")
        assert files.rules
    assert len(files.notices()) == 1
    assert files.notices() == ()


@pytest.mark.parametrize("planted", [".freeact", ".freeact/permissions.toml"])
async def test_an_answer_is_never_kept_through_a_link_and_says_so(workspace, channel, planted, tmp_path):
    inside = workspace / "elsewhere"
    inside.mkdir()
    (inside / "permissions.toml").touch()
    gate = Gate(project=ProjectRules(workspace, Trust(tmp_path / "own")))
    (workspace / ".freeact").rmdir()
    (workspace / planted).parent.mkdir(exist_ok=True)
    (workspace / planted).symlink_to(inside if planted == ".freeact" else inside / "permissions.toml")
    emitter = Emitter(channel=channel, agent_id="agent-1")
    task = asyncio.create_task(gate.check(MAKE, AskerFake(policy=Policy(workspace=workspace), emitter=emitter)))
    request = await channel.receive()
    assert request.approve(remember="project")
    await task
    assert "symbolic link" in [await channel.receive() for _ in range(2)][1].content
    assert (inside / "permissions.toml").read_bytes() == b""
    await gate.check(MAKE, AskerFake(policy=Policy(workspace=workspace), emitter=emitter))  # it holds for the session


@pytest.mark.parametrize("broken", ["alow = []", None])
async def test_an_answer_that_cannot_be_kept_says_so(workspace, channel, broken, tmp_path):
    file = workspace / ".freeact/permissions.toml"
    file.write_text(broken) if broken else file.mkdir()
    gate = Gate(project=ProjectRules(workspace, Trust(tmp_path / "own")))
    emitter = Emitter(channel=channel, agent_id="agent-1")
    task = asyncio.create_task(gate.check(MAKE, AskerFake(policy=Policy(workspace=workspace), emitter=emitter)))
    assert (await channel.receive()).approve(remember="project")
    await task
    events = [await channel.receive() for _ in range(2)]
    assert "this session only" in events[1].content


async def test_one_look_serves_all_who_follow_until_the_last_of_them_ends(workspace, tmp_path, monkeypatch):
    monkeypatch.setattr(policy, "LOOK_SECONDS", 0)
    file = write(workspace / ".freeact/permissions.toml", "")
    files, other = (RuleFiles((file,), workspace, Trust(tmp_path / "own")) for _ in range(2))
    looked, read = [], RuleFiles.rules.fget
    monkeypatch.setattr(RuleFiles, "rules", property(lambda self: looked.append(self) or read(self)))
    followers = [[] for _ in range(20)]
    with ExitStack() as following:
        for rules in followers:
            following.enter_context(files.followed(rules.append))
        await eventually(lambda: len(followers[-1]) >= 3)
        assert {len(rules) for rules in followers} == {len(looked)}
        write(file, 'deny = ["write:x"]')
        await eventually(lambda: followers[0][-1] != followers[0][0])
    before = len(followers[0]), len(looked)
    with other.followed(followers[1].append):
        await eventually(lambda: len(looked) >= before[1] + 3)
    assert len(followers[0]) == before[0]
