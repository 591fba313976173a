"""`BeforePrompt`: what an agent does before its model reads a prompt."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

KERNEL_IS_NEW: Final = "[Your kernel is new: the variables and imports of the conversation so far are gone.]"

News: TypeAlias = Callable[[], Awaitable[str]]
"""Brings back what can be had of a kernel's variables, and returns what the model reads of it."""


def known_news(news: str) -> News:
    """Return a function that always returns this news about the kernel."""

    async def same_news() -> str:
        return news

    return same_news


kernel_is_new: Final = known_news(KERNEL_IS_NEW)
"""For a model whose kernel has nothing of the conversation so far."""


class BeforePrompt:
    """The kernel gets back what it had; then the state is kept, so that the prompt can be undone."""

    def __init__(self, news: News | None = None) -> None:
        """Args: news: of a kernel that is younger than the conversation. None: there is nothing to tell."""
        self.news = news
        self.keep: Callable[[str], Awaitable[None]] | None = None
        """Keeps the state before a prompt. None: it is not kept."""
        self._lock = asyncio.Lock()

    async def bring_back(self) -> str:
        """Give a new kernel what the one before had; return what the model is to read of it with its next prompt."""
        async with self._lock:
            news = "" if self.news is None else await self.news()
            self.news = known_news(news) if news else None
            return news

    async def begin(self, prompt: str) -> str:
        """Do all of it; return what the model is to read of its kernel with this prompt."""
        news = await self.bring_back()  # first: what is undone later goes back to that
        if self.keep is not None:
            await self.keep(prompt)
        self.news = None
        return news
