"""A person is asked before a limit of a budget ends a run. Kernels are fakes."""

import asyncio

import pytest
from support.agents import cell, check_stream, finished, of_kind, read, task
from support.tables import each

from freeact_sub import Agent, Budget, Config
from freeact_sub.agents.feature import Feature, RunPart
from freeact_sub.events import AgentFinished, Cancelled, QuestionAnswered, QuestionRequest
from freeact_sub.testing import FakeKernelProvider, ScriptedModel, first_prompt

pytestmark = pytest.mark.features("limits")


def endless(messages, info):
    """Work on for ever, also in children, with some 50 words a turn; report at a limit."""
    if "child" in first_prompt(messages):
        return [cell(f"{len(messages)}")]
    return ["word " * 50, cell(f"print({len(messages)})")] if info.function_tools else "the report"


@pytest.fixture
def run(tmp_path):
    """Run a prompt; each question gets the next answer, `None` none."""

    async def run(script, answers, *, budget=None, name="o1-pro", on_question=lambda _: None, features=None, **config):
        asked, left = [], [*answers]

        def answer(event):
            if isinstance(event, QuestionRequest):
                asked.append(event)
                on_question(event)
                if left and (given := left.pop(0)) is not None:
                    event.answer(given)

        settings = Config(workspace=tmp_path, **{"mode": "full", **config})
        chosen = {} if features is None else {"features": features}
        model = ScriptedModel(script, name=name)
        async with Agent(settings, model=model, kernel_provider=FakeKernelProvider(), **chosen) as agent:
            running = agent.run("root", budget=budget or Budget())
            events, result = await asyncio.wait_for(read(running, on_event=answer), 60)
            assert not running.open_requests
        return asked, events, result

    return run


BOUNDS = [
    (Budget(turns=2), "limit of turns is reached: 2 of 2, for this prompt."),
    (Budget(tool_calls=2), "limit of tool calls is reached: 2 of 2, for this prompt."),
    (Budget(requests=3), "limit of requests to models is reached: 3 of 3, for this prompt with all its children."),
    (Budget(tokens=9_000), "of 9,000, for this prompt with all its children. The next request may take"),
    (Budget(cost_usd=2), "of $2.00, for this prompt with all its children. The next request may take $"),
]


@each(("budget", "words"), BOUNDS, ids=["turns", "tool calls", "requests", "tokens", "money"], together=True)
async def test_a_bound_is_raised_once_and_then_ends_the_run_as_it_does_for_nobody(run, budget, words):
    asked, _, alone = await run(endless, [], budget=budget)
    assert len(asked) == 1
    asked, events, result = await run(endless, ["more", "stop"], budget=budget)
    assert words in asked[0].prompt
    assert len(asked) == 2
    assert [event.text for event in of_kind(events, QuestionAnswered)][1] == "no, stop"
    assert (result.status, result.text) == (alone.status, alone.text) == ("limit", "the report")
    assert result.usage.turns > alone.usage.turns
    ((name, bound),) = budget.model_dump(exclude_none=True).items()
    assert getattr(result.tree_usage, name, 0) <= 2 * bound + 1


async def test_money_may_be_typed_and_another_text_is_asked_again(run):
    asked, _, result = await run(endless, ["a lot", "$1.50", "stop"], budget=Budget(cost_usd=2))
    assert asked[1].prompt.startswith(
        "'a lot' is no answer: choose a number of the list, or type an amount such as $2.50. The limit of money"
    )
    assert "of $3.50" in asked[2].prompt
    assert 2 < result.tree_usage.cost_usd <= 3.5


@each("bound", [{"cost_usd": 0.001}, {"tokens": 1_000}])
async def test_a_yes_is_enough_for_the_next_request_where_that_takes_more_than_the_bound(run, bound):
    asked, _, result = await run(endless, ["more", "stop"], budget=Budget(**bound))
    assert (len(asked), result.usage.turns > 0) == (2, True)


async def test_a_no_ends_it_where_an_amount_may_be_typed_and_a_yes_is_asked_how_much(run):
    asked, _, result = await run(endless, ["yes", "No", "more"], budget=Budget(cost_usd=2))
    assert asked[1].prompt.startswith(
        "'yes' is no answer: choose a number of the list, or type an amount such as $2.50. The "
    )
    assert (len(asked), result.status) == (2, "limit")


async def test_the_usual_bound_on_money_is_asked_about_too(run):
    asked, _, result = await run(
        lambda m, i: ["w " * 8_000, cell(f"{len(m)}")] if i.function_tools else "report", ["more", "stop"]
    )
    assert "of $10.00" in asked[0].prompt
    assert "of $20.00" in asked[1].prompt
    assert (result.status, result.tree_usage.cost_usd > 20) == ("limit", True)


async def test_a_childs_own_bound_ends_it_unasked_and_that_of_the_prompt_asks(run):
    def script(messages, info):
        if "child" in first_prompt(messages):
            return [cell(f"{len(messages)}")] if info.function_tools else "the report"
        return task("child", description="sums", max_turns=2) if len(messages) == 1 else "done"

    asked, events, result = await run(script, ["more"], budget=Budget(turns=3))
    assert (asked, finished(events)["sums"].status, result.output) == ([], "limit", "done")
    asked, events, result = await run(script, ["more"] * 3, budget=Budget(requests=2))
    assert "requests to models is reached: 2 of 2, for this prompt with all its children" in asked[0].prompt
    assert result.output == "done"


async def test_a_part_of_a_turn_from_a_feature_is_a_turn(run):
    class Generous(RunPart):
        async def limit(self, reached, asker):
            return 0.5 if reached.bound < 4 else 0.0

    class Giving(Feature):
        def run(self, agent):
            return Generous()

    _, _, result = await run(endless, [], budget=Budget(turns=2), features=(Giving(),))
    assert (result.status, result.usage.turns) == ("limit", 5)


async def test_a_childs_own_bound_holds_where_that_of_the_prompt_which_came_first_is_raised(run):
    def script(messages, info):
        if "child" in first_prompt(messages):
            return [cell(f"{len(messages)}")] if info.function_tools else "the report"
        return task("child", description="sums") if len(messages) == 1 else "done"

    budget, own = Budget(requests=4), {"budget": {"requests": 6}}
    asked, events, _ = await run(script, ["more"] * 3, budget=budget, subagents=own)
    assert all("with all its children" in question.prompt for question in asked)
    assert (finished(events)["sums"].status, finished(events)["sums"].usage.turns) == ("limit", 6)


@each(
    ("bound", "given", "times"), [({"turns": 2}, "yes", 1), ({"turns": 2}, {"name": "Ada"}, 1), ({"cost_usd": 1}, "yes", 3)]
)
async def test_a_program_that_answers_all_questions_alike_raises_nothing_and_its_run_ends_as_for_nobody(
    run, bound, given, times
):
    asked, events, result = await run(endless, [given] * 10, budget=Budget(**bound))
    assert (result.status, result.text, len(asked)) == ("limit", "the report", times)
    last = of_kind(events, QuestionAnswered)[-1]
    assert last.answered or last.reason.startswith("the answer is none: "), last


async def test_of_all_children_that_reach_one_bound_one_asks_and_a_no_is_said_once(run):
    def script(messages, info):
        if "child" in first_prompt(messages):
            return [cell(f"{len(messages)}")]
        return [task(f"child {n}", description=f"{n}") for n in range(5)] if len(messages) == 1 else "done"

    asked, events, result = await run(script, ["more", "stop"], budget=Budget(requests=20), subagents={"salvage": False})
    assert ["20 of 20" in asked[0].prompt, "40 of 40" in asked[1].prompt] == [True, True]
    assert len(asked) == 2
    assert (result.status, {end.status for end in of_kind(events, AgentFinished)}) == ("limit", {"limit"})


@each("how", [{"headless": "allow"}, {"features": ()}], ids=["headless", "bare"])
async def test_nobody_is_asked_where_nobody_is_there(run, how):
    asked, events, result = await run(endless, ["more"], budget=Budget(turns=2), **how)
    assert not asked
    assert not of_kind(events, QuestionAnswered)
    assert (result.status, result.usage.turns) == ("limit", 3)


async def test_a_reader_that_knows_no_questions_does_not_wait_and_one_that_shows_them_does(run, tmp_path):
    _, events, result = await run(endless, [], budget=Budget(turns=2))
    assert [event.reason for event in of_kind(events, QuestionAnswered)] == ["nobody is there to answer"]
    assert result.status == "limit"
    later = []

    def show(event):
        event.shown()
        later.append(asyncio.get_running_loop().call_later(0.05, event.answer, "stop" if later else "more"))

    asked, _, result = await run(endless, [], budget=Budget(turns=2), on_question=show)
    assert (len(asked), result.usage.turns) == (2, 5)


async def test_a_cancel_while_the_question_is_open_leaves_nothing(tmp_path):
    model = ScriptedModel(endless)
    config = Config(workspace=tmp_path, mode="full", approval_timeout_seconds=60)
    async with Agent(config, model=model, kernel_provider=FakeKernelProvider()) as agent:
        run, events = agent.run("root", budget=Budget(turns=2)), []
        async for event in run:
            events.append(event)
            if isinstance(event, QuestionRequest):
                event.shown()
                run.cancel()
        check_stream(events)
        assert not run.open_requests
        assert (await run.result()).status == "cancelled"
        assert [event.reason for event in of_kind(events, QuestionAnswered)] == ["cancelled"]
        assert of_kind(events, Cancelled)
        _, again = await read(agent.run("again", budget=Budget(turns=1)))
        assert again.status == "limit"
