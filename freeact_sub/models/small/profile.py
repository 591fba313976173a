"""The small profile: less to read for models with a small context.

Tools are offered with what they need and no more: required parameters and a short description; tools whose definition
(`tools/NAME.json`) says so are left out. It is chosen by the setting
`profile`, else by what the server says of the model's context: llama-server tells it with its list of models (`meta.n_ctx`),
vLLM too (`max_model_len`). Other servers do not; then the full profile counts.
"""

import logging
import re
from dataclasses import replace
from typing import Any, Final

from pydantic_ai import ToolDefinition
from pydantic_ai.models import Model, ModelRequestParameters

SMALL_CONTEXT_TOKENS: Final = 16_384
"""A context of at most this many tokens is small."""
DESCRIPTION_SENTENCES: Final = 2
ASK_SECONDS: Final = 5.0
"""A server that takes longer to list its models is not waited for."""

logger = logging.getLogger(__name__)


async def context_tokens(model: Model) -> int | None:
    """The size of the model's context, asked of the server. None: the server does not tell it."""
    client: Any = getattr(model, "client", None)
    if not hasattr(client, "models"):
        return None
    try:
        listed = (await client.with_options(max_retries=0, timeout=ASK_SECONDS).models.list()).data
    except Exception:  # border: foreign servers fail here in any way, and nothing depends on the answer
        logger.debug("the server of %s does not list its models", model.model_name, exc_info=True)
        return None
    named = [item for item in listed or () if getattr(item, "id", None) == model.model_name] or list(listed or ())[:1]
    for item in named:
        meta = getattr(item, "meta", None)
        size = meta.get("n_ctx") if isinstance(meta, dict) else getattr(item, "max_model_len", None)
        if isinstance(size, int):
            return size
    return None


def trimmed(parameters: ModelRequestParameters) -> ModelRequestParameters:
    """The parameters of a request with shorter tools. Tools for structured output stay as they are."""
    offered = (tool for tool in parameters.function_tools if (tool.metadata or {}).get("small_profile", True))
    return replace(parameters, function_tools=[_trimmed(tool) for tool in offered])


def _trimmed(tool: ToolDefinition) -> ToolDefinition:
    schema = tool.parameters_json_schema
    required = schema.get("required", [])
    kept = {name: value for name, value in schema.get("properties", {}).items() if name in required}
    sentences = re.split(r"(?<=[.:;]) ", tool.description or "")
    return replace(
        tool,
        description=" ".join(sentences[:DESCRIPTION_SENTENCES]),
        parameters_json_schema={**schema, "properties": kept},
    )
