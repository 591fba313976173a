"""From a reply to the parts that an agent's loop acts on, and from a history to what the reply answers to. Pure.

A reply that holds a call of the model's own is left as it is; only arguments that cannot be right are put right. Of any
other, written calls and the blocks that are steps become `ToolCallPart`s, and all the rest stays text, in order. Such a call
has an id that begins with `written-`: by that it is known again in a history, also in one that was stored.
"""

import operator
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from freeact_sub.models.arguments import Schemas, repaired
from freeact_sub.models.blocks import CELL_TOOL
from freeact_sub.models.hints import with_hint
from freeact_sub.models.reading import Block, Span, Words, read
from freeact_sub.models.steps import Rule, Situation, calls_are_meant, decide, normal
from freeact_sub.models.written import Call

WRITTEN: Final = "written-"
"""How the ids of calls begin that were written as text."""

NOTE: Final = "[You wrote {what} as text. It was taken as a call of {tool}{rest}.]\n"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What was made of a reply."""

    parts: tuple[ModelResponsePart, ...]
    rule: Rule | None = None
    """The rule that decided about blocks; None: there was no question."""


def understood(
    parts: Sequence[ModelResponsePart], tools: Schemas, situation: Situation, *, written: bool = True, complete: bool = True
) -> Reading:
    """Make of a reply what the model meant.

    Args:
        parts: The reply.
        tools: The tools that are offered.
        situation: What it answers to.
        written: False: text stays text; only the arguments of calls are put right.
        complete: False: the reply broke off, so that what stands at its end is not run.
    """
    if not written or any(isinstance(part, ToolCallPart) for part in parts):
        return Reading(parts=tuple(_with_right_arguments(part, tools) for part in parts))
    text = "".join(part.content for part in parts if isinstance(part, TextPart))
    made, rule = _parts_of(text, tools, situation, complete=complete)
    if not any(isinstance(part, ToolCallPart) for part in made):
        return Reading(parts=tuple(parts), rule=rule)
    others = [part for part in parts if not isinstance(part, TextPart)]
    return Reading(parts=(*others, *made), rule=rule)


def _with_right_arguments(part: ModelResponsePart, tools: Schemas) -> ModelResponsePart:
    if not isinstance(part, ToolCallPart) or part.tool_name not in tools:
        return part
    args = repaired(part.args, tools[part.tool_name])
    return part if args is part.args else replace(part, args=args)


def _parts_of(
    text: str, tools: Schemas, situation: Situation, *, complete: bool
) -> tuple[list[ModelResponsePart], Rule | None]:
    spans = read(text, tools)
    if not complete and spans and not isinstance(spans[-1], Words):
        spans = (*spans[:-1], Words(raw=spans[-1].raw))
    if any(isinstance(span, Call) for span in spans):
        return _spoken(spans, ()) if calls_are_meant(spans, situation) else [], None
    if CELL_TOOL not in tools:
        return [], None
    decision = decide(spans, situation)
    return _spoken(spans, decision.run), decision.rule


def _spoken(spans: Sequence[Span], run: Sequence[int]) -> list[ModelResponsePart]:
    """The spans as parts, in order; those to be run are one call, in the place of the first."""
    parts: list[ModelResponsePart] = []
    said = ""
    for index, span in enumerate(spans):
        call = _call_of(span, spans, run) if isinstance(span, Call) or index in run[:1] else None
        if call is not None:
            parts += [TextPart(said)] if said.strip() else []
            parts.append(call)
            said = ""
        elif index not in run:
            said += span.raw
    return [*parts, TextPart(said)] if said.strip() else parts


def _call_of(span: Span, spans: Sequence[Span], run: Sequence[int]) -> ToolCallPart:
    if isinstance(span, Call):
        return _call(span.tool, span.args)
    return _call(CELL_TOOL, {"code": _joined([spans[index] for index in run])})


def _joined(spans: Sequence[Span]) -> str:
    return "\n\n".join(span.code for span in spans if isinstance(span, Block))


def _call(tool: str, args: dict[str, Any]) -> ToolCallPart:
    return ToolCallPart(tool, args, tool_call_id=f"{WRITTEN}{uuid.uuid4().hex[:12]}")


def situation_of(messages: Sequence[ModelMessage], *, block_mode: bool = False) -> Situation:
    """What the next reply answers to."""
    prompt, results, codes, makes_calls = "", list[ToolReturnPart[Any]](), dict[str, str](), False
    for message in messages:
        for part in message.parts:
            if isinstance(part, UserPromptPart):
                prompt, results = _text_of(part), []
            elif isinstance(part, ToolReturnPart):
                results.append(part)
            elif isinstance(part, ToolCallPart):
                makes_calls = makes_calls or not part.tool_call_id.startswith(WRITTEN)
                codes[part.tool_call_id] = normal(str(part.args_as_dict().get("code", "")))
    over = [result for result in results if not _failed(result)]
    return Situation(
        prompt=prompt,
        makes_calls=makes_calls,
        last_result="none" if not results else "error" if _failed(results[-1]) else "ok",
        is_over=frozenset(codes[result.tool_call_id] for result in over if codes.get(result.tool_call_id)),
        block_mode=block_mode,
    )


def _text_of(part: UserPromptPart) -> str:
    if isinstance(part.content, str):
        return part.content
    return "\n".join(item for item in part.content if isinstance(item, str))


def _failed(result: ToolReturnPart[Any]) -> bool:
    metadata = result.metadata
    return result.outcome in ("failed", "retried", "interrupted") or (
        isinstance(metadata, dict) and metadata.get("outcome") == "failed"
    )


def told(messages: Sequence[ModelMessage], *, notes: bool = True, written: bool = True) -> list[ModelMessage]:
    """The history as the model is to read it: with `notes` it is told which calls were made of its text.

    Some errors get a hint (`hints`); with `written` it may be one to write a block. What the model wrote behind a call of
    its text it wrote before the call was run: it is not shown again, since small models take what they made up for results.
    """
    return list(_told(messages, notes, written))


def _told(messages: Sequence[ModelMessage], notes: bool, written: bool) -> Iterator[ModelMessage]:
    response: ModelResponse | None = None
    for message in messages:
        if isinstance(message, ModelResponse):
            response = message
            behind = any(_is_written(part) for part in message.parts)
            yield replace(message, parts=list(_without_text_behind(message.parts))) if behind else message
        else:
            parts: list[Any] = list(message.parts)
            for index, part in enumerate(parts):
                if isinstance(part, ToolReturnPart) and _is_written(part):
                    parts[index] = _noted(part) if notes else part
                elif isinstance(part, ToolReturnPart) and response is not None:
                    parts[index] = with_hint(part, response, written=written)
            yield message if all(map(operator.is_, parts, message.parts)) else replace(message, parts=parts)


def _is_written(part: Any) -> bool:
    return isinstance(part, ToolCallPart | ToolReturnPart) and part.tool_call_id.startswith(WRITTEN)


def _without_text_behind(parts: Sequence[ModelResponsePart]) -> Iterator[ModelResponsePart]:
    called = False
    for part in parts:
        called = called or isinstance(part, ToolCallPart)
        if not called or not isinstance(part, TextPart):
            yield part


def _noted(part: ToolReturnPart[Any]) -> ToolReturnPart[Any]:
    what = "Python" if part.tool_name == CELL_TOOL else "a call"
    rest = "; text behind it was not read" if part.tool_name == CELL_TOOL else ""
    note = NOTE.format(what=what, tool=part.tool_name, rest=rest)
    content = part.content
    if isinstance(content, str):
        return replace(part, content=note + content)
    if isinstance(content, list) and content and isinstance(content[0], str):
        return replace(part, content=[note + content[0], *content[1:]])
    return replace(part, content=[note, content])
