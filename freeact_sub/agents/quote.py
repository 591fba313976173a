"""What a model request may use at most: an estimate, made before the request from what it will carry.

Input is what the provider counted for the conversation so far, and for what is new (or for all of it, at the beginning) one
token for three bytes, which is more than tokenizers make of text or code. A picture counts as `IMAGE_TOKENS`. Output is
bounded by `max_tokens`, which the request carries to the provider.
"""

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final, cast

from pydantic_ai.messages import BinaryContent, ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from freeact_sub.agents.ledger import SALVAGE_OUTPUT_TOKENS, Account, Quote

OUTPUT_TOKENS: Final = 4_096
"""`max_tokens` of a request under a budget where the settings name none; models that are in use can answer that much."""
IMAGE_TOKENS: Final = 1_600
OVERHEAD_TOKENS: Final = 64
"""Roles and separators, of which providers tell nothing."""
BYTES_PER_TOKEN: Final = 3


def quote_for(account: Account, request: ModelRequestContext, *, salvage: bool, last: bool = False) -> Quote:
    """Estimate a request. Where neither tokens nor money are bounded there is nothing to estimate.

    Args:
        account: Of the agent that makes the request.
        request: What will be sent.
        salvage: A last report may follow at a limit.
        last: This is the last report.
    """
    if not account.counts_amounts:
        return Quote(input_tokens=0, output_tokens=0)
    settings: Any = request.model_settings or {}
    wanted = int(settings.get("max_tokens") or OUTPUT_TOKENS)
    priced = any(above.budget.cost_usd is not None for above in account.chain())
    return Quote(
        input_tokens=estimate_input(request),
        output_tokens=min(wanted, SALVAGE_OUTPUT_TOKENS * 2) if last else wanted,
        price=price_of(request.model) if priced else lambda _input, _output: None,
        held_output_tokens=SALVAGE_OUTPUT_TOKENS if salvage and not last else 0,
    )


def with_max_tokens(request: ModelRequestContext, output_tokens: int) -> ModelSettings:
    """The request's settings, in which the provider is told the bound."""
    return cast("ModelSettings", {**(request.model_settings or {}), "max_tokens": output_tokens})


def estimate_input(request: ModelRequestContext) -> int:
    """An upper estimate of the tokens that a request sends."""
    known, new = _counted(request.messages)
    size = sum(_size(part) for message in new for part in message.parts)
    if not known:
        parameters = request.model_request_parameters
        size += sum(len(part.content.encode()) for part in parameters.instruction_parts or [])
        for tool in (*parameters.function_tools, *parameters.output_tools):
            size += len(json.dumps(tool.parameters_json_schema)) + len(tool.name) + len(tool.description or "")
    return known + size // BYTES_PER_TOKEN + OVERHEAD_TOKENS * (1 + len(new))


def price_of(model: Model) -> Callable[[int, int], Decimal | None]:
    """The price of so much input and output; of models that stand in for each other, the highest."""
    models = _models_in(model)

    def price(input_tokens: int, output_tokens: int) -> Decimal | None:
        usage = RequestUsage(input_tokens=input_tokens, output_tokens=output_tokens)
        prices = [_price(inner, usage) for inner in models]
        known = [one for one in prices if one is not None]
        return max(known) if len(known) == len(prices) else None

    return price


def _models_in(model: Model) -> tuple[Model, ...]:
    if isinstance(model, FallbackModel):
        return tuple(inner for one in model.models for inner in _models_in(one))
    return _models_in(model.wrapped) if isinstance(model, WrapperModel) else (model,)


def _price(model: Model, usage: RequestUsage) -> Decimal | None:
    """By provider and name; by the name alone for a model that stands for another."""
    for provider in (model.system, None):
        response = ModelResponse(parts=[], usage=usage, model_name=model.model_name, provider_name=provider)
        response.provider_url = model.base_url
        try:
            return response.cost().total_price
        except (LookupError, ValueError):
            continue
    return None


def _counted(messages: Sequence[ModelMessage]) -> tuple[int, Sequence[ModelMessage]]:
    """What the provider has counted of the conversation, and the messages that have come since."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, ModelResponse) and message.usage.input_tokens:
            return message.usage.input_tokens + message.usage.output_tokens, messages[index + 1 :]
    return 0, messages


def _size(part: Any) -> int:
    """Bytes of what a part says, as text; a picture as the bytes of so many tokens."""
    if hasattr(part, "args_as_json_str"):
        return len(part.args_as_json_str().encode()) + len(part.tool_name)
    content = getattr(part, "content", "")
    items = content if isinstance(content, list | tuple) else [content]
    return sum(_item_size(item) for item in items)


def _item_size(item: Any) -> int:
    if isinstance(item, BinaryContent):
        return IMAGE_TOKENS * BYTES_PER_TOKEN
    return len((item if isinstance(item, str) else str(item)).encode(errors="replace"))
