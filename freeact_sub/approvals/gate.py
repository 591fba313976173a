"""`Gate`: every call of a tree is judged by rules and mode, by advisers, then by a person.

`decide` judges by rules and mode (`Policy`). It asks nobody, remembers nothing, and has no effect. `decide_in_time` does the
same while the event loop goes on. `plan` and `auto` stand for a wall around the kernel: calls that the wall forbids are
denied here as well, whatever a rule allows, so that no question is about a call that cannot happen. Outside the wall, for
MCP calls and a user's own tools, `auto` asks, unless the server says that a tool is read-only; children stand behind the
wall of their parent and need no question.

An `Adviser` has a say beside the rules. It narrows, and it answers questions. Advice before the call counts like a rule of
the person: it denies, has a person asked, or answers a question that a rule could answer. Advice on a question counts like
the answer of the person where anybody may give it. A denial by a rule or a mode stays, and a call that only a person may
allow is asked about. A subclass with a method of the wrong kind, plain or `async`, is refused where it is written.

A question is an `ApprovalRequest` on the root's stream. Only the call that asks waits for it. The reader of the stream
answers by id, in any order. A gate serves one root agent and its descendants for as long as the root lives; a person's rules
for the session are remembered here and nowhere else.

Where nobody is to be asked the answer is ready before the question: both are events, so that the record says who decided. A
question may be bounded in time; past it the answer is no. The log names one that no front end shows for a while: a program
that reads the stream and answers nothing would wait without a word.
"""

import asyncio
import inspect
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol, TypeAlias

from freeact_sub import events as ev
from freeact_sub.approvals.access import by_names_alone, judge_connection, judge_write, spellings, too_many
from freeact_sub.approvals.open_questions import UNSHOWN_SECONDS, OpenApproval, TryOut
from freeact_sub.approvals.patterns import escaped, parse_pattern
from freeact_sub.approvals.policy import (
    Policy,
    ProjectRules,
    Rule,
    RuleFiles,
    Ruling,
    by_mode,
    by_rule,
    denied_by_mode,
    make_rules,
    strictest,
)
from freeact_sub.calls import (
    Call,
    CodeAction,
    FanOut,
    FileWrite,
    McpCall,
    NetworkConnect,
    SavedVariables,
    ShellCommand,
    SpawnCall,
    ToolCall,
)
from freeact_sub.channel import Emitter
from freeact_sub.config.schema import PERMISSIONS_FILE
from freeact_sub.errors import ApprovalDeniedError, ConfigError, InvalidRequestError, way
from freeact_sub.events import Decision
from freeact_sub.events.answers import ABSENT, ASKED, CLOSED, Effects
from freeact_sub.modes import Headless, Mode
from freeact_sub.spans import note, span
from freeact_sub.system.closing import DaemonThreads
from freeact_sub.system.safe_files import silent_mounts
from freeact_sub.text import one_line

FOR_A_PERSON: Final = Ruling(
    verdict="ask", rule="the kernel may do more than the one that saved them", lasting=False, needs_person=True
)
"""The ruling on calls that only a person can allow: neither a rule nor a headless setting does."""
NEEDS_APPROVAL: Final = Ruling(
    verdict="ask",
    rule="its developer requires a person's approval of each call",
    source="requires_approval",
    lasting=False,
    needs_person=True,
)
PATIENCE_SECONDS: Final = 1.0
"""Seconds after which a decision may be waiting for a file system: then all file systems are tried."""
LOOK_SECONDS: Final = 10.0
"""Bound on a decision where all file systems answer."""
_deciding: Final = DaemonThreads("decides")
_waiting: Final = DaemonThreads("tries mounts")
VERDICTS: Final = ("deny", "ask", "allow", None)

logger = logging.getLogger(__name__)

Approve: TypeAlias = Callable[[ev.ApprovalRequest], ev.Decision | bool | Awaitable[ev.Decision | bool | None] | None]
"""A function of a program that answers requests; with None somebody else is asked."""
NOBODY: Final = ABSENT.reason
WITHIN_SETTINGS: Final = ev.Decision(allowed=True, reason=f"{NOBODY}, so the bounds of the settings count", nobody=True)
"""The decision on a fan-out."""
NEEDS_PERSON: Final = ev.Decision(allowed=False, reason=f"{NOBODY}, and this is for a person alone to allow", nobody=True)
WALLED: Final = ev.Decision(allowed=True, reason="a rule allows what only reads", walled=True)
UNATTENDED: Final = (
    "every action was denied because nobody was there to ask: {auto} runs them in the sandbox, {yes} approves all"
)


def decide(call: Call, policy: Policy) -> Ruling:
    """Judge a call by rules and mode; of a child's policy and its parent's, the stricter counts."""
    ruling = _decide_here(call, policy)
    if ruling.verdict == "ask" and ruling.lasting and not ruling.suggests:
        ruling = replace(ruling, suggests=_suggested(call))
    if policy.parent is None or ruling.verdict == "deny":
        return ruling
    return strictest([ruling, decide(call, policy.parent)])


def _suggested(call: Call) -> tuple[str, ...]:
    """Return patterns to offer for a call. The judges of commands and files suggest their own."""
    match call:
        case NetworkConnect():
            return (f"connect:{escaped(spellings(call)[0])}",)
        case ShellCommand() | FileWrite():
            return ()
        case _:
            return (call.kind if call.whole else f"{call.kind}:{escaped(call.subject)}",)


def _decide_here(call: Call, policy: Policy) -> Ruling:
    match call:
        case ShellCommand():
            from freeact_sub.approvals.shell import judge_command, judge_outside  # noqa: PLC0415  # only commands need it

            return judge_outside(call, policy) if call.outside else judge_command(call, policy)
        case FileWrite():
            return strictest(judge_write(path, "", policy) for path in dict.fromkeys((call.path, call.named or call.path)))
        case NetworkConnect():
            return judge_connection(spellings(call), policy)
        case McpCall() if policy.mode == "plan" and not call.read_only:
            return denied_by_mode(policy, "MCP tools run only if their server says that they are read-only")
        case SpawnCall() if policy.mode == "plan" and call.mode not in (None, "plan"):
            return denied_by_mode(policy, "children can only be in mode plan as well")
        case SavedVariables():
            denied = by_rule(call.kind, [call.subject], policy)
            return denied if denied is not None and denied.verdict == "deny" else FOR_A_PERSON
        case ToolCall():
            return _tool(call, policy)
        case FanOut():  # a yes agrees to one bound, so there is no "always"
            return by_rule(call.kind, [call.subject], policy) or replace(by_mode(policy, call.topic), lasting=False)
        case _:
            return by_rule(call.kind, [call.subject], policy) or by_mode(policy, call.topic)


def _tool(call: ToolCall, policy: Policy) -> Ruling:
    if policy.mode == "plan" and not call.harmless:
        return denied_by_mode(policy, "tools that are not known to be read-only do not run")
    ruling = by_rule(call.kind, [call.subject], policy)
    if call.requires_approval and (ruling is None or ruling.verdict != "deny"):
        return NEEDS_APPROVAL
    if ruling is not None:
        return ruling
    if call.harmless:
        return Ruling(verdict="allow", rule="it touches only the agent and its children")
    return by_mode(policy, call.topic)


async def decide_in_time(call: Call, policy: Policy) -> Ruling:
    """Judge a call as `decide` does, while the event loop goes on, also where a file system does not answer.

    A path in a command may lead into such a file system, also by a link or a wildcard, and a look there hangs. So a thread
    looks. If it takes too long, the call is judged by names alone: a person is asked unless these deny, and the
    question names the mounts that do not answer.
    """
    if not isinstance(call, ShellCommand | FileWrite):
        return decide(call, policy)  # looks at no file now
    loop = asyncio.get_running_loop()
    look = loop.run_in_executor(_deciding, decide, call, policy)
    done, _ = await asyncio.wait({look}, timeout=PATIENCE_SECONDS)
    silent: frozenset[str] = frozenset()
    if not done:
        silent = await loop.run_in_executor(_waiting, silent_mounts, "/")
        done, _ = await asyncio.wait({look}, timeout=0 if silent else LOOK_SECONDS)
    return look.result() if done else _unseen(call, policy, silent)


def _unseen(call: Call, policy: Policy, silent: frozenset[str]) -> Ruling:
    """Judge a call by names alone; it is asked at least. Args: silent: the mounts that do not answer."""
    with by_names_alone():
        ruling = decide(call, policy)
    if ruling.verdict == "deny" or (ruling.verdict, too_many(policy).verdict) == ("allow", "allow"):
        return ruling
    where = f"what is mounted at {', '.join(sorted(silent))} does not answer" if silent else "looking at them takes too long"
    return replace(ruling, verdict="ask", rule=f"its files are not known: {where}", lasting=False, suggests=())


@dataclass(frozen=True, kw_only=True)
class Advice:
    """The opinion of one adviser on one call."""

    verdict: Literal["deny", "ask", "allow"] | None = None
    reason: str = ""
    """The reason, for the agent and for people."""
    ends: bool = False
    """Whether a `deny` must end the run too."""

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            given = one_line(repr(self.verdict), 40)
            raise InvalidRequestError(f'Advice: verdict is "deny", "ask", "allow" or None, not {given}')


class Adviser:
    """A voice on calls, beside the rules. Every method is optional: the base has no opinion."""

    source: str = ""
    """The name for people, at the beginning of a reason. Empty: the name of its class."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        check_overrides(cls, Adviser)

    def hears(self, call: Call) -> bool:
        """Return whether `before` may have an opinion on such a call. An allowed call that nobody hears is made at once."""
        del call
        return type(self).before is not Adviser.before

    async def before(self, call: Call) -> Advice | None:
        """Give an opinion before a person is asked, and on a call that the rules allow."""
        del call
        return None

    async def on_question(self, call: Call, suggested: Sequence[str]) -> Advice | None:
        """Answer in place of a person who is about to be asked. None: the person is asked.

        Args:
            call: The call.
            suggested: Patterns of rules that would allow it.
        """
        del call, suggested
        return None

    def try_out(self, call: Call) -> TryOut | None:
        """Return a trial that shows a person the effects of a call, or why there is none. None: such calls are not tried."""
        del call
        return None


def advised(ruling: Ruling, adviser: Adviser, heard: Advice) -> tuple[Ruling, Decision | None]:
    """Return a ruling that allows or asks after the advice before the call, and the answer that the advice gives.

    Raises:
        ApprovalDeniedError: The adviser denies the call.
    """
    if heard.verdict is None:
        return ruling, None
    if heard.verdict == "deny":
        raise ApprovalDeniedError(_said(adviser, heard), ends_run=heard.ends)
    if heard.verdict == "ask" and ruling.verdict == "allow":
        rule = f"{_name(adviser)} asks: {heard.reason}"
        return replace(ruling, verdict="ask", rule=rule, source="", part="", lasting=False, suggests=()), None
    may_answer = ruling.verdict == "ask" and ruling.lasting and not ruling.needs_person
    return ruling, Decision(allowed=True, reason=_said(adviser, heard)) if heard.verdict == "allow" and may_answer else None


def decision_of(ruling: Ruling, adviser: Adviser, heard: Advice | None) -> Decision | None:
    """Return the answer of an adviser to a question. None: a person is asked.

    Raises:
        ApprovalDeniedError: The adviser denies the call, and the run must end.
    """
    if heard is None or heard.verdict in (None, "ask") or (heard.verdict == "allow" and ruling.needs_person):
        return None
    if heard.ends:
        raise ApprovalDeniedError(_said(adviser, heard), ends_run=True)
    return Decision(allowed=heard.verdict == "allow", reason=_said(adviser, heard))


def _said(adviser: Adviser, heard: Advice) -> str:
    return f"{_name(adviser)} says: {heard.reason}"


def _name(adviser: Adviser) -> str:
    return adviser.source or type(adviser).__name__


def check_overrides(made: type, base: type) -> None:
    """Check a new subclass: a wrong `def` is an error where it is written, not where it is called.

    Raises:
        TypeError: A method is of the other kind; names it.
    """
    for name, method in vars(made).items():
        replaced = getattr(base, name, None)
        if name.startswith("_") or not inspect.isfunction(method) or not inspect.isfunction(replaced):
            continue
        if inspect.iscoroutinefunction(method) != inspect.iscoroutinefunction(replaced):
            kind = "async def" if inspect.iscoroutinefunction(replaced) else "plain def"
            raise TypeError(f"{made.__name__}.{name} must be a {kind}, as {base.__name__}.{name} is")


@dataclass
class Tally:
    """A count of decisions on actions, to tell a run that could do nothing because nobody answered.

    Tools that touch only the agent and its children do not count as actions.
    """

    allowed: int = 0
    denied: int = 0
    """Calls denied by a person or a rule."""
    unanswered: int = 0
    """Calls denied because nobody could be asked."""

    def allow(self, call: Call) -> None:
        """Count a call that runs without a question."""
        self.allowed += not (isinstance(call, ToolCall) and call.harmless)

    def decide(self, decision: ev.Decision) -> None:
        """Count an answered question."""
        if decision.allowed:
            self.allowed += 1
        elif decision.nobody:
            self.unanswered += 1
        else:
            self.denied += 1

    @property
    def unattended(self) -> bool:
        """Whether there were actions and all were denied because nobody could be asked."""
        return bool(self.unanswered) and not self.allowed and not self.denied

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the result of the run."""
        if not self.unattended:
            return ()
        return (UNATTENDED.format(auto=way('mode="auto"', "--mode auto"), yes=way('headless="allow"', "--yes")),)


class AskingAgent(Protocol):
    """An agent that asks whether it may make one call. `ended` is read at the end, the others at the beginning."""

    @property
    def policy(self) -> Policy:
        """The policy at this moment."""

    @property
    def emitter(self) -> Emitter:
        """The emitter of its events."""

    @property
    def path(self) -> tuple[str, ...]:
        """The names for people of the agents from the root to this one."""

    @property
    def tool_call_id(self) -> str | None:
        """The model's tool call that the action belongs to, if any."""

    @property
    def advisers(self) -> Sequence[Adviser]:
        """Advisers beside the rules; all are heard."""

    @property
    def ended(self) -> str:
        """The reason why the question is closed, though nobody has decided."""

    def paused(self) -> AbstractContextManager[None]:
        """Stop the clocks of the run and the cell, while a person or an adviser is asked."""


@dataclass(kw_only=True)
class _Open:
    question: OpenApproval
    policy: Policy
    ruling: Ruling
    request: ev.AgentEvent | None = None
    """The request as the reader gets it, once it is in the stream."""


class Gate:
    """The gate that lets calls through, refuses them, or asks."""

    def __init__(
        self,
        *,
        headless: Headless | None = None,
        project: ProjectRules | None = None,
        files: RuleFiles | None = None,
        timeout_seconds: float | None = None,
        unshown_seconds: float = UNSHOWN_SECONDS,
        approve: Approve | None = None,
    ) -> None:
        """Make the gate of one root agent.

        Args:
            headless: The answer to every question; None: a person answers.
            project: Saves a person's rules for the project.
            files: Rules as their files are now. None: the rules of the policies count.
            timeout_seconds: Deny a question after this time.
            unshown_seconds: Log a question that no front end has shown (`ApprovalRequest.shown`) after this time.
            approve: A function of the program that answers before anybody else.
        """
        self._approve = approve
        self._headless = headless
        self._project = project
        self._files = files
        self._timeout_seconds = timeout_seconds
        self._unshown_seconds = unshown_seconds
        self.session: tuple[Rule, ...] = ()
        """The rules that a person has made for the session; modes and denials still hold."""
        self.mode: Mode | None = None
        """The root's mode, once it was changed."""
        self._open: dict[str, _Open] = {}
        self._tallies: dict[str, Tally] = {}

    def begin(self, agent_id: str) -> None:
        """Start to count the decisions of an agent's run."""
        self._tallies[agent_id] = Tally()

    def end(self, agent_id: str) -> Tally:
        """End the count, and return it."""
        return self._tallies.pop(agent_id, Tally())

    async def check(self, call: Call, asker: AskingAgent) -> ev.Decision | None:
        """Return the decision on a call that may run. None: it runs without a question, and as it is.

        Args:
            call: The action, with its real values.
            asker: The agent.

        Raises:
            ApprovalDeniedError: The call must not run; carries the reason.
        """
        policy, emitter, advisers = asker.policy, asker.emitter, asker.advisers
        hearing = [adviser for adviser in advisers if adviser.hears(call)]
        ruling = await self.ruling(call, policy)
        for problem in self._files.notices() if self._files is not None else ():
            emitter.put(ev.Notice(content=problem))
        tally = self._tallies.get(emitter.agent_id, Tally())
        _refuse_denied(ruling)
        if ruling.verdict == "allow" and not hearing:
            tally.allow(call)
            return WALLED if ruling.walled else None
        with asker.paused():
            ruling, decided = await self._hear(hearing, call, policy, ruling)
            if ruling.verdict == "allow":
                tally.allow(call)
                return WALLED if ruling.walled else None
            if emitter.channel.closed:
                raise ApprovalDeniedError(NOBODY)
            for adviser in advisers if decided is None else ():
                decided = decided or decision_of(ruling, adviser, await adviser.on_question(call, ruling.suggests))
            with span(f"approval {call.kind}", agent_id=emitter.agent_id, call=call.kind, rule=ruling.source) as asked:
                decision = await self._ask(call, policy, ruling, asker, decided)
                note(asked, decision=decision.word)
        tally.decide(decision)
        if not decision.allowed:
            raise ApprovalDeniedError(decision.reason)
        # while a person thought, rules, links and what wildcards find may have changed
        _refuse_denied(await self.ruling(call, policy))
        return decision

    async def _hear(
        self, advisers: Sequence[Adviser], call: Call, policy: Policy, ruling: Ruling
    ) -> tuple[Ruling, ev.Decision | None]:
        """Hear all advisers; rules and files may change while they think."""
        heard = [(adviser, advice) for adviser in advisers if (advice := await adviser.before(call)) is not None]
        decided: ev.Decision | None = None
        if heard:
            ruling = await self.ruling(call, policy)
            _refuse_denied(ruling)
        for adviser, advice in heard:
            ruling, decision = advised(ruling, adviser, advice)
            decided = decided or decision
        return ruling, decided

    async def ruling(self, call: Call, policy: Policy) -> Ruling:
        """Judge a call by the policy and by the rules of this session."""
        as_saved = policy if self._files is None else policy.with_rules(self._files.rules)
        now = self._now(as_saved)
        return await decide_in_time(call, now.with_session(self.session) if self.session else now)

    def _now(self, policy: Policy) -> Policy:
        return policy if self.mode is None else policy.in_mode(self.mode)

    @property
    def open_requests(self) -> tuple[ev.ApprovalRequest, ...]:
        """The open questions, oldest first."""
        found = (item.request for item in tuple(self._open.values()) if not item.question.is_decided)
        return tuple(request for request in found if isinstance(request, ev.ApprovalRequest))

    def answer(self, request_id: str, decision: ev.Decision) -> bool:
        """Decide a request, from any thread. Return False if no open request has this id.

        Raises:
            ValueError: See `ApprovalRequest.approve`; the question stays open.
        """
        if (item := self._open.get(request_id)) is None:
            return False
        _check_decision(decision, item.question.call)
        return item.question.decide(decision)

    def effects(self, request_id: str) -> Effects | None:
        """Return the effects of an open question's call, if they are known; try nothing."""
        return self._open[request_id].question.effects if request_id in self._open else None

    async def effects_ready(self, request_id: str, code: str | None = None) -> Effects:
        """Try the call of an open question, and return its effects."""
        if (item := self._open.get(request_id)) is None:
            return CLOSED
        if code is not None and not isinstance(item.question.call, CodeAction):
            raise ValueError("only the code of a cell can be changed")
        return await item.question.effects_ready(code)

    def shown(self, request_id: str) -> None:
        """Note that a front end shows the question."""
        if item := self._open.get(request_id):
            item.question.shown = True

    async def _ask(
        self, call: Call, policy: Policy, ruling: Ruling, asker: AskingAgent, decided: ev.Decision | None
    ) -> ev.Decision:
        """Args: decided: an adviser's answer, if any: nobody is asked, and the record says so."""
        emitter = asker.emitter
        request_id = f"approval-{secrets.token_hex(4)}"
        if_nobody = (
            NEEDS_PERSON if ruling.needs_person else headless_decision(self._headless or "auto", self._now(policy).mode)
        )
        if isinstance(call, FanOut):
            if_nobody = WITHIN_SETTINGS

        def announce(decision: ev.Decision) -> None:
            """Emit the decision at once: before any event of the call, without waiting for the reader, who may answer."""
            decided = ev.ApprovalDecided(
                request_id=request_id,
                allowed=decision.allowed,
                reason=decision.reason,
                code=decision.code,
                model=decision.model,
            )
            if not is_asked:  # the program's function has decided it: no answer comes before its question
                early.append(decided)
            else:
                emitter.put(decided, tool_call_id=asker.tool_call_id)

        early, is_asked = list[ev.ApprovalDecided](), False
        trials = (trial for adviser in asker.advisers if (trial := adviser.try_out(call)) is not None)
        question = OpenApproval(call, announce, next(trials, None))
        request = ev.ApprovalRequest(
            request_id=request_id,
            call=call,
            path=asker.path,
            reason=ruling.reason,
            suggested=ruling.suggests,
            headless=decided is not None or self._headless is not None,
            if_nobody=decided or if_nobody,
        )
        item = self._open[request_id] = _Open(question=question, policy=policy, ruling=ruling)
        ASKED[request_id] = self
        try:
            if decided is None and (own := await self._own_answer(request, emitter)) is not None:
                request = replace(request, headless=True, if_nobody=own)
            with question.timed(
                emitter.agent_id,
                call.summary,
                unshown_seconds=self._unshown_seconds,
                timeout_seconds=self._timeout_seconds,
                too_late=lambda reason: ev.Decision(allowed=False, reason=reason, nobody=True),
            ):
                item.request = await emitter.emit(request, tool_call_id=asker.tool_call_id)
                is_asked = True
                for event in early:
                    emitter.put(event, tool_call_id=asker.tool_call_id)
                if item.request is None:  # there is no reader, or none any more
                    question.decide(ev.Decision(allowed=False, reason=NOBODY, nobody=True))
                elif request.headless:
                    question.decide(request.if_nobody)
                decision = await question.outcome
            if decision.allowed and decision.remember:
                await self._remember(decision, ruling)
                if decision.remember == "project":
                    problem = await self._save(decision, ruling)
                    saved = f"saved: allow {', '.join(_patterns(decision, ruling))} in {PERMISSIONS_FILE} of the workspace"
                    notice = ev.Notice(content=f"the rule applies to this session only: {problem}" if problem else saved)
                    emitter.put(notice, tool_call_id=asker.tool_call_id)
            return decision
        finally:
            question.end_trial()
            del self._open[request_id], ASKED[request_id]
            question.decide(ev.Decision(allowed=False, reason=asker.ended))  # unless it was decided

    async def _own_answer(self, request: ev.ApprovalRequest, emitter: Emitter) -> ev.Decision | None:
        if self._approve is None:
            return None
        try:
            found = self._approve(replace(request, **emitter.agent_fields))
            found = await found if inspect.isawaitable(found) else found
            if isinstance(found, bool):
                return ev.Decision(allowed=found, reason="" if found else "the program says no")
            if found is not None and not isinstance(found, ev.Decision):
                raise TypeError(f"it returned {found!r:.60}, not a Decision, True, False or None")  # noqa: TRY301
            if found is not None:
                _check_decision(found, request.call)
        except Exception as error:  # border: a function of the program
            logger.warning("the function `approve` of Agent failed, so the call is denied", exc_info=True)
            return ev.Decision(
                allowed=False, reason=f"the program's function `approve` failed: {type(error).__name__}: {error}"
            )
        return found

    def abandon(self) -> None:
        """Deny all open questions: the reader is gone."""
        for item in tuple(self._open.values()):
            item.question.decide(ev.Decision(allowed=False, reason=NOBODY, nobody=True))

    async def _save(self, decision: ev.Decision, ruling: Ruling) -> str:
        """Save a rule in the project's file, after the decision; return the reason if it cannot be saved."""
        if self._project is None:
            return "there is no project to keep it in"
        try:
            await self._project.allow_in_time(_patterns(decision, ruling))
        except ConfigError as error:
            return str(error)
        return ""

    async def _remember(self, decision: ev.Decision, ruling: Ruling) -> None:
        """Allow calls like this one from now on, open questions included."""
        rules = make_rules({"allow": _patterns(decision, ruling)})
        self.session = (*self.session, *(rule for rule in rules if rule not in self.session))
        await self.judge_again()

    async def judge_again(self) -> None:
        """Allow the open questions that rules and mode allow by now."""
        for item in tuple(self._open.values()):
            if (await self.ruling(item.question.call, item.policy)).verdict == "allow":
                item.question.decide(ev.Decision(allowed=True))


def _patterns(decision: ev.Decision, ruling: Ruling) -> tuple[str, ...]:
    return ruling.suggests if decision.pattern is None else (decision.pattern,)


def _check_decision(decision: ev.Decision, call: Call) -> None:
    if decision.pattern is not None:
        parse_pattern(decision.pattern)
    if decision.code is not None and not (decision.allowed and isinstance(call, CodeAction)):
        raise ValueError("only a cell's code can be changed, and only when you allow the cell")
    offered = call.cheaper if isinstance(call, FanOut) else ()
    if decision.model is not None and not (decision.allowed and decision.model in offered):
        raise ValueError(f"the request does not offer the model {decision.model!r}")


def _refuse_denied(ruling: Ruling) -> None:
    if ruling.verdict == "deny":
        raise ApprovalDeniedError(ruling.reason)


def headless_decision(headless: Headless, mode: Mode) -> ev.Decision:
    """Return the decision if nobody makes one."""
    if headless == "allow":
        return ev.Decision(allowed=True, reason=f"{NOBODY}, and what would be asked is allowed")
    if headless == "auto" and mode in ("auto", "full"):
        return ev.Decision(allowed=True, reason=f"{NOBODY}, which means yes in mode {mode}")
    if headless == "deny":
        return ev.Decision(allowed=False, reason=f"{NOBODY}, and what would be asked is denied", nobody=True)
    allowing = way('headless="allow"', "--yes")
    reason = f"{NOBODY}, which means no in mode {mode} ({allowing} approves what would be asked)"
    return ev.Decision(allowed=False, reason=reason, nobody=True)
