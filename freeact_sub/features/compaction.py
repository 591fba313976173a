"""Compaction of conversations before the model's context window is full (`CompactionFeature`).

- A summary replaces all but the beginning and the newest turns of a conversation (`with_summary`). Calls keep their results.
- `Compactor` decides when to do either, replaces old outputs with notes that name a file, and emits the event. Its hook is
  the first of a run, so that a user's capabilities see the shortened conversation.
- `CompactionByHand` summarises a conversation on request.

The summary is a `CompactionPart` of pydantic-ai in the request that begins the conversation; each provider's client knows
how to send it. The ready-made compaction of `pydantic-ai-harness` is not used: each of its releases pins one release of
pydantic-ai, it ignores our budgets and output files, and it reports nothing.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol, Self, runtime_checkable

import anyio
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import FallbackExceptionGroup, RetryModelRequest
from pydantic_ai.messages import CompactionPart as SummaryPart
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    SystemPromptPart,
    TextContent,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext, ModelRequestParameters

from freeact_sub.agents.ask import SingleRequests
from freeact_sub.agents.children import Work
from freeact_sub.agents.feature import Feature, FeatureAgent, RunPart
from freeact_sub.agents.life import TreeAgent, tree_agent
from freeact_sub.agents.money import (
    BYTES_PER_TOKEN,
    estimate_uncounted,
    outdated,
    request_tokens,
    size_of,
)
from freeact_sub.agents.prompt import is_folder, loaded_in, loaded_only, name_in, summary_prompt, with_child_note
from freeact_sub.agents.root import Root, whole_root
from freeact_sub.agents.run import Run
from freeact_sub.errors import ContextOverflowError, FreeactError
from freeact_sub.events import Compacted, Notice
from freeact_sub.kernels.handover import own_cell
from freeact_sub.system.safe_files import write_new
from freeact_sub.text import clean, counted
from freeact_sub.tools import ChildRequest, head_and_tail, output_file

TEXT_CHARS: Final = 4_000
"""Characters of each prompt, reply and call that the summarising model reads."""
OUTPUT_CHARS: Final = 1_500
"""Characters of each output that the summarising model reads."""
SMALLEST: Final = 1 / 16
"""The smallest share to which these texts are cut so that everything fits."""
KEPT_CHARS: Final = 160
"""Characters that stay of each output, so that the model recognises it."""
NEWEST_CHARS: Final = 1200
"""Characters that stay of each of the newest outputs, where the conversation is too long even without all others."""
SMALL_CHARS: Final = 600
"""Characters of outputs that stay: a note would not be much shorter."""
UNSAVED_CHARS: Final = 400
"""Characters that stay of an output that could not be written to a file."""

logger = logging.getLogger(__name__)
__all__ = ["CompactionFeature", "RefusesCompaction"]


def newest_turns(messages: Sequence[ModelMessage], tokens: int) -> int:
    """Return the index of the first unchanged turn: as many as fit stay, and at least the last.

    Args:
        messages: A conversation.
        tokens: The most that they may take together.

    Returns:
        An index of at least 1; the number of messages if there is only the beginning.
    """
    start = len(messages) if len(messages) == 1 else 1
    left, found = tokens * BYTES_PER_TOKEN, False
    for index in range(len(messages) - 1, 0, -1):
        left -= sum(size_of(part) for part in messages[index].parts)
        if found and left < 0:
            break
        if _begins_turn(messages[index]):
            start, found = index, True
    return start


def _begins_turn(message: ModelMessage) -> bool:
    """Return whether no result in the message belongs to an earlier call."""
    if isinstance(message, ModelResponse):
        return True
    answers = any(getattr(part, "tool_call_id", None) for part in message.parts)
    return not answers and any(isinstance(part, UserPromptPart) for part in message.parts)


def beginning(messages: Sequence[ModelMessage]) -> list[ModelRequestPart]:
    """Return the parts of the first message that stay: the prompt that began the conversation."""
    kept: list[ModelRequestPart] = []
    if isinstance(messages[0], ModelRequest):
        for part in messages[0].parts:
            if isinstance(part, SummaryPart) or getattr(part, "tool_call_id", None):
                break
            kept.append(part)
    return kept


def to_summarise(messages: Sequence[ModelMessage], end: int) -> list[ModelMessage]:
    """Return the messages to summarise; empty if they already are a summary. Args: end: index of the first unchanged one."""
    first = messages[0]
    if not isinstance(first, ModelRequest):
        return list(messages[:end])
    rest = list(first.parts[len(beginning(messages)) :])
    if end <= 1 and all(isinstance(part, SummaryPart) or loaded_only(part) for part in rest):
        return []
    return [*([replace(first, parts=rest)] if rest else []), *messages[1:end]]


def texts_to_keep(messages: Sequence[ModelMessage], end: int, tokens: int) -> tuple[list[TextContent], list[str]]:
    """Return the loaded texts to keep beside a summary, and the names of skills for which there is no room.

    Args:
        messages: A conversation.
        end: The index of the first unchanged message.
        tokens: The most that they may take together; the newest come first.
    """
    stays = loaded_in([ModelRequest(parts=beginning(messages)), *messages[end:]])
    kept, left_out, left = list[TextContent](), list[str](), tokens * BYTES_PER_TOKEN
    for name, text in reversed(loaded_in(messages[:end]).items()):
        if name in stays:
            continue
        left -= len(text.content.encode())
        if left >= 0:
            kept.insert(0, text)
        elif not is_folder(name):  # a folder is loaded again when it is used again
            left_out.append(name)
    return kept, left_out


def with_summary(
    messages: Sequence[ModelMessage], end: int, summary: str, variables: str, texts: Sequence[TextContent] = ()
) -> list[ModelMessage]:
    """Return the conversation with a summary.

    Args:
        messages: A conversation.
        end: The index of the first unchanged message.
        summary: The summary of the messages before.
        variables: A text appended to the summary.
        texts: Texts that stay as they are.
    """
    content = "\n\n".join(filter(None, [summary, variables]))
    part = SummaryPart(content=content, metadata={"summary": summary})
    first = messages[0]
    parts = [*beginning(messages), part, *([UserPromptPart(content=[*texts])] if texts else ())]
    head = replace(first, parts=parts) if isinstance(first, ModelRequest) else ModelRequest(parts=parts)
    return [head, *outdated(messages[end:])]


def transcript(messages: Sequence[ModelMessage], chars: int) -> str:
    """Return messages as a text to summarise, of at most so many characters. An earlier summary stays whole."""
    share = 1.0
    while True:
        text = "\n\n".join(_pieces(messages, share))
        if len(text) <= chars:
            return text
        if share <= SMALLEST:
            return head_and_tail(text, chars)
        share /= 2


def _pieces(messages: Sequence[ModelMessage], share: float) -> list[str]:
    texts, outputs = round(TEXT_CHARS * share), round(OUTPUT_CHARS * share)
    pieces: list[str] = []
    for message in messages:
        for part in message.parts:
            match part:
                case SummaryPart():
                    own = part.metadata.get("summary") if isinstance(part.metadata, dict) else None
                    pieces.append(f"[summary of what came before]\n{own or part.content or ''}")
                case UserPromptPart():
                    pieces.append(f"[user]\n{head_and_tail(_text_of(part.content), texts)}")
                case TextPart():
                    pieces.append(f"[assistant]\n{head_and_tail(part.content, texts)}")
                case ToolCallPart():
                    pieces.append(f"[assistant calls {part.tool_name}]\n{head_and_tail(_code_of(part), texts)}")
                case ToolReturnPart():
                    pieces.append(f"[result]\n{head_and_tail(_text_of(part.content_items(mode='str')), outputs)}")
                case SystemPromptPart():
                    pass
                case _ if isinstance(content := getattr(part, "content", None), str) and isinstance(message, ModelRequest):
                    pieces.append(f"[user]\n{head_and_tail(content, texts)}")
    return pieces


def _text_of(content: Any) -> str:
    items = [content] if isinstance(content, str) else content
    return "\n".join(map(_item_text, items))


def _item_text(item: Any) -> str:
    if isinstance(item, TextContent):
        return f"[{_in_words(name)}]" if (name := name_in(item)) else item.content
    return item if isinstance(item, str) else "[a picture or file]"


def _in_words(name: str) -> str:
    return f"the instructions for {name}" if is_folder(name) else f"the skill {name}"


def _code_of(call: ToolCallPart) -> str:
    try:
        args = call.args_as_dict()
    except ValueError:  # a model may write anything
        return call.args_as_json_str()
    code = args.get("code")
    return code if isinstance(code, str) and len(args) == 1 else call.args_as_json_str()


@runtime_checkable
class RefusesCompaction(Protocol):
    """A part of a run that may want the conversation as it is."""

    async def refuses_compaction(self, trigger: str, keep: str = "") -> str:
        """Return why a conversation must not be shortened; empty if it may.

        Args:
            trigger: `auto` or `manual`.
            keep: The parts that a person wants kept.

        Raises:
            ApprovalDeniedError: The run must end.
        """


@dataclass(frozen=True, kw_only=True)
class OutputFiles:
    """The folder for outputs."""

    folder: Path
    root: Path
    """The folder from which `folder` is reached without following a link."""

    async def without_outputs(
        self, messages: Sequence[ModelMessage], end: int, *, keep: int = KEPT_CHARS
    ) -> tuple[list[ModelMessage], int]:
        """Return the messages with notes instead of the long outputs before an index, and the number of notes.

        Args:
            messages: A conversation.
            end: The index.
            keep: Characters that stay of each output.
        """
        shorter, replaced = list(messages), 0
        for index, message in enumerate(messages[:end]):
            if isinstance(message, ModelRequest):
                parts = [
                    await self._shorter(part, keep) if isinstance(part, ToolReturnPart) else part for part in message.parts
                ]
                changed = sum(new is not old for new, old in zip(parts, message.parts, strict=True))
                if changed:
                    shorter[index], replaced = replace(message, parts=parts), replaced + changed
        return shorter, replaced

    async def _shorter(self, part: ToolReturnPart[Any], keep: int) -> ToolReturnPart[Any]:
        items = part.content_items(mode="str")
        text = "\n".join(item for item in items if isinstance(item, str))
        others = sum(not isinstance(item, str) for item in items)
        if len(text) <= keep + SMALL_CHARS - KEPT_CHARS:
            return replace(part, content=f"{text}\n[{_files(others)} left out]") if others else part
        where = await self._file(part, text)
        if not where:
            return replace(part, content=head_and_tail(text, UNSAVED_CHARS))
        also = f" and {_files(others)}" if others else ""
        note = f"[… {len(text):,} characters of output{also} left out to make room; all of the output is in {where}]"
        return replace(part, content=f"{text[:keep]}\n{note}")

    async def _file(self, part: ToolReturnPart[Any], text: str) -> str:
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
"""The share of the room for messages that a shortened conversation takes, so that it lasts for a while."""
NEWEST: Final = 0.25
"""The share of this room for the newest turns."""
SUMMARY: Final = 0.1
"""The largest share of the window for a summary."""
TEXTS: Final = 0.25
"""The largest share of the window for loaded skills and instructions that a summary would remove."""
SKILLS_LEFT_OUT: Final = "These skills were left out to make room; agent.skill loads one again: {names}"
AGAIN: Final = 0.1
"""After an attempt that gained too little, the share of the window by which a conversation grows before the next."""
ASSUMED_WINDOW: Final = 32_768
"""Tokens of an unknown window when a person asks for a summary."""
READ: Final = 0.6
"""The share of the window that the model reads to write a summary."""
WORDS_PER_TOKEN: Final = 0.5
LIST_SECONDS: Final = 10.0
"""Seconds to wait for the kernel to list its variables."""
TASK_CHARS: Final = 1_000
LIST_CHARS: Final = 3_000
VARIABLES: Final = "These variables are still in your kernel, with their types:\n"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Shortened:
    """A shortened conversation."""

    messages: list[ModelMessage]
    event: Compacted


@dataclass(kw_only=True)
class Compactor:
    """The compaction of one agent's conversation."""

    agent: TreeAgent
    parameters: ModelRequestParameters = field(default_factory=ModelRequestParameters)
    """Instructions and tools of the last request."""
    _again_at: int = 0
    """The size in tokens at which to try again."""
    _task: str = ""
    """The task of a child, which stays where its prompt is summarised."""

    def for_task(self, prompt: str) -> Self:
        """Note the prompt of a run, and return this compactor."""
        self._task = "" if self.agent.parent is None else f"Your task: {head_and_tail(prompt, TASK_CHARS)}"
        return self

    @property
    def window(self) -> int | None:
        """The size of the window in tokens, if known."""
        return self.agent.window_tokens

    @property
    def _files(self) -> OutputFiles:
        return OutputFiles(folder=self.agent.output_folder, root=self.agent.shared.config.workspace)

    async def _refusal(self, trigger: str, keep: str = "") -> str:
        for part in self.agent.run.features.all(RefusesCompaction):  # type: ignore[type-abstract]  # for isinstance
            if reason := await part.refuses_compaction(trigger, keep):
                return reason
        return ""

    async def when_full(self, messages: Sequence[ModelMessage]) -> Shortened | None:
        """Return the shortened conversation, if the next request would exceed its share of the window."""
        window, share = self.window, self.agent.shared.config.context.compact_at
        if window is None or share is None:
            return None
        room = round(window * share)
        if request_tokens(messages, self.parameters) <= max(room, self._again_at):
            return None
        refused = await self._refusal("auto")
        shortened = None if refused else await self._shortened(messages, room)
        left = messages if shortened is None else shortened.messages
        self._again_at = estimate_uncounted(left, self.parameters) + round(window * AGAIN)
        return shortened

    async def when_refused(self, messages: Sequence[ModelMessage]) -> Shortened | None:
        """Return a conversation that a server has refused, with notes instead of older outputs, else of the newest ones.

        None: no long output is left, or a hook wants the conversation as it is.
        """
        if await self._refusal("auto"):
            return None
        for end, keep in ((max(0, len(messages) - 1), KEPT_CHARS), (len(messages), NEWEST_CHARS)):
            shorter, outputs = await self._files.without_outputs(messages, end, keep=keep)
            if outputs:
                found = Shortened(messages=list(outdated(shorter)), event=Compacted(outputs=outputs))
                return self._measured(messages, found)
        return None

    async def on_request(self, messages: Sequence[ModelMessage], keep: str) -> Shortened | None:
        """Return the conversation with a summary of all but its last turn, unless it is too short.

        Args:
            messages: The conversation.
            keep: The parts that the summary must keep above all.

        Raises:
            FreeactError: The summary could not be made, or a hook forbids it.
        """
        if refused := await self._refusal("manual", keep):
            raise FreeactError(f"a hook forbids it: {refused}")
        end = newest_turns(messages, 0) if messages else 0
        summarised = await self._summarised(messages, end, below=estimate_uncounted(messages, self.parameters), keep=keep)
        return summarised and self._measured(messages, summarised)

    async def _shortened(self, messages: Sequence[ModelMessage], room: int) -> Shortened | None:
        """Shorten outputs first, then summarise. Args: room: the tokens available."""
        parameters = self.parameters
        fixed = estimate_uncounted((), parameters)
        room = max(0, room - fixed)
        end = newest_turns(messages, round(room * NEWEST))
        shorter, outputs = await self._files.without_outputs(messages, end)
        found = Shortened(messages=list(outdated(shorter)), event=Compacted(outputs=outputs)) if outputs else None
        size = estimate_uncounted(shorter, parameters)
        if size > fixed + room and end < len(messages):
            shorter, newest = await self._files.without_outputs(shorter, len(messages), keep=NEWEST_CHARS)
            if newest:
                outputs += newest
                found = Shortened(messages=list(outdated(shorter)), event=Compacted(outputs=outputs))
                messages, size = shorter, estimate_uncounted(shorter, parameters)
        if size > fixed + room * GOAL:
            try:
                summarised = await self._summarised(messages, end, below=size)
            except FreeactError as error:
                self._notice(f"the conversation could not be summarised, and goes on as it is: {error}")
            else:
                found = (
                    found if summarised is None else replace(summarised, event=replace(summarised.event, outputs=outputs))
                )
        return found and self._measured(messages, found)

    async def _summarised(
        self, messages: Sequence[ModelMessage], end: int, *, below: int, keep: str = ""
    ) -> Shortened | None:
        """Summarise the messages before an index.

        Returns:
            None if there is nothing to summarise, or the conversation would still not be below so many tokens.
        """
        old = to_summarise(messages, end) if messages else []
        if not old:
            return None
        found = Compacted(
            prompts=sum(isinstance(part, UserPromptPart) and not loaded_only(part) for one in old for part in one.parts),
            turns=sum(isinstance(one, ModelResponse) for one in old),
            kept_turns=sum(isinstance(one, ModelResponse) for one in messages[end:]),
        )
        taken = (
            f"{request_tokens(messages, self.parameters):,}{'' if self.window is None else f' of {self.window:,}'} tokens"
        )
        what = f"{counted(found.prompts, 'prompt')} and {counted(found.turns, 'turn')}"
        self._notice(f"the conversation takes {taken}: a summary takes the place of {what}; this is a request to the model")
        window = self.window or ASSUMED_WINDOW
        chars, most = round(window * READ * BYTES_PER_TOKEN), round(window * SUMMARY)
        prompt = summary_prompt(transcript(old, chars), words=round(most * WORDS_PER_TOKEN), keep=keep)
        summary = head_and_tail(clean(await SingleRequests(self.agent).ask(prompt)).strip(), most * BYTES_PER_TOKEN)
        texts, left_out = texts_to_keep(messages, end, round(window * TEXTS))
        missing = SKILLS_LEFT_OUT.format(names=", ".join(left_out)) if left_out else ""
        told = (with_child_note(self._task, self.agent), await self._variables(), missing)
        shorter = with_summary(messages, end, summary, "\n\n".join(filter(None, told)), texts)
        if estimate_uncounted(shorter, self.parameters) >= below:
            self._notice("the conversation goes on as it is: the summary makes it no shorter")
            return None
        return Shortened(messages=shorter, event=replace(found, summary=summary))

    def _measured(self, messages: Sequence[ModelMessage], shortened: Shortened) -> Shortened:
        """Return the result with the tokens before and after, both by the provider's count if there is one."""
        before = request_tokens(messages, self.parameters)
        share = estimate_uncounted(shortened.messages, self.parameters) / estimate_uncounted(messages, self.parameters)
        event = replace(shortened.event, tokens_before=before, tokens_after=round(before * share))
        return replace(shortened, event=event)

    def _notice(self, text: str) -> None:
        self.agent.emitter.put(Notice(content=text))

    async def _variables(self) -> str:
        """Return the kernel's variables for the model; empty if there are none or the kernel does not answer."""
        with anyio.move_on_after(LIST_SECONDS):
            try:
                if self.agent.kernel is None:
                    return ""
                kernel = await self.agent.kernel.get()
                listed = await own_cell(kernel, "freeact.agent.show_names(get_ipython())", LIST_SECONDS)
                if names := clean(listed).strip():
                    return VARIABLES + head_and_tail(names, LIST_CHARS)
            except FreeactError:  # the next cell reports it
                logger.info("the kernel of %s did not list its variables", self.agent.agent_id, exc_info=True)
        return ""


@dataclass
class _Shorter:
    """Outputs that were shortened after a request had been made, by the identity of the part that was sent.

    Ids of calls are no help: some servers give each turn's calls the same ones.
    """

    parts: dict[int, tuple[ToolReturnPart[Any], ToolReturnPart[Any]]] = field(default_factory=dict)

    def note(self, before: Sequence[ModelMessage], after: Sequence[ModelMessage]) -> None:
        for old, new in zip(before, after, strict=True):
            for part, shorter in zip(old.parts, new.parts, strict=True):
                if isinstance(part, ToolReturnPart) and isinstance(shorter, ToolReturnPart) and part is not shorter:
                    self.parts[id(part)] = part, shorter

    def of(self, part: Any) -> Any:
        while id(part) in self.parts:
            part = self.parts[id(part)][1]
        return part

    def request(self, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
        return [
            replace(message, parts=[self.of(part) for part in message.parts])
            if isinstance(message, ModelRequest)
            else message
            for message in messages
        ]


@dataclass(kw_only=True)
class CompactionHooks(AbstractCapability[Any]):
    """Hooks that shorten the conversation before a request that would be too long, and after a server has refused one."""

    compactor: Compactor
    _shorter: _Shorter = field(default_factory=_Shorter, init=False)
    """The outputs shortened since the present request began."""

    async def before_model_request(self, ctx: RunContext[Any], request_context: ModelRequestContext) -> ModelRequestContext:
        """Shorten the conversation before a request; the run continues with the shorter one."""
        self.compactor.parameters, self._shorter = request_context.model_request_parameters, _Shorter()
        if self.compactor.agent.run.is_to_end():
            return request_context
        shortened = await self.compactor.when_full(ctx.messages)
        if shortened is None:
            return request_context
        await self._go_on_with(shortened, ctx)
        return replace(request_context, messages=list(shortened.messages))

    async def on_model_request_error(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        """Make a request that was too long again with a shorter conversation, while there is one."""
        del request_context
        refusals = error.exceptions if isinstance(error, FallbackExceptionGroup) else [error]
        if not any(isinstance(refusal, ContextOverflowError) for refusal in refusals):
            raise error
        shortened = await self.compactor.when_refused(ctx.messages)
        if shortened is None:
            raise error
        self._shorter.note(ctx.messages, shortened.messages)
        await self._go_on_with(shortened, ctx)
        raise RetryModelRequest from error

    async def prepare_model_request(self, ctx: RunContext[Any], request_context: ModelRequestContext) -> ModelRequestContext:
        """Give the request the shorter conversation after a refusal."""
        del ctx
        if not self._shorter.parts:
            return request_context
        return replace(request_context, messages=self._shorter.request(request_context.messages))

    async def _go_on_with(self, shortened: Shortened, ctx: RunContext[Any]) -> None:
        ctx.messages[:] = shortened.messages
        await self.compactor.agent.emitter.emit(shortened.event)


class CompactionByHand:
    """Summaries of a root's conversation on request."""

    def __init__(self, root: Root, compactor: Compactor) -> None:
        self._root, self._compactor = root, compactor

    async def compact(self, keep: str = "") -> Compacted | None:
        """Summarise the conversation now, except the first prompt and the last turn. This counts as a run.

        `keep` names the parts that the summary must keep above all. Returns None if the conversation is too short. Raises
        FreeactError if the summary could not be made; then the conversation is unchanged.
        """
        made: list[Compacted] = []
        async with self._run(keep, made) as run:
            result = await run.result()
        if result.status != "completed":
            raise FreeactError(f"the conversation was not summarised: {result.error}")
        return made[0] if made else None

    def run_compaction(self, keep: str = "") -> Run[str]:
        """Make a run of `compact`, to read its events or cancel it. Its output says what was done."""
        return self._run(keep, [])

    def _run(self, keep: str, made: list[Compacted]) -> Run[str]:
        loop = self._root.opened

        async def summarise() -> str:
            shortened = await self._compactor.on_request(loop.history, keep)
            if shortened is None:
                return "The conversation is too short to be summarised."
            loop.rewrite(shortened.messages)
            made.append(shortened.event)
            await loop.agent.emitter.emit(shortened.event)
            sizes = f"{shortened.event.tokens_before:,} to {shortened.event.tokens_after:,} tokens"
            return f"The conversation was summarised, from {sizes}."

        return self._root.begin(Work(prompt="[summary of the conversation]", program=summarise))


class CompactionPart(RunPart):
    """The compaction of one run's conversation."""

    def __init__(self, compactor: Compactor) -> None:
        self._compactor, self._prompt = compactor, ""

    def begins(self, prompt: str, request: ChildRequest | None) -> None:
        """Note the task of a child: it stays where its prompt is summarised."""
        del request
        self._prompt = prompt

    def capability(self) -> AbstractCapability[Any]:
        """Return hooks that shorten the conversation before a request that would be too long."""
        return CompactionHooks(compactor=self._compactor.for_task(self._prompt))


class CompactionFeature(Feature):
    """The compaction of the conversations of a tree of agents."""

    name = "compaction"

    def __init__(self) -> None:
        self._of_root: Compactor | None = None

    def run(self, agent: FeatureAgent) -> RunPart:
        """Watch the conversation; the root's goes on from run to run."""
        whole = tree_agent(agent)
        if whole.parent is not None:
            return CompactionPart(Compactor(agent=whole))
        self._of_root = self._of_root or Compactor(agent=whole)
        return CompactionPart(self._of_root)

    @property
    def of_root(self) -> Compactor:
        """The compactor of the root's conversation."""
        return self._of_root or Compactor(agent=tree_agent(self.root.agent))

    async def compact(self, keep: str = "") -> Compacted | None:
        """Summarise the conversation now, as `Agent.compact` does."""
        return await CompactionByHand(self._whole_root, self.of_root).compact(keep)

    def run_compaction(self, keep: str = "") -> Run[str]:
        """Make a run of `compact`."""
        return CompactionByHand(self._whole_root, self.of_root).run_compaction(keep)

    @property
    def _whole_root(self) -> Root:
        return whole_root(self.root)
