"""`RunResult`, how a run ended, and `AgentInfo`, an agent as front ends list it."""

import json
from dataclasses import dataclass, field, fields
from typing import Any, Final, Generic, Literal, TypeAlias

from pydantic_core import to_jsonable_python
from typing_extensions import TypeVar

from freeact_sub.agents.ports import KernelNode
from freeact_sub.calls import FanOut
from freeact_sub.config.budget import Budget, Usage
from freeact_sub.errors import TaskError
from freeact_sub.events import AgentFinished
from freeact_sub.events.ending import Ending, RunStatus
from freeact_sub.kernels import block_type
from freeact_sub.text import one_line

AnswerT = TypeVar("AnswerT", default=Any)
"""The type of an answer."""

NO_BOUNDS: Final = Budget()

AgentStatus: TypeAlias = Literal["idle", "queued", "starting", "running", "waiting"] | RunStatus
"""The state of a live run, or how the last one ended. `waiting`: for children; `idle`: before the first run."""

ACTIVE: Final[tuple[AgentStatus, ...]] = ("running", "waiting")
"""The states of working agents; queued and starting ones do nothing yet."""


PictureUse: TypeAlias = Literal["saved", "shown", "unseen"]
"""How a cell's picture reaches the user: as the path of a file, displayed, or not at all."""


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
    """Its kernel, if `keep` was set. None: it was not, the child was cancelled, or it had no live kernel."""
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
