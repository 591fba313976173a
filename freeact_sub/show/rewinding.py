"""`/undo`, `/rewind`, `/redo`, `/context` and `/cost`: what each front end carries out and tells."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from freeact_sub.errors import FreeactError
from freeact_sub.text import counted, one_line, visible

if TYPE_CHECKING:  # slow to import
    from freeact_sub.agent import Agent
    from freeact_sub.agents.budgets.estimate import ContextUse
    from freeact_sub.config.budget import RootBudget, Usage
    from freeact_sub.features.undo import UndoReport

FORKED: Final = (
    "{new} is this conversation without its last {prompts}, in a copy of this folder as it was then: /resume {new} "
    "continues it here, freeact-sub --resume {new} elsewhere. This conversation stays as it is."
)
SHOWN: Final = 10
FEW: Final = 2
PROMPT_CHARS: Final = 60


@dataclass(frozen=True, kw_only=True)
class Rewind:
    """`/undo`, `/rewind N` and `/redo`."""

    prompts: int
    """The number of prompts: above 0 they are restored; below, undone."""
    to_change: bool = False
    """Whether the first undone prompt returns to the input line."""
    forks: bool = False
    """Nothing is undone here: a new session begins there."""
    forked: str = FORKED
    """What is told of it; `{new}` is its id, `{folder}` its folder."""

    async def done(self, agent: "Agent", as_typed: Callable[[str], str]) -> tuple[str, str]:
        """Carries it out; returns a note for the person, and the text for the line, empty if there is none.

        Args:
            agent: The agent.
            as_typed: Returns what the person typed of a prompt.
        """
        if self.forks:
            return await self._forked(agent), ""
        try:
            report = await (agent.redo(self.prompts) if self.prompts > 0 else agent.undo(-self.prompts))
        except FreeactError as error:
            return str(error), ""
        prompts = [as_typed(prompt) for prompt in report.prompts]
        told = [f"{'restored' if self.prompts > 0 else 'undone'}: {one_line(prompt, PROMPT_CHARS)}" for prompt in prompts]
        return "\n".join([*told, *_lines(report)]), prompts[0] if self.to_change else ""

    async def _forked(self, agent: "Agent") -> str:
        from freeact_sub.agents.sessions.forking import missing_in  # noqa: PLC0415  # slow to import

        try:
            new = await agent.fork(self.prompts)
            missing = await asyncio.to_thread(missing_in, agent.sessions, new)
            folder = (await asyncio.to_thread(agent.sessions.find, new)).workspace
        except FreeactError as error:
            return str(error)
        told = self.forked.format(new=new, prompts=counted(-self.prompts, "prompt"), folder=folder)
        return "\n".join(filter(None, [told, missing]))


def goes_along(report: "UndoReport") -> str:
    """Return a few words about what a prompt's undo restores besides the conversation."""
    files = "without files" if report.files_problem else f"files {_some(report.files, FEW)}" if report.files else "no file"
    return f"{files} · {'without variables' if report.variables_problem else 'variables'}"


def _lines(report: "UndoReport") -> list[str]:
    lines: list[str] = []
    if report.files:
        lines.append(f"files: {_some(report.files)}")
    if report.files_problem:
        lines.append(f"not all files are as they were: {report.files_problem}")
    if report.variables_problem:
        lines.append(f"variables are not as they were: {report.variables_problem}")
    if report.lost:
        lines.append(f"variables that did not come back: {_some(tuple(lost.name for lost in report.lost))}")
    return lines


def _some(names: tuple[str, ...], shown: int = SHOWN) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return visible(", ".join(names[:shown])) + more


def context_text(use: "ContextUse") -> str:
    """A line for each kind of content that fills the window."""
    window = use.window_tokens
    share = f" of {window:,} ({use.tokens / window:.0%})" if window else "; the size of the window is not known"
    parts = {"instructions": use.instructions, "tools": use.tools, "messages": use.messages, "outputs": use.outputs}
    lines = [f"{name:<14}{tokens:>10,}" for name, tokens in parts.items()]
    return "\n".join([f"about {use.tokens:,} tokens{share}", *lines])


def cost_text(usage: "Usage", budget: "RootBudget") -> str:
    """Return the spending, including requests without a known price, and what a prompt may take."""
    requests = counted(usage.unpriced_turns, "request")
    unpriced = f"\nThe price of {requests} is not known: the cost leaves that out." if usage.unpriced_turns else ""
    return f"all runs, children included: {usage}{unpriced}\n{budget.cost_text}"
