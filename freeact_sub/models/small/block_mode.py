"""`code_actions = "block"`: for models without tool calls. A step is a fenced Python block; an answer has none.

No tool is offered as a tool. What the system prompt says instead stands here, and so does the history as such a model reads
it: its own calls as the blocks that it wrote, their results as text from the user. Tools other than the cell are called like
Python functions, alone in a block; `replies` finds them there. Only a block that is marked as Python is run.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic_ai import ToolDefinition
from pydantic_ai.messages import (
    CompactionPart,
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters

from freeact_sub.cells import CELL_TOOL

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


def without_tools(parameters: ModelRequestParameters) -> ModelRequestParameters:
    """The parameters without tools; the instructions say in words how to act."""
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
    """The history as text, for a model that knows no tool messages."""
    return [_request(message) if isinstance(message, ModelRequest) else _response(message) for message in messages]


def _response(message: ModelResponse) -> ModelResponse:
    if not message.tool_calls:
        return message
    kept: list[ModelResponsePart] = []
    for part in message.parts:
        if not isinstance(part, ToolCallPart):
            kept.append(part)
        elif kept and isinstance(kept[-1], TextPart):
            kept[-1] = replace(kept[-1], content=f"{kept[-1].content.rstrip()}\n{_block(part)}")
        else:
            kept.append(TextPart(_block(part)))
    return replace(message, parts=kept)


def _block(call: ToolCallPart) -> str:
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
