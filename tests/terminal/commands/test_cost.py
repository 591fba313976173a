"""What a person reads of the cost: an unknown price is said once, by `/cost`."""

from decimal import Decimal

import pytest

from freeact_sub.config.budget import Usage
from freeact_sub.show.rewinding import cost_text


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
    assert cost_text(usage).split("\n") == [f"all runs, children included: {told[0]}", *told[1:]]
    assert "unknown" not in str(usage)
