"""Describes a failed model request in one sentence: status, model, the server's words, the way out."""

import json
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
    ModelHTTPError,
    ModelNotFoundError,
    ModelQuotaExceededError,
    ModelRequestTimeout,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.models import Model
from pydantic_ai.providers import infer_provider_class

from freeact_sub.config.network_variables import proxy_for
from freeact_sub.errors import FreeactError
from freeact_sub.models.observers import models_in
from freeact_sub.models.traffic import busy, passes
from freeact_sub.text import one_line

WORDS_CHARS: Final = 300
"""The characters of a server's message that are shown."""
KEY_CHARS: Final = 6
"""A shorter key, such as `x` for a server of one's own, is no secret, and may be part of any word."""
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
"""The environment variables of keys that are not named after their provider."""
_PAGE: Final = re.compile(r"\s*<[a-zA-Z!?/]")
"""How a page begins, which is for browsers."""


def failure(error: Exception, model: Model) -> str:
    """Describes an error, without keys that a server repeats. Args: model: the model whose request failed."""
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
            said = words_of(error.body)
            return f"{error.model_name} answered {error.status_code}{said and f' ({said})'}: {_way_out(error, model)}"
        case ModelRequestTimeout():
            return f"{error} (setting `{error.setting}{'_seconds' * (error.setting == 'first_event_timeout')}`)"
        case ModelAPIError():
            said = words_of(error.body) or one_line(error.message, WORDS_CHARS)
            return f"{error.model_name}: {_unreachable(error, model) or said}"
        case UnexpectedModelBehavior():
            said = words_of(error.body)
            return f"{type(error).__name__}: {error.message}{said and f' ({said})'}"
        case FreeactError() | UserError():
            return str(error)
    return f"{type(error).__name__}: {error}"


def is_expected(error: Exception) -> bool:
    """Whether its sentence says all: no traceback is needed, as of a bug in a program, a tool, a tap or here."""
    return isinstance(error, FreeactError | AgentRunError | UserError | FallbackExceptionGroup)


def words_of(body: object) -> str:
    """The message in the body of a server's error; empty if there is none for people."""
    if isinstance(body, bytes | str):
        try:
            body = json.loads(body)
        except ValueError:
            text = body.decode(errors="replace") if isinstance(body, bytes) else str(body)
            return "" if _PAGE.match(text) else one_line(text, WORDS_CHARS)
    if isinstance(body, list | tuple):
        return next((said for item in body if (said := words_of(item))), "")
    if isinstance(body, dict):
        known: dict[Any, Any] = body
        return next((said for name in ("message", "error", "detail", "msg") if (said := words_of(known.get(name)))), "")
    return "" if body is None else one_line(str(body), WORDS_CHARS)


def key_of(model: Model) -> str | None:
    """The environment variable with the key of a model's provider. None: the provider is not known."""
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
    """Whether the server of an address is on this machine or in its network, so that its user may start it."""
    host = urlsplit(address).hostname or ""
    try:
        return not ip_address(host).is_global
    except ValueError:
        return "." not in host or host.endswith((".local", ".localhost", ".internal", ".lan"))
