"""`AgentLoop`: one prompt to one answer by one agent. The turns are pydantic-ai's; the ending is ours.

`run` is the whole life of a run: start, slot, model and tools, ending, closing, and last of all `AgentFinished`, exactly
once, whatever happens in between. The status comes from what the host saw happen, never from how a text reads.
"""

import asyncio
import importlib.resources
import logging
from collections.abc import AsyncIterable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from string import Template
from typing import Any, Final

import anyio
import pydantic_ai
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import RunContext
from pydantic_ai.exceptions import ModelAPIError, UserError
from pydantic_ai.messages import ModelResponse, repair_messages
from pydantic_ai.usage import UsageLimits

from freeact_sub.agents.asking import Asker
from freeact_sub.agents.background import Background, outlives
from freeact_sub.agents.host import Host
from freeact_sub.agents.kinds import ToolFilter, has_tool, kind_prompt, told_of_types
from freeact_sub.agents.program import ProgramChildren
from freeact_sub.agents.relay import relay_events
from freeact_sub.agents.report import text_of
from freeact_sub.agents.requests import AskRequests, BackgroundRequests, ChildRequests
from freeact_sub.agents.resources import AgentResources
from freeact_sub.agents.results import RunResult
from freeact_sub.agents.spawn import Prepare, Program, Spawner
from freeact_sub.agents.tree import AgentNode
from freeact_sub.closing import carry_out
from freeact_sub.errors import ApprovalDeniedError, FreeactError, KernelLostError, LimitReachedError
from freeact_sub.events import AgentFinished, AgentStarted, Cancelled, Notice, RunStatus
from freeact_sub.tools import (
    AgentToolset,
    Ask,
    AskParent,
    Delegate,
    ExecuteIPythonCell,
    KernelAccess,
    McpToolset,
    ResetKernel,
    Subagents,
    Task,
    Tool,
    ToolContext,
)

ABANDON_SECONDS: Final = 1.0
"""How long a cancelled run is waited for before it is abandoned, per level of agents below it."""
CLOSE_SECONDS: Final = 15.0
BACKGROUND_SECONDS: Final = 40.0
FILES_SECONDS: Final = 5.0
OUTSIDE: Final = """
- Your kernel is in a sandbox: it writes the workspace only, and has no network unless told otherwise. For what it forbids, such as installing a package: `await agent.shell("pip install x", reason="...")` in a cell runs one command outside, if a person agrees."""  # noqa: E501  # one line for the model
REPEATED_CHARS: Final = 1000
"""A task of at most this length stands before and after all that a child reads: small models forget what is far away."""
RETRIES: Final = 5
"""Invalid outputs in a row that a model may send; turns bound it as well."""

BRANCHED: Final = (
    "\n\nYour kernel started as a copy of your parent's: its variables, imports and functions are there. "
    "What you change in them stays with you."
)

SPAWNING: Final[tuple[Tool, ...]] = (Task(), Delegate(), Subagents())
"""Tools that start children. An agent that may not is not told of them, and a call that comes all the same is refused."""

logger = logging.getLogger(__name__)

pydantic_ai.BANNER_ENABLED = False  # shown once, it would stand between the lines of whoever uses us


@dataclass(frozen=True, kw_only=True)
class _Ending:
    status: RunStatus
    output: Any = ""
    error: str = ""


class AgentLoop:
    """Drives the runs of one agent."""

    def __init__(self, node: AgentNode, *, output_type: Any = str, branch_of: KernelAccess | None = None) -> None:
        """Args: branch_of: the kernel starts as a copy of this one. None: it starts empty."""
        self.node = node
        self.resources = AgentResources(node, branch_of)
        self._output_type = output_type
        self._is_branch = branch_of is not None
        self.spawner = Spawner(node, AgentLoop, self.resources.kernel)
        self.children = ChildRequests(self.resources.calls, self.spawner, self.resources.kernel.get)
        self.background = Background(node=node, spawner=self.spawner, tell=self.send, find=self._sender_to)
        self.program_children = ProgramChildren(node, self.spawner)
        self.asker = Asker(node)
        self.resources.requests.add(self.children.handlers)
        self.resources.requests.add(AskRequests(self.resources.calls, self.asker).handlers)
        self.resources.requests.add(BackgroundRequests(self.resources.calls, self.background).handlers)
        self._ours = AgentToolset(self._tools(), self._context)
        self._mcp = McpToolset(self.resources.mcp, on_error=lambda error: node.emitter.put(Notice(content=str(error))))
        self._host: Host | None = None

    async def run(self, prompt: str, *, prepare: Prepare | None = None, program: Program | None = None) -> RunResult:
        """Run to the end; a failure is a result. Raises only the cancellation that comes from outside.

        Args:
            prompt: What to do.
            prepare: See `SpawnRequest`.
            program: Finds the answer instead of the model.
        """
        node = self.node
        if node.scope is None:
            node.begin()
        node.tree.at_work[node.agent_id] = self
        queued = node.parent is not None and (node.tree.slots.full or (program is None and node.tree.kernel_places.full))
        node.emitter.put(AgentStarted(prompt=prompt, description=node.description, queued=queued, key=node.key))
        while node.parent is None and node.tree.notices:
            node.emitter.put(Notice(content=node.tree.notices.pop(0)))
        ending = _Ending(status="cancelled", error="the run was cancelled")
        try:
            with node.scope or anyio.CancelScope():
                with node.clock.running() as time_limit:
                    ending = await self._work(prompt, prepare, program)
                if time_limit.cancelled_caught:
                    ending = self._failure(node.clock.reached)
        finally:
            if ending.status == "cancelled":
                ending = _Ending(status="cancelled", output=self._last_text(), error=ending.error)
                node.emitter.put(Cancelled())
            if self._host is not None:
                node.history = repair_messages(list(self._host.messages))
            try:
                await self._close()
            finally:
                result = self._finish(ending)
        return result

    async def _close(self) -> None:
        """End what the run has started, children first; a cancel that comes during one part does not keep the next open."""
        async with AsyncExitStack() as stack:
            if self.node.parent is not None:
                stack.push_async_callback(lambda: carry_out(self.resources.aclose(), timeout_seconds=CLOSE_SECONDS))
            stack.push_async_callback(lambda: carry_out(self.resources.files.settle(), timeout_seconds=FILES_SECONDS))
            stack.push_async_callback(lambda: carry_out(self.background.end(), timeout_seconds=BACKGROUND_SECONDS))
            stack.push_async_callback(lambda: carry_out(self.children.end(), timeout_seconds=CLOSE_SECONDS))
            stack.push_async_callback(lambda: carry_out(self.program_children.end(), timeout_seconds=BACKGROUND_SECONDS))

    def _finish(self, ending: _Ending) -> RunResult:
        """Tell of the end, once; whoever was abandoned below ends here too, or its end would come after its parent's."""
        node = self.node
        result = self._result(ending)
        if node.agent_id in node.tree.at_work:
            for below in [loop for loop in reversed(node.tree.at_work.values()) if node in loop.node.ancestors()][:-1]:
                if outlives(below.node, node):
                    continue
                below._finish(_Ending(status="cancelled", output=below._last_text(), error="it did not end in time"))  # noqa: SLF001
            if node.parent is None:
                node.tree.gate.abandon()  # what code in a kernel still asks finds nobody
            del node.tree.at_work[node.agent_id]
            node.end(ending.status)
            node.emitter.put(_finished(result))
            node.give_slot_back()  # not before all is closed: a slot stands for a live kernel
            node.give_kernel_place_back()
            if node.parent is not None:
                node.history = []  # nobody reads it any more
        return result

    def send(self, text: str) -> bool:
        """Steer: the model reads the text before its next request. False if no request has been made yet."""
        if self._host is None or self._host.context is None:
            return False
        try:
            self._host.context.enqueue(text)
        except UserError:  # the run has made its last request
            return False
        return True

    def _sender_to(self, agent_id: str) -> Callable[[str], bool] | None:
        loop = self.node.tree.at_work.get(agent_id)
        return None if loop is None else loop.send

    async def _work(self, prompt: str, prepare: Prepare | None, program: Program | None) -> _Ending:
        node = self.node
        hidden = frozenset() if node.may_spawn else frozenset(tool.name for tool in SPAWNING)
        salvage = node.tree.config.subagents.salvage
        self._host = host = Host(
            node=node,
            ours=self._ours,
            mcp=self._mcp,
            salvage=salvage,
            hidden=hidden,
            text_answers=self._output_type is str,
            messages=node.history,
        )
        self.resources.kernel.deaths = 0
        try:
            node.clock.check()
            node.account.check_left()
            if program is None:
                await node.take_kernel_place()
            await node.take_slot()
            node.status = "running"
            if program is None:
                prompt = await self._prepared(prompt, prepare)
                output = await self._bounded(self._run_model(self.background.untold() + prompt, host), host)
            else:
                output = await self._bounded(self._run_program(program), host)
        except Exception as error:  # border: a run that fails, for whatever reason, is a result
            logger.info("run of %s failed", node.agent_id, exc_info=True)
            # what the host decided counts, also where something on the way up made another error of it
            return self._failure(host.ended or error)
        if host.ended is not None:
            return _Ending(status=_status_of(host.ended), output=output, error=_sentence(host.ended))
        return _Ending(status="completed", output=output)

    async def _prepared(self, prompt: str, prepare: Prepare | None) -> str:
        """Make the kernel ready as far as it must be; the prompt with what is to be said of it."""
        kernel = self.resources.kernel
        kernel.start_soon()
        if self._is_branch:
            await kernel.get()  # what cannot be branched fails before anything is paid for
            prompt += BRANCHED
        return prompt if prepare is None else f"{prompt}\n\n{await prepare(await kernel.get())}"

    async def _run_program(self, program: Program) -> Any:
        if self.node.parent is not None:
            return await program()
        async with self.node.waiting_for_child():  # the root's program does nothing else
            return await program()

    def _failure(self, cause: Exception) -> _Ending:
        return _Ending(status=_status_of(cause), output=self._last_text(), error=_sentence(cause))

    async def _run_model(self, prompt: str, host: Host) -> Any:
        tree = self.node.tree
        agent: PydanticAgent[Any, Any] = PydanticAgent(
            self.node.model,
            name=self.node.agent_id,
            output_type=self._output_type,
            instructions=self._instructions(prompt),
            toolsets=[self._ours, self._mcp, *tree.toolsets],
            capabilities=[*tree.capabilities, ToolFilter(node=self.node), host],
            model_settings=tree.model_settings or None,  # type: ignore[arg-type]  # a TypedDict that config leaves open
            retries=RETRIES,
        )

        async def relay(ctx: RunContext[Any], events: AsyncIterable[Any]) -> None:
            del ctx
            await relay_events(events, self.node.emitter)

        limit = self.node.budget.turns
        with host.progress.watched():
            result = await agent.run(
                prompt,
                message_history=self.node.history or None,
                event_stream_handler=relay,
                infer_name=False,
                # a backstop for steps that a user's capability takes past our hooks; ours comes first
                usage_limits=UsageLimits(request_limit=None if limit is None else limit + 1),
            )
        host.messages = result.all_messages()
        return result.output

    async def _bounded(self, work: Any, host: Host) -> Any:
        """Await the work; when cancelled, wait for it within a bound and then abandon it."""
        task = asyncio.create_task(work, name=f"run of {self.node.agent_id}")
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            self.background.cancel_all()
            levels = 1 + (self.node.budget.depth or 0)
            with anyio.CancelScope(shield=True):
                task.cancel()
                if self.node.parent is not None:
                    # nobody needs the state of a child's kernel any more: no cell is waited for
                    await self.resources.kernel.aclose()
                await asyncio.wait({task}, timeout=ABANDON_SECONDS * levels)
                await host.end_inner_tasks()
            if not task.done():
                logger.error(  # noqa: TRY400  # the cancellation is no news; the tool is
                    "a tool of %s does not end when it is cancelled: it is abandoned", self.node.agent_id
                )
            elif not task.cancelled():
                task.exception()  # retrieved: the cancellation is what counts
            raise
        if task.cancelled():
            raise FreeactError("something in the run cancelled itself")
        return task.result()

    def _tools(self) -> list[Tool]:
        tools: list[Tool] = [ExecuteIPythonCell(), ResetKernel(), Ask(), *SPAWNING]
        return [*tools, AskParent()] if self.node.ask_parent is not None else tools

    def _context(self, tool_call_id: str) -> ToolContext:
        emitter = self.node.emitter
        return ToolContext(
            config=self.node.tree.config,
            tool_call_id=tool_call_id,
            kernel=self.resources.kernel,
            output_folder=self.node.output_folder,
            emit=lambda event: emitter.emit(event, tool_call_id=tool_call_id),
            spawn=self.spawner.for_model,
            children=self.background,
            ask=self.asker.ask_by_name,
            ask_parent=self.node.ask_parent,
        )

    def _instructions(self, prompt: str) -> str:
        tree, node = self.node.tree, self.node
        servers = self.resources.mcp.names
        text = _prompt("system.md").substitute(
            workspace=tree.config.workspace,
            outside=OUTSIDE if node.policy.wall == "workspace" else "",
            mcp=f"\n- MCP servers, callable from code as agent.mcp.SERVER.TOOL: {', '.join(servers)}." if servers else "",
            spawning=(
                f"\n- You can start child agents with task; {tree.config.subagents.max_concurrent} work at the same time. "
                "Code can start them too, with values in and out: help(agent.task)." + told_of_types(node)
                if node.may_spawn and has_tool(node, "task")
                else ""
            ),
        )
        if node.parent is not None:
            text += _prompt("child.md").substitute(
                depth=node.depth,
                budget=str(node.budget) or "no bounds",
                levels=node.budget.depth,
                task=f"\nYour task: {prompt}" if len(prompt) <= REPEATED_CHARS else "",
                scope=f"\nKeep to this: {node.work_scope}. Change nothing outside it." if node.work_scope else "",
            )
        return f"{text}{kind_prompt(node)}\n{tree.config.instructions}".strip()

    def _last_text(self) -> str:
        """The newest text of the model in this run: what a run that did not complete has to show."""
        known = len(self.node.history)
        for message in reversed(self._host.messages[known:] if self._host else []):
            if isinstance(message, ModelResponse) and message.text:
                return message.text
        return ""

    def _result(self, ending: _Ending) -> RunResult:
        node = self.node
        return RunResult(
            output=ending.output,
            status=ending.status,
            error=ending.error,
            usage=node.usage,
            tree_usage=node.tree_usage,
            seconds=node.seconds,
            agent_id=node.agent_id,
            files_read=tuple(node.files.read),
            files_written=tuple(node.files.written),
            warnings=tuple(node.files.warnings),
        )


def _finished(result: RunResult) -> AgentFinished:
    return AgentFinished(
        status=result.status,
        output=text_of(result.output),
        error=result.error,
        usage=result.usage,
        tree_usage=result.tree_usage,
        seconds=result.seconds,
        files_read=result.files_read,
        files_written=result.files_written,
    )


def _status_of(error: Exception) -> RunStatus:
    match error:
        case LimitReachedError(limit="seconds"):
            return "timeout"
        case LimitReachedError():
            return "limit"
        case KernelLostError():
            return "kernel_lost"
        case ApprovalDeniedError():
            return "rejected"
    return "failed"


def _sentence(error: Exception) -> str:
    """One sentence for people; the log has the traceback."""
    if isinstance(error, FreeactError | UserError):
        return str(error)
    if isinstance(error, ModelAPIError):
        return f"the model request failed: {error}"
    return f"{type(error).__name__}: {error}"


def _prompt(name: str) -> Template:
    return Template(importlib.resources.files("freeact_sub.agents.prompts").joinpath(name).read_text(encoding="utf-8"))
