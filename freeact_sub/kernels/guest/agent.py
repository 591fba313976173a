"""What code in a kernel sees as `agent`. Sent into every kernel as source when it starts.

Standard library and IPython only, and nothing from this package: the kernel may run in another Python, on another machine.

A request goes out as a message on iopub and its answer comes in on the control channel, which ipykernel serves in a thread
of its own; so answers arrive while the main thread waits, in `await` or in plain code.
"""

import ast
import asyncio
import builtins
import contextlib
import importlib
import inspect
import linecache
import logging
import queue
import signal
import sys
import threading
import uuid
from collections import deque
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

from . import hook, mcp, names, schemas, tasks, used
from .saved import snapshots

ERRORS = {"PermissionError": PermissionError, "ValueError": ValueError, "CancelledError": KeyboardInterrupt}
COMPREHENSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>"}


class Requests:
    """Open requests of this kernel to its host."""

    def __init__(self, kernel: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.errands: deque[Callable[[], None]] = deque()
        """What the main thread is to do when it next waits, for an answer or in its loop."""
        self.attach(kernel, loop)

    def attach(self, kernel: Any, loop: asyncio.AbstractEventLoop) -> None:
        """Serves this kernel from now on; a branch has another kernel than the one that it was made of."""
        self.kernel = kernel
        self.loop = loop
        self.waiting: dict[str, Callable[[dict[str, Any]], object]] = {}
        self.blocked: list[queue.SimpleQueue[dict[str, Any] | None]] = []
        """Of the requests for which the main thread blocks; a None wakes it."""
        kernel.control_handlers["freeact_reply"] = self.on_reply

    def on_reply(self, _stream: Any, _idents: Any, message: dict[str, Any]) -> None:
        """Called in the control thread: with the answer, or with what is to be shown before it."""
        content = message["content"]
        done = self.waiting.get(content.get("id")) if "output" in content else self.waiting.pop(content.get("id"), None)
        if done is not None:
            done(content)

    def send(self, method: str, params: dict[str, Any], done: Callable[[dict[str, Any]], object]) -> str:
        """Sends a request; `done` gets the answer, in another thread. Returns the request's id."""
        request_id = uuid.uuid4().hex
        self.waiting[request_id] = done
        kernel = self.kernel
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, ValueError, OSError):  # code may have put anything there
                stream.flush()  # what was printed before the request is seen before it
        # code may ask while it holds the lock of logging; so that the control thread needs it not, its answer is cached
        kernel.log.isEnabledFor(logging.DEBUG)
        content = {"id": request_id, "method": method, "params": params}
        kernel.session.send(kernel.iopub_socket, "freeact_request", content, parent=kernel.get_parent("shell"))
        return request_id

    def ask(self, method: str, **params: Any) -> Any:
        """Asks the host and blocks until it has answered."""
        answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        # a question of the audit hook may come in the middle of anything
        does_errands = method != "check" and threading.current_thread() is threading.main_thread()
        if does_errands:
            self.blocked.append(answers)
        request_id = self.send(method, params, answers.put)
        try:
            if does_errands:
                self.run_errands()  # what was sent before `blocked` told that there is somebody to wake
            while (answer := answers.get()) is None or "output" in answer:
                if answer is None:
                    self.run_errands()
                else:
                    show(answer["output"])
        finally:
            self.waiting.pop(request_id, None)
            if does_errands:
                self.blocked.remove(answers)
        return value_of(answer, method)

    def when_main_thread_waits(self, errand: Callable[[], None]) -> None:
        """Has the main thread do this when it next waits, for an answer or in its loop. Called in any thread."""
        self.errands.append(errand)
        for answers in tuple(self.blocked):
            answers.put(None)
        self.loop.call_soon_threadsafe(self.run_errands)

    def run_errands(self) -> None:
        """Called in the main thread."""
        while self.errands:
            self.errands.popleft()()

    async def ask_async(self, method: str, **params: Any) -> Any:
        """Asks the host; other coroutines go on meanwhile."""
        loop = asyncio.get_running_loop()
        answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        request_id = self.send(method, params, lambda answer: loop.call_soon_threadsafe(answers.put_nowait, answer))
        try:
            while "output" in (answer := await answers.get()):
                show(answer["output"])
        except asyncio.CancelledError:
            self.waiting.pop(self.send("give_up", {"request": request_id}, lambda _: None))  # it has no answer
            raise
        finally:
            self.waiting.pop(request_id, None)
        return value_of(answer, method)

    def call(self, method: str, **params: Any) -> Any:
        """A coroutine where the code that called our caller can await it, else the value itself."""
        return self.ask_async(method, **params) if can_await(sys._getframe(2)) else self.ask(method, **params)  # noqa: SLF001  # documented


def can_await(frame: FrameType | None) -> bool:
    """Whether code can await: it is an `async def`, or a cell that uses `await`, be it in another statement.

    Inside a comprehension or lambda the code around it counts.
    """
    while frame is not None and frame.f_code.co_name in COMPREHENSIONS:
        frame = frame.f_back
    if frame is None:
        return False
    flags = frame.f_code.co_flags
    if flags & inspect.CO_NEWLOCALS:
        return bool(flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR))
    return bool(flags & inspect.CO_COROUTINE) or cell_awaits(frame.f_code.co_filename)


def cell_awaits(file: str) -> bool:
    """Whether a cell uses `await` anywhere at its top level: IPython compiles each of its statements by itself."""
    try:
        source = "".join(linecache.getlines(file))
        code = compile(source, file, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return bool(code.co_flags & inspect.CO_COROUTINE)


def show(text: str) -> None:
    """Puts out what the host shows on the way."""
    sys.stdout.write(text)
    sys.stdout.flush()


class ShellResult:
    """How a command ended, and what it put out."""

    def __init__(self, *, exit_code: int, output: str) -> None:
        self.exit_code = exit_code
        self.output = output

    def __repr__(self) -> str:
        return f"<exit code {self.exit_code}, {len(self.output):,} characters of output>"


def value_of(answer: dict[str, Any], method: str) -> Any:
    """The value of an answer, or the exception that it stands for."""
    if answer["ok"]:
        value = answer["value"]
        if method == "children":
            return as_children(value)
        return ShellResult(**value) if method == "shell" else value
    raise ERRORS.get(answer["error"], RuntimeError)(answer["message"])


class ChildSnapshot:
    """A child: `agent_id`, `description`, `status`, `action`, `ended`, `seconds`, `output`, `error`, `question`."""

    def __init__(self, **state: Any) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return f"Child({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


class ChildrenProxy:
    """The children that work in the background for this agent. With `await`, or without it in plain code."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def list(self) -> Any:
        """All that were started in this run, in order of start."""
        return self._requests.call("children", action="list")

    def wait(self, *agent_ids: str, seconds: float = 120) -> Any:
        """Wait until these (none: all) have ended, or one of them asks a question, or the time is up; what is known then."""
        return self._requests.call("children", action="wait", agent_ids=[*agent_ids], seconds=seconds)

    def send(self, agent_id: str, text: str) -> Any:
        """Answer a child's question, or tell it something that it reads before its next step."""
        return self._requests.call("children", action="send", agent_ids=[agent_id], text=text)

    def cancel(self, agent_id: str) -> Any:
        """End a child; what it had so far is its `output`."""
        return self._requests.call("children", action="cancel", agent_ids=[agent_id])

    def __repr__(self) -> str:
        return "<agent.children: list, wait, send, cancel>"


async def decoded(answer: Awaitable[Any], decode: schemas.Decode | None) -> Any:
    """A value of the type that was asked for."""
    value = await answer
    return value if decode is None else decode(value)


def as_children(value: Any) -> Any:
    """One child or several, from JSON; text stays text."""
    if isinstance(value, dict):
        return ChildSnapshot(**value)
    return [ChildSnapshot(**state) for state in value] if isinstance(value, list) else value


class AgentProxy:
    """What code in this kernel can ask of its agent."""

    TaskError = tasks.TaskError
    TaskResult = tasks.TaskResult

    def __init__(self, requests: Requests, servers: list[str]) -> None:
        by_name = {mcp.identifier(server): server for server in servers}
        self.mcp = mcp.Namespace(
            "agent.mcp",
            lambda: list(by_name),
            lambda name: mcp.server_namespace(requests, by_name[name]),
            "MCP servers by name: `await agent.mcp.SERVER.TOOL(...)`, or without `await` in plain code.",
        )
        self.children = ChildrenProxy(requests)
        self._requests = requests

    def task(  # noqa: PLR0913  # each is a choice of its own, and all but the first have a default
        self,
        prompt: str,
        *,
        description: str | None = None,
        inputs: dict[str, Any] | None = None,
        output: Any = None,
        agent: str | None = None,
        mode: str | None = None,
        scope: str | None = None,
        max_turns: int | None = None,
        budget: dict[str, Any] | None = None,
        branch: bool = False,
        branch_of: str | None = None,
        keep: bool = False,
    ) -> Any:
        """Start a child agent and wait for its end: `r = await agent.task(...)`, or without `await` in plain code.

        Args:
            prompt: What it is to do: the child sees nothing else of this conversation.
            description: A label of a few words.
            inputs: Values that the child finds as variables in its kernel, by name.
            output: The type of its answer, such as `int`, `list[str]`, a dataclass, a pydantic model or a JSON schema;
                `r.output` is then a value of it. None: text.
            agent: A named agent type.
            mode: `plan`, `ask`, `auto` or `full`, as far as this agent's own mode allows it.
            scope: What it is told to keep to: a folder, files, a part of the work.
            max_turns: How many model responses the child may take.
            budget: Limits of the child and all below it, such as `{"seconds": 60, "tokens": 50_000}`;
                without it 10 turns and an hour.
            branch: The child's kernel starts as a copy of this one, with all its variables.
            branch_of: It starts as a copy of that of an earlier child: the `node` of its result.
            keep: Its kernel stays, for `branch_of`.

        Returns:
            A `TaskResult`: `output`, `text`, `status`, `usage`, `seconds`, `agent_id`, `files_read`,
            `files_written`, `files_removed`, `warnings`.

        Raises:
            TaskError: The child did not complete; its `result` tells how far it came.
            PermissionError: It was denied, or this agent may start no children.
            ValueError, TypeError: An argument is wrong; the text names it.
        """
        options = {name: value for name, value in locals().items() if name != "self"}
        call = tasks.TaskCall(self._requests, options)
        return call.run_async() if can_await(sys._getframe(1)) else call.run()  # noqa: SLF001  # documented

    def shell(self, command: str, *, reason: str) -> Any:
        """Run a command outside the sandbox, in the workspace, if a person agrees; always asks, whatever the mode.

        `await agent.shell(...)`, or without `await` in plain code. Its output is shown as it comes. What it starts ends
        with it.

        Args:
            command: As a shell reads it.
            reason: What it is for; the person who is asked reads it.

        Returns:
            An object with `exit_code` and `output`.

        Raises:
            PermissionError: It is denied.
        """
        used.USED.on_start()
        return self._requests.call("shell", command=command, reason=reason)

    def ask(
        self, prompt: str, model: str | None = None, output: Any = None, history: list[str] | tuple[str, ...] = ()
    ) -> Any:
        """Make one request to a language model, without tools or kernel: `await agent.ask(...)`, or without `await`.

        Args:
            prompt: All that the model reads, but for the history.
            model: The name of another model in the settings. None: the agent's own.
            output: The type of its answer, as with `task`; a value of it comes back. None: text.
            history: Earlier prompts and answers, in turn: the model reads them as a conversation.

        Raises:
            ValueError, TypeError: The answer is not of the type, or there is no JSON schema of it.
        """
        schema, decode = (None, None) if output is None else schemas.schema_of(output)
        params = {"prompt": prompt, "model": model, "output": schema, "history": [*history]}
        if can_await(sys._getframe(1)):  # noqa: SLF001  # documented
            return decoded(self._requests.ask_async("ask", **params), decode)
        value = self._requests.ask("ask", **params)
        return value if decode is None else decode(value)

    def __reduce__(self) -> tuple[Callable[[], Any], tuple[()]]:
        """Handed to a child, alone or by a function that uses it, it is the agent of the child's kernel."""
        return agent_of_this_kernel, ()

    def __repr__(self) -> str:
        return f"<agent, with task(...), shell(...) and {self.mcp!r}>"


def agent_of_this_kernel() -> Any:
    """What code in this kernel finds as `agent`."""
    return builtins.agent  # type: ignore[attr-defined]


def prepare_iopub(kernel: Any) -> None:
    """Lets iopub keep what a busy reader has not read yet, and greet every subscriber."""
    zmq: Any = importlib.import_module("zmq")

    thread = getattr(kernel, "iopub_thread", None)
    socket = getattr(thread, "socket", None)
    if thread is None or socket is None:
        return

    def set_options() -> None:
        socket.setsockopt(zmq.SocketOption.SNDHWM, 0)
        socket.setsockopt(zmq.SocketOption.XPUB_VERBOSE, 1)

    thread.schedule(set_options)  # a socket is used in its own thread only


def install(
    shell: Any,
    servers: list[str],
    loop: asyncio.AbstractEventLoop,
    audit: dict[str, Any] | None = None,
    requests: Requests | None = None,
) -> Requests:
    """Called once, by the fork server or in the first, silent cell; in a branch, once more.

    Args:
        shell: IPython's.
        servers: Names of MCP servers.
        loop: Cells run in it.
        audit: What needs no question (`hook.install`). None: nothing that code does by itself is asked for.
        requests: In a branch, those of before: what variables hold of the origin's `agent` asks the branch's own host.
    """
    prepare_iopub(shell.kernel)
    if requests is None:
        requests = Requests(shell.kernel, loop)
    else:
        requests.attach(shell.kernel, loop)
    agent = AgentProxy(requests, servers)
    if isinstance(shell.user_ns.get("agent", agent), AgentProxy):
        shell.user_ns["agent"] = shell.user_ns_hidden["agent"] = agent  # hidden: `%who` lists what the cells have made
    builtins.agent = agent  # type: ignore[attr-defined]  # and there it survives `del agent` and `%reset`
    # Without a wake-up descriptor an interrupt takes effect only when the loop next wakes by itself, which during
    # `await asyncio.sleep(8)` is 8 seconds later. Adding any signal handler to the loop installs one.
    loop.add_signal_handler(signal.SIGUSR1, lambda: None)
    names.install(shell)
    snapshots.Snapshots(shell, requests)
    hook.install(shell, requests.ask, audit, used.USED)
    used.watch(shell, lambda told: requests.send("files", told, lambda _: None))
    return requests
