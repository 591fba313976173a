"""Outcomes of runs (`RunResult`), the status and sentence of an error that ended one, and agents as front ends list them."""

import json
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Self, TypeAlias

from pydantic import ValidationError
from pydantic_ai.exceptions import (
    FallbackExceptionGroup,
    ModelAPIError,
    ModelRetry,
    ToolRetryError,
    UnexpectedModelBehavior,
)
from pydantic_ai.models import Model
from pydantic_core import to_jsonable_python
from typing_extensions import TypeVar

from freeact_sub.calls import FanOut
from freeact_sub.config.budget import Budget, Usage
from freeact_sub.errors import ApprovalDeniedError, KernelLostError, LimitReachedError, TaskError
from freeact_sub.events import AgentFinished, CodeExecutionOutput
from freeact_sub.events.ending import Ending, RunStatus
from freeact_sub.kernels import block_type
from freeact_sub.models.failures import failure
from freeact_sub.text import one_line, wrong_fields

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

    from freeact_sub.kernels.files import Changes, OwnFiles

AnswerT = TypeVar("AnswerT", default=Any)

NO_BOUNDS: Final = Budget()

AgentStatus: TypeAlias = Literal["idle", "queued", "starting", "running", "waiting"] | RunStatus
"""The state of a live run, or the outcome of the last one. `waiting`: for children; `idle`: before the first run."""

ACTIVE: Final[tuple[AgentStatus, ...]] = ("running", "waiting")
"""The states of working agents; queued and starting ones do nothing yet."""


PictureUse: TypeAlias = Literal["saved", "shown", "unseen"]
"""The form in which a cell's picture reaches the user: as the path of a file, displayed, or not at all."""
MAX_PROBLEM_CHARS: Final = 600
WAY_OUT: Final = "Say in another prompt what it should do instead, or use another model"
_TOOL_TRIED: Final = re.compile(r"Tool (?P<name>.+) exceeded max retries count of (?P<retries>\d+)")
"""pydantic-ai's message about too many tries."""


class KernelNode(ABC):
    """A live kernel that an agent keeps. Counts towards `kernel.max_live` and ends with its owner at the latest.

    As an async context manager it closes on exit. `Agent.branch` makes it, and a child that is started with `keep`.
    """

    @property
    @abstractmethod
    def node_id(self) -> str:
        """The id of the child whose kernel this was, or the node's own."""

    @property
    @abstractmethod
    def description(self) -> str:
        """The label of the node, or its child's."""

    @property
    @abstractmethod
    def history(self) -> list["ModelMessage"]:
        """The conversation of the child whose kernel this was; a branch of a node has that node's."""

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether the node is not closed; its kernel may have died."""

    @abstractmethod
    async def execute(self, code: str) -> CodeExecutionOutput:
        """Run a cell of the program's own code, as `Agent.execute` does in the agent's kernel, without asking anybody.

        Its actions (files, programs, connections, children) need approval, and the node's mode bounds them. The cell counts
        as one of the node's owner. Code that a model has written runs by `execute_asked`.

        Returns:
            The cell's `status`, `text` and `displays`. An error raised by the code is a `status`.

        Raises:
            LimitReachedError: The owner's budget has no call left.
            KernelLostError: The node's kernel has ended.
            FreeactError: The node is closed, or its owner's run has ended.
        """

    @abstractmethod
    async def execute_asked(self, code: str) -> CodeExecutionOutput:
        """Run a cell that needs approval like any cell of the owner's model, as the steps of a search do.

        Raises:
            ApprovalDeniedError: The cell was denied.
        """

    @abstractmethod
    async def branch(self, description: str = "", *, own_files: bool = False) -> "KernelNode":
        """Make a node whose kernel starts as a copy of this one, as `Agent.branch` does."""

    @abstractmethod
    async def variables(self) -> dict[str, str]:
        """Return a line on each variable, by name, as `Agent.variables` does."""

    @abstractmethod
    async def own_files(self) -> "OwnFiles | None":
        """Return the node's copy of the workspace. None: it works in the workspace itself."""

    @abstractmethod
    async def diff(self) -> "Changes":
        """Return the changes in the node's copy of the workspace; empty if it has none.

        Raises:
            KernelLostError: The node's kernel has ended, and its copy with it.
            FreeactError: The node is closed, or the copy is too large to compare.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close the kernel; branches of it live on. Can be called again."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


@dataclass(frozen=True, kw_only=True)
class RunResult(Ending, Generic[AnswerT]):
    """The outcome of a run: status, answer, spending.

    `output` is the answer and nothing else: a run that did not complete has none, and reading it raises TaskError,
    which says why. The last words of such a run are its `text`.
    """

    value: AnswerT | str
    """The answer, of the agent's output type, if `status` is `completed`; otherwise the model's last text."""
    agent_id: str = ""
    node: KernelNode | None = field(default=None, compare=False)
    """The kernel, if `keep` was set, unless the child was cancelled, ran out of time or had no live kernel."""
    exception: Exception | None = field(default=None, compare=False)
    """The exception behind `error`, with its traceback. None: no exception ended the run, or another program ran it."""

    @property
    def output(self) -> AnswerT:
        """The answer, of the agent's output type. Raises TaskError unless `status` is `completed`."""
        if self.status != "completed":
            raise TaskError(self) from self.exception
        return self.value  # type: ignore[return-value]  # a text is only another run's

    @property
    def text(self) -> str:
        """The answer as text; if the run did not complete, the model's last text, which may be empty."""
        return text_of(self.value)

    @property
    def event(self) -> AgentFinished:
        """The result as an event."""
        return AgentFinished(output=self.text, **self.facts)

    @property
    def facts(self) -> dict[str, Any]:
        """All fields but the answer, by name."""
        return {fact.name: getattr(self, fact.name) for fact in fields(Ending)}

    def __repr__(self) -> str:
        why = f", error={self.error!r}" if self.error else ""
        name = "output" if self.status == "completed" else "text"
        return f"RunResult(status={self.status!r}, {name}={one_line(repr(self.value), 60)}{why}, seconds={self.seconds:.1f})"


RESULT_FIELDS: Final = frozenset(("output", "text", *(fact.name for fact in fields(RunResult))))
"""Names of the fields and properties of a result."""


def text_of(output: Any) -> str:
    """Return an answer as text: JSON for other values, or `str` for those without JSON, such as frames and cyclic ones."""
    if isinstance(output, str):
        return output
    if block_type(type(output)):
        return str(output)  # shortened, as Python shows it
    try:
        return json.dumps(to_jsonable_python(output, fallback=str), ensure_ascii=False)
    except (ValueError, TypeError, RecursionError):
        return str(output)


@dataclass(frozen=True, kw_only=True)
class AgentInfo:
    """One agent of a tree, as a front end lists it."""

    agent_id: str
    parent_id: str | None
    depth: int
    description: str
    status: AgentStatus
    usage: Usage
    """The agent's own spending in the present or last run."""
    seconds: float
    """The duration of the present or last run, as `Budget.seconds` counts it."""
    key: str = ""
    """The durable name, which shows the ancestors."""
    budget: Budget = NO_BOUNDS
    """The budget of the present or last run."""
    action: str = ""
    """The activity in one line: a call, a question to a person, a model request. Empty: none."""
    fan_out: FanOut | None = None
    """The rest of the last fan-out, as it was quoted, if one was."""


def status_of(error: Exception) -> RunStatus:
    """Return the status of a run that an error ended."""
    match error:
        case LimitReachedError(limit="seconds"):
            return "timeout"
        case LimitReachedError():
            return "limit"
        case KernelLostError():
            return "kernel_lost"
        case ApprovalDeniedError():
            return "rejected"
    return "failed"


def sentence(error: Exception, model: Model) -> str:
    """Return one sentence for people; the log has the traceback. Args: model: the run's."""
    is_request = isinstance(error, ModelAPIError | FallbackExceptionGroup)
    return f"the model request failed: {reason(error, model)}" if is_request else reason(error, model)


def reason(error: Exception, model: Model) -> str:
    """Return what went wrong. Args: model: the run's."""
    if isinstance(error, UnexpectedModelBehavior) and (problem := _last_problem(error)):
        return (
            f"{_what_it_did(error.message)}, and was told each time why that cannot be; the last time: {problem}. {WAY_OUT}"
        )
    return failure(error, model)


def _what_it_did(message: str) -> str:
    """Return the reason in a message of pydantic-ai about too many tries of a tool or an answer."""
    if (tool := _TOOL_TRIED.match(message)) is None:
        return "the model gave an answer that cannot be used, again and again"
    return f"the model called the tool {tool['name']} {int(tool['retries']) + 1} times"


def _last_problem(error: BaseException) -> str:
    """Return the problem that the model read last; empty if the run ended for another reason."""
    match error.__cause__:
        case ToolRetryError() as cause:
            content = cause.tool_retry.content
            problem = wrong_fields(content) if isinstance(content, list) else str(content)
        case ModelRetry() as cause:
            problem = cause.message
        case ValidationError() as cause:
            problem = wrong_fields(cause.errors())
        case _:
            problem = ""
    return one_line(problem, MAX_PROBLEM_CHARS).rstrip(".")
