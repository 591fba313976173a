"""`Gate`: every call of every agent of a tree goes through it; policy first, then a person.

A question is an `ApprovalRequest` on the root's stream. Only the call that asks waits for it. The answer comes with its
id, from whoever reads the stream, in any order. A gate serves one root agent and its descendants for as long as the root
lives; what a person allows for the session is remembered here and nowhere else.

Where nobody is to be asked the answer is ready before the question: both are events, so that the record says who decided.
A question may be bounded in time; past it the answer is no. The log names one that no front end shows for a while: a
program that reads the stream and answers nothing would wait without a word.
"""

import inspect
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias

from freeact_sub import events as ev
from freeact_sub.approvals.advice import Adviser, advised, decision_of
from freeact_sub.approvals.decision import decide_in_time
from freeact_sub.approvals.open_questions import UNSHOWN_SECONDS, OpenApproval
from freeact_sub.approvals.policy import Policy, Ruling
from freeact_sub.approvals.rules.patterns import parse_pattern
from freeact_sub.approvals.rules.project_rules import ProjectRules
from freeact_sub.approvals.rules.rule import Rule, RuleFiles, make_rules
from freeact_sub.calls import Call, CodeAction, FanOut, ToolCall
from freeact_sub.channel import Emitter
from freeact_sub.config.schema import PERMISSIONS_FILE
from freeact_sub.errors import ApprovalDeniedError, ConfigError, way
from freeact_sub.events.answers import ABSENT, ASKED
from freeact_sub.events.effects import CLOSED, Effects
from freeact_sub.modes import Headless, Mode
from freeact_sub.spans import note, span

logger = logging.getLogger(__name__)

Approve: TypeAlias = Callable[[ev.ApprovalRequest], ev.Decision | bool | Awaitable[ev.Decision | bool | None] | None]
"""A function of a program that answers requests. None: somebody else is asked."""
NOBODY: Final = ABSENT.reason
WITHIN_SETTINGS: Final = ev.Decision(allowed=True, reason=f"{NOBODY}, so the bounds of the settings count", nobody=True)
"""On a fan-out."""
NEEDS_PERSON: Final = ev.Decision(allowed=False, reason=f"{NOBODY}, and this is for a person alone to allow", nobody=True)
WALLED: Final = ev.Decision(allowed=True, reason="a rule allows what only reads", walled=True)
UNATTENDED: Final = (
    "every action was denied because nobody was there to ask: {auto} runs them in the sandbox, {yes} approves all"
)


@dataclass
class Tally:
    """Counts decisions on actions, to tell a run that could do nothing because nobody answered.

    Tools that touch only the agent and its children do not count as actions.
    """

    allowed: int = 0
    denied: int = 0
    """Denied by a person or a rule."""
    unanswered: int = 0
    """Denied because nobody could be asked."""

    def allow(self, call: Call) -> None:
        """Counts a call that runs without a question."""
        self.allowed += not (isinstance(call, ToolCall) and call.harmless)

    def decide(self, decision: ev.Decision) -> None:
        """Counts an answered question."""
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
        told = UNATTENDED.format(auto=way('mode="auto"', "--mode auto"), yes=way('headless="allow"', "--yes"))
        return (told,) if self.unattended else ()


class AskingAgent(Protocol):
    """An agent that asks whether it may make one call. Each attribute is read when the question is opened, or before."""

    @property
    def policy(self) -> Policy:
        """Its policy at this moment."""

    @property
    def emitter(self) -> Emitter:
        """Emits events for it."""

    @property
    def path(self) -> tuple[str, ...]:
        """The names for people of the agents from the root to this one."""

    @property
    def tool_call_id(self) -> str | None:
        """The model's tool call that the action belongs to. None: it belongs to none."""

    @property
    def advisers(self) -> Sequence[Adviser]:
        """Have a say beside the rules; all are heard."""

    def paused(self) -> AbstractContextManager[None]:
        """Stop the clocks of its run and cell, while a person or an adviser is asked."""


@dataclass(kw_only=True)
class _Open:
    question: OpenApproval
    policy: Policy
    ruling: Ruling
    request: ev.AgentEvent | None = None
    """The request as the reader gets it. None: it is not in the stream yet."""


class Gate:
    """Lets calls through, refuses them, or asks."""

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
            project: Saves what a person allows for the project.
            files: Rules as their files are now. None: the rules of the policies count.
            timeout_seconds: Deny a question after this time. None: never.
            unshown_seconds: Log a question that no front end has shown (`ApprovalRequest.shown`) after this time.
            approve: A function of the program that answers before anybody else. None: there is none.
        """
        self._approve = approve
        self._headless = headless
        self._project = project
        self._files = files
        self._timeout_seconds = timeout_seconds
        self._unshown_seconds = unshown_seconds
        self.session: tuple[Rule, ...] = ()
        """What a person has allowed for the session; modes and denials still hold."""
        self.mode: Mode | None = None
        """The root's mode, once it was changed."""
        self._open: dict[str, _Open] = {}
        self._tallies: dict[str, Tally] = {}

    def begin(self, agent_id: str) -> None:
        """Starts to count the decisions of an agent's run."""
        self._tallies[agent_id] = Tally()

    def end(self, agent_id: str) -> Tally:
        """Ends the count; returns it."""
        return self._tallies.pop(agent_id, Tally())

    async def check(self, call: Call, asker: AskingAgent) -> ev.Decision | None:
        """Returns the decision on a call that may run. None: it runs without a question, and as it is.

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
        """Hear all advisers; while they think, the same may change as while a person does."""
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
        """Judges a call by the policy and by what was allowed in this session."""
        as_saved = policy if self._files is None else policy.with_rules(self._files.rules)
        return await decide_in_time(call, self._now(as_saved).with_session(self.session))

    def _now(self, policy: Policy) -> Policy:
        return policy if self.mode is None else policy.in_mode(self.mode)

    @property
    def open_requests(self) -> tuple[ev.ApprovalRequest, ...]:
        """The open questions, oldest first."""
        found = (item.request for item in tuple(self._open.values()) if not item.question.is_decided)
        return tuple(request for request in found if isinstance(request, ev.ApprovalRequest))

    def answer(self, request_id: str, decision: ev.Decision) -> bool:
        """Decides a request, from any thread. Returns False if no open request has this id.

        Raises:
            ValueError: See `ApprovalRequest.approve`; the question stays open.
        """
        if (item := self._open.get(request_id)) is None:
            return False
        _check_decision(decision, item.question.call)
        return item.question.decide(decision)

    def effects(self, request_id: str) -> Effects | None:
        """See `EffectsSource`."""
        return self._open[request_id].question.effects if request_id in self._open else None

    async def effects_ready(self, request_id: str, code: str | None = None) -> Effects:
        """See `EffectsSource`."""
        if (item := self._open.get(request_id)) is None:
            return CLOSED
        if code is not None and not isinstance(item.question.call, CodeAction):
            raise ValueError("only the code of a cell can be changed")
        return await item.question.effects_ready(code)

    def shown(self, request_id: str) -> None:
        """Notes that a front end shows the question."""
        if item := self._open.get(request_id):
            item.question.shown = True

    async def _ask(
        self, call: Call, policy: Policy, ruling: Ruling, asker: AskingAgent, decided: ev.Decision | None
    ) -> ev.Decision:
        """Asks. Args: decided: the answer, if an adviser has given it: nobody is asked, and the record says so."""
        emitter = asker.emitter
        request_id = f"approval-{secrets.token_hex(4)}"
        if_nobody = (
            NEEDS_PERSON if ruling.needs_person else headless_decision(self._headless or "auto", self._now(policy).mode)
        )
        if isinstance(call, FanOut):
            if_nobody = WITHIN_SETTINGS

        def announce(decision: ev.Decision) -> None:
            """Emits the decision at once: before any event of the call, without waiting for the reader, who may answer."""
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
            question.decide(ev.Decision(allowed=False, reason="withdrawn"))  # unless it was decided

    async def _own_answer(self, request: ev.ApprovalRequest, emitter: Emitter) -> ev.Decision | None:
        """Return what the program's function says to a request. None: it says nothing, or there is none."""
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
        """Denies all open questions: the reader is gone."""
        for item in tuple(self._open.values()):
            item.question.decide(ev.Decision(allowed=False, reason=NOBODY, nobody=True))

    async def _save(self, decision: ev.Decision, ruling: Ruling) -> str:
        """Saves a rule in the project's file, after the decision; returns the reason if it cannot be saved."""
        if self._project is None:
            return "there is no project to keep it in"
        try:
            await self._project.allow_in_time(_patterns(decision, ruling))
        except ConfigError as error:
            return str(error)
        return ""

    async def _remember(self, decision: ev.Decision, ruling: Ruling) -> None:
        """Allows calls like this one from now on, open questions included."""
        rules = make_rules({"allow": _patterns(decision, ruling)})
        self.session = (*self.session, *(rule for rule in rules if rule not in self.session))
        await self.judge_again()

    async def judge_again(self) -> None:
        """Allows the open questions that rules and mode allow by now."""
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
    """The decision if nobody makes one."""
    if headless == "allow":
        return ev.Decision(allowed=True, reason=f"{NOBODY}, and what would be asked is allowed")
    if headless == "auto" and mode in ("auto", "full"):
        return ev.Decision(allowed=True, reason=f"{NOBODY}, which means yes in mode {mode}")
    if headless == "deny":
        return ev.Decision(allowed=False, reason=f"{NOBODY}, and what would be asked is denied", nobody=True)
    allowing = way('headless="allow"', "--yes")
    reason = f"{NOBODY}, which means no in mode {mode} ({allowing} approves what would be asked)"
    return ev.Decision(allowed=False, reason=reason, nobody=True)
