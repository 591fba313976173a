"""The tools of an agent for pydantic-ai: built-in ones (`AgentToolset`), and functions of the program (`OwnTools`).

Models call the program's functions as their own, code in cells by `agent.tools`.

The results of all tools pass through `bound_result` on their way to the model: cells, children, MCP servers and users' own
tools; texts, pictures and values. A text past the bound goes whole to a file, and the model reads its head, its tail and the
path. Pictures that the model cannot read are left out: one that a provider refuses would stay in the history and end the
conversation.
"""

import asyncio
import functools
import inspect
import itertools
import logging
import re
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_ai import BinaryContent, FunctionToolset, RunContext, ToolDefinition, ToolReturn
from pydantic_ai import Tool as FunctionTool
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    ToolFailed,
    ToolFailedError,
    ToolRetryError,
    UserError,
)
from pydantic_ai.messages import CachePoint, ImageUrl, TextContent, is_multi_modal_content
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import to_json

from freeact_sub.calls import Call
from freeact_sub.errors import ConfigError, FreeactError, InvalidRequestError
from freeact_sub.system.safe_files import write_new
from freeact_sub.text import wrong_fields
from freeact_sub.tools.tool import Outcome, Tool, ToolContext, ToolResult, built_in_names, load_definition

MAX_RETRIES = 5
"""Calls in a row that may have invalid arguments; the bound on turns applies as well."""
NOT_IN_CELLS: Final = "code in a cell cannot call the tool {name}: it is carried out elsewhere, later"

logger = logging.getLogger(__name__)


class JudgedToolset(AbstractToolset[Any]):
    """Tools that describe their calls, so that rules and people can judge them."""

    @abstractmethod
    def call_of(self, name: str, tool_args: Any) -> Call | None:
        """Return the call to judge before the tool runs. None: the toolset has no such tool."""


class AgentToolset(JudgedToolset):
    """The tools of one agent, by name."""

    def __init__(self, tools: Sequence[Tool], make_context: Callable[[str], ToolContext]) -> None:
        """Make the toolset. Args: make_context: makes the context for a tool call id."""
        self._tools = {tool.name: tool for tool in tools}
        self._make_context = make_context

    @property
    def id(self) -> str:
        """The id for pydantic-ai."""
        return "freeact-sub"

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools by name."""
        del ctx
        return {
            name: ToolsetTool(
                toolset=self,
                tool_def=load_definition(name),
                max_retries=MAX_RETRIES,
                args_validator=validator_of(tool.arguments),
            )
            for name, tool in self._tools.items()
        }

    async def call_tool(self, name: str, tool_args: Any, ctx: RunContext[Any], tool: ToolsetTool[Any]) -> Any:
        """Run a tool; its pictures follow its text."""
        del tool
        result = await self._tools[name].run(self._arguments(name, tool_args), self._make_context(ctx.tool_call_id or ""))
        return model_content(result)

    def call_of(self, name: str, tool_args: Any) -> Call | None:
        """Return the call to judge before the tool runs."""
        tool = self._tools.get(name)
        return None if tool is None else tool.call(self._arguments(name, tool_args))

    def _arguments(self, name: str, tool_args: Any) -> Any:
        kind = self._tools[name].arguments
        return tool_args if isinstance(tool_args, kind) else kind.model_validate(tool_args)


@functools.cache
def validator_of(arguments: type[BaseModel]) -> Any:
    """Return a validator of a tool's arguments."""
    arguments.model_rebuild()  # it is built when it is first needed
    return arguments.__pydantic_validator__


IMAGE_MARKS: Final = {
    "image/png": (b"\x89PNG\r\n\x1a\n", b"IEND"),
    "image/jpeg": (b"\xff\xd8\xff", b"\xff\xd9"),
    "image/gif": (b"GIF8", b"\x00;"),
    "image/webp": (b"RIFF", b"WEBP"),
}
"""Image types that models read: their first bytes, and bytes that must follow."""
MAX_IMAGE_BYTES: Final = 4_000_000
"""Bytes of the largest picture; providers refuse larger ones."""
MAX_IMAGES: Final = 5
MAX_FILE_BYTES: Final = 20_000_000
"""Bytes of the largest sound, film or document, which go to the model unchanged."""
MIN_SHARE: Final = 400
"""Characters left for each part of a text, below which the parts are joined."""
TEXT_TYPES: Final = re.compile(r"text/.*|application/(json|xml|yaml|x-yaml|toml|.*\+(json|xml))")

_numbers = itertools.count(1)


@dataclass
class OwnReturn(ToolReturn[Any]):
    """The return value of one of our tools."""

    outcome: Outcome = field(default="success", kw_only=True)
    sections: tuple[str, ...] = field(default=(), kw_only=True)
    bounded: bool = field(default=False, kw_only=True)


def model_content(result: ToolResult) -> ToolReturn[Any]:
    """Convert a result for pydantic-ai; the metadata is for programs that read the history."""
    content = [result.text, *result.images] if result.images else result.text
    return OwnReturn(
        content,
        metadata={"outcome": result.outcome} | ({"file": result.file} if result.file else {}),
        outcome=result.outcome,
        sections=result.sections,
        bounded=result.bounded,
    )


def with_note(result: Any, note: str) -> ToolReturn[Any]:
    """Return a tool's result with a note for the model in front."""
    returned = result if isinstance(result, ToolReturn) else ToolReturn(result)
    value = returned.return_value
    values = value if isinstance(value, list) else [value]
    first = f"{note}\n{values[0]}" if values and isinstance(values[0], str) else note
    rest = values[1:] if values and isinstance(values[0], str) else values
    return replace(returned, return_value=[first, *rest] if rest else first)


def outcome_of(result: Any) -> Outcome:
    """Return the outcome of a tool's return value; a user's tool that returns has succeeded."""
    return result.outcome if isinstance(result, OwnReturn) else "success"


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Bounds on the result of one call."""

    chars: int
    pictures: bool
    """Whether the model reads pictures."""
    folder: Path
    """The folder for the whole of longer texts."""
    root: Path
    """The folder from which `folder` is reached without following a link."""


async def bound_result(result: Any, bounds: Bounds, tool_call_id: str) -> Any:
    """Return a result unchanged if it is within bounds, else cut, with notes on the rest."""
    returned = result if isinstance(result, ToolReturn) else ToolReturn(result)
    sections = returned.sections if isinstance(returned, OwnReturn) else ()
    bounded = isinstance(returned, OwnReturn) and returned.bounded
    value = returned.return_value
    if isinstance(value, str) and returned.content is None and (bounded or len(value) <= bounds.chars):
        return result
    contents = _ResultParts(bounds.pictures)
    values, extra = contents.take(returned.return_value), contents.take_content(returned.content)
    values += contents.notes()
    texts = [item for item in (*values, *extra) if isinstance(item, str)]
    fits = bounded or sum(map(len, texts)) <= bounds.chars
    if fits and not contents.changed:
        return result
    if not fits:
        where = await _keep_whole("\n".join(texts), bounds, tool_call_id)
        if sections:
            values = [*sections, *contents.notes(), *_files(values)]
        values, extra = _cut(values, extra, bounds.chars, where)
        if sections:
            values = ["\n\n".join(item for item in values if isinstance(item, str)), *_files(values)]
    value = values[0] if len(values) == 1 else values or ""
    return replace(returned, return_value=value, content=extra or None)


async def bound_error(error: Exception, bounds: Bounds, tool_call_id: str) -> None:
    """Cut the message of a failed tool within its error."""
    if isinstance(error, ToolRetryError | ToolFailedError):
        part = error.tool_retry if isinstance(error, ToolRetryError) else error.tool_failed
        result = await bound_result(part.content, bounds, tool_call_id)
        if isinstance(result, ToolReturn):
            part.content = text_of(result)
    elif isinstance(error, ModelRetry | ToolFailed):
        error.message = text_of(await bound_result(error.message, bounds, tool_call_id))


def head_and_tail(text: str, limit: int, where: str = "") -> str:
    """Cut the middle of a long text. Args: where: the place of the whole text, for the note between head and tail."""
    left_out = len(text) - limit
    if left_out <= 0:
        return text
    head = limit * 2 // 3
    note = f"[… {left_out:,} of {len(text):,} characters left out{where and f'; {where}'} …]"
    return f"{text[:head]}\n{note}\n{text[head + left_out :]}"


def text_of(result: Any) -> str:
    """Return a tool's result as people read it."""
    if isinstance(result, ToolReturn) and isinstance(result.return_value, str) and result.content is None:
        return result.return_value
    if isinstance(result, ToolReturn):
        contents = _ResultParts(pictures=True)
        return "\n".join(map(text_of, [*contents.take(result.return_value), *contents.take_content(result.content)]))
    if isinstance(result, BinaryContent):
        return f"[{result.media_type}, {len(result.data):,} bytes]"
    return result if isinstance(result, str) else _json(result)


class _ResultParts:
    """Collector that separates the texts of results from files such as pictures."""

    def __init__(self, pictures: bool) -> None:
        self._pictures = pictures
        self._seen = self._hidden = 0
        self.changed = False
        """Whether something was left out or converted."""

    def take(self, value: Any) -> list[Any]:
        if value is None:
            return []
        if isinstance(value, str | CachePoint):
            return [value]
        if isinstance(value, TextContent):
            return [value.content]
        if is_multi_modal_content(value):
            return self._file(value)
        if isinstance(value, list) and any(is_multi_modal_content(item) for item in value):
            return [taken for item in value for taken in self.take(item)]
        files: list[Any] = []
        try:
            text = _json(_without_files(value, files))
        except (ValueError, RecursionError):  # it contains itself, or something without JSON
            self.changed = True
            return [str(value)]
        self.changed = self.changed or bool(files)
        return [text, *(taken for file in files for taken in self._file(file))]

    def take_content(self, content: str | Sequence[Any] | None) -> list[Any]:
        items = [content] if content is None or isinstance(content, str) else content
        return [taken for item in items for taken in self.take(item)]

    def notes(self) -> list[str]:
        if not self._hidden:
            return []
        why = "too many, too large, damaged, or of a kind that models do not read"
        why = why if self._pictures else "you read no pictures"
        return [f"[{self._hidden} of {self._seen} pictures are not shown to you: {why}]"]

    def _file(self, file: Any) -> list[Any]:
        if isinstance(file, ImageUrl) and file.url.startswith("data:"):
            try:
                file = BinaryContent.from_data_uri(file.url)
            except ValueError:
                file = BinaryContent(b"", media_type="image/unknown")
        if isinstance(file, ImageUrl) or (isinstance(file, BinaryContent) and file.media_type.startswith("image/")):
            return self._picture(file)
        if not isinstance(file, BinaryContent):
            return [file]
        if TEXT_TYPES.fullmatch(file.media_type):  # models read it as text
            self.changed = True
            return [file.data.decode(errors="replace")]
        if len(file.data) <= MAX_FILE_BYTES:
            return [file]
        self.changed = True
        return [f"[{file.media_type}, {len(file.data):,} bytes: too large to be shown to you]"]

    def _picture(self, picture: ImageUrl | BinaryContent) -> list[Any]:
        self._seen += 1
        if self._pictures and self._seen - self._hidden <= MAX_IMAGES and _is_sound(picture):
            return [picture]
        self._hidden += 1
        self.changed = True
        return []


def _is_sound(picture: ImageUrl | BinaryContent) -> bool:
    if isinstance(picture, ImageUrl):
        return not picture.url.partition("?")[0].lower().endswith(".svg")
    data = picture.data
    begin, follows = IMAGE_MARKS.get(picture.media_type, (b"", b""))
    if not begin or len(data) > MAX_IMAGE_BYTES or not data.startswith(begin) or follows not in data:
        return False
    return picture.media_type != "image/webp" or len(data) >= 8 + int.from_bytes(data[4:8], "little")


def _without_files(value: Any, files: list[Any]) -> Any:
    """Replace each file in a value by a word; append the files to the list."""
    if is_multi_modal_content(value):
        files.append(value)
        return f"[{value.media_type if isinstance(value, BinaryContent) else value.kind}]"  # a URL may hide the type
    if isinstance(value, Mapping):
        return {key: _without_files(item, files) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_files(item, files) for item in value]
    return value


def _json(value: Any) -> str:
    text = to_json(value, bytes_mode="base64", serialize_unknown=True).decode()
    return str(value) if text.startswith('"') and not isinstance(value, str) else text


def _files(items: Iterable[Any]) -> list[Any]:
    return [item for item in items if not isinstance(item, str)]


def _cut(values: list[Any], extra: list[Any], limit: int, where: str) -> tuple[list[Any], list[Any]]:
    texts = [item for item in (*values, *extra) if isinstance(item, str)]
    if limit < MIN_SHARE * len(texts):
        return [head_and_tail("\n".join(texts), limit, where), *_files(values)], _files(extra)
    shares = iter(_shares([len(text) for text in texts], limit))
    first = where

    def cut(items: list[Any]) -> Iterator[Any]:
        nonlocal first
        for item in items:
            if isinstance(item, str) and (share := next(shares)) < len(item):
                yield head_and_tail(item, share, first)
                first = ""  # it is one file for all
            else:
                yield item

    return [*cut(values)], [*cut(extra)]


def _shares(sizes: Sequence[int], limit: int) -> list[int]:
    """Divide the limit: short texts stay whole, long ones share the rest equally."""
    shares = [0] * len(sizes)
    order = sorted(range(len(sizes)), key=sizes.__getitem__)
    for done, index in enumerate(order):
        shares[index] = min(sizes[index], limit // (len(sizes) - done))
        limit -= shares[index]
    return shares


async def _keep_whole(text: str, bounds: Bounds, tool_call_id: str) -> str:
    """Write a whole text to a file; return a note that names the file."""
    file = output_file(bounds.folder, tool_call_id)
    try:
        await asyncio.to_thread(write_new, file, text.encode("utf-8", "backslashreplace"), root=bounds.root)
    except OSError as error:
        logger.warning("a tool's result could not be written to %s", file, exc_info=True)
        return f"it could not be kept in {file}: {error}"
    return f"all of it is in {file}"


def without_files(text: str, folder: Path) -> str:
    """Remove the names of output files from a text: they are new each time."""
    if str(folder) not in text:
        return text
    return re.sub(rf"{re.escape(str(folder))}/[\w.]+", "", text)


def output_file(folder: Path, tool_call_id: str, suffix: str = ".txt") -> Path:
    """Return a new file name for a call's output, unique among all agents and runs of the workspace."""
    name = re.sub(r"\W", "_", tool_call_id)[:40] or "call"
    return folder / f"{next(_numbers):04}-{name}{suffix}"


@dataclass(frozen=True)
class OwnTools:
    """The functions that a program gives its agents."""

    toolset: FunctionToolset[Any] | None = None
    """The functions, if there are any."""
    deps: Any = field(default=None, repr=False)
    """The value of `RunContext.deps`."""

    @property
    def toolsets(self) -> Sequence[AbstractToolset[Any]]:
        """The toolsets of a model's turns."""
        return () if self.toolset is None else (self.toolset,)

    @cached_property
    def names(self) -> Sequence[str]:
        """The names of the tools."""
        return () if self.toolset is None else tuple(self.toolset.tools)

    async def definitions(self, context: RunContext[Any]) -> list[ToolDefinition]:
        """Return the present tools, with their descriptions and schemas."""
        return [tool.tool_def for tool in (await self._tools(context)).values()]

    async def prepare(self, name: str, args: Mapping[str, Any], context: RunContext[Any]) -> "OwnCall":
        """Return a call whose arguments are valid.

        Raises:
            InvalidRequestError: There is no such tool, it cannot be called from code, or arguments are wrong.
        """
        tool = (await self._tools(context)).get(name)
        if tool is None:
            raise InvalidRequestError(f"agent.tools has no {name!r}; it has: {', '.join(self.names) or 'nothing'}")
        if tool.tool_def.kind not in ("function", "unapproved"):
            raise InvalidRequestError(NOT_IN_CELLS.format(name=name))
        context = replace(context, tool_name=name, max_retries=tool.max_retries)
        try:
            valid = tool.args_validator.validate_python(dict(args), context=context.validation_context)
            if tool.args_validator_func is not None and inspect.isawaitable(
                found := tool.args_validator_func(context, **valid)
            ):
                await found
        except ValidationError as error:
            raise InvalidRequestError(f"agent.tools.{name}: {wrong_fields(error.errors())}") from error
        except ModelRetry as error:
            raise InvalidRequestError(f"agent.tools.{name}: {error.message}") from error
        except ApprovalRequired:
            return OwnCall(tool, valid, context, needs_approval=True)
        except CallDeferred:
            raise InvalidRequestError(NOT_IN_CELLS.format(name=name)) from None
        return OwnCall(tool, valid, context, needs_approval=tool.tool_def.kind == "unapproved")

    async def _tools(self, context: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return {} if self.toolset is None else await self.toolset.get_tools(context)


@dataclass(frozen=True)
class OwnCall:
    """A call of a tool by code in a cell."""

    tool: ToolsetTool[Any]
    args: dict[str, Any]
    context: RunContext[Any]
    needs_approval: bool
    """Whether a person must agree, whatever mode and rules say."""

    async def run(self, *, approved: bool) -> Any:
        """Run the tool and return its value.

        Raises:
            ApprovalRequired: The tool says that a person must agree.
            InvalidRequestError: The tool asks for other arguments.
            FreeactError: The tool has failed.
        """
        name, context = self.tool.tool_def.name, replace(self.context, tool_call_approved=approved)
        try:
            value = await self.tool.toolset.call_tool(name, self.args, context, self.tool)
        except ApprovalRequired:
            if approved:
                raise FreeactError(f"the tool {name} asks for approval again and again") from None
            raise
        except CallDeferred:
            raise InvalidRequestError(NOT_IN_CELLS.format(name=name)) from None
        except (ModelRetry, ToolFailed) as error:
            raise InvalidRequestError(f"agent.tools.{name}: {error.message}") from error
        except FreeactError:
            raise
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise FreeactError(f"the tool {name} cancelled itself") from None
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # border: a program's function may raise anything
            logger.warning("the tool %s failed", name, exc_info=True)
            raise FreeactError(f"the tool {name} failed: {type(error).__name__}: {error}") from error
        return value.return_value if isinstance(value, ToolReturn) else value


def make_own_tools(tools: Sequence[FunctionTool[Any] | Callable[..., Any]], deps: Any) -> OwnTools:
    """Make tools of functions.

    Raises:
        ConfigError: One cannot be a tool, or has the name of another; the message names it.
    """
    if not tools:
        return OwnTools(deps=deps)
    toolset: FunctionToolset[Any] = FunctionToolset()
    for tool in tools:
        name = tool.name if isinstance(tool, FunctionTool) else getattr(tool, "__name__", repr(tool))
        if not isinstance(tool, FunctionTool) and not callable(tool):
            raise ConfigError(f"tools: {name} is neither a function nor a Tool of pydantic-ai")
        if name in built_in_names():
            raise ConfigError(f"tools: {name!r} is the name of a built-in tool: give yours another one")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # it may return a frame, of which there is no schema
                toolset.add_tool(tool) if isinstance(tool, FunctionTool) else toolset.add_function(tool)
        except (UserError, TypeError, ValueError, NameError) as error:
            raise ConfigError(f"tools: {name!r} cannot be a tool: {error}") from error
        except Exception as error:  # border: pydantic fails in many ways on a foreign signature
            raise ConfigError(f"tools: {name!r} cannot be a tool: {type(error).__name__}: {error}") from error
    return OwnTools(toolset, deps)
