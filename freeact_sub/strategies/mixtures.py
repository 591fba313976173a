"""`mixture`: proposers answer, and an aggregator combines their answers (mixture of agents, Wang et al. 2024)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from freeact_sub.errors import StrategyError
from freeact_sub.strategies.agent_like import AgentLike, Member, members, text_of
from freeact_sub.strategies.progress_steps import Progress
from freeact_sub.strategies.side_by_side import parallel

AGGREGATE: Final = (
    "Several models have answered the query below. Make one answer of theirs, of high quality: weigh what they say, as some "
    "of it may be biased or wrong; do not copy, but give a refined, accurate and complete reply.\n\n"
    "Responses from models:\n{responses}\n\nThe query:\n\n{question}"
)


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
        layers: How often the proposers answer; from the second time on, each reads all answers of the previous layer.
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
