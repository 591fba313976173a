"""Replaces all but the beginning and the newest turns of a conversation with a summary. Calls keep their results."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic_ai.messages import (
    CompactionPart,
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

from freeact_sub.agents.budgets.estimate import BYTES_PER_TOKEN, outdated, size_of
from freeact_sub.agents.loaded_texts import in_words, is_folder, loaded_in, loaded_only, name_in
from freeact_sub.tools import head_and_tail

TEXT_CHARS: Final = 4_000
"""Characters of each prompt, reply and call that the summarising model reads."""
OUTPUT_CHARS: Final = 1_500
"""Characters of each output that it reads."""
SMALLEST: Final = 1 / 16
"""The smallest share to which these are cut so that everything fits."""


def newest_turns(messages: Sequence[ModelMessage], tokens: int) -> int:
    """Return the index of the first unchanged turn: as many as fit stay, and at least the last.

    Args:
        messages: A conversation.
        tokens: How many they may take together.

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
    """Whether no result in the message belongs to an earlier call."""
    if isinstance(message, ModelResponse):
        return True
    answers = any(getattr(part, "tool_call_id", None) for part in message.parts)
    return not answers and any(isinstance(part, UserPromptPart) for part in message.parts)


def beginning(messages: Sequence[ModelMessage]) -> list[ModelRequestPart]:
    """Return what stays of the first message: the prompt that began the conversation."""
    kept: list[ModelRequestPart] = []
    if isinstance(messages[0], ModelRequest):
        for part in messages[0].parts:
            if isinstance(part, CompactionPart) or getattr(part, "tool_call_id", None):
                break
            kept.append(part)
    return kept


def to_summarise(messages: Sequence[ModelMessage], end: int) -> list[ModelMessage]:
    """Return the messages to summarise; empty if they already are a summary. Args: end: see `newest_turns`."""
    first = messages[0]
    if not isinstance(first, ModelRequest):
        return list(messages[:end])
    rest = list(first.parts[len(beginning(messages)) :])
    if end <= 1 and all(isinstance(part, CompactionPart) or loaded_only(part) for part in rest):
        return []
    return [*([replace(first, parts=rest)] if rest else []), *messages[1:end]]


def texts_to_keep(messages: Sequence[ModelMessage], end: int, tokens: int) -> tuple[list[TextContent], list[str]]:
    """Return the loaded texts that a summary would remove and that stay, and the names of skills for which there is no room.

    Args:
        messages: A conversation.
        end: See `newest_turns`.
        tokens: How many they may take together; the newest come first.
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
        end: See `newest_turns`.
        summary: Of what comes before.
        variables: Appended to the summary.
        texts: They stay as they are.
    """
    content = "\n\n".join(filter(None, [summary, variables]))
    part = CompactionPart(content=content, metadata={"summary": summary})
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
                case CompactionPart():
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
        return f"[{in_words(name)}]" if (name := name_in(item)) else item.content
    return item if isinstance(item, str) else "[a picture or file]"


def _code_of(call: ToolCallPart) -> str:
    try:
        args = call.args_as_dict()
    except ValueError:  # a model may write anything
        return call.args_as_json_str()
    code = args.get("code")
    return code if isinstance(code, str) and len(args) == 1 else call.args_as_json_str()
