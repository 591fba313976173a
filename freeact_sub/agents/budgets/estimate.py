"""Estimates, before a model request, what it may use at most, and what fills the window of the model.

Input is the provider's count of the conversation so far plus one token for three bytes of everything new, which is more than
tokenizers produce for text or code. A picture counts as `IMAGE_TOKENS`. Output is bounded by `max_tokens`, which the request
carries to the provider.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, Self, cast

from pydantic_ai.messages import BinaryContent, ModelMessage, ModelResponse, ToolReturnPart
from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from freeact_sub.config.budget import Usage
from freeact_sub.models.observers import models_in

OUTPUT_TOKENS: Final = 4_096
"""`max_tokens` of a request under a budget if the settings name none; current models can answer that much."""
REPORT_TOKENS: Final = 512
"""Reserved for the text of a last report."""
IMAGE_TOKENS: Final = 1_600
OVERHEAD_TOKENS: Final = 64
"""For roles and separators, which providers do not report."""
BYTES_PER_TOKEN: Final = 3
OUTDATED: Final = "freeact_sub_outdated_count"
"""Mark in the metadata of responses, see `outdated`."""
LEAST_COUNT: Final = 0.6
"""The least share of our estimate that a provider's count must reach; a lower one, such as new tokens only, is ignored."""


@dataclass(frozen=True, kw_only=True)
class Amount:
    """Quantities that are bounded for a whole subtree and known only after a request; `Budget` and `Usage` have them too."""

    tokens: int = 0
    cost_usd: Decimal = Decimal(0)

    @classmethod
    def of(cls, usage: Usage) -> Self:
        """The same part of a usage; what is not known counts as nothing."""
        return cls(**{name: known for name in AMOUNTS if (known := getattr(usage, name)) is not None})

    def __add__(self, other: Self) -> Self:
        return replace(self, **{name: getattr(self, name) + getattr(other, name) for name in AMOUNTS})

    def __sub__(self, other: Self) -> Self:
        return replace(self, **{name: getattr(self, name) - getattr(other, name) for name in AMOUNTS})


AMOUNTS: Final = tuple(amount.name for amount in fields(Amount))
"""Bounds whose use is known only after a request."""
NOTHING: Final = Amount()
LEAST: Final = Amount(tokens=256)
"""A request that could not answer even this much is not made."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """An upper bound on the usage of a request."""

    input_tokens: int = 0
    output_tokens: int = 0
    price: Callable[[int, int], Decimal | None] = field(default=lambda _input, _output: None)
    """The price of input and output tokens. None: unknown."""
    report_tokens: int = 0
    """The output reserved for a last report that may follow at a limit. 0: none follows."""

    def amount(self, output_tokens: int) -> Amount:
        """Return what the request takes with this much output."""
        return self._of(self.input_tokens, output_tokens)

    def report_amount(self, output_tokens: int) -> Amount:
        """Return what the last report takes after a response with this much output."""
        return self._of(self.input_tokens + output_tokens, self.report_tokens) if self.report_tokens else NOTHING

    def _of(self, input_tokens: int, output_tokens: int) -> Amount:
        return Amount(tokens=input_tokens + output_tokens, cost_usd=self.price(input_tokens, output_tokens) or Decimal(0))


def estimate_request(request: ModelRequestContext, *, priced: bool, last: bool = False) -> Estimate:
    """Estimate a request.

    Args:
        request: The request as prepared.
        priced: Money is bounded.
        last: This is a last report.
    """
    settings: Any = request.model_settings or {}
    wanted = int(settings.get("max_tokens") or OUTPUT_TOKENS)
    return Estimate(
        input_tokens=estimate_input(request.messages, request.model_request_parameters),
        output_tokens=min(wanted, REPORT_TOKENS * 2) if last else wanted,
        price=highest_price_of(request.model) if priced else lambda _input, _output: None,
    )


def with_max_tokens(request: ModelRequestContext, output_tokens: int) -> ModelSettings:
    """Return the request's settings with a bound on its output."""
    return cast("ModelSettings", {**(request.model_settings or {}), "max_tokens": output_tokens})


def estimate_input(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> int:
    """Return an upper estimate of the tokens that a request sends."""
    known, new = _counted(messages)
    return known + _tokens(new) if known else estimate_uncounted(messages, parameters)


def estimate_uncounted(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> int:
    """Return the same, ignoring the provider's counts."""
    return _tokens(messages, more=instructions_size(parameters) + tools_size(parameters))


def instructions_size(parameters: ModelRequestParameters) -> int:
    """Return the bytes of the instructions."""
    return sum(len(part.content.encode()) for part in parameters.instruction_parts or [])


def tools_size(parameters: ModelRequestParameters) -> int:
    """Return the bytes of the tool definitions."""
    return sum(
        len(json.dumps(tool.parameters_json_schema)) + len(tool.name) + len(tool.description or "")
        for tool in (*parameters.function_tools, *parameters.output_tools)
    )


def outdated(messages: Iterable[ModelMessage]) -> Iterator[ModelMessage]:
    """Return the messages, marked as counted by the provider in a longer conversation."""
    for message in messages:
        if isinstance(message, ModelResponse) and message.usage.input_tokens:
            yield replace(message, metadata={**(message.metadata or {}), OUTDATED: True})
        else:
            yield message


def _tokens(messages: Sequence[ModelMessage], *, more: int = 0) -> int:
    size = more + sum(size_of(part) for message in messages for part in message.parts)
    return size // BYTES_PER_TOKEN + OVERHEAD_TOKENS * (1 + len(messages))


def highest_price_of(model: Model) -> Callable[[int, int], Decimal | None]:
    """Return the most that input and output tokens of a model may cost: all the input may be written to the cache."""
    price = price_of(model)

    @lru_cache(maxsize=16)  # a request asks for the same few prices once for each agent above it
    def highest(input_tokens: int, output_tokens: int) -> Decimal | None:
        plain = RequestUsage(input_tokens=input_tokens, output_tokens=output_tokens)
        prices = [price(plain), price(replace(plain, cache_write_tokens=input_tokens))]
        return max((known for known in prices if known is not None), default=None)

    return highest


def price_of(model: Model) -> Callable[[RequestUsage], Decimal | None]:
    """Return the price function of a model; for fallback models the highest price counts."""
    models = models_in(model)

    def price(usage: RequestUsage) -> Decimal | None:
        prices = [_price(inner, usage) for inner in models]
        known = [one for one in prices if one is not None]
        return max(known) if len(known) == len(prices) else None

    return price


def _price(model: Model, usage: RequestUsage) -> Decimal | None:
    """Look the price up by provider and name, or by name alone for a wrapped model."""
    for provider in (model.system, None):
        response = ModelResponse(parts=[], usage=usage, model_name=model.model_name, provider_name=provider)
        response.provider_url = model.base_url
        try:
            return response.cost().total_price
        except (LookupError, ValueError):
            continue
    return None


def _counted(messages: Sequence[ModelMessage]) -> tuple[int, Sequence[ModelMessage]]:
    """Return the provider's count of the conversation and the messages added since."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, ModelResponse) and message.usage.input_tokens and OUTDATED not in (message.metadata or {}):
            return message.usage.input_tokens + message.usage.output_tokens, messages[index + 1 :]
    return 0, messages


def size_of(part: Any) -> int:
    """Return the bytes of a part as text; a picture counts as the bytes of `IMAGE_TOKENS`."""
    if hasattr(part, "args_as_json_str"):
        return len(part.args_as_json_str().encode()) + len(part.tool_name)
    content = getattr(part, "content", "")
    items = content if isinstance(content, list | tuple) else [content]
    return sum(_item_size(item) for item in items)


def _item_size(item: Any) -> int:
    if isinstance(item, BinaryContent):
        return IMAGE_TOKENS * BYTES_PER_TOKEN
    return len((item if isinstance(item, str) else str(item)).encode(errors="replace"))


@dataclass(frozen=True, kw_only=True)
class ContextUse:
    """Estimates, in tokens. If the provider has counted the conversation, they add up to its count."""

    window_tokens: int | None
    """The size of the window. None: unknown (setting `context.window_tokens`)."""
    instructions: int
    tools: int
    """0 before the first request."""
    messages: int
    """Prompts, the model's replies and the code in them."""
    outputs: int
    """Outputs of cells and results of other tools."""

    @property
    def tokens(self) -> int:
        """The sum."""
        return self.instructions + self.tools + self.messages + self.outputs


def request_tokens(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> int:
    """Return a request's tokens: the provider's count plus an upper estimate of what is new, or of everything."""
    return max(estimate_input(messages, parameters), round(estimate_uncounted(messages, parameters) * LEAST_COUNT))


def context_use(
    messages: Sequence[ModelMessage], parameters: ModelRequestParameters, window_tokens: int | None
) -> ContextUse:
    """Return what fills the window. Args: parameters: those of the last request."""
    uncounted = estimate_uncounted(messages, parameters)
    factor = request_tokens(messages, parameters) / uncounted / BYTES_PER_TOKEN
    parts = [part for message in messages for part in message.parts]
    outputs = sum(size_of(part) for part in parts if isinstance(part, ToolReturnPart))
    instructions, tools = instructions_size(parameters), tools_size(parameters)
    others = uncounted * BYTES_PER_TOKEN - outputs - instructions - tools
    return ContextUse(
        window_tokens=window_tokens,
        instructions=round(instructions * factor),
        tools=round(tools * factor),
        messages=round(others * factor),
        outputs=round(outputs * factor),
    )
