"""`Compactor`: shortens an agent's conversation before it fills the window of its model."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import anyio
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart
from pydantic_ai.models import ModelRequestContext, ModelRequestParameters

from freeact_sub.agents.budgets.estimate import BYTES_PER_TOKEN, estimate_uncounted, outdated
from freeact_sub.agents.context.sizes import ContextUse, context_use, request_tokens
from freeact_sub.agents.context.summary import newest_turns, to_summarise, transcript, with_summary
from freeact_sub.agents.runs.prompt import summary_prompt
from freeact_sub.agents.tree import AgentNode
from freeact_sub.agents.turn.single_request import SingleRequests
from freeact_sub.agents.turn.turns import Turns
from freeact_sub.errors import FreeactError
from freeact_sub.events import Compacted, Notice
from freeact_sub.kernels import CellClock, CellOutputBuffer
from freeact_sub.system.safe_files import write_new
from freeact_sub.text import clean
from freeact_sub.tools import KernelAccess, head_and_tail, output_file

KEPT_CHARS: Final = 160
"""Characters that stay of each output, so that the model recognises it."""
SMALL_CHARS: Final = 600
"""Shorter outputs stay: a note would not be much shorter."""
UNSAVED_CHARS: Final = 400
"""Characters that stay of an output that could not be written to a file."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class OutputFiles:
    """The folder for outputs."""

    folder: Path
    root: Path
    """The folder from which `folder` is reached without following a link."""

    async def without_outputs(self, messages: Sequence[ModelMessage], end: int) -> tuple[list[ModelMessage], int]:
        """Return the messages with notes instead of the long outputs before an index, and the number of notes."""
        shorter, replaced = list(messages), 0
        for index, message in enumerate(messages[:end]):
            if isinstance(message, ModelRequest):
                parts = [await self._shorter(part) if isinstance(part, ToolReturnPart) else part for part in message.parts]
                changed = sum(new is not old for new, old in zip(parts, message.parts, strict=True))
                if changed:
                    shorter[index], replaced = replace(message, parts=parts), replaced + changed
        return shorter, replaced

    async def _shorter(self, part: ToolReturnPart[Any]) -> ToolReturnPart[Any]:
        items = part.content_items(mode="str")
        text = "\n".join(item for item in items if isinstance(item, str))
        others = sum(not isinstance(item, str) for item in items)
        if len(text) <= SMALL_CHARS:
            return replace(part, content=f"{text}\n[{_files(others)} left out]") if others else part
        where = await self._file(part, text)
        if not where:
            return replace(part, content=head_and_tail(text, UNSAVED_CHARS))
        also = f" and {_files(others)}" if others else ""
        note = f"[… {len(text):,} characters of output{also} left out to make room; all of the output is in {where}]"
        return replace(part, content=f"{text[:KEPT_CHARS]}\n{note}")

    async def _file(self, part: ToolReturnPart[Any], text: str) -> str:
        """Return the file with the whole output; empty if it cannot be written."""
        known = part.metadata.get("file") if isinstance(part.metadata, dict) else None
        if isinstance(known, str) and known:
            return known
        file = output_file(self.folder, part.tool_call_id)
        try:
            await asyncio.to_thread(write_new, file, text.encode("utf-8", "backslashreplace"), root=self.root)
        except OSError:
            logger.warning("an output could not be written to %s", file, exc_info=True)
            return ""
        return str(file)


def _files(number: int) -> str:
    return "1 picture or file" if number == 1 else f"{number} pictures or files"


GOAL: Final = 0.5
"""The share of the room for messages to which a conversation is shortened, so that it need not be shortened again soon."""
NEWEST: Final = 0.25
"""The share of this room that the newest turns keep."""
SUMMARY: Final = 0.1
"""The largest share of the window for a summary."""
AGAIN: Final = 0.1
"""After an attempt that gained too little, the share of the window by which a conversation grows before the next."""
ASSUMED_WINDOW: Final = 32_768
"""Assumed if the window is unknown and a person asks for a summary."""
READ: Final = 0.6
"""The share of the window that the model reads to write a summary."""
WORDS_PER_TOKEN: Final = 0.5
LIST_SECONDS: Final = 10.0
"""Seconds to wait for the kernel to list its variables."""
LIST_CHARS: Final = 3_000
LIST_VARIABLES: Final = "__import__('sys').modules['freeact_guest.names'].show(get_ipython())"
VARIABLES: Final = "These variables are still in your kernel, with their types:\n"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Shortened:
    """A shortened conversation."""

    messages: list[ModelMessage]
    event: Compacted


@dataclass(kw_only=True)
class Compactor:
    """Shortens the conversation of one agent."""

    node: AgentNode
    single_requests: SingleRequests
    kernel: KernelAccess
    parameters: ModelRequestParameters = field(default_factory=ModelRequestParameters)
    """Instructions and tools of the last request."""
    _again_at: int = 0
    """The size in tokens at which to try again."""

    @property
    def window(self) -> int | None:
        """The size of the window in tokens. None: unknown."""
        return self.node.shared.config.context.window_tokens or self.node.model.context_window

    def use(self, messages: Sequence[ModelMessage]) -> ContextUse:
        """Return what fills the window with this conversation."""
        return context_use(messages, self.parameters, self.window)

    async def when_full(self, messages: Sequence[ModelMessage]) -> Shortened | None:
        """Return the shortened conversation, if the next request would exceed its share of the window."""
        window, share = self.window, self.node.shared.config.context.compact_at
        if window is None or share is None:
            return None
        room = round(window * share)
        if request_tokens(messages, self.parameters) <= max(room, self._again_at):
            return None
        shortened = await self._shortened(messages, room)
        left = messages if shortened is None else shortened.messages
        self._again_at = estimate_uncounted(left, self.parameters) + round(window * AGAIN)
        return shortened

    async def on_request(self, messages: Sequence[ModelMessage], keep: str) -> Shortened | None:
        """Return the conversation with a summary of all but its last turn. None: it is too short.

        Args:
            messages: The conversation.
            keep: What the summary must keep above all.

        Raises:
            FreeactError: The summary could not be made.
        """
        end = newest_turns(messages, 0) if messages else 0
        summarised = await self._summarised(messages, end, below=estimate_uncounted(messages, self.parameters), keep=keep)
        return summarised and self._measured(messages, summarised)

    async def _shortened(self, messages: Sequence[ModelMessage], room: int) -> Shortened | None:
        """Shorten outputs first, then summarise. Args: room: the tokens available."""
        node, parameters = self.node, self.parameters
        fixed = estimate_uncounted((), parameters)
        room = max(0, room - fixed)
        end = newest_turns(messages, round(room * NEWEST))
        files = OutputFiles(folder=node.output_folder, root=node.shared.config.workspace)
        shorter, outputs = await files.without_outputs(messages, end)
        found = Shortened(messages=list(outdated(shorter)), event=Compacted(outputs=outputs)) if outputs else None
        size = estimate_uncounted(shorter, parameters)
        if size > fixed + room * GOAL:
            try:
                summarised = await self._summarised(messages, end, below=size)
            except FreeactError as error:
                node.emitter.put(Notice(content=f"the conversation could not be summarised, and goes on as it is: {error}"))
            else:
                found = (
                    found if summarised is None else replace(summarised, event=replace(summarised.event, outputs=outputs))
                )
        return found and self._measured(messages, found)

    async def _summarised(
        self, messages: Sequence[ModelMessage], end: int, *, below: int, keep: str = ""
    ) -> Shortened | None:
        """Summarise what comes before an index.

        Returns:
            None if there is nothing to summarise, or the conversation would still not be below so many tokens.
        """
        old = to_summarise(messages, end) if messages else []
        if not old:
            return None
        window = self.window or ASSUMED_WINDOW
        chars, most = round(window * READ * BYTES_PER_TOKEN), round(window * SUMMARY)
        prompt = summary_prompt(transcript(old, chars), words=round(most * WORDS_PER_TOKEN), keep=keep)
        summary = head_and_tail(clean(await self.single_requests.ask(prompt)).strip(), most * BYTES_PER_TOKEN)
        shorter = with_summary(messages, end, summary, await self._variables())
        if estimate_uncounted(shorter, self.parameters) >= below:
            return None
        return Shortened(messages=shorter, event=Compacted(summary=summary))

    def _measured(self, messages: Sequence[ModelMessage], shortened: Shortened) -> Shortened:
        """Return the result with the tokens before and after, both by the provider's count if there is one."""
        before = request_tokens(messages, self.parameters)
        share = estimate_uncounted(shortened.messages, self.parameters) / estimate_uncounted(messages, self.parameters)
        event = replace(shortened.event, tokens_before=before, tokens_after=round(before * share))
        return replace(shortened, event=event)

    async def _variables(self) -> str:
        """Return the kernel's variables for the model; empty if there are none or the kernel does not answer."""
        buffer = CellOutputBuffer()
        with anyio.move_on_after(LIST_SECONDS):
            try:
                kernel = await self.kernel.get()
                async with kernel.execute(LIST_VARIABLES, buffer, CellClock(LIST_SECONDS), silent=True) as cell:
                    if (await cell.reply()).status == "ok" and (names := clean(buffer.text).strip()):
                        return VARIABLES + head_and_tail(names, LIST_CHARS)
            except FreeactError:  # the next cell reports it
                logger.info("the kernel of %s did not list its variables", self.node.agent_id, exc_info=True)
        return ""


@dataclass(kw_only=True)
class CompactionHooks(AbstractCapability[Any]):
    """Shortens the conversation before a request that would be too long."""

    turns: Turns
    compactor: Compactor

    async def before_model_request(self, ctx: RunContext[Any], request_context: ModelRequestContext) -> ModelRequestContext:
        """See pydantic-ai. The run continues with the shorter conversation."""
        self.compactor.parameters = request_context.model_request_parameters
        if self.turns.ended is not None:
            return request_context
        shortened = await self.compactor.when_full(ctx.messages)
        if shortened is None:
            return request_context
        ctx.messages[:] = shortened.messages
        await self.turns.node.emitter.emit(shortened.event)
        return replace(request_context, messages=list(shortened.messages))
