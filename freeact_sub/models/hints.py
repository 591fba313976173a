"""What a model is told beside an error that comes of how it writes its calls, not of its program. Pure.

- It defines a function in a fenced block, calls the tool with `print(function(20))`, and does so again when the name is not
  found: text is not run.
- It squeezes a program into one line that Python cannot take apart, and sends the same again after the SyntaxError.
"""

import ast
import re
from dataclasses import replace
from typing import Any, Final

from pydantic_ai.messages import ModelResponse, TextPart, ToolReturnPart

from freeact_sub.models.blocks import CELL_TOOL
from freeact_sub.models.parsing import parse_python
from freeact_sub.models.reading import PYTHON, Block, read

_MISSING: Final = re.compile(r"^NameError: name '(?P<name>\w+)' is not defined", re.MULTILINE)
TEXT_IS_NOT_RUN: Final = (
    "\n[You defined {name} in your text. Text is not run: put the definition and what uses it into one call.]"
)
ONE_LINE_CHARS: Final = 60
"""A shorter line is a slip, not a program."""
ONE_LINE: Final = "\n[The code is one line, and Python needs several. "
IN_A_BLOCK: Final = (
    "Do not call the tool: reply with the code in a fenced ```python block, each statement on its own line. It will be run.]"
)
IN_THE_CALL: Final = "Put \\n between the statements, so that each has a line of its own.]"


def with_hint(part: ToolReturnPart[Any], response: ModelResponse, *, written: bool) -> ToolReturnPart[Any]:
    """The result of a call, with a hint where there is one.

    Args:
        part: The result.
        response: The reply that made the call.
        written: Blocks in text may be run.
    """
    text = part.content
    if part.tool_name != CELL_TOOL or not isinstance(text, str):
        return part
    missing = _MISSING.search(text)
    if missing is not None and missing["name"] in _defined_in_text(response):
        return replace(part, content=text + TEXT_IS_NOT_RUN.format(name=missing["name"]))
    if "SyntaxError: " in text and _is_one_line(_code_of(part.tool_call_id, response)):
        return replace(part, content=text + ONE_LINE + (IN_A_BLOCK if written else IN_THE_CALL))
    return part


def _code_of(call_id: str, response: ModelResponse) -> str:
    codes = [call.args_as_dict().get("code") for call in response.tool_calls if call.tool_call_id == call_id]
    return str(codes[0]) if codes else ""


def _is_one_line(code: str) -> bool:
    return "\n" not in code.strip() and len(code) >= ONE_LINE_CHARS


def _defined_in_text(response: ModelResponse) -> set[str]:
    """The names that the Python blocks in a reply's text define."""
    spans = read("".join(part.content for part in response.parts if isinstance(part, TextPart)), {})
    codes = [span.code for span in spans if isinstance(span, Block) and span.language in PYTHON]
    return {name for code in codes for name in _defined(code)}


def _defined(code: str) -> list[str]:
    tree = parse_python(code)
    names: list[str] = []
    for statement in tree.body if tree is not None else []:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(statement.name)
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            names += [(alias.asname or alias.name).partition(".")[0] for alias in statement.names]
        elif isinstance(statement, ast.Assign):
            names += [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return names
