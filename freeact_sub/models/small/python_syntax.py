"""Text that may be Python: its syntax tree or value, or None. Nothing is run."""

import ast
import warnings
from typing import Any


def parse_python(source: str) -> ast.Module | None:
    """The syntax tree; None where the text is not Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the model's code, such as odd escapes
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def parse_literal(source: str) -> Any:
    """The value of a Python literal; None where the text is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.literal_eval(source.strip())
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
            return None
