"""`AgentsBeside`: the kernel's end of the process in which the agents of `%%agent` cells are (`host.py`).

A thread of this kernel serves the connection and draws what agents do, so that neither waits for a cell of the user's. Only
what needs the kernel's variables is done in the main thread: a copy is made there, and values are taken over.
"""

import asyncio
import concurrent.futures
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import pydantic

from freeact_sub.agents import RunResult
from freeact_sub.errors import FreeactError
from freeact_sub.events import (
    AgentEvent,
    AgentFinished,
    ApprovalDecided,
    ApprovalRequest,
    Decision,
    Effects,
    Event,
    QuestionAnswered,
    QuestionRequest,
)
from freeact_sub.events.answers import ASKED
from freeact_sub.events.ending import Ending
from freeact_sub.events.json_lines import json_line
from freeact_sub.kernels.copies import CopyMaker, kernel_app, unsafe
from freeact_sub.notebook.display import hear
from freeact_sub.notebook.peer import Peer, PeerLostError

THREAD: Final = "serves agents"
"""`kernels/copies/safety.py` knows it by its name."""
COMMAND: Final = (sys.executable, "-P", "-m", "freeact_sub.notebook.host")
ANSWER_SECONDS: Final = 10.0
EXIT_SECONDS: Final = 3.0
"""The seconds that closing may take when the kernel shuts down; Jupyter sends SIGTERM after 2.5 s and SIGKILL after 5 s."""

EFFECTS: Final = pydantic.TypeAdapter(Effects)
T = TypeVar("T")


class AgentsBeside:
    """See above. Its public methods may be called in any thread."""

    def __init__(self, shell: Any, forget: Callable[[], None]) -> None:
        """Starts the process. Args: shell, forget: see `CopyMaker`."""
        self.maker = CopyMaker(shell, forget)
        self.main: asyncio.AbstractEventLoop | None = None
        """The loop in which cells run; it is known with the first one that is asked of an agent."""
        self._environment = hashes_of_environment()
        """What the process has, as far as it needs to be compared."""
        self._connection, others_end = socket.socketpair()
        self._answering, others_answers = socket.socketpair()
        self._answering.settimeout(ANSWER_SECONDS)
        self._lock = threading.Lock()
        """Of the answers, of which one is given at a time."""
        self.runs: dict[int, HostedRun] = {}
        """Those that go on, by number."""
        self._tried: dict[str, Effects] = {}
        """By question: what its cell did in its last trial."""
        ends = (others_end.fileno(), others_answers.fileno())
        self._process = subprocess.Popen(
            [*COMMAND, *map(str, ends)],
            pass_fds=ends,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        others_end.close()
        others_answers.close()
        self._loop = asyncio.new_event_loop()
        handlers = ("fork", "exit_code", "event", "background", "notice")
        self.peer = Peer({name: getattr(self, f"_{name}") for name in handlers})
        self._thread = threading.Thread(target=self._serve, name=THREAD, daemon=True)
        self._thread.start()

    @property
    def is_lost(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    async def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Has the thread do something, and waits for it."""
        return await asyncio.wrap_future(self.begin(work))

    def begin(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Has the thread do something in the context of this cell."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def call(self, op: str, **content: Any) -> Any:
        """Calls a method of `NotebookHost`. Raises: see `Peer.call`."""
        return await self.do(self.peer.call(op, **content))

    async def start(self, name: str, line: str, *, resumes: bool) -> dict[str, Any]:
        """Starts an agent. See `NotebookHost.start`."""
        self.main = asyncio.get_running_loop()
        return await self.call(  # type: ignore[no-any-return]  # as `NotebookHost.start` has it
            "start",
            name=name,
            line=line,
            resumes=resumes,
            refused=unsafe(kernel_app()),
            cwd=str(Path.cwd()),
            environment=self._changed_variables(),
        )

    async def stored(self, session: str, agent: str | None) -> tuple[list[Event], bool]:
        """Reads a stored session. See `NotebookHost.stored`."""
        place = {"cwd": str(Path.cwd()), "environment": self._changed_variables()}
        lines, goes_on = await self.call("stored", session=session, agent=agent, **place)
        return [AgentEvent.from_json(line) for line in lines], goes_on

    def answer(self, request_id: str, answer: Any) -> bool:
        """Gives a decision or an answer. Returns and raises: see `AnswerReceiver`."""
        content = asdict(answer)
        kind = "decision" if isinstance(answer, Decision) else "answer"
        with self._lock, contextlib.suppress(OSError):
            self._answering.sendall(json_line({"request_id": request_id, "kind": kind, "content": content}).encode() + b"\n")
            told = b""
            while not told.endswith(b"\n"):
                piece = self._answering.recv(1 << 16)
                if not piece:
                    return False
                told += piece
            back = json.loads(told)
            if "wrong" in back:
                raise ValueError(back["wrong"])
            return bool(back["taken"])
        return False

    def shown(self, request_id: str) -> None:
        """See `AnswerReceiver`."""
        self.begin(self.peer.tell("shown", request_id=request_id))

    def effects(self, request_id: str) -> Effects | None:
        """See `EffectsSource`."""
        return self._tried.get(request_id)

    async def effects_ready(self, request_id: str, code: str | None = None) -> Effects:
        """See `EffectsSource`."""
        self._tried.pop(request_id, None)
        try:
            found = EFFECTS.validate_python(await self.call("effects", request_id=request_id, code=code))
        except FreeactError as error:  # the process has ended: its questions are closed as well
            found = Effects(status="refused", reason=str(error))
        self._tried[request_id] = found
        return found

    def close(self) -> None:
        """Ends the process, which closes its agents first. Waits for that, but not for long."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(EXIT_SECONDS)

    def _changed_variables(self) -> dict[str, str | None]:
        """The environment variables that the user has changed since the process has got them."""
        before, now = self._environment, hashes_of_environment()
        self._environment = now
        names = {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
        return {os.fsdecode(name): os.environ.get(os.fsdecode(name)) for name in names}

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.create_task(self._serve_connection())
        self._loop.run_forever()

    async def _serve_connection(self) -> None:
        await self.peer.open(self._connection)
        await self.peer.ended()
        self.maker.end_all()
        for run in [*self.runs.values()]:
            run.take(None)

    async def _fork(self, request: Mapping[str, Any]) -> tuple[int, int]:
        assert self.main is not None  # an agent was started
        return await self.maker.fork(self.main, request)

    async def _exit_code(self, guard: int) -> int:
        return await self.maker.exit_code(guard)

    async def _event(self, number: int, event: str) -> None:
        run = self.runs.get(number)
        if run is not None:
            run.take(self._read(event))

    async def _background(self, name: str, event: str) -> None:
        del name
        hear(self._read(event))

    async def _notice(self, text: str) -> None:
        print(text)  # noqa: T201  # IPython's way: it appears below the cell that runs

    def _read(self, line: str) -> Event:
        """An event whose questions can be answered here."""
        event = AgentEvent.from_json(line)
        if isinstance(event, ApprovalRequest | QuestionRequest):
            ASKED[event.request_id] = self
        elif isinstance(event, ApprovalDecided | QuestionAnswered):
            ASKED.pop(event.request_id, None)
            self._tried.pop(event.request_id, None)
        return event


class HostedRun:
    """A run of an agent of the process beside, with what `display.show_run` needs of a `Run`. In its thread."""

    _numbers = iter(range(1, sys.maxsize))

    def __init__(self, beside: AgentsBeside, name: str, prompt: str, note: str, refused: str, given: Any) -> None:
        """Args: see `NotebookHost.run`."""
        self.prompt, self.pictures = prompt, "shown"
        self.has_changed = False
        """Afterwards: whether the agent has run cells in a copy."""
        self._beside, self._name, self._number = beside, name, next(self._numbers)
        self._content = {"name": name, "number": self._number, "prompt": prompt, "note": note}
        self._content |= {"refused": refused, "given": given}
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._result: asyncio.Task[RunResult] | None = None

    def take(self, event: Event | None) -> None:
        """The next event; None: there is no more."""
        self._events.put_nowait(event)

    def cancel(self) -> None:
        """Cancels it, from any thread."""
        with contextlib.suppress(RuntimeError):  # the thread has ended
            self._beside.begin(self._cancel())

    async def result(self) -> RunResult:
        """How it ended. Raises: FreeactError: it did not begin, or the process has ended."""
        assert self._result is not None  # it was entered
        return await asyncio.shield(self._result)

    async def __aenter__(self) -> Self:
        self._beside.runs[self._number] = self
        self._result = asyncio.create_task(self._run(), name="run of an agent beside")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._result is not None
        if not self._result.done():
            await self._cancel()
        await asyncio.wait({self._result})
        self._beside.runs.pop(self._number, None)

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._all()

    async def _all(self) -> AsyncIterator[Event]:
        while (event := await self._events.get()) is not None:
            yield event

    async def _cancel(self) -> None:
        with contextlib.suppress(PeerLostError):
            await self._beside.peer.tell("cancel", name=self._name)

    async def _run(self) -> RunResult:
        try:
            ended = await self._beside.peer.call("run", **self._content)
        finally:
            self.take(None)
        ending = AgentEvent.from_json(ended["ending"])
        assert isinstance(ending, AgentFinished)
        self.has_changed = ended["cells"]
        facts = {fact.name: getattr(ending, fact.name) for fact in fields(Ending)}
        return RunResult(value=ending.output, agent_id=ended["agent_id"], **facts)


def hashes_of_environment() -> dict[bytes, int]:
    """Of each variable its hash, without another copy of its value in memory."""
    return {name: hash(value) for name, value in os.environb.items()}
