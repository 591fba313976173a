"""Exceptions of the package, in one tree.

::

    FreeactError
    ├── ConfigError          a setting, key, model name or file is wrong; the message names it and the way out
    │   └── UntrustedError   nobody has reviewed settings in the workspace
    ├── AgentBusyError       a second run was started on an agent that still runs
    ├── KernelError
    │   ├── KernelStartError the kernel did not start
    │   │   ├── UnusablePythonError  a Python cannot run kernels; the message says why
    │   │   └── KernelBranchError  a live kernel cannot be branched; the message says why
    │   ├── KernelSnapshotError  variables of a kernel could not be saved or restored
    │   ├── KernelValueError  a variable cannot be taken out of a kernel, or is not of the requested type
    │   └── KernelLostError  the kernel's process ended while it was needed
    ├── McpError             an MCP server did not start, or one of its tools failed
    ├── ContextOverflowError the conversation does not fit into the model's context
    ├── ApprovalDeniedError  a person or a rule denied a call; carries the reason
    ├── SpawnForbiddenError  a child may not be started; the message names the limit and its setting
    ├── SessionError         a session does not exist, or cannot be read or removed; the message names it
    │   └── SessionBusyError it is open elsewhere
    ├── InvalidRequestError  code in a kernel asked for something with wrong arguments; the message names them
    ├── TaskError            a run or a child that a program waits for did not complete; carries its result
    ├── StrategyError        a strategy found no answer; the message says why
    └── LimitReachedError    a budget is used up; carries its name, the amount and the bound

Errors carry values, so that no code has to read their text.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from pathlib import Path
from typing import Any, Final


class FreeactError(Exception):
    """Base of all errors raised by this package."""


SENTENCE_CHARS: Final = 2000
SHOWN_FILES: Final = 10
"""The number of files that a message names."""


def sentence(text: str) -> str:
    """Return the text as one printable line; an overlong text loses its middle."""
    if len(text) > SENTENCE_CHARS:
        text = f"{text[: SENTENCE_CHARS // 2]} […] {text[-SENTENCE_CHARS // 2 :]}"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


_of_options = ContextVar("_of_options", default=False)


@contextmanager
def speaking_of_options() -> Iterator[None]:
    """Let errors name options (`--mode auto`), as the command line and the notebook's magics take them, not arguments."""
    token = _of_options.set(True)
    try:
        yield
    finally:
        _of_options.reset(token)


def way(argument: str, option: str) -> str:
    """Return the way out for the reader. Args: argument: in a program. option: on the command line."""
    return option if _of_options.get() else argument


class ConfigError(FreeactError):
    """A setting is invalid. The message names it and the way out, in one line."""

    def __init__(self, message: str) -> None:
        super().__init__(sentence(message))


class UntrustedError(ConfigError):
    """Settings files of the workspace are new or have changed since a person last reviewed them.

    Attributes:
        files: Their contents, by path.
        headless: The settings forbid asking a person.
        rest: Settings without them. None: not only instructions, commands and skills are untrusted.
    """

    def __init__(self, files: Mapping[Path, bytes], *, headless: bool, rest: Mapping[str, Any] | None = None) -> None:
        more = max(0, len(files) - SHOWN_FILES)
        names = ", ".join([*map(str, islice(files, SHOWN_FILES)), *([f"and {more:,} more"] if more else ())])
        super().__init__(
            f"settings in the workspace are new or have changed since a person last reviewed them: {names}: "
            f"review them, then {way('give load_config a Trust that holds them', 'pass --trust')} "
            "(an agent's code may have written them)"
        )
        self.files = dict(files)
        self.headless = headless
        self.rest = rest


class AgentBusyError(FreeactError):
    """A second run was started on an agent that still runs one."""


class KernelError(FreeactError):
    """A kernel failed."""


class KernelStartError(KernelError):
    """The kernel's process did not become ready.

    Attributes:
        log: The tail of the process's standard output and error.
    """

    def __init__(self, message: str, *, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class UnusablePythonError(KernelStartError):
    """The Python that is to run kernels cannot; the message says why."""


class KernelBranchError(KernelStartError):
    """A live kernel cannot be branched; the message says why."""


class KernelSnapshotError(KernelError):
    """The variables of a kernel could not be saved or restored; the message says why. An earlier snapshot is unaffected."""


class KernelValueError(KernelError):
    """A variable does not exist, cannot be taken out of its kernel, or has the wrong type; the message says why."""


class KernelLostError(KernelError):
    """The kernel's process ended while it was needed; its variables are gone."""


class WorkspaceConflictError(FreeactError):
    """A node's changes cannot be promoted, because the workspace has changed in the same places. Nothing was written."""

    def __init__(self, conflicts: Sequence[str]) -> None:
        """Make the error. Args: conflicts: paths, relative to the workspace."""
        shown = ", ".join(conflicts[:10]) + (f" and {len(conflicts) - 10} more" if len(conflicts) > 10 else "")
        super().__init__(f"the workspace and the node have both changed {shown}; nothing was written")
        self.conflicts = tuple(conflicts)


class McpError(FreeactError):
    """An MCP server could not be reached, or a tool call on it failed.

    Attributes:
        server: The server's name in `mcp.json`.
    """

    def __init__(self, message: str, *, server: str) -> None:
        super().__init__(message)
        self.server = server


class ContextOverflowError(FreeactError):
    """The conversation does not fit into the model's context, and no long output is left to shorten.

    Attributes:
        context_tokens: The size of the context. None: the server does not report it.
        said: The server's words. Empty: it has none for people.
    """

    def __init__(self, *, context_tokens: int | None = None, said: str = "") -> None:
        size = "" if context_tokens is None else f" of {context_tokens:,} tokens"
        quoted = f" (the server: {said})" if said else ""
        super().__init__(
            f"the conversation does not fit into the model's context{size}, and no long output is left to shorten: "
            f"begin a new conversation, ask for less at a time, or serve the model with a larger context{quoted}"
        )
        self.context_tokens = context_tokens
        self.said = said


class ApprovalDeniedError(FreeactError):
    """A call was denied.

    Attributes:
        reason: The reason in the words of the person, rule or hook that denied it.
        ends_run: Whether the run ends as well, as with `on_denial = "end"`.
    """

    def __init__(self, reason: str, *, ends_run: bool = False) -> None:
        super().__init__(f"denied: {reason}" if reason else "denied")
        self.reason, self.ends_run = reason, ends_run


class NoAnswerError(FreeactError):
    """A question to a person was not answered; the message says why."""


class SpawnForbiddenError(FreeactError):
    """A child may not be started. The message names the limit and its setting."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"forbidden: {reason}")


class SessionError(FreeactError):
    """A session does not exist, or cannot be read, written or removed. The message names it and the way out."""


def no_such_session(session_id: str) -> SessionError:
    """Return the error for an id that no session has."""
    listed = way("list_sessions() returns the sessions", "`freeact-sub sessions list` lists the sessions")
    return SessionError(f"there is no session {session_id!r}: {listed}")


class SessionBusyError(SessionError):
    """A session is open elsewhere.

    Attributes:
        session_id: The session.
        holder: The id of the process that holds it. Empty: unknown.
    """

    def __init__(self, session_id: str, holder: str = "") -> None:
        where = f" (process {holder})" if holder else ""
        attach = (
            f"freeact-sub attach {session_id} shows a conversation of another terminal; without --continue a new one starts"
        )
        another = way("Agent(session='new') starts a new one", attach)
        super().__init__(
            f"the session {session_id} is open in another program{where}: continue there, or end that program; {another}"
        )
        self.session_id, self.holder = session_id, holder


class InvalidRequestError(FreeactError):
    """A model, or code in a kernel, called something with wrong arguments; the message names them."""


class TaskError(FreeactError):
    """A run or a child did not complete, so it has no answer.

    Attributes:
        result: The `RunResult`: `status` and `error` say why, and `text` is the last text of its model.
    """

    def __init__(self, result: Any) -> None:
        super().__init__(f"the run of {result.agent_id or 'the agent'} did not complete ({result.status}): {result.error}")
        self.result = result


class StrategyError(FreeactError):
    """A strategy found no answer; the message says why."""


CELL_SECONDS: Final = "cell_seconds"
"""The limit on the time of a cell (setting `kernel.cell_timeout_seconds`), which is in no budget."""


class LimitReachedError(FreeactError):
    """A budget is used up.

    Attributes:
        limit: The budget's field, for example `turns`; `output` if a model's reply was too long; `CELL_SECONDS`.
        amount: The amount spent.
        bound: The amount allowed.
        owner: The agent whose budget it is.
        needed: An estimate of what one more request takes. None: unknown.
    """

    def __init__(
        self,
        limit: str,
        *,
        amount: float = 0,
        bound: float = 0,
        owner: str = "",
        setting: str = "",
        why: str = "",
        needed: float | None = None,
    ) -> None:
        """Make the error. Args: setting: the setting of the bound. why: replaces amount and bound in the text if unknown."""
        whose = f", in the budget of {owner}" if owner else ""
        whose += f" (setting {setting})" if setting else ""
        rest = "; the rest is too little for one more request" if amount < bound else ""
        if needed is not None and amount < bound:
            rest = f"; the next request needs about {_plain(needed)}"
        super().__init__(f"the limit of {limit} is reached: " + (why or f"{_plain(amount)} of {_plain(bound)}{whose}{rest}"))
        self.limit = limit
        self.amount = amount
        self.bound = bound
        self.owner = owner
        self.needed = needed


def _plain(number: float) -> str:
    return f"{number:,.6f}".rstrip("0").rstrip(".")
