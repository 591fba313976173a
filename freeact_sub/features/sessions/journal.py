"""`Journal`: records the steps of one root's agents, and returns recorded answers after a crash.

Without a session it does nothing. Agents need not ask: they report each step, and await it only where the disk must know
before they go on.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from operator import is_
from pathlib import Path
from typing import Any, Final

from pydantic_ai.messages import ModelMessage
from pydantic_core import to_jsonable_python

from freeact_sub import events as ev
from freeact_sub.agents.life import TreeAgent
from freeact_sub.agents.results import RunResult, text_of
from freeact_sub.agents.shared import Recorded
from freeact_sub.cells import ClearOutput, DisplayData, StreamText
from freeact_sub.config.budget import Budget
from freeact_sub.events.ending import Ending
from freeact_sub.events.json_lines import content
from freeact_sub.features.sessions.resume import EarlierPrompt, OpenReader
from freeact_sub.features.sessions.variables import SessionVariables
from freeact_sub.sessions import KnownAnswer, SessionWriter, StoredAgent

OF_CELLS: Final = (ev.CodeExecutionOutputChunk, ev.CodeExecutionOutput, ev.ToolOutput)
CELL_CHARS: Final = 100_000
"""Maximum characters of one cell's text to keep; all of it is in the cell's file."""


@dataclass(frozen=True, kw_only=True)
class BegunCall:
    """A call whose start is committed."""

    agent_id: str
    run: int
    number: int


@dataclass(kw_only=True)
class _Unwritten:
    """Unwritten output of a cell: text comes in small pieces, and the cell may clear or replace it."""

    pieces: list[ev.CodeExecutionOutputChunk] = field(default_factory=list)
    updates: dict[str | None, ev.CodeExecutionOutputChunk] = field(default_factory=dict)
    """The newest state of each display that was replaced, by its id."""
    cleared: bool = False
    """Whether the cell has cleared its output, and is likely to do so again."""
    chars: int = 0


@dataclass(kw_only=True)
class Journal:
    """The record of one root's agents in their session."""

    writer: SessionWriter | None = None
    """The writer of the session. None: nothing is kept."""
    open_reader: OpenReader | None = None
    """The reader of the session. None: there is no session."""
    variables: SessionVariables | None = None
    """The saver of agents' variables. None: nothing is kept."""
    files: Path | None = None
    """The folder for states of the workspace's files. None: nothing is kept."""
    originals: Sequence[Path] = ()
    """The folders of which the workspace is a copy."""
    earlier: Sequence[EarlierPrompt] = ()
    """Prompts of earlier programs that can be undone, until there is another one."""
    root_run: int = 0
    """The number of the root's present or last run."""
    recorded: Recorded = field(default_factory=Recorded)
    """The core's part of the record."""
    answers: dict[str, list[KnownAnswer]] = field(default_factory=dict)
    """Answers from before a crash, by digest; each is used once."""
    _calls: Counter[str] = field(default_factory=Counter)
    _written: dict[str, list[ModelMessage]] = field(default_factory=dict)
    """Each agent's conversation as the session has it."""
    _unwritten: dict[tuple[str, str | None], _Unwritten] = field(default_factory=dict)

    @property
    def keeps(self) -> bool:
        """Whether anything is kept."""
        return self.writer is not None and self.writer.keeps

    def goes_on(self, agent_id: str, messages: Sequence[ModelMessage]) -> None:
        """Note that the session has this conversation of an agent already."""
        self._written[agent_id] = list(messages)

    def run_begins(
        self, agent_id: str, agent: Callable[[], StoredAgent], prompt: str, budget: Budget, *, of_root: bool
    ) -> None:
        """Record the start of a run. Args: agent: returns its agent, where that is kept."""
        if of_root:
            self.root_run += 1
            self.earlier = ()
        self.recorded.runs[agent_id] += 1
        self._calls[agent_id] = 0
        if self.writer is None:
            return
        self.keep_agent(agent())
        number, bounds = self.recorded.runs[agent_id], budget.model_dump(exclude_none=True)
        self.writer.run_begins(agent_id, number, self.root_run, prompt=prompt, budget=bounds)

    def keep_agent(self, agent: StoredAgent) -> None:
        """Record an agent, and its present mode."""
        if self.writer is not None:
            self.writer.agent(**asdict(agent))
            self.writer.mode(agent.agent_id, agent.mode)

    def run_ends(self, result: RunResult, messages: Sequence[ModelMessage], *, of_root: bool) -> None:
        """Record the end of a run. Args: of_root: its conversation goes on with the next run."""
        if self.writer is None:
            return
        self.messages(result.agent_id, messages)
        ending = {name: value for name, value in content(result).items() if name in Ending.__dataclass_fields__}
        number, output = self.recorded.runs[result.agent_id], jsonable(result.value)
        self.writer.run_ends(result.agent_id, number, status=result.status, ending=ending, output=output)
        if not of_root:
            self._written.pop(result.agent_id, None)

    def messages(self, agent_id: str, messages: Sequence[ModelMessage]) -> None:
        """Write the new messages of an agent's conversation."""
        if self.writer is None:
            return
        written = self._written.get(agent_id, [])
        same = min(len(written), len(messages))
        if not all(map(is_, written, messages)):
            same = next(place for place, (old, new) in enumerate(zip(written, messages, strict=False)) if old is not new)
        if same < max(len(written), len(messages)):
            self._written[agent_id] = list(messages)
            self.writer.messages(agent_id, same, list(messages[same:]))

    def undone(self, agent_id: str, runs: Sequence[int], *, undone: bool) -> None:
        """Record that runs of an agent, by their numbers, were undone or done again."""
        self.earlier = ()
        if self.writer is not None:
            self.writer.undone(agent_id, runs, undone=undone)

    def can_be_undone(self, agent_id: str, tree: str) -> None:
        """Record that the present run of an agent can be undone. Args: tree: the files before it; empty: not kept."""
        if self.writer is not None:
            self.writer.files(agent_id, self.recorded.runs[agent_id], tree)

    async def keep_variables(self, agent_id: str) -> None:
        """Keep the root's variables as they are before its present run, for a fork that begins there."""
        if self.variables is not None and self.keeps:
            await self.variables.keep(self.recorded.runs[agent_id])

    async def call_begins(
        self, agent_id: str, *, name: str, args: Mapping[str, Any], tool_call_id: str | None, from_code: bool
    ) -> BegunCall | None:
        """Record a call that is about to run; it is on disk when this returns. None: nothing is kept."""
        if self.writer is None:
            return None
        self._calls[agent_id] += 1
        call = BegunCall(agent_id=agent_id, run=self.recorded.runs[agent_id], number=self._calls[agent_id])
        self.writer.call_begins(
            agent_id, call.run, call.number, name=name, args=dict(args), tool_call_id=tool_call_id, from_code=int(from_code)
        )
        await self.writer.commit()
        return call

    def call_ends(self, call: BegunCall | None, *, outcome: str, result: str) -> None:
        """Record the end of a call. A user of its result awaits `committed` first."""
        if call is not None and self.writer is not None:
            self.writer.call_ends(call.agent_id, call.run, call.number, outcome=outcome, result=result)

    async def committed(self) -> None:
        """Wait until all records so far are committed."""
        if self.writer is not None:
            await self.writer.commit()

    def take_answer(self, digest: str) -> Any:
        """Return the answer to the same task from before a crash, once, if there is one."""
        known = self.answers.get(digest)
        if not known or self.writer is None:
            return None
        answer = known.pop(0)
        self.writer.answer_used(answer.answer_id, self.root_run)
        return answer.value

    def keep_answer(self, agent_id: str, digest: str, value: Any) -> None:
        """Record an answer to a question that may be asked again after a crash."""
        if self.writer is not None:
            self.writer.answer(agent_id, self.root_run, digest, value)

    def observe(self, event: ev.AgentEvent) -> None:
        """Record an event that describes more than a moment."""
        if self.writer is None or event.momentary:
            return
        if isinstance(event, OF_CELLS):
            key = (event.agent_id, event.tool_call_id)
            if isinstance(event, ev.CodeExecutionOutputChunk):
                self._take_output(key, event)
                return
            self._flush(key)
            if isinstance(event, ev.CodeExecutionOutput):
                self._unwritten.pop(key, None)
        self._write(event)

    def _take_output(self, key: tuple[str, str | None], event: ev.CodeExecutionOutputChunk) -> None:
        waiting, output = self._unwritten.setdefault(key, _Unwritten()), event.output
        match output:
            case ClearOutput():
                waiting.pieces, waiting.cleared, waiting.chars = [event], True, 0
                return
            case DisplayData(update=True):
                waiting.updates[output.display_id] = event
                return
            case StreamText():
                room = CELL_CHARS - waiting.chars
                waiting.chars += len(output.text)
                if room <= 0:
                    return
                event = replace(event, output=replace(output, text=output.text[:room]))
        if not waiting.cleared and waiting.pieces and not _same_stream(waiting.pieces[-1], event):
            self._flush(key)
        waiting.pieces.append(event)
        if not waiting.cleared and not isinstance(output, StreamText):
            self._flush(key)

    def _flush(self, key: tuple[str, str | None]) -> None:
        waiting = self._unwritten.get(key)
        if waiting is None:
            return
        pieces, waiting.pieces = waiting.pieces, []
        updates, waiting.updates = waiting.updates, {}
        for event in (*_joined(pieces), *updates.values()):
            self._write(event)

    def _write(self, event: ev.AgentEvent) -> None:
        if self.writer is not None:
            self.writer.event(event.agent_id, self.root_run, type(event).__name__, event.to_json)


def _same_stream(one: ev.CodeExecutionOutputChunk, other: ev.CodeExecutionOutputChunk) -> bool:
    return (
        isinstance(one.output, StreamText) and isinstance(other.output, StreamText) and one.output.name == other.output.name
    )


def _joined(events: Sequence[ev.CodeExecutionOutputChunk]) -> Iterator[ev.CodeExecutionOutputChunk]:
    """Join successive events of one stream into one event, which has the header of the last."""
    texts: list[str] = []
    for event, following in zip_longest(events, events[1:]):
        if not isinstance(event.output, StreamText):
            yield event
            continue
        texts.append(event.output.text)
        if following is None or not _same_stream(event, following):
            yield replace(event, output=replace(event.output, text="".join(texts)))
            texts.clear()


def jsonable(output: Any) -> Any:
    """Return an answer as JSON has it; as text, where that cannot be."""
    try:
        return to_jsonable_python(output)
    except Exception:  # noqa: BLE001  # border: a value of a type of the user's, whose serializer may raise anything
        return text_of(output)


def stored_agent(agent: TreeAgent) -> StoredAgent:
    """Return an agent as its session keeps it."""
    return StoredAgent(
        **vars(agent.kept), depth=agent.depth, tool_call_id=agent.tool_call_id, in_background=agent.in_background
    )
