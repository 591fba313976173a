"""`OtherModels`: all models of a tree but the root's, each built on first use and closed with the root."""

import asyncio
from contextlib import AsyncExitStack

from pydantic_ai.models import Model

from freeact_sub.config.schema import Config
from freeact_sub.errors import InvalidRequestError
from freeact_sub.models import usable_model
from freeact_sub.models.traffic import Traffic


class OtherModels:
    """Builds each model once."""

    def __init__(self, config: Config, traffic: Traffic) -> None:
        """Args: traffic: the root's."""
        self._config = config
        self._traffic = traffic
        self._models: dict[str | int, Model] = {}
        """By name, or by identity for a model object: models need not be hashable."""
        self._lock = asyncio.Lock()
        self._open = AsyncExitStack()

    async def get(self, wanted: str | Model) -> Model:
        """Return a model, wrapped as agents use it.

        Args:
            wanted: A name of `config.models`, `PROVIDER:NAME`, or a model. The address configured for the root's model
                also applies to named models of the same provider.

        Raises:
            InvalidRequestError: It is none of these.
            ConfigError: It cannot be built; the message says why.
        """
        full = self._config.models.names.get(wanted, wanted) if isinstance(wanted, str) else wanted
        if not isinstance(full, str | Model):
            raise InvalidRequestError(
                "the model of a child must be a name in the setting `models`, `PROVIDER:NAME`, or a Model of pydantic-ai; "
                f"this is a {type(full).__name__}"
            )
        key = full if isinstance(full, str) else id(full)
        async with self._lock:
            if key not in self._models:
                model = usable_model(self._config, self._traffic, full)
                self._models[key] = await self._open.enter_async_context(model)  # its HTTP client is closed with the root
            return self._models[key]

    async def aclose(self) -> None:
        """Close all models that were built."""
        self._models.clear()
        await self._open.aclose()
