"""`agent.task(...)`: a child agent started by code in a cell. Sent into every kernel as source.

The request to the host (`task`) waits for the child's end. A typed answer is validated here, by the type that was asked for:
while the child works a second request (`task_check`) waits for an answer to validate, and tells what is wrong with it.
"""

import json
import uuid
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any

from . import schemas, values  # relative, for in a kernel they are parts of another package


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """How a child ended, and with what."""

    output: Any
    """The answer: of the type that was asked for; text where none was."""
    text: str
    """The answer as text; where the child did not complete, the last text there was."""
    status: str
    """`completed`, `failed`, `timeout`, `limit`, `cancelled`, `rejected` or `kernel_lost`."""
    error: str
    """Why the status is not `completed`."""
    usage: Any
    """What the child and its own children have spent: turns, tool_calls, input_tokens, output_tokens, tokens, cost_usd.
    Both are lower bounds with estimated_requests, the cost with unpriced_turns too."""
    seconds: float
    agent_id: str
    node: str | None = None
    """Its kernel, which stays: what `branch_of` names. None: that was not asked for, or it had no live kernel."""
    files_read: tuple[str, ...] = ()
    """Files in the workspace that the child's cells have read with Python, relative to it."""
    files_written: tuple[str, ...] = ()
    files_removed: tuple[str, ...] = ()
    """Those that its cells, or programs they started, have written, as far as that was seen."""
    warnings: tuple[str, ...] = ()
    """Such as files that another agent has written as well."""

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
    """One child that is asked for."""

    def __init__(self, requests: Any, options: dict[str, Any]) -> None:
        """Args: options: the arguments of `agent.task`, by name."""
        self.requests = requests
        self.options = options
        self.task_id = uuid.uuid4().hex
        self.schema: dict[str, Any] | None = None
        self.decode: schemas.Decode = lambda value: value
        self.file: str | None = None
        self.asked = False
        """The host may still be working for it."""

    def run(self) -> TaskResult:
        """Blocks until the child has ended."""
        try:
            return self.result(self.requests.ask("task", **self.begin()))
        finally:
            self.end()

    async def run_async(self) -> TaskResult:
        """Awaits the child's end; other coroutines continue meanwhile."""
        try:
            return self.result(await self.requests.ask_async("task", **self.begin()))
        finally:
            self.end()

    def begin(self) -> dict[str, Any]:
        """What the host is to be asked for."""
        inputs, output = self.options.pop("inputs"), self.options.pop("output")
        params = {name: value for name, value in self.options.items() if value is not None}
        if output is not None and output is not str:
            self.schema, self.decode = schemas.schema_of(output)
            params["output"] = self.schema
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

    def on_check(self, answer: dict[str, Any]) -> None:
        """The child has answered, or has ended: called in the control thread."""
        if not answer["ok"]:
            return
        problem = ""
        try:
            self.decode(answer["value"])
        except Exception as error:  # noqa: BLE001  # border: a type may validate by code of its own, which may raise anything
            problem = f"{error}" if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        self.requests.send("task_check", {"task_id": self.task_id, "problem": problem}, self.on_check)

    def result(self, answer: dict[str, Any]) -> TaskResult:
        """The value of the host's answer.

        Raises:
            TaskError: The child did not complete.
        """
        self.asked = False
        usage = SimpleNamespace(**answer["usage"])
        facts = {fact.name: answer[fact.name] for fact in fields(TaskResult)}
        lists = {name: tuple(fact) for name, fact in facts.items() if isinstance(fact, list) and name != "output"}
        result = TaskResult(**{**facts, **lists, "usage": usage})
        if result.status != "completed":
            raise TaskError(result)
        if self.schema is None:
            return result
        return TaskResult(**{**vars(result), "output": self.decode(result.output)})

    def end(self) -> None:
        """Nobody waits any more: a child that is still working is cancelled, and what it has not taken is removed."""
        if self.asked:
            self.requests.send("task_cancel", {"task_id": self.task_id}, lambda _: None)
        if self.file is not None:
            values.drop(self.file)
