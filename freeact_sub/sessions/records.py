"""The records of a session, as plain values. Agents at every depth have the same shape."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from freeact_sub.cells import CELL_TOOL, CellError, ClearOutput, DisplayData, ExecuteResult, StreamText
from freeact_sub.config.budget import Usage
from freeact_sub.events import (
    ApprovalRequest,
    CodeExecutionOutput,
    CodeExecutionOutputChunk,
    Event,
    ToolCallStarted,
    ToolOutput,
)
from freeact_sub.events.receipts import Receipts
from freeact_sub.modes import Mode, Thinking

CallState: TypeAlias = Literal["begun", "done"]
"""`begun`: the call is running, or the program ended while it ran, so that its effect is unknown."""

INTERRUPTED = "interrupted"
"""The status of a run that was interrupted by the end of the program."""


@dataclass(frozen=True, kw_only=True)
class StoredSession:
    """One session, as a list shows it."""

    session_id: str
    workspace: Path
    created: float
    """Seconds since the epoch, as all times."""
    updated: float
    title: str
    """The first prompt, cut to 200 characters. Empty: there is none yet."""
    model: str
    """The setting `model`. Empty: the program passed a model object."""
    model_settings: dict[str, Any]
    """The settings that give the model a meaning, such as `base_url`, without secrets. Empty: they are not known."""
    addresses: tuple[str, ...]
    """The names and servers of the model and of its fallbacks."""
    archived: bool
    """Sweeping removed its variables and long outputs; the conversation is complete."""
    agents: int
    """The number of agents, the root included."""
    usage: Usage
    """The spending of all its agents."""
    once: bool = False
    """It is one prompt alone, which cannot be undone: of `freeact-sub run`, and of no conversation."""
    status: str
    """The status of the root's last run; `interrupted`: the program ended first. Empty: none has ended."""


@dataclass(frozen=True, kw_only=True)
class StoredAgent:
    """The identity of an agent."""

    agent_id: str
    key: str
    parent_id: str | None
    """None: the root."""
    depth: int
    tool_call_id: str | None
    """The parent's call that started it."""
    description: str
    agent_type: str | None
    model: str
    mode: Mode
    in_background: bool
    address: str = ""
    """The name and the server of its model. Empty: not known."""
    scope: str = ""
    """The part of the task that is the agent's own."""
    thinking: Thinking | Literal[""] = ""
    """How much its model was to think. Empty: as the settings say."""
    tools: tuple[str, ...] | None = None
    """The only tools that were left to it. None: all."""
    own_files: bool = False
    """It worked in a copy of the workspace."""


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """One prompt of an agent, and its outcome."""

    agent_id: str
    number: int
    """The number of the run; an agent's first is 1."""
    root_run: int
    """The root's run that contains it."""
    prompt: str
    budget: dict[str, Any]
    """Its bounds, by name."""
    began: float
    ended: float | None
    """None: the run is live, or the program ended first."""
    status: str
    """A `RunStatus`, or `interrupted`. Empty: it is live."""
    error: str
    usage: Usage
    """The agent's own spending."""
    tree_usage: Usage
    output: Any
    """The answer as a JSON value; None: there is none."""
    reused_from: str
    """The agent whose answer was reused. Empty: the answer is its own."""
    files_read: tuple[str, ...]
    files_written: tuple[str, ...]
    files_removed: tuple[str, ...]
    warnings: tuple[str, ...]
    missing_files: tuple[str, ...]
    receipts: Receipts | None
    """What it has done. None: it has none, or is older than receipts."""
    undone: bool
    """The run was undone and not redone."""
    head: int | None
    """The last entry of the conversation before it. None: the conversation began with it."""
    files: str | None
    """The state of the workspace's files before it; empty: it is not kept. None: it cannot be undone."""
    unwritten: bool
    """None of the run is in the conversation, because the program ended or the run is about to begin."""


@dataclass(frozen=True, kw_only=True)
class StoredCall:
    """One call, made by the model or by code in a cell."""

    call_id: int
    """The calls' numbers follow the order of their start."""
    agent_id: str
    run: int
    tool_call_id: str | None
    """The id of the model's call; for a call from code, that of its cell."""
    from_code: bool
    name: str
    args: dict[str, Any]
    state: CallState
    began: float
    ended: float | None
    outcome: str
    """`success`, `failed` or `denied`. Empty: it has not ended."""
    result: str
    """The result that the model reads. Empty: it has not ended."""


@dataclass(frozen=True, kw_only=True)
class StoredCell:
    """One cell and its outputs."""

    agent_id: str
    tool_call_id: str | None
    code: str
    began: float
    outputs: tuple[StreamText | DisplayData | ExecuteResult | CellError, ...]
    """The outputs in order, without text beyond 100,000 characters."""
    text: str
    """The text that the model read."""
    status: str
    """`ok`, `error`, `aborted` and the like. Empty: it has not ended, or never ran."""
    seconds: float
    output_file: str | None
    """A file in the workspace with the whole output, if `text` is cut."""


@dataclass(frozen=True, kw_only=True)
class StoredQuestion:
    """An approval request."""

    request: ApprovalRequest
    allowed: bool | None
    """None: nobody answered."""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class KnownAnswer:
    """The answer of a child or an `ask`, for reuse after a crash."""

    answer_id: int
    digest: str
    """The digest of prompt, type, model, inputs and output type."""
    agent_id: str
    root_run: int
    """The root's run in which it was answered."""
    value: Any


@dataclass(frozen=True, kw_only=True)
class ForkPoint:
    """Where the copy of a session ends, and where it works from then on."""

    new_id: str
    workspace: Path
    last: int | None
    """The last run of the root that it has; 0: it has none. None: it has everything."""
    head: int | None = None
    """The last entry of the root's conversation. None: the conversation is empty."""
    states: tuple[str, str] = ("", "")
    """How the names of the states of files begin, and how they begin in the copy."""
    prepare: Callable[[Path], None] = lambda _: None
    """Called with the copy's own folder, before anybody sees the copy."""


def cells_of(events: Iterator[Event]) -> list[StoredCell]:
    """The cells among the events of one agent. A later turn may reuse a call's id."""
    cells: list[dict[str, Any]] = []
    at_work: dict[str | None, dict[str, Any]] = {}
    for event in events:
        cell = at_work.get(event.tool_call_id)
        match event:
            case ToolCallStarted(tool_name=name) if name == CELL_TOOL:
                cell = at_work[event.tool_call_id] = {"code": str(event.args.get("code", "")), "began": event.time}
                cell |= {"agent_id": event.agent_id, "tool_call_id": event.tool_call_id, "outputs": []}
                cells.append(cell | {"text": "", "status": "", "seconds": 0.0, "output_file": None})
                at_work[event.tool_call_id] = cells[-1]
            case CodeExecutionOutputChunk(output=ClearOutput()) if cell is not None:
                cell["outputs"].clear()
            case CodeExecutionOutputChunk(output=output) if cell is not None:
                cell["outputs"].append(output)
            case CodeExecutionOutput() if cell is not None:
                cell |= {"status": event.status, "seconds": event.seconds, "output_file": event.output_file}
                cell["text"] = event.text
            case ToolOutput(tool_name=name) if name == CELL_TOOL and cell is not None:
                cell["text"] = cell["text"] or event.content
                del at_work[event.tool_call_id]
            case _:
                pass
    return [StoredCell(**{**cell, "outputs": tuple(cell["outputs"])}) for cell in cells]


@dataclass
class Swept:
    """The outcome of a sweep."""

    archived: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
