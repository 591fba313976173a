"""Workarounds for pydantic-ai, each with the text of its report.

When a release does what a report asks for, remove the class, and the lines that use it in `turn.py` and `call.py`.
"""

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_ai.exceptions import ModelRetry, UnexpectedModelBehavior
from pydantic_ai.messages import ModelResponse, RetryFeedbackPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models import ModelRequestContext

from freeact_sub.agents.life import TreeAgent
from freeact_sub.errors import LimitReachedError
from freeact_sub.events import ToolCallStarted, ToolOutput
from freeact_sub.text import wrong_fields

RETRIES: Final = 5
"""Unusable replies in a row that a model may send; the bound on turns applies as well."""
COUNTED_BY_US: Final = 1_000_000_000
"""Output retries given to pydantic-ai: `UnusableReplies` counts."""
END_SECONDS: Final = 0.5
"""Seconds that a cancelled run waits for tasks that pydantic-ai has left."""


class InnerTasks:
    """The asyncio tasks that pydantic-ai makes for a run, so that a cancelled run leaves none behind.

    Report: "A run that is cancelled at the moment when its inner task (of the run, or of a streamed request) is handed over
    loses that task: nobody cancels or awaits it any more, and it waits for ever. Cancel and await the inner task in the
    `finally` of the function that has created it." Seen in 2.68.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Allow the task to be cancelled while it is inside the block."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("there is no asyncio task")
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)

    async def end(self) -> None:
        """End the tasks that a cancelled run has left."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=END_SECONDS)


class UnusableReplies:
    """The number of replies in a row that a model had to correct.

    Report: "`retries={'output': n}` counts the unusable outputs of a whole run. A run of a hundred turns that corrects each
    of its six mistakes at once ends like one that repeats a mistake six times. Count those in a row, or let a capability
    decide." Seen in 2.68.
    """

    def __init__(self) -> None:
        self._number = 0

    def count(self, request: ModelRequestContext) -> None:
        """Count the reply before a request, if the request tells the model what was wrong with it.

        Raises:
            UnexpectedModelBehavior: There were too many in a row.
        """
        problem = _problem_told(request)
        self._number = 0 if problem is None else self._number + 1
        if self._number > RETRIES:
            raise UnexpectedModelBehavior(f"Exceeded maximum output retries ({RETRIES})") from ModelRetry(problem or "")


def _problem_told(request: ModelRequestContext) -> str | None:
    """Return the text of a request that tells the model about an unusable reply, if it has one."""
    outputs = {tool.name for tool in request.model_request_parameters.output_tools}
    for part in request.messages[-1].parts if request.messages else ():
        is_retried = isinstance(part, ToolReturnPart) and part.outcome == "retried" and part.tool_name in outputs
        if isinstance(part, RetryFeedbackPart) or is_retried:
            told: Any = getattr(part, "content", "")
            return wrong_fields(told) if isinstance(told, list) else str(told)
    return None


@dataclass(kw_only=True)
class UnmadeCalls:
    """The calls of the latest response of a run for which no tool was run.

    They count as well, and are announced and reported: no tool has the name, or the arguments are not valid.

    Report: "A call of an unknown tool, and one that is refused because retries are used up, passes no hook of a capability.
    `wrap_tool_execute`, or a hook of its own, could tell of each call of the model once." The events of pydantic-ai tell of
    most of them, but not of those that a run leaves unanswered when it ends. Seen in 2.68.
    """

    agent: TreeAgent
    over: LimitReachedError | None = None
    """The error of one such call too many: the run ends before its next request."""
    _left: list[ToolCallPart] = field(default_factory=list)

    def responded(self, response: ModelResponse, outputs: Collection[str]) -> None:
        """Note a new response. Args: outputs: names of the tools that hand over an answer, which are no calls."""
        self._left = [call for call in response.tool_calls if call.tool_name not in outputs]

    def made(self, call_id: str) -> None:
        """Note that a tool is run for a call, which `make` reports."""
        self._take(call_id)

    def answered(self, answer: object) -> None:
        """Report a call that pydantic-ai has answered by itself. Args: answer: to any call."""
        if isinstance(answer, ToolReturnPart) and answer.outcome == "retried":
            self._report(answer)

    def end(self, error: str) -> None:
        """Report the calls that the run has left without an answer. Args: error: why."""
        while self._left:
            call = self._left[0]
            self._report(ToolReturnPart(call.tool_name, error, call.tool_call_id))

    def _report(self, answer: ToolReturnPart) -> None:
        emitter, call = self.agent.emitter, self._take(answer.tool_call_id)
        if call is not None:  # otherwise it was run, and its tool has asked for another try
            started = ToolCallStarted(tool_name=call.tool_name, args=call.args_as_dict())
            emitter.put(started, tool_call_id=call.tool_call_id)
            try:
                self.agent.run.account.take_tool_call()
            except LimitReachedError as error:
                self.over = self.over or error
        text = answer.model_response_str(wrap_if_error=False)
        output = ToolOutput(tool_name=answer.tool_name, content=text, outcome="retried")
        emitter.put(output, tool_call_id=answer.tool_call_id)

    def _take(self, call_id: str) -> ToolCallPart | None:
        call = next((call for call in self._left if call.tool_call_id == call_id), None)
        if call is not None:
            self._left.remove(call)
        return call
