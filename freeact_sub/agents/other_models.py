"""`OtherModels`: the models of a tree besides the root's own, each built when it is first needed, closed with the root."""

import asyncio
from contextlib import AsyncExitStack

from pydantic_ai.models import Model

from freeact_sub.config import Config
from freeact_sub.models import build_model, wrap_model


class OtherModels:
    """Builds each model once."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._models: dict[str, Model] = {}
        self._lock = asyncio.Lock()
        self._open = AsyncExitStack()

    async def get(self, name: str) -> Model:
        """The model of a name.

        Args:
            name: One of `config.models`, else `PROVIDER:NAME`. An address that is set for the root's model counts for
                others of the same provider as well.

        Raises:
            ConfigError: It cannot be built; the text says why.
        """
        full = self._config.models.get(name, name)
        async with self._lock:
            if full not in self._models:
                settings = self._config.model_copy(update={"model": full, "base_url": self._base_url(full)})
                model = wrap_model(build_model(settings), settings)
                self._models[full] = await self._open.enter_async_context(model)  # its HTTP client is closed with the root
            return self._models[full]

    async def aclose(self) -> None:
        """Close what was built."""
        self._models.clear()
        await self._open.aclose()

    def _base_url(self, full: str) -> str | None:
        own = (self._config.model or full).partition(":")[0]
        return self._config.base_url if full.partition(":")[0] == own else None
