"""Every exception of the package, in one tree.

::

    FreeactError
    ├── ConfigError          a setting, key, model name or file is wrong; the text names it and the way out
    │   └── UntrustedError   nobody has looked at settings that stand in the workspace
    ├── AgentBusyError       a second run was started on an agent that still runs
    ├── KernelError
    │   ├── KernelStartError the kernel did not come up
    │   │   └── KernelBranchError  a live kernel cannot be branched; the text says why
    │   └── KernelLostError  the kernel's process ended while it was needed
    ├── McpError             an MCP server did not start, or one of its tools failed
    ├── ContextOverflowError the conversation does not fit into the model's context
    ├── ApprovalDeniedError  a person or a rule said no; carries the reason
    ├── SpawnForbiddenError  a child may not be started; the text names the limit and its setting
    ├── InvalidRequestError  code in a kernel asked for something with wrong arguments; the text names them
    └── LimitReachedError    a budget is used up; carries its name, the amount and the bound

Errors carry values. Nobody reads an error's text to learn what happened.
"""

from collections.abc import Mapping
from pathlib import Path


class FreeactError(Exception):
    """Base of all errors raised by this package."""


class ConfigError(FreeactError):
    """A setting is wrong. The message names it and says what to do."""


class UntrustedError(ConfigError):
    """Files of the workspace that decide what runs are new, or have changed since somebody looked at them.

    Attributes:
        files: What was found in them, by path.
        headless: The settings say that nobody is to be asked.
    """

    def __init__(self, files: Mapping[Path, bytes], *, headless: bool) -> None:
        names = ", ".join(str(path) for path in files)
        super().__init__(
            f"settings in the workspace are new or have changed, and nobody has looked at them since: {names}: "
            "look at them, then say --trust (code of an agent may have written them)"
        )
        self.files = dict(files)
        self.headless = headless


class AgentBusyError(FreeactError):
    """An agent runs one prompt at a time; a second run was asked for."""


class KernelError(FreeactError):
    """A kernel could not do what was asked."""


class KernelStartError(KernelError):
    """The kernel's process did not become ready.

    Attributes:
        log: The tail of what the process wrote to its standard output and error.
    """

    def __init__(self, message: str, *, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class KernelBranchError(KernelStartError):
    """A live kernel could not be branched: it is not safe, or not possible; the text says why."""


class KernelLostError(KernelError):
    """The kernel's process ended while it was needed; its variables are gone."""


class McpError(FreeactError):
    """An MCP server could not be reached, or a tool call on it failed.

    Attributes:
        server: The server's name in `mcp.json`.
    """

    def __init__(self, message: str, *, server: str) -> None:
        super().__init__(message)
        self.server = server


class ContextOverflowError(FreeactError):
    """The conversation does not fit into the model's context, also with the outputs of its calls shortened.

    Attributes:
        context_tokens: The size of the context. None: the server does not tell it.
    """

    def __init__(self, *, context_tokens: int | None = None) -> None:
        size = "" if context_tokens is None else f" of {context_tokens:,} tokens"
        super().__init__(
            f"the conversation does not fit into the model's context{size}, also with the outputs of cells shortened: "
            "begin a new conversation, ask for less at a time, or serve the model with a larger context"
        )
        self.context_tokens = context_tokens


class ApprovalDeniedError(FreeactError):
    """A call was denied.

    Attributes:
        reason: Why, in the words of the person or rule that decided.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"denied: {reason}" if reason else "denied")
        self.reason = reason


class SpawnForbiddenError(FreeactError):
    """A child may not be started. The message names the limit and its setting."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"forbidden: {reason}")


class InvalidRequestError(FreeactError):
    """Something was asked for with wrong arguments, by a model or by code in a kernel; the text names them."""


class LimitReachedError(FreeactError):
    """A budget is used up.

    Attributes:
        limit: Name of the budget's field, for example `turns`.
        amount: What was spent.
        bound: What was allowed.
        owner: The agent whose budget it is.
    """

    def __init__(self, limit: str, *, amount: float, bound: float, owner: str = "") -> None:
        whose = f", in the budget of {owner}" if owner else ""
        rest = "; the rest is too little for one more request" if amount < bound else ""
        super().__init__(f"the limit of {limit} is reached: {_plain(amount)} of {_plain(bound)}{whose}{rest}")
        self.limit = limit
        self.amount = amount
        self.bound = bound
        self.owner = owner


def _plain(number: float) -> str:
    return f"{number:,.6f}".rstrip("0").rstrip(".")
