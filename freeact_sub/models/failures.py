"""Reads failed model requests: whether to make one again, and one sentence for people.

- `busy`, `passes`: the same request may well succeed, after a pause or at once.
- `is_overflow`, `refuses_tools`: the server refuses it for good, as it is too long or offers tools. Each server has its own
  words. Status and code tell first, and then few words: something (tokens, a context, a prompt, a length) is too much or
  too long. A request taken for too long by mistake is made once more, with less in it, and the error that follows quotes the
  server.
- `failure`: status, model, the server's words, the way out.
"""

import os
import re
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic_ai.exceptions import (
    AgentRunError,
    FallbackExceptionGroup,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestTimeout,
    ModelTimeoutError,
    ModelUnavailableError,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.models import Model
from pydantic_ai.providers import infer_provider_class

from freeact_sub.config.network_variables import proxy_for
from freeact_sub.errors import FreeactError
from freeact_sub.models.observers import models_in
from freeact_sub.text import ERROR_CHARS, error_words, one_line

NOTHING_CAME: Final = "Streamed response ended without content"
"""Beginning of the message of pydantic-ai's error for an empty stream, for all providers."""
KEY_CHARS: Final = 6
"""Smallest length of a secret key: `x`, for a server of one's own, may be part of any word."""
KEYS: Final = {
    "azure": "AZURE_OPENAI_API_KEY",
    "bedrock": "AWS_BEARER_TOKEN_BEDROCK",
    "cohere": "CO_API_KEY",
    "google-cloud": "GOOGLE_API_KEY",
    "heroku": "HEROKU_INFERENCE_KEY",
    "huggingface": "HF_TOKEN",
    "snowflake": "SNOWFLAKE_TOKEN",
    "vercel": "VERCEL_AI_GATEWAY_API_KEY",
}
"""Environment variables of keys that are not named after their provider."""
_BUSY: Final = (429, 503, 529)
_PASSING: Final = (408, 409, 425)
_LASTING: Final = (501, 505, 511)
"""Statuses of servers' errors that last."""
_TOO_LARGE: Final = 413
_STATUSES: Final = (400, 413, 422, 500)
"""Statuses of answers whose words are read. 429 is about a time, and 401 to 404 about a key or a name."""
_CODE: Final = re.compile(
    r"(?i)context_?(?:length|size|window)|(?:prompt|input|request|message|string|tokens?)\w*_(?:too_l\w+|exceed\w*|limit\w*)"
)
"""Codes and types of errors about a length."""
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
"""Wording of Ollama, llama-server and vLLM."""


def failure(error: Exception, model: Model) -> str:
    """Describe an error, without keys that a server repeats. Args: model: the model whose request failed."""
    described = _described(error, model)
    for name in filter(None, map(key_of, models_in(model))):
        key = os.environ.get(name, "").strip()
        described = described.replace(key, f"${name}") if len(key) >= KEY_CHARS else described
    return described


def _described(error: Exception, model: Model) -> str:
    match error:
        case FallbackExceptionGroup(exceptions=errors):
            return "no model answered: " + "; ".join(failure(inner, model) for inner in errors)
        case ModelHTTPError():
            said = error_words(error.body)
            return f"{error.model_name} answered {error.status_code}{said and f' ({said})'}: {_way_out(error, model)}"
        case ModelRequestTimeout():
            return f"{error} (setting `{error.setting}{'_seconds' * (error.setting == 'first_event_timeout')}`)"
        case ModelAPIError():
            said = error_words(error.body) or one_line(error.message, ERROR_CHARS)
            return f"{error.model_name}: {_unreachable(error, model) or said}"
        case UnexpectedModelBehavior():
            said = error_words(error.body)
            return f"{type(error).__name__}: {error.message}{said and f' ({said})'}"
        case FreeactError() | UserError():
            return str(error)
    return f"{type(error).__name__}: {error}"


def is_expected(error: Exception) -> bool:
    """Whether a sentence tells all of an error, without the traceback of a bug in a program, a tool, a tap or here."""
    return isinstance(error, FreeactError | AgentRunError | UserError | FallbackExceptionGroup)


def key_of(model: Model) -> str | None:
    """Return the environment variable with the key of a model's provider, if that is known."""
    try:
        infer_provider_class(model.system)
    except ImportError:
        pass  # known, and not installed
    except ValueError:
        return None
    return KEYS.get(model.system) or f"{model.system.upper().replace('-', '_')}_API_KEY"


def _way_out(error: ModelHTTPError, model: Model) -> str:
    named = [inner for inner in models_in(model) if inner.model_name == error.model_name]
    if isinstance(error, ModelAuthenticationError) or error.status_code in (401, 403):
        keys = dict.fromkeys(key for inner in named if (key := key_of(inner)))
        where = f"the environment variable {' or '.join(keys)}" if keys else "the key of its provider"
        return f"check {where}, and that this key may use the model"
    if isinstance(error, ModelQuotaExceededError):
        return "the quota of the account is used up; name another model in `fallback_models`, or raise the quota"
    if busy(error) is not None:
        asked = error.retry_after
        waits = "stays busy" if asked is None else f"asks for a wait of {asked:,.0f} seconds (Retry-After)"
        return f"its provider {waits}; try again later, name a model in `fallback_models`, or raise `rate_limit_seconds`"
    if isinstance(error, ModelNotFoundError) or error.status_code == 404:
        meant = f" (did you mean {error.suggested_model_id!r}?)" if error.suggested_model_id else ""
        return f"check the names in `model` and `models`{meant}, and `base_url`"
    if passes(error) or error.status_code >= 500:
        return "the server failed; try again, or name another model in `fallback_models`"
    return f"the server does not take the request; {error.hint or 'check `model_settings`'}"


def _unreachable(error: Exception, model: Model) -> str:
    if not isinstance(error, ModelConnectionError) or error.phase != "connect":
        return ""
    address = next((inner.base_url for inner in models_in(model) if inner.model_name == error.model_name), None)
    if address and (proxy := proxy_for(address)):
        return (
            f"{address} cannot be reached through the proxy {proxy}: correct or unset the environment variable that names "
            "the proxy, or add the host to NO_PROXY"
        )
    if address and not is_near(address):
        return f"{address} cannot be reached: check your network connection, a proxy and `base_url`, or name another model"
    return f"no server answers at {address or 'its address'}: start it, correct `base_url`, or name another model"


def is_near(address: str) -> bool:
    """Whether an address is on this machine or in its network, so that its user may start the server."""
    host = urlsplit(address).hostname or ""
    try:
        return not ip_address(host).is_global
    except ValueError:
        return "." not in host or host.endswith((".local", ".localhost", ".internal", ".lan"))


def busy(error: Exception) -> ModelAPIError | None:
    """Return the error of a busy provider, if there is one; for fallback models only if all are busy."""
    if isinstance(error, FallbackExceptionGroup):
        refusals = [busy(inner) for inner in error.exceptions]
        return min(refusals, key=lambda one: (one and one.retry_after) or 0) if all(refusals) else None
    if isinstance(error, ModelQuotaExceededError) or not isinstance(error, ModelAPIError):
        return None
    if isinstance(error, ModelRateLimitError | ModelUnavailableError):
        return error
    return error if isinstance(error, ModelHTTPError) and error.status_code in _BUSY else None


def passes(error: Exception) -> bool:
    """Whether a repeated request may well succeed."""
    if isinstance(error, ModelHTTPError):
        is_passing = error.status_code in _PASSING or (error.status_code >= 500 and error.status_code not in _LASTING)
        return is_passing and error.provider_retry_hint is not False and not refuses_tools(error)
    return isinstance(error, ModelConnectionError) and not isinstance(error, ModelTimeoutError)


def reason_of(error: Exception) -> str:
    """Return the reason to make a request again, for people."""
    if isinstance(error, ModelHTTPError) and not error.in_stream:
        return f"the server failed ({error.status_code})"
    if isinstance(error, ModelConnectionError) and error.phase == "connect":
        return "the server cannot be reached"
    return "the reply broke off"


def has_nothing(error: Exception) -> bool:
    """Whether the stream of an answer has ended empty."""
    return isinstance(error, UnexpectedModelBehavior) and error.message.startswith(NOTHING_CAME)


def is_overflow(error: ModelAPIError) -> bool:
    """Whether the server says that the request is too long for the model's context."""
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
    words = _all_error_words(error.body) or error.message
    if _TOO_LARGE_WORDS.search(words):
        return True
    words = _ARGUMENT.sub(" ", words)
    return _SIZED.search(words) is not None and _COMPARED.search(words) is not None


def refuses_tools(error: ModelAPIError) -> bool:
    """Whether the server says that the model, or the way in which it is served, knows no tools."""
    return _NO_TOOLS.search(str(error)) is not None


def context_of(error: ModelAPIError) -> int | None:
    """Return the size of the context, if the server tells it."""
    size = error.body.get("n_ctx") if isinstance(error.body, dict) else None
    return size if isinstance(size, int) else None


def _codes_of(error: ModelAPIError) -> list[str]:
    codes = [
        error.provider_error_code,
        error.provider_error_type,
        *_values_named(error.body, ("code", "type", "error_type", "status")),
    ]
    return [str(code) for code in codes if code]


def _all_error_words(body: object) -> str:
    """Return all texts under names for messages, in a body of any shape."""
    return (
        body
        if isinstance(body, str)
        else " ".join(map(str, _values_named(body, ("message", "error", "detail", "msg", "raw"))))
    )


def _values_named(body: Any, names: tuple[str, ...], depth: int = 4) -> list[Any]:
    if depth == 0:
        return []
    if isinstance(body, list | tuple):
        return [found for item in body for found in _values_named(item, names, depth - 1)]
    if not isinstance(body, dict):
        return []
    here = [value for name, value in body.items() if name in names and isinstance(value, str | int)]
    return here + [found for value in body.values() for found in _values_named(value, names, depth - 1)]
