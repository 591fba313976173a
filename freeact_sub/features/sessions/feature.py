"""`SessionsFeature`: records the actions of a tree of agents in a session, and goes on with one.

The start of a call is on disk before it runs, its result before anybody uses it (`SessionsPart`). The session is chosen
before there is a root, whose settings and conversation it decides (`AgentSession`).

**Known answers.** An answer of a child or an ask from before a crash is its answer after it, and costs nothing. The session
answers in any order of questions, each answer once, so that a program that asks the same three times gets three answers. It
answers only questions since the root has last completed a run: those of earlier runs are asked again. The same is: prompt,
types and choices of the agent and of all above it, mode, model, values handed over, the schema of the answer. No answer is
kept of a child that has not completed, has written files, started a program or done something else outside, was given a copy
of a kernel, its parent's conversation, pictures or values above 32 MB, keeps its kernel, answers by itself, or hands over a
type of Python that only the program knows.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ToolFailed, ToolFailedError
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models import ModelRequestContext

from freeact_sub.agents.call import asks_for
from freeact_sub.agents.feature import (
    EndedCall,
    Feature,
    FeatureAgent,
    FeatureRoot,
    Proceed,
    Question,
    RequestedCall,
    RunPart,
    UsedKernel,
    digest_of,
    model_words,
)
from freeact_sub.agents.kernel import AgentKernel
from freeact_sub.agents.life import TreeAgent, tree_agent
from freeact_sub.agents.results import RunResult
from freeact_sub.agents.resumed import KeptChild
from freeact_sub.agents.root import Arguments, whole_root
from freeact_sub.channel import Tap
from freeact_sub.errors import AgentBusyError, ConfigError, FreeactError, InvalidRequestError, SessionError
from freeact_sub.events import Notice
from freeact_sub.events.ending import receipts_of
from freeact_sub.features.sessions.agent_session import NEW, AgentSession
from freeact_sub.features.sessions.journal import Journal, jsonable, load_child, stored_agent
from freeact_sub.features.sessions.variables import FollowedVariables
from freeact_sub.sessions import SessionStore
from freeact_sub.tools import ChildRequest, head_and_tail, text_of

T = TypeVar("T")


class _MessageRecorder(AbstractCapability[Any]):
    """Recorder of new messages of a conversation, before its next request and before a response is used."""

    def __init__(self, journal: Journal, agent: TreeAgent) -> None:
        self._journal, self._agent_id = journal, agent.agent_id

    async def before_model_request(self, ctx: RunContext[Any], request_context: ModelRequestContext) -> ModelRequestContext:
        """Record the conversation before a request."""
        self._journal.messages(self._agent_id, ctx.messages)
        return request_context

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, handler: Any
    ) -> Any:
        """Record the conversation before a call is recorded: pydantic-ai calls `before_tool_execute` only inside of this."""
        del call, tool_def
        self._journal.messages(self._agent_id, ctx.messages)
        return await handler(args)


class SessionsPart(RunPart):
    """The record of one run."""

    closing_seconds: ClassVar[float] = 40.0

    def __init__(self, journal: Journal, agent: TreeAgent) -> None:
        self._journal, self._agent, self._chars = journal, agent, agent.shared.config.kernel.output_chars
        self._digest: str | None = None
        """Mark of a child's work. None: its answer must not be kept, or is kept already."""
        self._variables: FollowedVariables | None = None
        """Variables of a child, which are saved at its end. The root's are followed while it is open."""

    def begins(self, prompt: str, request: ChildRequest | None) -> None:
        """Record the start of the run."""
        agent, budget = self._agent, self._agent.run.account.budget
        if agent.run.resumed:
            self._journal.goes_on(agent.agent_id, agent.run.resumed)
        self._journal.run_begins(agent.agent_id, lambda: stored_agent(agent), prompt, budget, of_root=agent.parent is None)
        self._digest = None if request is None else _digest_of_task(request, agent)
        kernel, variables = agent.kernel, self._journal.variables
        if agent.parent is not None and variables is not None and isinstance(kernel, AgentKernel):
            self._variables = variables.of_child(agent.agent_id, kernel, asks_for(agent), self._notice)
            kernel.past.saved = self._variables

    def known(self) -> RunResult | None:
        """Return the answer that the same child gave before a crash, if it did."""
        if self._digest is None or (known := self._known_answer(self._digest)) is None:
            return None
        self._digest = None
        return known

    async def ask(self, question: Question, proceed: Callable[[Question], Awaitable[Any]]) -> Any:
        """Return the recorded answer, if the question was asked before a crash."""
        journal, agent_id, digest = self._journal, question.agent.agent_id, question.digest
        known = journal.take_answer(digest)
        if known is not None:
            return known["output"]
        answer = await proceed(question)
        if jsonable(answer) == answer:
            journal.keep_answer(agent_id, digest, {"output": answer, "agent_id": agent_id})
        return answer

    async def earlier(self, agent_id: str) -> KeptChild | None:
        """Return the session's record of an ended child, if there is one."""
        journal = self._journal
        if journal.open_reader is None or not journal.keeps:
            return None
        await journal.committed()
        try:
            return await asyncio.to_thread(load_child, journal.open_reader, agent_id)
        except SessionError as error:
            raise InvalidRequestError(f"{agent_id} cannot be resumed: {error}") from error

    async def closing(self, ending: RunResult, kernel: UsedKernel) -> None:
        """Save the variables of a child: it may be resumed."""
        del ending
        if self._variables is not None and isinstance(kernel, AgentKernel):
            kernel.past.saved = None
            await self._variables.aclose()

    def ended(self, result: RunResult) -> None:
        """Record the end of the run."""
        agent = self._agent
        if self._digest is not None:
            self._keep_answer(self._digest, result)
        self._journal.run_ends(result, agent.run.record.history, of_root=agent.parent is None)

    def capability(self) -> AbstractCapability[Any]:
        """Record the conversation."""
        return _MessageRecorder(self._journal, self._agent)

    async def call(self, call: RequestedCall, proceed: Proceed[T]) -> EndedCall[T]:
        """Record the call around all of its work. Its caller gets the result when it is recorded."""
        journal = self._journal
        begun = await journal.call_begins(
            call.agent.agent_id,
            name=call.name,
            args=call.args,
            tool_call_id=call.tool_call_id,
            from_code=call.by == "code",
        )
        try:
            ended = await proceed()
        except asyncio.CancelledError:
            journal.call_ends(begun, outcome="failed", result="cancelled")
            raise
        except Exception as error:
            journal.call_ends(begun, outcome="failed", result=self._text(error))
            raise
        journal.call_ends(begun, outcome=ended.outcome, result="\n".join((*ended.notes, ended.text)))
        await journal.committed()
        return ended

    def _known_answer(self, digest: str) -> RunResult | None:
        """Return the result of a child that has completed the same before a crash, if there is one."""
        known = self._journal.take_answer(digest)
        if known is None:
            return None
        earlier = known["agent_id"]
        self._notice(f"{earlier} gave this answer: it completed the same task before the program ended")
        receipts = receipts_of(known.get("receipts"))
        return RunResult(status="completed", value=known["output"], reused_from=earlier, receipts=receipts)

    def _keep_answer(self, digest: str, result: RunResult) -> None:
        """Keep the answer of a child that has ended, if it may be used again."""
        changed_files = result.files_written or result.files_removed
        ran_programs = result.receipts is not None and result.receipts.commands_run  # which may have written files
        if result.status == "completed" and not (self._agent.run.record.acted_outside or changed_files or ran_programs):
            agent_id, receipts = self._agent.agent_id, jsonable(result.receipts)
            value = {"output": jsonable(result.output), "agent_id": agent_id, "receipts": receipts}
            self._journal.keep_answer(agent_id, digest, value)

    def _notice(self, text: str) -> None:
        self._agent.emitter.put(Notice(content=text))

    def _text(self, error: Exception) -> str:
        if isinstance(error, ToolFailed):
            return error.message
        if isinstance(error, ToolFailedError):
            return text_of(error.tool_failed.content)
        return head_and_tail(
            str(error) if isinstance(error, FreeactError) else f"{type(error).__name__}: {error}", self._chars
        )


def _digest_of_task(request: ChildRequest, child: TreeAgent) -> str | None:
    """Return the digest of a child's task. None: its answer must not be kept.

    Args:
        request: The task, with its type's values where it has none.
        child: Made for it.
    """
    typed = request.output_type is not str
    has_state = request.is_branch or request.branch_of is not None or request.history != "none" or request.keep
    if has_state or request.content or (typed and request.output_schema is None):
        return None
    if request.prepare is not None and not request.inputs_digest:
        return None
    return digest_of(
        kind="task",
        prompt=request.prompt,
        types=[agent.rights.type_name for agent in child.ancestors()],
        mode=child.policy.mode,
        model=model_words(child.model),
        choices=[agent.choices.kept for agent in child.ancestors()],
        may_spawn=child.may_spawn,
        inputs=request.inputs_digest,
        output=request.output_schema if typed else None,
    )


class Between(AbstractAsyncContextManager[None]):
    """A context with a begin and an end. A generator would not do: an event loop that ends closes all of its at once."""

    def __init__(self, begin: Callable[[], Awaitable[None]], end: Callable[[], Awaitable[None]]) -> None:
        self._begin, self._end = begin, end

    async def __aenter__(self) -> None:
        await self._begin()

    async def __aexit__(self, *_: object) -> None:
        await self._end()


class SessionsFeature(Feature):
    """The record of the agents of a tree, if a session was chosen for them."""

    name = "sessions"
    session: AgentSession
    """The session, from `choose` on, which may be none."""
    _variables: FollowedVariables | None = None
    """The saver of the root's variables while it is open."""

    def choose(self, arguments: Arguments, choice: str | None, store: SessionStore | None) -> Arguments:
        """Choose the session of a root that is about to be made, and return the arguments of that root.

        Args:
            arguments: The arguments of the `Agent`.
            choice: `new`, or the id of a session to continue. None: no session.
            store: The store of the session. None: the one that the settings name.

        Raises:
            ConfigError: A conversation is given as well.
            SessionError: There is no such session, or it cannot be read.
        """
        if choice not in (None, NEW) and arguments.history:
            raise ConfigError("give either `history` or a session id, not both: a session has its own history")
        if "root" in vars(self):  # it belongs to another agent, which is about to be said
            return arguments
        has_model = arguments.model is not None
        self.session = session = AgentSession(choice, arguments.config, has_model=has_model, store=store)
        if session.resumed is None:
            return arguments
        resumed = session.resumed
        return replace(
            arguments, config=session.config, history=resumed.history, root_id=resumed.root_id, notices=session.notices
        )

    def attach(self, root: FeatureRoot) -> Sequence[Tap]:
        """Go on with the agents of the session, and hear the events to record."""
        self.session.attach(whole_root(root).tree)
        return self.session.taps

    def around(self) -> AbstractAsyncContextManager[None]:
        """Open the session first, and close it last: all that happens between is recorded."""
        servers = whole_root(self.root).tree.shared.servers
        return Between(lambda: self.session.open(servers), self.session.aclose)

    def open(self) -> AbstractAsyncContextManager[None]:
        """Save the variables of the root."""
        return Between(self._follow, self._end_following)

    async def _follow(self) -> None:
        root = whole_root(self.root)
        self._variables = self.session.follow(root.agent, root.opened.kernel)

    async def _end_following(self) -> None:
        variables, self._variables = self._variables, None
        if variables is not None:
            await variables.aclose()

    def run(self, agent: FeatureAgent) -> RunPart | None:
        """Record the run, if there is a session."""
        return None if self.journal.writer is None else SessionsPart(self.journal, tree_agent(agent))

    @property
    def journal(self) -> Journal:
        """The journal of the agents."""
        return self.session.journal

    def keep_mode(self) -> None:
        """Record the mode that was chosen for the root."""
        root = whole_root(self.root)
        self.journal.keep_agent(replace(stored_agent(root.agent), mode=root.mode))

    def file(self, name: str) -> Path | None:
        """Return the path of a file in the session's folder, if there is a session."""
        return self.session.file(name)

    async def fork(self, at: int | None) -> str:
        """Copy the session as it is now, and return the id of the copy, which `Agent.resume` opens; both go on."""
        root = whole_root(self.root)
        if await root.is_busy() or root.tree.at_work:
            raise AgentBusyError("the agent, or a detached child, is at work: wait for its end, or cancel it, then fork")
        return await self.session.fork(at)
