"""`debate`: several members answer, read each other's answers, and answer again (Du et al. 2023).

In the first round each debater answers the question. In each further round it reads the others' answers of the previous
round, in a conversation with its own earlier prompts and answers. A judge or a vote decides on the last ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from freeact_sub.strategies.agent_like import AgentLike, Member, members, text_of
from freeact_sub.strategies.progress_steps import Progress
from freeact_sub.strategies.side_by_side import parallel
from freeact_sub.strategies.votes import Vote, count

OTHERS: Final = "These are the solutions to the problem from other agents:"
REVISE: Final = (
    "Using the solutions from other agents as additional information, give your answer to the problem. "
    "The original problem is:\n\n{question}"
)
ALONE: Final = "Check whether your answer is correct, and give your answer to the problem again. It is:\n\n{question}"
JUDGE: Final = "{solutions}\n\nYou are the judge. Decide which answer is right, and give it. The problem is:\n\n{question}"


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
    """A judge decided, not the vote."""


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
        rounds: How often each answers; 1 is a vote.
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
