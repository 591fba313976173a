"""The ledger: budgets are merged and cut, and what is reserved and spent never passes a bound, whoever asks at once."""

import asyncio
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from support.tables import each
from support.thorough import examples
from support.waiting import turns

from freeact_sub.agents.money import LEAST, Account, Estimate, Ledger
from freeact_sub.config.budget import Budget, Usage
from freeact_sub.errors import FreeactError, LimitReachedError

counts = st.none() | st.integers(0, 50)
budgets = st.builds(
    Budget,
    turns=counts,
    tool_calls=counts,
    tokens=st.none() | st.integers(0, 100_000),
    cost_usd=st.none() | st.decimals(0, 10, places=3),
    seconds=st.none() | st.floats(0, 1000),
    children=counts,
    depth=st.none() | st.integers(0, 10),
)


@given(budgets, budgets, budgets)
def test_a_childs_budget_is_what_it_asks_for_else_the_default_and_never_more_than_is_left(asked, defaults, left):
    given_ = asked.over(defaults).cut(left)
    for name, bound in given_:
        wanted = getattr(asked, name) if getattr(asked, name) is not None else getattr(defaults, name)
        bounds = [value for value in (wanted, getattr(left, name)) if value is not None]
        assert bound == (min(bounds) if bounds else None)


@given(budgets, budgets)
def test_a_childs_budget_never_passes_what_its_parents_account_has_left(bounds, asked):
    account = Ledger().open("agent-a", bounds)
    child = asked.cut(account.remaining(seconds=bounds.seconds))
    for name, bound in child:
        above = getattr(bounds, name)
        if above is not None:
            assert bound is not None
            assert bound <= above
    if bounds.depth is not None:
        assert child.depth <= max(0, bounds.depth - 1)


@each(
    ("field", "value"),
    [
        ("turns", -1),
        ("tool_calls", 1.5),
        ("tokens", "many"),
        ("cost_usd", Decimal(-1)),
        ("cost_usd", Decimal("NaN")),
        ("seconds", float("inf")),
        ("seconds", float("nan")),
        ("children", -3),
        ("depth", 11),
        ("tokenz", 1),
    ],
)
def test_a_wrong_bound_is_named(field, value):
    with pytest.raises(ValidationError, match=field):
        Budget.model_validate({field: value})


def estimate(size: int, output: int, report: int = 0) -> Estimate:
    return Estimate(
        input_tokens=size,
        output_tokens=output,
        price=lambda a, b: Decimal(a + 4 * b) / 100_000,
        report_tokens=report,
    )


agents = st.lists(
    st.tuples(
        st.integers(0, 3),  # its parent, among those before it
        st.one_of(st.none(), st.integers(0, 20_000)),  # its own bound on tokens
        st.lists(st.tuples(st.integers(1, 2000), st.integers(LEAST.tokens, 5000), st.integers(0, 100)), max_size=5),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=examples(150))
@given(st.integers(0, 30_000), st.none() | st.decimals(0, 1, places=3), agents)
def test_no_account_passes_its_bound_whoever_asks_at_once_and_nothing_stays_reserved(tokens, cost, family):
    ledger = Ledger()
    accounts = [ledger.open("root", Budget(tokens=tokens, cost_usd=cost))]
    for parent, bound, _ in family:
        above = accounts[min(parent, len(accounts) - 1)]
        accounts.append(ledger.open("child", Budget(tokens=bound).cut(above.remaining()), above))

    def check() -> None:
        for account in accounts:
            assert account.budget.tokens is None or account.spent.tokens + account.in_flight.tokens <= account.budget.tokens
            assert account.budget.cost_usd is None or account.spent.cost_usd <= account.budget.cost_usd

    own: dict[Account, int] = dict.fromkeys(accounts, 0)

    async def work(account: Account, requests: list[tuple[int, int, int]]) -> None:
        try:
            for size, output, percent in requests:
                reservation = await ledger.reserve(account, estimate(size, output, report=200))
                check()
                await turns()
                took = reservation.output_tokens * percent // 100
                cost = Decimal(size + 4 * took) / 100_000
                account.book(Usage(turns=1, input_tokens=size, output_tokens=took, cost_usd=cost))
                reservation.give_up()
                own[account] += size + took
                check()
        except LimitReachedError as error:
            reasons.append(error)
        finally:
            account.close()

    reasons: list[LimitReachedError] = []

    async def all_of_them() -> None:
        works = (work(account, requests) for account, (_, _, requests) in zip(accounts[1:], family, strict=True))
        await asyncio.wait_for(asyncio.gather(*works), 120)

    asyncio.run(all_of_them())
    assert all(error.limit in ("tokens", "cost_usd") and error.amount <= error.bound for error in reasons)
    for account in accounts:
        assert (
            account.in_flight.tokens
            == account.for_reports.tokens
            == account.in_flight.cost_usd
            == account.for_reports.cost_usd
            == 0
        )
        assert account.spent.tokens == sum(spent for other, spent in own.items() if account in other.self_and_ancestors())


async def test_a_request_waits_for_those_in_flight_and_is_refused_only_when_none_is_left():
    ledger = Ledger()
    root = ledger.open("root", Budget(tokens=1000))
    one, two = (ledger.open(name, Budget(), root) for name in ("one", "two"))
    first = await ledger.reserve(one, estimate(100, 800))
    waiting = asyncio.create_task(ledger.reserve(two, estimate(100, 400)))
    await turns()
    assert not waiting.done()
    one.book(Usage(input_tokens=300))
    first.give_up()
    second = await asyncio.wait_for(waiting, 120)
    assert second.output_tokens == 400
    two.book(Usage(input_tokens=500))
    second.give_up()
    with pytest.raises(LimitReachedError, match="800 of 1,000, in the budget of root.*; the next request needs about 256"):
        await ledger.reserve(one, estimate(0, 800))


async def test_a_child_that_is_short_itself_still_waits_for_what_its_siblings_may_leave():
    ledger = Ledger()
    root = ledger.open("root", Budget(tokens=2000))
    one = ledger.open("one", Budget(), root)
    two = ledger.open("two", Budget(tokens=1000), root)
    first = await ledger.reserve(one, estimate(100, 1700))
    waiting = asyncio.create_task(ledger.reserve(two, estimate(100, 4000)))
    await turns()
    assert not waiting.done()
    one.book(Usage(input_tokens=500))
    first.give_up()
    assert (await asyncio.wait_for(waiting, 120)).output_tokens >= LEAST.tokens


async def test_a_request_near_the_bound_may_answer_less():
    account = Ledger().open("root", Budget(tokens=1100))
    reservation = await account.ledger.reserve(account, estimate(100, 4000))
    assert LEAST.tokens <= reservation.output_tokens <= 1000


async def test_a_request_that_waits_can_be_cancelled_and_leaves_nothing():
    ledger = Ledger()
    root = ledger.open("root", Budget(tokens=1000))
    one, two = (ledger.open(name, Budget(), root) for name in ("one", "two"))
    first = await ledger.reserve(one, estimate(100, 800))
    waiting = asyncio.create_task(ledger.reserve(two, estimate(100, 800)))
    await turns()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    one.book(Usage(input_tokens=900))
    first.give_up()
    assert root.in_flight.tokens == 0
    assert ledger.waiting == 0


async def test_the_reservation_for_a_last_report_serves_that_report_alone():
    ledger = Ledger()
    root = ledger.open("root", Budget(tokens=2000))
    one, two = (ledger.open(name, Budget(), root) for name in ("one", "two"))
    first = await ledger.reserve(one, estimate(100, 300, report=500))
    one.book(Usage(input_tokens=400))
    first.give_up()
    one.book(Usage(turns=1))
    assert root.for_reports.tokens == 100 + 300 + 500
    two.book(Usage(turns=1))
    with pytest.raises(LimitReachedError, match="tokens"):
        await ledger.reserve(two, estimate(500, 300, report=500))
    last = await ledger.reserve(one, estimate(400, 500), last=True)
    two.book(Usage(input_tokens=900))
    last.give_up()
    one.close()
    assert (root.spent.tokens, root.for_reports.tokens) == (1300, 0)


async def test_the_reservation_of_an_ended_request_is_given_back():
    ledger = Ledger()
    account = ledger.open("root", Budget(tokens=5000))
    await ledger.reserve(account, estimate(700, 1000))
    account.book(Usage(input_tokens=300, estimated_requests=1))
    account.close()
    assert (account.spent.tokens, account.in_flight.tokens) == (300, 0)


async def test_a_request_that_was_cut_off_is_made_again_only_if_it_fits():
    account = Ledger().open("root", Budget(tokens=2500))
    await account.ledger.reserve(account, estimate(700, 1000))
    account.book(Usage(input_tokens=700, output_tokens=50))
    account.check_again()
    account.book(Usage(input_tokens=700, output_tokens=50))
    with pytest.raises(LimitReachedError, match="1,500 of 2,500"):
        account.check_again()


@each("name", ["turns", "tool_calls", "requests", "children"])
def test_bounds_count_the_agent_alone_or_all_its_ancestors(name):
    ledger = Ledger()
    root = ledger.open("root", Budget(**{name: 2}))
    one, two = (Account(ledger=ledger, owner=owner, budget=Budget(), parent=root) for owner in ("one", "two"))
    is_own = name in Budget.OWN

    def take(account: Account) -> None:
        account.check(name)
        account.book(Usage(**{name: 1})) if is_own else account.count(name)

    take(one)
    take(two)
    assert root.taken(name) == (0 if is_own else 2)
    if is_own:
        take(root)
        take(root)
    for account in (root,) if is_own else (root, one, two):
        assert getattr(account.remaining(), name) == 0
        with pytest.raises(LimitReachedError, match=f"limit of {name} is reached: 2 of 2, in the budget of root"):
            account.check(name)
    assert root.taken(name) == 2


async def test_money_cannot_be_bounded_where_the_price_is_not_known():
    account = Ledger().open("root", Budget(cost_usd=Decimal(1)))
    with pytest.raises(FreeactError, match="price"):
        await account.ledger.reserve(account, Estimate(input_tokens=1, output_tokens=1))


@pytest.mark.parametrize("bounds", [{"tokens": 0}, {"cost_usd": 0}])
async def test_zero_gives_zero(bounds):
    account = Ledger().open("root", Budget.model_validate(bounds))
    for request in (estimate(0, 1), Estimate(output_tokens=1, price=lambda *_: Decimal(0))):
        with pytest.raises(LimitReachedError, match="0 of 0"):
            await account.ledger.reserve(account, request)
