"""`agent`, as code in a kernel sees it. Sent into every kernel as source when it starts.

Standard library and IPython only, and nothing from this package: the kernel may run in another Python, on another machine.

A request goes out as a message on iopub, and its reply arrives on the control channel, which ipykernel serves in its own
thread; so answers arrive while the main thread waits, in `await` or in plain code.
"""

import ast
import asyncio
import builtins
import contextlib
import difflib
import functools
import importlib
import inspect
import linecache
import logging
import os
import queue
import signal
import sys
import threading
import uuid
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from . import (
    descriptors,
    hook,
    interrupts,
    keyboard,
    mcp,
    plain,
    programs,
    schemas,
    tasks,
    tracebacks,
    used,
    values,
)
from .saved import snapshots
from .skills import LoadingFunction

ERRORS = {"PermissionError": PermissionError, "ValueError": ValueError, "CancelledError": KeyboardInterrupt}
FORKED = (
    "this process was forked by a cell and cannot ask its agent: do it in threads (`concurrent.futures.ThreadPoolExecutor`) "
    "or side by side in the cell, `await asyncio.gather(*(agent.task(prompt) for prompt in prompts))`"
)
COMPREHENSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>"}


class Requests:
    """Open requests of this kernel to its host."""

    def __init__(self, kernel: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.errands: deque[Callable[[], None]] = deque()
        """Work for the main thread, done when it next waits for a reply or returns to its loop."""
        self._begun: dict[tuple[int, str], list[None]] = {}
        self.attach(kernel, loop)

    def attach(self, kernel: Any, loop: asyncio.AbstractEventLoop) -> None:
        """Serve this kernel from now on; a branch switches to its own."""
        self.kernel = kernel
        self.loop = loop
        self.home = os.getpid()
        self.waiting: dict[str, Callable[[dict[str, Any]], object]] = {}
        self.blocked: list[queue.SimpleQueue[dict[str, Any] | None]] = []
        """Answers to requests for which the main thread blocks; None wakes it."""
        kernel.control_handlers["freeact_reply"] = self.on_reply

    def on_reply(self, _stream: Any, _idents: Any, message: dict[str, Any]) -> None:
        """Take a reply, or output to show before it. Called in the control thread."""
        content = message["content"]
        done = self.waiting.get(content.get("id")) if "output" in content else self.waiting.pop(content.get("id"), None)
        if done is not None:
            done(content)

    def send(self, method: str, params: dict[str, Any], done: Callable[[dict[str, Any]], object]) -> str:
        """Send a request, and return its id. `done` receives the reply, in another thread.

        Raises:
            RuntimeError: A cell has forked this process.
        """
        self.check_process()
        request_id = uuid.uuid4().hex
        self.waiting[request_id] = done
        kernel = self.kernel
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, ValueError, OSError):  # code may have replaced it with anything
                stream.flush()  # earlier output appears before the request
        # code may ask while it holds logging's lock; caching keeps the control thread from needing it
        kernel.log.isEnabledFor(logging.DEBUG)
        content = {"id": request_id, "method": method, "params": params}
        kernel.session.send(kernel.iopub_socket, "freeact_request", content, parent=kernel.get_parent("shell"))
        return request_id

    def check_process(self) -> None:
        """Raise RuntimeError in a process that a cell has forked: replies come to the kernel."""
        if os.getpid() != self.home:
            raise RuntimeError(FORKED)

    def ask(self, method: str, **params: Any) -> Any:
        """Ask the host and block until it replies."""
        replies: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        # the audit hook may ask in the middle of anything
        does_errands = method != "check" and threading.current_thread() is threading.main_thread()
        if does_errands:
            self.blocked.append(replies)
        request_id = self.send(method, params, replies.put)
        try:
            if does_errands:
                self.run_errands()  # work posted before `blocked` was set has woken nobody
            while (reply := replies.get()) is None or "output" in reply:
                if reply is None:
                    self.run_errands()
                else:
                    show(reply["output"])
        finally:
            self.waiting.pop(request_id, None)
            if does_errands:
                self.blocked.remove(replies)
        return value_of(reply, method, self)

    def when_main_thread_waits(self, errand: Callable[[], None]) -> None:
        """Let the main thread do this when it next waits for a reply or returns to its loop. Called in any thread."""
        self.errands.append(errand)
        for replies in tuple(self.blocked):
            replies.put(None)
        self.loop.call_soon_threadsafe(self.run_errands)

    def run_errands(self) -> None:
        """Do the errands. Called in the main thread."""
        while self.errands:
            self.errands.popleft()()

    async def ask_async(self, method: str, **params: Any) -> Any:
        """Ask the host; other coroutines continue meanwhile."""
        loop = asyncio.get_running_loop()
        replies: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        request_id = self.send(method, params, lambda reply: loop.call_soon_threadsafe(replies.put_nowait, reply))
        try:
            while "output" in (reply := await replies.get()):
                show(reply["output"])
        except asyncio.CancelledError:
            self.waiting.pop(self.send("give_up", {"request": request_id}, lambda _: None))  # it was not answered
            raise
        finally:
            self.waiting.pop(request_id, None)
        return value_of(reply, method, self)

    async def together(self, method: str) -> int:
        """Return the number of requests of this kind that code makes at once: in one step of its event loop."""
        key = id(asyncio.get_running_loop()), method
        begun = self._begun.setdefault(key, [])
        begun.append(None)
        try:
            await asyncio.sleep(0)
        finally:
            if self._begun.get(key) is begun:
                del self._begun[key]
        return len(begun)

    def call(self, method: str, **params: Any) -> Any:
        """Return a coroutine if the calling code can await it, otherwise the value."""
        return self.ask_async(method, **params) if can_await(sys._getframe(2)) else self.ask(method, **params)  # noqa: SLF001  # documented


def can_await(frame: FrameType | None) -> bool:
    """Whether code can await: it is an `async def`, or a cell with an `await` in any statement.

    For a comprehension or lambda, the surrounding code counts.
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
    """Whether a cell uses `await` at its top level; IPython compiles each statement separately."""
    try:
        source = "".join(linecache.getlines(file))
        code = compile(source, file, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return bool(code.co_flags & inspect.CO_COROUTINE)


def show(text: str) -> None:
    """Print what the host shows before the reply."""
    sys.stdout.write(text)
    sys.stdout.flush()


class ShellResult:
    """A command's exit code and output."""

    def __init__(self, *, exit_code: int, output: str) -> None:
        self.exit_code = exit_code
        self.output = output

    def __repr__(self) -> str:
        return f"<exit code {self.exit_code}, {len(self.output):,} characters of output>"


def value_of(reply: dict[str, Any], method: str, requests: Requests) -> Any:
    """Return the value of a reply, or raise its exception."""
    if reply["ok"]:
        value = reply["value"]
        if method in ("children", "node"):
            return tasks.as_children(value) if method == "children" else tasks.of_node(value, requests)
        if method == "own_call":
            return value["value"] if "value" in value else values.take(value["file"])["value"]
        value = mcp.of_reply(value) if method.startswith("mcp_") else value
        return ShellResult(**value) if method == "shell" else value
    raise ERRORS.get(reply["error"], RuntimeError)(reply["message"])


class AgentProxy(tasks.NodeMaker):
    """The agent, for code in this kernel."""

    TaskError = tasks.TaskError
    TaskResult = tasks.TaskResult

    def __init__(self, requests: Requests, servers: list[str]) -> None:
        names = mcp.python_names(servers, "server")
        paths = {server: f"agent.mcp.{name}" for name, server in names.items()}
        self.mcp = mcp.Namespace(
            "agent.mcp",
            lambda _: names,
            functools.cache(lambda server: mcp.server_namespace(requests, server, paths[server])),
            "MCP servers by name: `await agent.mcp.SERVER.TOOL(...)`, or without `await` in plain code.",
        )
        self.tools = mcp.tools_namespace(requests)
        self.children = tasks.ChildrenProxy(requests)
        self.ask_user = keyboard.AskingFunction(requests.call)
        self.skill = LoadingFunction(requests.ask)
        self._requests = requests

    def task(
        self,
        prompt: str,
        *,
        inputs: dict[str, Any] | None = None,
        output: Any = None,
        max_turns: int | None = None,
        check: str | None = None,
        **choices: Any,
    ) -> Any:
        """Start a child agent and wait until it ends: `r = await agent.task(...)`, or without `await` in plain code.

        Args:
            prompt: The child's task; without `history`, it sees nothing else of this conversation.
            inputs: Values by name; the child finds them as variables in its kernel.
            output: The type of its answer, such as `int`, `list[str]`, a dataclass, a pydantic model, a JSON schema or
                `pd.DataFrame`; `r.output` is a value of it. None: text.
            max_turns: The number of model responses that the child may use.
            check: Code on `answer`, run in a copy of the child's kernel. If it raises, or its last line is false, the child
                must correct its answer, once; then `r.unverified` says why. A method `verify` of `output` does the same.
            choices: CHOICES

        Returns:
            A `TaskResult`: `output`, `text`, `status`, `usage`, `receipts`, `verified` and more (`help(r)`).

        Raises:
            TaskError: The child did not complete; `result` holds its partial result.
            PermissionError: The child was denied, or this agent may not start children.
            ValueError, TypeError: An argument is invalid; the message names it.
        """
        if unknown := choices.keys() - tasks.CHOICES:
            raise TypeError(f"AgentProxy.task() got an unexpected keyword argument {min(unknown)!r}")
        options = {"prompt": prompt, "inputs": inputs, "output": output, "max_turns": max_turns, "check": check, **choices}
        call = tasks.TaskCall(self._requests, options)
        return call.run_async() if can_await(sys._getframe(1)) else call.run()  # noqa: SLF001  # documented

    def shell(self, command: str, *, reason: str) -> Any:
        """Run a command outside the sandbox, in the workspace, if a person agrees; every mode asks.

        `await agent.shell(...)`, or without `await` in plain code. Output appears as it arrives; its processes end with it.

        Args:
            command: A shell command.
            reason: Its purpose, for the person who decides.

        Returns:
            An object with `exit_code` and `output`.

        Raises:
            PermissionError: The command was denied.
        """
        used.USED.note_names([command], used.USED.root)
        return self._requests.call("shell", command=command, reason=reason)

    def ask(
        self,
        prompt: str,
        model: str | None = None,
        output: Any = None,
        history: list[str] | tuple[str, ...] = (),
        label: str = "",
    ) -> Any:
        """Make one request to a language model, without tools or kernel: `await agent.ask(...)`, or without `await`.

        Args:
            prompt: The only text that the model reads besides the history.
            model: The name of another model in the settings. None: the agent's own.
            output: The type of its answer, as for `task`; the call returns a value of it. None: text.
            history: Earlier prompts and answers, alternating; the model reads them as a conversation.
            label: A few words that name the question, shown to people.

        Raises:
            ValueError, TypeError: The answer does not have the type, or the type has no JSON schema.
        """
        schema, decode = (None, None) if output is None else schemas.schema_of(output)
        params = {"prompt": prompt, "model": model, "output": schema, "history": [*history], "label": label}
        if can_await(sys._getframe(1)):  # noqa: SLF001  # documented
            return self._ask_async(params, decode)
        value = self._requests.ask("ask", **params)
        return value if decode is None else decode(value)

    async def _ask_async(self, params: dict[str, Any], decode: schemas.Decode | None) -> Any:
        value = await self._requests.ask_async("ask", **params, together=await self._requests.together("ask"))
        return value if decode is None else decode(value)

    def progress(self, *, strategy: str, step: int, **more: Any) -> Any:
        """Show the progress of a strategy: `await agent.progress(...)`, or without `await` in plain code.

        Args:
            strategy: Its name.
            step: The number of steps done.
            more: `of` (the number of all steps), `done` (it has ended), `strategy_id`, `node`, `best`.
        """
        return self._requests.call("progress", strategy=strategy, step=step, **more)

    def __reduce__(self) -> tuple[Callable[[], Any], tuple[()]]:
        """Pickle as a reference, which becomes the agent of the child's kernel."""
        return agent_of_this_kernel, ()

    def __repr__(self) -> str:
        return f"<agent, with task(...), shell(...) and {self.mcp!r}>"


tasks.explain_choices(AgentProxy.task)


def agent_of_this_kernel() -> Any:
    """Return this kernel's `agent`."""
    return builtins.agent  # type: ignore[attr-defined]


def prepare_iopub(kernel: Any) -> None:
    """Let iopub queue what a busy reader has not read yet, and greet every subscriber."""
    zmq: Any = importlib.import_module("zmq")

    thread = getattr(kernel, "iopub_thread", None)
    socket = getattr(thread, "socket", None)
    if thread is None or socket is None:
        return

    def set_options() -> None:
        socket.setsockopt(zmq.SocketOption.SNDHWM, 0)
        socket.setsockopt(zmq.SocketOption.XPUB_VERBOSE, 1)

    thread.schedule(set_options)  # a socket may be used in its own thread only


def install(
    shell: Any,
    servers: list[str],
    loop: asyncio.AbstractEventLoop,
    audit: dict[str, Any] | None = None,
    requests: Requests | None = None,
) -> Requests:
    """Install the guest. Called once, by the fork server or in the first, silent cell, and again in a branch.

    Args:
        shell: IPython's shell.
        servers: Names of MCP servers.
        loop: The event loop of the cells.
        audit: The actions that need no approval (`hook.install`). None: no action needs approval.
        requests: In a branch, the origin's: references to its `agent` in variables then ask the branch's host.
    """
    prepare_iopub(shell.kernel)
    plain.install(shell.kernel.session)
    if requests is None:
        requests = Requests(shell.kernel, loop)
    else:
        requests.attach(shell.kernel, loop)
    agent = AgentProxy(requests, servers)
    if isinstance(shell.user_ns.get("agent", agent), AgentProxy):
        shell.user_ns["agent"] = shell.user_ns_hidden["agent"] = (
            agent  # hidden from `%who`, which lists the cells' variables
        )
    builtins.agent = agent  # type: ignore[attr-defined]  # here it survives `del agent` and `%reset`
    # Without a wake-up descriptor an interrupt takes effect only when the loop next wakes by itself, which during
    # `await asyncio.sleep(8)` is 8 seconds later. Adding any signal handler to the loop installs one.
    loop.add_signal_handler(signal.SIGUSR1, lambda: None)
    interrupts.INTERRUPTS.attach(shell, loop)
    descriptors.install(shell, loop)
    install_scratch(shell)
    install_near_names(shell)
    tracebacks.install(shell)
    keyboard.install(shell.kernel, requests.ask)
    programs.install(sys.modules[type(shell).__module__])
    snapshots.SnapshotRequests(shell, requests)
    hook.install(shell, requests.ask, audit, used.USED)
    used.watch(shell, lambda report: requests.send("files", report, lambda _: None))
    return requests


MAX_NAMES = 3
BUILTIN_LIKENESS = 0.8
"""Lowest similarity of a suggested built-in, from 0 to 1: `end` does not suggest `len`, but `pritn` suggests `print`."""


def show_names(shell: Any, *, sizes: bool = False) -> None:
    """Print the variables of the kernel with their types, oldest first. Args: sizes: print their sizes, too."""
    hidden = shell.user_ns_hidden
    for name, value in list(shell.user_ns.items()):
        if not name.startswith("_") and (name not in hidden or hidden[name] is not value):
            print(values.line(name, value) if sizes else f"{name}: {type(value).__name__}")  # noqa: T201  # the host reads it as the output of its cell


def near_names(name: str, namespace: dict[str, Any]) -> list[str]:
    """Return similar names: first the user's, nearest first, then built-ins."""
    own = [known for known in namespace if not known.startswith("_")]
    near = difflib.get_close_matches(name, own, n=MAX_NAMES)
    others = [known for known in dir(builtins) if not known.startswith("_") and known not in near]
    return [*near, *difflib.get_close_matches(name, others, n=MAX_NAMES, cutoff=BUILTIN_LIKENESS)][:MAX_NAMES]


def install_near_names(shell: Any) -> None:
    """Let the errors of this shell suggest near names."""

    def on_name_error(shell: Any, kind: Any, error: NameError, traceback: Any, tb_offset: int | None = None) -> None:
        near = near_names(error.name, shell.user_ns) if error.name and len(error.args) == 1 else []
        if near:
            error.args = (f"{error.args[0]}. Near names that exist: {', '.join(near)}",)
        shell.showtraceback((kind, error, traceback), tb_offset=tb_offset)

    shell.set_custom_exc((NameError,), on_name_error)


def install_scratch(shell: Any) -> None:
    """Make the scratch folder again before each cell, if it is gone: without it no temporary file can be made."""
    folder = os.environ.get("TMPDIR")
    if folder:
        shell.events.register("pre_run_cell", lambda _: restore(folder))


def restore(folder: str) -> None:
    """Make a folder, with the rights that it had."""
    if not Path(folder).is_dir():
        with contextlib.suppress(OSError):  # the kernel's own folder may be gone, or a wall stands before it
            Path(folder).mkdir(0o700, parents=True)
