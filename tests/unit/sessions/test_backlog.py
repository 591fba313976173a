"""What waits for the writer's thread."""

from concurrent.futures import ThreadPoolExecutor

from freeact_sub.sessions.sqlite.writer import Backlog

LIMIT_SECONDS = 60


def test_what_is_waited_for_is_taken_with_all_before_it_in_its_order():
    backlog = Backlog()
    backlog.put("a")
    backlog.put("b")
    backlog.put("c", now=True)
    assert backlog.take() == ["a", "b", "c"]


def test_what_nobody_waits_for_is_taken_all_the_same():
    backlog = Backlog()
    with ThreadPoolExecutor(1) as thread:
        taken = thread.submit(backlog.take)
        backlog.put("a")
        assert taken.result(LIMIT_SECONDS) == ["a"]


def test_a_thread_that_waits_takes_what_comes_at_once_and_then_what_comes_next():
    backlog = Backlog()
    with ThreadPoolExecutor(1) as thread:
        for item in ("a", "b"):
            taken = thread.submit(backlog.take)
            backlog.put(item, now=True)
            assert taken.result(LIMIT_SECONDS) == [item]
