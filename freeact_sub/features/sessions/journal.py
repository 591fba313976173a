"""The record of the agents of one root (`Journal`), and what a later program makes of it (`load`).

`Journal` returns recorded answers after a crash. Where there is no session all of it does nothing. Agents need not ask: they
tell of each step, and await it only where the disk must know before they go on. `load` loads a session to resume it, and
tells the model about the calls that a crash cut off.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import zip_longest
from operator import is_
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolReturnPart, UserPromptPart
from pydantic_core import to_jsonable_python

from freeact_sub import events as ev
from freeact_sub.agents.life import KeptAgent, TreeAgent
from freeact_sub.agents.results import RunResult, text_of
from freeact_sub.agents.resumed import KeptChild
from freeact_sub.agents.shared import Recorded
from freeact_sub.cells import ClearOutput, DisplayData, StreamText
from freeact_sub.config.budget import Budget, Usage
from freeact_sub.events.ending import Ending
from freeact_sub.events.json_lines import content
from freeact_sub.features.sessions.variables import SessionVariables
from freeact_sub.sessions import (
    KnownAnswer,
    SessionReader,
    SessionStore,
    SessionWriter,
    StoredAgent,
    StoredCall,
    StoredRun,
    StoredSession,
)
from freeact_sub.text import counted, one_line

NOT_BEGUN: Final = "[NOT RUN] The program ended before this call began."
BEGUN: Final = (
    "[UNKNOWN] The program ended while this call was at work. It may have had all of its effect, a part of it, or none; it "
    "was not repeated. Look at what is there before you do it again."
)
KNOWN_AGAIN: Final = "Children and asks that have completed are not paid again: asked for the same, they answer at once."
SHOWN_CHARS: Final = 300

OpenReader: TypeAlias = Callable[[], SessionReader]
OF_CELLS: Final = (ev.CodeExecutionOutputChunk, ev.CodeExecutionOutput, ev.ToolOutput)
CELL_CHARS: Final = 100_000
"""Maximum characters of one cell's text to keep; all of it is in the cell's file."""


@dataclass(frozen=True, kw_only=True)
class EarlierPrompt:
    """A prompt of an earlier program that can be undone."""

    prompt: str
    run: int
    """The number of its run."""
    messages: int
    """Messages before the prompt."""
    files: str
    """The state of the workspace's files before the prompt. Empty: it is not kept."""


@dataclass(frozen=True, kw_only=True)
class Resumed:
    """The state of a session that agents resume from."""

    stored: StoredSession
    root_id: str | None
    """The root's id. None: the root never began a run."""
    root_run: int
    runs: Counter[str]
    """Runs that each agent has begun."""
    written: list[ModelMessage]
    """The root's conversation as recorded."""
    history: list[ModelMessage]
    """The root's conversation, with results for calls that were cut off."""
    answers: dict[str, list[KnownAnswer]] = field(default_factory=dict)
    earlier: list[EarlierPrompt] = field(default_factory=list)
    """The prompts that can be undone."""
    answered_by: dict[str, str] = field(default_factory=dict)
    """The child that gave a child's answer, by the latter."""
    cut_off: bool = False
    """Whether the last run was cut off."""
    lost: str = ""
    """Unreadable parts, in words."""

    @property
    def usage(self) -> Usage:
        """The spending of all agents so far."""
        return self.stored.usage

    def summary(self) -> str:
        """Return a sentence for people about what was restored."""
        said = f"{counted(len(self.written), 'message')} of {counted(self.stored.agents, 'agent')}"
        parts = [said if self.written else "nothing was asked yet"]
        known = sum(map(len, self.answers.values()))
        if self.cut_off:
            parts.append("the last run was cut off")
        if self.lost:
            parts.append(f"without what cannot be read ({self.lost})")
        if known:
            parts.append(f"{counted(known, 'known answer')} of children and asks for nothing")
        return f"session {self.stored.session_id} goes on: {', '.join(parts)}"


def load(store: SessionStore, session_id: str) -> Resumed:
    """Load a session.

    Raises:
        SessionError: The session does not exist or cannot be read.
    """
    stored = store.find(session_id)
    with store.reader(stored.session_id) as reader:
        root = next((agent for agent in reader.agents() if agent.parent_id is None), None)
        all_runs = reader.runs()
        runs = Counter(run.agent_id for run in all_runs)
        answers = defaultdict(list)
        ended = [
            run.number
            for run in all_runs
            if root is not None and run.agent_id == root.agent_id and run.status == "completed"
        ]
        for answer in reader.known_answers(since=max(ended, default=0)):
            answers[answer.digest].append(answer)
        if root is None:
            return Resumed(stored=stored, root_id=None, root_run=0, runs=runs, written=[], history=[])
        written = reader.messages(root.agent_id)
        root_runs = [run for run in all_runs if run.agent_id == root.agent_id]
        last = root_runs[-1] if root_runs else None
        at_work = [run.agent_id for run in all_runs if run.ended is None and run.agent_id != root.agent_id]
        calls = reader.calls(root.agent_id)
        earlier = earlier_prompts(root_runs, reader.chain(root.agent_id))
        lost = [counted(count, kind) for kind, count in reader.lost.items()]
    return Resumed(
        stored=stored,
        root_id=root.agent_id,
        root_run=0 if last is None else last.root_run,
        runs=runs,
        written=written,
        history=[*written, *cut_off(written, root_runs, calls, at_work)],
        answers=dict(answers),
        earlier=earlier,
        answered_by={run.agent_id: run.reused_from for run in all_runs if run.reused_from},
        cut_off=last is not None and last.ended is None,
        lost=", ".join(lost),
    )


def load_child(open_reader: OpenReader, agent_id: str) -> KeptChild | None:
    """Load a child that has ended, if the session has one with this id. Raises: SessionError: It cannot be read."""
    with open_reader() as reader:
        agents = reader.agents()
        if agent_id not in {agent.agent_id for agent in agents}:
            return None
        written, runs = reader.messages(agent_id), reader.runs()
        own = [run for run in runs if run.agent_id == agent_id]
        returns: list[ModelMessage] = []
        if own and own[-1].ended is None:
            at_work = [run.agent_id for run in runs if run.ended is None and run.agent_id != agent_id]
            returns = cut_off(written, own, reader.calls(agent_id), at_work)
        names = [field.name for field in fields(KeptAgent)]
        kept = [KeptAgent(**{name: getattr(agent, name) for name in names}) for agent in agents]
        return KeptChild(agents=kept, written=written, cut_off=returns)


def earlier_prompts(runs: Sequence[StoredRun], chain: Sequence[int]) -> list[EarlierPrompt]:
    """Return the prompts that can be undone: all since the last compaction and the last prompt of which nothing is kept.

    Args:
        runs: The root's runs, in order.
        chain: The entries of its conversation.
    """
    places = {None: 0} | {entry: place for place, entry in enumerate(chain, 1)}
    found: list[EarlierPrompt] = []
    after = chain[-1] if chain else None
    for run in reversed([run for run in runs if not run.undone]):
        if run.head not in places or (run.files is None and run.head != after):
            break
        after = run.head
        if run.files is not None:
            found.append(EarlierPrompt(prompt=run.prompt, run=run.number, messages=places[run.head], files=run.files))
    return found[::-1]


def cut_off(
    history: Sequence[ModelMessage], runs: Sequence[StoredRun], calls: Sequence[StoredCall], at_work: Sequence[str]
) -> list[ModelMessage]:
    """Return messages about work that the program's end cut off: results for calls of the last response, and prompts.

    Args:
        history: The conversation as the session has it.
        runs: The runs of the agent, in order.
        calls: The calls of the agent.
        at_work: The children that the program's end has cut off.
    """
    lost = [run for run in runs if run.unwritten]
    written = max((run.number for run in runs if run not in lost), default=0)
    returns = cut_off_calls(history, [call for call in calls if call.run >= written], at_work)
    return [*returns, *(ModelRequest(parts=[UserPromptPart(run.prompt)]) for run in lost)]


def cut_off_calls(
    history: Sequence[ModelMessage], calls: Sequence[StoredCall], at_work: Sequence[str]
) -> list[ModelMessage]:
    """Return the results of calls in the last response that the program's end cut off, if there are any.

    Args:
        history: The conversation.
        calls: The agent's calls in its last run.
        at_work: The children that were cut off.
    """
    last = history[-1] if history else None
    if not isinstance(last, ModelResponse) or not last.tool_calls:
        return []
    own = {call.tool_call_id: call for call in calls if not call.from_code}
    parts = []
    for part in last.tool_calls:
        call = own.get(part.tool_call_id)
        text = _text(call, [item for item in calls if item.from_code and item.tool_call_id == part.tool_call_id], at_work)
        outcome: Literal["success", "failed"] = "success" if call is not None and call.outcome == "success" else "failed"
        parts.append(ToolReturnPart(part.tool_name, text, part.tool_call_id, outcome=outcome))
    return [ModelRequest(parts=parts)]


def _text(call: StoredCall | None, from_code: Sequence[StoredCall], at_work: Sequence[str]) -> str:
    if call is None:
        return NOT_BEGUN
    if call.state == "done":
        return call.result
    lines = [BEGUN]
    if from_code:
        lines.append("Calls that its code had made:")
        lines.extend(f"- {line}" for line in _lines(from_code))
    if at_work:
        lines.append(f"Children that ended with the program, and have no answer: {', '.join(at_work)}")
    lines.append(KNOWN_AGAIN)
    return "\n".join(lines)


def _lines(calls: Sequence[StoredCall]) -> Iterator[str]:
    for call in calls:
        state = f"done ({call.outcome})" if call.state == "done" else "begun; what it has done is not known"
        yield f"{call.name} {_args(call.args)}: {state}"


def _args(args: Mapping[str, object]) -> str:
    return one_line(", ".join(f"{name}={value!r}" for name, value in args.items()), SHOWN_CHARS)


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
