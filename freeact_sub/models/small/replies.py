"""From a reply to the parts that an agent's loop acts on. Pure.

A reply with calls of the model's own is left as it is; only arguments that cannot be right are put right. In block mode the
first blocks of any other reply that are marked as Python become `ToolCallPart`s, and all the rest stays text, in order. Such
a call has an id that begins with `written-`: by that it is known again in a history, also in one that was stored.

Which blocks are run: the first one, and those that follow it with no block of another kind between them, for that is mostly
what the model thinks that they put out. They are one cell; blocks of only tool calls are these calls.
"""

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic_ai.messages import ModelMessage, ModelResponse, ModelResponsePart, TextPart, ToolCallPart

from freeact_sub.models.small.arguments import Schemas, repaired
from freeact_sub.models.small.block_mode import CELL_TOOL
from freeact_sub.models.small.fences import FencedBlock, TextSpan, read_spans
from freeact_sub.models.small.python_syntax import parse_python
from freeact_sub.models.small.written_calls import WrittenCall, python_calls

WRITTEN: Final = "written-"
"""Prefix of the ids of calls made from blocks."""


def read_reply(
    parts: Sequence[ModelResponsePart], tools: Schemas, *, blocks: bool, complete: bool = True
) -> list[ModelResponsePart]:
    """Turns a reply into the parts that the agent acts on: text, and tool calls.

    Args:
        parts: The reply.
        tools: The tools that are offered.
        blocks: Blocks of Python are calls. False: text stays text, whatever it holds.
        complete: False: the reply was cut off, so that what stands at its end is not run.
    """
    if not complete:
        parts = [part for part in parts if not _is_cut(part, at_end=part is parts[-1])]
    if not blocks or any(isinstance(part, ToolCallPart) for part in parts):
        return [_repair_arguments(part, tools) for part in parts]
    made = _parts_from_text(text_of(parts), tools, complete=complete)
    if not any(isinstance(part, ToolCallPart) for part in made):
        return list(parts)
    return [*(part for part in parts if not isinstance(part, TextPart)), *made]


def text_of(parts: Iterable[Any]) -> str:
    """The text of a reply."""
    return "".join(part.content for part in parts if isinstance(part, TextPart))


def _is_cut(part: ModelResponsePart, *, at_end: bool) -> bool:
    """Whether the arguments of a call are cut off. Args: at_end: the call comes last, so no arguments are cut off too."""
    if not isinstance(part, ToolCallPart) or isinstance(part.args, dict) or not (part.args or at_end):
        return False
    try:
        return not isinstance(json.loads(part.args or ""), dict)
    except (ValueError, RecursionError):
        return True


def _repair_arguments(part: ModelResponsePart, tools: Schemas) -> ModelResponsePart:
    if not isinstance(part, ToolCallPart) or part.tool_name not in tools:
        return part
    args = repaired(part.args, tools[part.tool_name])
    return part if args is part.args else replace(part, args=args)


def _parts_from_text(text: str, tools: Schemas, *, complete: bool) -> list[ModelResponsePart]:
    """The spans as parts, in order; what is run stands in the place of the first block."""
    spans = read_spans(text)
    run = _blocks_to_run(spans, tools, complete=complete)
    first = min(run, default=-1)
    calls = list(_calls_of([run[index] for index in sorted(run)]))
    parts: list[ModelResponsePart] = []
    said = ""
    for index, span in enumerate(spans):
        if index == first:
            parts += [TextPart(said)] if said.strip() else []
            parts += [ToolCallPart(call.tool, call.args, tool_call_id=f"{WRITTEN}{uuid.uuid4().hex[:12]}") for call in calls]
            said = ""
        elif index not in run:
            said += span.raw
    return [*parts, TextPart(said)] if said.strip() else parts


def _blocks_to_run(spans: Sequence[TextSpan], tools: Schemas, *, complete: bool) -> dict[int, str | list[WrittenCall]]:
    """The blocks to run, by index: their code, or their calls if they hold nothing else."""
    run: dict[int, str | list[WrittenCall]] = {}
    for index, span in enumerate(spans):
        if not isinstance(span, FencedBlock):
            continue
        action = _action_of(span, tools) if span.is_python and _is_whole(span, complete=complete) else None
        if action is not None and (not run or isinstance(action, type(next(iter(run.values()))))):
            run[index] = action
        elif run:
            break
    return run


def _action_of(block: FencedBlock, tools: Schemas) -> str | list[WrittenCall] | None:
    """The code of a block, or its calls if it holds nothing else. None: no tool could run it."""
    return python_calls(block.code, tools) or (block.code if CELL_TOOL in tools else None)


def _is_whole(block: FencedBlock, *, complete: bool) -> bool:
    """A reply may end without the closing fence; then it must be Python."""
    return block.closed or (complete and parse_python(block.code) is not None)


def _calls_of(run: Sequence[str | list[WrittenCall]]) -> Iterator[WrittenCall]:
    codes = [action for action in run if isinstance(action, str)]
    if codes:
        yield WrittenCall(tool=CELL_TOOL, args={"code": "\n\n".join(codes)})
    for action in run:
        if not isinstance(action, str):
            yield from action


def without_text_after_calls(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Removes from the history the text that a model wrote after a block: small models take their guesses for results."""
    return [
        replace(message, parts=list(_before_calls(message.parts)))
        if isinstance(message, ModelResponse) and any(_is_written(part) for part in message.parts)
        else message
        for message in messages
    ]


def _is_written(part: ModelResponsePart) -> bool:
    return isinstance(part, ToolCallPart) and part.tool_call_id.startswith(WRITTEN)


def _before_calls(parts: Sequence[ModelResponsePart]) -> Iterator[ModelResponsePart]:
    called = False
    for part in parts:
        called = called or isinstance(part, ToolCallPart)
        if not called or not isinstance(part, TextPart):
            yield part
