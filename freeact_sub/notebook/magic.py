"""`%%agent`: a cell whose body is a prompt; the conversation continues from cell to cell. `%agent_close` ends it.

The agents are in a process beside this kernel (`beside.py`, `host.py`), and work on copies of it (`conversation.py`,
`copy_magics.py`), with `--here` in an empty kernel. `%agent_show` draws the latest run once more: a page that was loaded
again in the middle of it has missed the rest. With an ID it draws a stored session, or one agent of it. What `%%agent` does
is kept as a session; `%agent_resume` goes on with one.

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
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from freeact_sub.agents import RunResult
from freeact_sub.config.command_options import given
from freeact_sub.errors import FreeactError
from freeact_sub.notebook import copy_magics
from freeact_sub.notebook.awaited_magics import await_magics
from freeact_sub.notebook.beside import AgentsBeside
from freeact_sub.notebook.borrowed_ipykernel import before_threads_end, forget_last_error
from freeact_sub.notebook.conversation import CellConversation
from freeact_sub.notebook.display import display_run, is_agent, show_again
from freeact_sub.notebook.magic_options import (
    agent_options,
    close_options,
    magic,
    raise_unless_done,
    resume_options,
    show_options,
)
from freeact_sub.notebook.stored import show_stored
from freeact_sub.notebook.waiting_cell import CellsOfUser

if TYPE_CHECKING:
    from freeact_sub.agent import Agent

DEFAULT_NAME = "agent"
LOST = "The process of the agents has ended, and their conversations with it: `%agent_resume` continues one."

NAMES = ("agent_close", "agent_show", "agent_resume")


class AgentMagics:
    """The magics of one IPython shell, and the agents that its cells have started."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._conversations: dict[str, CellConversation] = {}
        """Those that cells have started, the latest last."""
        self._copy_magics = copy_magics.CopyMagics(shell, self._conversations)
        self._settings: dict[str, dict[str, Any]] = {}
        """The options that each was started with."""
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
        """Return the agent of that name: one started by a cell, a variable of the user, or a new one."""
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
        """The process of the agents; a new one if there is none any more."""
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
        """In a copy of this kernel: nothing here runs agents."""
        self.unload()
        self._shell.events.register("pre_execute", self._before_each_cell)
        _loaded.clear()

    def _await_magics(self, lines: list[str]) -> list[str]:
        return await_magics(lines, ("agent", *NAMES, *copy_magics.NAMES))

    def _close_at_exit(self, kernel: int) -> None:
        """Has all agents closed: the kernel has stopped its loop by now. Processes of `multiprocessing` end so as well."""
        if self._beside is not None and os.getpid() == kernel:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it would cut short what leads to the same end
            self._beside.close()


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """What is chosen in the first cell of a conversation."""
    return {**given(options), **({"here": True} if options.here else {})}


_loaded: dict[Any, AgentMagics] = {}
"""The magics of each shell."""


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
