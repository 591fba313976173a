"""What is read of a session, as plain values. Agents at every depth have the same shape."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from freeact_sub.cells import CellError, DisplayData, ExecuteResult, StreamText
from freeact_sub.config.budget import Usage
from freeact_sub.events import ApprovalRequest
from freeact_sub.modes import Mode

CallState: TypeAlias = Literal["begun", "done"]
"""`begun`: the program ended while the call was at work, or it is at work now; whether it had an effect is not known."""

INTERRUPTED = "interrupted"
"""The status of a run that the end of the program has cut off."""


@dataclass(frozen=True, kw_only=True)
class StoredSession:
    """One session, as a list shows it."""

    session_id: str
    workspace: Path
    created: float
    """Seconds since the epoch; so are all times."""
    updated: float
    title: str
    """The first prompt, cut to 200 characters. Empty: nothing was asked yet."""
    model: str
    """The setting `model`. Empty: the program gave a model of its own."""
    archived: bool
    """Its variables and long outputs have been swept away; the conversation is whole."""
    agents: int
    """How many there were, the root included."""
    usage: Usage
    """What all its agents have spent."""
    status: str
    """How the last run of the root has ended; `interrupted`: by the end of the program. Empty: none has."""


@dataclass(frozen=True, kw_only=True)
class StoredAgent:
    """Who an agent was."""

    agent_id: str
    key: str
    parent_id: str | None
    """None: it is the root."""
    depth: int
    tool_call_id: str | None
    """The call of its parent that started it."""
    description: str
    agent_type: str | None
    model: str
    mode: Mode
    in_background: bool
    scope: str = ""
    """What it was told to keep to."""


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """One prompt of an agent, and what came of it."""

    agent_id: str
    number: int
    """The agent's first run is 1."""
    root_run: int
    """The run of the root in which it was."""
    prompt: str
    budget: dict[str, Any]
    """The bounds that it had, by name."""
    began: float
    ended: float | None
    """None: it goes on, or the program ended before it did."""
    status: str
    """Of `RunStatus`, or `interrupted`. Empty: it goes on."""
    error: str
    usage: Usage
    """What the agent itself has spent."""
    tree_usage: Usage
    output: Any
    """The answer as JSON has it; None: there is none."""
    reused_from: str
    """The agent whose answer it was given; empty: it is its own."""
    files_read: tuple[str, ...]
    files_written: tuple[str, ...]
    files_removed: tuple[str, ...]
    warnings: tuple[str, ...]
    undone: bool
    """The state before it was restored, and it was not done again."""


@dataclass(frozen=True, kw_only=True)
class StoredCall:
    """One call, of the model or of code in a cell."""

    call_id: int
    """In order of their begin."""
    agent_id: str
    run: int
    tool_call_id: str | None
    """The model's; of a call that code made, that of its cell."""
    from_code: bool
    name: str
    args: dict[str, Any]
    state: CallState
    began: float
    ended: float | None
    outcome: str
    """`success`, `failed` or `denied`. Empty: it is only begun."""
    result: str
    """As the model reads it. Empty: it is only begun."""


@dataclass(frozen=True, kw_only=True)
class StoredCell:
    """One cell, with what it has shown."""

    agent_id: str
    tool_call_id: str | None
    code: str
    began: float
    outputs: tuple[StreamText | DisplayData | ExecuteResult | CellError, ...]
    """In their order; text above 100,000 characters of a cell is left out."""
    text: str
    """What the model has read of it."""
    status: str
    """`ok`, `error`, `aborted` and the like. Empty: it has not ended, or never ran."""
    seconds: float
    output_file: str | None
    """A file in the workspace with all of the output, if `text` is cut."""


@dataclass(frozen=True, kw_only=True)
class StoredQuestion:
    """A call that waited for an answer."""

    request: ApprovalRequest
    allowed: bool | None
    """None: it was never answered."""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class KnownAnswer:
    """What a child or an `ask` has answered, to be used again after a crash."""

    answer_id: int
    digest: str
    """Of all that was asked."""
    agent_id: str
    root_run: int
    """The run of the root in which it was asked."""
    value: Any
