"""YAML as plain data with the line of each part (`YamlReader`).

PyYAML parses, restricted to what JSON can express: no tags, and no aliases, with which a small file could describe an
endless value. Plain words are read as in YAML 1.2: `no` and `on` are text.
"""

import math
import re
from typing import Any, Final

import yaml

from freeact_sub.config.frontmatter import BadLineError, Path
from freeact_sub.config.parsing import check

PLAIN_TAGS: Final = frozenset({f"tag:yaml.org,2002:{name}" for name in ("str", "seq", "map")})
CONSTANTS: Final[dict[str, Any]] = {"": None, "~": None, "null": None, "true": True, "false": False}
INTEGER: Final = re.compile(r"[-+]?[0-9]{1,100}")
NUMBER: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


class _Composer(yaml.BaseLoader):
    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event: Any = self.peek_event()  # type: ignore[no-untyped-call]  # untyped in the stubs
            raise yaml.MarkedYAMLError(problem="aliases (*name) are not allowed", problem_mark=event.start_mark)
        return super().compose_node(parent, index)


class YamlReader:
    """Reader of YAML that makes plain data and notes the lines."""

    def __init__(self) -> None:
        self.lines: dict[Path, int] = {}

    def read(self, text: str) -> dict[str, Any]:
        """Return the values of a text. Raises BadLineError: A line is invalid."""
        try:
            node = yaml.compose(text, Loader=_Composer)
            value = None if node is None else self._value(node, ())
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = 2 + (mark.line if mark is not None else 0)
            raise BadLineError(f"it is not YAML: {error.problem or error.context}", line=line) from error
        except yaml.reader.ReaderError as error:
            raise BadLineError(f"it is not YAML: {error.reason}", line=2 + text.count("\n", 0, error.position)) from error
        except RecursionError as error:
            raise BadLineError("the settings are nested too deeply", line=2) from error
        if value is None:
            return {}
        try:
            check(value, texts=False)
        except ValueError as error:
            raise BadLineError(f"the settings cannot be used: {error}", line=2) from error
        if not isinstance(value, dict):
            raise BadLineError("the settings must be lines `name: value`", line=2)
        return value

    def _value(self, node: yaml.Node, path: Path) -> Any:
        line = 2 + node.start_mark.line  # line 1 is the fence
        self.lines.setdefault(path, line)
        if node.tag not in PLAIN_TAGS:
            raise BadLineError(f"tags ({node.tag}) are not allowed: write plain values", line=line)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, (*path, index)) for index, item in enumerate(node.value)]
        quoted = not isinstance(node, yaml.ScalarNode) or node.style is not None
        return node.value if quoted else _plain(node.value, line)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, value in node.value:
            line = 2 + key.start_mark.line
            if not isinstance(key, yaml.ScalarNode):
                raise BadLineError("a name must be text", line=line)
            if key.value in values:
                raise BadLineError(f"`{key.value}` is set twice", line=line)
            self.lines[(*path, key.value)] = line
            values[key.value] = self._value(value, (*path, key.value))
        return values


def _plain(text: str, line: int) -> Any:
    """Return the value of an unquoted word: null, a boolean, a number or text."""
    if text in CONSTANTS:
        return CONSTANTS[text]
    if INTEGER.fullmatch(text):
        return int(text)
    if NUMBER.fullmatch(text):
        number = float(text)
        if not math.isfinite(number):
            raise BadLineError(f"{text[:40]} is a number that is too large", line=line)
        return number
    return text
