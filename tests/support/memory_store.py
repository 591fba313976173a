"""`MemoryStore`: a session store that keeps all in this program; it has what `SessionStore` asks for, and no more.

A fork copies the records. The folders of sessions are real: the program puts files of its own there.
"""

import copy
import json
import shutil
import time
from collections import Counter
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from freeact_sub.config.budget import Usage
from freeact_sub.errors import SessionBusyError, SessionError
from freeact_sub.events import AgentEvent, ApprovalDecided, ApprovalRequest
from freeact_sub.events.json_lines import json_line
from freeact_sub.sessions import new_session_id
from freeact_sub.sessions.store import (
    INTERRUPTED,
    KnownAnswer,
    StoredAgent,
    StoredCall,
    StoredQuestion,
    StoredRun,
    StoredSession,
    Swept,
    cells_of,
)


@dataclass
class Kept:
    """All that is kept of one session."""

    about: dict[str, Any] = field(default_factory=dict)
    agents: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    messages: list[tuple[str, Any]] = field(default_factory=list)
    """Each with its agent; a message keeps its place."""
    chains: dict[str, list[int]] = field(default_factory=dict)
    calls: dict[tuple[str, int, int], dict[str, Any]] = field(default_factory=dict)
    events: list[tuple[str, int, str]] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)


class Writer:
    """A `SessionWriter`."""

    keeps = False

    def __init__(self, store: "MemoryStore", session_id: str) -> None:
        self._store, self.session_id = store, session_id
        self._to = Kept()

    def start(self):
        self.keeps, self._to = True, self._store.kept.setdefault(self.session_id, self._to)

    async def commit(self):
        return self.keeps

    async def aclose(self):
        self.keeps = False
        self._store.busy.discard(self.session_id)

    def session(self, *, workspace, model, model_facts="{}"):
        now = {"updated": time.time(), "model": model, "facts": json.loads(model_facts)}
        self._to.about = {"workspace": workspace, "created": time.time(), "title": "", **self._to.about, **now}
        for run in self._to.runs.values():
            run["status"] = run["status"] or INTERRUPTED

    def agent(self, **columns):
        self._to.agents.setdefault(columns["agent_id"], columns)

    def mode(self, agent_id, mode):
        self._to.agents[agent_id]["mode"] = mode

    def run_begins(self, agent_id, number, root_run, *, prompt, budget):
        chain = self._to.chains.get(agent_id, [])
        begun = {"root_run": root_run, "prompt": prompt, "budget": budget, "began": time.time(), "ended": None, "status": ""}
        begun |= {"head": chain[-1] if chain else None, "ending": {}, "output": None, "files": None, "undone": False}
        self._to.runs[agent_id, number] = begun
        self._to.about["title"] = self._to.about["title"] or " ".join(prompt.split())[:200]

    def run_ends(self, agent_id, number, *, status, ending, output):
        found = {"ended": time.time(), "status": status, "ending": json.loads(json_line(ending)), "output": output}
        self._to.runs[agent_id, number] |= found
        self._to.about["updated"] = found["ended"]

    def files(self, agent_id, number, tree):
        self._to.runs[agent_id, number]["files"] = tree

    def undone(self, agent_id, numbers, *, undone):
        for number in numbers:
            self._to.runs[agent_id, number]["undone"] = undone

    def messages(self, agent_id, keep, new):
        first = len(self._to.messages)
        self._to.messages += [(agent_id, message) for message in new]
        self._to.chains[agent_id] = [*self._to.chains.get(agent_id, [])[:keep], *range(first, len(self._to.messages))]

    def call_begins(self, agent_id, run, number, **columns):
        self._to.calls[agent_id, run, number] = {**columns, "began": time.time(), "ended": None, "outcome": "", "result": ""}

    def call_ends(self, agent_id, run, number, *, outcome, result):
        self._to.calls[agent_id, run, number] |= {"ended": time.time(), "outcome": outcome, "result": result}

    def answer(self, agent_id, root_run, digest, value):
        self._to.answers.append({"agent_id": agent_id, "root_run": root_run, "digest": digest, "value": value})

    def answer_used(self, answer_id, root_run):
        self._to.answers[answer_id]["root_run"] = root_run

    def event(self, agent_id, root_run, kind, to_json):
        self._to.events.append((agent_id, root_run, to_json()))


class Reader:
    """A `SessionReader`."""

    def __init__(self, kept: Kept) -> None:
        self._kept, self.lost = kept, Counter()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def agents(self):
        return [StoredAgent(**columns) for columns in self._kept.agents.values()]

    def agent(self, agent_id):
        found = [each for each in self.agents() if each.key == agent_id or each.agent_id.startswith(agent_id)]
        if len(found) != 1:
            raise SessionError(f"there is no agent {agent_id!r}, or there are several")
        return found[0]

    def runs(self, agent_id=None):
        return [self._run(*key, run) for key, run in self._kept.runs.items() if agent_id in (None, key[0])]

    def _run(self, agent_id, number, run):
        ending, chain = run["ending"], self._kept.chains.get(agent_id, [])
        known = {name: ending.get(name, "") for name in ("error", "reused_from")}
        known |= {name: Usage(**(ending.get(name) or {})) for name in ("usage", "tree_usage")}
        lists = ("files_read", "files_written", "files_removed", "warnings", "missing_files")
        known |= {name: tuple(ending.get(name) or ()) for name in lists}
        at_head = run["head"] == (chain[-1] if chain else None)
        unwritten = run["ended"] is None and not run["undone"] and at_head
        columns = {name: value for name, value in run.items() if name != "ending"}
        return StoredRun(agent_id=agent_id, number=number, receipts=None, unwritten=unwritten, **columns, **known)

    def messages(self, agent_id):
        return [self._kept.messages[at][1] for at in self.chain(agent_id)]

    def chain(self, agent_id):
        return [*self._kept.chains.get(agent_id, [])]

    def calls(self, agent_id=None):
        every = enumerate(self._kept.calls.items())
        return [
            StoredCall(call_id=at, agent_id=key[0], run=key[1], state="begun" if call["ended"] is None else "done", **call)
            for at, (key, call) in every
            if agent_id in (None, key[0])
        ]

    def events(self, agent_id=None, *, root_run=None):
        for agent, run, line in [*self._kept.events]:
            if agent_id in (None, agent) and root_run in (None, run):
                yield AgentEvent.from_json(line)

    def last_event(self, agent_id, kind):
        return next((event for event in [*self.events(agent_id)][::-1] if type(event).__name__ == kind), None)

    def cells(self, agent_id):
        return cells_of(self.events(agent_id))

    def questions(self, agent_id=None):
        events = [*self.events(agent_id)]
        decided = {event.request_id: event for event in events if isinstance(event, ApprovalDecided)}
        asked = [StoredQuestion(request=event, allowed=None) for event in events if isinstance(event, ApprovalRequest)]
        answers = [(question, decided.get(question.request.request_id)) for question in asked]
        return [
            replace(question, allowed=said and said.allowed, reason=said.reason if said else "")
            for question, said in answers
        ]

    def known_answers(self, *, since=0):
        return [KnownAnswer(answer_id=at, **each) for at, each in enumerate(self._kept.answers) if each["root_run"] > since]


class MemoryStore:
    """A `SessionStore`."""

    def __init__(self, home: Path) -> None:
        self._home, self.copies = home, home / "copies"
        self.kept: dict[str, Kept] = {}
        self.busy: set[str] = set()

    def sessions(self, workspace=None):
        found = [self._stored(session_id, kept) for session_id, kept in self.kept.items()]
        found = [session for session in found if workspace in (None, session.workspace)]
        return sorted(found, key=lambda session: -session.updated)

    def _stored(self, session_id, kept):
        about = {name: value for name, value in kept.about.items() if name != "facts"}
        ended = [run["status"] for run in kept.runs.values() if run["status"]]
        known = {field.name for field in fields(StoredSession)}
        facts = {name: value for name, value in kept.about["facts"].items() if name in known}
        facts = {"model_settings": {}, "addresses": (), **facts}
        more = {"archived": False, "agents": len(kept.agents), "usage": Usage(), "status": ended[-1] if ended else ""}
        return StoredSession(session_id=session_id, **about, **facts, **more)

    def find(self, session_id):
        found = [session for session in self.sessions() if session.session_id.startswith(session_id)]
        if len(found) != 1:
            raise SessionError(f"there is no session {session_id!r}, or there are several")
        return found[0]

    def prompts(self):
        for session_id, kept in self.kept.items():
            yield from ((session_id, run["prompt"]) for run in kept.runs.values())

    def reader(self, session_id):
        if session_id not in self.kept:
            raise SessionError(f"there is no session {session_id!r}")
        return Reader(self.kept[session_id])

    def open(self, session_id, *, secrets, on_failure):
        del secrets, on_failure
        if session_id in self.busy:
            raise SessionBusyError(f"the session {session_id} is open")
        self.busy.add(session_id)
        return Writer(self, session_id)

    def is_open(self, session_id):
        return session_id in self.busy

    def folder_of(self, session_id):
        return self._home / session_id

    def fork(self, session_id, *, is_mine=False, point=None):
        if session_id in self.busy and not is_mine:
            raise SessionBusyError(f"the session {session_id} is open")
        assert point is None, "forks of the past need more"
        self.reader(session_id)
        new_id = new_session_id()
        self.kept[new_id] = copy.deepcopy(self.kept[session_id])
        return new_id

    def remove(self, session_id):
        if session_id in self.busy:
            raise SessionBusyError(f"the session {session_id} is open")
        self.reader(session_id)
        del self.kept[session_id]
        shutil.rmtree(self.folder_of(session_id), ignore_errors=True)

    def is_sweep_due(self):
        return False

    def sweep(self, workspace, *, archive_after_days, max_bytes, stop):
        del workspace, archive_after_days, max_bytes, stop
        return Swept()
