"""`NoModel`: the model of an agent whose kernel alone is used."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

from pydantic_ai.models import Model, StreamedResponse

from freeact_sub.errors import ConfigError

NO_MODEL: Final = "this agent has no model: only its kernel can be used"


class NoModel(Model[Any]):
    """Stands for a model that is not needed: `Agent(model=NoModel())` runs code, and branches and compares kernels.

    Each request to it raises ConfigError.
    """

    @property
    def model_name(self) -> str:
        """See pydantic-ai."""
        return "none"

    @property
    def system(self) -> str:
        """See pydantic-ai."""
        return "no model"

    async def request(self, *_: Any, **__: Any) -> Any:
        """See pydantic-ai. Raises: ConfigError: Always."""
        raise ConfigError(NO_MODEL)

    @asynccontextmanager
    async def request_stream(self, *_: Any, **__: Any) -> AsyncGenerator[StreamedResponse]:
        """See pydantic-ai. Raises: ConfigError: Always."""
        raise ConfigError(NO_MODEL)
        yield
