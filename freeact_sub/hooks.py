"""Hooks: commands and functions that a person has run at certain moments, beside the rules (docs/hooks.md).

Where they run is decided in `features/hooks.py`.

`names_of` gives the names of a call for hooks, with its arguments in the form that hooks of other agents read.

`read_exit` reads the answer of a hook from its exit code and its output, `read_value` from the value of a function. Exit
code 2 is a denial, and standard error its reason. With exit code 0 a JSON object on standard output is the answer; another
text is for the model at events that tell it something, and otherwise nothing. All else is a failure.

`HookRunner` runs all hooks that match, side by side, each within its time. `run_command` runs the command of a hook in a
shell, in the workspace and with the rights of the person. The process guard starts it: when the command ends, its time is
up, its run is cancelled or the host ends, it and all that it has started end. Its output is read while it runs, and only
the beginning is kept.
"""

import asyncio
import contextlib
import inspect
import json
import logging
import os
import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import anyio

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
from freeact_sub.cells import CELL_TOOL
from freeact_sub.config.hooks import (
    HOOK_EVENTS,
    PROJECT_VARIABLE,
    TIMEOUT_SECONDS,
    CommandHook,
    HookEvent,
    check_matcher,
    first_matched,
)
from freeact_sub.config.parsing import SHOWN, parse_json
from freeact_sub.config.schema import cache_folder
from freeact_sub.config.trust import CACHE_VARIABLE, SAFE_VARIABLE
from freeact_sub.errors import ApprovalDeniedError, ConfigError
from freeact_sub.system.closing import DaemonThreads, guarded_shell
from freeact_sub.text import clean, one_line, shortened

HookVerdict: TypeAlias = Literal["deny", "ask", "allow"]
"""Verdicts, in the order in which one counts more than another."""
VERDICTS: Final[tuple[HookVerdict, ...]] = ("deny", "ask", "allow")
TEXT_CHARS: Final = 10_000
"""Characters of a text of a hook that a model or a person reads."""
DENIED: Final = 2
"""The exit code of a denial."""
TELLS_MODEL: Final = frozenset(("UserPromptSubmit", "SessionStart", "SubagentStart"))
"""Events at which a hook's output is for the model."""
OLD_WORDS: Final[Mapping[str, HookVerdict]] = {
    "approve": "allow",
    "allow": "allow",
    "block": "deny",
    "deny": "deny",
    "ask": "ask",
}
MAX_BEGINNINGS: Final = 50
"""Lines that are tried as the beginning of a JSON object."""
WHITE: Final = string.whitespace + "\ufeff"
OUR_KEYS: Final = frozenset(("decision", "hookSpecificOutput", "continue", "systemMessage"))
"""Keys of a JSON object that is meant as an answer."""
NO_REASON: Final = "it gave no reason"
_threads: Final = DaemonThreads("hooks")
MAX_OUTPUT_BYTES: Final = 1_000_000
"""Bytes of each stream; the rest is read and dropped."""
CHUNK_BYTES: Final = 65_536


@dataclass(frozen=True, kw_only=True)
class HookAnswer:
    """The answer of one hook, or of several together."""

    verdict: HookVerdict | None = None
    """The verdict, if there is one."""
    reason: str = ""
    context: str = ""
    """Text for the model."""
    notice: str = ""
    """Text for people."""
    ends: bool = False
    """Whether the agent must not go on."""
    failure: str = ""
    """The reason why the hook gave no answer."""


SILENT: Final = HookAnswer()


def failed(why: str) -> HookAnswer:
    """Return the answer of a hook that failed."""
    return HookAnswer(failure=why)


def read_exit(event: HookEvent, code: int, output: str, errors: str) -> HookAnswer:
    """Read the end of a command. Args: code: negative for a signal."""
    output, errors = clean(output).strip(WHITE), shortened(clean(errors).strip(), TEXT_CHARS)
    if code == DENIED:
        return HookAnswer(verdict="deny", reason=errors or NO_REASON)
    if code < 0:
        return failed(f"it was ended by signal {-code}")
    if code:
        return failed(f"it ended with exit code {code}" + (f": {errors}" if errors else ""))
    if not output.startswith("{"):
        if _has_late_object(output):
            return failed("it printed text before its JSON, which must stand alone on standard output")
        return HookAnswer(context=shortened(output, TEXT_CHARS)) if event in TELLS_MODEL else SILENT
    try:
        value = parse_json(output)
    except ValueError as error:
        return failed(f"what it printed is not JSON: {error}")
    return read_value(event, value)


def _has_late_object(output: str) -> bool:
    for begin in [match.start() for match in re.finditer(r"^[ \t]*\{", output, re.MULTILINE)][:MAX_BEGINNINGS]:
        try:
            value = parse_json(output[begin:])
        except ValueError:
            continue
        return isinstance(value, dict) and not OUR_KEYS.isdisjoint(value)
    return False


def read_value(event: HookEvent, value: Any) -> HookAnswer:
    """Read the JSON that a command printed, or the value that a function returned."""
    if value is None or value == {}:
        return SILENT
    if isinstance(value, str):
        return (
            read_exit(event, 0, value, "") if event in TELLS_MODEL else failed(f"it returned the text {SHOWN.repr(value)}")
        )
    if not isinstance(value, Mapping):
        return failed(f"it answered {SHOWN.repr(value)}, which is no object")
    try:
        return _read_object(event, value)
    except ValueError as error:
        return failed(str(error))


def _read_object(event: HookEvent, value: Mapping[str, Any]) -> HookAnswer:
    specific = value.get("hookSpecificOutput", {})
    if not isinstance(specific, Mapping):
        raise ValueError(f"`hookSpecificOutput` must be an object, not {SHOWN.repr(specific)}")  # noqa: TRY004  # one kind
    if (named := specific.get("hookEventName", event)) != event:
        raise ValueError(f"it answers the event {SHOWN.repr(named)}, and was asked about {event}")
    decision = specific.get("decision")
    inner = decision if isinstance(decision, Mapping) else {}
    if "updatedInput" in specific or "updatedInput" in inner:
        raise ValueError("it wants to change the arguments of the call (`updatedInput`), and a hook cannot do that here")
    word = inner.get("behavior", specific.get("permissionDecision", value.get("decision")))
    verdict = None if word is None else OLD_WORDS.get(str(word))
    if word is not None and verdict is None:
        raise ValueError(f"it decides {SHOWN.repr(word)}, which is not one of {', '.join(OLD_WORDS)}")
    reason = _text(inner, "message") or _text(specific, "permissionDecisionReason") or _text(value, "reason")
    notice, context = _text(value, "systemMessage"), _text(specific, "additionalContext")
    if value.get("continue") is False:
        stop = _text(value, "stopReason") or reason or NO_REASON
        return HookAnswer(verdict="deny", reason=stop, notice=notice, context=context, ends=True)
    ends = inner.get("interrupt") is True and verdict == "deny"
    return HookAnswer(
        verdict=verdict, reason=reason or (NO_REASON if verdict else ""), notice=notice, context=context, ends=ends
    )


def _text(value: Mapping[str, Any], name: str) -> str:
    text = value.get(name, "")
    if text is None:
        return ""
    if not isinstance(text, str):
        raise ValueError(f"`{name}` must be a text, not {SHOWN.repr(text)}")  # noqa: TRY004  # one kind
    return shortened(clean(text).strip(), TEXT_CHARS)


def together(answers: list[HookAnswer]) -> HookAnswer:
    """Return the answer of several hooks: the strictest verdict with its reasons, and all texts."""
    verdict = next((word for word in VERDICTS if any(answer.verdict == word for answer in answers)), None)
    deciding = [answer for answer in answers if answer.verdict == verdict and verdict is not None]
    return HookAnswer(
        verdict=verdict,
        reason=_joined(answer.reason for answer in deciding),
        context=_joined(answer.context for answer in answers),
        notice=_joined(answer.notice for answer in answers),
        ends=any(answer.ends for answer in answers),
    )


def _joined(texts: Any) -> str:
    return "\n".join(dict.fromkeys(text for text in texts if text))


@dataclass(frozen=True, kw_only=True)
class CallNames:
    """A call as hooks read it."""

    names: tuple[str, ...]
    """Names of the tool; a hook reads the first that its matcher names."""
    kind: str
    """The kind of the call, which a matcher may name as well."""
    tool_input: dict[str, Any]

    @property
    def all_names(self) -> tuple[str, ...]:
        """All names that a matcher may use."""
        return tuple(dict.fromkeys((*self.names, self.kind)))

    def name_for(self, matched: str) -> str:
        """Return the `tool_name` for a hook. Args: matched: the name in its matcher."""
        return matched if matched in self.names else self.names[0]


def names_of(call: Call) -> CallNames:
    """Return a call as hooks read it."""
    names, tool_input = _names_and_input(call)
    return CallNames(names=names, kind=call.kind, tool_input=tool_input)


def _names_and_input(call: Call) -> tuple[tuple[str, ...], dict[str, Any]]:
    match call:
        case CodeAction():
            return (CELL_TOOL,), {"code": call.code} | _said(description=call.description)
        case ShellCommand():
            outside = {"outside_sandbox": True} if call.outside else {}
            return ("Bash",), {"command": call.command} | _said(description=call.purpose, cwd=call.cwd) | outside
        case FileWrite():
            return ("Write", "Edit"), {"file_path": call.path, "operation": call.operation} | _said(named=call.named)
        case NetworkConnect():
            scheme = {443: "https", 80: "http"}.get(call.port, "tcp")
            return ("WebFetch",), {"url": f"{scheme}://{call.address}/", "host": call.host, "port": call.port} | _said(
                ip=call.ip
            )
        case McpCall():
            return (f"mcp__{call.server}__{call.tool}",), call.args
        case SpawnCall():
            given = asdict(call)
            more = {name: given[name] for name in ("model", "thinking", "mode", "resume", "tools") if given[name]}
            said = _said(description=call.description, subagent_type=call.agent)
            return ("Task", "Agent", "task"), {"prompt": call.prompt, **said, "run_in_background": call.background, **more}
        case SavedVariables():
            return ("saved_variables",), {"variables": call.variables, "saved_in": call.saved_in}
        case FanOut():
            return ("fan_out",), {"what": call.what, "more": call.more, "figures": call.figures, "bound": call.bound}
        case ToolCall():
            return (call.tool_name,), call.args
        case _:
            return (call.kind,), {name: value for name, value in asdict(call).items() if name != "kind"}


def _said(**texts: str) -> dict[str, Any]:
    return {name: text for name, text in texts.items() if text}


@dataclass(frozen=True)
class Hook:
    """A function that is called at an event.

    The function gets a command's standard input as a dict, and returns a command's output: a dict, or None, which says
    nothing. An `ApprovalDeniedError` that it raises is a denial. It may be `async`; another one is called in a thread.
    With `required` a failure counts as a denial.
    """

    event: HookEvent
    run: Callable[[dict[str, Any]], Any]
    matcher: str = ""
    _: KW_ONLY
    timeout_seconds: float = TIMEOUT_SECONDS
    required: bool = False

    def __post_init__(self) -> None:
        """Check the hook. Raises ConfigError if there is no such event, or the matcher is not a pattern."""
        if self.event not in HOOK_EVENTS:
            raise ConfigError(f"there is no event {self.event!r} for hooks: the events are {', '.join(HOOK_EVENTS)}")
        check_matcher(self.matcher)

    @property
    def label(self) -> str:
        """The name for people."""
        return getattr(self.run, "__qualname__", None) or type(self.run).__name__


async def call_hook(hook: Hook, data: Mapping[str, Any]) -> HookAnswer:
    """Call the function. Its exceptions are the caller's, but for a denial."""
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


AnyHook: TypeAlias = CommandHook | Hook
AT_ONCE: Final = 20
"""Hooks of one root that run at the same time, at most; more wait."""
SLOW_SECONDS: Final = 5.0
"""Seconds of a hook after which a notice tells people about it."""
MAX_TOLD: Final = 20
"""Different sentences about one hook for people, at most."""
LABEL_CHARS: Final = 80

logger = logging.getLogger(__name__)


class HookRunner:
    """The hooks of the agents of one root."""

    def __init__(self, hooks: Iterable[AnyHook], workspace: Path) -> None:
        """Make the runner. Args: hooks: those of all agents."""
        self.hooks = tuple(hooks)
        self._workspace = workspace
        self._told: dict[str, set[str]] = {}
        """Sentences that people have read about each hook."""
        self.renew()

    def renew(self) -> None:
        """Renew everything that belongs to an event loop."""
        self._places = anyio.Semaphore(AT_ONCE, fast_acquire=True)

    async def run(
        self,
        hooks: Sequence[AnyHook],
        event: HookEvent,
        names: Sequence[str],
        data: Callable[[str], Mapping[str, Any]],
        on_notice: Callable[[str], None],
    ) -> HookAnswer | None:
        """Run the hooks of an event that match.

        Args:
            hooks: The hooks that may match.
            event: The event.
            names: The names for matchers.
            data: Makes a hook's input from the name in its matcher.
            on_notice: Shows people failures and texts of hooks.

        Returns:
            Their answer together. None: no hook matches.
        """
        matching = [(hook, name) for hook in hooks if (name := matched(hook, event, names)) is not None]
        if not matching:
            return None
        answers = await asyncio.gather(*(self._run(hook, data(name), on_notice) for hook, name in matching))
        answer = together(answers)
        if answer.notice:
            on_notice(f"a hook says: {answer.notice}")
        return answer

    async def _run(self, hook: AnyHook, data: Mapping[str, Any], on_notice: Callable[[str], None]) -> HookAnswer:
        name = f"the hook `{one_line(hook.label, LABEL_CHARS)}` ({hook.event})"
        waits = f"{name} is still running; it may take {hook.timeout_seconds:g} s"
        async with self._places:
            slow = asyncio.get_running_loop().call_later(SLOW_SECONDS, self._tell, hook, waits, on_notice)
            try:
                answer = await self._in_time(hook, data)
            finally:
                slow.cancel()
        if not answer.failure:
            return answer
        problem = f"{name} failed: {answer.failure}"
        logger.info("%s", problem)  # people read the notice
        self._tell(hook, problem, on_notice)
        return HookAnswer(verdict="deny", reason=f"{problem}, and it is required") if hook.required else HookAnswer()

    def _tell(self, hook: AnyHook, text: str, on_notice: Callable[[str], None]) -> None:
        told = self._told.setdefault(hook.label, set())
        if text not in told and len(told) < MAX_TOLD:
            told.add(text)
            on_notice(text)

    async def _in_time(self, hook: AnyHook, data: Mapping[str, Any]) -> HookAnswer:
        try:
            with anyio.move_on_after(hook.timeout_seconds):
                if isinstance(hook, Hook):
                    return await call_hook(hook, data)
                return await run_command(hook, _wire(data), self._workspace)
        except Exception as error:  # border: whatever a hook raises is its failure
            logger.info("a hook failed", exc_info=True)
            return failed(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
        return failed(f"it took longer than {hook.timeout_seconds:g} s")


def matched(hook: AnyHook, event: HookEvent, names: Sequence[str]) -> str | None:
    """Return the name that a hook's matcher names at an event, if it matches."""
    return first_matched(hook.matcher, names) if hook.event == event else None


def _wire(data: Mapping[str, Any]) -> bytes:
    """Return one object of JSON; values that JSON does not know become text."""
    return json.dumps(data, default=str).encode("ascii") + b"\n"


async def run_command(hook: CommandHook, data: bytes, workspace: Path) -> HookAnswer:
    """Run a command to its end. Args: data: its standard input."""
    if changed := await asyncio.to_thread(hook.changed_scripts):
        return failed(f"{changed[0]} has changed since it was reviewed: start again to review it")
    environment, pipe = {**os.environ, PROJECT_VARIABLE: str(workspace)}, asyncio.subprocess.PIPE
    if hook.scripts or hook.safe_path:
        environment[CACHE_VARIABLE] = str(cache_folder())  # what is compiled beside a script is not looked at
    if hook.safe_path:
        environment[SAFE_VARIABLE] = "1"
    async with guarded_shell(hook.command, workspace, environment, stdin=pipe, stderr=pipe) as process:
        output, errors, _ = await asyncio.gather(_read(process.stdout), _read(process.stderr), _write(process.stdin, data))
        code = await process.wait()
    if len(output) > MAX_OUTPUT_BYTES and output.lstrip().startswith(b"{"):
        return failed(f"it printed more than {MAX_OUTPUT_BYTES:,} bytes")
    texts = (stream.decode(errors="replace") for stream in (output, errors))
    return read_exit(hook.event, code, *texts)


async def _read(stream: asyncio.StreamReader | None) -> bytes:
    kept = bytearray()
    while stream is not None and (data := await stream.read(CHUNK_BYTES)):
        kept += data[: max(0, MAX_OUTPUT_BYTES + 1 - len(kept))]
    return bytes(kept)


async def _write(stream: asyncio.StreamWriter | None, data: bytes) -> None:
    if stream is None:
        return
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it need not read
        stream.write(data)
        await stream.drain()
    stream.close()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        await stream.wait_closed()
