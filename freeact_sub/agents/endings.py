"""Status and sentence of the error that ended a run."""

import re
from typing import Final

from pydantic import ValidationError
from pydantic_ai.exceptions import (
    FallbackExceptionGroup,
    ModelAPIError,
    ModelRetry,
    ToolRetryError,
    UnexpectedModelBehavior,
)
from pydantic_ai.models import Model

from freeact_sub.errors import ApprovalDeniedError, KernelLostError, LimitReachedError
from freeact_sub.events.ending import RunStatus
from freeact_sub.models.failures import failure
from freeact_sub.text import one_line, wrong_fields

MAX_PROBLEM_CHARS: Final = 600
WAY_OUT: Final = "Say in another prompt what it should do instead, or use another model"
_TOOL_TRIED: Final = re.compile(r"Tool (?P<name>.+) exceeded max retries count of (?P<retries>\d+)")
"""pydantic-ai's message about too many tries."""


def status_of(error: Exception) -> RunStatus:
    """Return the status of a run that an error ended."""
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


def sentence(error: Exception, model: Model) -> str:
    """Return one sentence for people; the log has the traceback. Args: model: the run's."""
    is_request = isinstance(error, ModelAPIError | FallbackExceptionGroup)
    return f"the model request failed: {reason(error, model)}" if is_request else reason(error, model)


def reason(error: Exception, model: Model) -> str:
    """Return what went wrong. Args: model: the run's."""
    if isinstance(error, UnexpectedModelBehavior) and (problem := _last_problem(error)):
        return (
            f"{_what_it_did(error.message)}, and was told each time why that cannot be; the last time: {problem}. {WAY_OUT}"
        )
    return failure(error, model)


def _what_it_did(message: str) -> str:
    """Return the reason in a message of pydantic-ai about too many tries of a tool or an answer."""
    if (tool := _TOOL_TRIED.match(message)) is None:
        return "the model gave an answer that cannot be used, again and again"
    return f"the model called the tool {tool['name']} {int(tool['retries']) + 1} times"


def _last_problem(error: BaseException) -> str:
    """Return the problem that the model read last; empty if the run ended for another reason."""
    match error.__cause__:
        case ToolRetryError() as cause:
            content = cause.tool_retry.content
            problem = wrong_fields(content) if isinstance(content, list) else str(content)
        case ModelRetry() as cause:
            problem = cause.message
        case ValidationError() as cause:
            problem = wrong_fields(cause.errors())
        case _:
            problem = ""
    return one_line(problem, MAX_PROBLEM_CHARS).rstrip(".")
