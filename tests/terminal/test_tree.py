"""The tree of agents as `/agents` draws it, and the agents that a person can name."""

import io
from decimal import Decimal
from typing import Any

import pytest
from rich.console import Console

from freeact_sub.agents import AgentInfo
from freeact_sub.calls import FanOut
from freeact_sub.config.budget import Usage
from freeact_sub.show.agent_story import Stories
from freeact_sub.show.typed_commands import find_agent
from freeact_sub.terminal.drawing.area import AgentsTable


def agent(number: str, parent: str | None = None, **others: Any) -> AgentInfo:
    values = {
        "agent_id": f"agent-{number}",
        "parent_id": parent and f"agent-{parent}",
        "depth": 0,
        "description": "",
        "status": "running",
        "usage": Usage(),
        "seconds": 1.0,
    }
    return AgentInfo(**(values | others))


SPENT = Usage(turns=3, input_tokens=1200, output_tokens=34, cost_usd=Decimal("0.0123"), unpriced_turns=1)
TREE = [
    agent("aaaa0000", status="waiting", action="task: the north", usage=Usage(turns=1, input_tokens=9)),
    agent("bbbb1111", "aaaa0000", description="the north", action="run code: x = 1", usage=SPENT, seconds=12.34),
    agent("bccc2222", "aaaa0000", description="the\x1b[2Jsouth", status="kernel_lost"),
    agent("dddd3333", "bbbb1111", status="queued"),
]


def drawn(width: int) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width, markup=False, highlight=False).print(AgentsTable(agents=TREE, views=Stories()))
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_a_wide_terminal_has_a_row_for_each_agent_below_its_parent() -> None:
    lines = drawn(110)
    assert [" ".join(line.split()) for line in lines] == [
        "agent label status does turns time tokens cost",
        "aaaa waiting task: the north 1 1.0 s 9",
        "├ bbbb the north running run code: x = 1 3 12.3 s 1,234 ≥ $0.0123",
        "│ └ dddd queued 0 1.0 s 0",
        "└ bccc thesouth kernel lost 0 1.0 s 0",
    ]


def test_a_narrow_terminal_has_rows_that_keep_the_lines_of_the_tree() -> None:
    assert drawn(60) == [
        "aaaa · waiting",
        "│ 1 turn · 1.0 s · 9 tokens",
        "│ task: the north",
        "├ bbbb the north · running",
        "│ │ 3 turns · 12.3 s · 1,234 tokens · ≥ $0.0123",
        "│ │ run code: x = 1",
        "│ └ dddd · queued",
        "│     0 turns · 1.0 s · 0 tokens",
        "└ bccc thesouth · kernel lost",
        "    0 turns · 1.0 s · 0 tokens",
    ]


@pytest.mark.parametrize("width", [60, 110])
def test_what_a_fan_out_will_take_stands_below_while_its_agent_is_at_work(width: int) -> None:
    call = FanOut(
        what="map", more=57, tokens=(410_000, 300_000, 500_000), cost_usd=(1.9, 1.4, 2.6), seconds=360, bound="$3.00"
    )
    agents = [agent("aaaa0000", fan_out=call), agent("bbbb1111", status="completed", fan_out=call)]
    file = io.StringIO()
    Console(file=file, width=width, markup=False, highlight=False).print(AgentsTable(agents=agents, views=Stories()))
    _, _, below = " ".join(file.getvalue().split()).rpartition(" aaaa ")
    assert below == "map: 57 more: about 410k tokens (300k to 500k), $1.90 ($1.40 to $2.60), 6 min. Within $3.00."


@pytest.mark.parametrize("width", [20, 96, 100])
def test_no_row_is_longer_than_the_terminal(width: int) -> None:
    long = agent("eeee4444", "aaaa0000", description="label " * 9, action="run code: " + "y" * 90, usage=SPENT)
    file = io.StringIO()
    Console(file=file, width=width, markup=False, highlight=False).print(AgentsTable(agents=[*TREE, long], views=Stories()))
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) == (6 if width >= 96 else 13)
    assert "…" in file.getvalue()


@pytest.mark.parametrize(
    "beginning", ["agent-bbbb1111", "agent-bb", "bb", "bbbb", "BBBB1111", "the north", "bbbb the", "NORTH"]
)
def test_an_id_or_its_beginning_or_a_part_of_the_name_names_an_agent(beginning: str) -> None:
    assert find_agent(TREE, beginning) is TREE[1]


def test_agents_that_have_ended_do_not_make_a_beginning_ambiguous() -> None:
    assert find_agent(TREE, "b") is TREE[1]


@pytest.mark.parametrize(
    ("beginning", "why"),
    [
        ("agent-", "agent- matches several agents: aaaa, bbbb the north, dddd; type the id of one"),
        ("bc", "bccc thesouth is not at work (kernel lost)"),
        ("ff", "no agent ff is at work (/agents lists them)"),
    ],
)
def test_what_names_no_single_agent_at_work_is_told(beginning: str, why: str) -> None:
    with pytest.raises(LookupError) as error:
        find_agent(TREE, beginning)
    assert str(error.value) == why
