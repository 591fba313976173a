"""What a person reads of the cost: an unknown price is said once, by `/cost`."""

from decimal import Decimal

import pytest

from freeact_sub.config.budget import RootBudget, Usage
from freeact_sub.show.typed_commands import cost_text


@pytest.mark.parametrize(
    ("usage", "told"),
    [
        (Usage(turns=1, input_tokens=9, cost_usd=Decimal("0.5")), ["turns 1, tool calls 0, tokens 9, $0.5000"]),
        (
            Usage(turns=2, input_tokens=9, unpriced_turns=2),
            ["turns 2, tool calls 0, tokens 9", "The price of 2 requests is not known: the cost leaves that out."],
        ),
        (
            Usage(turns=2, input_tokens=9, cost_usd=Decimal("0.5"), unpriced_turns=1),
            [
                "turns 2, tool calls 0, tokens 9, at least $0.5000",
                "The price of 1 request is not known: the cost leaves that out.",
            ],
        ),
    ],
)
def test_an_unknown_price_is_said_by_cost_alone(usage: Usage, told: list[str]) -> None:
    bound = "A prompt may take about $10; the setting `budget.cost_usd` changes that (`inf`: no bound)."
    assert cost_text(usage, RootBudget()).split("\n") == [f"all runs, children included: {told[0]}", *told[1:], bound]
    assert "unknown" not in str(usage)


def test_cost_tells_the_bound_that_was_given() -> None:
    told = {amount: cost_text(Usage(), RootBudget(cost_usd=amount)).split("\n")[-1] for amount in ("2.50", "inf")}
    assert told == {
        "2.50": "A prompt may take $2.50 (setting `budget.cost_usd`).",
        "inf": "A prompt may take any amount (setting `budget.cost_usd`).",
    }
