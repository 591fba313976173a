"""`RunResult`, how a run ended, and `AgentInfo`, an agent as front ends list it."""

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Self, TypeAlias

from pydantic_core import to_jsonable_python
from typing_extensions import TypeVar

from freeact_sub.calls import FanOut
from freeact_sub.config.budget import Budget, Usage
from freeact_sub.errors import TaskError
from freeact_sub.events import AgentFinished, CodeExecutionOutput
from freeact_sub.events.ending import Ending, RunStatus
from freeact_sub.kernels import block_type
from freeact_sub.text import one_line

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

    from freeact_sub.kernels.workspaces import Changes, OwnFiles

AnswerT = TypeVar("AnswerT", default=Any)
"""The type of an answer."""

NO_BOUNDS: Final = Budget()

AgentStatus: TypeAlias = Literal["idle", "queued", "starting", "running", "waiting"] | RunStatus
"""The state of a live run, or how the last one ended. `waiting`: for children; `idle`: before the first run."""

ACTIVE: Final[tuple[AgentStatus, ...]] = ("running", "waiting")
"""The states of working agents; queued and starting ones do nothing yet."""


PictureUse: TypeAlias = Literal["saved", "shown", "unseen"]
"""How a cell's picture reaches the user: as the path of a file, displayed, or not at all."""


class KernelNode(ABC):
    """A live kernel that an agent keeps. It counts towards `kernel.max_live` and ends with its owner at the latest.

    As an async context manager it closes on exit. `Agent.branch` makes it, and a child that is started with `keep`.
    """

    @property
    @abstractmethod
    def node_id(self) -> str:
        """Its id: the child's whose kernel it was, or its own."""

    @property
    @abstractmethod
    def description(self) -> str:
        """Its label, or its child's."""

    @property
    @abstractmethod
    def history(self) -> list["ModelMessage"]:
        """The conversation of the child whose kernel it was; a branch of a node has that node's."""

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether it is not closed; its kernel may have died."""

    @abstractmethod
    async def execute(self, code: str) -> CodeExecutionOutput:
        """Run a cell of the program's own code, as `Agent.execute` does in the agent's kernel: nobody is asked about it.

        What it does (files, programs, connections, children) needs approval, and the node's mode decides what it may do. It
        counts as a cell of the node's owner. Code that a model has written runs by `execute_asked`.

        Returns:
            The cell's `status`, `text` and `displays`. An error raised by the code is a `status`.

        Raises:
            LimitReachedError: The owner's budget has no call left.
            KernelLostError: The node's kernel has ended.
            FreeactError: The node is closed, or its owner's run has ended.
        """

    @abstractmethod
    async def execute_asked(self, code: str) -> CodeExecutionOutput:
        """Run a cell that needs approval like any cell of the owner's model, as the steps of a search do. See `execute`.

        Raises:
            ApprovalDeniedError: The cell was denied.
        """

    @abstractmethod
    async def branch(self, description: str = "", *, own_files: bool = False) -> "KernelNode":
        """Make a node whose kernel starts as a copy of this one. Arguments and errors: see `Agent.branch`."""

    @abstractmethod
    async def variables(self) -> dict[str, str]:
        """Return a line on each variable of its kernel, by name. See `Agent.variables`."""

    @abstractmethod
    async def own_files(self) -> "OwnFiles | None":
        """The copy of the workspace in which it works. None: the workspace itself."""

    @abstractmethod
    async def diff(self) -> "Changes":
        """Return what it has changed in its copy of the workspace; empty if it has none.

        Raises:
            KernelLostError: The node's kernel has ended, and its copy with it.
            FreeactError: The node is closed, or the copy is too large to compare.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close its kernel; its branches live on. Can be called again."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


@dataclass(frozen=True, kw_only=True)
class RunResult(Ending, Generic[AnswerT]):
    """The outcome of a run: status, answer, spending.

    `output` is the answer and nothing else: of a run that did not complete there is none, and reading it raises TaskError,
    which says why. The last words of such a run are its `text`.
    """

    value: AnswerT | str
    """The answer, of the agent's output type, if `status` is `completed`; otherwise the model's last text."""
    agent_id: str = ""
    node: KernelNode | None = field(default=None, compare=False)
    """Its kernel, if `keep` was set. None: it was not, the child was cancelled or its time was up, or it had
    no live kernel."""
    exception: Exception | None = field(default=None, compare=False)
    """What `error` says in a sentence, with its traceback. None: no exception ended the run, or another program ran it."""

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
"""The names of what a result has."""


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
    """The agent's own spending in its present or last run."""
    seconds: float
    """The duration of its present or last run, as `Budget.seconds` counts it."""
    key: str = ""
    """The agent's durable name, which shows its ancestors."""
    budget: Budget = NO_BOUNDS
    """The budget of its present or last run."""
    action: str = ""
    """Its activity in one line: a call, a question to a person, a model request. Empty: none."""
    fan_out: FanOut | None = None
    """What the rest of its last fan-out takes, as it was quoted. None: none was."""
