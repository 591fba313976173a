"""What an agent's model reads of a kernel that is younger than the conversation."""

from collections.abc import Awaitable, Callable
from typing import Final

KERNEL_IS_NEW: Final = "[Your kernel is new: the variables and imports of the conversation so far are gone.]"


def known_news(news: str) -> Callable[[], Awaitable[str]]:
    """Return a function that always returns this news about the kernel."""

    async def same_news() -> str:
        return news

    return same_news


kernel_is_new: Final = known_news(KERNEL_IS_NEW)
"""For a model whose kernel has nothing of the conversation so far."""
