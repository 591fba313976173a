"""Several answers to one question: `vote`, `debate`, `mixture`.

- `vote` asks the same question several times; the most frequent answer wins (self-consistency, Wang et al. 2022).
- `debate`: several members answer, read each other's answers, and answer again (Du et al. 2023). In the first round each
  debater answers the question. In each further round it reads the others' answers of the previous round, in a conversation
  with its own earlier prompts and answers. A judge or a vote decides on the last ones.
- `mixture`: proposers answer, and an aggregator combines their answers (mixture of agents, Wang et al. 2024).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from freeact_sub.errors import StrategyError
from freeact_sub.strategies.agent_like import AgentLike, Member, Progress, members, parallel, text_of

OTHERS: Final = "These are the solutions to the problem from other agents:"
REVISE: Final = (
    "Using the solutions from other agents as additional information, give your answer to the problem. "
    "The original problem is:\n\n{question}"
)
ALONE: Final = "Check whether your answer is correct, and give your answer to the problem again. It is:\n\n{question}"
JUDGE: Final = "{solutions}\n\nYou are the judge. Decide which answer is right, and give it. The problem is:\n\n{question}"
AGGREGATE: Final = (
    "Several models have answered the query below. Make one answer of theirs, of high quality: weigh what they say, as some "
    "of it may be biased or wrong; do not copy, but give a refined, accurate and complete reply.\n\n"
    "Responses from models:\n{responses}\n\nThe query:\n\n{question}"
)


@dataclass(frozen=True, kw_only=True)
class Vote:
    """The result of a vote."""

    answer: Any
    """The answer with the most votes; among equals, the first in the order of the voters."""
    votes: int
    """The number of voters that gave it."""
    tied: bool
    """Whether another answer has as many votes."""
    counts: tuple[tuple[Any, int], ...]
    """Each answer with its votes, most votes first."""
    answers: tuple[Any, ...]
    """All answers, in the order of the voters."""
    failures: tuple[Exception, ...] = ()
    """Reasons why some voters gave no answer; they are not counted."""


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
        key: Maps an answer to its key; equal keys are equal answers. Default: the answer, stripped. A function that returns
            the last line of a text lets answers agree that got there in different ways. An answer for which it raises, or
            has no hash, is a failure.

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


@dataclass(frozen=True, kw_only=True)
class Debate:
    """The result of a debate."""

    answer: Any
    """The judge's answer; without a judge, the answer of most debaters (see `Vote.answer` for ties)."""
    rounds: tuple[tuple[Any, ...], ...]
    """The answers of each round, in the order of the debaters; an exception stands for a missing one."""
    vote: Vote
    """The vote on the last answers of all debaters."""
    judged: bool
    """Whether a judge decided, not the vote."""


@dataclass(kw_only=True, eq=False)
class _Debater:
    member: Member
    history: list[str] = field(default_factory=list)
    answer: Any = None
    """The last answer, or the exception instead of one."""

    def said(self, prompt: str, answer: Any) -> None:
        """Continue the conversation. A debater that fails keeps its last answer."""
        if isinstance(answer, Exception):
            self.answer = answer if not self.history else self.answer
            return
        role = f"{self.member.role}\n\n" if self.member.role and not self.history else ""
        self.history += [role + prompt, text_of(answer)]
        self.answer = answer


async def debate(  # the literature's names; all but two have a default
    agent: AgentLike,
    question: str,
    debaters: int | Sequence[Member | str] = 3,
    rounds: int = 2,
    judge: Member | None = None,
    *,
    output: Any = None,
    key: Callable[[Any], Any] = text_of,
) -> Debate:
    """Let several members answer a question, read the other answers, and answer again.

    Args:
        agent: Asks.
        question: The problem.
        debaters: A number, or a list of members and model names.
        rounds: Number of answers of each; 1 is a vote.
        judge: Decides in the end. None: the most frequent answer of the last round wins.
        output: The type of an answer. None: text.
        key: See `vote`.

    Raises:
        StrategyError: Nobody answered.
        ValueError: There are no debaters or no rounds.
        Exception: The judge gave no answer.
    """
    if rounds < 1:
        raise ValueError("rounds must be at least 1")
    those = [_Debater(member=member) for member in members(debaters, "debater")]
    said = []
    steps = rounds * len(those) + (judge is not None)
    async with Progress(agent, "debate", steps) as asking:
        for number in range(rounds):
            prompts = [question if number == 0 else _revision(question, each, those) for each in those]
            thunks = [
                lambda each=each, prompt=prompt: each.member.answer(
                    asking, prompt, output=output, history=tuple(each.history)
                )
                for each, prompt in zip(those, prompts, strict=True)
            ]
            said.append(tuple(await parallel(thunks)))
            for each, prompt, answer in zip(those, prompts, said[-1], strict=True):
                each.said(prompt, answer)
        voted = count((each.answer for each in those), key=key)
        answer = voted.answer
        if judge is not None:
            solutions = _solutions(each.answer for each in those)
            answer = await judge.answer(asking, JUDGE.format(solutions=solutions, question=question), output=output)
    return Debate(answer=answer, rounds=tuple(said), vote=voted, judged=judge is not None)


def _revision(question: str, debater: _Debater, those: Sequence[_Debater]) -> str:
    """Return the prompt of a round after the first. A debater's own answers are in its conversation."""
    solutions = _solutions(each.answer for each in those if each is not debater)
    if not solutions:
        return ALONE.format(question=question)
    return f"{solutions}\n\n{REVISE.format(question=question)}"


def _solutions(answers: Any) -> str:
    told = [f"One agent's solution:\n{text_of(answer)}" for answer in answers if not isinstance(answer, Exception)]
    return "\n\n".join([OTHERS, *told]) if told else ""


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """The result of a mixture."""

    answer: Any
    """The aggregator's answer."""
    layers: tuple[tuple[Any, ...], ...]
    """The proposers' answers by layer, in order; an exception stands for a missing one."""


async def mixture(  # the literature's names; all but two have a default
    agent: AgentLike,
    question: str,
    proposers: int | Sequence[Member | str] = 3,
    aggregator: Member | str | None = None,
    *,
    layers: int = 1,
    output: Any = None,
) -> Mixture:
    """Let proposers answer side by side, and an aggregator combine their answers.

    Args:
        agent: Asks.
        question: The query.
        proposers: A number, or a list of members and model names.
        aggregator: Combines the answers. None: the agent's own model.
        layers: Number of answers of each proposer; from the second on, each reads all answers of the previous layer.
        output: The type of the aggregator's answer. None: text.

    Raises:
        StrategyError: No proposer of a layer answered.
        ValueError: There are no proposers or no layers.
        Exception: The aggregator gave no answer.
    """
    if layers < 1:
        raise ValueError("layers must hold at least one layer")
    those = members(proposers, "proposer")
    [last] = members(aggregator if aggregator is not None else 1, "aggregator")
    prompt, said = question, []
    async with Progress(agent, "mixture", layers * len(those) + 1) as asking:
        for _ in range(layers):
            thunks = [lambda each=each, prompt=prompt: each.answer(asking, prompt) for each in those]
            found = tuple(await parallel(thunks))
            said.append(found)
            prompt = _aggregation(question, found)
        answer = await last.answer(asking, prompt, output=output)
    return Mixture(answer=answer, layers=tuple(said))


def _aggregation(question: str, found: Sequence[Any]) -> str:
    answers = [answer for answer in found if not isinstance(answer, Exception)]
    if not answers:
        raise StrategyError(f"no proposer answered: {found[0]}") from found[0]
    responses = "\n".join(f"{number}. {text_of(answer)}" for number, answer in enumerate(answers, 1))
    return AGGREGATE.format(responses=responses, question=question)
