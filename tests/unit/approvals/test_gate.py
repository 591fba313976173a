"""The gate: who is asked, how answers arrive and how long they hold."""

import asyncio
import random
import threading
from pathlib import Path

import pytest
from support.askers import AskerFake

from freeact_sub.approvals import Gate, Policy, ProjectRules, load_rules, make_rules
from freeact_sub.approvals import policy as policies
from freeact_sub.approvals.policy import Rules
from freeact_sub.calls import CodeAction, McpCall, ShellCommand, SpawnCall, ToolCall
from freeact_sub.channel import Emitter, EventChannel
from freeact_sub.config.trust import Trust
from freeact_sub.errors import ApprovalDeniedError
from freeact_sub.events import ApprovalDecided, ApprovalRequest, Decision, Notice

CALLS = [
    CodeAction(code="1"),
    McpCall(server="a", tool="t"),
    McpCall(server="a", tool="u"),
    SpawnCall(prompt="p"),
    ToolCall(tool_name="mine"),
    ShellCommand(command="git push origin", wall=True),
]


@pytest.fixture
def policy(tmp_path):
    return Policy(workspace=tmp_path)


@pytest.fixture
def channel():
    return EventChannel()


@pytest.fixture
def emitter(channel):
    return Emitter(channel=channel, agent_id="agent-1")


@pytest.fixture
def ask(policy, emitter):
    def start(gate, call, policy=policy, **kwargs):
        return asyncio.create_task(gate.check(call, AskerFake(policy=policy, emitter=emitter, path=("agent-1",), **kwargs)))

    return start


async def test_questions_are_answered_in_any_order_each_by_its_own_event(channel, ask):
    gate = Gate()
    calls = [CodeAction(code=str(number)) for number in range(20)]
    tasks = [ask(gate, call, tool_call_id=call.code) for call in calls]
    requests = [await channel.receive() for _ in calls]
    for request in reversed(requests):
        assert request.tool_call_id == request.call.code
        assert request.approve() if int(request.call.code) % 2 else request.deny(f"no {request.call.code}")
        assert not request.approve(), "the first answer counts"
    for number, task in enumerate(tasks):
        await asyncio.wait({task})
        if number % 2:
            assert task.exception() is None
        else:
            assert task.exception().reason == f"no {number}"


async def test_a_cancelled_question_is_withdrawn_and_an_answer_comes_too_late(channel, ask):
    task = ask(Gate(), CALLS[0])
    request = await channel.receive()
    task.cancel()
    await asyncio.wait({task})
    answered = await channel.receive()
    assert isinstance(answered, ApprovalDecided)
    assert (answered.request_id, answered.allowed) == (request.request_id, False)
    assert not request.approve()


async def test_always_answers_open_questions_of_the_same_kind_as_well(channel, ask, emitter, policy):
    gate = Gate()
    first, same, other = [ask(gate, call) for call in (CALLS[0], CodeAction(code="2"), CALLS[3])]
    request = await channel.receive()
    request.approve(remember="session")
    await asyncio.wait_for(asyncio.gather(first, same), 120)
    await gate.check(CodeAction(code="3"), AskerFake(policy=policy, emitter=emitter))
    assert not other.done()
    gate.abandon()
    with pytest.raises(ApprovalDeniedError, match="nobody"):
        await other


@pytest.mark.parametrize("call", CALLS)
async def test_what_is_allowed_for_the_session_is_that_kind_alone(channel, ask, call):
    gate = Gate()
    task = ask(gate, call)
    (await channel.receive()).approve(remember="session")
    await task
    policy = Policy(workspace=Path("/work space"))
    assert [(await gate.ruling(other, policy)).verdict for other in CALLS] == [
        "allow" if other is call else "ask" for other in CALLS
    ]


async def test_what_is_denied_stays_denied_whatever_is_allowed_for_the_session(channel, ask, policy):
    rules = Rules(levels=(make_rules({"deny": ["shell:git push --force *"]}), *policy.rules.levels))
    policy, gate = Policy(workspace=policy.workspace, rules=rules), Gate()
    task = ask(gate, ShellCommand(command="git push origin", wall=True), policy)
    (await channel.receive()).approve(remember="session", pattern="shell")
    await task
    assert (await gate.ruling(ShellCommand(command="git commit", wall=True), policy)).verdict == "allow"
    assert (await gate.ruling(ShellCommand(command="git push --force origin", wall=True), policy)).verdict == "deny"


async def test_what_is_denied_by_the_time_of_the_answer_does_not_run(channel, ask, policy, tmp_path):
    deny = policy.with_rules(Rules(levels=(make_rules({"deny": ["file:**/hidden"]}),)))
    (tmp_path / "shown").touch()
    (tmp_path / "link").symlink_to("shown")
    for command in ("cat link", "cat l*"):
        task = ask(Gate(), ShellCommand(command=command, outside=True), policy=deny)
        request = await channel.receive()
        (tmp_path / "link").unlink()
        (tmp_path / "link").symlink_to("hidden")
        request.approve()
        with pytest.raises(ApprovalDeniedError, match="hidden"):
            await task
        await channel.receive()
        (tmp_path / "link").unlink()
        (tmp_path / "link").symlink_to("shown")


async def test_the_pattern_can_be_edited_and_is_kept_in_the_project(channel, ask, policy, tmp_path):
    file = tmp_path / ".freeact" / "permissions.toml"
    gate = Gate(project=ProjectRules(tmp_path, Trust(tmp_path / "own")))
    task = ask(gate, ShellCommand(command="make all && git push origin", wall=True))
    request = await channel.receive()
    assert request.suggested == ("shell:make all", "shell:git push origin")
    with pytest.raises(ValueError, match="kind"):
        request.approve(remember="project", pattern="git push")
    assert request.approve(remember="project", pattern="shell:make *")
    await task
    kept = Policy(workspace=tmp_path, rules=load_rules([file]))
    assert (await Gate().ruling(ShellCommand(command="make clean", wall=True), kept)).verdict == "allow"
    assert (await Gate().ruling(ShellCommand(command="git push", wall=True), kept)).verdict == "ask"
    assert Trust(tmp_path / "own").knows(file, file.read_bytes())


async def test_a_project_that_cannot_be_written_to_is_told_and_the_session_remembers(channel, ask, policy, tmp_path):
    (tmp_path / ".freeact").touch()
    gate = Gate(project=ProjectRules(tmp_path, Trust(tmp_path / "own")))
    task = ask(gate, CALLS[0])
    assert (await channel.receive()).approve(remember="project")
    await task
    assert isinstance(await channel.receive(), ApprovalDecided)
    notice = await channel.receive()
    assert isinstance(notice, Notice)
    assert "this session only" in notice.content
    assert (await gate.ruling(CALLS[0], policy)).verdict == "allow"


@pytest.fixture
def kept(tmp_path):
    """Answers are kept in a project; returns what its file has."""
    file = tmp_path / ".freeact" / "permissions.toml"
    gate = Gate(project=ProjectRules(tmp_path, Trust(tmp_path / "own")))
    return gate, lambda: file.read_text() if file.exists() else ""


async def test_always_that_comes_after_a_no_writes_no_rule(channel, ask, kept):
    gate, written = kept
    task = ask(gate, CALLS[0])
    request = await channel.receive()
    assert request.deny("no")
    assert not request.approve(remember="project")
    with pytest.raises(ApprovalDeniedError, match="no"):
        await task
    assert not gate.answer(request.request_id, Decision(allowed=True, remember="project"))
    assert written() == ""
    assert gate.session == ()


async def test_a_rule_is_written_only_if_its_answer_is_the_first_of_many_from_threads(channel, ask, kept):
    gate, written = kept
    for number in range(60):
        before, task = written(), ask(gate, ToolCall(tool_name=f"tool-{number}"))
        while not isinstance(request := await channel.receive(), ApprovalRequest):
            pass
        barrier = threading.Barrier(3)

        def answer(give):
            barrier.wait()
            return give()

        gives = (request.deny, lambda: request.approve(remember="project"), request.deny)
        taken = await asyncio.gather(*(asyncio.to_thread(answer, give) for give in gives))
        await asyncio.wait({task}, timeout=120)
        assert sum(taken) == 1
        assert (written() != before) == taken[1]
        assert (task.exception() is None) == taken[1]


async def test_a_withdrawn_question_writes_no_rule(channel, ask, kept):
    gate, written = kept
    task = ask(gate, CALLS[0])
    request = await channel.receive()
    task.cancel()
    await asyncio.wait({task})
    assert not request.approve(remember="project")
    assert written() == ""


async def test_a_wrong_answer_writes_no_rule_and_leaves_the_question_open(channel, ask, kept):
    gate, written = kept
    task = ask(gate, CALLS[1])
    request = await channel.receive()
    for wrong in ({"pattern": "git push"}, {"code": "2"}):
        with pytest.raises(ValueError):
            request.approve(remember="project", **wrong)
    assert written() == ""
    assert request.approve()
    await task


async def test_rules_of_answers_that_come_at_the_same_time_are_all_written(channel, ask, kept):
    gate, written = kept
    tasks = [ask(gate, ToolCall(tool_name=f"tool-{number}")) for number in range(20)]
    requests = [await channel.receive() for _ in tasks]
    await asyncio.gather(*(asyncio.to_thread(request.approve, remember="project") for request in requests))
    await asyncio.gather(*tasks)
    assert all(f"tool-{number}" in written() for number in range(20))


async def test_a_disk_that_does_not_answer_stops_neither_the_loop_nor_the_call(channel, ask, tmp_path, monkeypatch):
    stuck = threading.Event()
    project = ProjectRules(tmp_path, Trust(tmp_path / "own"))
    monkeypatch.setattr(project, "allow", lambda patterns: stuck.wait(60))
    monkeypatch.setattr(policies, "SAVE_SECONDS", 0.1)
    try:
        task = ask(Gate(project=project), CALLS[0])
        assert (await channel.receive()).approve(remember="project")
        await asyncio.wait_for(task, 50)
        assert "could not be written within" in [await channel.receive() for _ in range(2)][1].content
    finally:
        stuck.set()


async def test_nobody_to_answer_means_no_and_never_a_hang(channel, ask):
    gate = Gate()
    channel.abandon()
    with pytest.raises(ApprovalDeniedError, match="nobody"):
        await asyncio.wait_for(ask(gate, CALLS[0]), 120)


@pytest.mark.parametrize(
    ("headless", "mode", "allowed"),
    [
        ("allow", "ask", True),
        ("deny", "ask", False),
        ("deny", "auto", False),
        ("auto", "plan", False),
        ("auto", "ask", False),
        ("auto", "auto", True),
        ("auto", "full", True),
    ],
)
async def test_headless_is_answered_at_once_and_the_events_tell_why(channel, ask, tmp_path, headless, mode, allowed):
    policy = Policy(workspace=tmp_path, mode=mode)
    task = ask(Gate(headless=headless), ShellCommand(command='eval "$x"', wall=True), policy)
    await asyncio.wait({task}, timeout=120)
    request, answered = await channel.receive(), await channel.receive()
    assert request.headless
    assert not request.approve(), "nobody is asked"
    assert (answered.request_id, answered.allowed) == (request.request_id, allowed)
    assert "nobody" in answered.reason
    if allowed:
        assert task.exception() is None
    else:
        assert task.exception().reason == answered.reason


async def test_headless_does_not_allow_what_is_denied(channel, ask):
    for command in ("rm -rf /", "mkfs.ext4 /dev/sda1"):
        with pytest.raises(ApprovalDeniedError):
            await ask(Gate(headless="allow"), ShellCommand(command=command, wall=True))


async def test_asking_stops_the_clock_that_is_given(channel, ask):
    log: list[str] = []

    class Pause:
        def __enter__(self):
            log.append("stopped")

        def __exit__(self, *_):
            log.append("goes on")

    task = ask(Gate(), CALLS[0], pause=Pause())
    request: ApprovalRequest = await channel.receive()
    assert log == ["stopped"]
    request.approve()
    await task
    assert log == ["stopped", "goes on"]


async def test_a_request_knows_the_answer_for_when_nobody_is_there(channel, ask, policy):
    task = ask(Gate(), CALLS[0])
    request = await channel.receive()
    assert request.if_nobody == Decision(allowed=False, reason=request.if_nobody.reason)
    assert 'headless="allow"' in request.if_nobody.reason
    request.decide(request.if_nobody)
    await asyncio.wait({task})
    assert isinstance(task.exception(), ApprovalDeniedError)


@pytest.mark.slow
async def test_eight_askers_at_two_depths_answered_in_random_order_200_times(policy):
    chance = random.Random(4)
    for round_number in range(200):
        channel, gate = EventChannel(64), Gate()
        names = [f"{depth}-{number}" for depth in (1, 2) for number in range(4)]
        pens = {name: Emitter(channel=channel, agent_id=name, depth=int(name[0])) for name in names}
        tasks = {
            name: asyncio.create_task(
                gate.check(
                    CodeAction(code=name),
                    AskerFake(policy=policy, emitter=pens[name], path=("root", name), tool_call_id=f"call-{name}"),
                )
            )
            for name in chance.sample(names, 8)
        }
        requests = [await channel.receive() for _ in names]
        assert {request.agent_id for request in requests} == set(names)
        said = {name: chance.choice([True, False]) for name in names}
        for request in chance.sample(requests, 8):
            name = request.call.code
            assert (request.agent_id, request.tool_call_id, request.path[-1]) == (name, f"call-{name}", name)
            assert request.approve() if said[name] else request.deny(f"{round_number} {name}")
        await asyncio.wait(tasks.values(), timeout=120)
        for name, task in tasks.items():
            error = task.exception()
            assert (error is None) if said[name] else error.reason == f"{round_number} {name}"
        answers = [await channel.receive() for _ in names]
        by_request = {answer.request_id: answer for answer in answers}
        assert all(by_request[request.request_id].allowed is said[request.call.code] for request in requests)


async def test_without_an_answerer_all_are_decided_at_once(policy):
    channel = EventChannel(64)
    pens = [Emitter(channel=channel, agent_id=str(number), depth=1 + number % 2) for number in range(8)]
    gate = Gate(headless="auto")
    tasks = [asyncio.create_task(gate.check(CodeAction(code="1"), AskerFake(policy=policy, emitter=pen))) for pen in pens]
    done, waiting = await asyncio.wait(tasks, timeout=120)
    assert not waiting
    assert all(isinstance(task.exception(), ApprovalDeniedError) for task in done)
