"""How many kernels are worth keeping ready."""

from freeact_sub.kernels.forkserver.fork_provider import SECONDS, Demand


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


def test_what_was_asked_for_at_once_counts_for_a_minute():
    clock = Clock()
    demand = Demand(clock)
    assert demand.at_once("a") == 0
    for _ in range(5):
        demand.asked("a")
    demand.asked("b")
    assert (demand.at_once("a"), demand.at_once("b")) == (5, 1)
    demand.met("a")
    clock.now += SECONDS / 2
    for _ in range(3):
        demand.asked("a")
    assert demand.at_once("a") == 5
    clock.now += SECONDS / 2 + 1
    assert demand.at_once("a") == 3
    clock.now += SECONDS
    assert demand.at_once("a") == 0


def test_kernels_that_are_asked_for_one_after_the_other_are_no_more_than_one():
    demand = Demand(Clock())
    for _ in range(100):
        demand.asked("a")
        demand.met("a")
    assert demand.at_once("a") == 1


def test_kernels_that_end_before_spares_could_be_made_are_no_more_than_one():
    demand = Demand(Clock())
    for _ in range(100):
        demand.asked("a").end()
    assert demand.at_once("a") == 1
    early = demand.asked("a")
    demand.met("a")
    demand.asked("a")
    early.end()
    demand.asked("a")
    assert demand.at_once("a") == 2, "a kernel of an earlier burst does not count"


def test_what_is_forgotten_is_gone():
    demand = Demand(Clock())
    demand.asked("a")
    demand.forget("a")
    assert demand.at_once("a") == 0
    demand.asked("a")
    assert demand.at_once("a") == 1
