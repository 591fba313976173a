"""Where the hooks of a person run (docs/hooks.md): what each event hands them, and what becomes of what they say.

A hook of a root holds for all agents of its tree; one of an agent type for its agents and all below them. A call, whether
the model or code in a cell makes it, goes through the gate, and there through `HooksOfCall`.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import anyio

from freeact_sub.agents.traces import conversation_of
from freeact_sub.agents.tree import Tree
from freeact_sub.agents.tree_agent import TreeAgent
from freeact_sub.calls import Call, CodeAction, FileWrite
from freeact_sub.channel import Tap, hearing
from freeact_sub.config.hooks import CommandHook, HookEvent
from freeact_sub.errors import ApprovalDeniedError
from freeact_sub.events import ApprovalRequest, Notice, QuestionRequest
from freeact_sub.hooks import CallNames, HookAnswer, matched, names_of
from freeact_sub.hooks.runner import AnyHook
from freeact_sub.modes import Mode
from freeact_sub.system.closing import end_task

PERMISSION_MODES: Final[Mapping[Mode, str]] = {
    "plan": "plan",
    "ask": "default",
    "auto": "auto",
    "full": "bypassPermissions",
}
"""Modes by the names that hooks of other agents know."""
MAX_CONTINUES: Final = 5
"""How often hooks may have one run go on."""
END_SECONDS: Final = 10.0
"""The time of all hooks of `SessionEnd`, and of notifications that are under way when the root is closed."""
SAYS: Final = "[A hook of the user says: {text}]"
WROTE: Final = FileWrite(path="")
"""Stands for all files that code writes."""

logger = logging.getLogger(__name__)


def hooks_of(agent: TreeAgent) -> tuple[AnyHook, ...]:
    """The hooks that hold for an agent."""
    types = (above.agent_type for above in agent.ancestors() if above.agent_type is not None)
    return (*agent.shared.hooks.hooks, *(hook for agent_type in types for hook in agent_type.found_hooks))


def all_commands(agent: TreeAgent) -> list[CommandHook]:
    """The commands of all hooks in the agent's tree, those of types that nobody has started yet included."""
    of_types = (hook for agent_type in agent.shared.types.types.values() for hook in agent_type.found_hooks)
    return [hook for hook in (*agent.shared.hooks.hooks, *of_types) if isinstance(hook, CommandHook)]


def has_hook(agent: TreeAgent, event: HookEvent, call: Call | None = None) -> bool:
    """Whether a hook matches an event, and a call if one is named."""
    hooks = [hook for hook in hooks_of(agent) if hook.event == event]
    if call is None or not hooks:
        return bool(hooks)
    names = names_of(call).all_names
    return any(matched(hook, event, names) is not None for hook in hooks)


async def run_hooks(
    agent: TreeAgent,
    event: HookEvent,
    names: Sequence[str] = (),
    data: Callable[[str], Mapping[str, Any]] = lambda _: {},
) -> HookAnswer | None:
    """Run the hooks of an event; None if no hook matches.

    Args:
        agent: The agent to which it happens.
        event: What happens.
        names: What a matcher may name.
        data: Makes what a hook reads, besides what each hook reads, from the name that its matcher named.
    """
    if not (hooks := hooks_of(agent)):
        return None
    common = _common(agent, event)
    return await agent.shared.hooks.run(
        hooks, event, names, lambda name: {**common, **data(name)}, lambda text: agent.emitter.put(Notice(content=text))
    )


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


def type_name(agent: TreeAgent) -> str:
    """The name of an agent's type; empty: it has none."""
    return agent.agent_type.name if agent.agent_type is not None else ""


class HooksOfCall:
    """See `CallHooks`."""

    def __init__(self, agent: TreeAgent, tool_call_id: str | None) -> None:
        self._agent, self._tool_call_id = agent, tool_call_id

    async def before(self, call: Call) -> HookAnswer | None:
        """Hear those that run before a call."""
        names = names_of(call)
        answer = await run_hooks(self._agent, "PreToolUse", names.all_names, self._data(names))
        if answer is not None and answer.context:
            self._agent.run.heard.add(self._tool_call_id, answer.context)
        return _noted(self._agent, answer)

    async def on_question(self, call: Call, suggested: Sequence[str]) -> HookAnswer | None:
        """Hear those that run before a question. Args: suggested: see `ApprovalRequest`."""
        names = names_of(call)
        data = self._data(names, permission_suggestions=list(suggested))
        return _noted(self._agent, await run_hooks(self._agent, "PermissionRequest", names.all_names, data))

    def _data(self, names: CallNames, **more: Any) -> Callable[[str], dict[str, Any]]:
        return lambda matched_name: data_of(names, matched_name, self._tool_call_id) | more


def _noted(agent: TreeAgent, answer: HookAnswer | None) -> HookAnswer | None:
    """Note that a hook ends the run: what it denies may be an action of a cell, which goes on."""
    if answer is not None and answer.ends:
        agent.run.heard.ends = agent.run.heard.ends or answer.reason
    return answer


def data_of(names: CallNames, matched_name: str, tool_call_id: str | None) -> dict[str, Any]:
    """What a hook reads of a call."""
    tool = {"tool_name": names.name_for(matched_name), "tool_input": names.tool_input}
    return {**tool, "tool_use_id": tool_call_id or ""}


def hooks_of_call(agent: TreeAgent, tool_call_id: str | None) -> HooksOfCall | None:
    """The hooks of an agent's calls. None: it has none."""
    has_any = has_hook(agent, "PreToolUse") or has_hook(agent, "PermissionRequest")
    return HooksOfCall(agent, tool_call_id) if has_any else None


@dataclass(frozen=True, kw_only=True)
class AfterCall:
    """What hooks say of a call that was made."""

    note: str = ""
    """For the model; empty: nothing."""
    ended: ApprovalDeniedError | None = None
    """The run must end."""


async def after_call(agent: TreeAgent, call: Call, tool_call_id: str | None, *, text: str, outcome: str) -> AfterCall:
    """Run the hooks after a call; after a cell, also those after what its code has done.

    Args:
        agent: The agent that made it.
        call: The call.
        tool_call_id: The model's call.
        text: Its result.
        outcome: How it ended.
    """
    heard = agent.run.heard
    calls = [(call, {"text": text, "outcome": outcome})]
    if isinstance(call, CodeAction):
        calls = [*((inner, _response(inner)) for inner in heard.take_actions(agent.agent_id)), *calls]
    answers = await asyncio.gather(*(_after(agent, one, tool_call_id, response) for one, response in calls))
    told = [*heard.take(tool_call_id)]
    for answer in answers:
        told += [text for text in (answer.context, answer.reason if answer.verdict == "deny" else "") if text]
    for answer in answers:
        _noted(agent, answer)
    note = "\n".join(SAYS.format(text=one) for one in dict.fromkeys(told))
    return AfterCall(
        note=note, ended=ApprovalDeniedError(f"a hook says: {heard.ends}", ends_run=True) if heard.ends else None
    )


async def after_own_cell(agent: TreeAgent, code: str, call_id: str, *, text: str, outcome: str) -> None:
    """Run the hooks after a cell of a person or a program: no model reads what they say. Args: see `after_call`."""
    await after_call(agent, CodeAction(code=code), call_id, text=text, outcome=outcome)


async def _after(agent: TreeAgent, call: Call, tool_call_id: str | None, response: Mapping[str, Any]) -> HookAnswer:
    names = names_of(call)
    answer = await run_hooks(
        agent,
        "PostToolUse",
        names.all_names,
        lambda name: {**data_of(names, name, tool_call_id), "tool_response": response},
    )
    return answer or HookAnswer()


def _response(call: Call) -> dict[str, str]:
    return {"filePath": call.path} if isinstance(call, FileWrite) else {}


def note_action(agent: TreeAgent, call: Call) -> None:
    """Note what code in a cell does, if hooks are to hear of it after the cell."""
    if has_hook(agent, "PostToolUse", call):
        agent.run.heard.note_action(agent.agent_id, call)


async def opening_context(agent: TreeAgent, prompt: str) -> str:
    """Run the hooks before a run's first request; return what they tell the model.

    Raises:
        ApprovalDeniedError: One refuses the prompt.
    """
    with agent.run.clocks_paused():
        if agent.parent is not None:
            started = await run_hooks(agent, "SubagentStart", (type_name(agent),), lambda _: {"prompt": prompt})
            _check_goes_on(started)
            return "" if started is None else started.context
        begun = await _session_begins(agent)
        answer = await run_hooks(agent, "UserPromptSubmit", (), lambda _: {"prompt": prompt})
    if answer is not None and answer.verdict == "deny":
        raise ApprovalDeniedError(f"a hook refuses the prompt: {answer.reason}")
    return "\n\n".join(filter(None, (begun, answer.context if answer is not None else "")))


async def heard_message(agent: TreeAgent, text: str) -> str | None:
    """Run the hooks on what a person sends to a working agent; return what its model reads. None: nothing.

    Raises:
        ApprovalDeniedError: One ends the run.
    """
    with agent.run.clocks_paused():
        heard = await run_hooks(agent, "UserPromptSubmit", (), lambda _: {"prompt": text})
    if heard is None or heard.verdict != "deny":
        return "\n\n".join(filter(None, (text, heard.context if heard is not None else "")))
    if heard.ends:
        raise ApprovalDeniedError(f"a hook refuses the message: {heard.reason}", ends_run=True)
    agent.emitter.put(Notice(content=f"a hook refuses your message, and the model does not read it: {heard.reason}"))
    return None


async def _session_begins(agent: TreeAgent) -> str:
    if agent.shared.session_has_begun:
        return ""
    agent.shared.session_has_begun = True
    source = "resume" if agent.run.record.history else "startup"
    answer = await run_hooks(agent, "SessionStart", (source,), lambda _: {"source": source, "model": agent.model.model_id})
    _check_goes_on(answer)
    return "" if answer is None else answer.context


def _check_goes_on(heard: HookAnswer | None) -> None:
    if heard is not None and heard.ends:
        raise ApprovalDeniedError(f"a hook ends the run: {heard.reason}", ends_run=True)


async def session_ends(agent: TreeAgent) -> None:
    """Run the hooks when the root is closed, if its session has begun. They cannot change anything."""
    if not agent.shared.session_has_begun:
        return
    agent.shared.session_has_begun = False
    with anyio.move_on_after(END_SECONDS):
        await run_hooks(agent, "SessionEnd", ("other",), lambda _: {"reason": "other"})


async def reason_to_go_on(agent: TreeAgent, answer: str, times: int) -> str:
    """Run the hooks before a run ends with an answer; return why it must go on. Empty: it may end.

    Args:
        agent: The agent.
        answer: Its answer.
        times: How often it has gone on because of this.
    """
    event: HookEvent = "Stop" if agent.parent is None else "SubagentStop"
    names = () if agent.parent is None else (type_name(agent),)
    with agent.run.clocks_paused():
        heard = await run_hooks(
            agent, event, names, lambda _: {"stop_hook_active": times > 0, "last_assistant_message": answer}
        )
    if heard is None or heard.verdict != "deny" or heard.ends:
        return ""
    if times >= MAX_CONTINUES:
        agent.emitter.put(Notice(content=f"hooks had the agent go on {times} times, and it ends now: {heard.reason}"))
        return ""
    agent.emitter.put(Notice(content=f"a hook has the agent go on: {heard.reason}"))
    return SAYS.format(text=heard.reason)


async def refusal_to_compact(agent: TreeAgent, trigger: str, instructions: str = "") -> str:
    """Run the hooks before a conversation is shortened; return why it must not be. Empty: it may.

    Args:
        agent: The agent.
        trigger: `auto` or `manual`.
        instructions: What a person wants kept.

    Raises:
        ApprovalDeniedError: One ends the run.
    """
    data = {"trigger": trigger, "custom_instructions": instructions}
    with agent.run.clocks_paused():
        heard = await run_hooks(agent, "PreCompact", (trigger,), lambda _: data)
    if heard is None or heard.verdict != "deny":
        return ""
    if trigger == "auto":
        _check_goes_on(heard)
        agent.emitter.put(Notice(content=f"a hook keeps the conversation from being shortened: {heard.reason}"))
    return heard.reason


@dataclass(kw_only=True, eq=False)
class Notifications:
    """Runs the hooks of `Notification` beside the run, when a person is asked."""

    tree: Tree
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    @property
    def tap(self) -> Tap:
        """Hears that a person is asked."""
        return hearing(self._hear, ApprovalRequest, QuestionRequest)

    def _hear(self, event: ApprovalRequest | QuestionRequest) -> None:
        if event.headless:
            return
        agent = self.tree.agents.get(event.agent_id)
        if agent is None or not has_hook(agent, "Notification"):
            return
        if isinstance(event, ApprovalRequest):
            kind, message = "permission_prompt", f"{agent.name} {event.call.question}"
        else:
            kind, message = "elicitation_dialog", f"{agent.name} asks: {event.prompt}"
        data = {"message": message, "title": "freeact_sub", "notification_type": kind}
        task = asyncio.create_task(run_hooks(agent, "Notification", (kind,), lambda _: data), name="notification")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        """Wait for a bounded time for those under way, then end them."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=END_SECONDS)
        for task in tuple(self._tasks):
            await end_task(task)
