"""Block mode: a model that acts by fenced blocks of Python, with its instructions, its replies and its view of the history.

A step is a fenced block; an answer has none. No tool is offered as a tool (`without_tools`). The text that the system prompt
has instead stands here, and so does the history as such a model reads it (`as_text`): its own calls as the blocks that it
wrote, their results as text from the user. Other tools than the cell are called like Python functions, alone in a block.
Only a block that is marked as Python is run.

A reply is streamed on as long as it is words for certain (`HeldBlocks`, `GrowingReply`); from the first block of Python on
it is held back until it has ended. The first event is passed on at once, if need be without text: it shows its reader that
the model answers.

`read_spans` cuts a reply into spans. Nothing is lost: the `raw` texts of the spans, put together, are the reply. A fence
opens a block at the start of a line, or where one word after it names a language and ends the line ("1. ```python", as small
models write it). A fence of the same characters, alone on a line, closes the block; a block never opens another one.

Each line is examined once, in a whole reply and in one that grows: the time is linear in the length of the text.

The first blocks that are marked as Python become `ToolCallPart`s (`parts_from_text`), and all the rest stays text, in order.
Such a call has an id that begins with `written-`, by which it is known again in a history, also in a stored one. The run
blocks are the first one, and those that follow it with no block of another kind between them, for the model mostly takes
that for their output. They are one cell; blocks of only tool calls are these calls.

Blocks of Python that only call tools are these calls (`python_calls`): awaited, printed or assigned, with arguments that
are literals, or names that were given to literals before. Arguments go through `arguments.repaired`. Anywhere else a call
that was written as text is a sign that a model means to act (`holds_calls`): as Python, or as JSON that names a tool, one
object or several, also with closing brackets missing at the end.
"""

import ast
import json
import re
import textwrap
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias, TypeGuard

from pydantic_ai import ToolDefinition
from pydantic_ai.messages import (
    CompactionPart,
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters

from freeact_sub.cells import CELL_TOOL
from freeact_sub.models.arguments import Schemas, main_text, parse_literal, parse_python, repaired, repaired_code

PYTHON: Final = frozenset({"python", "py", "python3", "py3", "ipython", "ipython3", "repl"})
"""Language names of Python blocks, in any case of letters."""

OPENING_CHARS: Final = 160
"""Longest opening, fence and language together."""

_LINES: Final = re.compile(r"[^\n]*\n|[^\n]+")
_OPENING: Final = re.compile(
    r"(?P<mark>(?<![`~])(?:`{3,16}|~{3,16}))[ \t]{0,4}(?:(?P<language>[\w+#.-]{1,32})|[^`~\n]{0,100})[ \t\r]{0,4}\n?\Z"
)
_MAY_OPEN: Final = re.compile(r"(?<![`~])(?:`{1,16}|~{1,16}|(?:`{3,16}|~{3,16})[^`~\n]{0,110})\Z")
"""The end of a growing line that may become an opening."""
_CLOSING: Final = re.compile(r"[ \t]*(`+|~+)[ \t\r]*\n?\Z")
WRITTEN: Final = "written-"
"""Prefix of the ids of calls made from blocks."""
NAMESPACES: Final = frozenset({"functions", "tools", "default_api"})
"""Prefixes that some models write before a tool's name."""
_NAME_KEYS: Final = ("name", "function", "tool", "tool_name")
_BETWEEN: Final = re.compile(r"[\s,;]*")
_CLOSERS: Final = ("", "}", "}}", "]", "}]", "}}]")


PROMPT: Final = """\
You act by writing Python code. To take a step, write one sentence and one fenced block, and nothing behind the block. For \
example:

I read the file.
```python
print(open("data.csv").read())
```

The block is run in your IPython kernel, and the next message shows you what it printed. Everything is done this way: \
looking at files, computing, counting, writing and correcting files. Never tell the user how to do it and never say \
what the code would print: write the block, and wait for its result. When the results that you have been shown answer \
the user, write the answer as plain text without such a block.
A block that is marked ```python is run, always; it is the only way to run code or to call a tool. Code that is only to be \
shown to the user, mark ```text."""

SUMMARISED: Final = "What came after that is summarised here:"

FUNCTIONS_PROMPT: Final = """
Tools are called like functions, each alone in a block. For example:

I use the tool {name}.
```python
{call}
```

These are the tools; use one where the user asks for it, or where it helps:"""


@dataclass(frozen=True, kw_only=True)
class WrittenCall:
    """A tool call that was written as text."""

    tool: str
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Prose:
    """Text for people."""

    raw: str


@dataclass(frozen=True, kw_only=True)
class FencedBlock:
    """A fenced block."""

    raw: str
    code: str
    """The text; for Python, with repaired line ends."""
    language: str
    """The language behind the fence, in lower case; empty: none."""
    closed: bool = True
    """Whether the block has its closing fence; the reply may end inside it."""

    @property
    def is_python(self) -> bool:
        """Whether the block is marked as Python, and not empty."""
        return self.language in PYTHON and bool(self.code.strip())


TextSpan: TypeAlias = Prose | FencedBlock


def read_spans(text: str) -> tuple[TextSpan, ...]:
    """Cut a whole reply into spans."""
    spans: list[TextSpan] = []
    position = body = 0
    opening: re.Match[str] | None = None
    for match in _LINES.finditer(text):
        line = match[0]
        if opening is None:
            opening = _opening(line)
            if opening is not None:
                start, body = match.start() + opening.start(), match.end()
                spans += [Prose(raw=text[position:start])] if start > position else []
                position = start
        elif _closes(line, opening["mark"]):
            end = match.end() - line.endswith("\n")
            spans.append(_block(opening, text[position:end], text[body : match.start()], closed=True))
            position, opening = end, None
    if opening is not None:
        spans.append(_block(opening, text[position:], text[body:], closed=False))
    elif position < len(text):
        spans.append(Prose(raw=text[position:]))
    return tuple(spans)


def has_python(text: str) -> bool:
    """Whether a reply holds a block that is marked as Python."""
    return any(isinstance(span, FencedBlock) and span.is_python for span in read_spans(text))


def _block(opening: re.Match[str], raw: str, code: str, *, closed: bool) -> FencedBlock:
    language = _language(opening)
    code = code.removesuffix("\n")
    if language in PYTHON:
        code = repaired_code(textwrap.dedent(code))
    return FencedBlock(raw=raw, code=code, language=language, closed=closed)


def _opening(line: str) -> re.Match[str] | None:
    match = _OPENING.search(line)
    if match is None or (line[: match.start()].strip() and not (match["language"] and "`" in match["mark"])):
        return None
    return match


def _language(opening: re.Match[str]) -> str:
    words = opening[0].lstrip("`~").split()
    return words[0].lower() if words else ""


def _closes(line: str, mark: str) -> bool:
    match = _CLOSING.match(line)
    return match is not None and match[1].startswith(mark)


def _end_of(line: str) -> str:
    """Return the part of an unfinished line that still matters: its tail, and whether anything stands before the tail."""
    return line if len(line) <= 2 * OPENING_CHARS else ("x" if line.strip() else " ") + line[-OPENING_CHARS:]


class GrowingReply:
    """A reply that is still being written, and its part that is words for certain.

    Text is given out up to the first block that is marked as Python, for that may become a call.
    """

    def __init__(self) -> None:
        self.passed = 0
        self._held: list[str] = []
        """Text not passed on yet."""
        self._line = ""
        """The newest line, or its end."""
        self._mark = ""
        """The fence of the open block, if it is not Python; empty: no such block is open."""
        self._holds = False
        """Whether a block of Python has started."""

    def add(self, text: str) -> str:
        """Add new text; return the text that has become certain to be words."""
        if not (self._held or self._holds or "\n" in text or "`" in text or "~" in text):  # most pieces
            self._line = _end_of(self._line + text)
            return self._pass_on(text)
        given = []
        for piece in _LINES.findall(text):
            self._held.append(piece)
            if not self._holds:
                given.append(self._certain(piece))
        return self._pass_on("".join(given))

    def rest(self) -> str:
        """Return the text not passed on yet."""
        rest, self._held = "".join(self._held), []
        return self._pass_on(rest)

    def _pass_on(self, text: str) -> str:
        self.passed += len(text)
        return text

    def _certain(self, piece: str) -> str:
        """Add a piece of a line; return the held text that is now certain to be words."""
        line = self._line + piece
        whole = line.endswith("\n")
        self._line = "" if whole else _end_of(line)
        if self._mark:
            if whole and _closes(line, self._mark):
                self._mark = ""
            return self._take_held(0)
        if not whole:
            match = _MAY_OPEN.search(line) if "`" in line or "~" in line else None  # most lines have none of them
            return self._take_held(0 if match is None else len(line) - match.start())
        opening = _opening(line)
        if opening is None:
            return self._take_held(0)
        if _language(opening) in PYTHON:
            self._holds = True
            return self._take_held(len(line) - opening.start())
        self._mark = opening["mark"]
        return self._take_held(0)

    def _take_held(self, kept: int) -> str:
        held = "".join(self._held)
        cut = len(held) - kept
        self._held = [held[cut:]] if kept else []
        return held[:cut]


class HeldBlocks:
    """Events of a reply in block mode: text is passed on once it is words for certain, the rest at the end."""

    def __init__(self) -> None:
        self._growing = GrowingReply()
        self._text_index: int | None = None
        """Index of the text part that is passed on. None: the newest part is no text."""
        self._following = 0
        """Index of the next new part."""

    def passed(self, event: ModelResponseStreamEvent) -> list[ModelResponseStreamEvent]:
        """Return the events to pass on for this one."""
        match event:
            case PartStartEvent(index=index, part=TextPart(content=text) as part):
                self._text_index = index
                self._following = max(self._following, index + 1)
                return [replace(event, part=replace(part, content=self._growing.add(text)))]
            case PartDeltaEvent(index=index, delta=TextPartDelta(content_delta=text) as delta) if index == self._text_index:
                released = self._growing.add(text)
                if released == text:
                    return [event]
                return [replace(event, delta=replace(delta, content_delta=released))] if released else []
            case PartStartEvent(index=index, part=part):
                # with a call of the model's own, text is text
                held = self._text(self._growing.rest()) if isinstance(part, ToolCallPart) else []
                self._text_index = None
                self._following = max(self._following, index + 1)
                return [*held, event]
        return [event]

    def rest(self, text: str, parts: Sequence[ModelResponsePart]) -> list[ModelResponseStreamEvent]:
        """Return the text and the calls that were held back. Args: text: the reply's. parts: made of the reply."""
        if not any(_is_written(part) for part in parts):
            return self._text(self._growing.rest())
        events: list[ModelResponseStreamEvent] = []
        before = text[: self._growing.passed]
        for part in parts:
            if isinstance(part, ToolCallPart):
                events.append(self._started(part))
                before, self._text_index = "", None
            elif isinstance(part, TextPart):
                events += self._text(part.content.removeprefix(before))
                before = ""
        return events

    def _text(self, text: str) -> list[ModelResponseStreamEvent]:
        """Return the event of new text: a delta if its part is the newest, else a new part."""
        if not text:
            return []
        if self._text_index is not None:
            return [PartDeltaEvent(index=self._text_index, delta=TextPartDelta(text))]
        return [self._started(TextPart(text))]

    def _started(self, part: TextPart | ToolCallPart) -> PartStartEvent:
        self._following += 1
        return PartStartEvent(index=self._following - 1, part=part)


def parts_from_text(text: str, tools: Schemas, *, complete: bool) -> list[ModelResponsePart]:
    """Return the spans as parts, in order; the code to run stands in the place of the first block."""
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
    """Return the blocks to run, by index: their code, or their calls if they hold nothing else."""
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
    """Return the code of a block, or its calls if it holds nothing else. None: no tool could run it."""
    if calls := python_calls(block.code, tools):
        return calls
    args = repaired({"code": block.code}, tools[CELL_TOOL]) if CELL_TOOL in tools else None
    return args["code"] if isinstance(args, dict) and isinstance(args.get("code"), str) else None


def _is_whole(block: FencedBlock, *, complete: bool) -> bool:
    """Whether a block is complete; without a closing fence, at the end of a reply, it must be Python."""
    return block.closed or (complete and parse_python(block.code) is not None)


def _calls_of(run: Sequence[str | list[WrittenCall]]) -> Iterator[WrittenCall]:
    codes = [action for action in run if isinstance(action, str)]
    if codes:
        yield WrittenCall(tool=CELL_TOOL, args={"code": "\n\n".join(codes)})
    for action in run:
        if not isinstance(action, str):
            yield from action


def without_text_after_calls(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Remove from the history the text that a model wrote after a block: small models take their guesses for results."""
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


def holds_calls(body: str, tools: Schemas) -> bool:
    """Whether a text consists of calls of tools, as JSON or Python."""
    values = _values_in(body.strip())
    if values:
        items = [item for value in values for item in (value if isinstance(value, list) else [value])]
        return bool(items) and all(_is_call(item, tools) for item in items)
    return bool(python_calls(body, tools))


def _values_in(text: str) -> list[Any]:
    """Return the JSON objects and lists that make up a text, also in Python's notation or without their last brackets."""
    if not text.startswith(("{", "[")):
        return []
    for closer in _CLOSERS:
        try:
            return [json.loads(text + closer, strict=False)]
        except (ValueError, RecursionError):
            literal = parse_literal(text + closer)
        if isinstance(literal, dict | list):
            return [literal]
    decoder, values, position = json.JSONDecoder(strict=False), list[Any](), 0
    while position < len(text):
        try:
            value, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            return []
        values.append(value)
        position = _BETWEEN.match(text, position).end()  # type: ignore[union-attr]  # it matches nothing, too
    return values


def _is_call(value: Any, tools: Schemas) -> bool:
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("function"), dict):  # as OpenAI's protocol has it
        value = value["function"]
    names = [name for key in _NAME_KEYS if isinstance(name := value.get(key), str)]
    return any(name in tools for name in [*names, *(value if len(value) == 1 else ())])  # {"task": {"prompt": ...}}


def python_calls(source: str, tools: Schemas) -> list[WrittenCall]:
    """Return the calls of a program that only calls tools with literals; none for other programs."""
    tree = parse_python(source.strip())
    if tree is None:
        return []
    known: dict[str, Any] = {}
    calls: list[WrittenCall] = []
    for statement in tree.body:
        if not isinstance(statement, ast.Expr | ast.Assign):
            return []
        call = _python_call(statement.value, known, tools)
        if call is not None:
            calls.append(call)
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            value = _literal(statement.value, known)
            if value is None:
                return []
            known[statement.targets[0].id] = value
        elif not calls or not _only_prints(statement.value):
            return []
    return calls


def _only_prints(node: ast.expr) -> bool:
    """Whether a statement is `print(answer)` after a call: the model reads the result anyway."""
    return _is_print(node) and all(isinstance(arg, ast.Name) for arg in node.args)


def _is_print(node: ast.expr) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"


def _python_call(node: ast.expr, known: dict[str, Any], tools: Schemas) -> WrittenCall | None:
    if isinstance(node, ast.Await):
        node = node.value
    if _is_print(node) and len(node.args) == 1:
        return _python_call(node.args[0], known, tools)
    name = _name_of(node.func) if isinstance(node, ast.Call) else ""
    if not isinstance(node, ast.Call) or name not in tools:
        return None
    schema = tools[name]
    order = [*([main_text(schema)] if main_text(schema) else []), *schema.get("properties", {})]
    order = list(dict.fromkeys(order))
    if len(node.args) > len(order) or any(keyword.arg is None for keyword in node.keywords):
        return None
    given = [*zip(order, node.args, strict=False), *((str(keyword.arg), keyword.value) for keyword in node.keywords)]
    args = {parameter: _literal(value, known) for parameter, value in given}
    if None in args.values():
        return None
    args = repaired(args, schema)
    return WrittenCall(tool=name, args=args) if isinstance(args, dict) else None


def _name_of(function: ast.expr) -> str:
    """Return the name of a called tool: `task`, also for `functions.task`."""
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id in NAMESPACES:
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _literal(node: ast.expr, known: dict[str, Any]) -> Any:
    """Return the value of a literal, or of a name assigned one. None: the expression is neither."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        return None


def without_tools(parameters: ModelRequestParameters) -> ModelRequestParameters:
    """Return the parameters without tools; the instructions tell in words how to act."""
    tools = [*parameters.function_tools, *parameters.output_tools]
    others = [tool for tool in tools if tool.name != CELL_TOOL]
    prompt = PROMPT if len(others) < len(tools) else ""
    if others:
        example = next((tool for tool in others if _required(tool)), others[0])
        arguments = ", ".join(f'{name}="…"' for name in _required(example))
        prompt += FUNCTIONS_PROMPT.format(name=example.name, call=f"{example.name}({arguments})")
        prompt += "".join(f"\n- {_signature(tool)}: {tool.description or ''}" for tool in others)
    instructions = [*(parameters.instruction_parts or []), *([InstructionPart(content=prompt)] if prompt else [])]
    return replace(
        parameters,
        function_tools=[],
        output_tools=[],
        output_mode="text",
        allow_text_output=True,
        instruction_parts=instructions or None,
    )


def _signature(tool: ToolDefinition) -> str:
    required = _required(tool)
    names = [name if name in required else f"{name}=…" for name in tool.parameters_json_schema.get("properties", {})]
    return f"{tool.name}({', '.join(names)})"


def _required(tool: ToolDefinition) -> Sequence[str]:
    return tuple(tool.parameters_json_schema.get("required", ()))


def as_text(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return the history as text, for a model that knows no tool messages."""
    return [_request(message) if isinstance(message, ModelRequest) else _response(message) for message in messages]


def _response(message: ModelResponse) -> ModelResponse:
    if not message.tool_calls:
        return message
    kept: list[ModelResponsePart] = []
    for part in message.parts:
        if not isinstance(part, ToolCallPart):
            kept.append(part)
        elif kept and isinstance(kept[-1], TextPart):
            kept[-1] = replace(kept[-1], content=f"{kept[-1].content.rstrip()}\n{_written_block(part)}")
        else:
            kept.append(TextPart(_written_block(part)))
    return replace(message, parts=kept)


def _written_block(call: ToolCallPart) -> str:
    args = call.args_as_dict()
    code = args.get("code")
    if call.tool_name != CELL_TOOL or not isinstance(code, str):
        code = f"{call.tool_name}({', '.join(f'{name}={value!r}' for name, value in args.items())})"
    return f"```python\n{code.strip()}\n```"


def _request(message: ModelRequest) -> ModelRequest:
    if not any(isinstance(part, ToolReturnPart | CompactionPart) for part in message.parts):
        return message
    parts: list[ModelRequestPart] = []
    said: list[UserContent] = []
    for part in message.parts:
        if isinstance(part, ToolReturnPart):
            said += _result(part)
        elif isinstance(part, UserPromptPart):
            said += [part.content] if isinstance(part.content, str) else part.content
        elif isinstance(part, CompactionPart):
            said.append(f"{SUMMARISED}\n{part.content}")
        else:
            parts.append(part)
    # one message: chat templates of small models often insist that user and assistant take turns
    texts = [item for item in said if isinstance(item, str)]
    others = [item for item in said if not isinstance(item, str)]
    text = "\n\n".join(texts)
    parts.append(UserPromptPart([text, *others] if others else text))
    return replace(message, parts=parts)


def _result(part: ToolReturnPart[Any]) -> list[UserContent]:
    what = "Your block was run" if part.tool_name == CELL_TOOL else f"{part.tool_name} was called"
    if part.outcome == "denied":
        what = "Your block was not run" if part.tool_name == CELL_TOOL else f"{part.tool_name} was not called"
    elif part.outcome == "retried":
        what = "Your block could not be read" if part.tool_name == CELL_TOOL else f"{part.tool_name} was not called"
    items = part.content_items(mode="str")
    texts = [item for item in items if isinstance(item, str)]
    files = [item for item in items if not isinstance(item, str)]
    return [f"{what}. The result:\n" + "\n".join(texts), *files]
