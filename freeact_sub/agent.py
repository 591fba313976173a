"""The entry point of the SDK, `Agent`: the root of a tree of agents, whose kernel and history outlast each run.

Each method is short: it calls the object that owns its topic, such as `Root` (open, run, close), or a feature. Code that an
agent runs, such as a tool, acts on that agent's behalf: the children that it starts are that agent's.
"""

import asyncio
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Self, Unpack, overload

from pydantic_ai import BinaryContent, Tool
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage, TextContent
from pydantic_ai.models import Model
from pydantic_ai.output import OutputSpec
from pydantic_ai.toolsets import AbstractToolset
from pydantic_core import to_json
from typing_extensions import TypeVar

from freeact_sub.agents.ask import AskParams, typed_for_program
from freeact_sub.agents.call import in_cell_of, run_own_cell
from freeact_sub.agents.child import Child
from freeact_sub.agents.feature import Feature
from freeact_sub.agents.loop import AgentLoop
from freeact_sub.agents.money import ContextUse, context_use
from freeact_sub.agents.prompt import Prompt, checked_history
from freeact_sub.agents.requests import validated
from freeact_sub.agents.results import NO_BOUNDS, AgentInfo, AnswerT, KernelNode, RunResult
from freeact_sub.agents.root import (
    DebugState,
    RunOptions,
    arguments_of,
    check_arguments,
    check_config,
    debug_state,
    make_root,
    outcome,
    request_for,
    request_of,
)
from freeact_sub.agents.run import EventStream, Run
from freeact_sub.agents.shared import ExecutionContext
from freeact_sub.approvals import Approve
from freeact_sub.approvals.policy import Rule
from freeact_sub.channel import Tap
from freeact_sub.config.budget import Budget, Usage
from freeact_sub.config.schema import Config
from freeact_sub.errors import FreeactError, InvalidRequestError, TaskError
from freeact_sub.events import CodeExecutionOutput, Compacted, Event
from freeact_sub.features import default_features
from freeact_sub.kernels import KernelProvider, put_values
from freeact_sub.modes import Mode
from freeact_sub.system.closing import end_left_behind_soon
from freeact_sub.tools import ChildRequest

if TYPE_CHECKING:
    from freeact_sub.events.answers import Effects
    from freeact_sub.features.agent_types import AgentFactory
    from freeact_sub.features.sessions.feature import SessionsFeature
    from freeact_sub.features.undo import UndoFeature, UndoReport
    from freeact_sub.hooks import Hook
    from freeact_sub.kernels.files import Changes
    from freeact_sub.mcp import McpServers
    from freeact_sub.sessions import SessionStore

T = TypeVar("T")
OutputT = TypeVar("OutputT", default=str)


CALLS: Final = "program_"
"""The prefix of the ids of calls that run a program's own code."""
BUSY: Final = (
    "the kernel is busy: a cell in it waits for what asks this, so nothing else can be done with it until that returns"
)


class Agent(Generic[OutputT]):
    """An agent that acts by running code in its own kernel and may start children.

    Use it as an async context manager: leaving it ends its run, its children, its kernel and its MCP connections::

        async with Agent(load_config(), model="anthropic:claude-sonnet-5-5") as agent:
            result = await agent.run("How many rows has data.csv?", output=int)
            print(result.output, result.tree_usage)

    The methods used most:

    - `run(prompt)`: await it for the result, or iterate over its events and answer its approval requests.
    - `run_program(function)`: a function of yours does the work; the agent's `ask`, `task` and `map` share its budget.
    - `execute(code)`: a cell in the agent's kernel. `put`, `get`: values into the kernel, and out of it.
    - `history`, `usage`, `agents()`: conversation, spending, agents at work. `cancel()`: end the run.

    While the agent is not open, methods that need its kernel or a run raise FreeactError. While a run is live, methods
    that begin one raise AgentBusyError.
    """

    def __init__(  # noqa: PLR0913  # what a user may replace; all are given by name
        self,
        config: Config | None = None,
        *,
        model: Model | str | None = None,
        models: Mapping[str, Model | str] | None = None,
        tools: "Sequence[Tool[Any] | Callable[..., Any]]" = (),
        hooks: "Sequence[Hook]" = (),
        features: Sequence[Feature] | None = None,
        deps: Any = None,
        toolsets: Sequence[AbstractToolset[Any]] = (),
        capabilities: Sequence[AbstractCapability[Any]] = (),
        output_type: "OutputSpec[OutputT]" = str,  # type: ignore[assignment]  # the default of OutputT
        model_settings: dict[str, Any] | None = None,
        kernel_provider: KernelProvider | None = None,
        taps: "Sequence[Tap]" = (),
        factory: "AgentFactory | None" = None,
        history: "Sequence[ModelMessage]" = (),
        session: str | None = None,
        store: "SessionStore | None" = None,
        approve: "Approve | None" = None,
    ) -> None:
        """Make an agent; nothing is started yet.

        Args:
            config: All settings. Default: `Config()`, which reads neither files nor environment (see `load_config`).
            model: A pydantic-ai model, or the name of one; replaces `config.model`.
            models: Other models by name, for `ask`, children and agent types, besides those of `config.models`. A model of
                pydantic-ai is asked at its own address and with its own settings, which override `model_settings`.
            tools: Functions of this program, or pydantic-ai's `Tool`, for this agent and its children. They run in this
                process, and each call needs approval. Code in cells calls them as `await agent.tools.NAME(...)`.
            hooks: Functions that are called before calls and at other moments, besides the hooks of files (docs/hooks.md).
            features: Features in their order (docs/extending.md). None: `default_features(hooks)`. Empty: a
                bare agent, with kernel, children, approvals, budgets and events.
            deps: The value of `RunContext.deps` in `tools` and in the tools of `toolsets`.
            toolsets: pydantic-ai toolsets for this agent and its children. Their tools need approval like the built-in ones.
            capabilities: pydantic-ai capabilities for this agent and its children.
            output_type: The type of the root's answer, as pydantic-ai's `output_type`. Children answer with text.
            model_settings: Settings that override `config.model_settings`.
            kernel_provider: The provider of kernels. Its creator closes it, after the agents that use it. Default: that of
                `config.kernel.provider`; the agents of an event loop share it, and the last one closes it.
            taps: Functions that are called with every event before the reader receives it.
            factory: An object that decides what each child is. Default: an agent like its parent.
            history: A conversation to continue, as returned by `Agent.history`. The model is told that its kernel is new.
            session: `new` records everything on disk; the id of a session continues it; None records nothing.
            store: The store of its session, instead of the one that `config.sessions.store` names.
            approve: Answers the approval requests of the agent and its children before anybody is asked: a function of the
                `ApprovalRequest`, which may be async, that returns a `Decision`, True, False, or None: somebody else is
                asked then, as without it. A call is denied if it raises.

        Raises:
            ConfigError: No model is set, or it cannot be built; a rule file is invalid; `history` is not a conversation; or
                another argument is wrong, which the message names.
            InvalidRequestError: `features` has something else than features, or lacks one that another argument needs; or no
                answer can be of `output_type`.
            SessionError: The session does not exist or cannot be read.
        """
        given = locals()
        check_config(config)
        check_arguments(given)
        given["history"] = checked_history(history)
        arguments = arguments_of(given, _features(features, hooks, session, factory))
        if (sessions := _named(arguments.features, "sessions")) is not None:
            arguments = sessions.choose(arguments, session, store)
        self._root = root = make_root(arguments)
        weakref.finalize(self, end_left_behind_soon).atexit = False
        self._tree, self._shared, self.config = root.tree, root.tree.shared, root.tree.shared.config

    @classmethod
    def resume(cls, session_id: str, config: Config | None = None, *, at: int | None = None, **options: Any) -> Self:
        """Make an agent that continues a session, named by its id or an unambiguous beginning of it.

        With `at`, it is a new session that begins as this one was after that prompt (see `fork_session`). Without `config`,
        it has the session's workspace and default settings. The settings of its model count where neither `config` nor
        `options`, those of the constructor, set another one. Raises SessionError if there is none or it cannot be read.
        """
        from freeact_sub.features.sessions.forking import session_to_resume  # noqa: PLC0415  # it looks at files and variables

        settings, found = session_to_resume(session_id, config, at, options.get("store"))
        return cls(settings, session=found, **options)

    async def open(self) -> Self:
        """Open the agent without `async with`, for example to keep it across a notebook's cells; `aclose()` closes it."""
        await self._root.open()
        return self

    async def aclose(self) -> None:
        """Close the agent and everything in it. It can be opened again, with its history and a new kernel."""
        await self._root.aclose()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def agent_id(self) -> str:
        """The root agent's id, such as `agent-1f09a2c4`."""
        return self._root.agent.agent_id

    @property
    def is_open(self) -> bool:
        """Whether the agent takes prompts: from `open` to `aclose`."""
        return self._root.loop is not None

    @property
    def _sessions(self) -> "SessionsFeature | None":
        sessions: SessionsFeature | None = _named([*self._shared.features], "sessions")
        return sessions

    @property
    def session_id(self) -> str | None:
        """The id under which the session can be resumed. None: nothing is recorded."""
        return None if self._sessions is None else self._sessions.session.session_id

    @property
    def is_kept(self) -> bool:
        """Whether the conversation is recorded, and all of it could be written so far."""
        return self._sessions is not None and self._sessions.journal.keeps

    @property
    def sessions(self) -> "SessionStore":
        """The store of the agent's session and of others."""
        store: SessionStore = self._shared.features.named("sessions").session.store
        return store

    @property
    def history(self) -> list[ModelMessage]:
        """The conversation so far, as the model sees it; each run continues it."""
        return self._root.agent.run.record.history

    @property
    def usage(self) -> Usage:
        """The spending of the agent and its descendants over all runs."""
        return self._tree.ledger.spent

    def agents(self) -> tuple[AgentInfo, ...]:
        """Return the root and its descendants, in the order in which they started; of earlier runs the newest 200."""
        return tuple(agent.info for agent in self._tree.agents.values())

    def context(self) -> ContextUse:
        """Return the use of the model's context window, with the instructions and tools of the last request."""
        loop = self._root.opened
        return context_use(loop.history, loop.agent.run.parameters, loop.agent.window_tokens)

    @property
    def execution_context(self) -> ExecutionContext:
        """The agent on whose behalf this is called, the root or a descendant: `budget_left`, `depth`, `cancelled`."""
        return self._root.callers_loop.agent.context

    @property
    def debug(self) -> DebugState:
        """The resources that the agents hold at this moment, for tests and for tracking down leaks."""
        return debug_state(self._tree, self._root.loop)

    @property
    def mode(self) -> Mode:
        """The mode: the actions that the agent and its children may take unasked. Can be set at any time.

        During a run, all calls are judged by the new mode at once, and open questions that it allows are closed. The wall
        around a kernel changes only with the next prompt: until then a mode that asks little because of its wall asks as
        much as `ask`, and code that may write or connect unasked still may. The root's kernel is then a new one, with the
        variables of the old one. Children keep a narrower mode of their own. Raises ConfigError if there is no such mode,
        or the agent's kernels cannot have it.
        """
        return self._root.mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        if mode != self._root.mode:
            self._root.use_mode(mode)
            if self._sessions is not None:
                self._sessions.keep_mode()

    @property
    def allowed(self) -> tuple[Rule, ...]:
        """The calls that a person has allowed for the session. A program may pass it to an agent that continues it."""
        return self._shared.gate.session

    @allowed.setter
    def allowed(self, rules: tuple[Rule, ...]) -> None:
        if isinstance(rules, str | bytes) or not all(isinstance(rule, Rule) for rule in rules):
            raise InvalidRequestError(f"agent.allowed are rules, as another agent's `allowed` has them, not {rules!r:.60}")
        self._shared.gate.session = tuple(rules)

    @overload
    def run(self, prompt: "Prompt", *, output: type[AnswerT], **options: Unpack[RunOptions]) -> Run[AnswerT]: ...
    @overload
    def run(self, prompt: "Prompt", *, output: None = None, **options: Unpack[RunOptions]) -> Run[OutputT]: ...
    @overload
    def run(self, prompt: "Prompt", *, output: Any, **options: Unpack[RunOptions]) -> Run[Any]: ...
    def run(
        self,
        prompt: "Prompt",
        *,
        output: Any = None,
        inputs: Mapping[str, Any] | None = None,
        budget: Budget = NO_BOUNDS,
        pictures: Sequence[BinaryContent] = (),
    ) -> Run[Any]:
        """Make a run that carries out the prompt; it begins when it is first used (`Run`).

        Args:
            prompt: A text. Or a list of texts, pictures and files, which the model reads in this order: `BinaryContent`,
                `ImageUrl` and the like of pydantic-ai, and `Path`, for a file that is read now.
            output: The type of the answer; None: `output_type`. A frame of pandas or an array of numpy comes by value: the
                model names a variable that holds it.
            inputs: Values by name, put into the agent's kernel as by `put`; the model reads their types and sizes.
            budget: The bounds of the run and its children; `config.budget` fills in the missing ones.
            pictures: Pictures that follow the prompt, unless `kernel.show_images_to_model` is off.
        """
        pictures = pictures if self.config.kernel.show_images_to_model else ()
        return self._root.run(prompt, output=output, inputs=inputs or {}, budget=budget, pictures=pictures)

    def stream(
        self, prompt: "Prompt", *, output: Any = None, **options: Unpack[RunOptions]
    ) -> "AsyncGenerator[Event, None]":
        """Run a prompt and yield the events; the arguments are those of `run`.

        Leaving the loop early cancels the run, and the next run waits for its end. A stream that a variable still holds is
        cancelled by `aclose()`, or by `async with contextlib.aclosing(agent.stream(prompt)) as events`.
        """
        return EventStream(self.run(prompt, output=output, **options))

    @overload
    def run_sync(self, prompt: "Prompt", *, output: type[AnswerT], **options: Unpack[RunOptions]) -> RunResult[AnswerT]: ...
    @overload
    def run_sync(self, prompt: "Prompt", *, output: None = None, **options: Unpack[RunOptions]) -> RunResult[OutputT]: ...
    def run_sync(self, prompt: "Prompt", *, output: Any = None, **options: Unpack[RunOptions]) -> RunResult[Any]:
        """Open the agent, run a prompt to its end as `run` does, and close the agent: for programs without `async`.

        The next call continues the conversation in a new kernel. Approval requests get the answer for unattended runs (see
        `Config.headless`). Raises FreeactError if an event loop is running in this thread, or the agent is open.
        """
        return self._root.run_sync(lambda: self.run(prompt, output=output, **options))

    def run_program(self, program: Callable[[], Awaitable[AnswerT]], *, budget: Budget = NO_BOUNDS) -> Run[AnswerT]:
        """Make a run that an async function without parameters drives instead of a model, with `spawn` and similar methods.

        Its return value becomes the result's `output`; an exception fails the run. Children that are still working when it
        returns are cancelled.
        """
        return self._root.run_program(program, budget)

    def run_cell(self, code: str) -> Run[str]:
        """Make a run without a model that runs a cell in the agent's kernel; the code `!command` runs a command.

        The cell needs approval like one of the model's. The model does not read it; its result is the
        `CodeExecutionOutput` among the events.
        """
        return self._root.run_cell(code)

    @property
    def servers(self) -> "McpServers":
        """The root's connections to its MCP servers (docs/mcp.md). Raises FreeactError if the agent is not open."""
        servers: McpServers = self._root.opened.agent.shared.features.named("MCP servers").servers
        return servers

    @property
    def skills(self) -> Mapping[str, str]:
        """The descriptions of the root's skills (docs/skills.md), by name."""
        found: Mapping[str, str] = self._shared.features.named("skills").descriptions
        return found

    def skill(self, name: str) -> TextContent:
        """Return the text of a skill as a part of a prompt: `agent.run([agent.skill("NAME"), "what to do"])`.

        Raises InvalidRequestError if there is no such skill.
        """
        text: TextContent = self._shared.features.named("skills").text(name)
        return text

    @property
    def present_run(self) -> Run[Any] | None:
        """The live run, whether `run`, `run_program` or `spawn` began it, if there is one."""
        return self._root.present_run

    def cancel(self, agent_id: str) -> bool:
        """Cancel a child with its descendants, also while no run is live. Return False if no such agent is working."""
        return (agent := self._tree.agents.get(agent_id)) is not None and agent.run.cancel()

    def try_now(self) -> bool:
        """Make the model requests that wait for a busy or failed server now. Return False if none waits.

        `ModelProgress.paused_seconds` tells of a wait.
        """
        return self._shared.traffic.try_now()

    def follow_background(self, hear: Callable[[Any], None]) -> None:
        """Receive events of background children while no run is live; otherwise they are dropped, and approvals denied.

        An open question of such a child stays open when a run ends; its event can still answer it. `hear` is called with
        each event, after the taps; it must be quick and must not raise.
        """
        self._root.follow_background(hear)

    async def fork(self, at: int | None = None) -> str:
        """Copy the session as it is now, and return the id of the copy, which `Agent.resume` opens; both go on.

        Both share the files of the workspace. With `at` the copy is as the session was after that prompt (`fork_session`).
        Raises AgentBusyError if the agent or a detached child is at work, and SessionError if there is nothing to copy.
        """
        copy: str = await self._shared.features.named("sessions").fork(at)
        return copy

    @property
    def undoable(self) -> tuple[str, ...]:
        """The prompts that can be undone, oldest first."""
        return self._undo.undoable

    @property
    def redoable(self) -> tuple[str, ...]:
        """The prompts that can be redone, the next one first; a new prompt forgets them."""
        return self._undo.redoable

    async def spawn(self, request: ChildRequest | str) -> Child:
        """Start a child without waiting for it; a string is its prompt.

        When a tool, a `ChildAgent` or any other code that an agent runs calls this, the child belongs to that agent: it is
        bound by its depth, mode and budget, and is cancelled when that agent's run ends. Otherwise it belongs to the root
        and its present run. If no run is live, one begins (see `present_run`) and lasts until no child is working; its
        events reach the taps only, and its approval requests get the answer for unattended runs. Raises SpawnForbiddenError
        if no child, or none of this type, may be started now.
        """
        return await self._root.callers_loop.children.spawn(request_for(request))

    async def spawn_and_run(self, request: ChildRequest | str) -> RunResult:
        """Start a child (see `spawn`) and wait until it ends, however it ends. Cancelling the wait cancels the child.

        An agent whose tool waits here lends its slot to other agents meanwhile.
        """
        return await self._spawn_and_run(request_for(request))

    async def _spawn_and_run(self, request: ChildRequest, together: int = 1) -> RunResult:
        result = await self._root.callers_loop.children.spawn_and_wait(request, together)
        await self._root.settle()
        return result

    async def run_parallel(self, requests: Iterable[ChildRequest | str]) -> list[RunResult | Exception]:
        """Start children (see `spawn`) side by side and wait for all; for one that cannot be started, return the reason."""
        if isinstance(requests, str):
            raise InvalidRequestError("agent.run_parallel takes a list of requests, not one text: use agent.task for that")
        wanted, children = [*requests], self._root.callers_loop.children

        async def run(request: ChildRequest | str) -> RunResult:
            return await self._spawn_and_run(request_for(request), len(wanted))

        async def run_all() -> list[RunResult | Exception]:
            return await asyncio.gather(*(outcome(run(request)) for request in wanted))

        # a question about a long list needs a live run
        is_long = len(wanted) > self._root.callers_loop.agent.shared.config.models.quote_above
        return await (children.in_run(run_all) if is_long else run_all())

    @overload
    async def ask(self, prompt: str, *, model: str | None = None, history: Sequence[str] = (), label: str = "") -> str: ...
    @overload
    async def ask(
        self, prompt: str, *, output: type[AnswerT], model: str | None = None, history: Sequence[str] = (), label: str = ""
    ) -> AnswerT: ...
    @overload
    async def ask(
        self, prompt: str, *, output: Any = None, model: str | None = None, history: Sequence[str] = (), label: str = ""
    ) -> Any: ...
    async def ask(
        self, prompt: str, *, model: str | None = None, output: Any = str, history: Sequence[str] = (), label: str = ""
    ) -> Any:
        """Make one model request without tools or kernel, in a run that pays for it (see `run_program`).

        The model reads the prompt, and before it `history`: earlier prompts and answers, alternating. `model` is a name in
        the setting `models`; the default is the agent's own model. `output` is the type of the answer, such as `int`, a
        dataclass or a pydantic model, and the call returns a value of it. `label` names the request for people. Raises
        FreeactError if no run is live, or the request is denied or fails.
        """
        loop = self._root.callers_loop
        if not loop.agent.run.is_live:
            raise FreeactError(
                "agent.ask must be called within a run, whose budget pays for it, such as "
                "`await agent.run_program(lambda: agent.ask(...)).result()`"
            )
        params = {"prompt": prompt, "model": model, "history": [*history], "label": label}
        asked = validated(AskParams.model_validate, params, "agent.ask")
        asks, in_run = loop.run_requests.asks, loop.children.in_run
        if output is None or output is str:
            return await in_run(lambda: asks.ask(asked, None, of_program=True))
        adapter, typed = typed_for_program(output)
        return adapter.validate_json(to_json(await in_run(lambda: asks.ask(asked, typed, of_program=True))))

    async def progress(self, /, **step: Any) -> None:
        """Report a step of a strategy, by the fields of a `StrategyStep`; it is dropped if no run is live."""
        loop = self._root.callers_loop
        if loop.agent.run.is_live:
            await loop.run_requests.progress.report(step)

    @overload
    async def task(self, /, prompt: "Prompt", *, output: type[AnswerT], **options: Any) -> RunResult[AnswerT]: ...
    @overload
    async def task(self, /, prompt: "Prompt", *, output: None = None, **options: Any) -> RunResult[str]: ...
    @overload
    async def task(self, /, prompt: "Prompt", *, output: Any, **options: Any) -> RunResult[Any]: ...
    async def task(self, /, prompt: "Prompt", *, output: Any = None, **options: Any) -> RunResult[Any]:
        """Start a child and wait until it ends. Its answer is a value of the type `output`; the default is text.

        `prompt` and `output` are as for `run`. The options are `inputs` (values that it finds as variables in its kernel, by
        name), `max_turns`, `budget` (a `Budget`, or a dict), and all other fields of `ChildRequest`. Raises TaskError if the
        child does not complete; `error.result` has what it achieved.
        """
        result = await self.spawn_and_run(request_of(prompt, {"output": output, **options}))
        if result.status != "completed":
            raise TaskError(result)
        return result

    @overload
    async def ask_many(self, prompts: Iterable[str], *, model: str | None = None) -> list[str | Exception]: ...
    @overload
    async def ask_many(
        self, prompts: Iterable[str], *, output: type[AnswerT], model: str | None = None
    ) -> list[AnswerT | Exception]: ...
    async def ask_many(self, prompts: Iterable[str], *, output: Any = str, model: str | None = None) -> list[Any]:
        """Ask each prompt as `ask` does, side by side, and return the answers in order; for one that fails, its exception.

        At most `models.max_concurrent` are asked at once, and prompts are taken as they are needed. The present run pays, or
        one that begins by itself (see `spawn`). When its budget is used up, the rest fails.
        """
        from freeact_sub.features.maps import ask_many  # noqa: PLC0415  # few programs ask so

        return await ask_many(self._root, prompts, output, model)

    async def map(
        self,
        frame: AnswerT,
        template: str,
        *,
        output: Any = str,
        model: str | None = None,
        kept_in: Path | str | None = None,
    ) -> AnswerT:
        """Ask a question about each row of a frame, and return the frame with columns of answers, and a column `error`.

        `frame` is a DataFrame of pandas or a list of dicts; order and index stay. `template` names columns in braces. The
        fields of `output` become columns; a type without fields gives the column `answer`. Answers are kept in the file
        `kept_in` (default: in the session's folder), and a second call asks only what it does not hold: see docs/maps.md.
        Bounds, model and run are as for `ask_many`. Raises InvalidRequestError before anything is asked.
        """
        from freeact_sub.features.maps import map_rows  # noqa: PLC0415  # few programs ask so

        return await map_rows(self._root, frame, template, output, model, kept_in)

    async def execute(self, code: str) -> CodeExecutionOutput:
        """Run code in the agent's kernel, as one cell, and return its status, text and displays.

        Nobody is asked whether the cell may run, for it is the program's own. The agent's wall holds for it, and its actions
        (files, programs, connections, children) need approval like those of the model's cells. An error that it raises is
        a `status`. The call waits for a running cell, and the model reads nothing of it. Raises KernelLostError if the
        kernel ends, and LimitReachedError if the budget has no call left.
        """
        if not isinstance(code, str):
            raise InvalidRequestError(f"agent.execute: code is a text, not {type(code).__name__}")
        loop = self._free_loop()
        kernel = loop.kernel

        async def run() -> CodeExecutionOutput:
            await kernel.bring_back()
            return await run_own_cell(code, CALLS, loop.agent, kernel.get, loop.tool_context, is_asked=False)

        return await loop.children.in_run(run)

    async def put(self, /, **values: Any) -> None:
        """Put values of the program into variables of the agent's kernel: `await agent.put(df=df)`.

        Values are pickled, with classes and functions of the program's own modules, and travel in a file of which the kernel
        maps large arrays and frames. They are variables like any other: cells may change and replace them, and a session
        brings them back. Nothing tells the model of them; `run(inputs=...)` does. Raises InvalidRequestError for a value
        that cannot be pickled or a name that no variable can have, and KernelError if the kernel cannot read it.
        """
        if values:
            loop = await self._ready()
            await put_values(values, await loop.kernel.get())
            loop.kernel.past.changed()

    @overload
    async def get(self, name: str, *, output: type[T], trust: bool = False) -> T: ...
    @overload
    async def get(self, name: str, *, output: Any = None, trust: bool = False) -> Any: ...
    async def get(self, name: str, *, output: Any = None, trust: bool = False) -> Any:
        """Return the value of a variable of the agent's kernel: `df = await agent.get("df")`.

        Frames, series and indexes of pandas, arrays of numpy and bytes come as they are. All other values come as JSON does:
        models and dataclasses as dicts, tuples and sets as lists, times as texts. `output` makes values of a type of them,
        such as `Report`, `set[int]` or `datetime`, and raises for those of another type. An array or a frame may stand in
        a list or a dict. Nothing that the kernel has written is unpickled, because its code, which a model may have written,
        decides what a pickle does where it is read.

        With `trust` the value is unpickled: all that pickle can carry comes back, a fitted model for example. Reading it can
        run any code in this process, with all its rights and outside the agent's wall. Do so only if you trust all
        code that has run in the kernel as much as your own.

        At most 1 GiB, and 128 MiB of JSON. Raises KernelValueError if there is no such variable, it cannot be taken, takes
        longer than `kernel.cell_timeout_seconds`, or is not of the type; and KernelLostError if the kernel ends.
        """
        loop = await self._ready()
        return await loop.kernel.take(name, output, trust=trust)

    async def variables(self) -> dict[str, str]:
        """Return the variables that cells have made in the agent's kernel, oldest first: by name, a line on each.

        The line has the type and the size, such as `df: pandas.DataFrame, shape (3, 2)`, or the value of a number. The call
        waits for a running cell. Raises KernelError if the kernel does not answer within `kernel.cell_timeout_seconds`.
        """
        return await (await self._ready()).kernel.variables()

    async def branch(self, description: str = "", *, own_files: bool = False) -> KernelNode:
        """Make a node by copying the kernel of the agent whose child `spawn` would start. No model works in it.

        The node counts towards `kernel.max_live` and is closed with the agent or by `KernelNode.close`. With `own_files`, it
        and its branches work in copies of the workspace: nobody else sees their files. `description` is a label.
        Raises KernelBranchError if the kernel cannot be copied, and SpawnForbiddenError if all kernels belong to nodes and
        to waiting agents.
        """
        return await self._root.callers_loop.children.nodes.branch(None, description, own_files=own_files)

    async def adopt(self, node: KernelNode, names: Sequence[str] | None = None) -> None:
        """Take variables of one of the agent's nodes over into the agent's kernel. The node stays open.

        The named variables are pickled; without names, the agent's kernel becomes a copy of the node's. Raises KernelError
        if that cannot be done, and FreeactError if the node may do less than the agent.
        """
        await self._root.callers_loop.children.nodes.adopt(node, names)

    async def promote(self, node: KernelNode) -> "Changes":
        """Take over a node's changes to its copy of the workspace (`KernelNode.diff`): all of them or none.

        Each path needs approval like a write of the agent's own. A cancellation takes effect afterwards. Returns the
        changes taken over; `left_out` names files that freeact or git obey, which never are. Raises WorkspaceConflictError
        if the workspace has changed in the same places, ApprovalDeniedError if a path was denied, and OSError if writing
        failed; then the workspace is unchanged.
        """
        return await self._root.callers_loop.children.nodes.promote(node)

    def _free_loop(self) -> AgentLoop:
        loop = self._root.callers_loop
        if in_cell_of(loop.agent.agent_id):
            raise FreeactError(BUSY)
        return loop

    async def _ready(self) -> AgentLoop:
        """Return the loop of the agent, once its kernel has the variables that a session brings back."""
        loop = self._free_loop()
        if loop.kernel.is_due:
            await loop.children.in_run(loop.kernel.bring_back)  # a person may be asked about them
        return loop

    async def compact(self, keep: str = "") -> Compacted | None:
        """Summarise the conversation now, except the first prompt and the last turn. This counts as a run.

        `keep` names the parts that the summary must keep above all. Returns None if the conversation is too short. Raises
        FreeactError if the summary could not be made; then the conversation is unchanged.
        """
        found: Compacted | None = await self._shared.features.named("compaction").compact(keep)
        return found

    def run_compaction(self, keep: str = "") -> Run[str]:
        """Make a run of `compact`, to read its events or cancel it. Its output says what was done."""
        run: Run[str] = self._shared.features.named("compaction").run_compaction(keep)
        return run

    @property
    def _undo(self) -> "UndoFeature":
        undo: UndoFeature = self._shared.features.named("undo")
        return undo

    def keep_undo(self) -> None:
        """Make each prompt of `run` undoable, from now on until the agent is closed. Further calls do nothing.

        Before each prompt, git stores the files of the workspace in its own repository, and the kernel is branched. A
        state that is not stored cannot be undone, redone or compared: such a call raises FreeactError.
        """
        self._undo.keep_undo()

    async def undo(self, prompts: int = 1) -> "UndoReport":
        """Restore conversation, variables and files as they were before the last prompt, or the last few.

        This covers the files in the workspace that `.gitignore` does not name, including children's changes. Effects
        elsewhere and spending stay. The report says what could not be restored, and why. Raises AgentBusyError if a run is
        live.
        """
        return await self._undo.undo(prompts)

    async def redo(self, prompts: int = 1) -> "UndoReport":
        """Go forward again, to the state before `undo`. Nothing runs, and no model is asked."""
        return await self._undo.redo(prompts)

    async def undo_previews(self, most: int = 10) -> "list[UndoReport]":
        """Return the reports of `undo` for the last prompt, for the last two, and so on up to `most` prompts."""
        return await self._undo.undo_previews(most)

    async def diff(self, prompts: int = 1) -> str:
        """Return the changes of the workspace's files since before the last prompt, or the last few, as a unified diff.

        Changes by any program are included, and a run may be live. Files that `.gitignore` names are left out.
        """
        return await self._undo.diff(prompts)

    async def line_changes(self) -> list[tuple[str, tuple[int, int] | None]]:
        """Return the files that `diff` shows, each with its numbers of added and removed lines. None: it is not text."""
        return await self._undo.line_changes()

    async def effects(self, prompts: int = 1) -> "Effects":
        """Return the changed variables and files since before the last prompt, or the last few, as a trial reports them.

        `reason` says what could not be compared. Raises AgentBusyError if a run is live.
        """
        return await self._undo.effects(prompts)


def _named(features: Sequence[Feature], name: str) -> Any:
    return next((feature for feature in features if isinstance(feature, Feature) and feature.name == name), None)


def _features(
    features: Sequence[Feature] | None, hooks: "Sequence[Hook]", session: str | None, factory: "AgentFactory | None"
) -> Sequence[Feature]:
    """Return the features of an agent. Raises: InvalidRequestError: One is missing that another argument needs."""
    asked = []
    if factory is not None:
        from freeact_sub.features.agent_types import FactoryFeature  # noqa: PLC0415  # few programs have one

        asked = [FactoryFeature(factory)]
    if features is None:
        return [*default_features(hooks), *asked]
    names = {feature.name for feature in features if isinstance(feature, Feature)}
    if hooks:
        raise InvalidRequestError(
            "hooks: leave it out, because `features` is given: features=[*default_features(hooks), ...] has your hooks"
        )
    if session is not None and "sessions" not in names:
        raise InvalidRequestError(
            "session: nothing records it, because `features` has no `sessions`: features=[*default_features(), ...] has it"
        )
    return [*features, *asked]
