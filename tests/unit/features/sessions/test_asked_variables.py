"""A session that goes on in a mode that may do more: a person is asked before its variables are read. Kernels are fakes."""

import pytest
from pydantic_ai.messages import ToolCallPart, UserPromptPart
from support.agents import cell, of_kind, read
from support.tables import each

from freeact_sub.approvals.gate import decide
from freeact_sub.approvals.policy import Policy, Rules, make_rules, narrowed
from freeact_sub.calls import SavedVariables
from freeact_sub.events import ApprovalRequest, CodeExecutionOutput, Decision, Notice
from freeact_sub.modes import MODES
from freeact_sub.testing import FakeKernel

LEFT_OUT = (
    "2 variables were saved in mode plan and not brought back, because this kernel may do more (mode {mode} asks less than "
    "mode plan): x, y."
)
TO_HAVE_THEM = " To have them, continue in mode plan"
USE = [cell("print(x + y)"), "done"]


def prompts(messages):
    return [part.content for m in messages for part in m.parts if isinstance(part, UserPromptPart)]


def answering(allowed):
    return lambda request: Decision(allowed=allowed or not isinstance(request.call, SavedVariables))


def asked(events):
    return [event for event in of_kind(events, ApprovalRequest) if isinstance(event.call, SavedVariables)]


def outputs(events):
    return [event.text for event in of_kind(events, CodeExecutionOutput)]


async def planned(make):
    async with make([cell("x, y = 1, 2"), "done"], config={"mode": "plan"}, session="new") as agent:
        await read(agent.run("plan"))
    return agent.session_id


async def goes_on(make, session, mode, rule, **config):
    async with make(["unused"] * 2 + USE, config={"mode": mode, **config}, session=session) as again:
        events, _ = await read(again.run("go on"), rule)
        return events, prompts(again.history)[1]


@pytest.mark.parametrize("mode", ["ask", "auto", "full"])
async def test_with_a_yes_they_come_back_and_the_question_says_all(make, store, mode):
    events, prompt = await goes_on(make, await planned(make), mode, answering(True))
    (request,) = asked(events)
    more = f"mode {mode} asks less than mode plan"
    assert request.call == SavedVariables(variables="x\ny", saved_in="mode plan", more=more)
    assert request.call.question == "asks to bring back variables that were saved in mode plan"
    assert request.suggested == ()  # no rule could answer it
    assert more in request.call.text
    assert prompt.startswith("[Your kernel is new. These variables came back:\n- x\n- y]")
    assert outputs(events) == ["3"]


@pytest.mark.parametrize("mode", ["ask", "auto", "full"])
async def test_with_a_no_person_and_model_read_which_were_left_out(make, store, mode):
    events, prompt = await goes_on(make, await planned(make), mode, answering(False))
    left_out = LEFT_OUT.format(mode=mode)
    assert prompt.startswith(
        f"[Your kernel is new. No variables came back.\n{left_out} Make them again where you need them.]"
    )
    assert left_out + TO_HAVE_THEM in [event.content for event in of_kind(events, Notice)]
    assert "NameError" in outputs(events)[0]


@pytest.mark.parametrize("headless", ["allow", "auto", "deny"])
async def test_where_nobody_is_they_are_left_out_whatever_answers_questions(make, store, headless):
    events, prompt = await goes_on(make, await planned(make), "full", answering(True), headless=headless)
    assert LEFT_OUT.format(mode="full") in prompt
    assert len(asked(events)) == 1
    assert "NameError" in outputs(events)[0]


async def test_a_kernel_that_may_do_no_more_gets_them_without_a_question(make, store):
    events, _ = await goes_on(make, await planned(make), "plan", answering(False))
    assert asked(events) == []
    assert outputs(events) == ["3"]


@each("mode", MODES)
def test_no_rule_lets_them_through_and_one_can_forbid_them(tmp_path, mode):
    call = SavedVariables(variables="x", saved_in="mode plan", more="it has the network")
    for verdict, expected in (("allow", "ask"), ("ask", "ask"), ("deny", "deny")):
        policy = Policy(workspace=tmp_path, mode=mode, rules=Rules(levels=(make_rules({verdict: ["variables"]}),)))
        ruling = decide(call, policy)
        assert ruling.verdict == expected
        assert ruling.needs_person is (expected == "ask")
        assert decide(call, narrowed(policy, "full")).verdict == expected


async def test_variables_that_were_left_out_stay_until_there_are_others_of_the_same_name(make, store, monkeypatch):
    kept = []

    async def note(self, folder, *, max_bytes=None, keep=()):
        kept.append(set(keep))
        return await save(self, folder)

    save = FakeKernel.snapshot
    session = await planned(make)
    monkeypatch.setattr(FakeKernel, "snapshot", note)
    script = ["unused"] * 2 + [cell("x = 5"), "done", ToolCallPart("reset_kernel", {}), "done"]
    async with make(script, config={"mode": "full"}, session=session) as again:
        await read(again.run("go on"), answering(False))
        await again.fork()  # by now they are saved
        assert kept == [{"x", "y"}]
        await read(again.run("start again"))
        await again.fork()
    assert kept[-1] == set()
