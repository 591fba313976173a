"""Hooks of a person, commands and functions that run at certain moments (`HooksFeature`; docs/hooks.md).

A hook of a root holds for all agents of its tree; a hook of an agent type holds for its agents and all below them.
`HooksFeature` is about the whole tree, `HooksPart` about one run: each event, its data, and the effect of the
answer. Hooks of types come with the types (`AgentType.hooks`).
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, TypeVar

import anyio

from freeact_sub import events as ev
from freeact_sub.agents.feature import Asker, EndedCall, Feature, FeatureAgent, FeatureRoot, Proceed, RequestedCall, RunPart
from freeact_sub.agents.life import TreeAgent, conversation_of, tree_agent
from freeact_sub.approvals.gate import Advice, Adviser
from freeact_sub.calls import Call, CodeAction, FileWrite
from freeact_sub.channel import Tap, hearing
from freeact_sub.config.hooks import PROJECT_VARIABLE, CommandHook, HookEvent, expanded
from freeact_sub.errors import ApprovalDeniedError, ConfigError
from freeact_sub.hooks import AnyHook, CallNames, Hook, HookAnswer, HookRunner, matched, names_of
from freeact_sub.kernels import KernelSpec
from freeact_sub.kernels.wall.programs import LaterProgram
from freeact_sub.modes import Mode
from freeact_sub.system.closing import end_task
from freeact_sub.text import one_line

T = TypeVar("T")

MAX_CONTINUES: Final = 5
"""Times that hooks may have one run go on."""
MAX_ACTIONS: Final = 1000
"""Actions of one cell that hooks hear of, at most."""
SAYS: Final = "[A hook of the user says: {text}]"
PERMISSION_MODES: Final[Mapping[Mode, str]] = {
    "plan": "plan",
    "ask": "default",
    "auto": "auto",
    "full": "bypassPermissions",
}
"""Modes by the names that hooks of other agents know."""
END_SECONDS: Final = 10.0
"""Seconds for all hooks of `SessionEnd`, and for pending notifications when the root is closed."""


class HooksPart(RunPart):
    """The hooks of one run."""

    def __init__(self, hooks: "HooksFeature", agent: TreeAgent) -> None:
        self.hooks, self._agent = hooks, agent
        self.contexts: dict[str | None, list[str]] = {}
        """Texts of hooks before a call, for the model, by the call."""
        self._actions: dict[str, dict[tuple[str, str], Call]] = {}
        """Actions of the code of an agent or node since its last cell, by kind and summary."""
        self._continued = 0
        """Times that hooks have had the run go on."""

    async def opening(self, said: str, *, is_prompt: bool) -> str:
        """Run the hooks of `SubagentStart`, or of `SessionStart` and `UserPromptSubmit`."""
        agent, hooks, data = self._agent, self.hooks, {"prompt": said}
        with agent.run.clocks_paused():
            if is_prompt and agent.parent is not None:
                started = await hooks.run_hooks(agent, "SubagentStart", (type_name(agent),), lambda _: data)
                _check_goes_on(started)
                return "" if started is None else started.context
            begun = await self._session_begins() if is_prompt else ""
            answer = await hooks.run_hooks(agent, "UserPromptSubmit", (), lambda _: data)
        if answer is None:
            return begun
        if answer.verdict == "deny" and (is_prompt or answer.ends):
            thing = "prompt" if is_prompt else "message"
            raise ApprovalDeniedError(f"a hook refuses the {thing}: {answer.reason}", ends_run=not is_prompt)
        if answer.verdict == "deny":
            raise ApprovalDeniedError(f"a hook refuses your message, and the model does not read it: {answer.reason}")
        return "\n\n".join(filter(None, (begun, answer.context)))

    async def _session_begins(self) -> str:
        agent, hooks = self._agent, self.hooks
        if hooks.session_has_begun:
            return ""
        hooks.session_has_begun = True
        source = "resume" if agent.run.record.history else "startup"
        data = {"source": source, "model": agent.model.model_id}
        answer = await hooks.run_hooks(agent, "SessionStart", (source,), lambda _: data)
        _check_goes_on(answer)
        return "" if answer is None else answer.context

    def advisers(self, asker: Asker) -> Sequence[Adviser]:
        """Return the hooks of `PreToolUse` and `PermissionRequest`."""
        agent = tree_agent(asker.agent)
        has_any = self.hooks.has_hook(agent, "PreToolUse") or self.hooks.has_hook(agent, "PermissionRequest")
        return (HookAdviser(self, agent, asker.tool_call_id),) if has_any else ()

    async def call(self, call: RequestedCall, proceed: Proceed[T]) -> EndedCall[T]:
        """Run the hooks of `PostToolUse`; after a cell, also those after its code's actions."""
        ended, agent = await proceed(), tree_agent(call.agent)
        if ended.outcome == "denied" or not self.hooks.hooks_of(agent):
            return ended
        tool_call_id = "" if call.by == "code" else call.tool_call_id
        calls: list[tuple[Call, Mapping[str, Any]]] = [(call.call, {"text": ended.text, "outcome": ended.outcome})]
        if isinstance(call.call, CodeAction):
            done = self._actions.pop(agent.agent_id, {}).values()
            calls = [*((inner, _response(inner)) for inner in done), *calls]
        with call.paused():
            answers = await asyncio.gather(*(self._after(agent, one, tool_call_id, said) for one, said in calls))
        told = self.contexts.pop(tool_call_id, [])
        for answer in answers:
            told += [text for text in (answer.context, answer.reason if answer.verdict == "deny" else "") if text]
            self.noted(answer)
        return ended.noted(*(SAYS.format(text=one) for one in dict.fromkeys(told)))

    async def _after(
        self, agent: TreeAgent, call: Call, tool_call_id: str | None, response: Mapping[str, Any]
    ) -> HookAnswer:
        names = names_of(call)
        answer = await self.hooks.run_hooks(
            agent,
            "PostToolUse",
            names.all_names,
            lambda name: {**data_of(names, name, tool_call_id), "tool_response": response},
        )
        return answer or HookAnswer()

    def noted(self, answer: HookAnswer | None) -> HookAnswer | None:
        """Note that a hook ends the run: the denied call may be an action of a cell, which goes on."""
        run = self._agent.run
        if answer is not None and answer.ends and run.must_end is None:
            run.must_end = ApprovalDeniedError(f"a hook says: {answer.reason}", ends_run=True)
        return answer

    def did(self, agent: FeatureAgent, call: Call) -> None:
        """Keep the actions of code until its cell has ended, each once."""
        if self.hooks.has_hook(tree_agent(agent), "PostToolUse", call):
            actions = self._actions.setdefault(agent.agent_id, {})
            if len(actions) < MAX_ACTIONS:
                actions[call.kind, call.summary] = call

    async def answer(self, text: str) -> str:
        """Run the hooks of `Stop` or `SubagentStop`, which may have the run go on."""
        agent, times = self._agent, self._continued
        event: HookEvent = "Stop" if agent.parent is None else "SubagentStop"
        names = () if agent.parent is None else (type_name(agent),)
        data = {"stop_hook_active": times > 0, "last_assistant_message": text}
        with agent.run.clocks_paused():
            heard = await self.hooks.run_hooks(agent, event, names, lambda _: data)
        if heard is None or heard.verdict != "deny" or heard.ends:
            return ""
        if times >= MAX_CONTINUES:
            agent.emitter.put(ev.Notice(content=f"hooks had the agent go on {times} times, and it ends now: {heard.reason}"))
            return ""
        agent.emitter.put(ev.Notice(content=f"a hook has the agent go on: {heard.reason}"))
        self._continued += 1
        return SAYS.format(text=heard.reason)

    async def refuses_compaction(self, trigger: str, keep: str = "") -> str:
        """Run the hooks of `PreCompact`, which may keep a conversation from being shortened."""
        agent, data = self._agent, {"trigger": trigger, "custom_instructions": keep}
        with agent.run.clocks_paused():
            heard = await self.hooks.run_hooks(agent, "PreCompact", (trigger,), lambda _: data)
        if heard is None or heard.verdict != "deny":
            return ""
        if trigger == "auto":
            _check_goes_on(heard)
            agent.emitter.put(ev.Notice(content=f"a hook keeps the conversation from being shortened: {heard.reason}"))
        return heard.reason


class HookAdviser(Adviser):
    """The hooks that have a say on one call."""

    source = "a hook"

    def __init__(self, part: HooksPart, agent: TreeAgent, tool_call_id: str | None) -> None:
        self._part, self._agent, self._tool_call_id = part, agent, tool_call_id

    def hears(self, call: Call) -> bool:
        """Return whether a hook runs before such a call."""
        return self._part.hooks.has_hook(self._agent, "PreToolUse", call)

    async def before(self, call: Call) -> Advice | None:
        """Run the hooks before a call."""
        names = names_of(call)
        answer = await self._part.hooks.run_hooks(self._agent, "PreToolUse", names.all_names, self._data(names))
        if answer is not None and answer.context:
            self._part.contexts.setdefault(self._tool_call_id, []).append(answer.context)
        return _advice(self._part.noted(answer))

    async def on_question(self, call: Call, suggested: Sequence[str]) -> Advice | None:
        """Run the hooks before a question."""
        names = names_of(call)
        data = self._data(names, permission_suggestions=list(suggested))
        answer = await self._part.hooks.run_hooks(self._agent, "PermissionRequest", names.all_names, data)
        return _advice(self._part.noted(answer))

    def _data(self, names: CallNames, **more: Any) -> Callable[[str], dict[str, Any]]:
        return lambda matched_name: data_of(names, matched_name, self._tool_call_id) | more


def data_of(names: CallNames, matched_name: str, tool_call_id: str | None) -> dict[str, Any]:
    """Return the fields of a call that a hook reads."""
    tool = {"tool_name": names.name_for(matched_name), "tool_input": names.tool_input}
    return {**tool, "tool_use_id": tool_call_id or ""}


def type_name(agent: TreeAgent) -> str:
    """Return the name of an agent's type; empty if it has none."""
    return agent.rights.type_name or ""


def _response(call: Call) -> dict[str, str]:
    return {"filePath": call.path} if isinstance(call, FileWrite) else {}


def _advice(heard: HookAnswer | None) -> Advice | None:
    return None if heard is None else Advice(verdict=heard.verdict, reason=heard.reason, ends=heard.ends)


def _check_goes_on(heard: HookAnswer | None) -> None:
    if heard is not None and heard.ends:
        raise ApprovalDeniedError(f"a hook ends the run: {heard.reason}", ends_run=True)


class HooksFeature(Feature):
    """The hooks of one tree of agents."""

    name = "hooks"

    def __init__(self, hooks: Sequence[Hook] = ()) -> None:
        """Make the feature. Args: hooks: the program's, besides those of files. Raises: ConfigError: One is no `Hook`."""
        for hook in hooks:
            if not isinstance(hook, Hook):
                shown = f"the function {hook.__name__}" if inspect.isroutine(hook) else f"a {type(hook).__name__}"
                write = "Hook('PreToolUse', function), with the event at which it is called"
                raise ConfigError(f"hooks: {shown} is no Hook: write {write}")
        self._given = tuple(hooks)
        self._notifications: set[asyncio.Task[Any]] = set()
        self.session_has_begun = False
        """Whether the hooks of `SessionStart` have run since the root was opened."""

    def attach(self, root: FeatureRoot) -> Sequence[Tap]:
        """Read the hooks of files, and hear when a person is asked."""
        config = root.agent.config
        self._runner = HookRunner((*config.found_hooks.hooks, *self._given), config.workspace)
        for problem in config.found_hooks.problems:
            root.notice(problem)
        return (hearing(self._notify, ev.ApprovalRequest, ev.QuestionRequest),)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """End the session's hooks with the root: they cannot change anything any more."""
        self._runner.renew()
        try:
            yield
        finally:
            await self._end_notifications()
            begun, self.session_has_begun = self.session_has_begun, False
            if begun:
                with anyio.move_on_after(END_SECONDS):
                    await self.run_hooks(
                        tree_agent(self.root.agent), "SessionEnd", ("other",), lambda _: {"reason": "other"}
                    )

    def run(self, agent: FeatureAgent) -> RunPart | None:
        """Run the hooks of one run, if there are any."""
        whole = tree_agent(agent)
        has_any = self._runner.hooks or any(agent_type.hooks for agent_type in whole.shared.types.values())
        return HooksPart(self, whole) if has_any else None

    def kernel(self, agent: FeatureAgent, spec: KernelSpec) -> KernelSpec:
        """Keep kernels from writing the programs of hooks, even of types that nobody has started yet."""
        if spec.sandbox is None or not spec.sandbox.writable:
            return spec
        of_types = (hook for agent_type in tree_agent(agent).shared.types.values() for hook in agent_type.hooks)
        programs = tuple(
            LaterProgram(
                name=f"hook `{one_line(hook.command)}`",
                command="bash",
                args=("-c", expanded(hook.command, spec.workspace)),
                cwd=str(spec.workspace),
                env=((PROJECT_VARIABLE, str(spec.workspace)),),
            )
            for hook in (*self._runner.hooks, *of_types)
            if isinstance(hook, CommandHook)
        )
        return replace(spec, sandbox=replace(spec.sandbox, programs=(*spec.sandbox.programs, *programs)))

    def hooks_of(self, agent: TreeAgent) -> tuple[AnyHook, ...]:
        """Return the hooks that hold for an agent."""
        return (*self._runner.hooks, *(hook for agent_type in agent.rights.types for hook in agent_type.hooks))

    def has_hook(self, agent: TreeAgent, event: HookEvent, call: Call | None = None) -> bool:
        """Return whether a hook matches an event, and a call if one is named."""
        hooks = [hook for hook in self.hooks_of(agent) if hook.event == event]
        if call is None or not hooks:
            return bool(hooks)
        names = names_of(call).all_names
        return any(matched(hook, event, names) is not None for hook in hooks)

    async def run_hooks(
        self,
        agent: TreeAgent,
        event: HookEvent,
        names: Sequence[str] = (),
        data: Callable[[str], Mapping[str, Any]] = lambda _: {},
    ) -> HookAnswer | None:
        """Run the hooks of an event; None if no hook matches.

        Args:
            agent: The agent of the event.
            event: The event.
            names: The names for matchers.
            data: Makes a hook's input, besides the common part, from the name in its matcher.
        """
        if not (hooks := self.hooks_of(agent)):
            return None
        common = _common(agent, event)
        return await self._runner.run(
            hooks,
            event,
            names,
            lambda name: {**common, **data(name)},
            lambda text: agent.emitter.put(ev.Notice(content=text)),
        )

    def _notify(self, event: ev.ApprovalRequest | ev.QuestionRequest) -> None:
        found = self.root.find(event.agent_id)
        if event.headless or found is None or not self.has_hook(agent := tree_agent(found), "Notification"):
            return
        if isinstance(event, ev.ApprovalRequest):
            kind, message = "permission_prompt", f"{agent.name} {event.call.question}"
        else:
            kind, message = "elicitation_dialog", f"{agent.name} asks: {event.prompt}"
        data = {"message": message, "title": "freeact_sub", "notification_type": kind}
        task = asyncio.create_task(self.run_hooks(agent, "Notification", (kind,), lambda _: data), name="notification")
        self._notifications.add(task)
        task.add_done_callback(self._notifications.discard)

    async def _end_notifications(self) -> None:
        """Wait for a bounded time for notifications under way, then end them."""
        if self._notifications:
            await asyncio.wait(self._notifications, timeout=END_SECONDS)
        for task in tuple(self._notifications):
            await end_task(task)


def _common(agent: TreeAgent, event: HookEvent) -> dict[str, Any]:
    child = {} if agent.parent is None else {"agent_id": agent.agent_id, "agent_type": type_name(agent)}
    return {
        "session_id": conversation_of(agent),
        "transcript_path": "",
        "cwd": str(agent.shared.config.workspace),
        "permission_mode": PERMISSION_MODES[agent.policy.mode],
        "hook_event_name": event,
        **child,
    }
