"""`vote`: asks the same question several times; the most frequent answer wins (self-consistency, Wang et al. 2022)."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from freeact_sub.errors import StrategyError
from freeact_sub.strategies.agent_like import AgentLike, Member, members, text_of
from freeact_sub.strategies.progress_steps import Progress
from freeact_sub.strategies.side_by_side import parallel


@dataclass(frozen=True, kw_only=True)
class Vote:
    """The result of a vote."""

    answer: Any
    """The answer with the most votes; among equals, the first in the order of the voters."""
    votes: int
    """The number of voters that gave it."""
    tied: bool
    """Another answer has as many votes."""
    counts: tuple[tuple[Any, int], ...]
    """Each answer with its votes, most votes first."""
    answers: tuple[Any, ...]
    """All answers, in the order of the voters."""
    failures: tuple[Exception, ...] = ()
    """Why some voters gave no answer; they are not counted."""


async def vote(
    agent: AgentLike,
    question: str,
    n: int | Sequence[Member | str] = 5,
    *,
    output: Any = None,
    key: Callable[[Any], Any] = text_of,
) -> Vote:
    """Ask the same question several times, side by side, and take the most frequent answer.

    Args:
        agent: Asks.
        question: The only text that a voter reads.
        n: A number of voters, or a list of members and model names.
        output: The type of an answer. Short types, such as `int` or a `Literal`, let answers agree. None: text.
        key: Maps an answer to what is counted; equal keys are equal answers. Default: the answer, stripped. A function that
            returns the last line of a text lets answers agree that got there in different ways. An answer for which it
            raises, or has no hash, is a failure.

    Raises:
        StrategyError: Nobody answered.
        ValueError: There are no voters.
    """
    voters = members(n, "voter")
    async with Progress(agent, "vote", len(voters)) as asking:
        found = await parallel([lambda voter=voter: voter.answer(asking, question, output=output) for voter in voters])  # type: ignore[misc]  # binds each
    return count(found, key=key)


def count(found: Iterable[Any], *, key: Callable[[Any], Any] = text_of) -> Vote:
    """Count answers. Args: found: answers, or exceptions of voters without one. key: see `vote`.

    Raises:
        StrategyError: There is no answer.
    """
    answers, failures = list[Any](), list[Exception]()
    first: dict[Any, Any] = {}
    votes: Counter[Any] = Counter()
    for answer in found:
        if isinstance(answer, Exception):
            failures.append(answer)
            continue
        try:
            counted = key(answer)
            counted = counted.strip() if isinstance(counted, str) else counted
            first.setdefault(counted, answer)
        except Exception as error:  # noqa: BLE001  # border: an answer that cannot be counted is none
            failures.append(error)
            continue
        votes[counted] += 1
        answers.append(answer)
    if not answers:
        why = failures[0] if failures else None
        raise StrategyError(f"nobody answered: {why or 'nobody was asked'}") from why
    ranked = votes.most_common()  # stable: equal counts stay in the order of first appearance
    return Vote(
        answer=first[ranked[0][0]],
        votes=ranked[0][1],
        tied=len(ranked) > 1 and ranked[1][1] == ranked[0][1],
        counts=tuple((first[counted], number) for counted, number in ranked),
        answers=tuple(answers),
        failures=tuple(failures),
    )
