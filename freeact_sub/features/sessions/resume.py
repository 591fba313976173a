"""Loads a session to resume it, and tells the model about the calls that a crash cut off."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final, Literal, TypeAlias

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolReturnPart, UserPromptPart

from freeact_sub.agents.life import KeptAgent
from freeact_sub.agents.resumed import KeptChild
from freeact_sub.config.budget import Usage
from freeact_sub.sessions import KnownAnswer, SessionReader, SessionStore, StoredCall, StoredRun, StoredSession
from freeact_sub.text import counted, one_line

NOT_BEGUN: Final = "[NOT RUN] The program ended before this call began."
BEGUN: Final = (
    "[UNKNOWN] The program ended while this call was at work. It may have had all of its effect, a part of it, or none; it "
    "was not repeated. Look at what is there before you do it again."
)
KNOWN_AGAIN: Final = "Children and asks that have completed are not paid again: asked for the same, they answer at once."
SHOWN_CHARS: Final = 300

OpenReader: TypeAlias = Callable[[], SessionReader]


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
    answered_by: dict[str, str] = field(default_factory=dict)
    """The child that gave a child's answer, by the latter."""
    cut_off: bool = False
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
