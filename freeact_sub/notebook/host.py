"""The process beside a notebook's kernel in which the agents of its `%%agent` cells are: models, keys, MCP, sessions.

`conversation.py` starts it (`python -P -m freeact_sub.notebook.host`, with two sockets that it inherits) and draws the
events. It knows nothing of variables: where an agent works on a copy of the kernel, the kernel makes it (`kernels/copies/`).
It ends with the kernel, however that ends, after it has closed its agents.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict
from typing import Any, Final

from freeact_sub import events as ev
from freeact_sub.agent import Agent
from freeact_sub.agents import Run
from freeact_sub.calls import CodeAction
from freeact_sub.config.command_options import load_arguments
from freeact_sub.config.load import load_config
from freeact_sub.config.schema import Config, user_folder
from freeact_sub.config.trust import Trust
from freeact_sub.errors import ConfigError, FreeactError, KernelLostError, UntrustedError, speaking_of_options
from freeact_sub.events.answers import ASKED, CLOSED, EffectsSource
from freeact_sub.events.json_lines import json_line
from freeact_sub.kernels.copies import CopyProvider, NotebookCopy, report_of
from freeact_sub.kernels.handover import WrittenValues
from freeact_sub.kernels.provider import make_provider
from freeact_sub.models.build import build_model
from freeact_sub.notebook.display import read_stored, session_words, stored_session
from freeact_sub.notebook.magic_options import agent_options, parse, resume_options
from freeact_sub.notebook.peer import NO_COPY, Handlers, Peer, PeerLostError
from freeact_sub.sessions import session_store
from freeact_sub.system.closing import carry_out
from freeact_sub.system.guard import POLL_SECONDS, open_pidfd

NEW: Final = "new"
CLOSE_SECONDS: Final = 30.0

logger = logging.getLogger(__name__)


class HostedAgent:
    """An agent of a notebook, and the provider of its kernels if they are copies."""

    def __init__(self, agent: Agent, provider: CopyProvider | None, *, is_unattended: bool) -> None:
        """Args: agent: not yet open. provider: of copies. None: an empty kernel. is_unattended: nobody answers questions."""
        self.agent, self.provider, self.is_unattended = agent, provider, is_unattended
        self.run: Run | None = None
        """The run that a cell has begun."""
        self._open: dict[str, str] = {}
        """The code of the cells about which people are asked, by question id."""
        self._approved: set[str] = set()
        """The code of the cells that people have allowed."""

    def hear(self, event: ev.Event) -> None:
        """Notes people's decisions about cells."""
        if isinstance(event, ev.ApprovalRequest) and isinstance(event.call, CodeAction):
            self._open[event.request_id] = event.call.code
        elif isinstance(event, ev.ApprovalDecided):
            code = self._open.pop(event.request_id, None)
            if code is not None and event.allowed and not self.is_unattended:
                self._approved.add((event.code or code).strip())

    @property
    def works_unasked(self) -> bool:
        """Whether a cell has run in the present copy that no person has allowed."""
        return self.copy is None or any(code.strip() not in self._approved for code, _ in self.copy.cells)

    @property
    def copy(self) -> NotebookCopy | None:
        """The copy in which it works, if there is one."""
        copy = self.provider.copy if self.provider is not None else None
        return copy if copy is not None and copy.pid is not None else None

    @property
    def living(self) -> NotebookCopy:
        """The copy in which it works. Raises: KernelLostError: there is none."""
        if self.copy is None:
            raise KernelLostError(NO_COPY)
        return self.copy

    async def aclose(self) -> None:
        """Ends the agent."""
        try:
            await self.agent.aclose()
        finally:
            if self.provider is not None:
                await self.provider.aclose()


class NotebookHost:
    """The agents of one notebook, by name. The kernel calls the public methods."""

    def __init__(self) -> None:
        self._agents: dict[str, HostedAgent] = {}
        self._told: set[asyncio.Task[None]] = set()
        self.peer = Peer(self.handlers)

    @property
    def handlers(self) -> Handlers:
        """The functions that the kernel may call."""
        of_agents = ("start", "stored", "run", "cancel", "close", "shown", "effects")
        names = (*of_agents, "copy", "report", "write_parts", "write_values", "code", "works_unasked", "drop")
        return {name: getattr(self, name) for name in names}

    async def start(
        self, *, name: str, line: str, resumes: bool, refused: str, cwd: str, environment: Mapping[str, str | None]
    ) -> dict[str, Any]:
        """Starts an agent.

        Args:
            name: The agent's name.
            line: The magic's line.
            resumes: Whether the agent goes on with a session.
            refused: See `run`.
            cwd: The folder of the notebook's kernel.
            environment: Variables that differ from this process's; None: gone.
        """
        _be_in(cwd, environment)
        options = parse(resume_options() if resumes else agent_options(), line)
        assert options is not None  # the kernel has printed the help
        config = _load_config(options)
        stored = stored_session(session_store(config.sessions), options.session) if resumes else None
        session = NEW if stored is None else stored.session_id
        hosted = self._made(config, session, is_copy=not options.here)
        self._agents[name] = hosted
        if hosted.provider is not None:
            await hosted.provider.refuse(refused)
        try:
            await hosted.agent.open()
        except BaseException:
            await self.close(name=name)
            raise
        hosted.agent.follow_background(lambda event: self._soon(self._tell_of(name, event)))
        is_copy = hosted.provider is not None
        words = "" if stored is None else session_words(stored)
        return {"is_copy": is_copy, "session": words}

    async def stored(
        self, *, session: str, agent: str | None, cwd: str, environment: Mapping[str, str | None]
    ) -> tuple[list[str], bool]:
        """Reads a stored session: its events, and whether it goes on. Args: see `read_stored` and `start`."""
        _be_in(cwd, environment)
        store = session_store(load_config().sessions)
        events, goes_on = await asyncio.to_thread(read_stored, store, session, agent)
        return [event.to_json() for event in events], goes_on

    async def run(
        self, *, name: str, number: int, prompt: str, note: str, refused: str, given: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Runs a prompt and tells its events, as `event` with the number. Returns the ending.

        Args:
            name: The agent's name.
            number: The run's number.
            prompt: The task.
            note: Text that the model reads after the prompt.
            refused: Why there can be no copy now. Empty: there can be one, or none is wanted.
            given: Variables for an empty kernel: see `WrittenValues`.
        """
        hosted = self._agents[name]
        if hosted.provider is not None:
            await hosted.provider.refuse(refused)
        values = WrittenValues(**given) if given is not None else None
        run = hosted.run = hosted.agent.run(prompt, inputs=values)
        run.add_note(note)
        run.pictures = "shown"
        async with run:
            async for event in run:
                hosted.hear(event)
                if isinstance(event, ev.QuestionRequest):
                    event.shown()
                await self.peer.tell("event", number=number, event=event.to_json())
        result = await run.result()
        copy = hosted.copy
        return {
            "ending": result.event.to_json(),
            "agent_id": result.agent_id,
            "cells": bool(copy is not None and copy.cells),
        }

    async def cancel(self, *, name: str) -> bool:
        """Cancels the run of an agent."""
        run = self._agents[name].run
        return run is not None and run.cancel()

    async def copy(self, *, name: str) -> int | None:
        """Returns the process id of the copy in which an agent works, if there is one."""
        copy = self._agents[name].copy
        return copy.pid if copy is not None else None

    async def report(self, *, name: str) -> str:
        """Describes the variables of a copy. Raises: KernelError: it cannot."""
        return await report_of(self._agents[name].living)

    async def write_values(self, *, name: str, names: list[str]) -> tuple[str, str]:
        """Makes a copy write variables. Returns file and folder. Raises: KernelError: it does not."""
        copy = self._agents[name].living
        return await copy.write_values(names), str(copy.scratch)

    async def write_parts(self, *, name: str, names: list[str]) -> tuple[str, str]:
        """Makes a copy write the parts of variables, as `write_values`."""
        copy = self._agents[name].living
        return await copy.write_parts(names), str(copy.scratch)

    async def code(self, *, name: str) -> list[tuple[str, bool]]:
        """Returns the cells that an agent has run in its copy, each with whether it ended without an error."""
        return [*self._agents[name].living.cells]

    async def works_unasked(self, *, name: str) -> bool:
        """Returns whether an agent has run a cell in its copy that no person has allowed."""
        return self._agents[name].works_unasked

    async def drop(self, *, name: str) -> None:
        """Ends a copy. Raises: KernelLostError: there is none."""
        await self._agents[name].living.drop()

    async def close(self, *, name: str) -> None:
        """Ends an agent."""
        hosted = self._agents.pop(name, None)
        if hosted is not None:
            await hosted.aclose()

    async def shown(self, *, request_id: str) -> None:
        """Notes that a person sees a question."""
        if receiver := ASKED.get(request_id):
            receiver.shown(request_id)

    async def effects(self, *, request_id: str, code: str | None) -> dict[str, Any]:
        """Tries the cell of a question; see `Decidable.effects_ready`."""
        receiver = ASKED.get(request_id)
        ready = receiver.effects_ready(request_id, code) if isinstance(receiver, EffectsSource) else None
        effects = CLOSED if ready is None else await ready
        return asdict(effects)

    async def close_all(self) -> None:
        """Ends all agents."""
        for closed in await asyncio.gather(*(self.close(name=name) for name in [*self._agents]), return_exceptions=True):
            if isinstance(closed, BaseException):
                logger.error("closing an agent failed", exc_info=closed)

    def _made(self, config: Config, session: str, *, is_copy: bool) -> HostedAgent:
        if not is_copy:
            return HostedAgent(Agent(config, session=session), None, is_unattended=config.headless is not None)
        kernels = config.kernel.model_copy(update={"python": sys.executable})
        config = config.model_copy(update={"kernel": kernels})
        provider = CopyProvider(make_provider(kernels, on_notice=self._notice), on_notice=self._notice, origin=self)
        agent = Agent(config, session=session, kernel_provider=provider)
        provider.root_id = agent.agent_id
        return HostedAgent(agent, provider, is_unattended=config.headless is not None)

    async def fork(self, request: Mapping[str, Any]) -> tuple[int, int]:
        """Asks the kernel for a fork; see `Origin`."""
        guard, copy = await self.peer.call("fork", request=request)
        return guard, copy

    async def exit_code(self, guard: int) -> int:
        """Returns the exit code of a guard. If the kernel is gone, the guard ends by itself."""
        try:
            return int(await self.peer.call("exit_code", guard=guard))
        except PeerLostError:
            await process_ended(guard)
            return -signal.SIGKILL

    def _notice(self, text: str) -> None:
        self._soon(self.peer.tell("notice", text=text))

    async def _tell_of(self, name: str, event: ev.Event) -> None:
        await self.peer.tell("background", name=name, event=event.to_json())

    def _soon(self, telling: Coroutine[Any, Any, None]) -> None:
        async def tell() -> None:
            with contextlib.suppress(PeerLostError):
                await telling

        task = asyncio.get_running_loop().create_task(tell(), name="tells a notebook")
        self._told.add(task)
        task.add_done_callback(self._told.discard)


async def answer_all(connection: socket.socket) -> None:
    """Takes decisions and answers, one a line, and says whether they were taken; `ValueError` becomes a text."""
    reader, writer = await asyncio.open_unix_connection(sock=connection, limit=1 << 26)
    with contextlib.suppress(OSError, ValueError):
        while line := await reader.readline():
            writer.write(json_line(answered(json.loads(line))).encode() + b"\n")
            await writer.drain()


def answered(given: Mapping[str, Any]) -> dict[str, Any]:
    """Passes a decision or an answer on to its question."""
    receiver = ASKED.get(given["request_id"])
    if receiver is None:
        return {"taken": False}
    kind: Callable[..., Any] = ev.Decision if given["kind"] == "decision" else ev.Answer
    try:
        return {"taken": receiver.answer(given["request_id"], kind(**given["content"]))}
    except ValueError as error:
        return {"wrong": str(error)}


def _be_in(cwd: str, environment: Mapping[str, str | None]) -> None:
    """Goes to the folder of the notebook's kernel. Args: environment: variables that differ from ours; None: gone."""
    os.chdir(cwd)
    for variable, value in environment.items():
        if value is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = value


def _load_config(options: Any) -> Config:
    """Loads the settings of the folder, if they are trusted; `--trust` does that."""
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


async def load_client() -> None:
    """Loads the client of the model that the settings name: the first prompt would have to wait for it."""
    with contextlib.suppress(FreeactError):  # the first prompt says what is wrong, and may name another model
        config = load_config(trust=Trust(user_folder()))
        await asyncio.to_thread(build_model, config)


async def process_ended(process: int) -> None:
    """Waits for the end of another process."""
    descriptor, ended, loop = open_pidfd(process), asyncio.Event(), asyncio.get_running_loop()
    if descriptor is None:  # it has ended, or the system has no such descriptors
        with contextlib.suppress(ProcessLookupError):
            while True:
                os.kill(process, 0)
                await asyncio.sleep(POLL_SECONDS)
        return
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def serve(kernel: int, connection: socket.socket, answers: socket.socket) -> None:
    """Serves the kernel until it ends or closes the connection."""
    host = NotebookHost()
    await host.peer.open(connection)
    answering = asyncio.create_task(answer_all(answers), name="takes answers")
    loading = asyncio.create_task(load_client(), name="loads the client of the model")
    # programs of the kernel may keep its end of the connection open
    ends = [asyncio.create_task(host.peer.ended()), asyncio.create_task(process_ended(kernel))]
    if os.getppid() == kernel:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for task in (answering, loading, *ends):
        task.cancel()
    with contextlib.suppress(TimeoutError, FreeactError):
        await carry_out(host.close_all(), timeout_seconds=CLOSE_SECONDS)


def main() -> None:
    """Runs the process. Its arguments are the two inherited sockets."""
    connection, answers = (socket.socket(fileno=int(number)) for number in sys.argv[1:])
    for each in (connection, answers):
        each.set_inheritable(False)
    os.environ.setdefault("PYDANTIC_AI_NO_BANNER", "1")  # it would stand in the log of the notebook's server
    with speaking_of_options():
        asyncio.run(serve(os.getppid(), connection, answers))


if __name__ == "__main__":
    main()
