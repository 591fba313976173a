"""Children of an agent, for code in a cell: `agent.task(...)`, `agent.children`, and nodes, which are kept kernels.

Sent into every kernel as source.

The request to the host (`task`) waits for the child's end. A typed answer is validated here, by the requested type: while
the child works, a second request (`task_check`) waits for an answer to validate, and returns what is wrong with it.
"""

import inspect
import json
import textwrap
import uuid
from collections.abc import Callable
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any

from . import choices, portable, schemas, values  # relative, for in a kernel they are parts of another package

CHOICES = {name: (form, default, text) for name, form, default, text in choices()}
"""Choices for a child, by the name of the argument: type, default, and help."""


def explain_choices(task: Callable[..., Any]) -> None:
    """Give `agent.task` the signature and the help of the choices."""
    own = [each for each in inspect.signature(task).parameters.values() if each.kind is not each.VAR_KEYWORD]
    more, lines = list[inspect.Parameter](), list[str]()
    for name, (form, default, text) in CHOICES.items():
        more.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=_Form(form)))
        lines.append(textwrap.fill(f"{name}: {text}", 120, initial_indent=" " * 4, subsequent_indent=" " * 8))
    setattr(task, "__signature__", inspect.Signature([*own, *more]))  # noqa: B010  # mypy knows of no such attribute
    task.__doc__ = (inspect.getdoc(task) or "").replace("    choices: CHOICES", "\n".join(lines))


class _Form:
    """A type in a signature, as it is written."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """The outcome of a child: status, answer, spending."""

    output: Any
    """The answer, as a value of the requested type; text by default."""
    text: str
    """The answer as text; if the child did not complete, its last text."""
    status: str
    """`completed`, `failed`, `timeout`, `limit`, `cancelled`, `rejected` or `kernel_lost`."""
    error: str
    """Why the status is not `completed`."""
    refused: str
    """Why the child cannot give an answer of the requested type, in its own words; the status is `failed` then."""
    usage: Any
    """The spending of the child and its descendants: turns, tool_calls, input_tokens, output_tokens, tokens, cost_usd,
    cache_read_tokens and cache_write_tokens (parts of the input).
    Both are lower bounds with estimated_requests, the cost with unpriced_turns too."""
    seconds: float
    agent_id: str
    node: "NodeProxy | None" = None
    """The child's kernel, if the task had `keep=True` and the kernel is live; otherwise None."""
    files_read: tuple[str, ...] = ()
    """Files in the workspace that the child's cells have read with Python, relative to it."""
    files_written: tuple[str, ...] = ()
    files_removed: tuple[str, ...] = ()
    """Files written by its cells or their programs, as far as observed."""
    warnings: tuple[str, ...] = ()
    """Warnings, for example about files that another agent also wrote."""
    receipts: Any = None
    """The actions of the child, as the host saw them: cells, commands, calls, children, files_read, files_written, printed,
    nothing_was_run; each has fields of its own. None: the child is Python code."""
    missing_files: tuple[str, ...] = ()
    """The files that its answer names, if none of them exists."""
    verified: bool = False
    """Whether the answer has passed `check`, or `verify` of its type."""
    unverified: str = ""
    """Why the answer has not been verified."""

    def __repr__(self) -> str:
        shown = repr(self.output)
        shown = shown if len(shown) <= 60 else f"{shown[:59]}…"
        why = f", error={self.error!r}" if self.error else ""
        return f"TaskResult(status={self.status!r}, output={shown}{why}, seconds={self.seconds:.1f})"


class TaskError(RuntimeError):
    """A child did not complete; `result` is its `TaskResult`."""

    def __init__(self, result: TaskResult) -> None:
        super().__init__(result)
        self.result = result

    def __str__(self) -> str:
        return f"the child {self.result.agent_id} did not complete ({self.result.status}): {self.result.error}"


class TaskCall:
    """One call of `agent.task`."""

    def __init__(self, requests: Any, options: dict[str, Any]) -> None:
        """Args: options: the arguments of `agent.task`, by name."""
        self.requests = requests
        self.options = options
        self.task_id = uuid.uuid4().hex
        self.schema: dict[str, Any] | None = None
        self.decode: schemas.Decode = lambda value: value
        self.file: str | None = None
        self.asked = False
        """Whether the host may still be working for the call."""

    def run(self) -> TaskResult:
        """Block until the child has ended."""
        try:
            return self.result(self.requests.ask("task", **self.begin()))
        finally:
            self.end()

    async def run_async(self) -> TaskResult:
        """Await the child's end; other coroutines continue meanwhile."""
        try:
            together = await self.requests.together("task")
            return self.result(await self.requests.ask_async("task", **self.begin(), together=together))
        finally:
            self.end()

    def begin(self) -> dict[str, Any]:
        """Return the parameters of the request."""
        self.requests.check_process()
        inputs, output = self.options.pop("inputs"), self.options.pop("output")
        params = {name: value for name, value in self.options.items() if value is not None and value is not False}
        if isinstance(params.get("branch_of"), NodeProxy):
            params["branch_of"] = params["branch_of"].node_id
        if by_value := portable.block_type(output):
            params["by_value"] = by_value
        elif output is not None and output is not str:
            self.schema, self.decode = schemas.schema_of(output)
            params["output"], params["verify"] = self.schema, has_verify(output)
        if inputs:
            self.file, lines = values.give(f"values-{self.task_id}", inputs)
            params["inputs"], params["inputs_digest"] = lines, values.digest(self.file)
        try:
            json.dumps(params)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"agent.task: its arguments, but for inputs and output, must be plain values: {error}"
            ) from error
        self.asked = True
        if self.schema is not None:
            self.requests.send("task_check", {"task_id": self.task_id}, self.on_check)
        return {"task_id": self.task_id, **params}

    def on_check(self, reply: dict[str, Any]) -> None:
        """Handle an answer or the end of the child. Called in the control thread."""
        if not reply["ok"]:
            return
        problem = ""
        try:
            value = self.decode(reply["value"]["value"])
            if reply["value"]["verify"] and not (passed := value.verify()) and passed is not None:
                problem = f"verify gave {passed!r}"
        except Exception as error:  # noqa: BLE001  # border: a type may validate by code of its own, which may raise anything
            problem = f"{error}" if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        self.requests.send("task_check", {"task_id": self.task_id, "problem": problem}, self.on_check)

    def result(self, reply: dict[str, Any]) -> TaskResult:
        """Return the value of the host's reply.

        Raises:
            TaskError: The child did not complete.
        """
        self.asked = False
        usage = SimpleNamespace(**reply["usage"])
        facts = {fact.name: reply[fact.name] for fact in fields(TaskResult)}
        lists = {name: tuple(fact) for name, fact in facts.items() if isinstance(fact, list) and name != "output"}
        node = None if reply["node"] is None else NodeProxy(self.requests, reply["node"])
        if (file := reply["file"]) is not None:
            facts["output"] = values.take(file)["value"]
        receipts = json.loads(json.dumps(reply["receipts"]), object_hook=lambda fields: SimpleNamespace(**fields))
        result = TaskResult(**{**facts, **lists, "usage": usage, "node": node, "receipts": receipts})
        if result.status != "completed":
            raise TaskError(result)
        if self.schema is None:
            return result
        return TaskResult(**{**vars(result), "output": self.decode(result.output)})

    def end(self) -> None:
        """Cancel a working child that nobody waits for any longer, and remove values that it has not read."""
        if self.asked:
            self.requests.send("task_cancel", {"task_id": self.task_id}, lambda _: None)
        if self.file is not None:
            values.drop(self.file)


def has_verify(output: Any) -> bool:
    """Whether a type checks its values by a method `verify`. Raises: TypeError: It would have to be awaited."""
    verify = getattr(output, "verify", None) if isinstance(output, type) else None
    if inspect.iscoroutinefunction(verify):
        raise TypeError(f"agent.task: output: {output.__name__}.verify is async: in a cell it must be a plain method")
    return callable(verify)


class ChildSnapshot:
    """A child: `agent_id`, `description`, `task`, `status`, `action`, `ended`, `seconds`, `output`, `error`, `question`."""

    def __init__(self, **state: Any) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return f"Child({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


class ChildrenProxy:
    """The agent's background children. Use its methods with `await`, or without it in plain code."""

    def __init__(self, requests: Any) -> None:
        self._requests = requests

    def list(self) -> Any:
        """Return all children started in this run, oldest first."""
        return self._requests.call("children", action="list")

    def wait(self, *agent_ids: str, seconds: float = 120) -> Any:
        """Wait until these (default: all) have ended, one asks a question, or the time is up; return their states."""
        return self._requests.call("children", action="wait", agent_ids=[*agent_ids], seconds=seconds)

    def message(self, agent_id: str, text: str) -> Any:
        """Answer a child's question, or send it a message that it reads before its next step; an ended child is resumed."""
        return self._requests.call("children", action="message", agent_ids=[agent_id], text=text)

    def cancel(self, agent_id: str) -> Any:
        """Cancel a child; its `output` is its partial result."""
        return self._requests.call("children", action="cancel", agent_ids=[agent_id])

    def __repr__(self) -> str:
        return "<agent.children: list, wait, message, cancel>"


def as_children(value: Any) -> Any:
    """Return one child or several from JSON; text stays text."""
    if isinstance(value, dict):
        return ChildSnapshot(**value)
    return [ChildSnapshot(**state) for state in value] if isinstance(value, list) else value


class CellResult:
    """The outcome of a cell in a node: its status, such as `ok`, and its output."""

    def __init__(self, *, status: str, text: str) -> None:
        self.status = status
        self.text = text

    def __repr__(self) -> str:
        return f"<cell: {self.status}, {len(self.text):,} characters of output>"


class FileChanges:
    """The changes of a node in its copy of the workspace: `added`, `changed`, `deleted`; `left_out` is not promoted."""

    def __init__(self, **paths: list[str]) -> None:
        self.__dict__.update({name: tuple(those) for name, those in paths.items()})

    @property
    def paths(self) -> tuple[str, ...]:
        """All paths that a promotion would write or delete."""
        return sum((self.__dict__[name] for name in ("added", "changed", "deleted")), ())

    def __repr__(self) -> str:
        return f"FileChanges({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


class NodeProxy:
    """A live kernel in which no agent works. Its methods are called with `await`, or without it in plain code.

    As a context manager (`async with`, or `with` in plain code) it closes on exit.
    """

    def __init__(self, requests: Any, node_id: str) -> None:
        self._requests = requests
        self.node_id = node_id

    def execute(self, code: str) -> Any:
        """Run a cell in the node. Return a value with `status` (`ok`, or how the cell failed) and `text` (its output)."""
        return self._requests.call("node", action="execute", node=self.node_id, code=code)

    def branch(self, description: str = "", *, own_files: bool = False) -> Any:
        """Copy the node. Args: own_files: the new node and its branches work in their own copies of the workspace."""
        return self._requests.call("node", action="branch", node=self.node_id, description=description, own_files=own_files)

    def diff(self) -> Any:
        """Return the changes in its copy of the workspace: `added`, `changed`, `deleted`, `left_out`."""
        return self._requests.call("node", action="diff", node=self.node_id)

    def close(self) -> Any:
        """End the kernel; its branches live on. Can be called again."""
        return self._requests.call("node", action="close", node=self.node_id)

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self._requests.ask("node", action="close", node=self.node_id)

    def __repr__(self) -> str:
        return f"<node {self.node_id}>"


class NodeMaker:
    """The methods of `agent` for nodes."""

    _requests: Any

    def branch(self, description: str = "", *, own_files: bool = False) -> Any:
        """Copy this kernel as it is now, with all its variables: `node = await agent.branch()`, or without `await`.

        Args:
            description: A label.
            own_files: The branch works in its own copy of the workspace, which no other agent sees.
        """
        return self._requests.call("node", action="branch", description=description, own_files=own_files)

    def adopt(self, node: Any, names: Any) -> Any:
        """Take variables of a node into this kernel. Args: names: a list of names, or one."""
        wanted = [names] if isinstance(names, str) else [*names]
        return self._requests.call("node", action="adopt", node=node.node_id, names=wanted)

    def promote(self, node: Any) -> Any:
        """Write a node's changes in its copy of the workspace into the workspace, all or none, and return them.

        Raises:
            RuntimeError: The workspace has changed in the same places; the message names them. Nothing is written.
            PermissionError: A path was denied. Nothing is written.
        """
        return self._requests.call("node", action="promote", node=node.node_id)


def of_node(value: Any, requests: Any) -> Any:
    """Return the object that code gets for the host's reply about a node."""
    match value:
        case {"node": node_id}:
            return NodeProxy(requests, node_id)
        case {"status": status, "text": text}:
            return CellResult(status=status, text=text)
        case {"values": name}:
            return requests.kernel.shell.user_ns.update(values.take(name))
        case {"added": _}:
            return FileChanges(**value)
    return None
