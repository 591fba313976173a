"""The way of one agent from a prompt to an answer (`AgentLoop`). The turns are pydantic-ai's; the ending is ours.

`run` covers the whole life of a run: start, slot, model and tools, ending, closing, and finally exactly one `AgentFinished`,
whatever happens in between. The status follows from what the host observed, never from the wording of a text.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import anyio
from pydantic_ai.messages import ModelMessage, TextContent, UserContent

from freeact_sub import events as ev
from freeact_sub.agents.answers import Refusal, answers_of, by_value, or_refusal
from freeact_sub.agents.ask import SingleRequests
from freeact_sub.agents.call import ModelCalls, acting_as
from freeact_sub.agents.children import AgentProgram, ChildOwner, Work
from freeact_sub.agents.feature import RunParts
from freeact_sub.agents.kernel import AgentKernel
from freeact_sub.agents.life import Tree, TreeAgent, traced_program
from freeact_sub.agents.nodes import OwnedNode
from freeact_sub.agents.prompt import instructions, opening_prompt, with_child_note
from freeact_sub.agents.results import RunResult, sentence, status_of
from freeact_sub.agents.turn import RunHooks, Turns
from freeact_sub.agents.verifier import Verifier
from freeact_sub.config.budget import Budget
from freeact_sub.errors import FreeactError, InvalidRequestError, KernelError
from freeact_sub.models.failures import is_expected
from freeact_sub.system.closing import carry_out
from freeact_sub.tools import TOOLS, AgentToolset, ToolContext

if TYPE_CHECKING:
    from freeact_sub.agents.run_requests import RunRequests

ABANDON_SECONDS: Final = 1.0
"""Seconds to wait for a cancelled run before abandoning it, per level of agents below it."""
CLOSE_SECONDS: Final = 15.0
CHILDREN_SECONDS: Final = 40.0

logger = logging.getLogger(__name__)


class AgentLoop:
    """The runs of one agent, one after another."""

    def __init__(
        self,
        agent: TreeAgent,
        tree: Tree,
        kernel: AgentKernel,
        *,
        output_type: Any = str,
        parent: ChildOwner | None = None,
        begin_run: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Make the loop; start nothing.

        Args:
            agent: The agent.
            tree: All agents of the root.
            kernel: The agent's kernel.
            output_type: The type of the answer, as pydantic-ai's `output_type`.
            parent: The owner. None: the agent is the root.
            begin_run: Begins a run that lasts until the agent is idle. None: only a live run takes children.
        """
        self.agent, self.tree, self.kernel = agent, tree, kernel
        self._begin_run = begin_run
        self.children = ChildOwner(self)
        self.single_requests = SingleRequests(agent)
        self._parent = parent
        self._output_type, self._takes_messages, self._doing = output_type, False, Work(prompt="")
        ours = AgentToolset([*TOOLS, *agent.shared.features.tools(agent)], self.tool_context)
        self._toolsets = [ours, *filter(None, (part.toolset() for part in kernel.parts))]
        self._turns: Turns | None = None
        self._node: OwnedNode | None = None
        kernel.requests.add(lambda: self.run_requests.handlers())  # noqa: PLW0108  # they are made when code first asks

    @cached_property
    def run_requests(self) -> "RunRequests":
        """The answers to requests of the agent's code to its run; a program uses the same object."""
        from freeact_sub.agents.run_requests import RunRequests  # noqa: PLC0415  # most runs are asked nothing

        return RunRequests(self.agent, self.kernel, self.children, self.single_requests)

    def of_child(self, child: TreeAgent, kernel: AgentKernel, output_type: Any, *, bring_back: bool) -> "AgentLoop":
        """Make the loop of a child, for one run.

        Args:
            child: The child.
            kernel: The child's kernel.
            output_type: The type of the answer, as pydantic-ai's `output_type`.
            bring_back: Whether its new kernel gets its earlier variables.
        """
        loop = AgentLoop(child, self.tree, kernel, output_type=output_type, parent=self.children)
        if bring_back:
            kernel.past.begin_again()
        return loop

    async def until_live(self) -> None:
        """Begin a run of the root that lasts until it is idle, unless one is live."""
        if self._begin_run is not None:
            await self._begin_run()

    def _notice(self, text: str) -> None:
        self.agent.emitter.put(ev.Notice(content=text))

    def begin(self, budget: Budget) -> None:
        """Begin a run of the root, which can be cancelled even before `run`. A child's begins when it is created."""
        self.kernel.use_mode()
        self.tree.begin_root(budget)
        self.children.open()

    async def run(self, work: Work) -> RunResult:
        """Run to the end; a failure is a result. Only a cancellation from outside is raised."""
        agent, run, parts = self.agent, self.agent.run, self.agent.run.features  # an abandoned run drops them
        self.tree.at_work[agent.agent_id] = self
        agent.shared.gate.begin(agent.agent_id)
        parts.begins(work.prompt, work.request)
        run.resumed = ()
        self._emit(work.started(agent))
        if agent.parent is None:
            agent.shared.stream.emit_held_back(agent.emitter)
        ending = RunResult(value="", status="cancelled", error="the run was cancelled")
        self._turns, self._takes_messages, self._doing = None, True, work
        run.has_model = work.program is None
        run.at_work = self
        try:
            with run.scope or anyio.CancelScope():
                with run.clock.running() as time_limit:
                    ending = await self._work(work)
                if time_limit.cancelled_caught:
                    ending = self._failure(run.clock.reached)
        finally:
            self._takes_messages = False
            if ending.status == "cancelled":
                ending = replace(ending, value=self._last_text)
                agent.emitter.put(ev.Cancelled())
            if self._turns is not None:
                run.keep_history(self._turns.messages)
            try:
                with acting_as(agent):
                    await self._close(ending, parts)
            finally:
                result = self._finish(ending)
                self._doing = Work(prompt="")  # what the program gave the run is not kept until the next one
        return result

    async def _work(self, work: Work) -> RunResult:
        agent, run = self.agent, self.agent.run
        output_type = self._output_type if work.output_type is None else work.output_type
        answers = answers_of(agent, texts=output_type is str)
        self._turns = turns = Turns(agent=agent, answers=answers, messages=run.record.history)
        run.is_to_end = lambda: turns.ended is not None
        self.kernel.deaths = 0
        try:
            run.clock.check()
            run.account.check_request()
            if (known := run.features.known()) is not None:
                return known
            if work.program is None:
                await run.take_kernel_place()
            await run.take_slot()
            run.work()
            if work.program is None:
                prompt = await self._opening_prompt(work)
                model = self._run_model(prompt, output_type, turns)
                output = turns.answers.whole(await self._bounded(model, turns))
            else:
                output = await self._bounded(self._run_program(work.program), turns)
        except Exception as error:  # border: a run that fails, for whatever reason, is a result
            level = logging.INFO if is_expected(error) else logging.WARNING
            logger.log(level, "the run of %s failed", agent.label, exc_info=True)
            if turns.kept_answer is not None:  # the answer was complete; the model was only asked about children it had left
                return RunResult(status="completed", value=turns.kept_answer.output)
            # the host's decision counts, even if code on the way up turned it into another error
            return self._failure(turns.ended or error)
        if turns.ended is not None:
            return replace(self._failure(turns.ended), value=output)
        if isinstance(output, Refusal):
            return replace(self._failure(FreeactError(output.sentence)), refused=output.reason)
        return RunResult(status="completed", value=output)

    def _failure(self, cause: Exception) -> RunResult:
        return RunResult(
            status=status_of(cause), value=self._last_text, error=sentence(cause, self.agent.model), exception=cause
        )

    @property
    def history(self) -> Sequence[ModelMessage]:
        """The conversation so far."""
        return self._turns.messages if self._turns is not None and self.agent.run.is_live else self.agent.run.record.history

    @property
    def expected(self) -> Sequence[ModelMessage]:
        """The conversation so far, and the messages for the next request."""
        return self.agent.run.record.history if self._turns is None else self._turns.expected

    def rewrite(self, messages: Sequence[ModelMessage]) -> None:
        """Replace the conversation, in a run without a model."""
        if self._turns is not None:
            self._turns.messages = messages

    async def _close(self, ending: RunResult, parts: RunParts) -> None:
        """End everything that the run has started. A cancel during one step does not skip the next.

        The steps are pushed in reverse order.

        Args:
            ending: The run's ending.
            parts: The features' parts in it.
        """
        async with AsyncExitStack() as stack:
            if self._parent is not None:
                stack.push_async_callback(lambda: carry_out(self._end_kernel(), timeout_seconds=CLOSE_SECONDS))
                if self.agent.keeps_kernel and ending.status != "cancelled" and not self.kernel.has_ended:
                    limit = self.agent.shared.config.kernel.start_timeout_seconds + CLOSE_SECONDS
                    stack.push_async_callback(lambda: carry_out(self._keep(), timeout_seconds=limit))
            closing_seconds = parts.closing_seconds + CLOSE_SECONDS  # each part has a bound of its own
            stack.push_async_callback(lambda: carry_out(parts.closing(ending, self.kernel), timeout_seconds=closing_seconds))
            stack.push_async_callback(lambda: carry_out(self.children.end(), timeout_seconds=CHILDREN_SECONDS))
            stack.push_async_callback(lambda: carry_out(self.kernel.calls.end(), timeout_seconds=CLOSE_SECONDS))

    async def _keep(self) -> None:
        if self._parent is not None and (self._parent.is_open or self._parent.is_of_root):
            try:
                self._node = await self._parent.nodes.keep(self.agent, self.kernel)
            except KernelError as error:
                self._notice(f"the kernel cannot be kept: {error}")

    async def _end_kernel(self) -> None:
        if self._node is None:
            await self.kernel.aclose()

    def _finish(self, ending: RunResult) -> RunResult:
        """Report the end, once; abandoned descendants end here too, so that no end follows its parent's."""
        agent, at_work = self.agent, self.tree.at_work
        result = self._measured(ending)
        if agent.agent_id not in at_work:
            return result
        for agent_id, other in reversed([*at_work.items()]):
            descendant = self.tree.agents[agent_id]
            if other is not self and agent in descendant.ancestors() and not descendant.outlives(agent):
                other.give_up()
        if agent.parent is None and not agent.shared.stream.is_followed:
            agent.shared.questions.abandon()
            agent.shared.gate.abandon()  # nobody answers what code in a kernel still asks
        del at_work[agent.agent_id]
        agent.run.features.ended(result)
        if agent.parent is not None:
            self.tree.keep_history(agent, result.reused_from)
        agent.run.end(result.status)
        if agent.in_background and self._parent is not None:
            self._parent.announce_end(agent.agent_id, result)
        self._emit(result.event)
        agent.run.give_back_places()  # only now that all is closed: a slot stands for a live kernel
        return result

    def _measured(self, ending: RunResult) -> RunResult:
        run, tally = self.agent.run, self.agent.shared.gate.end(self.agent.agent_id)
        doubts = self._turns.answers.warnings if self._turns else ()
        left = self.children.left if ending.status != "cancelled" else ()
        verifier = self._doing.verifier if ending.status == "completed" else None
        result = replace(
            ending,
            usage=run.account.own_usage,
            tree_usage=run.account.usage,
            seconds=run.seconds,
            agent_id=self.agent.agent_id,
            warnings=(*doubts, *left, *tally.warnings, *self.kernel.news()),
            unattended=tally.unattended,
            node=self._node,
            verified=verifier is not None and verifier.verified,
            unverified="" if verifier is None else verifier.unverified,
        )
        return run.features.facts(result)

    def give_up(self) -> None:
        """Declare the run ended, because it did not end in time."""
        self._finish(RunResult(status="cancelled", value=self._last_text, error="it did not end in time"))

    def send(self, text: str | TextContent, *, of_person: bool = False) -> bool | None:
        """Send the model a text before its next request. Return None before its first request, False after its last."""
        if not self._takes_messages or self._turns is None:
            return None if self._takes_messages else False
        return self._turns.send(text, of_person=of_person)

    def _emit(self, event: ev.AgentStarted | ev.AgentFinished) -> None:
        if self.agent.outlives(self.tree.root):
            self.agent.shared.stream.emit_or_keep(event, self.agent.emitter)
        else:
            self.agent.emitter.put(event)

    async def _opening_prompt(self, work: Work) -> str | list[UserContent]:
        """Return the prompt as the model reads it, and prepare the kernel where the prompt needs it."""
        kernel = self.kernel
        kernel.start_soon()
        kernel.tell_loss()
        await kernel.bring_back()  # first: what is undone later goes back to that
        news = kernel.past.untold
        run = self.agent.run
        run.prompt = work.content or (work.prompt,)
        told = await run.features.opening(work.prompt, is_prompt=True)
        prompt, run.prompt = run.prompt, ()
        kernel.past.untold = ""
        if kernel.is_branch:
            await kernel.get()  # a kernel that cannot be branched fails before anything is spent
        return opening_prompt(
            prompt,
            note=with_child_note(f"{work.note}\n\n{told}".strip(), self.agent),
            values="" if work.prepare is None else await work.prepare(await kernel.get()),
            messages=self.agent.shared.stream.take_messages() if self.agent.parent is None else (),
            kernel_news=news,
            branched=kernel.is_branch,
        )

    async def _run_program(self, program: AgentProgram) -> Any:
        with traced_program(self.agent, program):
            if self.agent.parent is not None:
                return await program()
            async with self.agent.run.waiting_for_child():  # the root's program does nothing else
                begun = program()
                if not inspect.isawaitable(begun):
                    raise InvalidRequestError(f"the program is an async function, but it returned {begun!r:.60} at once")
                return await begun

    async def _run_model(self, content: str | list[UserContent], output_type: Any, turns: Turns) -> Any:
        calls = ModelCalls(turns=turns, toolsets=self._toolsets)
        verify, kernel = None, self.kernel
        if output_type is not str:  # its values may check themselves
            self._doing = replace(self._doing, verifier=self._doing.verifier or Verifier())
            output_type = by_value(output_type, kernel.take)
            output_type = output_type if self.agent.parent is None else or_refusal(output_type)
        if (verifier := self._doing.verifier) is not None:
            verify = partial(verifier.reason_to_go_on, agent=self.agent, kernel=kernel)
        hooks = RunHooks(turns=turns, calls=calls, verify=verify)
        return await hooks.answer(
            content,
            output_type=output_type,
            instructions=instructions(self.agent, kernel.description),
            before=self.agent.run.features.capabilities(),
        )

    async def _bounded(self, work: Any, turns: Turns) -> Any:
        """Await the work; after a cancel, wait for it for a bounded time, then abandon it."""
        with acting_as(self.agent):
            task = asyncio.create_task(work, name=f"run of {self.agent.agent_id}")
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            self.children.cancel_all()
            levels = 1 + (self.agent.run.account.budget.depth or 0)
            with anyio.CancelScope(shield=True):
                task.cancel()
                if self.agent.parent is not None:
                    # a child's kernel is no longer needed: do not wait for its cell
                    await self.kernel.end()
                await asyncio.wait({task}, timeout=ABANDON_SECONDS * levels)
                await turns.inner_tasks.end()
            if not task.done():
                logger.error(  # noqa: TRY400  # the tool is the news, not the cancellation
                    "a tool of %s does not end when it is cancelled: it is abandoned", self.agent.agent_id
                )
            elif not task.cancelled():
                task.exception()  # retrieve it: the cancellation is what counts
            raise
        if task.cancelled():
            raise FreeactError("code in the run cancelled its own task")
        return task.result()

    def tool_context(self, tool_call_id: str) -> ToolContext:
        """Return the context of a tool in this call."""
        agent, parent, emitter = self.agent, self._parent, self.agent.emitter
        return ToolContext(
            config=agent.shared.config,
            tool_call_id=tool_call_id,
            kernel=self.kernel,
            output_folder=agent.output_folder,
            emit=partial(emitter.emit, tool_call_id=tool_call_id),
            spawn=self.children.run_for_model,
            children=self.children,
            ask=self.single_requests.ask_by_name,
            ask_user=partial(agent.ask_person, tool_call_id=tool_call_id),
            asked_seconds=lambda: agent.run.clock.stood_still,
            at_limit=agent.at_limit_of_cell,
            take_loss=self.kernel.take_loss,
            ask_parent=partial(parent.ask, agent.agent_id) if parent is not None and agent.in_background else None,
        )

    @property
    def _last_text(self) -> str:
        """The model's latest text in this run: the partial output of a run that did not complete."""
        return self._turns.last_text if self._turns is not None else ""
