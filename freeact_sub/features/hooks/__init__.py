"""`HooksFeature`: runs the hooks of a person, commands and functions, at certain moments (docs/hooks.md).

A hook of a root holds for all agents of its tree; a hook of an agent type holds for its agents and all below them. This file
is about the whole tree, `of_run.py` about one run: each event, what it hands over, and what becomes of the answer. It knows
agent types, which may bring hooks.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

import anyio

from freeact_sub.agents.feature import Feature, FeatureRoot, RunPart
from freeact_sub.agents.requested_call import FeatureAgent
from freeact_sub.agents.traces import conversation_of
from freeact_sub.agents.tree_agent import TreeAgent, tree_agent
from freeact_sub.calls import Call
from freeact_sub.channel import Tap, hearing
from freeact_sub.config.hooks import PROJECT_VARIABLE, CommandHook, HookEvent, expanded
from freeact_sub.errors import ConfigError
from freeact_sub.events import ApprovalRequest, Notice, QuestionRequest
from freeact_sub.features.hooks.of_run import HooksPart, type_name
from freeact_sub.hooks import Hook, HookAnswer, HookRunner, matched, names_of
from freeact_sub.hooks.runner import AnyHook
from freeact_sub.kernels import KernelSpec
from freeact_sub.kernels.wall.programs import LaterProgram
from freeact_sub.modes import Mode
from freeact_sub.system.closing import end_task
from freeact_sub.text import one_line

PERMISSION_MODES: Final[Mapping[Mode, str]] = {
    "plan": "plan",
    "ask": "default",
    "auto": "auto",
    "full": "bypassPermissions",
}
"""Modes by the names that hooks of other agents know."""
END_SECONDS: Final = 10.0
"""The time of all hooks of `SessionEnd`, and of notifications that are under way when the root is closed."""


class HooksFeature(Feature):
    """Runs the hooks of one tree of agents."""

    name = "hooks"

    def __init__(self, hooks: Sequence[Hook] = ()) -> None:
        """Args: hooks: functions of the program, besides the hooks of files. Raises: ConfigError: One is no `Hook`."""
        for hook in hooks:
            if not isinstance(hook, Hook):
                shown = f"the function {hook.__name__}" if inspect.isroutine(hook) else f"a {type(hook).__name__}"
                write = "Hook('PreToolUse', function), with the event at which it is called"
                raise ConfigError(f"hooks: {shown} is no Hook: write {write}")
        self._given = tuple(hooks)
        self._notifications: set[asyncio.Task[Any]] = set()
        self.session_has_begun = False
        """The hooks of `SessionStart` have run since the root was opened."""

    def attach(self, root: FeatureRoot) -> Sequence[Tap]:
        """Read the hooks of files, and hear when a person is asked."""
        config = root.agent.config
        self._runner = HookRunner((*config.found_hooks.hooks, *self._given), config.workspace)
        for problem in config.found_hooks.problems:
            root.notice(problem)
        return (hearing(self._notify, ApprovalRequest, QuestionRequest),)

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

    def run(self, agent: FeatureAgent) -> RunPart:
        """Run the hooks of one run."""
        return HooksPart(self, tree_agent(agent))

    def kernel(self, agent: FeatureAgent, spec: KernelSpec) -> KernelSpec:
        """Keep kernels from writing the programs of hooks, those of types that nobody has started yet included."""
        if spec.sandbox is None or not spec.sandbox.writable:
            return spec
        of_types = (hook for agent_type in tree_agent(agent).shared.types.types.values() for hook in agent_type.found_hooks)
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
        """The hooks that hold for an agent."""
        types = (above.agent_type for above in agent.ancestors() if above.agent_type is not None)
        return (*self._runner.hooks, *(hook for agent_type in types for hook in agent_type.found_hooks))

    def has_hook(self, agent: TreeAgent, event: HookEvent, call: Call | None = None) -> bool:
        """Whether a hook matches an event, and a call if one is named."""
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
            agent: The agent to which it happens.
            event: What happens.
            names: What a matcher may name.
            data: Makes what a hook reads, besides what each hook reads, from the name that its matcher named.
        """
        if not (hooks := self.hooks_of(agent)):
            return None
        common = _common(agent, event)
        return await self._runner.run(
            hooks, event, names, lambda name: {**common, **data(name)}, lambda text: agent.emitter.put(Notice(content=text))
        )

    def _notify(self, event: ApprovalRequest | QuestionRequest) -> None:
        """Run the hooks of `Notification` beside the run."""
        found = self.root.find(event.agent_id)
        if event.headless or found is None or not self.has_hook(agent := tree_agent(found), "Notification"):
            return
        if isinstance(event, ApprovalRequest):
            kind, message = "permission_prompt", f"{agent.name} {event.call.question}"
        else:
            kind, message = "elicitation_dialog", f"{agent.name} asks: {event.prompt}"
        data = {"message": message, "title": "freeact_sub", "notification_type": kind}
        task = asyncio.create_task(self.run_hooks(agent, "Notification", (kind,), lambda _: data), name="notification")
        self._notifications.add(task)
        task.add_done_callback(self._notifications.discard)

    async def _end_notifications(self) -> None:
        """Wait for a bounded time for those under way, then end them."""
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
