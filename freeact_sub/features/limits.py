"""Questions at limits (`LimitsFeature`): where a person is there, a limit asks before it ends a cell or a run.

You are asked about cells of all agents, and about the bounds of a prompt, which its children share. A child at a bound of
its own reports to its parent, which can give it more: else you would be asked once for each child.
"""

import math
import re
from typing import Final

from freeact_sub.agents.feature import (
    Asker,
    EndedCall,
    Feature,
    FeatureAgent,
    FeatureRoot,
    Proceed,
    RequestedCall,
    RunPart,
    T,
)
from freeact_sub.calls import CodeAction
from freeact_sub.config.budget import Budget
from freeact_sub.errors import CELL_SECONDS, LimitReachedError
from freeact_sub.events.forms import PersonQuestion, QuestionField
from freeact_sub.text import dollars, duration, one_line

NAME: Final = "go_on"
"""The name of the question's field."""
MORE: Final = "more"
UNBOUNDED: Final = "unbounded"
STOP: Final = "stop"
WORDS: Final = {"cost_usd": "money", "requests": "requests to models", "tool_calls": "tool calls"}
"""Limits whose names in the budget are no plain English."""
CELL_CHARS: Final = 100
ASKED: Final = 3
"""Times that a question is asked whose answer is no amount: a program that says the same to all questions ends there."""
_AMOUNT: Final = re.compile(r"\$?\s*(\d{1,9}(?:\.\d{1,6})?)")


class LimitsPart(RunPart):
    """The questions of one run."""

    def __init__(self, root: FeatureRoot) -> None:
        self._root = root
        self._cells: dict[str | None, str] = {}
        """The titles of the cells that run, by their call."""

    async def call(self, call: RequestedCall, proceed: Proceed[T]) -> EndedCall[T]:
        """Note the cell while it runs."""
        if not isinstance(call.call, CodeAction):
            return await proceed()
        self._cells[call.tool_call_id] = one_line(call.call.title, CELL_CHARS)
        try:
            return await proceed()
        finally:
            self._cells.pop(call.tool_call_id, None)

    async def limit(self, reached: LimitReachedError, asker: Asker) -> float:
        """Ask the person, and return how much more there is. 0: nobody is there, or the limit holds."""
        if reached.limit != CELL_SECONDS and reached.owner != self._root.agent.agent_id:
            return 0.0
        said, more, rows = self._words(reached, asker)
        is_money = reached.limit == "cost_usd"
        field = QuestionField(
            name=NAME,
            prompt="Go on? You may also type an amount such as $2.50." if is_money else "Go on?",
            kind="choice",
            choices=(*rows,),
            labels=(*rows.values(),),
            other=is_money,
        )
        wrong = ""
        for _ in range(ASKED):
            answer = await asker.agent.ask_person(
                PersonQuestion(prompt=f"{wrong}{said}", fields=(field,)),
                tool_call_id=asker.tool_call_id,
                clock=asker.clock,
                may_be_passed_over=True,
            )
            chosen = STOP if answer.values is None else str(answer.values[NAME])
            if chosen in rows:
                return {MORE: more, UNBOUNDED: math.inf, STOP: 0.0}[chosen]
            if rows[STOP].startswith(chosen.strip().casefold()):  # a yes is none: programs say it to all questions
                return 0.0
            if (amount := _AMOUNT.fullmatch(chosen.strip())) is not None:
                return float(amount[1])
            wrong = f"{one_line(chosen, 40)!r} is no answer: choose a number of the list, or type an amount such as $2.50. "
        return 0.0

    def _words(self, reached: LimitReachedError, asker: Asker) -> tuple[str, float, dict[str, str]]:
        """Return a sentence on the limit, how much more is offered, and the choices in words."""
        if reached.limit == CELL_SECONDS:
            more = asker.agent.config.kernel.cell_timeout_seconds or 0.0
            waits = asker.clock is not None and asker.clock.waited_too_long
            more, also = (reached.bound, ", with what it has waited for") if waits else (more, "")
            cell = self._cells.get(asker.tool_call_id, "")
            said = f"A cell has been running for {duration(reached.bound)}{also}{f': {cell}' if cell else '.'}"
            return (
                said,
                more,
                {MORE: f"yes, {duration(more)} more", UNBOUNDED: "yes, as long as it needs", STOP: "no, stop it"},
            )
        number = dollars if reached.limit == "cost_usd" else "{:,.0f}".format
        words = WORDS.get(reached.limit, reached.limit)
        taken = f"{number(reached.amount)} of {number(reached.bound)}"
        children = "" if reached.limit in Budget.OWN else " with all its children"
        said = f"The limit of {words} is reached: {taken}, for this prompt{children}."
        if reached.needed is not None:
            said += f" The next request may take {number(reached.needed)}."
        more = max(reached.bound, reached.amount + (reached.needed or 0.0) - reached.bound)
        return said, more, {MORE: f"yes, {number(more)} more", STOP: "no, stop"}


class LimitsFeature(Feature):
    """Questions at the limits of all agents of a tree."""

    def run(self, agent: FeatureAgent) -> RunPart | None:
        """Ask about the limits of a run, unless the settings say that nobody is there."""
        return LimitsPart(self.root) if agent.config.headless is None else None
