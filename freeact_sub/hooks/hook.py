"""`Hook`: a function of a program that is called at certain moments."""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final

from freeact_sub.config.hooks import HOOK_EVENTS, TIMEOUT_SECONDS, HookEvent, check_matcher
from freeact_sub.errors import ApprovalDeniedError, ConfigError
from freeact_sub.hooks.answer import HookAnswer, read_value
from freeact_sub.system.daemon_threads import DaemonThreads

_threads: Final = DaemonThreads("hooks")


@dataclass(frozen=True)
class Hook:
    """Calls a function at an event.

    The function gets what a command reads on standard input, as a dict, and returns what a command prints: a dict, or
    None, which says nothing. An `ApprovalDeniedError` that it raises is a denial. It may be `async`; another one is called
    in a thread. With `required` a hook that fails counts as a denial.
    """

    event: HookEvent
    run: Callable[[dict[str, Any]], Any]
    matcher: str = ""
    _: KW_ONLY
    timeout_seconds: float = TIMEOUT_SECONDS
    required: bool = False

    def __post_init__(self) -> None:
        """Raises ConfigError if there is no such event, or the matcher is not a pattern."""
        if self.event not in HOOK_EVENTS:
            raise ConfigError(f"there is no event {self.event!r} for hooks: the events are {', '.join(HOOK_EVENTS)}")
        check_matcher(self.matcher)

    @property
    def label(self) -> str:
        """Its name for people."""
        return getattr(self.run, "__qualname__", None) or type(self.run).__name__


async def call_hook(hook: Hook, data: Mapping[str, Any]) -> HookAnswer:
    """Calls the function. Its exceptions are the caller's, but for a denial."""
    given = dict(data)
    try:
        if inspect.iscoroutinefunction(hook.run) or inspect.iscoroutinefunction(getattr(hook.run, "__call__", None)):  # noqa: B004
            value = await hook.run(given)
        else:
            value = await asyncio.get_running_loop().run_in_executor(_threads, hook.run, given)
            if inspect.isawaitable(value):
                value = await value
    except ApprovalDeniedError as denial:
        return HookAnswer(verdict="deny", reason=denial.reason)
    return read_value(hook.event, value)
