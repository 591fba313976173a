"""`%%agent`: a cell whose body is a prompt; the conversation continues from cell to cell. `%agent_close` ends it.

The agents are in a process beside this kernel (`conversation.py`, `host.py`), and work on copies of it, with `--here` in an
empty kernel. `%agent_show` draws the latest run once more: a page that was loaded again in the middle of it has missed the
rest. With an ID it draws a stored session, or one agent of it. Each agent keeps a session; `%agent_resume` goes on with one.

`%agent_diff`, `%agent_adopt`, `%agent_code` and `%agent_discard` are for the copy in which an agent works, and
`%agent_wait` and `%agent_stop` are for a run that goes on while the user runs other cells.

IPython calls magics without awaiting them, while these wait on the notebook's own event loop, where agents of the user's
own live too. So they return coroutines, and a transformer puts `await` before the calls (`awaited_magics.py`).

A run that did not succeed is an error of its cell, as it is the exit status of `freeact-sub run`: "run all" stops there.

An agent that a cell has started lives until `%agent_close`, or until the kernel ends. One from the user's namespace stays
the user's: `--name` names it. Without `--name` the notebook's own agent takes the prompt. Only if it has none yet, and the
variable `agent` holds an agent that is open, that one takes it.
"""

import argparse
import concurrent.futures.thread  # noqa: F401  # its exit must have been registered when ours is: the last is called first
import contextlib
import os
import signal
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from freeact_sub.agents import RunResult
from freeact_sub.config.command_options import given
from freeact_sub.errors import FreeactError
from freeact_sub.kernels.copies import CopyChange
from freeact_sub.notebook.awaited_magics import await_magics
from freeact_sub.notebook.borrowed_ipykernel import before_threads_end, forget_last_error
from freeact_sub.notebook.conversation import AgentsBeside, CellConversation
from freeact_sub.notebook.display import display_run, is_agent, show_again, show_stored
from freeact_sub.notebook.ipython_shell import CellsOfUser, NobodyToAskError, ask_line
from freeact_sub.notebook.magic_options import (
    adopt_options,
    agent_options,
    close_options,
    copy_options,
    magic,
    raise_unless_done,
    resume_options,
    show_options,
)
from freeact_sub.notebook.peer import NO_COPY
from freeact_sub.text import counted, one_line, visible

if TYPE_CHECKING:
    from freeact_sub.agent import Agent

DEFAULT_NAME = "agent"
LOST = "The process of the agents has ended, and their conversations with it: `%agent_resume` continues one."

NAMES = ("agent_close", "agent_show", "agent_resume")
COPY_NAMES: Final = ("agent_diff", "agent_adopt", "agent_code", "agent_discard", "agent_wait", "agent_stop")
UNASKED: Final = (
    "This agent has run cells without asking you, and to take over a value is to run code that it may have put into it. "
    "Take over {names}? [y/N] "
)
BOTH: Final = "Not taken over, for you have changed it as well since: {names} (%agent_adopt {first} takes the agent's)"
NO_CHANGES: Final = "the copy has the same variables as this notebook"
LOOKS_ONLY: Final = ("%%agent", "%agent_diff", "%agent_code", "%agent_show", "%agent_wait", "%agent_stop")
"""Beginnings of cells that change no variable."""


class AgentMagics:
    """The magics of one IPython shell, and the agents that its cells have started."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._conversations: dict[str, CellConversation] = {}
        """Conversations that cells have started, the latest last."""
        self._copy_magics = CopyMagics(shell, self._conversations)
        self._settings: dict[str, dict[str, Any]] = {}
        """Options with which each was started."""
        self._beside: AgentsBeside | None = None
        self._cells: CellsOfUser | None = None
        self._before_each_cell: Callable[[], None] = partial(forget_last_error, shell)

    def load(self) -> None:
        """Adds the magics to the shell."""
        self._shell.register_magic_function(self.agent, magic_kind="cell", magic_name="agent")
        for name in NAMES:
            self._shell.register_magic_function(getattr(self, name), magic_kind="line", magic_name=name)
        self._copy_magics.load()
        self._shell.input_transformers_post.append(self._await_magics)
        self._before_each_cell()
        self._shell.events.register("pre_execute", self._before_each_cell)
        before_threads_end(partial(self._close_at_exit, os.getpid()))
        self._beside = AgentsBeside(self._shell, self._forget)

    def unload(self) -> None:
        """Removes the magics. Open agents are closed when the kernel ends."""
        self._shell.magics_manager.magics["cell"].pop("agent", None)
        for name in NAMES:
            self._shell.magics_manager.magics["line"].pop(name, None)
        self._copy_magics.unload()
        with contextlib.suppress(ValueError):
            self._shell.input_transformers_post.remove(self._await_magics)
        with contextlib.suppress(ValueError):
            self._shell.events.unregister("pre_execute", self._before_each_cell)

    @magic(agent_options)
    async def agent(self, options: argparse.Namespace, line: str, cell: str) -> None:
        """Gives this cell's text to an agent; `%%agent --help` lists the options."""
        if not cell.strip():
            raise FreeactError("write the prompt below the first line of the cell")
        name, begun = options.name or DEFAULT_NAME, time.monotonic()
        result: RunResult | None
        chosen = await self._choose(name, options, line)
        if is_agent(chosen):
            result = await display_run(chosen, cell.strip(), questions=options.questions)
        else:
            self._conversations[name] = self._conversations.pop(name)  # the latest one
            result = await chosen.run(cell.strip(), options.questions, begun=begun, may_leave=not options.out)
        if options.out:
            self._shell.user_ns[options.out] = result
        if result is not None:
            raise_unless_done(result)

    @magic(close_options)
    async def agent_close(self, options: argparse.Namespace, _line: str) -> None:
        """`%agent_close [NAME]`: ends the conversation of one agent, or of all that cells have started."""
        if options.name is not None and options.name not in self._conversations:
            names = f"there are: {', '.join(self._conversations)}" if self._conversations else "there are none"
            raise FreeactError(f"no cell has started an agent {options.name!r} ({names})")
        for name in [options.name] if options.name else list(self._conversations):
            self._settings.pop(name)
            await self._conversations.pop(name).aclose()

    @magic(show_options)
    async def agent_show(self, options: argparse.Namespace, _line: str) -> None:
        """`%agent_show`: draws the latest run again. `%agent_show SESSION [AGENT]`: draws a stored session."""
        if options.session is not None:
            events, goes_on = await self._host().stored(options.session, options.agent)
            show_stored(events, goes_on=goes_on)
        elif not show_again():
            raise FreeactError(
                "no run has been shown in this kernel; `%agent_show SESSION` draws what is kept of an earlier one "
                "(`!freeact-sub sessions list` names them)"
            )

    @magic(resume_options)
    async def agent_resume(self, options: argparse.Namespace, line: str) -> None:
        """`%agent_resume [SESSION]`: makes `%%agent` continue a session. Default: the latest one of this folder."""
        name = options.name or DEFAULT_NAME
        if name in self._conversations:
            raise FreeactError(f"{name!r} is open here: `%agent_close {name}` first, or choose another --name")
        session = await self._start(name, options, line, resumes=True)
        print(f"going on with {session}; the next %%agent cell is its next prompt")  # noqa: T201  # IPython's way

    async def _choose(self, name: str, options: argparse.Namespace, line: str) -> "Agent | CellConversation":
        """Returns the agent of that name: one started by a cell, a variable of the user, or a new one."""
        settings = _settings(options)
        self._notice_loss()
        found = self._conversations.get(name)
        if found is None and is_agent(variable := self._shell.user_ns.get(name)):
            if variable.is_open and not settings:
                return variable
            if options.name is not None and settings:
                raise FreeactError(f"{name!r} is your own agent: choose its settings where you make it")
            if options.name is not None:
                raise FreeactError(
                    f"{name!r} is your own agent and is not open: `await {name}.open()` first, or leave out --name"
                )
        if found is None:
            await self._start(name, options, line, resumes=False)
        elif other := [option for option in settings if settings[option] != self._settings[name].get(option)]:
            options_given = ", ".join(f"--{option.replace('_', '-')}" for option in other)
            raise FreeactError(
                f"{name!r} was started with other settings ({options_given}): `%agent_close {name}` first, "
                "or choose another --name"
            )
        return self._conversations[name]

    async def _start(self, name: str, options: argparse.Namespace, line: str, *, resumes: bool) -> str:
        """Starts an agent and keeps it for later cells. Returns the session that it continues, in a line."""
        beside = self._host()
        if self._cells is None:
            self._cells = CellsOfUser()
        words = "" if name == DEFAULT_NAME else f" --name {name}"
        conversation = CellConversation(self._shell, beside, self._cells, name, words)
        started = await beside.start(name, line, resumes=resumes)
        conversation.is_copy = started["is_copy"]
        self._conversations[name], self._settings[name] = conversation, _settings(options)
        return str(started["session"])

    def _host(self) -> AgentsBeside:
        """Returns the process of the agents; a new one if there is none any more."""
        self._notice_loss()
        if self._beside is None or self._beside.is_lost:
            self._beside = AgentsBeside(self._shell, self._forget)
        return self._beside

    def _notice_loss(self) -> None:
        if self._beside is not None and self._beside.is_lost and self._conversations:
            self._conversations.clear()
            self._settings.clear()
            print(LOST)  # noqa: T201  # IPython's way

    def _forget(self) -> None:
        """Forgets all agents, in a copy of this kernel."""
        self.unload()
        self._shell.events.register("pre_execute", self._before_each_cell)
        _loaded.clear()

    def _await_magics(self, lines: list[str]) -> list[str]:
        return await_magics(lines, ("agent", *NAMES, *COPY_NAMES))

    def _close_at_exit(self, kernel: int) -> None:
        """Closes all agents: the kernel has stopped its loop by now. Processes of `multiprocessing` end so as well."""
        if self._beside is not None and os.getpid() == kernel:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it would cut this short
            self._beside.close()


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the options that the first cell of a conversation chooses."""
    return {**given(options), **({"here": True} if options.here else {})}


_loaded: dict[Any, AgentMagics] = {}


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext freeact_sub.notebook`: adds the magics, and puts `display_run` into the user's namespace."""
    if shell not in _loaded:
        _loaded[shell] = AgentMagics(shell)
        _loaded[shell].load()
        shell.push({"display_run": display_run}, interactive=False)


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext freeact_sub.notebook`: removes the magics."""
    magics = _loaded.pop(shell, None)
    if magics is not None:
        magics.unload()


class CopyMagics:
    """The magics about copies of one IPython shell."""

    def __init__(self, shell: Any, conversations: Mapping[str, CellConversation]) -> None:
        """Args: conversations: those that cells have started, by name, the latest last."""
        self._shell = shell
        self._conversations = conversations

    def load(self) -> None:
        """Adds the magics to the shell."""
        for name in COPY_NAMES:
            self._shell.register_magic_function(getattr(self, name), magic_kind="line", magic_name=name)
        self._shell.events.register("pre_run_cell", self._on_cell)

    def unload(self) -> None:
        """Removes the magics."""
        for name in COPY_NAMES:
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
        """Notes that the user runs a cell: its changes are for the next prompt."""
        if not str(getattr(info, "raw_cell", "")).lstrip().startswith(LOOKS_ONLY):
            for conversation in self._conversations.values():
                conversation.is_stale = True


def _chosen(changes: list[CopyChange], names: list[str]) -> tuple[list[CopyChange], list[str]]:
    """Returns the changes of these names, of unchanged variables too; without names, the sure changes.

    Returns:
        The changes, and the names that are left out because the notebook has changed them as well.
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
