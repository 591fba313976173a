"""Which keys count at a question; with a clock that the test moves."""

from freeact_sub.terminal.asking import GUARD_SECONDS, KeyGuard


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_key_counts_once_the_question_has_stood_for_a_moment_in_which_nobody_typed() -> None:
    clock = Clock()
    guard = KeyGuard(clock)
    guard.restart()
    assert not guard.is_open
    clock.now += GUARD_SECONDS * 0.9
    assert not guard.is_open
    guard.restart()  # somebody still types
    clock.now += GUARD_SECONDS * 0.9
    assert not guard.is_open
    clock.now += GUARD_SECONDS * 0.2
    assert guard.is_open


def test_the_rest_of_a_word_that_answers_is_dropped_and_nothing_else() -> None:
    clock = Clock()
    guard = KeyGuard(clock)
    for word in ("yes\r", "always\r", "n\r", "y\r"):
        guard.answered(word[0])
        assert all(guard.drops(key) for key in word[1:]), word
        assert not guard.drops("x")
    guard.answered("y")
    assert not guard.drops("h")
    assert not guard.drops("e"), "the first key that does not belong to it ends it"
    guard.answered("y")
    clock.now += GUARD_SECONDS
    assert not guard.drops("e")
