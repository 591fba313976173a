"""`ContextUse`: what fills the context window of an agent's model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.models import ModelRequestParameters

from freeact_sub.agents.budgets.estimate import (
    BYTES_PER_TOKEN,
    estimate_input,
    estimate_uncounted,
    instructions_size,
    size_of,
    tools_size,
)


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


LEAST: Final = 0.6
"""The least share of our estimate that a provider's count must reach; a lower one, such as new tokens only, is ignored."""


def request_tokens(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> int:
    """Return a request's tokens: the provider's count plus an upper estimate of what is new, or of everything."""
    return max(estimate_input(messages, parameters), round(estimate_uncounted(messages, parameters) * LEAST))


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
