"""`%agent_diff`, `%agent_adopt`, `%agent_code`, `%agent_discard`: what becomes of the copy in which an agent works.

`%agent_wait` and `%agent_stop` are for a run that goes on while the user runs other cells.
"""

from argparse import Namespace
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from freeact_sub.errors import FreeactError
from freeact_sub.kernels.copies import CopyChange
from freeact_sub.notebook.conversation import CellConversation
from freeact_sub.notebook.ipython_shell import NobodyToAskError, ask_line
from freeact_sub.notebook.magic_options import adopt_options, copy_options, magic, raise_unless_done
from freeact_sub.notebook.peer import NO_COPY
from freeact_sub.text import counted, one_line, visible

NAMES: Final = ("agent_diff", "agent_adopt", "agent_code", "agent_discard", "agent_wait", "agent_stop")
UNASKED: Final = (
    "This agent has run cells without asking you, and to take over a value is to run code that it may have put into it. "
    "Take over {names}? [y/N] "
)
BOTH: Final = "Not taken over, for you have changed it as well since: {names} (%agent_adopt {first} takes the agent's)"
NO_CHANGES: Final = "the copy has the same variables as this notebook"
LOOKS_ONLY: Final = ("%%agent", "%agent_diff", "%agent_code", "%agent_show", "%agent_wait", "%agent_stop")
"""Cells that begin so change no variable."""


class CopyMagics:
    """The magics about copies of one IPython shell."""

    def __init__(self, shell: Any, conversations: Mapping[str, CellConversation]) -> None:
        """Args: conversations: those that cells have started, by name, the latest last."""
        self._shell = shell
        self._conversations = conversations

    def load(self) -> None:
        """Adds the magics to the shell."""
        for name in NAMES:
            self._shell.register_magic_function(getattr(self, name), magic_kind="line", magic_name=name)
        self._shell.events.register("pre_run_cell", self._on_cell)

    def unload(self) -> None:
        """Removes the magics."""
        for name in NAMES:
            self._shell.magics_manager.magics["line"].pop(name, None)
        if self._on_cell in self._shell.events.callbacks["pre_run_cell"]:
            self._shell.events.unregister("pre_run_cell", self._on_cell)

    @magic(partial(copy_options, "%agent_diff", "Show what an agent has changed in its copy."))
    async def agent_diff(self, options: Namespace, _line: str) -> None:
        """`%agent_diff`: shows which variables differ between this notebook and the copy that an agent works on."""
        await self._named(options.name).diff()

    @magic(adopt_options)
    async def agent_adopt(self, options: Namespace, _line: str) -> None:
        """`%agent_adopt [VARIABLES]`: takes over variables of the copy, or all that have changed."""
        conversation = self._named(options.name)
        names = [name for word in options.variables for name in word.split(",") if name]
        if not names and not await conversation.has_changes():
            print(f"Nothing to take over: {NO_COPY}.")  # noqa: T201  # IPython's way
            return
        changes, both = _chosen(await conversation.changed(), names)
        if both:
            print(BOTH.format(names=", ".join(both), first=both[0]))  # noqa: T201  # IPython's way
        elif not changes:
            print(f"Nothing to take over: {NO_CHANGES}.")  # noqa: T201  # the same
        if not changes:
            return
        if not options.yes and await conversation.works_unasked() and not await _agreed(changes):
            print("Nothing was taken over.")  # noqa: T201  # the same
            return
        taken, lost = await conversation.adopt(changes)
        if taken:
            print(f"Taken over: {', '.join(taken)}")  # noqa: T201  # the same
        if lost:
            left = "; ".join(f"{name}: {one_line(visible(lost[name]), 300)}" for name in lost)
            if names:
                raise FreeactError(left)
            print(f"Left out: {left}")  # noqa: T201  # the same

    @magic(partial(copy_options, "%agent_code", "Put the code that an agent has run in its copy into a new cell."))
    async def agent_code(self, options: Namespace, _line: str) -> None:
        """`%agent_code`: puts the code that an agent has run in its copy into a new cell below this one; you run it."""
        code, failed = await self._named(options.name).code()
        if failed:
            print(f"Left out: {counted(failed, 'cell')} that ended in an error.")  # noqa: T201  # IPython's way
        if code:
            self._shell.set_next_input(code, replace=False)

    @magic(partial(copy_options, "%agent_discard", "End the copy in which an agent has worked."))
    async def agent_discard(self, options: Namespace, _line: str) -> None:
        """`%agent_discard`: ends the copy and takes nothing over; the next `%%agent` cell begins with a new one."""
        await self._named(options.name).discard()

    @magic(partial(copy_options, "%agent_wait", "Wait for an agent that works while you run other cells."))
    async def agent_wait(self, options: Namespace, _line: str) -> None:
        """`%agent_wait`: shows an agent that goes on beside your cells, and waits. To interrupt it stops no agent."""
        result = await self._named(options.name).wait()
        if result is not None:
            raise_unless_done(result)

    @magic(partial(copy_options, "%agent_stop", "Stop an agent that works while you run other cells."))
    async def agent_stop(self, options: Namespace, _line: str) -> None:
        """`%agent_stop`: stops what an agent does beside your cells."""
        if not await self._named(options.name).stop():
            print("No agent is at work.")  # noqa: T201  # IPython's way

    def _named(self, name: str | None) -> CellConversation:
        if name is None:
            name = next(reversed(list(self._conversations)), "")
        if name not in self._conversations:
            there = ", ".join(self._conversations) or "none"
            raise FreeactError(f"no cell has started {name or 'an agent'} (there are: {there})")
        return self._conversations[name]

    def _on_cell(self, info: Any) -> None:
        """The user runs a cell: what it changes is for the next prompt."""
        if not str(getattr(info, "raw_cell", "")).lstrip().startswith(LOOKS_ONLY):
            for conversation in self._conversations.values():
                conversation.is_stale = True


def _chosen(changes: list[CopyChange], names: list[str]) -> tuple[list[CopyChange], list[str]]:
    """Those of the names; a variable that has not changed is taken over all the same. All: those that surely have changed.

    Returns:
        The changes, and the names of those that are left out because the notebook has changed them as well.
    """
    if not names:
        sure = [change for change in changes if change.what != "perhaps"]
        return [change for change in sure if not change.also_here], [change.name for change in sure if change.also_here]
    by_name = {change.name: change for change in changes}
    return [by_name.get(name, CopyChange(name=name, what="changed")) for name in dict.fromkeys(names)], []


async def _agreed(changes: list[CopyChange]) -> bool:
    try:
        answer = await ask_line(UNASKED.format(names=", ".join(change.name for change in changes)))
    except NobodyToAskError as error:
        raise FreeactError(f"{error}; `--yes` takes them over unasked") from error
    return answer.strip().lower() in ("y", "yes")
