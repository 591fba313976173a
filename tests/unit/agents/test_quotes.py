"""A fan-out is quoted after three items, one question agrees to a bound, and the bound holds exactly."""

import random
from decimal import Decimal

import pytest
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage
from support.tables import each

from freeact_sub import Agent, ApprovalRequest, Config, Notice
from freeact_sub.calls import FanOut
from freeact_sub.features import quotes
from freeact_sub.features.quotes import bound_for
from freeact_sub.testing import FakeKernelProvider, first_prompt

pytestmark = pytest.mark.features("quotes")

ROWS = 60
FAN_OUTS = 20


def rows_of(seed, shape):
    """Rows with skewed sizes of prompts and of answers, by a lognormal distribution."""
    rng = random.Random(seed)
    for number in range(ROWS):
        chars = int(rng.lognormvariate(6, 1)) + 20
        base = chars / 5 if shape == "answers grow with the prompt" else 80
        yield {"text": "x" * chars, "id": number, "out": max(1, int(base * rng.lognormvariate(0, 0.7)))}


def priced(**name):
    """A model with a known price, whose answers have the tokens that their prompts name."""

    def answer(messages, info):
        prompt = first_prompt(messages)
        wanted, most = int(prompt.partition(":")[0]), (info.model_settings or {}).get("max_tokens", 10**6)
        usage = RequestUsage(input_tokens=100 + len(prompt) // 4, output_tokens=min(wanted, most))
        return ModelResponse(parts=[TextPart("done")], usage=usage)

    return FunctionModel(answer, model_name="gpt-4o", **name)


@pytest.fixture
def opened(tmp_path):
    def make(**config):
        settings = Config(workspace=tmp_path, models={"max_concurrent": 4, **config.pop("models", {})}, **config)
        return Agent(settings, model=priced(), kernel_provider=FakeKernelProvider())

    return make


async def run_map(agent, rows, decide=lambda request: request.approve(), *, times=1):
    """Run a map with a person; return the questions, notices and the result."""

    async def program():
        return [await agent.map(rows[at::times], "{out}:{id}{text}") for at in range(times)]

    asked, told = [], []
    run = agent.run_program(program)
    async for event in run:
        if isinstance(event, ApprovalRequest):
            asked.append(event.call)
            decide(event)
        told += [event.content] if isinstance(event, Notice) else []
    return asked, told, await run.result()


@pytest.mark.slow
async def test_the_true_cost_lies_within_the_quoted_spread(opened, monkeypatch):
    within = 0
    for seed in range(FAN_OUTS):
        monkeypatch.setattr(quotes, "chance", random.Random(seed))  # chooses the pilots
        rows = [*rows_of(seed, "answers grow with the prompt" if seed % 2 else "answers are of any size")]
        async with opened() as agent:
            [call], _, result = await run_map(agent, rows)
            # the pilots' part is not in the quote
            spent, share = float(result.tree_usage.cost_usd), call.more / ROWS
            about, low, high = call.cost_usd
            assert low < about < high
            within += low <= spent * share <= high
    print(f"{within} of {FAN_OUTS} within the quoted spread")
    assert within >= 18


async def test_the_question_has_the_figures_and_the_agreed_bound_is_exact(opened, monkeypatch):
    rows = [*rows_of(1, "")]

    def too_low(request):
        call = request.call
        assert isinstance(call, FanOut)
        assert call.more == 57
        assert call.text.startswith("map: 57 more: about ")
        assert f"Run within {call.bound}?" in call.text
        request.approve()

    async with opened() as agent:
        for row in rows:
            row["out"] = 10
        for row in rows[:40]:
            row["out"] = 4_000
        chosen = {*random.Random(0).sample(range(ROWS), 3)}
        for at in chosen:
            rows[at]["out"] = 2  # the pilots tell nothing of the rest
        monkeypatch.setattr(quotes, "chance", random.Random(0))
        [call], _, result = await run_map(agent, rows, too_low)
        [done] = result.output
        bound = Decimal(call.bound.removeprefix("$"))
        pilots = sum(
            Decimal(100 + len(f"2:{rows[at]['id']}{rows[at]['text']}") // 4) * Decimal("0.0000025") + 2 * Decimal("0.00001")
            for at in chosen
        )
        assert result.tree_usage.cost_usd <= bound + pilots
        failed = [row for row in done if row["error"]]
        assert failed
        assert all("limit of cost_usd" in row["error"] for row in failed)


async def test_a_denial_ends_the_map_after_the_pilots(opened):
    async with opened() as agent:
        [_], _, result = await run_map(agent, [*rows_of(1, "")], lambda request: request.deny("too much"))
        assert result.status == "rejected"
        assert "too much" in result.error
        assert result.tree_usage.turns == 3


async def test_the_answer_holds_for_the_run(opened, monkeypatch):
    monkeypatch.setattr(quotes, "chance", random.Random(0))
    async with opened() as agent:
        rows = [*rows_of(1, "")]
        asked, _, result = await run_map(agent, [*rows, *rows_of(2, "")], times=2)
        assert len(asked) == 1, "the second fits into what is left"
        assert len(result.output) == 2
        asked, _, _ = await run_map(agent, [{**row, "id": row["id"] + 1000} for row in rows])
        assert len(asked) == 1, "another run asks again"


@pytest.mark.parametrize("config", [{"headless": "auto"}, {"headless": "deny"}, {"mode": "full"}])
async def test_the_settings_count_and_a_notice_has_the_figures_if_nobody_is_asked(opened, config):
    async with opened(**config) as agent:
        asked, told, result = await run_map(agent, [*rows_of(1, "")])
        assert asked == []
        assert any(text.startswith("map: 57 more: about") for text in told)
        assert not [row for row in result.output[0] if row["error"]]


@pytest.mark.parametrize("mode", ["plan", "ask", "auto"])
async def test_a_list_is_quoted_in_every_mode_in_which_a_person_answers(opened, mode):
    async with opened(mode=mode) as agent:
        asked, _, result = await run_map(agent, [*rows_of(1, "")], lambda request: request.deny("dear"))
    assert [(call.what, call.more) for call in asked] == [("map", 57)]
    assert result.tree_usage.turns == 3


async def test_a_yes_to_a_quote_adds_its_bound_to_what_a_prompt_may_take_without_one(tmp_path):
    def answer(messages, info):
        """10,000 tokens, at 600 dollars a million, for each row."""
        return ModelResponse(parts=[TextPart("done")], usage=RequestUsage(input_tokens=100, output_tokens=10_000))

    rows = [{"id": number} for number in range(20)]
    model = FunctionModel(answer, model_name="o1-pro")
    settings = Config(workspace=tmp_path, model_settings={"max_tokens": 10_000})
    async with Agent(settings, model=model, kernel_provider=FakeKernelProvider()) as agent:
        for headless in (False, True):
            run = agent.run_program(lambda: agent.map(rows, "{id}?", kept_in=tmp_path / f"kept-{headless}"))
            if headless:
                result = await run.result()
                ended = [row["error"] for row in result.output if row["error"]]
                assert 0 < len(ended) < 20
                assert all("`budget.cost_usd`, which has a default" in error for error in ended)
            else:
                async for event in run:
                    if isinstance(event, ApprovalRequest):
                        event.approve()
                result = await run.result()
                assert [row["error"] for row in result.output] == [None] * 20
                assert result.tree_usage.cost_usd > 100


async def test_always_agrees_to_one_bound_only(opened):
    def always(request):
        assert request.suggested == ()
        request.approve(remember="session")

    async with opened() as agent:
        rows = [*rows_of(1, "")]
        asked, _, _ = await run_map(agent, rows, always)
        assert len(asked) == 1
        asked, _, _ = await run_map(agent, [{**row, "id": row["id"] + 1000} for row in rows], always)
        assert len(asked) == 1


@pytest.mark.parametrize("config", [{"headless": "auto"}, {"headless": "allow"}, {"headless": None}])
async def test_a_rule_that_denies_holds_whoever_is_there(opened, tmp_path, config):
    rules = tmp_path / "rules.toml"
    rules.write_text('deny = ["fan_out"]')
    async with opened(**config, permission_files=(rules,)) as agent:
        asked, _, result = await run_map(agent, [*rows_of(1, "")])
        assert asked == []
        assert result.status == "rejected"
        assert result.tree_usage.turns == 3


async def test_a_program_that_reads_no_events_is_not_stopped(opened):
    async with opened() as agent:
        done = await agent.map([*rows_of(1, "")], "{out}:{id}{text}")
        assert not [row for row in done if row["error"]]


async def test_few_are_not_quoted_and_ask_many_is(opened):
    async with opened() as agent:
        asked, told, _ = await run_map(agent, [*rows_of(1, "")][:10])
        assert (asked, told) == ([], [])
        questions = []
        async for event in agent.run_program(lambda: agent.ask_many([f"5:{n}" for n in range(20)])):
            if isinstance(event, ApprovalRequest):
                questions.append(event.call)
                event.approve()
        assert [(call.what, call.more) for call in questions] == [("ask_many", 17)]


async def test_the_rest_runs_with_the_cheaper_model_that_was_chosen_within_the_bound(opened):
    asked_of_small = []

    def small(messages, info):
        asked_of_small.append(first_prompt(messages))
        return ModelResponse(parts=[TextPart("small")], usage=RequestUsage(input_tokens=100, output_tokens=2))

    def choose(request):
        with pytest.raises(ValueError, match="does not offer the model 'other'"):
            request.approve(model="other")
        assert request.approve(model="small")

    async with opened(models={"small": FunctionModel(small, model_name="gpt-4o-mini")}) as agent:
        [call], _, result = await run_map(agent, [*rows_of(1, "")], choose)
        about, low, high = call.cheaper["small"]
        assert low < about < high
        assert about < call.cost_usd[0]  # how far the bounds are apart is up to the rows that ran first
        assert "\n1 with small: $0.0" in call.text
        answers = [row["answer"] for row in result.output[0]]
        assert sorted({*answers}) == ["done", "small"]
        assert answers.count("done") == 3, "the pilots"
        assert len(asked_of_small) == 57
        assert result.tree_usage.cost_usd <= Decimal(call.bound.removeprefix("$")) + Decimal("0.01")


@each(("high", "bound"), [(2.6, "3"), (0.012, "0.015"), (95, "150"), (454_000, "500000"), (0, "1")])
def test_bounds_are_round_and_have_room(high, bound):
    assert bound_for(high) == Decimal(bound)
