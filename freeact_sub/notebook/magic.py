"""`%%agent`: a cell whose body is a prompt; the conversation continues from cell to cell. `%agent_close` ends it.

`%agent_show` draws the latest run once more: a page that was loaded again in the middle of it has missed the rest. With an
ID it draws a stored session, or one agent of it. What `%%agent` does is kept as a session; `%agent_resume` goes on with one.
The agent works on a copy of the notebook's kernel (`copied.py`, `copy_magics.py`), with `--here` in an empty kernel.

IPython calls magics without awaiting them, while agents live on the notebook's own event loop. So the first two are
coroutine functions, and a transformer puts `await` before the calls that IPython makes of them; a thread with a loop of its
own would keep them from agents that the user has made.

An agent that a cell has started lives until `%agent_close`, or until the kernel shuts down. One from the user's
namespace stays the user's: `--name` names it. Without `--name` the notebook's own agent takes the prompt. Only if it has
none yet, and the variable `agent` holds an agent that is open, that one takes it.
"""

import argparse
import asyncio
import concurrent.futures.thread  # noqa: F401  # its exit must have been registered when ours is: the last is called first
import contextlib
import logging
import re
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from IPython.core.error import UsageError

from freeact_sub.agents import Agent
from freeact_sub.config.command_options import given, load_arguments
from freeact_sub.config.load import load_config
from freeact_sub.config.schema import Config, user_folder
from freeact_sub.config.trust import Trust
from freeact_sub.errors import ConfigError, FreeactError, UntrustedError
from freeact_sub.notebook.borrowed_ipykernel import before_threads_end, forget_last_error
from freeact_sub.notebook.copied import CopiedConversation
from freeact_sub.notebook.copy_magics import CopyMagics
from freeact_sub.notebook.display import display_run, show_again
from freeact_sub.notebook.magic_options import agent_options, close_options, parse, resume_options, show_options
from freeact_sub.notebook.stored import session_words, show_stored, stored_session
from freeact_sub.sessions import session_store

DEFAULT_NAME = "agent"
NEW = "new"

EXIT_SECONDS = 3.0
"""The seconds that closing may take when the kernel shuts down; Jupyter sends SIGTERM after 2.5 s and SIGKILL after 5 s."""

logger = logging.getLogger(__name__)

_CALL = re.compile(
    r"(?=get_ipython\(\)\.run_(?:cell_magic\('agent'|line_magic\('agent_(?:close|resume|diff|adopt|discard)'),)"
)


class AgentMagics:
    """The magics of one IPython shell, and the agents that its cells have started."""

    def __init__(self, shell: Any) -> None:
        """Args: shell: the `InteractiveShell` that the magics are for."""
        self._shell = shell
        self._agents: dict[str, Agent] = {}
        self._copied: dict[str, CopiedConversation] = {}
        """Those of them that work on copies, the latest last."""
        self._copy_magics = CopyMagics(shell, self._copied)
        self._settings: dict[str, dict[str, Any]] = {}
        """The options that each was started with."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._before_each_cell: Callable[[], None] = partial(forget_last_error, shell)

    def load(self) -> None:
        """Adds the magics to the shell."""
        self._shell.register_magic_function(self.agent, magic_kind="cell", magic_name="agent")
        self._shell.register_magic_function(self.agent_close, magic_kind="line", magic_name="agent_close")
        self._shell.register_magic_function(self.agent_show, magic_kind="line", magic_name="agent_show")
        self._shell.register_magic_function(self.agent_resume, magic_kind="line", magic_name="agent_resume")
        self._copy_magics.load()
        self._shell.input_transformers_post.append(self._await_magics)
        self._before_each_cell()
        self._shell.events.register("pre_execute", self._before_each_cell)
        before_threads_end(self._close_at_exit)

    def unload(self) -> None:
        """Removes the magics. Open agents are closed when the kernel shuts down."""
        self._shell.magics_manager.magics["cell"].pop("agent", None)
        for name in ("agent_close", "agent_show", "agent_resume"):
            self._shell.magics_manager.magics["line"].pop(name, None)
        self._copy_magics.unload()
        with contextlib.suppress(ValueError):
            self._shell.input_transformers_post.remove(self._await_magics)
        with contextlib.suppress(ValueError):
            self._shell.events.unregister("pre_execute", self._before_each_cell)

    async def agent(self, line: str, cell: str) -> None:
        """Gives this cell's text to an agent; `%%agent --help` lists the options."""
        options = parse(agent_options(), line)
        if options is None:
            return
        if not cell.strip():
            raise UsageError("%%agent: write the prompt below the first line of the cell")
        try:
            agent = await self._choose(options)
            name = options.name or DEFAULT_NAME
            if agent is self._agents.get(name) and name in self._copied:
                self._copied[name] = conversation = self._copied.pop(name)  # the latest one
                result = await conversation.run(cell.strip(), options.questions)
            else:
                result = await display_run(agent, cell.strip(), questions=options.questions)
        except FreeactError as error:
            raise UsageError(str(error)) from error
        if options.out:
            self._shell.user_ns[options.out] = result

    async def agent_close(self, line: str) -> None:
        """`%agent_close [NAME]`: ends the conversation of one agent, or of all that cells have started."""
        options = parse(close_options(), line)
        if options is None:
            return
        if options.name is not None and options.name not in self._agents:
            raise UsageError(f"%agent_close: no cell has started an agent {options.name!r} ({self._names()})")
        for name in [options.name] if options.name else list(self._agents):
            self._settings.pop(name)
            await self._closed(name)

    def agent_show(self, line: str) -> None:
        """`%agent_show`: draws the latest run again. `%agent_show SESSION [AGENT]`: draws a stored session."""
        options = parse(show_options(), line)
        if options is None:
            return
        if options.session is not None:
            try:
                show_stored(session_store(load_config().sessions), options.session, options.agent)
            except FreeactError as error:
                raise UsageError(f"%agent_show: {error}") from error
        elif not show_again():
            raise UsageError(
                "%agent_show: no run has been shown in this kernel; `%agent_show SESSION` draws what is kept of an earlier "
                "one (`!freeact-sub sessions list` names them)"
            )

    async def agent_resume(self, line: str) -> None:
        """`%agent_resume [SESSION]`: makes `%%agent` continue a session. Default: the latest one of this folder."""
        options = parse(resume_options(), line)
        if options is None:
            return
        name = options.name or DEFAULT_NAME
        if name in self._agents:
            raise UsageError(f"%agent_resume: {name!r} is open here: `%agent_close {name}` first, or choose another --name")
        try:
            config = _load_config(options)
            session = stored_session(session_store(config.sessions), options.session)
            await self._start(name, options, config, session.session_id)
        except FreeactError as error:
            raise UsageError(f"%agent_resume: {error}") from error
        print(f"going on with {session_words(session)}; the next %%agent cell is its next prompt")  # noqa: T201  # IPython's way

    async def _choose(self, options: argparse.Namespace) -> Agent:
        """Return the agent of that name: one started by a cell, a variable of the user, or a new one."""
        settings = _settings(options)
        name = options.name or DEFAULT_NAME
        found = self._agents.get(name)
        if found is None and isinstance(variable := self._shell.user_ns.get(name), Agent):
            if variable.is_open and not settings:
                return variable
            if options.name is not None and settings:
                raise UsageError(f"%%agent: {name!r} is your own agent: choose its settings where you make it")
            if options.name is not None:
                raise UsageError(
                    f"%%agent: {name!r} is your own agent and is not open: `await {name}.open()` first, or leave out --name"
                )
        if found is None:
            found = await self._start(name, options, _load_config(options), NEW)
        elif other := [option for option in settings if settings[option] != self._settings[name].get(option)]:
            options_given = ", ".join(f"--{option.replace('_', '-')}" for option in other)
            raise UsageError(
                f"%%agent: {name!r} was started with other settings ({options_given}): `%agent_close {name}` first, "
                "or choose another --name"
            )
        return found

    async def _start(self, name: str, options: argparse.Namespace, config: Config, session: str) -> Agent:
        """Makes an agent and keeps it for later cells. Args: session: `new`, or the id of a session to continue."""
        if options.here:
            agent = Agent(config, session=session)
        else:
            kernels = config.kernel.model_copy(update={"python": sys.executable})
            config = config.model_copy(update={"kernel": kernels})
            conversation = CopiedConversation(self._shell, self._forget, "" if name == DEFAULT_NAME else name)
            agent = Agent(config, session=session, kernel_provider=conversation.provider(kernels))
            conversation.begin(agent)
            self._copied[name] = conversation
        self._agents[name], self._settings[name] = agent, _settings(options)
        self._loop = asyncio.get_running_loop()
        try:
            await agent.open()  # until `%agent_close` or the kernel's end, which no `async with` can span
        except BaseException:
            self._settings.pop(name)
            await self._closed(name)
            raise
        return agent

    async def _closed(self, name: str) -> None:
        """Closes an agent, and what it works in."""
        agent, conversation = self._agents.pop(name), self._copied.pop(name, None)
        await (agent if conversation is None else conversation).aclose()

    def _forget(self) -> None:
        """In a copy of this kernel: nothing here runs agents."""
        self.unload()
        self._shell.events.register("pre_execute", self._before_each_cell)
        _loaded.clear()

    def _names(self) -> str:
        return f"there are: {', '.join(self._agents)}" if self._agents else "there are none"

    def _await_magics(self, lines: list[str]) -> list[str]:
        return [_CALL.sub("await ", line) for line in lines]

    def _close_at_exit(self) -> None:
        """Closes all agents on their own loop: the kernel has stopped it by now, but not closed it."""
        loop = self._loop
        if loop is None or loop.is_closed() or loop.is_running():
            return
        closing_all = _all_of([self._closed(name) for name in list(self._agents)])
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it would cut short what leads to the same end
        closing = loop.create_task(asyncio.wait_for(closing_all, EXIT_SECONDS), name="close agents")
        closing.add_done_callback(lambda _: loop.stop())
        while not closing.done():  # IPython stops the loop once more, 0.1 s after the kernel was told to shut down
            loop.run_forever()
        if closing.cancelled() or closing.exception() is not None:
            logger.error("agents did not close in %g s", EXIT_SECONDS)


def _load_config(options: argparse.Namespace) -> Config:
    """The settings of the folder, if somebody has trusted them; `--trust` does."""
    trust = Trust(user_folder())
    arguments = load_arguments(options)
    try:
        return load_config(**arguments, trust=trust)
    except UntrustedError as error:
        if not options.trust:
            raise
        try:
            trust.add(error.files)
        except ConfigError as problem:
            logger.warning("%s", problem)
        return load_config(**arguments, trust=trust)


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """What is chosen in the first cell of a conversation."""
    return {**given(options), **({"here": True} if options.here else {})}


async def _all_of(closings: list[Any]) -> None:
    for error in await asyncio.gather(*closings, return_exceptions=True):
        if error is not None:
            logger.error("closing an agent failed", exc_info=error)


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
