"""Eight agents at two depths ask at the same time: no answer is lost, none goes to another, nobody waits for nobody."""

import random

import pytest
from pydantic_ai.messages import ModelResponse
from support.agents import cell, of_kind, task
from support.thorough import THOROUGH

from freeact_sub.calls import CodeAction
from freeact_sub.events import AgentFinished, AgentStarted, ApprovalDecided, ApprovalRequest, Decision, ToolOutput
from freeact_sub.testing import first_prompt

ASKERS, ROUNDS_OF_A_RUN, RUNS = 8, 10 if THOROUGH else 5, 5 if THOROUGH else 2
CONFIG = {"subagents": {"max_depth": 2, "max_concurrent": 20, "budget": {"turns": 100}}}


def script(messages, _info):
    """The root starts four askers, and four children that start an asker each."""
    prompt, turn = first_prompt(messages), sum(isinstance(message, ModelResponse) for message in messages)
    if prompt.startswith("ask"):
        return cell(f"'{prompt} round {turn}'") if turn < ROUNDS_OF_A_RUN else f"{prompt} ended"
    if prompt.startswith("pass on"):
        return task(prompt.removeprefix("pass on ")) if turn == 0 else "passed on"
    last = messages[-1].parts[-1]
    if last.part_kind == "user-prompt":
        return [
            *(task(f"ask {n}") for n in range(ASKERS // 2)),
            *(task(f"pass on ask deep {n}") for n in range(ASKERS // 2)),
        ]
    return "all have ended"


def answer_for(request, chance):
    return Decision(allowed=True) if chance.random() < 0.5 else Decision(allowed=False, reason=f"no to {request.call.code}")


@pytest.mark.slow
async def test_answers_in_random_order_in_many_rounds(make):
    chance, rounds = random.Random(4), 0
    async with make(script, config={**CONFIG, "event_buffer": 1000}) as agent:
        for _ in range(RUNS):
            events, waiting, given = [], [], {}
            async with agent.run("go") as run:
                async for event in run:
                    events.append(event)
                    if not isinstance(event, ApprovalRequest):
                        continue
                    if not isinstance(event.call, CodeAction):
                        event.approve(remember="session")
                        continue
                    waiting.append(event)
                    if len(waiting) == ASKERS:
                        assert {request.depth for request in waiting} == {1, 2}
                        chance.shuffle(waiting)
                        for request in waiting:
                            given[request.tool_call_id, request.agent_id] = request.call.code, answer_for(request, chance)
                            assert request.decide(given[request.tool_call_id, request.agent_id][1])
                        waiting.clear()
                        rounds += 1
                assert (await run.result()).status == "completed"
            assert len(given) == ASKERS * ROUNDS_OF_A_RUN
            outputs = {(event.tool_call_id, event.agent_id): event for event in of_kind(events, ToolOutput)}
            for key, (code, decision) in given.items():
                if decision.allowed:
                    assert (outputs[key].outcome, outputs[key].content) == ("success", code)
                else:
                    assert (outputs[key].outcome, outputs[key].content) == ("denied", f"denied: no to {code}")
            assert len(of_kind(events, ApprovalDecided)) == len(of_kind(events, ApprovalRequest))
            assert {event.status for event in of_kind(events, AgentFinished)} == {"completed"}
            assert len(of_kind(events, AgentStarted)) == 1 + ASKERS + ASKERS // 2
    assert rounds == ROUNDS_OF_A_RUN * RUNS


@pytest.mark.parametrize(("headless", "outcome"), [("deny", "denied"), ("auto", "denied"), ("allow", "success")])
@pytest.mark.slow
async def test_without_anybody_to_answer_all_are_decided_at_once(make, headless, outcome):
    async with make(script, config={**CONFIG, "headless": headless}) as agent:
        events = [event async for event in agent.stream("go")]
    requests, answers = of_kind(events, ApprovalRequest), of_kind(events, ApprovalDecided)
    assert [request.request_id for request in requests] != []
    assert {request.request_id for request in requests} == {answer.request_id for answer in answers}
    assert {answer.allowed for answer in answers} == {outcome == "success"}
    calls = of_kind(events, ToolOutput)
    assert {event.outcome for event in calls} == {outcome}
    assert events[-1].status == "completed"


async def test_a_reader_that_goes_away_leaves_no_question_open(make):
    async with make(script, config=CONFIG) as agent:
        run, waiting = agent.run("go"), []
        async for event in run:
            if isinstance(event, ApprovalRequest):
                if isinstance(event.call, CodeAction):
                    waiting.append(event)
                else:
                    event.approve(remember="session")
                if len(waiting) == ASKERS:
                    break
        await run.aclose()
        assert run.status == "cancelled"
        assert not any(request.approve() for request in waiting)
