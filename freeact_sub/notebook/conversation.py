"""`CellConversation`: an agent of `%%agent` cells, which works in the process beside this kernel, on a copy of it.

Each prompt finds the variables as they are: if the user has run a cell since the last copy was made, it is made anew. A
prompt that follows a prompt goes on in the same copy. The cell waits for the agent, until the user runs another one.

`AgentsBeside` is the kernel's end of that process (`host.py`). A thread of this kernel serves the connection and draws the
agents' work, so that neither waits for a cell of the user's. Only work with the kernel's variables is done in the main
thread: a copy is made there, and values are taken over.
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
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import pydantic
from IPython.core.inputtransformer2 import TransformerManager

from freeact_sub import events as ev
from freeact_sub.agents import RunResult
from freeact_sub.errors import FreeactError, KernelError, KernelLostError
from freeact_sub.events.answers import ASKED
from freeact_sub.events.ending import Ending
from freeact_sub.events.json_lines import json_line
from freeact_sub.kernels.copies import CopyChange, CopyMaker, changed, explained_here, kernel_app, report_here, take, unsafe
from freeact_sub.kernels.guest.state import variables
from freeact_sub.kernels.guest.values import RESERVED
from freeact_sub.kernels.handover import write_beside
from freeact_sub.kernels.variable_reports import About, parsed
from freeact_sub.notebook.display import CANCEL_SECONDS, Page, RunInterruptedError, hear, interrupts_cancel, show_run
from freeact_sub.notebook.ipython_shell import NOTHING, CellDisplay, CellsOfUser, LineAsker, user_goes_on, wait_awake
from freeact_sub.notebook.peer import NO_COPY, Peer, PeerLostError
from freeact_sub.notebook.question_forms import QuestionForm
from freeact_sub.notebook.render import change_table
from freeact_sub.notebook.user_names import NAMED_VALUE, UserNames, about_copied
from freeact_sub.system.private_folders import KernelFolder, make_folder

THREAD: Final = "serves agents"
"""The name of the thread, known to `kernels/copies/forks.py`."""
COMMAND: Final = (sys.executable, "-P", "-m", "freeact_sub.notebook.host")
ANSWER_SECONDS: Final = 10.0
EXIT_SECONDS: Final = 3.0
"""The seconds that closing may take when the kernel shuts down; Jupyter sends SIGTERM after 2.5 s and SIGKILL after 5 s."""

EFFECTS: Final = pydantic.TypeAdapter(ev.Effects)
T = TypeVar("T")
REFUSED: Final = "The agent works in an empty kernel, for this one cannot be copied: {reason}"
REPLACED: Final = "The copy of the last prompt is gone; of it you had not taken over: {names}"
GOES_ON: Final = "The agent goes on beside your cells: %agent_wait{name} waits for it, %agent_stop{name} stops it."
HIDDEN_AGENT: Final = "In the agent's copy, `agent` is the agent's own object. Your variable `agent` stays in your kernel."
NOT_TAKEN: Final = "each kernel has its own, which is not taken over"


class AgentsBeside:
    """The kernel's end of the process of the agents. Its public methods may be called in any thread."""

    def __init__(self, shell: Any, forget: Callable[[], None]) -> None:
        """Starts the process. Args: shell, forget: see `CopyMaker`."""
        self.maker = CopyMaker(shell, forget)
        self.main: asyncio.AbstractEventLoop | None = None
        """The loop in which cells run, known with the first cell that asks for an agent."""
        self._environment = hashes_of_environment()
        """Hashes of the environment variables that the process has."""
        self._connection, others_end = socket.socketpair()
        self._answering, others_answers = socket.socketpair()
        self._answering.settimeout(ANSWER_SECONDS)
        self._lock = threading.Lock()
        """The lock of the answers, of which one is given at a time."""
        self.runs: dict[int, HostedRun] = {}
        """Live runs by number."""
        self._tried: dict[str, ev.Effects] = {}
        """The effects of each question's cell in its last trial."""
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
        """Does work in the thread, and waits for it."""
        return await asyncio.wrap_future(self.begin(work))

    def begin(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Begins work in the thread, in the context of this cell."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def call(self, op: str, **content: Any) -> Any:
        """Calls a method of `NotebookHost`. Raises: see `Peer.call`."""
        return await self.do(self.peer.call(op, **content))

    async def start(self, name: str, line: str, *, resumes: bool) -> dict[str, Any]:
        """Starts an agent; see `NotebookHost.start`."""
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

    async def stored(self, session: str, agent: str | None) -> tuple[list[ev.Event], bool]:
        """Reads a stored session; see `NotebookHost.stored`."""
        place = {"cwd": str(Path.cwd()), "environment": self._changed_variables()}
        lines, goes_on = await self.call("stored", session=session, agent=agent, **place)
        return [ev.AgentEvent.from_json(line) for line in lines], goes_on

    def answer(self, request_id: str, answer: Any) -> bool:
        """Gives a decision or an answer. Returns and raises: see `AnswerReceiver`."""
        content = asdict(answer)
        kind = "decision" if isinstance(answer, ev.Decision) else "answer"
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
        """Notes that a person sees a question."""
        self.begin(self.peer.tell("shown", request_id=request_id))

    def effects(self, request_id: str) -> ev.Effects | None:
        """Returns the effects of a question's cell, if they are known."""
        return self._tried.get(request_id)

    async def effects_ready(self, request_id: str, code: str | None = None) -> ev.Effects:
        """Tries the cell of a question, and returns its effects."""
        self._tried.pop(request_id, None)
        try:
            found = EFFECTS.validate_python(await self.call("effects", request_id=request_id, code=code))
        except FreeactError as error:  # the process has ended: its questions are closed as well
            found = ev.Effects(status="refused", reason=str(error))
        self._tried[request_id] = found
        return found

    def close(self) -> None:
        """Ends the process, which closes its agents first. Waits for the end, but not for long."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(EXIT_SECONDS)

    def _changed_variables(self) -> dict[str, str | None]:
        """Returns the environment variables that the user has changed since they were last sent."""
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

    def _read(self, line: str) -> ev.Event:
        """Reads an event whose questions can be answered here."""
        event = ev.AgentEvent.from_json(line)
        if isinstance(event, ev.ApprovalRequest | ev.QuestionRequest):
            ASKED[event.request_id] = self
        elif isinstance(event, ev.ApprovalDecided | ev.QuestionAnswered):
            ASKED.pop(event.request_id, None)
            self._tried.pop(event.request_id, None)
        return event


class HostedRun:
    """A run in the process beside, with the part of a `Run` that `display.show_run` needs. In its thread."""

    _numbers = iter(range(1, sys.maxsize))

    def __init__(self, beside: AgentsBeside, name: str, prompt: str, note: str, refused: str, given: Any) -> None:
        """Args: see `NotebookHost.run`."""
        self.prompt, self.pictures = prompt, "shown"
        self.has_changed = False
        """Whether the agent has run cells in a copy; known afterwards."""
        self._beside, self._name, self._number = beside, name, next(self._numbers)
        self._content = {"name": name, "number": self._number, "prompt": prompt, "note": note}
        self._content |= {"refused": refused, "given": given}
        self._events: asyncio.Queue[ev.Event | None] = asyncio.Queue()
        self._result: asyncio.Task[RunResult] | None = None

    def take(self, event: ev.Event | None) -> None:
        """Takes the next event; None: there is no more."""
        self._events.put_nowait(event)

    def cancel(self) -> None:
        """Cancels the run, from any thread."""
        with contextlib.suppress(RuntimeError):  # the thread has ended
            self._beside.begin(self._cancel())

    async def result(self) -> RunResult:
        """Returns the result. Raises: FreeactError: the run did not begin, or the process has ended."""
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

    def __aiter__(self) -> AsyncIterator[ev.Event]:
        return self._all()

    async def _all(self) -> AsyncIterator[ev.Event]:
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
        ending = ev.AgentEvent.from_json(ended["ending"])
        assert isinstance(ending, ev.AgentFinished)
        self.has_changed = ended["cells"]
        facts = {fact.name: getattr(ending, fact.name) for fact in fields(Ending)}
        return RunResult(value=ending.output, agent_id=ended["agent_id"], **facts)


def hashes_of_environment() -> dict[bytes, int]:
    """Returns the hash of each variable, without another copy of its value in memory."""
    return {name: hash(value) for name, value in os.environb.items()}


class CellConversation:
    """An agent of `%%agent` cells, and its copy of the kernel. In the main thread."""

    def __init__(self, shell: Any, beside: AgentsBeside, cells: CellsOfUser, name: str, words: str) -> None:
        """Args: name: of the agent. words: the option `--name`."""
        self._shell, self._beside, self._cells = shell, beside, cells
        self._name = name
        self._words = words
        self.is_copy = False
        """Whether it works on copies, where that is possible."""
        self._told_of_agent = False
        """Whether the person knows that a variable `agent` is not in the copy."""
        self.is_stale = False
        """Whether the user has run a cell since the copy was made."""
        self._open: list[CopyChange] = []
        """Changes that were not taken over."""
        self._run: HostedRun | None = None
        self._showing: asyncio.Task[RunResult] | None = None
        self._present: asyncio.Task[RunResult] | None = None
        """The task of the run, and of the table after it."""
        self._asker: LineAsker | None = None
        self._area = ChangeArea()
        self._page = Page()
        self._handed: KernelFolder | None = None
        """The folder of values for an empty kernel."""

    async def run(self, prompt: str, questions: QuestionForm, *, begun: float, may_leave: bool) -> RunResult | None:
        """Runs a prompt, shows it, and then its changes. None: the cell has left the run, which goes on.

        Args:
            prompt: The task.
            questions: See `display_run`.
            begun: The time at which the cell began (`time.monotonic`).
            may_leave: Whether the cell ends when the user runs another one.

        Raises:
            See `display_run`.
        """
        await self.settled()
        names: UserNames | None = None
        given, note, refused = None, "", ""
        if self.is_copy and not (refused := unsafe(kernel_app())):
            await self._renew()
            self._tell_of_agent()
            note = about_copied(prompt, await self._variables())
        elif self.is_copy:
            _tell(REFUSED.format(reason=refused))
            named = self._named_in(prompt)
            given, names = self._written(named), UserNames(named)
            note = names.for_model(prompt)
        else:
            names = UserNames()
            note = names.for_model(prompt)
        self._run = HostedRun(self._beside, self._name, prompt, note, refused, given)
        self._asker, self._area = LineAsker(asyncio.get_running_loop()), ChangeArea()
        self._page = page = Page(names=names)
        showing = show_run(self._run, names, questions, page=page, ask=self._asker.ask)
        self._showing = asyncio.create_task(self._beside.do(showing), name="run of an agent beside")
        self._present = asyncio.create_task(self._finished(self._run, self._showing), name="end of a run beside")
        return await self._wait(page if may_leave else None, begun)

    async def settled(self) -> None:
        """Waits until no run goes on; its questions are asked in this cell meanwhile."""
        if self._present is None or self._present.done():
            return
        assert self._asker is not None
        self._asker.wait_in_cell()
        try:
            await wait_awake({self._present})
        finally:
            self._asker.leave_cell()

    async def wait(self) -> RunResult | None:
        """Shows a live run here as well, with its questions, and waits for its end."""
        if self._present is None or self._present.done():
            return None
        present = self._present
        self._page.show_here()
        self._area.show_here()
        await self.settled()
        return present.result()

    async def stop(self) -> bool:
        """Cancels the live run, and waits for its end. Returns False if there is none."""
        if self._present is None or self._present.done():
            return False
        assert self._run is not None
        self._run.cancel()
        await asyncio.wait({self._present}, timeout=CANCEL_SECONDS)
        return True

    async def diff(self) -> None:
        """Shows the differences. Raises: KernelError: there is no copy, or it cannot be compared."""
        self._open = await self.changed()
        if _has_variables(self._open):
            ChangeArea().show(change_table(self._open, self._words, (await self.code())[0]))
        else:
            _tell("The copy has the same variables as this notebook.")

    async def has_changes(self) -> bool:
        """Returns whether there may be changes to take over, of a copy or of a lost one."""
        await self.settled()
        return bool(self._open) or not self.is_copy or await self._beside.call("copy", name=self._name) is not None

    async def changed(self) -> list[CopyChange]:
        """Returns the differences. Raises: as `diff`."""
        await self.settled()
        return await self._changed_now()

    async def _changed_now(self) -> list[CopyChange]:
        changes = changed(*await self._reports())
        try:
            file, folder = await self._beside.call("write_parts", name=self._name, names=[change.name for change in changes])
            return await explained_here(changes, file, Path(folder), self._shell)
        except (KernelError, ValueError):  # it is not known what differs
            return changes

    async def _reports(self) -> tuple[dict[str, About], dict[str, About], dict[str, About]]:
        """Returns the variables when the copy was made, those of this kernel, and those of the copy."""
        copy = await self._beside.call("copy", name=self._name) if self.is_copy else None
        then = self._beside.maker.earlier.get(copy) if copy is not None else None
        if then is None:
            raise KernelLostError(NO_COPY)
        before, now, text = await asyncio.gather(
            then.report(), report_here(self._shell), self._beside.call("report", name=self._name)
        )
        return before, now, parsed(text.encode())

    async def adopt(self, changes: Sequence[CopyChange]) -> tuple[list[str], dict[str, str]]:
        """Takes over changes of the copy.

        Returns:
            The names that are as in the copy now, and for each other one the reason.

        Raises:
            KernelError: There is no copy, or its values cannot be read.
        """
        own = [change.name for change in changes if change.name in RESERVED]
        changes = [change for change in changes if change.name not in RESERVED]
        wanted = [change.name for change in changes if change.what != "deleted"]
        values: dict[str, Any] = {}
        lost: dict[str, str] = {}
        if wanted:
            file, folder = await self._beside.call("write_values", name=self._name, names=wanted)
            values, lost = await take(file, Path(folder))
        lost |= dict.fromkeys(own, NOT_TAKEN)
        self._shell.push({name: values[name] for name in wanted if name in values})
        gone = [change.name for change in changes if change.what == "deleted"]
        for name in gone:
            self._shell.user_ns.pop(name, None)
        taken = [name for name in wanted if name in values] + gone
        self._open = [change for change in self._open if change.name not in taken]
        return taken, lost

    async def code(self) -> tuple[str, int]:
        """Returns the code of the cells that ended without an error, as one cell, and the number of the others.

        Raises:
            KernelLostError: There is no copy.
        """
        await self.settled()
        return await self._code_now()

    async def _code_now(self) -> tuple[str, int]:
        cells = await self._beside.call("code", name=self._name)
        # a cell magic has a cell to itself
        whole = [TransformerManager().transform_cell(code) if code.startswith("%%") else code for code, ok in cells if ok]
        return "\n\n".join(code.strip("\n") for code in whole), len(cells) - len(whole)

    async def works_unasked(self) -> bool:
        """Returns whether the agent has run a cell in its copy that no person has allowed."""
        return bool(await self._beside.call("works_unasked", name=self._name))

    async def discard(self) -> None:
        """Ends the copy, and its live run. Raises: KernelLostError: there is none."""
        await self.stop()
        self._open = []
        await self._beside.call("drop", name=self._name)

    async def aclose(self) -> None:
        """Ends the conversation."""
        await self._beside.call("close", name=self._name)
        if self._present is not None:
            await asyncio.wait({self._present})

    async def _wait(self, page: Page | None, begun: float) -> RunResult | None:
        """Waits for the run in this cell. Args: page: to be left when the user goes on; None: never."""
        assert self._present is not None
        assert self._showing is not None
        assert self._asker is not None
        assert self._run is not None
        self._asker.wait_in_cell()
        leaving = asyncio.create_task(user_goes_on(self._cells, self._asker, begun), name="hears of cells")
        try:
            with interrupts_cancel():
                await wait_awake({self._present} if page is None else {self._present, leaving})
        except (asyncio.CancelledError, KeyboardInterrupt):
            self._run.cancel()
            await asyncio.wait({self._showing}, timeout=CANCEL_SECONDS)
            if not self._present.done():  # to compare much memory takes seconds: the table comes when the cell has ended
                self._area.show(NOTHING)
            raise RunInterruptedError("interrupted: the run was cancelled") from None
        finally:
            self._asker.leave_cell()
            leaving.cancel()
        if self._present.done():
            return self._present.result()
        assert page is not None
        await self._beside.do(_left(page))
        self._area.show(_as_note(GOES_ON.format(name=self._words)))
        self._present.add_done_callback(self._tell_failure)
        return None

    async def _finished(self, run: HostedRun, showing: "asyncio.Task[RunResult]") -> RunResult:
        try:
            result = await showing
        finally:
            if self._handed is not None:
                self._handed.give_up()
                self._handed = None
        self._area.empty()
        if run.has_changed:
            try:
                self._open, (code, _) = await self._changed_now(), await self._code_now()
            except FreeactError as error:
                self._area.show(_as_note(f"What the agent has changed in its copy could not be found out: {error}"))
            else:
                if _has_variables(self._open):
                    self._area.show(change_table(self._open, self._words, code))
        return result

    def _tell_failure(self, ended: asyncio.Task[RunResult]) -> None:
        """Tells a failure that no cell waits for."""
        if not ended.cancelled() and (error := ended.exception()) is not None:
            self._area.show(_as_note(str(error)))

    async def _renew(self) -> None:
        """Makes the copy anew if the notebook's variables may have changed since."""
        if self.is_stale and await self._beside.call("copy", name=self._name) is not None:
            if _has_variables(self._open):
                _tell(REPLACED.format(names=", ".join(change.name for change in self._open if not change.imported)))
            self._open = []
            await self._beside.call("drop", name=self._name)
        self.is_stale = False

    def _tell_of_agent(self) -> None:
        """Says once that the notebook's variable `agent` is not in the copy."""
        there = self._shell.user_ns.get("agent")
        if there is not None and there is not self._shell.user_ns_hidden.get("agent") and not self._told_of_agent:
            self._told_of_agent = True
            _tell(HIDDEN_AGENT)

    def _named_in(self, prompt: str) -> dict[str, Any]:
        """Returns the variables that a prompt names as `$df`."""
        present = variables(self._shell)
        return {name: present[name] for name in NAMED_VALUE.findall(prompt) if name in present}

    def _written(self, values: dict[str, Any]) -> dict[str, Any] | None:
        """Writes values for an empty kernel into a folder that lasts until the end of the run."""
        if not values:
            return None
        self._handed = KernelFolder(make_folder())
        return write_beside(values, self._handed.path)

    async def _variables(self) -> dict[str, About]:
        """Returns the notebook's variables. A value that takes too long to describe hides the others."""
        try:
            return await report_here(self._shell, digests=False)
        except KernelError:
            return {}


class ChangeArea:
    """The place of the table of changes: a new output of this cell, or one that was kept for it."""

    def __init__(self) -> None:
        self._display_id = f"freeact-{uuid.uuid4().hex}"
        self._shown: Any = None

    def empty(self) -> None:
        """Clears the area."""
        if self._shown is not None:
            self.show(NOTHING)

    def show_here(self) -> None:
        """Shows the area in the output of this cell as well."""
        self._shown = self._shown or NOTHING
        CellDisplay().publish(self._display_id, self._shown, update=False)

    def show(self, bundle: Any) -> None:
        """Shows a table or a line, in the output of this cell or, the second time, wherever the area is."""
        CellDisplay().publish(self._display_id, bundle, update=self._shown is not None)
        self._shown = bundle


async def _left(page: Page) -> None:
    page.leave_cell()


def _as_note(text: str) -> dict[str, str]:
    return {"text/plain": text}


def _has_variables(changes: Sequence[CopyChange]) -> bool:
    """Returns whether more differs than imports."""
    return any(not change.imported for change in changes)


def _tell(text: str) -> None:
    print(text)  # noqa: T201  # IPython's way
