"""Reads what a server says when it refuses a request for good: it is too long, or it offers tools.

Each server has its own words. Status and code tell first, and then few words: of what (tokens, a context, a prompt, a
length) there is too much. A request that is taken for too long by mistake is made once more, with less in it, and the error
that follows quotes the server.
"""

import re
from typing import Any, Final

from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelRequestTimeout,
)

_TOO_LARGE: Final = 413
_STATUSES: Final = (400, 413, 422, 500)
"""Of answers whose words are read. 429 is about a time, and 401 to 404 about a key or a name."""
_CODE: Final = re.compile(
    r"(?i)context_?(?:length|size|window)|(?:prompt|input|request|message|string|tokens?)\w*_(?:too_l\w+|exceed\w*|limit\w*)"
)
"""The codes and types of errors about a length."""
_ARGUMENT: Final = re.compile(r"`[^`\n]*`|\b\w+_\w+\b|\b(?:output|completion)\s+tokens?\b", re.IGNORECASE)
"""The name of an argument, such as `max_tokens`, and the length of an answer."""
_SIZED: Final = re.compile(r"(?i)\b(?:tokens|token\s+(?:count|limit)|context|prompt|length|input\s+is|inputs?\s+tokens?)\b")
_COMPARED: Final = re.compile(
    r"""(?ix)
    exceed | over(?:flow|\sthe) | too\s(?:long|large|many|big) | (?:great|larg|long|bigg|high|few|short)er\sthan
    | (?:less|more)\sthan | at\smost | \bmax(?:imum|imal)?\b | \blimit | <=? | >=? | ≤ | ≥ | must\sbe | should\sbe
    | \breduce\b | \brange\b | \bfit\b
    | \d{3}
    """
)
_TOO_LARGE_WORDS: Final = re.compile(r"(?i)(?:body|payload|entity|request)\s(?:is\s)?too\slarge|input\sis\stoo\slong|超长")
_NO_TOOLS: Final = re.compile(
    r"(?i)does not support (?:tools|function)|tools? (?:param|use|calling)[^.]*(?:requires|not supported|--jinja)"
    r"|tool[ -]choice requires|enable-auto-tool-choice"
)
"""The wording of Ollama, llama-server and vLLM."""


def is_overflow(error: ModelAPIError) -> bool:
    """The server says that the request is too long for the model's context."""
    if isinstance(error, ModelContextWindowExceededError):
        return True
    if isinstance(error, ModelConnectionError | ModelRequestTimeout):
        return False
    status = error.status_code if isinstance(error, ModelHTTPError) else None
    if status == _TOO_LARGE:
        return True
    if status is not None and status not in _STATUSES:
        return False
    if any(_CODE.search(code) for code in _codes_of(error)):
        return True
    words = _words_of(error.body) or error.message
    if _TOO_LARGE_WORDS.search(words):
        return True
    words = _ARGUMENT.sub(" ", words)
    return _SIZED.search(words) is not None and _COMPARED.search(words) is not None


def refuses_tools(error: ModelAPIError) -> bool:
    """The server says that the model, or the way in which it is served, knows no tools."""
    return _NO_TOOLS.search(str(error)) is not None


def context_of(error: ModelAPIError) -> int | None:
    """The size of the context, where the server tells it."""
    size = error.body.get("n_ctx") if isinstance(error.body, dict) else None
    return size if isinstance(size, int) else None


def _codes_of(error: ModelAPIError) -> list[str]:
    codes = [
        error.provider_error_code,
        error.provider_error_type,
        *_named(error.body, ("code", "type", "error_type", "status")),
    ]
    return [str(code) for code in codes if code]


def _words_of(body: object) -> str:
    """All texts under names for messages, in a body of any shape."""
    return body if isinstance(body, str) else " ".join(map(str, _named(body, ("message", "error", "detail", "msg", "raw"))))


def _named(body: Any, names: tuple[str, ...], depth: int = 4) -> list[Any]:
    """The texts and numbers that have one of these names, at any depth."""
    if depth == 0:
        return []
    if isinstance(body, list | tuple):
        return [found for item in body for found in _named(item, names, depth - 1)]
    if not isinstance(body, dict):
        return []
    here = [value for name, value in body.items() if name in names and isinstance(value, str | int)]
    return here + [found for value in body.values() for found in _named(value, names, depth - 1)]
